"""Sums of products of narrow integers: every pair of types, every layout, every length, modulo 2^32."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.mapping.machines.cpu import this_machine

pytestmark = pytest.mark.sweep(4)

Array = np.ndarray[Any, np.dtype[Any]]
RANGES = {"int8": np.int8, "uint8": np.uint8, "int16": np.int16}
PAIRS = (("int8", "int8"), ("uint8", "int8"), ("uint8", "uint8"), ("int16", "int16"), ("uint8", "int16"))

needs_instructions = pytest.mark.skipif(not this_machine().dots, reason="this processor has no such instructions")


@pytest.fixture(params=["own", "lanes", "narrow", "pairs"])
def instructions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Makes kernels for this processor: as it is, without matrices, with narrower vectors, with pairs of 16 bits."""
    own = this_machine()
    lanes = {"matrix_tiles": False}
    facts: dict[str, dict[str, Any]] = {
        "own": {},
        "lanes": lanes,
        "narrow": {**lanes, "vector_bytes": 32},
        "pairs": {**lanes, "dots": own.dots and "avx2"},
    }
    other = replace(own, **facts[request.param])
    monkeypatch.setattr("tcomp.runtime.registry.this_machine", lambda: other)
    monkeypatch.setenv("TCOMP_CACHE", "0")
    return str(request.param)


def numbers(kind: str, *shape: int, seed: int = 0) -> Array:
    """Values from the whole range of a type, its ends among them."""
    limits = np.iinfo(RANGES[kind])
    random = np.random.default_rng([seed, *shape])
    values = random.integers(limits.min, limits.max + 1, shape)
    ends = random.choice([limits.min, limits.max], shape)
    return np.where(random.random(shape) < 0.2, ends, values).astype(RANGES[kind])


def wrapped(formula: str, *arrays: Array) -> Array:
    """What 32 bits hold of a sum of products."""
    return np.asarray(np.einsum(formula, *(a.astype(np.int64) for a in arrays)).astype(np.int32))


def is_grouped(kernel: tc.Kernel) -> bool:
    return "tc_dot_" in kernel.source or "tc_matrix_product_" in kernel.source


def product(first: tuple[str, str], second: tuple[str, str], result: str) -> str:
    """The text of a sum of products of two operands, each given by its type and the indices of its dimensions."""
    operands = ((*first, "X"), (*second, "Y"))
    declared = [f"{kind}({','.join(indices.upper())}) {name}" for kind, indices, name in operands]
    factors = [f"int32({name}({','.join(indices)}))" for _, indices, name in operands]
    shape = f"int32({','.join(result.upper())}) Z"
    return f"def f({', '.join(declared)}) -> ({shape}) {{ Z({','.join(result)}) +=! {' * '.join(factors)} }}"


SIDES = ((1, 4), (3, 17), (8, 32), (13, 50), (40, 131))
DEPTHS = (2, 3, 7, 16, 203)


@needs_instructions
@pytest.mark.parametrize("pair", PAIRS, ids="-".join)
def test_layouts_and_lengths(pair: tuple[str, str], instructions: str) -> None:
    """Neighbouring steps, rows or columns may be what lies together."""
    sizes = zip(itertools.cycle(SIDES), DEPTHS, strict=False)
    layouts = itertools.cycle(itertools.product(("mk", "km"), ("kn", "nk")))
    grouped = 0
    for ((M, N), K), (first, second) in zip(sizes, layouts, strict=False):
        size = {"m": M, "n": N, "k": K}
        A = numbers(pair[0], *(size[d] for d in first))
        B = numbers(pair[1], *(size[d] for d in second), seed=1)
        kernel = tc.define(product((pair[0], first), (pair[1], second), "mn"))["f"].compile(A, B)
        grouped += is_grouped(kernel)
        assert (kernel(A, B) == wrapped(f"{first},{second}->mn", A, B)).all(), (M, N, K, first, second)
    assert grouped >= 4


