"""Rows of a sparse matrix are dealt to threads by their entries, and all of them whatever data say."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.c.target import CpuBackend
from tcomp.driver import lower
from tcomp.grammar import define
from tcomp.mapping.machines.cpu import this_machine
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.terms.sizes import Sizes

Array = np.ndarray[Any, np.dtype[Any]]

TEXT = """def f(int32(R1) row, int32(E) col, float(E) V, float(N,D) X) -> (Y) {
  Y(i,d) +=! V(e) * X(col(e),d) where e in row(i):row(i+1) }"""
ROWS, ENTRIES, COLUMNS = 5000, 20_000, 3


def lengths(kind: str) -> Array:
    rng = np.random.default_rng(0)
    match kind:
        case "one long row":
            found = np.zeros(ROWS, np.int64)
            found[ROWS // 3] = ENTRIES
        case "longest first":
            found = -np.sort(-rng.multinomial(ENTRIES, rng.dirichlet(np.full(ROWS, 0.05))))
        case "none":
            found = np.zeros(ROWS, np.int64)
        case _:
            found = rng.multinomial(ENTRIES, np.full(ROWS, 1 / ROWS))
    return found


@pytest.mark.parametrize("kind", ["one long row", "longest first", "none", "even"])
def test_every_row_is_computed_once(kind: str) -> None:
    row = np.concatenate([[0], np.cumsum(lengths(kind))]).astype(np.int32)
    rng, f = np.random.default_rng(1), tc.define(TEXT).f
    col, v = rng.integers(0, 50, ENTRIES).astype(np.int32), rng.integers(-3, 4, ENTRIES).astype(np.float32)
    x = rng.integers(-3, 4, (50, COLUMNS)).astype(np.float32)
    found = f(row, col, v, x)
    expected = np.zeros((ROWS, COLUMNS), np.float32)
    np.add.at(expected, np.repeat(np.arange(ROWS), np.diff(row)), v[: row[-1], None] * x[col[: row[-1]]])
    np.testing.assert_array_equal(found, expected)


def test_ends_that_are_nonsense_leave_no_row_out() -> None:
    """What is not checked is cut to what there is; each row is written, by whichever thread."""
    rng, f = np.random.default_rng(2), tc.define(TEXT).f
    col, v = np.zeros(ENTRIES, np.int32), np.ones(ENTRIES, np.float32)
    x = np.ones((50, COLUMNS), np.float32)
    for _ in range(10):
        row = rng.integers(-(2**31), 2**31, ROWS + 1).astype(np.int32)
        row[rng.random(ROWS + 1) < 0.5] = rng.integers(0, ENTRIES)
        cut = np.clip(row.astype(np.int64), 0, ENTRIES)
        out = np.full((ROWS, COLUMNS), np.nan, np.float32)
        f(row, col, v, x, out=out, unchecked=True)
        np.testing.assert_array_equal(out[:, 0], np.maximum(0, cut[1:] - cut[:-1]))


def text_of(program: str, **sizes: int) -> str:
    (function,) = define(program).values()
    machine = replace(this_machine(), threads=2)
    return lower(function, Sizes(sizes), MappingOptions(), CpuBackend(machine)).source.text


def test_pieces_have_as_many_entries() -> None:
    """The text that finds where pieces begin, in Python: no piece has much more than its share of the work."""
    text = text_of(TEXT, R1=ROWS + 1, E=ENTRIES, N=50, D=COLUMNS)
    whole, pieces = map(int, re.findall(r"wanted = (\d+)L \* \(piece \+ side\) / (\d+);", text)[0])
    tiles = int(re.findall(r"high = (\d+)L;", text)[0])
    before = re.findall(r"if \((.*) < wanted\)", text)[0]
    row = np.concatenate([[0], np.cumsum(lengths("longest first"))])
    python = before.replace("tc_max", "max").replace("tc_min", "min").replace("(long)", "")

    def work(tile: int) -> int:
        return int(eval(python, {"v_row": row, "tile_of_rows": tile, "max": max, "min": min}))

    done = np.array([work(tile) for tile in range(tiles)] + [whole])
    ends = np.searchsorted(done[:-1], whole * np.arange(pieces + 1) / pieces)
    ends[-1] = tiles
    most = np.diff(done[ends]).max()
    assert most <= whole / pieces + np.diff(done).max()
    even = np.diff(done[np.linspace(0, tiles, pieces + 1).astype(int)]).max()
    assert most < even / 3, "by numbers of rows the first piece has most of the work"


def test_rows_that_the_kernel_makes_itself_are_shared_out_by_tiles() -> None:
    made = """def f(int32(R) length, float(E) V) -> (Y) {
      row(i) +=! length(j) where i in 0:R+1, j in 0:i
      Y(i) +=! V(e) where e in row(i):row(i+1) }"""
    ragged = "def f(int32(R) length, float(R,E) V) -> (Y) { Y(i) +=! V(i,e) where e in 0:length(i) }"
    assert "tile_of_rows" not in text_of(ragged, R=ROWS, E=50)
    f, length = tc.define(made).f, lengths("longest first").astype(np.int32)
    v = np.ones(ENTRIES, np.float32)
    np.testing.assert_array_equal(f(length, v), length)
