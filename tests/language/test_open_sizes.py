"""Sizes left open: one kernel for all their values, the values of the interpreter, and reasons where it cannot be."""

from __future__ import annotations

import ctypes
import mmap
import pickle
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import islpy as isl
import numpy as np
import pytest

import tcomp as tc
from tcomp.fuzzing.programs.choices import Choices
from tcomp.fuzzing.programs.generation import Attempts, generate
from tcomp.grammar import define
from tcomp.model.build import build
from tcomp.model.opensizes import prove_inside
from tcomp.model.terms.sizes import SizeRange, Sizes
from tcomp.model.terms.storages import OpenBox
from tcomp.openoperation import OpenOperation

TEXT = """
def softmax(float(N,D) X) -> (Y) {
  m(n) max=! X(n,d)
  e(n,d) = exp(X(n,d) - m(n))
  s(n) +=! e(n,d)
  Y(n,d) = e(n,d) / s(n)
}
def product(float(N,K) A, float(K,M) B) -> (C) { C(n,m) +=! A(n,k) * B(k,m) }
def suffixes(float(N,D) X) -> (S, float last) {
  S(i,d) +=! X(j,d) where i in 0:N, j in i:N
  last = X(N-1,0) / float(N)
}
def pairs(float(2*N) X, float(N) A) -> (Y) { Y(i) = X(2*i) + X(2*i+1) + A(N-1-i) }
"""

FIXED = {"K": 20, "M": 33, "D": 21}
RANGE = tc.range(1, 300)

pytestmark = pytest.mark.filterwarnings("ignore::tcomp.ProgramWarning")


@pytest.fixture(scope="module")
def ops() -> tc.Module:
    return tc.define(TEXT, dynamic={"N": RANGE})


def arrays(operation: tc.Operation, n: int, others: Mapping[str, int] = FIXED) -> list[Any]:
    rng, sizes = np.random.default_rng(n), {"N": n, **others}
    dims = [[eval(str(d), dict(sizes)) for d in p.dims or ()] for p in operation.function.definition.inputs]
    types = [tensor.dtype.name for tensor in operation.function.inputs]
    return [rng.integers(-3, 4, shape).astype(dtype) for shape, dtype in zip(dims, types, strict=True)]


def at_the_end(array: np.ndarray) -> np.ndarray:
    """A copy that ends where memory does: what reads behind it dies."""
    pages = -(-array.nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
    room = np.frombuffer(mmap.mmap(-1, pages + mmap.PAGESIZE), np.uint8)
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(room.ctypes.data + pages), mmap.PAGESIZE, 0) == 0
    copy = room[pages - array.nbytes : pages].view(array.dtype).reshape(array.shape)
    copy[...] = array
    return copy


@pytest.mark.parametrize("name", ["softmax", "product", "suffixes", "pairs"])
def test_one_kernel_for_all(ops: tc.Module, name: str) -> None:
    operation = ops[name]
    kernels = set()
    for n in (300, 1, 2, 7, 8, 17, 64, 129, 299):
        given = arrays(operation, n)
        found, expected = operation(*given), operation.reference(*given)
        for a, b in zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]:
            assert a.shape == b.shape
            assert np.allclose(a, b, rtol=1e-5)
        kernels.add(operation.compile(*given))
    (kernel,) = kernels
    assert kernel.small is not None and kernel.small.open_sizes["N"] == tc.range(1, 37)


def test_a_size_at_a_time(ops: tc.Module) -> None:
    kernel = ops.softmax.compile(sizes={"N": tc.range(8, 100, multiple=8), "D": 21})
    assert "N=8 to 96, multiples of 8" in repr(kernel)
    (x,) = arrays(ops.softmax, 64)
    assert (kernel(x) == ops.softmax(x)).all()
    assert (pickle.loads(pickle.dumps(kernel))(x) == kernel(x)).all()
    with pytest.raises(tc.ShapeError, match="N is 60, but may be 8 to 96, multiples of 8"):
        kernel(x[:60])
    with pytest.raises(tc.ShapeError, match="D is 20, but the kernel is for 21"):
        kernel(x[:, :20].copy())
    with pytest.raises(tc.TcompError, match="open sizes"):
        kernel.export("folder")


