"""Pass: compute half of a product that is the same with its two indices exchanged, and copy the other half.

``C(i,j) +=! A(k,i) * A(k,j)`` has in ``C(j,i)`` what it has in ``C(i,j)``, to the last bit.  Its sums are computed
where ``j <= i``, and ``C(i,j) = C(j,i)`` where ``j > i``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import islpy as isl

from tcomp.errors import LegalityError
from tcomp.grammar.tree.function import Binary, Expr, Index, Read, map_children, walk
from tcomp.mapping.fusion.merges import Pair
from tcomp.mapping.machines.fitted.cpufusion import MIRRORING
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.operations import bare, indices_in, recognise_contraction
from tcomp.mapping.plan.schedule import scheduled_anew
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.tiles.apart import finish_of
from tcomp.model.accesses import Frame, element_map, reads_of
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.unions import storage_of, union_map


def mirror_products(plan: Plan, options: MappingOptions) -> Plan:
    """Compute half of each product of a tensor with itself that is large enough."""
    scop, done = plan.scop, list[tuple[str, str, str]]()
    for name in plan.scop.by_name:
        for pair in _pairs(scop.by_name[name]):
            if can_mirror(scop, name, pair) and _is_worth_it(scop.by_name[name], pair):
                scop, done = mirrored(scop, name, pair), [*done, (name, *pair)]
                break
    return plan if not done else replace(scheduled_anew(plan, scop), mirrored=tuple(done))


def can_mirror(scop: Scop, name: str, pair: Pair) -> bool:
    """Whether a sum of products is the same with two indices of its results exchanged, and so is what stores it."""
    statement, start, finish = (scop.by_name.get(n) for n in (name, f"{name}i", finish_of(name)))
    if statement is None or start is None or finish is None or scop.around is not None:
        return False
    if statement.kind != "update" or not statement.plain or statement.tile_rank or pair not in _pairs(statement):
        return False
    value, stored, own = statement.value, bare(finish.value), statement.indices[: statement.coordinates]
    if not isinstance(value, Binary) or not isinstance(stored, Read) or stored.tensor != statement.target:
        return False
    if not start.plain or not finish.plain or not own == start.indices == finish.indices:
        return False
    if [*indices_in(start.value)] or stored.subscripts != finish.subscripts or finish.kind != "finish":
        return False
    if scop.storages[finish.target].opened is not None or not statement.domain.is_box():
        return False
    if any(s.target == finish.target and s is not finish for s in scop.users[finish.target]):
        return False
    if {s.name for s in scop.users[statement.target]} != {name, start.name, finish.name}:
        return False
    return value.lhs == _exchanged(value.rhs, pair)


def mirrored(scop: Scop, name: str, pair: Pair) -> Scop:
    """The program with half of a product that ``can_mirror``, and a copy that makes the other half of it.

    Raises LegalityError if an element would be written twice or never, or would have other steps.
    """
    statement, finish = scop.by_name[name], scop.by_name[finish_of(name)]
    copy = _copy(scop, finish, pair)
    halves = {n: _half(scop.by_name[n], pair, "<=") for n in (f"{name}i", name, finish.name)}
    _prove(statement, finish, halves[finish.name], copy, pair)
    statements: list[ScopStatement] = []
    for s in scop.statements:
        statements.append(halves.get(s.name, s))
        if s is finish:
            statements.append(copy)
    return Scop(scop.storages, tuple(statements), scop.sizes, around=scop.around)


def _pairs(statement: ScopStatement) -> Iterator[Pair]:
    """Indices of results that run over as many values, one for each side of a contraction."""
    bundles = recognise_contraction(statement) if statement.kind == "update" else None
    if bundles is None or len(bundles.m) != 1 or len(bundles.n) != 1:
        return
    first, second = sorted((*bundles.m, *bundles.n), key=statement.indices.index)
    bounds = [_bounds(statement, statement.indices.index(i)) for i in (first, second)]
    if bounds[0] == bounds[1]:
        yield first, second


def _bounds(statement: ScopStatement, position: int) -> tuple[int, int]:
    return statement.domain.dim_min_val(position).to_python(), statement.domain.dim_max_val(position).to_python()


def _exchanged(expr: Expr, pair: Pair) -> Expr:
    """The expression with two indices exchanged."""
    if isinstance(expr, Index) and expr.name in pair:
        return replace(expr, name=pair[1 - pair.index(expr.name)])
    return map_children(expr, lambda child: _exchanged(child, pair))


def _order(statement: ScopStatement, pair: Pair, comparison: str) -> isl.Set:
    """Instances in which the second index compares with the first."""
    names = [f"i{d}" for d in range(len(statement.indices))]
    first, second = (names[statement.indices.index(i)] for i in pair)
    return isl.Set(f"{{ {statement.name}[{', '.join(names)}] : {second} {comparison} {first} }}")


def _half(statement: ScopStatement, pair: Pair, comparison: str) -> ScopStatement:
    domain = statement.domain.intersect(_order(statement, pair, comparison))
    write, *reads = (m.intersect_domain(domain) for m in (statement.write, *statement.reads))
    return replace(statement, domain=domain, write=write, reads=tuple(reads))


def _copy(scop: Scop, finish: ScopStatement, pair: Pair) -> ScopStatement:
    """What makes the half that is not computed of the one that is."""
    name = f"{finish.name}m"
    while name in scop.by_name:
        name += "m"
    half = _half(finish, pair, ">")
    domain = half.domain.set_tuple_name(name)
    dtype, span = scop.storages[finish.target].dtype, finish.value.span
    subscripts = tuple(_exchanged(s, pair) for s in finish.subscripts)
    value = Read(finish.target, subscripts, dtype, span)
    frame = Frame(domain, scop.sizes, {s.name: s.box for s in scop.storages.values()})
    write = element_map(frame, finish.target, finish.subscripts)
    return replace(
        half, name=name, kind="assign", domain=domain, value=value, write=write, reads=tuple(reads_of(frame, value))
    )


def _prove(
    statement: ScopStatement, finish: ScopStatement, half: ScopStatement, copy: ScopStatement, pair: Pair
) -> None:
    """Raise LegalityError unless halves make the whole, and what is copied sums the same products as what is not."""
    names = [f"i{d}" for d in range(len(statement.indices))]
    first, second = (statement.indices.index(i) for i in pair)
    others = [*names]
    others[first], others[second] = others[second], others[first]
    turn = isl.Map(f"{{ {statement.name}[{', '.join(names)}] -> {statement.name}[{', '.join(others)}] }}")
    reads = union_map([r for r in statement.reads if storage_of(r) != statement.target])
    same = bool(union_map([turn]).apply_range(reads).intersect_domain(reads.domain()).is_equal(reads))
    whole = half.write.range().union(copy.write.range()).is_equal(finish.write.range())
    once = half.write.range().is_disjoint(copy.write.range())
    (source,) = copy.reads
    element = turn.project_out(isl.dim_type.in_, statement.coordinates, statement.reduction_rank)
    element = element.project_out(isl.dim_type.out, statement.coordinates, statement.reduction_rank)
    element = element.set_tuple_name(isl.dim_type.in_, finish.target).set_tuple_name(isl.dim_type.out, finish.target)
    turned = copy.write.apply_range(element)
    if not (same and whole and once and source.is_equal(turned) and source.range().is_subset(half.write.range())):
        raise LegalityError(f"pass 'mirror' does not make each element of {finish.target} of its own sum")


def _is_worth_it(statement: ScopStatement, pair: Pair) -> bool:
    """Whether a product is large.  What is narrower is packed in groups of steps, which are not whole on diagonals."""
    narrow = any(isinstance(e, Read) and e.dtype.bits < 32 for e in walk(statement.value))
    if narrow or not statement.value.dtype.is_float:
        return False
    lengths = dict(zip(statement.indices, statement.extents, strict=True))
    bundles = recognise_contraction(statement)
    assert bundles is not None
    steps = math.prod(lengths[i] for i in bundles.k)
    return lengths[pair[0]] >= MIRRORING.least_side and steps >= MIRRORING.least_steps
