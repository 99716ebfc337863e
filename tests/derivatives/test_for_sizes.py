"""Defs whose extents no formula says for all sizes, and ranges that no sum of indices ends."""

from __future__ import annotations

import numpy as np
import pytest

import tcomp as tc
from tcomp.fuzzing import gradients


def test_sizes_that_are_given_serve_alone() -> None:
    text = "def f(double(N) A, double(M) B, const int S) -> (Y) { Y(i) = A(i) * B(i) * S where i in 0:(N > 3 ? 4 : 2) }"
    f = tc.define(text).f
    with pytest.raises(tc.DerivativeError, match="cannot be said for all sizes"):
        f.gradient("A")
    g = f.gradient("A", sizes={"N": 9, "M": 9, "S": 2})
    A, B = np.arange(9.0), np.arange(9.0)
    assert g.only == {"N": 9, "M": 9, "S": 2}
    assert (g(A, B, 2, np.ones(4)) == [0, 2, 4, 6, 0, 0, 0, 0, 0]).all()
    with pytest.raises(tc.ShapeError, match="derived for S=2 alone, not for 3"):
        g(A, B, 3, np.ones(4))
    with pytest.raises(tc.ShapeError, match="derived for A"):
        g(np.arange(10.0), B, 2, np.ones(4))


def test_tangents_for_sizes() -> None:
    f = tc.define("def f(double(N) A, double(M) B) -> (Y) { Y(i) = A(i) * B(i) where i in 0:(N > 3 ? 4 : 2) }").f
    jvp = f.tangent("A", sizes={"N": 9, "M": 9})
    B = np.arange(9.0)
    assert (jvp(np.ones(9), B, np.ones(9)) == [0, 1, 2, 3]).all()


@pytest.mark.parametrize("operator", ["+=!", "*=!", "max=!", "min=!"])
@pytest.mark.parametrize("bounds", ["0:min(i + 1, M)", "max(i - 1, 0):i + 1", "min(i, 1):min(i + 2, 3)"])
def test_ranges_that_end_at_the_least_of_several(operator: str, bounds: str) -> None:
    text = f"def f(double(N) A, double(M) B) -> (Y) {{ Y(i) {operator} A(i + r) * B(r) where i in 0:4, r in {bounds} }}"
    assert gradients.check(tc.define(text).f, {"N": 9, "M": 5}, 3).kind == "passed"


def test_content_of_outputs_that_do_not_begin_at_0() -> None:
    g = tc.define("def f(double(N) A) -> (Y) { Y(i) *= A(i) where i in 2:N }").f.gradient()
    assert [t.name for t in g.function.inputs] == ["A", "Y_in"]
    d_A, d_Y_in = g(np.arange(5.0), np.array([1.0, 2.0, 3.0]), np.ones(3))
    assert (d_A == [0, 0, 1, 2, 3]).all() and (d_Y_in == [2, 3, 4]).all()


def test_data_choose_beside_a_subscript_that_is_no_index() -> None:
    text = "def f(double(M,3) B, int32(5) I) -> (T) { T(i) = B(min(i, 1), I(i)) where i in 0:5 }"
    assert gradients.check(tc.define(text).f, {"M": 4}, 1).kind == "passed"


@pytest.mark.parametrize("subscript", ["i ^ 1", "i ^ 2", "2 * i + i % 3", "(i + 1) ^ 1"])
@pytest.mark.parametrize("extent", [1, 4, 5])
def test_places_that_bits_and_remainders_tell(subscript: str, extent: int) -> None:
    """What writes `i ^ 1` was said to write more elements than it does."""
    text = f"def f(double(N) A) -> (C) {{ T({subscript}) +=! A(i) * A(i) where i in 0:N  C +=! T({subscript}) * A(i) }}"
    assert gradients.check(tc.define(text).f, {"N": extent}, 3).kind == "passed"


@pytest.mark.parametrize("kind", ["repeat_edge", "mirror_image", "mirror_interior", "repeat_image"])
@pytest.mark.parametrize("extent", [0, 1, 2])
def test_boundaries_of_fewer_elements_than_the_text_is_for(kind: str, extent: int) -> None:
    f = tc.define(f"def f(double(N) A) -> (T) {{ T(i) = {kind}(A)(i - 3) * A(i) where i in 0:N }}").f
    assert gradients.check(f, {"N": extent}, 3).kind == "passed"


def test_a_gradient_for_all_sizes_is_derived_anew_for_few_elements() -> None:
    f = tc.define("def f(double(N) A) -> (T) { T(i) = mirror_image(A)(i - 3) where i in 0:N }").f
    g = f.gradient()
    assert g(np.ones(5), np.arange(5.0)).tolist() == [5, 5, 0, 0, 0]
    assert g(np.ones(2), np.arange(2.0)).tolist() == [0, 1]
    assert g.suits({"N": 5}) and not g.suits({"N": 2})
    with pytest.raises(tc.ShapeError, match="d_T"):
        g(np.ones(5), np.arange(4.0))


def test_indices_that_are_called_like_sizes() -> None:
    f = tc.define("def f(double(N, M) X) -> (D) { D(M, N) +=! X(M, N) * X(N, M) }").f
    assert gradients.check(f, {"N": 3, "M": 3}, 1).kind == "passed"