@needs_instructions
@pytest.mark.parametrize(
    "forms", [("bmk", "bkn", "bmn"), ("mkj", "kjn", "mn"), ("akb", "ckd", "abcd"), ("kbm", "knb", "bmn")]
)
def test_any_rank(forms: tuple[str, str, str], instructions: str) -> None:
    (first, second, result), kind = forms, "int8"
    size = {"a": 3, "b": 5, "c": 4, "d": 37, "j": 3, "k": 11, "m": 7, "n": 35}
    A = numbers(kind, *(size[d] for d in first))
    B = numbers(kind, *(size[d] for d in second), seed=1)
    kernel = tc.define(product((kind, first), (kind, second), result))["f"].compile(A, B)
    assert is_grouped(kernel)
    assert (kernel(A, B) == wrapped(f"{first},{second}->{result}", A, B)).all()


@needs_instructions
@pytest.mark.parametrize("columns", [129, 256, 530])
def test_more_columns_than_sums_fit_registers(columns: int, instructions: str) -> None:
    """In batches: what sums each panel is then in a loop of its own."""
    A, B = numbers("int8", 2, 9, 16), numbers("int8", 2, 16, columns, seed=1)
    kernel = tc.define(product(("int8", "bmk"), ("int8", "bkn"), "bmn"))["f"].compile(A, B)
    assert is_grouped(kernel)
    assert (kernel(A, B) == wrapped("bmk,bkn->bmn", A, B)).all()


CONVOLUTIONS = {
    "channels outside": ("I(n,c,h+p,w+q)", "K(o,c,p,q)", "Y(n,o,h,w)", (2, 6, 12, 35), (9, 6, 3, 3)),
    "channels inside": ("I(n,h+p,w+q,c)", "K(p,q,c,o)", "Y(n,h,w,o)", (2, 9, 8, 6), (3, 3, 6, 20)),
    "grouped": ("I(n,g,c,h+p,w+q)", "K(g,o,c,p,q)", "Y(n,g,o,h,w)", (2, 3, 4, 6, 21), (3, 5, 4, 3, 3)),
    "strided": ("I(n,c,2*h+p,3*w+q)", "K(o,c,p,q)", "Y(n,o,h,w)", (2, 5, 12, 69), (9, 5, 3, 3)),
    "framed": ("constant_exterior(I,ZERO)(n,c,h+p-1,w+q-1)", "K(o,c,p,q)", "Y(n,o,h,w)", (2, 7, 9, 33), (9, 7, 3, 3)),
}  # fmt: skip


@needs_instructions
@pytest.mark.parametrize("kind", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str, kind: str, instructions: str) -> None:
    image, weights, result, *shapes = CONVOLUTIONS[name]
    shape, window = shapes
    value = f"int32({image.replace('ZERO', f'{kind}(0)')}) * int32({weights})"
    ranges = " where n in 0:D0, h in 0:D2, w in 0:D3" if "exterior" in image else ""
    declared = [
        f"{kind}({','.join(f'{d}{n}' for n in range(len(s)))}) {t}"
        for t, d, s in (("I", "D", shape), ("K", "W", window))
    ]
    f = tc.define(f"def f({', '.join(declared)}) -> (Y) {{ {result} +=! {value}{ranges} }}")["f"]
    pixels, K = numbers(kind, *shape), numbers(kind, *window, seed=1)
    kernel = f.compile(pixels, K)
    assert is_grouped(kernel)
    assert (kernel(pixels, K) == f.reference(pixels, K)).all()


@needs_instructions
def test_strides_of_any_kind(instructions: str) -> None:
    f = tc.define(product(("int8", "mk"), ("int8", "kn"), "mn"))["f"]
    A, B = numbers("int8", 40, 90), numbers("int8", 90, 120, seed=1)
    for a, b in ((A[::-1], B[:, ::-1]), (A[:, ::2], B[::2, ::3]), (A[:, ::-1], B[::-1]), (A[::3, 5:50], B[5:50, 1:70])):
        assert (f(a, b) == wrapped("mk,kn->mn", a, b)).all()


