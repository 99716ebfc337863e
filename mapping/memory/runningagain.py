"""Pass: of register tiles, the last one of a column is whole where its rows do not fill it: it begins further back.

Of 196 rows in tiles of 6 the last tile has 4, and would need a text of its own, which compilers take a quarter of their
time for.  It runs through rows 190 to 195 instead; two of them were there before, and get the values that they have.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.grammar.tree.dataranges import inside_ranges
from tcomp.grammar.tree.function import Expr, Read, depends_on_data, walk
from tcomp.mapping.machines.fitted.cputext import LAST_TILES
from tcomp.mapping.memory.places import INNER_TILES, Place, places
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.operations import TileOperation
from tcomp.mapping.plan.values import Buffer, Copy, Plan
from tcomp.mapping.tiles.strides import coefficient
from tcomp.model.scop import ScopStatement
from tcomp.model.terms.unions import storage_of


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of tiles at a mark: so many in a tile, from the ``first`` to before the ``end``."""

    mark: str
    size: int
    first: int
    end: int

    @property
    def again(self) -> int:
        """How many run twice where the last tile is whole."""
        return -(self.end - self.first) % self.size


def shift_last_tiles(plan: Plan, options: MappingOptions) -> Plan:
    """Let the last register tiles begin further back where they may, and few rows run again for that."""
    found = {}
    for mark, operation in plan.operations.items():
        rows = rows_again(plan, operation)
        if rows is not None and 0 < rows.again <= LAST_TILES.most_again * (rows.end - rows.first):
            found[mark] = replace(operation, shifted=True)
    return replace(plan, operations={**plan.operations, **found}) if found else plan


def rows_again(plan: Plan, operation: TileOperation) -> Rows | None:
    """The rows of a contraction's tiles if a tile may begin at any row, at whatever time, though others had its rows.

    All that a tile runs is then the same for every row.  It keeps in memory of its own what it reads again, and writes
    each element of others once, which nobody else writes; what else it reads nobody writes.  So a row that runs again
    has the values of before, even in another thread.
    """
    turns = any(g.turns or g.seen is not None or g.first is not None for g in plan.groups)
    plain = operation.kind == "contract" and not operation.atom and not operation.overhang
    if not plain or plan.phases or plan.scop.around is not None or turns:
        return None
    inner = [p for p in places(plan.tree) if p.mark.startswith(INNER_TILES) and operation.statement in p.prefixes]
    if not inner:
        return None
    tile = inner[0]
    statements = [plan.scop.by_name[name] for name in tile.prefixes]
    if not all(_runs_in_boxes(tile.prefixes[s.name], s) for s in statements):
        return None
    for member in reversed(range(tile.prefixes[operation.statement].dim(isl.dim_type.out))):
        found = [_tiled(tile.prefixes[s.name], member, s) for s in statements]
        if None in found or len({f[1] for f in found if f is not None}) != 1:
            continue
        indices = {s.name: s.indices[f[0]] for s, f in zip(statements, found, strict=True) if f is not None}
        rows = next(f[1] for f in found if f is not None)
        if rows.again:
            repeats = (
                rows.size < rows.end - rows.first
                and _Tile(plan, tile, statements, indices, member, rows.size).repeats()
            )
            return replace(rows, mark=tile.mark) if repeats else None
    return None


def shifted_rows(plan: Plan) -> dict[str, Rows]:
    """The rows of tiles that may begin further back, by the marks of the tiles."""
    found = (rows_again(plan, operation) for operation in plan.operations.values() if operation.shifted)
    return {rows.mark: rows for rows in found if rows is not None}


def _runs_in_boxes(prefix: isl.Map, statement: ScopStatement) -> bool:
    """Whether the instances of a statement are a box, and all run in the tiles."""
    plain = not (statement.tile_rank or statement.stretch or statement.scatters or statement.atomic)
    return plain and bool(statement.domain.is_box()) and bool(prefix.domain().is_equal(statement.domain))


def _tiled(prefix: isl.Map, member: int, statement: ScopStatement) -> tuple[int, Rows] | None:
    """Which index a loop over tiles divides, and the rows that it then has; None if it is over anything else."""
    kinds, domain = isl.dim_type, statement.domain
    single = prefix.project_out(kinds.out, member + 1, prefix.dim(kinds.out) - member - 1)
    single = single.project_out(kinds.out, 0, member)
    tile = isl.PwMultiAff.from_map(single).get_at(0).gist(domain) if single.is_single_valued() else None
    divided = _divided_index(tile.as_aff()) if tile is not None and tile.isa_aff() else None
    if divided is None:
        return None
    index, size = divided
    return index, Rows("", size, domain.dim_min_val(index).to_python(), domain.dim_max_val(index).to_python() + 1)


