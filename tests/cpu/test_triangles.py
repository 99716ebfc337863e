"""Contractions over triangles and bands: whole tiles run as register tiles, those at the border alone are cut."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tcomp as tc
from tests.cuda.simulated import NEEDS_COMPILER

pytestmark = pytest.mark.sweep(3)

PROGRAMS = {
    "from the row on": "C(i,j) +=! A(k,i) * B(k,j) where i in 0:M, k in i:M",
    "up to the row": "C(i,j) +=! A(i,k) * B(k,j) where i in 0:M, k in 0:i+1",
    "from the column on": "C(i,j) +=! A(i,k) * B(k,j) where j in 0:N, k in j:M",
    "up to the column, from the row on": "C(i,j) +=! A(k,i) * B(k,j) where i in 0:M, j in 0:N, k in i:max(i,M-j)",
    "a band": "C(i,j) +=! A(k,i) * B(k,j) where i in 0:M, k in max(0,i-30):min(M,i+31)",
    "backwards": "C(i,j) +=! A(i,k) * B(k,j) where i in 0:M, k in 0:M-i",
    "twice the row": "C(i,j) +=! A(i,k) * B(k,j) where i in 0:M, k in min(2*i,M):M",
    "below the diagonal": "C(i,j) = 0.0 where i in 0:M, j in 0:M  C(i,j) += A(i,k) * A(j,k) where i in 0:M, j in 0:i+1",
    "above the diagonal": "C(i,j) = 0.0 where i in 0:M, j in 0:M  C(i,j) += A(i,k) * A(j,k) where i in 0:M, j in i:M",
    "all three": "C(i,j) = 0.0 where i in 0:M, j in 0:M  C(i,j) += A(i,k) * A(j,k) where j in 0:i+1, k in 0:j+1",
}
REGISTER_TILE = re.compile(r"tc_c\d+_\d+ \+= ")


def program(name: str) -> tc.Operation:
    reads_b = "B(" in PROGRAMS[name]
    return tc.define(f"def f(float(M,M) A{', float(M,N) B' if reads_b else ''}) -> (C) {{ {PROGRAMS[name]} }}").f


def arguments(f: tc.Operation, rows: int, columns: int) -> list[np.ndarray]:
    random = np.random.default_rng(rows)
    shapes = [(rows, rows), (rows, columns)][: len(f.function.inputs)]
    return [random.integers(-3, 4, shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("sizes", [(96, 64), (101, 67), (40, 33)])
def test_results_are_those_of_the_interpreter(name: str, sizes: tuple[int, int]) -> None:
    f = program(name)
    given = arguments(f, *sizes)
    np.testing.assert_array_equal(f(*given), f.reference(*given))


@pytest.mark.parametrize("name", [n for n in PROGRAMS if n != "twice the row"])
def test_whole_tiles_are_register_tiles(name: str) -> None:
    f = program(name)
    assert REGISTER_TILE.search(f.compile(*arguments(f, 512, 512)).source)


@pytest.mark.parametrize("tiles", [(16, 16), (13, 24), (7, 40)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_in_tiles_of_any_size(name: str, tiles: tuple[int, int]) -> None:
    f = program(name)
    given = arguments(f, 90, 75)
    options = tc.MappingOptions(tile_sizes=tiles, reduction_tile=24)
    np.testing.assert_array_equal(f(*given, options=options), f.reference(*given))


@NEEDS_COMPILER
@pytest.mark.parametrize("name", PROGRAMS)
def test_on_the_simulator(name: str) -> None:
    f = program(name)
    given = arguments(f, 37, 19)
    np.testing.assert_array_equal(f(*given, target="simulator"), f.reference(*given))
