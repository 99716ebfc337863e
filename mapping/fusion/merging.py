"""Pass: make one index of several that run together through all that a contraction touches.

``C(a,b,n) +=! A(a,b,k) * B(k,n)`` with ``a`` of 48 and ``b`` of 56 values becomes ``C(j,n) +=! A(j,k) * B(k,n)`` with
``j`` of 2688: register tiles run along one index of each side, and short ones fill neither vectors nor tiles.
Where a window alone is in the way, or an operand has its indices in another order than the results, a copy of it comes
first (``unfolding.py``).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace

from tcomp.grammar.tree.dataranges import ranges_of
from tcomp.mapping.fusion.merges import Merge, Pair
from tcomp.mapping.fusion.outlining import outlined
from tcomp.mapping.fusion.unfolding import Unfolded, cost_of_unfolding, orders_of, window_of
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.operations import indices_in, recognise_contraction
from tcomp.mapping.plan.schedule import scheduled_anew
from tcomp.mapping.plan.values import Plan
from tcomp.model.scop import Scop, ScopStatement


def merge_indices(machine: Machine, plan: Plan, options: MappingOptions) -> Plan:
    """Merge indices of contractions on each of their sides, unless the caller's tile sizes count them."""
    if options.counts_loops:
        return plan
    scop, unfolded = plan.scop, list[Unfolded]()
    for name in plan.scop.by_name:
        trial, copies = _unfolded(machine, scop, name)
        scop, unfolded = trial, [*unfolded, *copies]
    done: list[tuple[str, str, str]] = []
    for name in plan.scop.by_name:
        scop, pairs = _merged(scop, name)
        done += pairs
    if not done:
        return plan
    return replace(scheduled_anew(plan, scop), merged=tuple(done), unfolded=tuple(unfolded))


def _unfolded(machine: Machine, scop: Scop, name: str) -> tuple[Scop, tuple[Unfolded, ...]]:
    """The program with those copies of operands of a contraction with which it takes least, and which these are."""
    window = window_of(scop, scop.by_name[name])
    found: list[tuple[float, Scop, tuple[Unfolded, ...]]] = []
    for copies in orders_of(scop, scop.by_name[name]) if window is None else [(window,)]:
        trial = functools.reduce(lambda s, copy: outlined(s, *copy), copies, scop)
        cost = cost_of_unfolding(machine, scop, _merged(trial, name)[0], name)
        if cost is not None:
            found.append((cost, trial, copies))
    if not found:
        return scop, ()
    _, trial, copies = min(found, key=lambda entry: entry[0])
    return trial, copies


def _merged(scop: Scop, name: str) -> tuple[Scop, list[tuple[str, str, str]]]:
    """The program with all indices of a contraction merged that can be, and which."""
    done: list[tuple[str, str, str]] = []
    while (found := _found(scop, scop.by_name[name])) is not None:
        scop, done = found.apply(scop), [*done, (name, *found.seed)]
    return scop, done


def _found(scop: Scop, statement: ScopStatement) -> Merge | None:
    """The first merge of two indices of a contraction, if a side of it has several of more than one value.

    So it is with the elements of a reduction over ranges that data give: those that share a range run in vectors.
    """
    extents = dict(zip(statement.indices, statement.extents, strict=True))
    for side in _sides(statement):
        if sum(extents[i] > 1 for i in side) < 2:
            continue
        for pair in ((a, b) for a in side for b in side if a != b):
            found = Merge.of(scop, statement.name, pair)
            if found is not None:
                return found
    return None


def _sides(statement: ScopStatement) -> Iterator[tuple[str, ...]]:
    """Indices of an update that may be one in the accesses of each of its operands."""
    if statement.kind != "update":
        return
    bundles, ranges = recognise_contraction(statement), ranges_of(statement.value)
    if bundles is not None:
        yield from (bundles.batch, bundles.m, bundles.n, bundles.k)
    elif ranges:
        ends = {i for within in ranges for e in (within.lower, within.upper) for i in indices_in(e)}
        yield tuple(i for i in statement.indices[: statement.coordinates] if i not in ends)


def can_merge(scop: Scop, name: str, outer: str, inner: str) -> bool:
    """Whether two indices of a statement can become one."""
    known = scop.by_name[name].indices
    return outer != inner and {outer, inner} <= {*known} and Merge.of(scop, name, (outer, inner)) is not None


def merged(scop: Scop, name: str, pair: Pair) -> Scop:
    """The program in which two indices of a statement, which ``can_merge``, are one.

    Raises LegalityError if an instance would touch anything else.
    """
    found = Merge.of(scop, name, pair)
    assert found is not None
    return found.apply(scop)
