"""The program as passes rewrote it before they scheduled it, from the tables of a plan's text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import islpy as isl

from tcomp.errors import PlanError
from tcomp.mapping.cpu.seeking import search_of, sought
from tcomp.mapping.fusion.distributing import can_distribute, distributed
from tcomp.mapping.fusion.inlining import can_inline, inlined
from tcomp.mapping.fusion.keeping import can_keep, kept
from tcomp.mapping.fusion.merging import can_merge, merged
from tcomp.mapping.fusion.mirroring import can_mirror, mirrored
from tcomp.mapping.fusion.outlining import can_outline, outlined
from tcomp.mapping.fusion.quotients import can_part, parted
from tcomp.mapping.plan.values import Parted, Plan, Rescaled, Sought, Swept
from tcomp.mapping.rescaling.inturn import Running
from tcomp.mapping.rescaling.parts import rescaled
from tcomp.mapping.rescaling.running import can_run, running
from tcomp.mapping.rescaling.sharing import shared_in_turns
from tcomp.mapping.rescaling.summing import summed, summed_of
from tcomp.mapping.rescaling.weights import weights_of
from tcomp.mapping.text.rows import Row
from tcomp.mapping.tiles.apart import accumulated_apart, can_accumulate_apart
from tcomp.mapping.tiles.atomics import can_be_atomic, made_atomic
from tcomp.mapping.tiles.scanparts import in_parts, long_scan
from tcomp.mapping.tiles.splitting import split
from tcomp.mapping.tiles.sweeps import can_be_swept, stretches, swept
from tcomp.model.scop import Scop

Done = TypeVar("Done")


def rewritten(source: Row, scop: Scop, tree: isl.Schedule) -> Plan:
    """The program as passes rewrote it before they scheduled it."""
    scop, atomic = _each(source, "atomic", scop, _atomic)
    scop, sweeps = _each(source, "swept", scop, _swept)
    scop, terms = _each(source, "distributed", scop, _distributed)
    scop, windows = _each(source, "unfolded", scop, _unfolded)
    scop, quotients = _each(source, "quotients", scop, _in_two)
    scop, merged_pairs = _each(source, "merged", scop, _merged)
    scop, mirrored_pairs = _each(source, "mirrored", scop, _mirrored)
    scop, parts = _each(source, "outlined", scop, _outlined)
    scop, names = _each(source, "inlined", scop, _inlined)
    scop, families = _each(source, "rescaled", scop, _rescaled)
    scop, searches = _each(source, "sought", scop, _sought)
    scop, scans = _each(source, "parted", scop, _parted)
    scop, storages = _each(source, "split", scop, _split)
    scop, apart = _each(source, "apart", scop, _apart)
    scop, rows = _each(source, "kept", scop, _kept)
    stored = frozenset(storages) | {search.storage for search in searches}
    return Plan(
        scop, scop, tree, (), atomic=atomic, swept=sweeps, distributed=terms, unfolded=windows,
        quotients=quotients, merged=merged_pairs,
        mirrored=mirrored_pairs, outlined=parts, inlined=names, rescaled=families, sought=searches, parted=scans,
        stored=stored, apart=apart, kept=rows,
    )  # fmt: skip


def _each(
    source: Row, table: str, scop: Scop, rewrite: Callable[[Scop, Row], tuple[Scop, Done]]
) -> tuple[Scop, tuple[Done, ...]]:
    """The program after what the rows of a table say, and what was done to it, in order."""
    done: list[Done] = []
    for row in source.rows(table):
        scop, one = rewrite(scop, row)
        done.append(one)
    return scop, tuple(done)


def _atomic(scop: Scop, row: Row) -> tuple[Scop, str]:
    name = row.text("statement")
    if name not in scop.by_name or not can_be_atomic(scop, name):
        raise PlanError(f"{row.where}: {name} is no reduction whose elements data choose")
    if scop.by_name[name].atomic:
        raise PlanError(f"{row.where}: {name} is atomic already")
    return made_atomic(scop, [name]), name


def _swept(scop: Scop, row: Row) -> tuple[Scop, Swept]:
    name, count = row.text("statement"), row.number("count")
    if name not in scop.by_name or not can_be_swept(scop, name):
        raise PlanError(f"{row.where}: {name} is no reduction whose elements data choose, or is swept already")
    if count < 2 or stretches(scop, scop.by_name[name], count) != count:
        raise PlanError(f"{row.where}: the elements of {name} make no {count} stretches of one width")
    return swept(scop, name, count), Swept(name, count)


def _distributed(scop: Scop, row: Row) -> tuple[Scop, str]:
    name = row.text("statement")
    if name not in scop.by_name or not can_distribute(scop, name):
        raise PlanError(f"{row.where}: {name} is no sum of products whose terms can be added up one after another")
    return distributed(scop, name), name


def _unfolded(scop: Scop, row: Row) -> tuple[Scop, tuple[str, int, tuple[str, ...]]]:
    name, place, order = row.text("statement"), row.number("place"), row.texts("order")
    if name not in scop.by_name or not order or not can_outline(scop, name, place, order):
        raise PlanError(f"{row.where}: what {name} reads at {place} cannot be copied ahead of it in this order")
    return outlined(scop, name, place, order), (name, place, order)


def _in_two(scop: Scop, row: Row) -> tuple[Scop, tuple[str, str, int]]:
    name, index, number = row.text("statement"), row.text("index"), row.number("number")
    if not can_part(scop, name, index, number):
        raise PlanError(f"{row.where}: {index} of {name} cannot be two indices, one of {number} values")
    return parted(scop, name, index, number), (name, index, number)


def _merged(scop: Scop, row: Row) -> tuple[Scop, tuple[str, str, str]]:
    name, outer, inner = row.text("statement"), row.text("outer"), row.text("inner")
    if name not in scop.by_name or not can_merge(scop, name, outer, inner):
        raise PlanError(f"{row.where}: {outer} and {inner} of {name} cannot be one index")
    return merged(scop, name, (outer, inner)), (name, outer, inner)


def _mirrored(scop: Scop, row: Row) -> tuple[Scop, tuple[str, str, str]]:
    name, pair = row.text("statement"), (row.text("first"), row.text("second"))
    if name not in scop.by_name or not can_mirror(scop, name, pair):
        raise PlanError(f"{row.where}: {name} is no product that is the same with {pair[0]} and {pair[1]} exchanged")
    return mirrored(scop, name, pair), (name, *pair)


def _outlined(scop: Scop, row: Row) -> tuple[Scop, tuple[str, int]]:
    name, place = row.text("statement"), row.number("place")
    if name not in scop.by_name or not can_outline(scop, name, place):
        raise PlanError(f"{row.where}: what {name} computes at {place} cannot be computed ahead of it")
    return outlined(scop, name, place), (name, place)


def _inlined(scop: Scop, row: Row) -> tuple[Scop, str]:
    name = row.text("statement")
    if name not in scop.by_name or not can_inline(scop, name):
        raise PlanError(f"{row.where}: {name} cannot be computed where it is read")
    return inlined(scop, name), name


def _rescaled(scop: Scop, row: Row) -> tuple[Scop, Rescaled]:
    name, steps = row.text("statement"), row.number("steps")
    if row.number("summed", 0):
        found = summed_of(scop, name) if name in scop.by_name else None
        if found is None or steps < 1:
            raise PlanError(
                f"{row.where}: {name} is no sum of what products make that can take {steps} steps at a time"
            )
        made = summed(scop, found, steps)
        return made.scop, _in_turns(name, steps, made, row, summed=True)
    weights = weights_of(scop, name) if name in scop.by_name else None
    if weights is None or steps < 1:
        raise PlanError(f"{row.where}: {name} are no weights that can be computed in parts of {steps} steps")
    if row.number("running", 0):
        if not can_run(scop, weights):
            raise PlanError(f"{row.where}: others than {name} need its maximum, or its scores")
        share = row.number("shared", 0)
        if share:
            both = shared_in_turns(scop, weights, share, steps)
            if both is None:
                raise PlanError(
                    f"{row.where}: blocks cannot share {name} by {share} steps and run through {steps} in turn"
                )
            done = _in_turns(name, steps, both.running, row, summed=False)
            return both.running.scop, replace(done, storages=both.storages, shared=share)
        made = running(scop, weights, steps)
        return made.scop, _in_turns(name, steps, made, row, summed=False)
    parted, storages = rescaled(scop, weights, steps)
    return parted, Rescaled(name, steps, storages)


def _in_turns(name: str, steps: int, made: Running, row: Row, *, summed: bool) -> Rescaled:
    carried = tuple(made.carried.items())
    return Rescaled(name, steps, frozenset(), made.inside, made.last, carried, row.number("row", 0), summed)


def _sought(scop: Scop, row: Row) -> tuple[Scop, Sought]:
    name, parts = row.text("statement"), row.number("parts")
    search = search_of(scop, name) if name in scop.by_name else None
    if search is None or not 2 <= parts <= search.length:
        raise PlanError(f"{row.where}: {name} is no search for the place of an extremum in so many parts")
    made, storage = sought(scop, search, parts)
    return made, Sought(name, parts, storage)


def _parted(scop: Scop, row: Row) -> tuple[Scop, Parted]:
    name, steps = row.text("statement"), row.number("steps")
    scan = long_scan(scop, scop.by_name[name]) if name in scop.by_name else None
    if scan is None or steps < 1 or scan.parts(steps) < 2:
        raise PlanError(f"{row.where}: {name} is no cumulative reduction that has several parts of {steps} steps")
    parted, storages = in_parts(scop, scan, steps)
    return parted, Parted(name, steps, storages)


def _split(scop: Scop, row: Row) -> tuple[Scop, str]:
    statement = scop.by_name.get(row.text("statement"))
    parts = row.number("parts")
    if statement is None or statement.kind != "update" or not statement.plain or not statement.reduction_rank:
        raise PlanError(f"{row.where}: only an update that reduces over an index can be split")
    if parts < 2:
        raise PlanError(f"{row.where}: parts must be 2 or more")
    return split(scop, statement, parts, apart=row.number("apart", 0) > 0)


def _apart(scop: Scop, row: Row) -> tuple[Scop, str]:
    name = row.text("statement")
    if name not in scop.by_name or not can_accumulate_apart(scop, name):
        raise PlanError(f"{row.where}: {name} cannot accumulate in a storage of its own")
    return accumulated_apart(scop, name), name


def _kept(scop: Scop, row: Row) -> tuple[Scop, tuple[str, tuple[str, ...]]]:
    storage, readers = row.text("storage"), row.texts("statements")
    if not can_keep(scop, storage, readers):
        raise PlanError(
            f"{row.where}: {', '.join(readers)} cannot read {storage} from a temporary that is filled ahead"
        )
    return kept(scop, storage, readers), (storage, readers)
