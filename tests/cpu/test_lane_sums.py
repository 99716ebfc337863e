"""Products of few rows with a transposed matrix: register tiles of dot products, lanes along the reduction."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.mapping.contraction.lanesums import sum_tile
from tcomp.mapping.machines.cpu import Machine, this_machine

pytestmark = pytest.mark.sweep(3)

Array = np.ndarray[Any, np.dtype[Any]]
Use = pytest.MonkeyPatch

TRANSPOSED = "def f(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }"
MATRIX_VECTOR = "def f(float(M,K) A, float(K) x) -> (y) { y(m) +=! A(m,k) * x(k) }"
ADDED = re.compile(r"\btc_lanes_added_")
PLAIN_STEP = re.compile(r"_acc\d\[.*\] = \(.* \+ ")
"""A step element by element."""


def integers(shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
    return np.random.default_rng(shape).integers(-3, 4, shape).astype(dtype)


@pytest.mark.parametrize("rows", [2, 3, 7, 12, 19])
def test_few_rows_of_all_sizes(rows: int) -> None:
    """Tiles at both edges, steps that fill no vector, and rows that begin anywhere."""
    f = tc.define(TRANSPOSED)["f"]
    for columns, depth in ((70, 1000), (33, 517), (2, 512)):
        A, B = integers((rows, depth)), integers((columns, depth))
        kernel = f.compile(A, B)
        assert ADDED.search(kernel.source) and not PLAIN_STEP.search(kernel.source)
        assert (kernel(A, B) == A @ B.T).all(), (rows, columns, depth)


@pytest.mark.parametrize("shape", [(1, 100), (7, 300), (1001, 333), (64, 64)])
def test_a_matrix_times_a_vector(shape: tuple[int, int]) -> None:
    A, x = integers(shape), integers(shape[1:])
    assert (tc.define(MATRIX_VECTOR)["f"](A, x) == A @ x).all()


@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("dtype", ["float", "double", "int32", "int64"])
def test_types_in_vectors_of_every_width(monkeypatch: Use, width: int, dtype: str) -> None:
    other = replace(this_machine(), vector_bytes=min(width, this_machine().vector_bytes), registers=16)
    monkeypatch.setattr("tcomp.runtime.registry.this_machine", lambda: other)
    f = tc.define(TRANSPOSED.replace("float", dtype))["f"]
    numbers = {"float": np.float32, "double": np.float64, "int32": np.int32, "int64": np.int64}[dtype]
    A, B = integers((5, 707), numbers), integers((22, 707), numbers)
    kernel = f.compile(A, B)
    assert ADDED.search(kernel.source)
    assert (kernel(A, B) == A @ B.T).all()


FORMS: dict[str, tuple[str, list[tuple[int, ...]], str]] = {
    "batches": (
        "def f(float(B,M,K) X, float(B,N,K) Y) -> (Z) { Z(b,m,n) +=! X(b,m,k) * Y(b,n,k) }",
        [(3, 6, 400), (3, 21, 400)], "bmk,bnk->bmn",
    ),
    "two reduced indices": (
        "def f(float(M,J,K) X, float(N,J,K) Y) -> (Z) { Z(m,n) +=! X(m,j,k) * Y(n,j,k) }",
        [(6, 5, 100), (21, 5, 100)], "mjk,njk->mn",
    ),
    "turned results": (
        "def f(float(M,K) X, float(N,K) Y) -> (Z) { Z(n,m) +=! X(m,k) * Y(n,k) }", [(6, 400), (21, 400)], "mk,nk->nm",
    ),
    "a window": (
        "def f(float(L,C) X, float(O,W,C) Y) -> (Z) { Z(i,o) +=! X(i+w,c) * Y(o,w,c) where i in 0:L-2 }",
        [(9, 300), (21, 3, 300)], "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("threads", [True, False])
def test_forms(name: str, threads: bool) -> None:
    text, shapes, formula = FORMS[name]
    arrays = [integers(shape) for shape in shapes]
    if formula:
        expected = np.einsum(formula, *arrays)
    else:
        windows = np.lib.stride_tricks.sliding_window_view(arrays[0], 3, 0)
        expected = np.einsum("icw,owc->io", windows, arrays[1])
    kernel = tc.define(text)["f"].compile(*arrays, options=tc.MappingOptions(parallel=threads))
    assert ADDED.search(kernel.source)
    assert (kernel(*arrays) == expected).all()


def test_accumulating_and_finishing() -> None:
    """Sums begin with what is there, and what is computed from them runs behind."""
    with pytest.warns(tc.ProgramWarning):
        f = tc.define(TRANSPOSED.replace("(C) {", "(float(M,N) C) {").replace("+=!", "+="))["f"]
    A, B, C = integers((6, 500)), integers((30, 500)), integers((6, 30))
    expected = C + A @ B.T
    assert (f(A, B, out=C) == expected).all()
    g = tc.define(
        "def g(float(M,K) A, float(N,K) B, float(N) b) -> (Y) "
        "{ C(m,n) +=! A(m,k) * B(n,k)  Y(m,n) = fmax(C(m,n) + b(n), 0.0) }"
    )["g"]
    b = integers((30,))
    assert (g(A, B, b) == np.maximum(A @ B.T + b, 0)).all()


def test_lanes_that_are_left_out_do_not_count() -> None:
    """The last vector overlaps the one before it: what both read is added once, infinities and NaN too."""
    A, B = integers((4, 519)), integers((12, 519))
    A[1, 505], B[7, 510] = np.inf, np.nan
    with np.errstate(invalid="ignore"):
        expected = np.array([[np.sum(a * b, dtype=np.float64) for b in B] for a in A])
    np.testing.assert_array_equal(tc.define(TRANSPOSED)["f"](A, B), expected.astype(np.float32))


def test_strided_and_reversed_arrays() -> None:
    A, B = integers((5, 1200)), integers((40, 600))
    f = tc.define(TRANSPOSED)["f"]
    assert (f(A[:, ::2], B[::-1]) == A[:, ::2] @ B[::-1].T).all()


def test_many_rows_use_a_panel() -> None:
    f = tc.define(TRANSPOSED)["f"]
    for rows, is_packed in ((4, False), (300, True)):
        kernel = f.compile(sizes={"M": rows, "N": 512, "K": 512})
        assert bool(kernel.compilation.plan.copies) == is_packed


@pytest.mark.parametrize("registers", [16, 32])
def test_tiles_fit_the_registers(registers: int) -> None:
    machine = Machine(32, registers, 32, 1)
    for rows in (1, 2, 5, 8, 30):
        height, width = sum_tile(rows, 100, machine)
        assert height <= rows and height * width + width + 2 <= registers
        assert height * width >= 7, "nearly enough sums to hide how long a multiply-add takes"


@pytest.mark.parametrize(("rows", "columns"), [(32, 28), (30, 64), (31, 33)])
def test_tiles_that_are_cut_out_of_more_are_whole_register_tiles(rows: int, columns: int) -> None:
    """Else every tile begins and ends in the midst of one, and runs in plain loops: a fortieth of the speed."""
    height, width = sum_tile(rows, columns, Machine(32, 16, 32, 1), (True, True))
    assert rows % height == columns % width == 0


def test_convolutions_with_channels_last_run_in_such_tiles_all_the_way() -> None:
    text = "def f(float(N,H,W,C) I, float(KH,KW,K,C) F) -> (O) { O(n,k,h,w) +=! I(n,h+kh,w+kw,c) * F(kh,kw,k,c) }"
    I, F = integers((1, 30, 58, 32)), integers((3, 3, 20, 32))  # noqa: E741 - the name in the program
    f = tc.define(text).f
    windows = np.lib.stride_tricks.sliding_window_view(I, (3, 3), (1, 2))
    np.testing.assert_array_equal(f(I, F), np.einsum("nhwcrs,rskc->nkhw", windows, F))
    source = f.compile(I, F).source
    assert ADDED.search(source) and not PLAIN_STEP.search(source)


def test_a_triangle_has_no_such_tiles() -> None:
    text = (
        "def f(float(N,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) where k in 0:m+1, m in 0:N, n in 0:N }"
    )
    A, B = integers((20, 40)), integers((20, 40))
    expected = np.array([[A[m, : m + 1] @ B[n, : m + 1] for n in range(20)] for m in range(20)])
    assert (tc.define(text)["f"](A, B) == expected).all()


@pytest.mark.parametrize(
    ("dtype", "conversion"),
    [("float", "float(int32(X))"), ("float", "float(float16(X))"), ("double", "double(float(X))"),
     ("int32", "int32(int8(X))"), ("int64", "int64(uint32(X))")],
)  # fmt: skip
def test_conversions_on_the_way_to_the_type_of_the_elements_count(dtype: str, conversion: str) -> None:
    """They were looked through: elements of the sum's own type were multiplied as they lie in memory."""
    a, b = (conversion.replace("X", read) for read in ("A(m,k)", "B(n,k)"))
    f = tc.define(f"def f({dtype}(M,K) A, {dtype}(N,K) B) -> ({dtype}(M,N) C) {{ C(m,n) +=! {a} * {b} }}").f
    rng = np.random.default_rng(0)
    scale = 1 / 7 if dtype in ("float", "double") else 10**7
    numpy = {"float": np.float32, "double": np.float64, "int32": np.int32, "int64": np.int64}[dtype]
    x, y = ((rng.integers(-40, 41, shape) * scale).astype(numpy) for shape in ((2, 64), (8, 64)))
    np.testing.assert_allclose(f(x, y), f.reference(x, y), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("product", "ranges"),
    [
        ("A(q,k) * B(r,k)", "q in m:m+1, r in n:n+1"),
        ("A(m,k) * B(r,k)", "r in 8-1-n:8-n"),
        ("A(q,k) * B(n,k)", "q in 2*m-m:m+1"),
    ],
)
def test_operands_that_move_with_an_index_of_one_value(product: str, ranges: str) -> None:
    """Such an index has no loop of its own: rows and columns move it, which was not seen."""
    text = f"def f(float(M,K) A, float(N,K) B) -> (C) {{ C(m,n) +=! {product} where m in 0:M, n in 0:N, {ranges} }}"
    A, B = integers((4, 64)), integers((8, 64))
    f = tc.define(text)["f"]
    np.testing.assert_array_equal(f(A, B), f.reference(A, B))
    np.testing.assert_array_equal(f(A, B), A @ (B[::-1] if "8" in ranges else B).T)
