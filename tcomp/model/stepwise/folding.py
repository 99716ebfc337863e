"""Temporaries that keep only the last few of their slices: ``U(t, i)`` lies in two rows if steps read the row before.

A slice may have the place of another one if nothing is written to that between what is written to the first and the
last read of it.  That is asked of isl for all steps at once, and again, as a proof, of the pieces that are compiled.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.errors import LegalityError
from tcomp.grammar.ranges.affine import form_to_pw_aff, step_parameter
from tcomp.grammar.ranges.domains import Box
from tcomp.model.stepwise.pieces import Item, Piece, Pieces, Sweeps, TimeTiles, fixed_everywhere
from tcomp.model.stepwise.views import Slice
from tcomp.model.terms.storages import Storage, contiguous_strides

MOST_SLICES = 8
"""A temporary keeps at most so many slices, or all."""


@dataclass(frozen=True, slots=True, eq=False)
class _Accesses:
    """When the slices of a tensor are written and read: maps from dates to the coordinates of slices."""

    writes: isl.Map
    reads: isl.Map


def folded(pieces: Pieces) -> Pieces:
    """The pieces with temporaries that keep as few slices as they may."""
    folds: dict[str, tuple[int, int]] = {}
    storages = dict(pieces.storages)
    for storage in pieces.storages.values():
        found = _fold(pieces, storage) if storage.role == "temporary" else None
        if found is not None:
            dimension, kept = found
            folds[storage.name] = found
            extent = tuple(kept if d == dimension else e for d, e in enumerate(storage.box.extent))
            box = Box(storage.box.origin, extent)
            strides = contiguous_strides(extent, fixed_everywhere(pieces, storage.name))
            storages[storage.name] = replace(storage, box=box, strides=strides)
    return replace(pieces, storages=storages, folds=folds)


def prove_folds(pieces: Pieces) -> None:
    """Raise LegalityError where a slice is overwritten before it is read for the last time."""
    for name, (dimension, kept) in pieces.folds.items():
        where = fixed_everywhere(pieces, name)
        wrong = None if dimension not in where else _overwritten(_accesses(pieces, name, where), where, dimension, kept)
        if dimension not in where or wrong is not None:
            raise LegalityError(f"{name} keeps {kept} slices, but one is overwritten before its last use: {wrong}")


def _fold(pieces: Pieces, storage: Storage) -> tuple[int, int] | None:
    """A dimension of a temporary and how many slices it keeps along it; None where it keeps all."""
    where = fixed_everywhere(pieces, storage.name)
    if not where:
        return None
    accesses = _accesses(pieces, storage.name, where)
    for dimension in where:
        for kept in range(1, min(MOST_SLICES, storage.box.extent[dimension] - 1) + 1):
            if _overwritten(accesses, where, dimension, kept) is None:
                return dimension, kept
    return None


def _accesses(pieces: Pieces, name: str, where: Sequence[int]) -> _Accesses:
    length = 2 * pieces.depth + 1
    writes = reads = isl.Map(f"{{ [{_names('d', length)}] -> [{_names('s', len(where))}] : false }}")
    for piece, path in _dated(pieces.body, ()):
        written = {s.target for s in piece.scop.statements}
        read = {str(r.get_tuple_name(isl.dim_type.out)) for s in piece.scop.statements for r in s.reads}
        for view, cut in piece.slices.items():
            if cut.tensor == name:
                access = _dates_to_slices(piece, path, cut, where, length)
                writes = writes.union(access) if view in written else writes
                reads = reads.union(access) if view in read else reads
    return _Accesses(writes.coalesce(), reads.coalesce())


def _dated(body: Sequence[Item], path: tuple[int | str, ...]) -> Iterator[tuple[Piece, tuple[int | str, ...]]]:
    """Each piece with its date: where it stands in the body, and in each block around it the step and the place."""
    for position, item in enumerate(body):
        if isinstance(item, Piece):
            yield item, (*path, position)
        else:
            repeat = item.repeat if isinstance(item, TimeTiles | Sweeps) else item
            yield from _dated(repeat.body, (*path, position, repeat.index))


def _dates_to_slices(
    piece: Piece, path: tuple[int | str, ...], cut: Slice, where: Sequence[int], length: int
) -> isl.Map:  # fmt: skip
    """The dates of a piece, with the coordinates of the slice that it touches."""
    values = isl.Set("{ [] }") if piece.scop.around is None else piece.scop.around.values
    steps = isl.Set.universe(isl.Space.set_alloc(isl.DEFAULT_CONTEXT, len(piece.steps), 0))
    for position, step in enumerate(piece.steps):
        steps = steps.set_dim_name(isl.dim_type.param, position, step_parameter(step))
    steps = steps.intersect_params(values.params())
    date = [step_parameter(p) if isinstance(p, str) else str(p) for p in (*path, *(0,) * (length - len(path)))]
    parameters = ", ".join(map(step_parameter, piece.steps))
    dates = isl.Set(f"[{parameters}] -> {{ [{', '.join(date)}] }}").intersect_params(values.params())
    result = isl.Map.from_domain(dates)
    forms = dict(cut.at)
    for dimension in where:
        value = form_to_pw_aff(forms[dimension], steps.get_space())
        assert value is not None, "slices are named by steps"
        column = isl.Map.from_pw_aff(value).range()
        result = result.flat_range_product(isl.Map.from_domain_and_range(dates, column))
    # What had steps as parameters is one relation over all of them.
    for _ in piece.steps:
        result = result.project_out(isl.dim_type.param, 0, 1)
    return result


def _overwritten(accesses: _Accesses, where: Sequence[int], dimension: int, kept: int) -> str | None:
    """Two slices in one place of which one is written while the other is still to be read; None if there are none."""
    place, count = where.index(dimension), len(where)
    same = [f"a{k} = b{k}" for k in range(count) if k != place]
    away = f"exists q : a{place} - b{place} = {kept}q and a{place} != b{place}"
    meeting = isl.Map(f"{{ [{_names('a', count)}] -> [{_names('b', count)}] : {' and '.join([*same, away])} }}")
    length = accesses.writes.dim(isl.dim_type.in_)
    before = isl.Map.lex_le(isl.Space.set_alloc(isl.DEFAULT_CONTEXT, 0, length))
    # From a slice that is written, with the date of that, to the dates from then on: it is read, another is written.
    slice_of, date_of = accesses.writes.range_map(), accesses.writes.domain_map()
    later = date_of.apply_range(before)
    read = slice_of.apply_range(accesses.reads.reverse()).intersect(later)
    taken = slice_of.apply_range(meeting).apply_range(accesses.writes.reverse()).intersect(later)
    wrong = taken.range_product(read).range().unwrap().intersect(before)
    return None if wrong.is_empty() else str(wrong.sample())


def _names(letter: str, count: int) -> str:
    return ", ".join(f"{letter}{k}" for k in range(count))
