"""Programs whose derivatives random programs found to be wrong, or refused without need."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

import tcomp as tc
from tcomp.fuzzing.gradients import check

CASES: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "a declared tensor that is begun with zeros": (
        (
            "def f(double(4) X) -> (O) {"
            " double T(2*i) = X(i) where i in 0:4  T(2*i + 1) = sin(X(i)) where i in 0:4"
            " T(3*i) max= X(i) where i in 0:2  O(j) = T(j) where j in 0:8 }"
        ),
        {},
    ),
    "a settled choice leaves zeros without a type": (
        (
            "def f(double(N) A) -> (O) { T(i) = A(i) * A(i)"
            " O(i) max=! T(r) - (0 >= 0 ? relu(A(i)) : clamp(repeat_edge(T)(r - 2), -3, 3)) where i in 0:N, r in 0:8 }"
        ),
        {"N": 13},
    ),
    "a product that begins anew in a part": (
        "def f(double(N) A, double(N,K) B) -> (T) { T(i) = A(i) T(2*i) *=! B(i,k) where i in 0:3 }",
        {"N": 7, "K": 3},
    ),
    "a maximum that begins anew in a part": (
        "def f(double(N) A, double(N,K) B) -> (T) { T(i) = A(i) T(2*i) max=! B(i,k) where i in 0:3 }",
        {"N": 7, "K": 3},
    ),
    "a range that depends on what a subscript is solved for": (
        "def f(double(N) A) -> (T) { T(i) +=! A(3*r + i + 1) where i in 0:4, r in 0:i }",
        {"N": 12},
    ),
    "integers made of floats": (
        "def f(double(N) A) -> (T, O) { T(i) = int32(3.0 * A(i)) T(i) += 1 O(i) = A(i) * double(T(i)) }",
        {"N": 4},
    ),
    "data choose one subscript of a product": (
        (
            "def f(double(N) A, int32(M) I) -> (double(N,2) T) {"
            " T(i,j) = A(i) where j in 0:2  T(2*i, I(m)) *=! A(i) * A(i) where i in 0:2 }"
        ),
        {"N": 5, "M": 2},
    ),
    "a part that was not written before it is copied": (
        (
            "def f(double(N) A, const int P) -> (T) {"
            " T(2*z) = A(z) where z in 0:3  T(P*z + 1) = A(z+1) * A(z) where z in 0:2  T(0) = T(2) * T(2) }"
        ),
        {"N": 5, "P": 2},
    ),
    "a declared tensor that is an output, where numbers take the place of sizes": (
        (
            "def f(double(N) A, int32(N) I) -> (T) {"
            " double(8) T(I(i) % 8) +=! A(r) where i in 0:N, r in 0:(N > 3 ? 4 : 2) }"
        ),
        {"N": 4},
    ),
    "reads that bound indices which what begins a scatter has not": (
        (
            "def f(double(N) A, int32(M,N) B) -> (double(2,3) T) { T(i,j) = A(j) where i in 0:2, j in 0:3"
            " T(B(k, min(k,1)) % 2, j) +=! 3.0 - double(int32(A(k*r))) where j in 0:2, r in 0:1, exists A(k + r) }"
        ),
        {"N": 5, "M": 3},
    ),
    "parts side by side": (
        "def f(double(N) A) -> (T) { T(0) = A(0) T(i) = A(i) where i in 1:N  T(0) = T(0) * T(1) }",
        {"N": 5},
    ),
    "the edge, anywhere outside": ("def f(double(N) A) -> (T) { T(i) = repeat_edge(A)(i*i) where i in 0:N }", {"N": 4}),
    "periods, anywhere outside": (
        "def f(double(N,M) A) -> (T) { T(i,j) = repeat_image(A)(i*i - 3, j+1) * A(i,j) where i in 0:N, j in 0:M }",
        {"N": 4, "M": 3},
    ),
    "a mirror, anywhere outside": (
        (
            "def f(double(N) A) -> (T, U) { T(i) = mirror_image(A)(i*i - 4) where i in 0:5"
            " U(i) = mirror_interior(A)(7 - i*i) * A(0) where i in 0:5 }"
        ),
        {"N": 3},
    ),
    "boundaries of a tensor that does not begin at 0, anywhere outside": (
        (
            "def f(double(N) A) -> (T, U, V, W) { B(i) = A(i-2) * A(0) where i in 2:N+2"
            " T(i) = mirror_image(B)(i*i - 4) where i in 0:5  U(i) = mirror_interior(B)(7 - i*i) where i in 0:5"
            " V(i) = repeat_edge(B)(i*i) where i in 0:5  W(i) = repeat_image(B)(i*i - 9) where i in 0:5 }"
        ),
        {"N": 4},
    ),
    "a range from data of rows that are read from the last to the first": (
        "def f(double(5) A, double(N) B, int32(5) C) -> (T) { T +=! A(4-i) * B(r) where i in 0:5, r in C(i):3 }",
        {"N": 5},
    ),
    "a product of indices on the left, were the index beside it left where it is": (
        "def f(double(N,M) A) -> (O) { O(i) +=! A(i*j, i) * A(j, j) where i in 0:3, j in 0:3 }",
        {"N": 6, "M": 5},
    ),
    "a choice that is always a number": (
        (
            "def f(double(17,17) B, double(4,4) T_in) -> (double(4,4) T) {"
            " T(i,j) = T_in(i,j) where i in 0:4, j in 0:4"
            " T(i,j) max=! B(i > 1 ? 2 : 0, r+14) % 5.0 * max(min(i,1)-2 < 0 ? 1.0 : T(0, min(i,1)-2), T(j,j))"
            " where i in 0:4, j in 0:4, r in 0:2 }"
        ),
        {},
    ),
    "a product of indices beside an index of its own": (
        "def f(double(N) A) -> (O) { O(i) +=! A(i*j) * A(j) where i in 0:3, j in 0:3 }",
        {"N": 6},
    ),
    "boundaries of a tensor that begins below 0, near and far": (
        (
            "def f(double(N) A) -> (T, U, V, W) { B(i) = A(i+3) * A(i+3) where i in -3:N-3"
            " T(i) = mirror_image(B)(i) where i in -5:N  U(i) = mirror_interior(B)(3*i) where i in -5:N"
            " V(i) = repeat_edge(B)(2*i) where i in -3:4"
            " W(i) = repeat_image(B)(i) + mirror_image(B)(2*i) where i in -9:9 }"
        ),
        {"N": 6},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_derivatives(name: str) -> None:
    text, sizes = CASES[name]
    verdict = check(tc.define(text).f, sizes, 0)
    assert (verdict.kind, verdict.detail) == ("passed", "")


def test_doubles_that_are_added_to_the_adjoint_of_a_float() -> None:
    f = tc.define(
        "def f(float(N) A) -> (T, double(N) O) { T(i) = A(i) * A(i)  O(i) +=! double(T(i)) * double(T(j)) }"
    ).f
    A = np.array([1, 2], "f4")
    d_A = f.gradient().backward.reference(A, A * A, np.ones(2, "f4"), np.ones(2))
    assert d_A.dtype == np.float32 and d_A.tolist() == [22, 44]


def test_what_cannot_move() -> None:
    f = tc.define("def f(float(N) X) -> (T) { T(i) = int32(X(i)) }").f
    with pytest.raises(tc.DerivativeError, match="no output of floats"):
        f.tangent()


def test_a_number_converted_to_an_integer_stays_one() -> None:
    """It was 0.0, and what was divided by 4 was no longer rounded down: torch told."""
    text = (
        "def f(double(N) A, int64(M) B) -> (Y) { Y(i) = A(i) * double((i > 2 ? int64(0) : B(i)) / 4) where i in 0:4 }"
    )
    f = tc.define(text).f
    d_A = f.gradient("A").backward.reference(np.array([3, 7, 9]), 4, np.ones(4))
    assert (d_A == [0, 1, 2, 0]).all()


def test_a_tangent_goes_where_the_statement_goes() -> None:
    """Ranges that no formula says follow from reads that the tangent does not have; it took its own for all."""
    text = """def f(double(N) A, double(M) B) -> (Y) {
        T(i) = i % 2 > 5 ? B(i % 2 + i) : A(i)
        Y +=! mirror_image(T)(k) where k in 0:9
    }"""
    f, A, B = tc.define(text).f, np.ones(9), np.ones(4)
    assert f.tangent("A").reference(A, B, np.arange(9.0)) == 9
    assert check(f, {"N": 9, "M": 4}, 1).kind == "passed"


@pytest.mark.parametrize("kind", ["mirror_image", "mirror_interior"])
@pytest.mark.parametrize("extent", [1, 2, 3])
def test_mirrors_of_few_elements(kind: str, extent: int) -> None:
    """What is read more than a period outside went to elements that are none."""
    text = f"def f(double({extent}) A) -> (Y) {{ Y(i) = {kind}(A)(i - 3) * sin({kind}(A)(i)) where i in 0:4 }}"
    assert check(tc.define(text).f, {}, extent).kind == "passed"


def test_a_range_that_no_formula_bounds_is_kept() -> None:
    """It begins at an index that only reads bound; it went in tangents, where elements were read unwritten."""
    text = """def f(double(N,4,2) A, double(N,N) B) -> (Y) {
        T(i, j, r) = (i >= 0 ? A(r, i, 0) : B(j, r)) - B((r + j) / 2, r) where i in 0:4, r in j:1
        Y(i, j) max=! T(i, j, r) where i in 0:4, r in j:1
    }"""
    f = tc.define(text).f
    assert "r in j:1" in str(f.tangent())


def test_conditions_beside_torch_are_those_of_the_interpreter() -> None:
    """Whether a value is its own minimum was asked of torch's asinh on one side, of NumPy's on the other."""
    pytest.importorskip("torch")
    f = tc.define("def f(double(N) A) -> (Y) { T(i) = asinh(A(i))  Y(i) = asinh(A(i)) == T(i) ? A(i) * A(i) : 0.0 }").f
    assert check(f, {"N": 64}, 0).kind == "passed"


def test_content_of_declared_extents_where_no_formula_says_what_is_written() -> None:
    f = tc.define(
        "def f(double(N) A) -> (double(2) T) { T(i) max= A(r) where i in 0:2, r in 0:min(i + 1, 3)  T(0) *= A(0) }"
    ).f
    d_a, d_t = f.gradient()(np.array([1.0, 2.0, 3.0]), np.array([5.0, 0.0]), np.ones(2))
    assert (d_a.tolist(), d_t.tolist()) == ([5, 1, 0], [1, 0])
