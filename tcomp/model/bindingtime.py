"""Binding time: what of a program depends on bound arrays alone, and is computed once, and what is left for each call.

Binding time is a property of statements: the statements are split, what the second part needs of the first is handed on
as whole storages, and each part is a ``Scop`` like any other.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import replace

import islpy as isl

from tcomp.model.accesses import box_set
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.sizes import Part
from tcomp.model.terms.storages import Storage
from tcomp.model.terms.unions import storage_of


def part_of(scop: Scop, part: Part) -> Scop:
    """The statements of a part, its inputs and outputs.

    A temporary that one part computes and the other reads is an output there and a bound input here.  What depends on
    no input at all is computed where it is read, in both parts if need be.
    """
    ahead = _computed_ahead(scop, part.bound)
    rest = [s for s in scop.statements if s.target not in ahead]
    kept = {name for s in rest for name in map(storage_of, s.reads) if name in ahead}
    if part.once:
        needed = _needed_for(scop, kept)
        statements = [s for s in scop.statements if s.target in needed]
        storages = {s.name: _handed_out(scop, s) if s.name in kept else s for s in scop.storages.values()}
        return _with(scop, storages, statements, frozenset())
    statements = _without_unread(scop, rest)
    storages = {}
    for name, storage in scop.storages.items():
        bound = name in part.bound or name in kept
        storages[name] = replace(storage, role="input" if name in kept else storage.role, bound=bound)
    own = {s.name for s in storages.values() if s.role != "temporary" and not s.bound}
    return _with(scop, storages, statements, own)


def _computed_ahead(scop: Scop, bound: Collection[str]) -> frozenset[str]:
    """The temporaries all of whose statements read bound arrays, and what is made of these, but nothing else."""
    known = set(scop.temporaries)
    while True:
        unknown = {
            s.target for s in scop.statements if not {storage_of(r) for r in s.all_reads} <= known | {*bound}
        } & known
        if not unknown:
            break
        known -= unknown
    ahead: set[str] = set()
    while True:
        more = {s.target for s in scop.statements if {storage_of(r) for r in s.reads} & (ahead | {*bound})} & known
        if more <= ahead:
            return frozenset(ahead)
        ahead |= more


def _needed_for(scop: Scop, results: Collection[str]) -> set[str]:
    """Some temporaries, and those from which they are computed."""
    needed = set(results)
    while True:
        read = {storage_of(r) for s in scop.statements if s.target in needed for r in s.reads} & scop.temporaries
        if read <= needed:
            return needed
        needed |= read


def _without_unread(scop: Scop, statements: list[ScopStatement]) -> list[ScopStatement]:
    """The statements but for those whose temporaries only the other part reads."""
    used = {storage_of(r) for s in scop.statements for r in s.reads}
    while True:
        read = {storage_of(r) for s in statements for r in s.reads}
        left = [s for s in statements if s.target in read or s.target not in scop.temporaries or s.target not in used]
        if len(left) == len(statements):
            return left
        statements = left


def _handed_out(scop: Scop, storage: Storage) -> Storage:
    """A temporary as an output; if not every element is written, others stay what they are."""
    written = [s.write.range() for s in scop.users[storage.name] if s.target == storage.name]
    whole = box_set(storage.name, storage.box).is_subset(functools.reduce(isl.Set.union, written))
    return replace(storage, role="output" if whole else "inout")


def _with(scop: Scop, storages: Mapping[str, Storage], statements: list[ScopStatement], own: Collection[str]) -> Scop:
    """A model of some statements: its storages are what they use, and the ``own`` arrays of a call."""
    used = {name for s in statements for name in (s.target, *map(storage_of, s.reads))}
    chosen = {name: storage for name, storage in storages.items() if name in used or name in own}
    return Scop(chosen, tuple(statements), scop.sizes, scop.warnings)
