"""Sums of products of bfloat16, two at a time: as exact as in float32, whatever the instructions take for zero."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.mapping.machines.cpu import this_machine
from tests.agreement import assert_agrees

ml_dtypes = pytest.importorskip("ml_dtypes")
Array = np.ndarray[Any, np.dtype[Any]]
LAYOUTS = [("A(m,k)", "B(k,n)"), ("A(m,k)", "B(n,k)"), ("A(k,m)", "B(k,n)")]

needs_instructions = pytest.mark.skipif(not this_machine().bfloat16, reason="this processor has no such instructions")


@pytest.fixture(params=["own", "lanes"], autouse=True)
def instructions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Makes kernels for this processor: as it is, and without those of its instructions that take whole matrices."""
    if request.param == "lanes":
        other = replace(this_machine(), matrix_tiles=False)
        monkeypatch.setattr("tcomp.runtime.registry.this_machine", lambda: other)
        monkeypatch.setenv("TCOMP_CACHE", "0")
    return str(request.param)


def values(*shape: int, seed: int = 0, scale: float = 1.0) -> Array:
    numbers = np.random.default_rng([seed, *shape]).standard_normal(shape) * scale
    return np.asarray(numbers.astype(ml_dtypes.bfloat16))


def product(first: str, second: str, result: str = "float(M,N)") -> str:
    declared = [f"bfloat16({','.join(r[2:-1].upper())}) {r[0]}".replace(",,,", ",") for r in (first, second)]
    return f"def f({', '.join(declared)}) -> ({result} C) {{ C(m,n) +=! float({first}) * float({second}) }}"


@needs_instructions
@pytest.mark.parametrize(("first", "second"), LAYOUTS)
@pytest.mark.parametrize("size", [(1, 5, 4), (3, 2, 17), (13, 33, 50), (40, 203, 131)])
def test_layouts_and_lengths(first: str, second: str, size: tuple[int, int, int]) -> None:
    extent = dict(zip("mkn", size, strict=True))
    A = values(*(extent[i] for i in first[2:-1].split(",")))
    B = values(*(extent[i] for i in second[2:-1].split(",")), seed=1)
    f = tc.define(product(first, second))["f"]
    assert_agrees(f.function, {"A": A, "B": B}, {"C": f(A, B)})


@needs_instructions
@pytest.mark.parametrize("columns", [33, 49, 513])
def test_reductions_in_blocks(columns: int) -> None:
    """Accumulators go through memory, and the last vectors of a row overlap."""
    A, B = values(9, 1501), values(1501, columns, seed=1)
    f = tc.define(product("A(m,k)", "B(k,n)"))["f"]
    assert_agrees(f.function, {"A": A, "B": B}, {"C": f(A, B)})


@needs_instructions
def test_the_instructions_are_used_and_left(instructions: str) -> None:
    f = tc.define(product("A(m,k)", "B(k,n)"))["f"]
    source = f.compile(values(40, 64), values(64, 70)).source
    instruction = "tc_matrix_product_bf16ps" if this_machine().matrix_tiles and instructions == "own" else "vdpbf16ps"
    assert instruction in source and "_least + 1) >> 7" in source


@needs_instructions
@pytest.mark.parametrize(
    "scales", [(2.0**-130, 2.0**20), (2.0**-120, 2.0**-10), (2.0**-70, 2.0**-62), (2.0**-40, 2.0**-40)]
)
def test_small_numbers_are_no_zeros(scales: tuple[float, float]) -> None:
    """Subnormal numbers, and products that are, or nearly."""
    A, B = values(20, 48, scale=scales[0]), values(48, 37, seed=1, scale=scales[1])
    exact = A.astype(np.float64) @ B.astype(np.float64)
    found = tc.define(product("A(m,k)", "B(k,n)"))["f"](A, B)
    size = np.abs(A.astype(np.float64)) @ np.abs(B.astype(np.float64))
    assert (np.abs(found - exact) <= 49 * (2.0**-24 * size + 2.0**-150)).all()


@needs_instructions
def test_one_small_number_among_many() -> None:
    A, B = values(20, 48), values(48, 37, seed=1)
    A[7, 5], B[5, :] = 2.0**-130, 2.0**100
    A[7, :5] = A[7, 6:] = 0
    found = tc.define(product("A(m,k)", "B(k,n)"))["f"](A, B)
    assert (found[7] == np.float32(2.0**-30)).all()


@needs_instructions
def test_what_is_there_stays_however_small() -> None:
    with pytest.warns(tc.ProgramWarning):
        f = tc.define(product("A(m,k)", "B(k,n)").replace("+=!", "+="))["f"]
    C = np.full((9, 33), 2.0**-140, np.float32)
    assert (f(np.zeros((9, 14), ml_dtypes.bfloat16), values(14, 33), out=C) == np.float32(2.0**-140)).all()


@needs_instructions
def test_infinities_and_nan_stay_in_their_rows_and_columns() -> None:
    A, B = values(14, 7), values(7, 45, seed=1)
    A[3, 2], B[1, 44] = np.nan, np.inf
    A[:, 1] = 1
    found = tc.define(product("A(m,k)", "B(k,n)"))["f"](A, B)
    assert np.isnan(found[3]).all() and np.isinf(np.delete(found[:, 44], 3)).all()
    assert np.isfinite(np.delete(np.delete(found, 3, 0), 44, 1)).all()


@needs_instructions
def test_results_of_16_bits_are_rounded_once() -> None:
    f = tc.define(product("A(m,k)", "B(k,n)", "bfloat16(M,N)").replace("float(A", "(A").replace("float(B", "(B"))["f"]
    A, B = np.ones((9, 3), ml_dtypes.bfloat16), np.ones((3, 40), ml_dtypes.bfloat16)
    A[:, 1], A[:, 2] = 2.0**-8, 2.0**-20
    assert (f(A, B).astype(np.float32) == 1 + 2.0**-7).all()


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
@pytest.mark.parametrize("columns", [5, 24, 50])
def test_results_are_rounded_as_they_are_stored(kind: str, columns: int) -> None:
    """To nearest even, to infinity and to subnormal numbers, whatever a register holds."""
    dtype = np.float16 if kind == "float16" else ml_dtypes.bfloat16
    f = tc.define(f"def f({kind}(M,K) A, {kind}(K,N) B) -> (C) {{ C(m,n) +=! A(m,k) * B(k,n) }}")["f"]
    B = np.concatenate([values(2, columns), np.zeros((3, columns), ml_dtypes.bfloat16)]).astype(dtype)
    A = np.zeros((11, 5), dtype)
    A[:, 0] = np.array([1, -1, 3, 257, 2.0**-7, 2.0**-20, 2.0**14, 60000, np.nan, np.inf, 0]).astype(dtype)
    with np.errstate(invalid="ignore", over="ignore"):
        expected = (A[:, :1].astype(np.float32) * B[:1].astype(np.float32)).astype(dtype)
    np.testing.assert_array_equal(f(A, B).astype(np.float32), expected.astype(np.float32))
