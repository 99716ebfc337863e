"""Tiles of rows whose entries data give, dealt to threads by work: each piece has about as many entries as any other.

Where rows are ``row(i):row(i+1)``, ``row`` counts the entries of all rows before, so the tile at which a share of the
work begins is found by halving.  Pieces are apart and together have all tiles whatever ``row`` holds: the search asks
the same of the same tiles for each of them, and a piece that wants more never ends up before one that wants less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tcomp.backends.spelling import Speller, loop_text
from tcomp.grammar.tree.dataranges import are_rows
from tcomp.grammar.tree.function import Cast, Read, walk
from tcomp.grammar.tree.function import Index as IndexOf
from tcomp.loops.ir import (
    Block,
    Execute,
    For,
    LoopExpr,
    LoopNode,
    Number,
    Operation,
    Scope,
    Variable,
    substitute_all,
    variables,
)
from tcomp.loops.ir import walk as nodes_below
from tcomp.loops.narrowing import Narrowed, Narrowing
from tcomp.mapping.machines.fitted.cputext import THREADS

Spell = Callable[[str, Mapping[str, str]], Speller]
"""Gives what spells expressions of a statement, without checks, where its indices have the C texts given."""


@dataclass(frozen=True, slots=True)
class RowWork:
    """The work before the tile that the outermost loop over tiles has at ``number``, in entries, and that of all."""

    number: str
    before: str
    whole: int

    def lines(self, tiles: str, pieces: int) -> Iterator[str]:
        """C text that sets ``ends`` to the tiles at which ``piece`` begins and ends, of so many tiles and pieces."""
        yield "long ends[2];"
        yield "for (int side = 0; side < 2; side++) {"
        yield f"  const long wanted = {self.whole}L * (piece + side) / {pieces};"
        yield f"  long low = 0, high = {tiles};"
        yield f"  while (low < high && wanted > 0 && piece + side < {pieces}) {{"
        yield f"    const long {self.number} = low + (high - low) / 2;"
        yield f"    if ({self.before} < wanted) low = {self.number} + 1; else high = {self.number};"
        yield "  }"
        yield f"  ends[side] = wanted <= 0 ? 0 : piece + side < {pieces} ? low : {tiles};"
        yield "}"


def row_work(loops: Sequence[For], tile: LoopNode, narrowed: Narrowed, spell: Spell) -> RowWork | None:
    """The work of tiles whose first loop over data has the entries of rows, one after another; None for others."""
    found = _first_range(tile, narrowed)
    if found is None or not loops:
        return None
    way, inner = found
    statement, outer = narrowed.plan.scop.by_name[way.call.statement], loops[0]
    within = way.within
    if within.box is None or not are_rows(within, narrowed.plan.scop.sizes) or outer.step != 1:
        return None
    lower = within.lower.operand if isinstance(within.lower, Cast) else within.lower
    assert isinstance(lower, Read)
    written = {narrowed.plan.scop.by_name[n.statement].target for n in nodes_below(tile) if isinstance(n, Execute)}
    if lower.tensor in written or lower.tensor in narrowed.plan.buffers:
        return None
    (index,) = {e.name for e in walk(lower.subscripts[0]) if isinstance(e, IndexOf)} or {""}
    if index not in statement.indices:
        return None
    position = statement.indices.index(index)
    place: LoopExpr = way.call.arguments[position]
    for loop in reversed(inner):
        place = substitute_all(place, {loop.iterator: loop.lower})
    if not variables(place) <= {outer.iterator} or not isinstance(outer.lower, Number):
        return None
    number = "tile_of_rows"
    begun = Operation("+", (outer.lower, Variable(number))) if outer.lower.value else Variable(number)
    row = substitute_all(place, {outer.iterator: begun})
    first = substitute_all(place, {outer.iterator: outer.lower})
    low, high = within.box
    entries = spell(statement.name, {index: f"({loop_text(row)})"}).value_in_64_bits(lower)
    rows = f"({loop_text(row)} - {loop_text(first)})"
    before = f"tc_max({low}, tc_min({high}, {entries})) - {low} + {THREADS.row_entries} * {rows}"
    return RowWork(number, before, high - low + THREADS.row_entries * statement.extents[position])


def _first_range(tile: LoopNode, narrowed: Narrowed) -> tuple[Narrowing, list[For]] | None:
    """The loop over data that a tile comes to without a condition, and the loops around it there."""
    waiting: list[tuple[LoopNode, list[For]]] = [(tile, [])]
    while waiting:
        node, around = waiting.pop(0)
        match node:
            case For():
                way = narrowed.of(node)
                if way is not None:
                    return way, around
                waiting.append((node.body, [*around, node]))
            case Scope():
                waiting.append((node.body, around))
            case Block():
                waiting += [(child, around) for child in node.children]
    return None
