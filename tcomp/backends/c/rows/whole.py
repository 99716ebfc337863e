"""Loops over a few whole vectors, written as vectors: gcc would have to find them in each variant of a tile."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tcomp.backends.c.rows.gathers import all_gathers
from tcomp.backends.c.vectors.types import vector_type
from tcomp.backends.c.vectors.values import VectorSpeller, neighbours
from tcomp.backends.spelling import Speller, loop_text
from tcomp.loops.indexing import constant_extent
from tcomp.loops.ir import Execute, For, LoopExpr, Number, Operation, substitute
from tcomp.mapping.machines.fitted.cputext import VECTOR_ROWS
from tcomp.model.scop import Scop

Spell = Callable[..., Speller]
"""Gives what spells expressions of a statement where indices have the C text given."""


def whole_vectors(loop: For, call: Execute, lanes: int, scop: Scop, speller: Spell) -> list[str] | None:
    """A statement of C for each vector of a loop over one call, of which no iteration reads what one of them writes.

    None if there are many, or if vectors are not all that the loop needs.
    """
    extent = constant_extent(loop.lower, loop.upper)
    if extent is None or extent % lanes:
        return None
    statement = scop.by_name[call.statement]
    along = neighbours(loop, call, statement)
    if along is None or all_gathers(statement) or not 0 < extent <= VECTOR_ROWS.most_whole_vectors * lanes:
        return None
    dtype, lines = scop.storages[statement.target].dtype, list[str]()
    for first in range(0, extent, lanes):
        iteration: LoopExpr = Operation("+", (loop.lower, Number(first))) if first else loop.lower
        arguments = [substitute(a, loop.iterator, iteration) for a in call.arguments]
        indices: Mapping[str, str] = {n: loop_text(a) for n, a in zip(statement.indices, arguments, strict=True)}
        scalar = speller(statement, indices)
        vectors = VectorSpeller(scalar, along, lanes)
        value = vectors.value(statement.value, dtype)
        if value is None or vectors.write_stride(statement) != 1:
            return None
        target = scalar.written(statement.target, statement.subscripts)
        lines.append(f"*({vector_type(dtype, lanes)} *)&{target} = {value};")
    return lines
