"""Pass: compute half of a product that is the same with its two indices exchanged, and copy the other half.

``C(i,j) +=! A(k,i) * A(k,j)`` has in ``C(j,i)`` what it has in ``C(i,j)``, to the last bit.  Its sums are computed
where ``j <= i``, and ``C(i,j) = C(j,i)`` where ``j > i``.  What goes on with them and is symmetric, too, as in
``A^T A / n``, is computed where they are, before half is copied; for what else makes outputs of them all sums are kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import islpy as isl

from tcomp.errors import LegalityError
from tcomp.grammar.tree.function import Binary, Expr, Index, Read, children, map_children, walk
from tcomp.grammar.tree.syntax import NOWHERE
from tcomp.mapping.fusion.merges import Pair
from tcomp.mapping.machines.fitted.cpufusion import MIRRORING
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.operations import indices_in, recognise_contraction
from tcomp.mapping.plan.schedule import scheduled_anew
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.tiles.apart import accumulated_apart, can_accumulate_apart, finish_of
from tcomp.mapping.tiles.footprint import box_volume
from tcomp.model.accesses import Frame, element_map, reads_of
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.unions import storage_of, union_map
from tcomp.values.operators import INT64

_COMMUTE = ("+", "*", "==", "!=")
"""Operators that give the same, to the last bit, with their operands exchanged."""

_ANY = Index("", INT64, NOWHERE)


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
    """Whether a sum of products is the same with two indices of its results exchanged, and who goes on with it allows.

    That is one statement, which says the same of both sums (``A^T A / n``), or statements that make outputs element by
    element, for which sums are kept in memory.
    """
    return _ended(scop, name, pair) is not None


def mirrored(scop: Scop, name: str, pair: Pair) -> Scop:
    """The program with half of a product that ``can_mirror``, and a copy that makes the other half of it.

    Raises LegalityError if an element would be written twice or never, or would have other steps.
    """
    ended = _ended(scop, name, pair)
    scop, end = (scop, scop.by_name[finish_of(name)]) if ended is None else ended
    statement = scop.by_name[name]
    copy = _copy(scop, end, pair)
    halves = {n: _half(scop.by_name[n], pair, "<=") for n in (f"{name}i", name, end.name)}
    _prove(statement, end, halves[end.name], copy, pair)
    statements: list[ScopStatement] = []
    for s in scop.statements:
        statements.append(halves.get(s.name, s))
        if s is end:
            statements.append(copy)
    return Scop(scop.storages, tuple(statements), scop.sizes, around=scop.around)


def _ended(scop: Scop, name: str, pair: Pair) -> tuple[Scop, ScopStatement] | None:
    """The program with one statement that ends each sum, and that statement; None if halves of it make no whole."""
    statement, start = scop.by_name.get(name), scop.by_name.get(f"{name}i")
    if statement is None or start is None or scop.around is not None or not start.plain or indices_in(start.value):
        return None
    if statement.kind != "update" or not statement.plain or statement.tile_rank or pair not in _pairs(statement):
        return None
    value = statement.value
    if not isinstance(value, Binary) or not statement.domain.is_box() or value.lhs != _exchanged(value.rhs, pair):
        return None
    if start.indices != statement.indices[: statement.coordinates]:
        return None
    users = [s for s in scop.users[statement.target] if s.name not in (name, start.name)]
    if len(users) == 1 and _ends(scop, statement, start, users[0], pair):
        return scop, users[0]
    if not can_accumulate_apart(scop, name) or not all(_hands_out(scop, u, start) for u in users):
        return None
    apart = accumulated_apart(scop, name)
    return apart, apart.by_name[finish_of(name)]


def _ends(scop: Scop, statement: ScopStatement, start: ScopStatement, end: ScopStatement, pair: Pair) -> bool:
    """Whether a statement stores something for each sum, once it is there, which is the same for the one across."""
    if end.kind not in ("assign", "finish") or not end.plain or end.tile_rank or end.indices != start.indices:
        return False
    others = [s for s in scop.users[end.target] if s is not end]
    if scop.storages[end.target].opened is not None or any(s.target == end.target for s in others):
        return False
    if end.kind == "assign" and scop.storages[end.target].role != "output":
        return False
    if not end.domain.reset_tuple_id().is_equal(start.domain.reset_tuple_id()):
        return False
    own = [e for e in walk(end.value) if isinstance(e, Read) and e.tensor in (statement.target, end.target)]
    if any(e.tensor == end.target or e.subscripts != start.subscripts for e in own):
        return False
    there = _without(end.value, statement.target)
    return _same(there, _exchanged(there, pair))


def _hands_out(scop: Scop, reader: ScopStatement, start: ScopStatement) -> bool:
    """Whether a statement makes elements of an output, as many as there are sums: then these, too, may be kept."""
    many = box_volume(reader.domain) >= box_volume(start.domain)
    return many and reader.kind == "assign" and scop.storages[reader.target].role == "output"


def _without(expr: Expr, sums: str) -> Expr:
    """An expression in which sums have no subscripts: those of the one across are the same."""
    if isinstance(expr, Read) and expr.tensor == sums:
        return replace(expr, subscripts=())
    return map_children(expr, lambda child: _without(child, sums))


def _same(one: Expr, other: Expr) -> bool:
    """Whether two expressions have the same value, as they stand or with operands of sums and products exchanged."""
    if one == other:
        return True
    if map_children(one, lambda child: _ANY) != map_children(other, lambda child: _ANY):
        return False
    mine, others = children(one), children(other)
    if all(map(_same, mine, others)):
        return True
    return isinstance(one, Binary) and one.op in _COMMUTE and all(map(_same, mine, reversed(others)))


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
