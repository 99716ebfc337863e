"""Pass: compute once what many instances of a statement would compute alike, ahead of it.

``C(m,n) += exp(A(m,k)) * B(k,n)`` becomes ``T(m,k) = exp(A(m,k))`` and ``C(m,n) += T(m,k) * B(k,n)``, which is a
contraction; ``Y(n,d) = X(n,d) * rsqrt(v(d))`` has its roots computed in a loop over ``d``.  A C compiler takes such
values out of its innermost loop at most, and only if it need not keep a vector of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.grammar.ranges.ranges import Box
from tcomp.grammar.tree.forms import to_form
from tcomp.grammar.tree.function import (
    Binary,
    Call,
    Cast,
    Constant,
    Expr,
    Index,
    Read,
    Unary,
    children,
    map_children,
    walk,
)
from tcomp.mapping.contraction.columns import columns_of
from tcomp.mapping.fusion.inlining import is_plain, operations, prove_the_same
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.machines.fitted.cpufusion import INLINING, OUTLINING
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.operations import Contraction, bare, indices_in, recognise_contraction
from tcomp.mapping.plan.schedule import scheduled_anew
from tcomp.mapping.plan.values import Cluster, Plan
from tcomp.mapping.tiles.sizes import lane_position
from tcomp.mapping.tiles.strides import access_stride
from tcomp.model.accesses import Frame, element_map, prune_reads, reads_of, reads_with_subscripts
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.storages import Storage, contiguous_strides
from tcomp.model.terms.unions import extents
from tcomp.values.operators import INT64


def outline_invariants(machine: Machine, plan: Plan, options: MappingOptions) -> Plan:
    """Take operands of products out of sums, and expensive invariants out of any statement."""
    scop = plan.scop
    done: list[tuple[str, int]] = []
    for name in plan.scop.by_name:
        trial, parts = _operands_ahead(scop, name)
        if parts and recognise_contraction(trial.by_name[name]) is not None:
            scop, done = trial, done + parts
        while (place := _scattered(machine, scop, scop.by_name[name])) is not None:
            scop, done = outlined(scop, name, place), [*done, (name, place)]
        while (place := _expensive(scop, scop.by_name[name])) is not None:
            scop, done = outlined(scop, name, place), [*done, (name, place)]
    return plan if not done else replace(scheduled_anew(plan, scop), outlined=tuple(done))


def operands_ahead(scop: Scop, name: str) -> Scop:
    """The program in which factors of a sum of products that are no elements are, where each of them is used often."""
    return _operands_ahead(scop, name)[0]


def _operands_ahead(scop: Scop, name: str) -> tuple[Scop, list[tuple[str, int]]]:
    trial, parts = scop, list[tuple[str, int]]()
    for part in _operands(scop, scop.by_name[name]):
        found = place_of(trial.by_name[name], part)
        trial, parts = outlined(trial, name, found), [*parts, (name, found)]
    return trial, parts


def can_outline(scop: Scop, name: str, place: int, order: Sequence[str] = ()) -> bool:
    """Whether what stands at a place of the value of a statement can be computed ahead of it.

    ``order`` names all indices that it depends on, if they are not to be in the order of the statement.
    """
    parts = [*walk(scop.by_name[name].value)]
    return place < len(parts) and _Outline.of(scop, scop.by_name[name], parts[place], order) is not None


def outlined(scop: Scop, name: str, place: int, order: Sequence[str] = ()) -> Scop:
    """The program in which a statement reads what stood at a place of its value, counted as ``walk`` does.

    ``order`` is as for ``can_outline``.  Raises LegalityError if it would read anything else than before.
    """
    statement = scop.by_name[name]
    part = [*walk(statement.value)][place]
    outline = _Outline.of(scop, statement, part, order)
    assert outline is not None
    producer, storage = outline.producer(scop), outline.storage(scop)
    boxes = {s.name: s.box for s in (*scop.storages.values(), storage)}
    read = Read(storage.name, outline.subscripts, part.dtype, part.span)
    value = _with(statement.value, part, read)
    reads = reads_with_subscripts(Frame(statement.domain, scop.sizes, boxes), value, statement.subscripts)
    reader = replace(statement, value=value, reads=reads)
    prove_the_same("outline", producer, reader, statement)
    statements = [reader if s is statement else s for s in scop.statements]
    first = scop.by_name.get(f"{name}i", statement) if statement.kind == "update" else statement
    statements.insert(scop.statements.index(first), producer)
    return Scop({**scop.storages, storage.name: storage}, tuple(statements), scop.sizes, around=scop.around)


@dataclass(frozen=True, slots=True, eq=False)
class _Outline:
    """What is taken out of a statement: a ``part`` of its value.

    Its values have ``indices``, which in the statement are ``subscripts``, in a ``domain``.
    """

    statement: ScopStatement
    part: Expr
    indices: tuple[str, ...]
    subscripts: tuple[Expr, ...]
    domain: isl.Set

    @classmethod
    def of(cls, scop: Scop, statement: ScopStatement, part: Expr, order: Sequence[str] = ()) -> _Outline | None:
        """The outline of a part, its indices in an ``order`` if there is one; None where there is none."""
        reads = [e for e in walk(part) if isinstance(e, Read)]
        inside = _unconditional(statement.value)
        narrow = part.dtype.bits < 32 and not (order and isinstance(part, Read))
        if not reads or not any(part is e for e in inside) or narrow or statement.tile_rank:
            return None
        if statement.kind not in ("assign", "update") or not all(map(_is_known, reads)):
            return None
        if any(r.tensor == statement.target for r in reads) or statement.domain.is_empty():
            return None
        instances = _of_instances(statement, part)
        if order:
            own = {s.name: s for s in instances if isinstance(s, Index)}
            if not isinstance(part, Read) or sorted(order) != sorted(own):
                return None
            instances = tuple(own[i] for i in order)
        elements = _of_elements(statement, part, reads)
        if isinstance(part, Read):
            plain = order or all(isinstance(s, Index) for s in part.subscripts)
            choices = [instances if plain else _in_order(statement, elements)]
        else:
            choices = [elements, instances]
        for subscripts in choices:
            if subscripts is None:
                continue
            domain = _image(scop, statement, subscripts)
            if domain is not None:
                return cls(statement, part, _names(statement, subscripts), subscripts, domain)
        return None

    @property
    def extents(self) -> tuple[int, ...]:
        """How many values each of the ``indices`` has."""
        return extents(self.domain)

    def is_worth_it(self, scop: Scop) -> bool:
        """Whether many instances of the statement use each value, and all values do not take too much memory."""
        values = math.prod(self.extents)
        room = max(OUTLINING.least_room, scop.tensor_bytes)
        return (
            math.prod(self.statement.extents) >= OUTLINING.least_reuse * values
            and values * self.part.dtype.itemsize <= room
        )

    def storage(self, scop: Scop) -> Storage:
        """Where the values are kept."""
        name = f"{self.statement.name}_value"
        while name in scop.storages:
            name += "_"
        low = tuple(self.domain.dim_min_val(d).to_python() for d in range(len(self.indices)))
        box = Box(low, self.extents)
        return Storage(name, self.part.dtype, box, "temporary", contiguous_strides(box.extent))

    def producer(self, scop: Scop) -> ScopStatement:
        """The statement that computes them."""
        name = f"{self.statement.name}v"
        while name in scop.by_name:
            name += "v"
        storage = self.storage(scop)
        places = dict(zip(self.subscripts, self.indices, strict=True))
        value = _renamed(self.part, places)
        domain = self.domain.set_tuple_name(name)
        for position, index in enumerate(self.indices):
            domain = domain.set_dim_name(isl.dim_type.set, position, index)
        boxes = {s.name: s.box for s in (*scop.storages.values(), storage)}
        frame = Frame(domain, scop.sizes, boxes)
        subscripts = tuple(Index(i, INT64, self.part.span) for i in self.indices)
        write = element_map(frame, storage.name, subscripts)
        temporaries = {s.name for s in scop.storages.values() if s.role == "temporary"}
        value, reads = prune_reads(value, tuple(reads_of(frame, value)), temporaries)
        return ScopStatement(
            name, "assign", domain, self.indices, storage.name, subscripts, value, None, write, reads,
            self.statement.origin,
        )  # fmt: skip


def _is_known(read: Read) -> bool:
    """Whether data choose neither what is read nor what lies outside the tensor."""
    outside = None if read.boundary is None else read.boundary.value
    return is_plain(replace(read, boundary=None)) and isinstance(outside, Constant | None)


def _of_elements(statement: ScopStatement, part: Expr, reads: list[Read]) -> tuple[Expr, ...] | None:
    """The subscripts of what is read, one for each element, if no index is in two of them or beside them."""
    own = frozenset(statement.indices)
    found = [s for s in dict.fromkeys(s for r in reads for s in r.subscripts) if indices_in(s) & own]
    named = [i for s in found for i in indices_in(s) & own]
    if len(named) != len({*named}) or (_outside(part) & own) - {s.name for s in found if isinstance(s, Index)}:
        return None
    return tuple(found)


def _in_order(statement: ScopStatement, subscripts: tuple[Expr, ...] | None) -> tuple[Expr, ...] | None:
    """Subscripts in the order in which a statement has the first index of each: steps last."""
    if subscripts is None:
        return None
    own = statement.indices
    return tuple(sorted(subscripts, key=lambda s: min(own.index(i) for i in indices_in(s) & {*own})))


def _outside(expr: Expr) -> frozenset[str]:
    """The indices that are values in an expression, not in its subscripts."""
    match expr:
        case Index():
            return frozenset({expr.name})
        case Read():
            return frozenset()
        case _:
            return frozenset().union(*(_outside(c) for c in children(expr)))


def _of_instances(statement: ScopStatement, part: Expr) -> tuple[Expr, ...]:
    """The indices that a part depends on."""
    inside = {e.name: e for e in walk(part) if isinstance(e, Index)}
    return tuple(inside[i] for i in statement.indices if i in inside)


def _image(scop: Scop, statement: ScopStatement, subscripts: tuple[Expr, ...]) -> isl.Set | None:
    """The values that subscripts take; None where they are no box, or not affine."""
    if any(to_form(s, scop.sizes) is None for s in subscripts):
        return None
    boxes = {"values": Box((0,) * len(subscripts), (1,) * len(subscripts))}
    image = element_map(Frame(statement.domain, scop.sizes, boxes), "values", subscripts).range().coalesce()
    return image if image.is_box() else None


def _names(statement: ScopStatement, subscripts: tuple[Expr, ...]) -> tuple[str, ...]:
    """Names of indices: those that the statement has for itself, where subscripts are no more than that."""
    taken = set(statement.indices)
    found = []
    for number, s in enumerate(subscripts):
        name = s.name if isinstance(s, Index) else f"e{number}"
        while not isinstance(s, Index) and name in taken:
            name += "_"
        found.append(name)
    return tuple(found)


def _renamed(expr: Expr, places: Mapping[Expr, str]) -> Expr:
    """The expression with indices instead of the subscripts that they are."""
    if expr in places:
        return Index(places[expr], expr.dtype, expr.span)
    return map_children(expr, lambda child: _renamed(child, places))


def _with(expr: Expr, part: Expr, read: Read) -> Expr:
    """The expression with a read wherever it has a part, but for what is evaluated on a condition."""
    if expr == part:
        return read
    if not isinstance(expr, _UNCONDITIONAL) or (isinstance(expr, Binary) and expr.op in _SHORT_CUTS):
        return expr
    return map_children(expr, lambda child: _with(child, part, read))


_UNCONDITIONAL, _SHORT_CUTS = (Binary, Call, Cast, Unary), ("&&", "||")
"""Expressions all of whose operands are evaluated, but for these operators."""


def _unconditional(expr: Expr) -> Iterator[Expr]:
    """The expression and what of it is evaluated whatever the data are, parents first; not what is in subscripts."""
    yield expr
    for child in _operands_of(expr):
        yield from _unconditional(child)


def _operands_of(expr: Expr) -> tuple[Expr, ...]:
    match expr:
        case Binary():
            return () if expr.op in _SHORT_CUTS else (expr.lhs, expr.rhs)
        case Call():
            return expr.arguments
        case Cast() | Unary():
            return (expr.operand,)
        case _:
            return ()


def _operands(scop: Scop, statement: ScopStatement) -> list[Expr]:
    """The factors of a sum of products that are no elements, if each of them is used often."""
    value = statement.value
    if statement.reduction != "+" or not isinstance(value, Binary) or value.op != "*":
        return []
    factors = [bare(side) for side in (value.lhs, value.rhs)]
    found: list[Expr] = [f for f in dict.fromkeys(factors) if not isinstance(f, Read)]
    outlines = [_Outline.of(scop, statement, f) for f in found]
    return found if all(o is not None and o.is_worth_it(scop) for o in outlines) else []


def _scattered(machine: Machine, scop: Scop, statement: ScopStatement) -> int | None:
    """The place of an operand of a contraction that is worth a copy in which its steps are neighbours, or None.

    It may be the one that the columns share: a register tile reads as many lines of it at each step as it has rows,
    and packed for each tile it would be copied again for each few columns.  It may be that of the columns where only
    batches are neighbours: the panel of each would touch all lines.
    """
    bundles, value = recognise_contraction(statement), statement.value
    if bundles is None or not isinstance(value, Binary) or not statement.plain:
        return None
    results = statement.indices[: statement.coordinates]
    written = {i: access_stride(scop, statement.target, statement.subscripts, i, scop.sizes) for i in results}
    chosen = columns_of(scop, alone(scop, statement), machine.vector_bytes)
    columns = {i for i, stride in written.items() if stride == 1} if chosen is None else {results[chosen.position]}
    reads = [r for r in (value.lhs, value.rhs) if isinstance(r, Read)]
    rows = [r for r in reads if not columns & indices_in(r)]
    if len(rows) != 1 or not columns:
        return None
    for read in (*rows, *(r for r in reads if r is not rows[0])):
        if _is_worth_turning(machine, scop, statement, bundles, read, is_row=read is rows[0]):
            return place_of(statement, read)
    return None


def _is_worth_turning(
    machine: Machine, scop: Scop, statement: ScopStatement, bundles: Contraction, read: Read, *, is_row: bool
) -> bool:
    storage = scop.storages[read.tensor]
    outline = None if storage.role != "input" or read.boundary is not None else _Outline.of(scop, statement, read)
    if outline is None:
        return False
    extents = dict(zip(statement.indices, statement.extents, strict=True))
    strides = {i: access_stride(scop, read.tensor, read.subscripts, i, scop.sizes) or 0 for i in indices_in(read)}
    inside, least, room = {*bundles.m, *bundles.n, *bundles.k}, OUTLINING.least_shared_alone, machine.nearest_cache
    along = [s for s, stride in zip(read.subscripts, storage.strides, strict=True) if stride == 1]
    values = dict(zip(outline.subscripts, outline.extents, strict=True))
    if any(values.get(s, 1) >= OUTLINING.neighbours and inside & indices_in(s) for s in along):
        if not is_row:
            return False
        least, room = OUTLINING.least_shared, machine.middle_cache
    shared = math.prod(e for i, e in extents.items() if i not in indices_in(read))
    return shared >= least and storage.bytes > room and not _is_one_run(bundles.k, strides, extents)


def alone(scop: Scop, statement: ScopStatement) -> Cluster:
    """The cluster that an update makes with what starts and finishes its elements."""
    names = tuple(n for n in (f"{statement.name}i", statement.name, f"{statement.name}f") if n in scop.by_name)
    return Cluster(0, names, dict.fromkeys(names, tuple(range(statement.coordinates))))


def _is_one_run(indices: Sequence[str], strides: Mapping[str, int], extents: Mapping[str, int]) -> bool:
    """Whether all values of some indices together read one run of memory."""
    length = 1
    for index in sorted((i for i in indices if i in strides), key=lambda i: strides[i]):
        if extents[index] > 1 and strides[index] != length:
            return False
        length *= extents[index]
    return True


def place_of(statement: ScopStatement, part: Expr) -> int:
    """Where a part stands in the value of a statement, counted as ``walk`` does."""
    known = [e for e in _unconditional(statement.value) if e == part]
    return next(n for n, e in enumerate(walk(statement.value)) if e is known[0])


def _expensive(scop: Scop, statement: ScopStatement) -> int | None:
    """The place of the largest part of a value that is expensive and used often; None where there is none.

    What does not change along the vectors of an assignment is left to the C compiler.
    """
    lanes = lane_position(scop, statement) if statement.kind == "assign" else None
    for part in _unconditional(statement.value):
        if operations(part) < INLINING.expensive or (
            lanes is not None and statement.indices[lanes] not in indices_in(part)
        ):
            continue
        outline = _Outline.of(scop, statement, part)
        if outline is not None and outline.is_worth_it(scop):
            return place_of(statement, part)
    return None
