"""Reductions whose points are spread over elements: transposed convolutions for one; and what stays as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.grammar import define
from tcomp.model.build import build
from tcomp.model.terms.sizes import Sizes

pytestmark = pytest.mark.sweep(3)

Array = np.ndarray[Any, np.dtype[Any]]


def transposed(window: int, stride: int, dtype: str = "float") -> str:
    return f"""def f({dtype}(N,C,H,W) X, {dtype}(C,F,{window},{window + 1}) K) -> (Y) {{
        Y(n,f,{stride}*h+i,2*w+j) +=! X(n,c,h,w) * K(c,f,i,j) }}"""


def integers(shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
    return np.random.default_rng(shape).integers(-3, 4, shape).astype(dtype)


def statements(text: str, sizes: dict[str, int]) -> list[str]:
    return [s.name for s in build(define(text)["f"], Sizes(sizes)).statements]


@pytest.mark.parametrize(("window", "stride"), [(2, 2), (3, 2), (4, 2), (3, 3), (5, 1), (4, 3)])
def test_a_transposed_convolution(window: int, stride: int) -> None:
    f = tc.define(transposed(window, stride))["f"]
    X, K = integers((2, 5, 4, 9)), integers((5, 3, window, window + 1))
    kernel = f.compile(X, K)
    assert (kernel(X, K) == f.reference(X, K)).all()
    assert "contract" in {o.kind for o in kernel.compilation.plan.operations.values()}


def test_points_that_do_not_meet_are_kept_once() -> None:
    text = "def f(float(C,W) X, float(C,F,2) K) -> (Y) { Y(f,2*w+j) +=! X(c,w) * K(c,f,j) }"
    assert statements(text, {"C": 8, "W": 5, "F": 3}) == ["S0i", "S0", "S0f"]
    assert statements(text.replace("F,2", "F,3"), {"C": 8, "W": 5, "F": 3}) == ["S0ti", "S0t", "S0i", "S0", "S0f"]


def test_points_are_products_of_whole_matrices() -> None:
    f = tc.define("""def f(float(C,H,W) X, float(C,F,3,4) K) -> (Y) {
        Y(f,2*h+i,2*w+j) +=! X(c,h,w) * K(c,f,i,j) }""")["f"]
    X, K = integers((8, 5, 7)), integers((8, 6, 3, 4))
    kernel = f.compile(X, K)
    assert (kernel(X, K) == f.reference(X, K)).all()
    assert ("S0t", "h", "w") in kernel.compilation.plan.merged
    assert not any(copy.storage.startswith("Y_points") for copy in kernel.compilation.plan.copies)


@pytest.mark.parametrize("dtype", ["double", "int32", "half"])
def test_other_types(dtype: str) -> None:
    numpy = {"double": np.float64, "int32": np.int32, "half": np.float16}[dtype]
    f = tc.define(transposed(3, 2, dtype))["f"]
    X, K = integers((1, 6, 5, 5), numpy), integers((6, 4, 3, 4), numpy)
    assert (f(X, K) == f.reference(X, K)).all()


@pytest.mark.parametrize("reduction", ["max", "min", "+"])
def test_points_that_are_not_there_contribute_nothing(reduction: str) -> None:
    """Not even what zero times infinity is, nor zero as an extremum."""
    f = tc.define(f"def f(float(C,X) A, float(C,Y) B) -> (Z) {{ Z(2*x+y) {reduction}=! A(c,x) * B(c,y) }}")["f"]
    A, B = integers((6, 12)) + 5, integers((6, 5)) + 4
    assert (f(A, -B) == f.reference(A, -B)).all()
    B[:, 3] = np.inf
    assert (f(A, B) == f.reference(A, B)).all()


@pytest.mark.parametrize(("window", "stride"), [(3, 2), (2, 2), (2, 4)])
@pytest.mark.parametrize("reduction", ["+", "max"])
def test_points_go_on_from_what_is_there(reduction: str, window: int, stride: int) -> None:
    text = f"""def f(float(C,W) X, float(C,{window}) K) -> (Y) {{
        T(w) = 7.5 where w in 0:{stride}*W+5  T({stride}*w+j+1) {reduction}= X(c,w) * K(c,j)
        Y(w) = T(w) where w in 0:{stride}*W+5 }}"""
    f = tc.define(text)["f"]
    X, K = integers((8, 9)), integers((8, window))
    assert (f(X, K) == f.reference(X, K)).all()
    assert "S1i" in statements(text, {"C": 8, "W": 9})
    assert ("S1t" in statements(text, {"C": 8, "W": 9})) == (window > stride)


UNCHANGED = {
    "nothing to reduce before": "Y(2*w+j) +=! X(0,w) * K(0,j) where j in 0:3",
    "points of a triangle": "Y(2*w+j) +=! X(c,w) * K(c,j) where w in 0:W, j in 0:3, c in 0:w+1",
    "elements without a step": "Y(w+j) max=! X(c,w) * K(c,j) where w in 0:W, j in 0:2, r in 0:j",
    "points meet beside holes": """T(h,w) = 0.0 where h in 0:2*W+1, w in 0:4*W
        T(2*h+i,4*w+j) +=! X(c,w) * X(c,h) * K(c,j) where i in 0:3, j in 0:3
        Y(h,w) = T(h,w) where h in 0:2*W+1, w in 0:4*W""",
}


@pytest.mark.parametrize("name", UNCHANGED)
def test_other_reductions_stay_as_they_are(name: str) -> None:
    text = f"def f(float(C,W) X, float(C,3) K) -> (Y) {{ {UNCHANGED[name]} }}"
    f = tc.define(text)["f"]
    X, K = integers((8, 8)), integers((8, 3))
    assert (f(X, K) == f.reference(X, K)).all()
    assert not any(s.endswith(("t", "ti")) for s in statements(text, {"C": 8, "W": 8}))


def test_spread_points_keep_their_own_tiles() -> None:
    """In the tiles of what reads a part of the elements, a row of them would be a register tile."""
    f = tc.define("""def f(float(C,W) X, float(C,F,2) K) -> (O) {
        Y(g,2*w+j) +=! X(c,w) * K(c,g,j)  O(g,w) = Y(g,w+1) where g in 0:F, w in 0:2*W-2 }""")["f"]
    X, K = integers((16, 40)), integers((16, 24, 2))
    kernel = f.compile(X, K)
    assert (kernel(X, K) == f.reference(X, K)).all()
    assert len(kernel.compilation.plan.groups) == 2


@pytest.mark.long
def test_strides_and_dilations_that_leave_holes_between_elements() -> None:
    """isl took most of the time to find out which tiles read the same; with a third dimension most of a minute."""
    text = """def f(float(N,X,Y,C) I, float(KX,KY,C,F) W) -> (O) {
        O(n,i,j,f) = 0.0 where n in 0:N, f in 0:F, i in 0:24, j in 0:24
        O(n,3*x+2*kx,3*y+2*ky,f) += I(n,x,y,c) * W(kx,ky,c,f) }"""
    f = tc.define(text)["f"]
    image, weights = integers((2, 6, 6, 3)), integers((4, 4, 3, 4))
    expected = np.zeros((2, 24, 24, 4), np.float32)
    for a, b in np.ndindex(4, 4):
        expected[:, 2 * a : 2 * a + 16 : 3, 2 * b : 2 * b + 16 : 3] += image @ weights[a, b]
    assert (f(image, weights) == expected).all()