def test_rows_may_lie_apart(ops: tc.Module) -> None:
    wide = np.zeros((40, 30), "float32")
    wide[:, :21] = arrays(ops.softmax, 40)[0]
    for n in (40, 11):
        assert (ops.softmax(wide[:n, :21]) == ops.softmax(wide[:n, :21].copy())).all()
    with pytest.raises(tc.ShapeError, match="its rows do not lie one behind the other"):
        ops.softmax(np.asfortranarray(wide[:, :21]))


@pytest.mark.parametrize(
    ("text", "sizes", "message"),
    [
        ("def f(float(N) X) -> (Y) { Y(i) = X(i) + X(i+3) }", {"N": RANGE}, "Inferred an empty range for variable i"),
        (
            "def f(float(N) X) -> (Y) { T(i) = X(i)  Y(i) = mirror_image(T)(i+1) where i in 0:N }",
            {"N": RANGE},
            "mirror_image of T",
        ),
        (
            "def f(float(N) A, float(N-1) X, int(M) i) -> (Y) { Y(j) = X(i(j)) }",
            {"N": RANGE, "M": 4},
            "has none for some sizes",
        ),
        (
            "def f(float(N) X) -> (Y) { Y(i) = 2.0 where i in 0:3*N  Y(N*i) = X(i) where i in 0:1 }",
            {"N": RANGE},
            "not linear in the indices and N",
        ),
        ("def f(float(N) X) -> (S) { for t in 1:N { S(t) = X(t) } }", {"N": RANGE}, "its sizes cannot be left open"),
    ],
)
def test_what_cannot_be_open_is_refused(text: str, sizes: dict[str, Any], message: str) -> None:
    with pytest.raises((tc.CompileError, tc.ShapeError)) as caught:
        tc.define(text).f.compile(sizes=sizes)
    assert message in str(caught.value)


def test_other_refusals(ops: tc.Module) -> None:
    with pytest.raises(tc.CompileError, match="target 'cpu' only"):
        ops.softmax.compile(sizes={"N": RANGE, "D": 3}, target="cuda:sm_90")
    with pytest.raises(tc.ShapeError, match="no def has a size Q"):
        tc.define(TEXT, dynamic=("Q",))
    with pytest.raises(tc.ShapeError, match="no multiple of 8"):
        tc.range(5, 7, multiple=8)
    with pytest.raises(tc.ShapeError, match="N is 301, but may be 1 to 300"):
        ops.softmax(np.zeros((301, 21), "float32"))


def test_the_proof_sees_an_access_outside() -> None:
    function = define("def f(float(M,N) X) -> (Y) { Y(m,i) = X(m,i) }")["f"]
    scop = build(function, Sizes({"M": 3, "N": 9}, open={"N": SizeRange(3, 9)}))
    box = scop.storages["X"].opened
    assert box is not None
    smaller = isl.Set("[step_N] -> { X[m, i] : 0 <= m < 3 and 0 <= i < step_N - 1 }")
    storages = {**scop.storages, "X": replace(scop.storages["X"], opened=OpenBox(box.extents, smaller))}
    with pytest.raises(tc.CompileError, match="leaves X for some sizes"):
        prove_inside(function, replace(scop, storages=storages))


DIMENSIONS = """
def product(float(N,K) A, float(K,M) B) -> (C) { C(n,m) +=! A(n,k) * B(k,m) }
def bytes(int8(N,K) A, int8(K,M) B) -> (int32(N,M) C) { C(n,m) +=! int32(A(n,k)) * int32(B(k,m)) }
def row_of_bytes(int8(K) A, int8(K,N) B) -> (int32(N) C) { C(n) +=! int32(A(k)) * int32(B(k,n)) }
def softmax(float(M,N,K) X) -> (Y) {
  m(b,n) max=! X(b,n,d)
  e(b,n,d) = exp(X(b,n,d) - m(b,n))
  s(b,n) +=! e(b,n,d)
  Y(b,n,d) = e(b,n,d) / s(b,n)
}
def halves(float(K,N) X) -> (Y) { Y(i,k) = X(k,2*i) + X(k,N-1-2*i) + float(N) }
def chosen(float(M,N) X, int(K) i) -> (Y) { Y(m,k) = X(m,i(k)) }
def counts(float(M,K) X, int(K) i, float(M,N) like) -> (float(M,N) Y) {
  Y(m,n) = 0.0 * like(m,n)
  Y(m,i(k)) += X(m,k)
}
def conv(float(M,N) X, float(3,3) W) -> (O) {
  T(h,w) = 2.0 * X(h,w)
  O(h,w) +=! constant_exterior(T,0)(h+i-1,w+j-1) * W(i,j) where h in 0:M, w in 0:N
}
def edges(float(M,N) X) -> (Y) {
  Y(h,w) = repeat_edge(X)(h-1,w+2) + constant_exterior(X,0)(h+1,w) where h in 0:M, w in 0:N
}
"""


