"""How far apart instances are that depend on each other: steps and rows, from the accesses to one element.

Storage that slices share counts as one element.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import islpy as isl

from tcomp.grammar.tree.function import Statement
from tcomp.model.accesses import Frame, element_map, reads_with_subscripts
from tcomp.model.stepwise.cutting import Cutter
from tcomp.model.stepwise.pieces import Band, Piece, Pieces

STEEPEST = 8
"""Edges that would lean by more elements for each step are given up."""

_SET = isl.dim_type.set


@dataclass(frozen=True, slots=True, eq=False)
class Moves:
    """For two statements, by number: how many steps and rows instances of the second follow those of the first."""

    between: Mapping[tuple[int, int], isl.Set]
    count: int

    def farthest(self, pair: tuple[int, int], slope: int, sign: int) -> int | None:
        """The largest distance that an edge with a slope does not make up for."""
        moves = self.between[pair]
        space = isl.LocalSpace.from_space(moves.get_space())
        value = isl.Aff.zero_on_domain(space).set_coefficient_val(isl.dim_type.in_, 1, isl.Val(sign))
        found = moves.max_val(value.set_coefficient_val(isl.dim_type.in_, 0, isl.Val(-slope)))
        return found.to_python() if found.is_int() else None

    def band(self, sign: int) -> Band | None:
        """The least slope, and shifts, with which an edge makes up for all distances to one side."""
        for slope in range(STEEPEST + 1):
            weights = {pair: self.farthest(pair, slope, sign) for pair in self.between}
            if any(weight is None for weight in weights.values()):
                return None
            shifts = [0] * self.count
            for _ in range(self.count + 1):
                before = list(shifts)
                for (first, second), weight in weights.items():
                    assert weight is not None
                    shifts[second] = max(shifts[second], shifts[first] + weight)
                if shifts == before:
                    return Band(slope, tuple(shifts))
        return None

    def is_made_up(self, band: Band, sign: int) -> bool:
        """Whether an edge leans as far as all distances need."""
        for (first, second), _ in self.between.items():
            farthest = self.farthest((first, second), band.slope, sign)
            if farthest is None or farthest > band.shifts[second] - band.shifts[first]:
                return False
        return True


def moves_of(
    cutter: Cutter, pieces: Pieces, piece: Piece, statements: Sequence[Statement], coordinates: Sequence[str | int]
) -> Moves | None:  # fmt: skip
    """What depends on what; None where a statement writes what it reads at another row of the same step."""
    accesses = [
        list(accesses_of(cutter, pieces, number, statement, coordinate))
        for number, statement, coordinate in zip(piece.numbers, statements, coordinates, strict=True)
    ]
    between: dict[tuple[int, int], isl.Set] = {}
    for first, earlier in enumerate(accesses):
        for second, later in enumerate(accesses):
            found = isl.Set("{ [t, r] : false }")
            for one, writes in earlier:
                for other, also in later:
                    same = one.get_tuple_name(isl.dim_type.out) == other.get_tuple_name(isl.dim_type.out)
                    if same and (writes or also):
                        found = found.union(_in_one_block(one.apply_range(other.reverse()).deltas()))
            if first == second and not found.intersect(isl.Set("{ [0, r] : r != 0 }")).is_empty():
                return None
            after = "t >= 0" if first < second else "t >= 1"
            found = found.intersect(isl.Set(f"{{ [t, r] : {after} }}")).coalesce()
            if not found.is_empty():
                between[first, second] = found
    return Moves(between, len(statements))


def _in_one_block(moves: isl.Set) -> isl.Set:
    """How many steps and rows apart instances are whose steps around the block are the same."""
    outer = moves.dim(_SET) - 2
    for d in range(outer):
        moves = moves.fix_val(_SET, d, isl.Val(0))
    return moves.project_out(_SET, 0, outer)


def accesses_of(
    cutter: Cutter, pieces: Pieces, number: int, statement: Statement, coordinate: str | int
) -> Iterator[tuple[isl.Map, bool]]:
    """From steps and row to the elements that a statement touches there, as they share places; and if it writes."""
    domain = cutter.ranges.domains[number].domain
    frame = Frame(domain, cutter.values, cutter.ranges.boxes)
    names = [f"i{d}" for d in range(domain.dim(_SET))]
    row = coordinate if isinstance(coordinate, int) else names[statement.indices.index(coordinate)]
    steps = ", ".join(names[: len(statement.steps)])
    places = isl.Map(f"{{ {domain.get_tuple_name()}[{', '.join(names)}] -> [{steps}, {row}] }}")
    write = element_map(frame, statement.target, statement.subscripts)
    for access, writes in [(write, True), *((r, False) for r in reads_with_subscripts(frame, statement.value, ()))]:
        elements = places.intersect_domain(domain).reverse().apply_range(access)
        name = str(access.get_tuple_name(isl.dim_type.out))
        dimension, kept = pieces.folds.get(name, (-1, 1))
        if dimension >= 0:
            rank = access.dim(isl.dim_type.out)
            dims = [f"x{d}" for d in range(rank)]
            shared = [f"({x} mod {kept})" if d == dimension else x for d, x in enumerate(dims)]
            elements = elements.apply_range(isl.Map(f"{{ {name}[{', '.join(dims)}] -> {name}[{', '.join(shared)}] }}"))
        yield elements, writes
