"""Pass: leave out the instances of sums to which a condition on indices makes weights add 0, and what only these read.

The gradient of causal attention reads ``p(i,j) = j <= i ? exp(s(i,j) - m(i)) : 0`` and

    d_V(j,e) +=! p(i,j) * d_O(i,e)

so half of all products add 0.  Without them the sum takes the ``i >= j``, weights nobody reads are not computed, and
scores nobody reads are no longer added up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

import islpy as isl

from tcomp.grammar.ranges.affine import to_set
from tcomp.grammar.tree.function import Binary, Call, Expr, Index, Read, Unary, depends_on_data, walk
from tcomp.mapping.cpu.rescaling import long_weights
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.schedule import scheduled_anew
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.rescaling.building import read_of
from tcomp.mapping.rescaling.weights import unconditional
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.unions import storage_of


def hide_steps(machine: Machine, plan: Plan, options: MappingOptions) -> Plan:
    """Leave out steps of sums whose weights a condition makes 0, and instances that only these needed.

    Long rows of weights, which are to be computed in parts, stay as they are: parts leave out what rows do not see.
    """
    if options.counts_loops or options.fusion_strategy == "min":
        return plan
    long = {name for name in plan.scop.by_name if long_weights(machine, plan.scop, name) is not None}
    scop = without_hidden_steps(plan.scop, long)
    return plan if scop is None else scheduled_anew(plan, scop)


def without_hidden_steps(scop: Scop, whole: Collection[str] = ()) -> Scop | None:
    """The program without them; None if it has none.

    An instance of a sum goes if a factor of what it adds is a weight that is 0: an exponential, perhaps times
    something, where a condition on indices holds, and 0 elsewhere.  A row of weights that are all 0 may be divided by
    its sum: that is NaN, and no 0.  Of other statements those instances go whose elements of temporaries nothing reads
    any more.  Domains stay convex, without quotients: what would be otherwise stays whole, and so does what uses the
    weights of the statements ``whole``.
    """
    zeros: dict[str, isl.Set] = {}
    for statement in scop.statements:
        if statement.name in whole or not _is_made_alone(scop, statement):
            continue
        found = _zeros(scop, statement, zeros)
        if found is not None:
            zeros[statement.target] = found
    if not zeros:
        return None
    kept = {s.name: s for s in scop.statements}
    for statement in scop.statements:
        if statement.kind == "update" and statement.reduction == "+" and _is_simple(statement):
            kept[statement.name] = _without(statement, _reading(statement, zeros))
    if all(kept[s.name] is s for s in scop.statements):
        return None
    for statement in reversed(scop.statements):
        if scop.storages[statement.target].role == "temporary" and _is_simple(statement):
            needed = _needed(scop, kept, statement)
            spare = statement.domain.subtract(statement.write.intersect_range(needed).domain())
            kept[statement.name] = _always(scop, _without(kept[statement.name], [spare]))
    statements = tuple(kept[s.name] for s in scop.statements)
    return Scop(scop.storages, statements, scop.sizes, scop.warnings, scop.around)


def _is_made_alone(scop: Scop, statement: ScopStatement) -> bool:
    """Whether what a statement computes for each element is all that is ever there."""
    alone = [s for s in scop.users[statement.target] if s.target == statement.target] == [statement]
    return alone and statement.kind == "assign" and _is_simple(statement)


def _zeros(scop: Scop, statement: ScopStatement, zeros: Mapping[str, isl.Set]) -> isl.Set | None:
    """The elements of weights that are 0, those of others being known; None where these are no weights, or none is."""

    def is_weight(factor: Expr) -> bool:
        if isinstance(factor, Read):
            return factor.tensor in zeros
        return isinstance(factor, Call) and factor.intrinsic == "exp"

    condition, value = unconditional(statement.value)
    hidden = statement.domain.subtract(statement.domain)
    if condition is not None and any(map(is_weight, _factors(value))):
        shown = _shown(scop, statement, condition)
        hidden = hidden if shown is None else statement.domain.subtract(shown)
    for instances in _reading(statement, zeros):
        hidden = hidden.union(instances)
    return None if hidden.is_empty() else hidden.apply(statement.write)


def _reading(statement: ScopStatement, zeros: Mapping[str, isl.Set]) -> list[isl.Set]:
    """The instances that have a 0 as a factor."""
    value = unconditional(statement.value)[1]
    return [
        _defined(statement, value, read_of(statement, factor.tensor).intersect_range(zeros[factor.tensor]).domain())
        for factor in _factors(value)
        if isinstance(factor, Read) and factor.tensor in zeros and factor.boundary is None
        if sum(isinstance(e, Read) and e.tensor == factor.tensor for e in walk(statement.value)) == 1
    ]


def _defined(statement: ScopStatement, value: Expr, hidden: isl.Set) -> isl.Set:
    """The instances with a 0 as a factor that are divided by what some others, without one, are divided by."""
    parts = [e for divisor in _divisors(value) for e in walk(divisor)]
    if not parts:
        return hidden
    space = statement.domain.get_space()
    alike = isl.Map.universe(space.map_from_set())
    for tensor in {e.tensor for e in parts if isinstance(e, Read)}:
        for read in (r for r in statement.reads if storage_of(r) == tensor):
            alike = alike.intersect(read.apply_range(read.reverse()))
    for index in {e.name for e in parts if isinstance(e, Index)}:
        place = statement.indices.index(index)
        alike = alike.equate(isl.dim_type.in_, place, isl.dim_type.out, place)
    return hidden.intersect(alike.intersect_range(statement.domain.subtract(hidden)).domain())


def _shown(scop: Scop, statement: ScopStatement, condition: Expr) -> isl.Set | None:
    """The instances where a condition holds; None where data or more than affine formulas tell."""
    named = statement.domain
    for position, index in enumerate(statement.indices):
        named = named.set_dim_name(isl.dim_type.set, position, index)
    found = to_set(condition, named.get_space(), scop.sizes)
    return None if found is None else found.intersect(named)


def _factors(value: Expr) -> Iterator[Expr]:
    """What a product is made of, quotients' dividends included."""
    match value:
        case Binary(op="*"):
            yield from _factors(value.lhs)
            yield from _factors(value.rhs)
        case Binary(op="/"):
            yield from _factors(value.lhs)
        case Unary(op="-"):
            yield from _factors(value.operand)
        case _:
            yield value