@pytest.mark.parametrize("name", [name for name in tc.define(DIMENSIONS) if name not in ("chosen", "counts")])
def test_any_dimension_and_several_at_once(name: str) -> None:
    """Arrays end where memory does: what reads or writes behind one is seen."""
    largest = {"M": 70, "N": 90, "K": 130}
    opened = {n: tc.range(1, most) for n, most in largest.items()}
    operation = tc.define(DIMENSIONS, dynamic=opened)[name]
    kernels = set()
    for n, m, k in ((1, 1, 1), (90, 70, 130), (17, 33, 129), (89, 1, 5)):
        given = [at_the_end(a) for a in arrays(operation, n, {"M": m, "K": k})]
        found, expected = operation(*given), operation.reference(*given)
        assert found.shape == expected.shape
        assert np.allclose(found, expected, rtol=1e-5), (n, m, k)
        kernels.add(operation.compile(*given))
    assert len(kernels) == 1


def test_places_that_data_choose() -> None:
    """Checks know the extents of the call."""
    ops = tc.define(DIMENSIONS, dynamic={"N": tc.range(1, 90), "M": tc.range(1, 9)})
    x, places = np.arange(60, dtype="float32").reshape(3, 20), np.array([19, 0, 7], "int32")
    assert (ops.chosen(x, places) == x[:, places]).all()
    found = ops.counts(np.ones((3, 4), "float32"), np.array([1, 1, 19, 5], "int32"), x)
    assert (found == np.bincount([1, 1, 19, 5], minlength=20)).all()
    with pytest.raises(tc.TcompError, match=r"is 20 at m = 0, k = 0, but must lie in 0..19"):
        ops.chosen(x, np.array([20], "int32"))
    with pytest.raises(tc.TcompError, match=r"is 20 at m = 0, k = 1, but must lie in 0..19"):
        ops.counts(np.ones((3, 4), "float32"), np.array([1, 20, 19, 5], "int32"), x)


def test_a_last_tile_of_few_columns_reads_no_more_than_these() -> None:
    """33 columns are a tile of 32 and one of a single column, whose row of tiles may not be whole."""
    text = "def f(float(M,K) X, float(K,N) Y) -> (Z) { Z(m,n) +=! X(m,k) * Y(k,n) }"
    f = tc.define(text, dynamic={"M": tc.range(1, 20)}).f
    found = f(np.ones((15, 9), np.float32), at_the_end(np.ones((9, 33), np.float32)))
    assert (found == 9).all()


def test_extents_that_no_int_holds_are_computed_in_longs() -> None:
    text = "def f(int8(M) A, int8(N) G, int32(P) B, int32(Q) D) -> (C) { C(i,j) = A(i) where j in 0:N+P*Q }"
    open_sizes = {"M": tc.range(1, 8), "N": tc.range(1, 64)}
    kernel = tc.define(text).f.compile(sizes={**open_sizes, "P": 70_000, "Q": 70_000}, target="cpu")
    assert "extent1_C = step_N + 70000L * 70000L;" in kernel.source


@pytest.mark.sweep(8)
@pytest.mark.parametrize("seed", range(40))
def test_random_programs(seed: int) -> None:
    """Each size in turn is left open; what is not refused gives what the interpreter gives."""
    rng = random.Random(f"open/{seed}")
    program = generate(Choices(rng.randint), Attempts())
    function = program.function
    for name in function.sizes:
        size = program.sizes[name]
        values = {max(1, size - rng.randint(0, 4)), max(1, size), size + rng.randint(1, 9)}
        operation = OpenOperation(function, {name: tc.range(min(values), max(values))})
        for value in values:
            try:
                data = replace(program, sizes={**program.sizes, name: value}).data()
                out = tuple(data.contents.get(t.name) for t in function.outputs) if data.contents else None
                copied = None if out is None else tuple(None if a is None else a.copy() for a in out)
                found = operation(*data.arguments, out=out)
            except tc.TcompError:
                break
            expected = operation.reference(*data.arguments, out=copied)
            pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
            for a, b in pairs:
                assert np.allclose(a.astype(float), b.astype(float), 1e-3, 1e-3, equal_nan=True), (name, value)
