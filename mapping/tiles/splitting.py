"""A long reduction in two steps, for blocks (``gpu/parts.py``) or threads (``cpu/sharing.py``) to share.

``acc(i) += f(i, k)`` becomes ``parts(p, i) += f(i, k)`` for the steps ``k`` of part ``p``, and
``acc(i) += parts(p, i)``: split-K of matrix products, and the two kernels of a full sum.  The parts are kept in global
memory, so the second reduction runs in a kernel of its own.  This reassociates the reduction, as every schedule may.
A block accumulates its part in a storage of its own, as whole reductions do, and stores it when done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.errors import LegalityError
from tcomp.grammar.ranges.ranges import Box
from tcomp.grammar.tree.function import Binary, Constant, Expr, Index, Read, with_indices
from tcomp.mapping.plan.schedule import scheduled_anew
from tcomp.mapping.plan.values import Cluster, Plan
from tcomp.mapping.tiles.sizes import main_statement
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.storages import Storage, contiguous_strides
from tcomp.values.operators import INT64, REDUCTIONS

_OF_PARTS = "p"
"""What the names of the statements of parts have behind that of the statement that was split."""

PART_MULTIPLE = 32
"""Parts begin at multiples of so many steps where they can: at whole vectors, and between tiles of steps."""


def split_clusters(plan: Plan, parts_of: Callable[[Scop, Cluster], int], apart: bool = False) -> Plan:
    """Split the reduction of each cluster into as many parts as a model says; 1 leaves it whole.

    Each part is accumulated ``apart`` and then stored, or where it is kept.
    """
    scop = plan.scop
    stored: set[str] = set()
    for cluster in plan.clusters:
        parts = parts_of(plan.scop, cluster)
        if parts > 1:
            scop, storage = split(scop, main_statement(plan.scop, cluster), parts, apart)
            stored.add(storage)
    if not stored:
        return plan
    return replace(scheduled_anew(plan, scop), stored=plan.stored | stored)


@dataclass(frozen=True, slots=True, eq=False)
class _Split:
    """The update that is split, the index whose steps are shared, the ``first`` of them and how many a part has.

    The steps of each part have numbers from 0.
    """

    statement: ScopStatement
    position: int
    steps: int
    first: int

    def whole(self, name: str) -> isl.Map:
        """Instance of a part, which is in front, to the instance of the statement that it is, without divisions."""
        names = [f"i{d}" for d in range(1 + len(self.statement.indices))]
        steps = names[1:]
        own = steps[self.position]
        steps[self.position] = f"{own} + {self.first} + {self.steps}*i0"
        text = (
            f"{{ {name}[{', '.join(names)}] -> {self.statement.name}[{', '.join(steps)}] : 0 <= {own} < {self.steps} }}"
        )
        return isl.Map(text).intersect_range(self.statement.domain)

    def value(self, part: str) -> Expr:
        """What a step of a part contributes, where ``part`` is the index of the part."""
        return self._renumbered(self.statement.value, part)

    def reported(self, part: str) -> tuple[tuple[str, Expr], ...]:
        """The indices of the program in those of a step of a part."""
        return tuple((index, self._renumbered(value, part)) for index, value in self.statement.reported)

    def _renumbered(self, expr: Expr, part: str) -> Expr:
        span, index = self.statement.value.span, self.statement.indices[self.position]
        before = Binary("*", Index(part, INT64, span), Constant(self.steps, INT64, span), INT64, span)
        start = Binary("+", before, Constant(self.first, INT64, span), INT64, span)
        return with_indices(expr, {index: Binary("+", start, Index(index, INT64, span), INT64, span)})


def split(
    scop: Scop, statement: ScopStatement, parts: int, apart: bool = False, multiple: int = PART_MULTIPLE
) -> tuple[Scop, str]:
    """The program with a reduction in two steps, and the storage of what the first one leaves.

    Parts have a ``multiple`` of steps, where that makes no fewer.
    """
    sizes = statement.extents
    positions = range(statement.coordinates, len(statement.indices))
    position = max(positions, key=lambda p: sizes[p])
    first = statement.domain.dim_min_val(position).to_python()
    own = _Split(statement, position, steps_of_a_part(sizes[position], parts, multiple), first)
    accumulator = scop.storages[statement.target]
    count = -(-sizes[position] // own.steps)
    box = Box((0, *accumulator.box.origin), (count, *accumulator.box.extent))
    name = f"{statement.target}_parts"
    while name in scop.storages:
        name += "_"
    strides = contiguous_strides(box.extent)
    parted = Storage(name, accumulator.dtype, box, "temporary", strides)
    kept = replace(parted, name=f"{name}_acc") if apart else parted
    while kept is not parted and kept.name in scop.storages:
        kept = replace(kept, name=f"{kept.name}_")
    start, update, combine = _start(own, kept), _update(own, kept), _combine(own, parted)
    finish = [] if kept is parted else [_finish(own, kept, parted)]
    _prove(own, update, finish, combine)
    statements: list[ScopStatement] = []
    for s in scop.statements:
        if s.name == statement.name:
            statements.append(combine)
        elif s.name == f"{statement.name}i":
            statements += [start, update, *finish, s]
        else:
            statements.append(s)
    return Scop(
        {**scop.storages, kept.name: kept, name: parted}, tuple(statements), scop.sizes, around=scop.around
    ), name


def steps_of_a_part(steps: int, parts: int, multiple: int = PART_MULTIPLE) -> int:
    """Steps that each part but the last has: whole tiles of steps where that makes no fewer parts."""
    even = -(-steps // parts)
    whole = even + -even % multiple
    return whole if -(-steps // whole) == -(-steps // even) else even


def is_part(statement: ScopStatement) -> bool:
    """Whether a statement belongs to the parts of a split reduction: then its first index is the number of the part."""
    return statement.name.rstrip("if").endswith(_OF_PARTS)


def split_statement(scop: Scop, storage: str) -> str:
    """The statement of which a storage keeps the parts."""
    return next(s.name for s in scop.statements if any(r.get_tuple_name(isl.dim_type.out) == storage for r in s.reads))


def accumulates_apart(scop: Scop, storage: str) -> bool:
    """Whether the parts that a storage keeps are accumulated somewhere else."""
    return any(s.target == storage and s.kind == "finish" for s in scop.statements)


def _prefix(own: _Split) -> isl.Map:
    """Instance to the element of the parts that it goes to, without a name."""
    rank = 1 + len(own.statement.indices)
    names = [f"i{d}" for d in range(rank)]
    kept = names[: 1 + own.statement.coordinates]
    element = isl.Map(f"{{ part[{', '.join(names)}] -> [{', '.join(kept)}] }}")
    return own.whole("part").reverse().apply_range(element)


def _indices(own: _Split) -> tuple[str, ...]:
    part = "part"
    while part in own.statement.indices:
        part += "_"
    return (part, *own.statement.indices)


def _start(own: _Split, parts: Storage) -> ScopStatement:
    s = own.statement
    assert s.reduction is not None
    name = f"{s.name}{_OF_PARTS}i"
    domain = _prefix(own).range().set_tuple_name(name)
    indices = _indices(own)[: 1 + s.coordinates]
    span = s.value.span
    identity = Constant(REDUCTIONS[s.reduction].identity(parts.dtype), parts.dtype, span)
    subscripts = tuple(Index(i, INT64, span) for i in indices)
    return ScopStatement(
        name,
        "init",
        domain,
        indices,
        parts.name,
        subscripts,
        identity,
        None,
        _elements(domain, parts, len(indices)),
        (),
        s.origin,
    )


def _update(own: _Split, parts: Storage) -> ScopStatement:
    s = own.statement
    name = f"{s.name}{_OF_PARTS}"
    whole = own.whole(name)
    domain = whole.domain()
    indices = _indices(own)
    reads = tuple(whole.apply_range(r) for r in s.reads)
    subscripts = (Index(indices[0], INT64, s.value.span), *s.subscripts)
    write = _elements(domain, parts, 1 + s.coordinates)
    return ScopStatement(
        name,
        "update",
        domain,
        indices,
        parts.name,
        subscripts,
        own.value(indices[0]),
        s.reduction,
        write,
        reads,
        s.origin,
        renumbered=own.reported(indices[0]),
    )


def _finish(own: _Split, kept: Storage, parts: Storage) -> ScopStatement:
    """What stores the sums of the steps of a part."""
    s = own.statement
    name, span = f"{s.name}{_OF_PARTS}f", s.value.span
    domain = _prefix(own).range().set_tuple_name(name)
    indices = _indices(own)[: 1 + s.coordinates]
    subscripts = tuple(Index(i, INT64, span) for i in indices)
    value = Read(kept.name, subscripts, kept.dtype, span)
    write, read = (_elements(domain, storage, len(indices)) for storage in (parts, kept))
    return ScopStatement(name, "finish", domain, indices, parts.name, subscripts, value, None, write, (read,), s.origin)


def _combine(own: _Split, parts: Storage) -> ScopStatement:
    s = own.statement
    rank = 1 + s.coordinates
    names = [f"i{d}" for d in range(rank)]
    turn = isl.Map(f"{{ [{', '.join(names)}] -> {s.name}[{', '.join([*names[1:], names[0]])}] }}")
    domain = _prefix(own).range().apply(turn)
    indices = (*s.indices[: s.coordinates], _indices(own)[0])
    span = s.value.span
    value = Read(parts.name, tuple(Index(i, INT64, span) for i in (indices[-1], *indices[:-1])), parts.dtype, span)
    back = turn.reverse().intersect_domain(domain).set_tuple_name(isl.dim_type.out, parts.name)
    target = ", ".join(names[: s.coordinates])
    write = isl.Map(f"{{ {s.name}[{', '.join(names)}] -> {s.target}[{target}] }}").intersect_domain(domain)
    subscripts = tuple(Index(i, INT64, span) for i in indices[:-1])
    return ScopStatement(
        s.name, "update", domain, indices, s.target, subscripts, value, s.reduction, write, (back,), s.origin
    )


def _elements(domain: isl.Set, storage: Storage, rank: int) -> isl.Map:
    """Instance to the element that its leading indices name."""
    names = [f"i{d}" for d in range(domain.dim(isl.dim_type.set))]
    text = f"{{ {domain.get_tuple_name()}[{', '.join(names)}] -> {storage.name}[{', '.join(names[:rank])}] }}"
    return isl.Map(text).intersect_domain(domain)


def _prove(own: _Split, update: ScopStatement, finish: list[ScopStatement], combine: ScopStatement) -> None:
    """Raise LegalityError unless every step goes to one part of its element, which is combined into it once."""
    once = own.whole(update.name)
    through = once.reverse().apply_range(update.write)
    for step in (*finish, combine):
        through = through.apply_range(step.reads[0].reverse()).apply_range(step.write)
    every = bool(once.is_injective()) and bool(once.range().is_equal(own.statement.domain))
    if not (every and through.is_equal(own.statement.write) and combine.reads[0].is_injective()):
        raise LegalityError(f"pass 'split' does not reduce every step of {own.statement.name} once")