def _divisors(value: Expr) -> Iterator[Expr]:
    """What factors of a product are divided by."""
    match value:
        case Binary(op="*"):
            yield from _divisors(value.lhs)
            yield from _divisors(value.rhs)
        case Binary(op="/"):
            yield from _divisors(value.lhs)
            yield value.rhs
        case Unary(op="-"):
            yield from _divisors(value.operand)


def _is_simple(statement: ScopStatement) -> bool:
    """Whether data choose neither what is written nor what is read, which an instance may have to check."""
    chosen = any(map(depends_on_data, (x for e in walk(statement.value) if isinstance(e, Read) for x in e.subscripts)))
    return not (chosen or statement.scatters or statement.atomic or statement.stretch) and statement.tile_rank == 0


def _without(statement: ScopStatement, hidden: Iterable[isl.Set]) -> ScopStatement:
    """A statement without some instances; with all of them where loops over the others would need more than bounds."""
    domain = statement.domain
    for instances in hidden:
        domain = domain.subtract(instances)
    if domain.is_equal(statement.domain):
        return statement
    domain = domain.coalesce()
    parts = domain.get_basic_sets()
    if len(parts) != 1 or parts[0].dim(isl.dim_type.div):
        return statement
    write, *reads = (m.intersect_domain(domain) for m in (statement.write, *statement.reads))
    return replace(statement, domain=domain, write=write, reads=tuple(reads))


def _needed(scop: Scop, kept: Mapping[str, ScopStatement], statement: ScopStatement) -> isl.Set:
    """The elements of a temporary that statements read, or go on adding up."""
    space = statement.write.range().get_space()
    found = isl.Set.empty(space)
    for user in scop.users[statement.target]:
        own = kept[user.name]
        maps = own.reads if user.name == statement.name else own.all_reads
        for read in maps:
            if read.get_tuple_name(isl.dim_type.out) == statement.target:
                found = found.union(read.range())
    return found


def _always(scop: Scop, statement: ScopStatement) -> ScopStatement:
    """A statement without a condition that all of its instances fulfil."""
    condition, value = unconditional(statement.value)
    if condition is None:
        return statement
    shown = _shown(scop, statement, condition)
    return replace(statement, value=value) if shown is not None and shown.is_equal(statement.domain) else statement
