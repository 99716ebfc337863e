"""Register tiles that are not whole, where a call says how many rows and columns there are.

All rows and columns of a whole tile are computed, in a tile of memory of its own, and those that there are go where
they belong.  Rows that are not there are the last one again; columns that are not there lie in a panel, whatever that
holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from tcomp.backends.c.contractions.places import Operand, Place
from tcomp.backends.c.loops.nests import Nest, extents_of, has_no_others
from tcomp.backends.dialect import C_STORAGE_TYPES, load, store
from tcomp.loops.ir import For, variables
from tcomp.values.operators import DType

_WORDS = re.compile(r"\w+")
EDGE = "tc_edge"
"""The C name of the tile of memory."""


def edge_condition(nest: Nest, columns: int, operands: tuple[Operand, Operand]) -> str | None:
    """The C condition on which a tile of so many columns may stand for one that is not whole; None if it never may."""
    loops = [loop for loop in (nest.row, nest.column, *nest.steps) if loop is not None]
    sides = {loop.iterator for loop in (nest.row, nest.column) if loop is not None}
    if any(not isinstance(loop, For) or (variables(loop.lower) | variables(loop.upper)) & sides for loop in loops):
        return None
    if any(o.bordered is not None for o in operands):
        return None
    if has_no_others(nest.column) and extents_of(nest.column) == (columns,):
        return "1"
    vectors = [o for o in operands if o.is_vector]
    if any(not o.place.room for o in vectors):
        return None
    steps = {loop.iterator for loop in nest.steps if isinstance(loop, For)}
    if any(steps & {*_WORDS.findall(o.place.room)} for o in vectors):
        return f"tc_columns == {columns}"
    rooms = " && ".join(f"{o.place.room} >= {columns}" for o in vectors)
    return f"(tc_columns == {columns} || ({rooms}))"


def clamped(operands: tuple[Operand, Operand]) -> tuple[Operand, Operand]:
    """Operands whose rows end at the last one."""
    first, second = (replace(o, clamped=True, again=False) for o in operands)
    return first, second


def row_lines(operands: tuple[Operand, Operand], rows: int) -> Iterator[str]:
    """The lines that say where rows of clamped operands are."""
    for o in operands:
        if o.row:
            yield from (f"const long {o.name}_row{r} = tc_min({r}, tc_rows - 1) * {o.apart()};" for r in range(1, rows))


def edge_targets(dtype: DType, columns: int, targets: tuple[Operand, Operand]) -> tuple[Operand, Operand]:
    """The target and the result in the tile of memory."""
    place = Place(f"{EDGE}[0]", dtype, (columns, 1))
    target, result = (replace(o, place=place, row=columns, pitch="") for o in targets)
    return target, result


def edge_before(dtype: DType, rows: int, columns: int, target: Operand, from_zero: bool) -> Iterator[str]:
    """The lines that declare the tile of memory, and fill it with the accumulators that there are."""
    element = C_STORAGE_TYPES[dtype.name]
    start = "" if from_zero else " = {0}"
    yield f"{element} {EDGE}[{rows * columns}] __attribute__((aligned(64))){start};"
    if not from_zero:
        yield f"const {element} *const tc_before = &{target.place.text};"
        yield "for (long r = 0; r < tc_rows; r++)"
        there = f"tc_before[r * {target.apart()} + c]"
        yield f"  for (long c = 0; c < tc_columns; c++) {EDGE}[r * {columns} + c] = {there};"


def edge_after(dtype: DType, columns: int, result: Operand) -> Iterator[str]:
    """The lines that store what of the tile there is."""
    own = result.place.dtype
    value = store(load(f"{EDGE}[r * {columns} + c]", dtype), own)
    yield f"{C_STORAGE_TYPES[own.name]} *const tc_after = &{result.place.text};"
    yield "for (long r = 0; r < tc_rows; r++)"
    yield f"  for (long c = 0; c < tc_columns; c++) tc_after[r * {result.apart()} + c] = {value};"