def _divided_index(tile: isl.Aff) -> tuple[int, int] | None:
    """The position of an index and a number, for the index divided by the number and rounded down; else None."""
    kinds = isl.dim_type
    if tile.dim(kinds.div) != 1:
        return None
    quotient = tile.get_div(0)
    size = quotient.get_denominator_val()
    positions = [d for d in range(tile.dim(kinds.in_)) if not quotient.get_coefficient_val(kinds.in_, d).is_zero()]
    if len(positions) != 1:
        return None
    space = isl.LocalSpace.from_space(tile.get_domain_space())
    index = isl.Aff.var_on_domain(space, kinds.set, positions[0])
    return (positions[0], size.to_python()) if tile.plain_is_equal(index.scale_down_val(size).floor()) else None


@dataclass(frozen=True, eq=False)
class _Tile:
    """A tile with what it runs, the index of each statement that is its row, the loop over these, and their number."""

    plan: Plan
    place: Place
    statements: list[ScopStatement]
    rows: dict[str, str]
    member: int
    size: int

    def repeats(self) -> bool:
        """Whether running rows again, in a tile that begins anywhere, leaves everything as it was."""
        own = {b.storage for b in self.plan.buffers.values() if b.mark in self._marks}
        read = {storage_of(access) for s in self.statements for access in s.all_reads} - own
        read |= {r.tensor for s in self.statements for r in _reads(s)} - own
        written = [s for s in self.statements if s.target not in own]
        writers = [s.target for s in self.plan.scop.statements]
        if any(writers.count(s.target) != 1 or s.target in read or not s.write.is_injective() for s in written):
            return False
        if any(storage in writers for storage in read) or not all(map(self._is_in_memory, (s.target for s in written))):
            return False
        if any(depends_on_data(subscript) for s in self.statements for r in _reads(s) for subscript in r.subscripts):
            return False
        if any(inside_ranges(s.value) is not s.value for s in self.statements):
            return False
        buffers = (b for b in self.plan.buffers.values() if b.storage in own)
        return all(map(self._moves_with_rows, buffers)) and all(map(self._finds_rows, self.plan.copies))

    @functools.cached_property
    def _marks(self) -> frozenset[str]:
        """The marks of the tile and of all that is inside."""
        every = places(self.plan.tree)
        inside = every[next(n for n, p in enumerate(every) if p.mark == self.place.mark) :]
        return frozenset(p.mark for p in inside if p.prefixes.keys() <= self.place.prefixes.keys())

    def _is_in_memory(self, storage: str) -> bool:
        """Whether all elements of a storage have places of their own that stay where they are."""
        buffer = self.plan.buffers.get(storage)
        return buffer is None or (buffer.space == "global" and not buffer.folded)

    def _moves_with_rows(self, buffer: Buffer) -> bool:
        """Whether a row has the same place in a buffer of the tile wherever that begins."""
        if buffer.space == "register":
            return True
        if buffer.space != "tile" or buffer.folded or buffer.lower is None:
            return False
        touched = [(s, s.subscripts) for s in self.statements if s.target == buffer.storage]
        touched += [(s, r.subscripts) for s in self.statements for r in _reads(s) if r.tensor == buffer.storage]
        steps = {self._steps(s, subscripts) for s, subscripts in touched}
        return steps == {self._corner_steps(buffer.lower)}

    def _finds_rows(self, copy: Copy) -> bool:
        """Whether what the tile reads of a copy is the same for all rows, and the copy made in front of all of them."""
        if copy.statement not in self.rows:
            return True
        statement = self.plan.scop.by_name[copy.statement]
        return copy.mark not in self._marks and not any(any(self._steps(statement, r.subscripts)) for r in copy.reads)

    def _steps(self, statement: ScopStatement, subscripts: tuple[Expr, ...]) -> tuple[int | None, ...]:
        """How far the place of an access moves from a row to the next; None where that is not the same for all."""
        row = self.rows[statement.name]
        return tuple(coefficient(subscript, row, self.plan.scop.sizes) for subscript in subscripts)

    def _corner_steps(self, lower: isl.MultiAff) -> tuple[int, ...] | None:
        """How far the corner of a buffer moves from a row to the next; None where that is no whole number."""
        steps = []
        for dimension in range(lower.dim(isl.dim_type.out)):
            corner = lower.get_at(dimension)
            step, rest = divmod(corner.get_coefficient_val(isl.dim_type.in_, self.member).to_python(), self.size)
            if rest or corner.dim(isl.dim_type.div):
                return None
            steps.append(step)
        return tuple(steps)


def _reads(statement: ScopStatement) -> list[Read]:
    return [e for e in walk(statement.value) if isinstance(e, Read)]