@needs_instructions
@pytest.mark.parametrize("tile", [(1, 2), (2, 3), (3, 5), (5, 33), (8, 16)])
@pytest.mark.parametrize("blocks", [(7, 16), (100, 100)])
def test_any_tile(tile: tuple[int, int], blocks: tuple[int, int]) -> None:
    f = tc.define(product(("uint8", "mk"), ("uint8", "kn"), "mn"))["f"]
    A, B = numbers("uint8", 29, 21), numbers("uint8", 21, 71, seed=1)
    options = tc.MappingOptions(tile_sizes=blocks, register_tile=tile)
    assert (f(A, B, options=options) == wrapped("mk,kn->mn", A, B)).all()


@needs_instructions
def test_sums_that_wrap_and_sums_that_go_on(instructions: str) -> None:
    """The largest products, summed until 32 bits overflow, added to what is there."""
    with pytest.warns(tc.ProgramWarning):
        f = tc.define(product(("int16", "mk"), ("int16", "kn"), "mn").replace("+=!", "+="))["f"]
    A, B = np.full((3, 33), -(2**15), np.int16), np.full((33, 40), -(2**15), np.int16)
    C = np.arange(120, dtype=np.int32).reshape(3, 40)
    expected = (C + wrapped("mk,kn->mn", A, B)).astype(np.int32)
    assert (f(A, B, out=C) == expected).all()


@needs_instructions
def test_what_follows_a_product(instructions: str) -> None:
    """A second product of what was rounded in the same tile, whose operand nobody packs."""
    f = tc.define("""def f(int8(M,K) A, int8(K,N) B, int32(N) b, int8(N,P) D) -> (C, E) {
        C(m,n) +=! A(m,k) * B(k,n)
        C(m,n) = C(m,n) + b(n)
        q(m,n) = int8(C(m,n) / 512)
        E(m,p) +=! q(m,n) * D(n,p) }""")["f"]
    arrays = (numbers("int8", 21, 30), numbers("int8", 30, 33), np.arange(33, dtype=np.int32), numbers("int8", 33, 40))
    kernel = f.compile(*arrays)
    assert is_grouped(kernel)
    for found, expected in zip(kernel(*arrays), f.reference(*arrays), strict=True):
        assert (found == expected).all()


@needs_instructions
def test_both_operands_may_be_one_tensor() -> None:
    f = tc.define("def f(int8(M,K) A) -> (C) { C(m,n) +=! A(m,k) * A(n,k) }")["f"]
    A = numbers("int8", 45, 70)
    kernel = f.compile(A)
    assert is_grouped(kernel)
    assert (kernel(A) == wrapped("mk,nk->mn", A, A)).all()


def test_a_border_is_of_the_type_of_the_image() -> None:
    """Copies may hold a wider type, in which the negative of an unsigned number would be another."""
    f = tc.define("""def f(int8(M,K) A, uint8(K,N) B, float(K,N) C) -> (Y, Z) {
        Y(m,n) +=! int32(A(m,k)) * int32(constant_exterior(B, -uint8(200))(k,n+1)) where n in 0:N, k in 0:K
        Z(m,n) +=! float(A(m,k)) * constant_exterior(C, -uint8(200))(k,n+1) where n in 0:N, k in 0:K }""")["f"]
    arrays = (numbers("int8", 20, 18), numbers("uint8", 18, 40, seed=1), np.ones((18, 40), np.float32))
    for found, expected in zip(f(*arrays), f.reference(*arrays), strict=True):
        assert (found == expected).all()


def test_products_of_signed_and_unsigned_bytes_are_exact() -> None:
    """They were computed in ``int8``, where values above 127 wrapped."""
    rng = np.random.default_rng(0)
    A, B = rng.integers(-128, 128, (5, 70)).astype(np.int8), rng.integers(0, 256, (9, 70)).astype(np.uint8)
    ops = tc.define("""
    def dot(int8(M,K) A, uint8(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }
    def less(int8(M,K) A, uint8(N,K) B) -> (C, D) { C(k) = A(0,k) < B(0,k)  D(k) = A(0,k) - B(0,k) }
    """)
    wide, other = A.astype(np.int32), B.astype(np.int32)
    for call in (ops.dot, ops.dot.reference):
        np.testing.assert_array_equal(call(A, B), wide @ other.T)
    less, difference = ops.less(A, B)
    np.testing.assert_array_equal(less, wide[0] < other[0])
    np.testing.assert_array_equal(difference, wide[0] - other[0])
