"""Pass: seek the place of an extremum in one part of a long row only.

``I(n) argmax=! A(n,k)`` is ``best(n) max=! A(n,k)`` and the least ``k`` where ``A(n,k) == best(n)``, which reads a row
again that has left the caches.  So ``best`` is reduced in parts, ``parts(p,n)``; the first part that has it is found
among these, and its steps alone are asked: a range that data give.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import islpy as isl

from tcomp.grammar.tree.function import Binary, Cast, Constant, Expr, Index, Read, Select, Within
from tcomp.mapping.machines.fitted.cpusharing import SEEKING
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.schedule import scheduled_anew
from tcomp.mapping.plan.values import Plan, Sought
from tcomp.mapping.tiles.splitting import split, steps_of_a_part
from tcomp.model.accesses import Frame, element_map, reads_with_subscripts
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.storages import Storage, contiguous_strides
from tcomp.values.operators import BOOL, INT32, INT64, REDUCTIONS


@dataclass(frozen=True, slots=True, eq=False)
class Search:
    """An update ``place`` that seeks where what the update ``best`` reduces to stands, of ``extremum``, its element."""

    best: ScopStatement
    place: ScopStatement
    extremum: Read

    @property
    def length(self) -> int:
        """Steps of a row."""
        return self.place.extents[-1]


def seek_in_parts(plan: Plan, options: MappingOptions) -> Plan:
    """Let searches through long rows ask one part each."""
    if options.tile_sizes is not None or plan.scop.around is not None:
        return plan
    scop, done, stored = plan.scop, list[Sought](), set[str]()
    for statement in plan.scop.statements:
        search = search_of(scop, statement.name)
        if search is not None and search.length >= SEEKING.least_parts * SEEKING.steps:
            parts = -(-search.length // SEEKING.steps)
            scop, storage = sought(scop, search, parts)
            done.append(Sought(statement.name, parts, storage))
            stored.add(storage)
    if not done:
        return plan
    return replace(scheduled_anew(plan, scop), sought=tuple(done), stored=plan.stored | stored)


def search_of(scop: Scop, name: str) -> Search | None:
    """The search that a statement is; None for any other, and where its extremum is used up or has other steps."""
    place, value = scop.by_name[name], scop.by_name[name].value
    if place.kind != "update" or place.reduction != "min" or not place.plain or place.reduction_rank != 1:
        return None
    if not isinstance(value, Select) or place.tile_rank or not isinstance(value.otherwise, Constant):
        return None
    step = value.then.operand if isinstance(value.then, Cast) else value.then
    if not (isinstance(step, Index) and step.name == place.indices[-1] and value.then.dtype == INT32):
        return None
    if value.otherwise.value != REDUCTIONS["min"].identity(INT32):
        return None
    match value.condition:
        case Binary("||", Binary("==", found, Read() as extremum), Binary("!=", left, right)) if found == left == right:
            best = next((s for s in scop.statements if s.kind == "update" and s.target == extremum.tensor), None)
            if best is not None and _goes_before(best, place, found, extremum):
                return Search(best, place, extremum)
    return None


def _goes_before(best: ScopStatement, place: ScopStatement, value: Expr, extremum: Read) -> bool:
    """Whether an update reduces, of the same steps, what a search compares with its own result."""
    if best.reduction not in ("min", "max") or not best.plain or best.tile_rank or best.indices != place.indices:
        return False
    own = tuple(s.name if isinstance(s, Index) else "" for s in extremum.subscripts)
    same = best.domain.reset_tuple_id().is_equal(place.domain.reset_tuple_id())
    return best.value == value and own == place.indices[:-1] and bool(same)


def sought(scop: Scop, search: Search, parts: int) -> tuple[Scop, str]:
    """The program in which a search asks one of so many parts, and the storage of what parts reduce to."""
    scop, storage = split(scop, search.best, parts)
    combine, kept = scop.by_name[search.best.name], scop.storages[storage]
    own = scop.storages[search.extremum.tensor].box
    name = f"{search.place.target}_part"
    while name in scop.storages:
        name += "_"
    where = Storage(name, INT32, own, "temporary", contiguous_strides(own.extent))
    scop = replace(scop, storages={**scop.storages, name: where})
    steps = steps_of_a_part(search.length, parts)
    statements: list[ScopStatement] = []
    for statement in scop.statements:
        if statement.name == f"{search.place.name}i":
            statements += [_start(scop, search, statement, where), _first_part(scop, search, combine, kept, where)]
        is_place = statement.name == search.place.name
        statements.append(_within(scop, search, where, steps, kept) if is_place else statement)
    return replace(scop, statements=tuple(statements)), storage


def _start(scop: Scop, search: Search, start: ScopStatement, where: Storage) -> ScopStatement:
    """What the part of a row is before any is looked at."""
    name, indices = f"{search.place.name}bi", search.place.indices[:-1]
    made = replace(start, name=name, domain=start.domain.set_tuple_name(name), indices=indices)
    return _made(scop, made, where, start.value)


def _first_part(
    scop: Scop, search: Search, combine: ScopStatement, kept: Storage, where: Storage
) -> ScopStatement:  # fmt: skip
    """The first part that reduces to the extremum, or to NaN."""
    span, part = search.place.value.span, combine.indices[-1]
    found = combine.value
    same = Binary("==", found, search.extremum, BOOL, span)
    here = Binary("||", same, Binary("!=", found, found, BOOL, span), BOOL, span)
    nowhere = Constant(REDUCTIONS["min"].identity(INT32), INT32, span)
    value = Select(here, Cast(Index(part, INT64, span), INT32, span), nowhere, INT32, span)
    name = f"{search.place.name}b"
    update = replace(
        combine, name=name, domain=combine.domain.set_tuple_name(name), reduction="min", origin=search.place.origin
    )
    return _made(scop, update, where, value)


def _made(scop: Scop, like: ScopStatement, where: Storage, value: Expr) -> ScopStatement:
    """A statement with the indices of another one, of whose rows each has an element."""
    span = value.span
    rank = len(where.box.extent)
    subscripts = tuple(Index(i, INT64, span) for i in like.indices[:rank])
    domain = like.domain
    for position, index in enumerate(like.indices):
        domain = domain.set_dim_name(isl.dim_type.set, position, index)
    frame = Frame(domain, scop.sizes, {name: s.box for name, s in scop.storages.items()})
    return replace(
        like,
        domain=domain,
        target=where.name,
        subscripts=subscripts,
        value=value,
        write=element_map(frame, where.name, subscripts),
        reads=reads_with_subscripts(frame, value, subscripts),
    )


def _within(scop: Scop, search: Search, where: Storage, steps: int, kept: Storage) -> ScopStatement:
    """The search in the part that was found.  What stands there otherwise is none of its steps, but in the row."""
    place = search.place
    span, last = place.value.span, kept.box.extent[0] - 1
    first = place.domain.dim_min_val(len(place.indices) - 1).to_python()
    rows = tuple(Index(i, INT64, span) for i in place.indices[:-1])

    def of(operator: str, left: Expr, right: int) -> Expr:
        return Binary(operator, left, Constant(right, INT64, span), INT64, span)

    part: Expr = Cast(Read(where.name, rows, INT32, span), INT64, span)
    lower = of("+", of("*", of("max", of("min", part, last), 0), steps), first)
    step = Index(place.indices[-1], INT64, span)
    begun, ended = Binary("<=", lower, step, BOOL, span), Binary("<", step, of("+", lower, steps), BOOL, span)
    assert isinstance(place.value, Select)
    value = Select(Within("&&", begun, ended, BOOL, span), place.value, place.value.otherwise, INT32, span)
    frame = Frame(place.domain, scop.sizes, {name: s.box for name, s in scop.storages.items()})
    return replace(place, value=value, reads=reads_with_subscripts(frame, value, place.subscripts))
