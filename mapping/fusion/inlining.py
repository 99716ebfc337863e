"""Pass: compute what is cheap where it is read, if memory is what takes the time.

``T(h,w) = (I(h,w) + I(h,w+1)) / 2`` and ``O(h,w) = T(h,w) + T(h+1,w)`` become one statement that reads four elements of
``I``.  Without the intermediate there is one loop that reads and writes memory all the time; with it, the loops of a
tile read for a while, and write for a while.  Halide's schedules call this inlining (Ragan-Kelley et al., PLDI 2013).
"""

from __future__ import annotations

from dataclasses import replace

from tcomp.errors import LegalityError
from tcomp.grammar.tree.function import (
    Binary,
    Call,
    Cast,
    Constant,
    Expr,
    Index,
    Read,
    Size,
    Unary,
    children,
    depends_on_data,
    map_children,
    walk,
    with_indices,
)
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.machines.fitted.cpufusion import INLINING
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.schedule import scheduled_anew
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.tiles.sizes import lane_position
from tcomp.mapping.tiles.strides import access_stride, strides_along
from tcomp.model.accesses import Frame, prune_reads, reads_of
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.unions import storage_of, union_map

EXTREMA = ("fmax", "fmin", "relu", "abs", "fabs")
"""Functions that are a comparison or two."""

_ARITHMETIC = ("+", "-", "*", "/", "min", "max")


def inline_producers(machine: Machine, plan: Plan, options: MappingOptions) -> Plan:
    """Put cheap statements into those that read what they write in several places."""
    scop = plan.scop
    if options.fusion_strategy == "min" or options.recompute_limit <= 1 or not machine.overflows(scop.tensor_bytes):
        return plan
    names: list[str] = []
    for name in scop.by_name:
        if scop.by_name[name].target not in options.of_parts and can_inline(scop, name):
            trial = inlined(scop, name)
            if _pays(scop, trial, scop.by_name[name]):
                scop = trial
                names.append(name)
    return plan if not names else replace(scheduled_anew(plan, scop), inlined=tuple(names))


def can_inline(scop: Scop, name: str) -> bool:
    """Whether the statement ``name`` can be put into all statements that read what it writes, and be left out."""
    producer = scop.by_name[name]
    storage, place = scop.storages[producer.target], scop.statements.index(producer)
    users = scop.users[storage.name]
    readers = [s for s in users if s is not producer]
    changed = {s.target for s in scop.statements[place:]}
    return (
        producer.kind == "assign"
        and storage.role == "temporary"
        and storage.dtype.bits >= 32
        and producer.plain
        and producer.coordinates == len(producer.subscripts)
        and _is_arithmetic(producer.value)
        and not changed & {storage_of(r) for r in producer.reads}
        and bool(readers)
        and all(s.kind == "assign" and s.target != storage.name for s in readers)
        and all(is_plain(read) for s in readers for read in _reads_of(storage.name, s.value))
        and not any(_is_chosen_by(storage.name, s.value) for s in readers)
    )


def inlined(scop: Scop, name: str) -> Scop:
    """The program without a statement that ``can_inline``.  Raises LegalityError if it would read anything else."""
    producer = scop.by_name[name]
    boxes = {s.name: s.box for s in scop.storages.values()}
    temporaries = {s.name for s in scop.storages.values() if s.role == "temporary"}
    statements = []
    for reader in scop.statements:
        if reader is producer:
            continue
        if reader in scop.users[producer.target]:
            value = _without(reader.value, producer)
            reads = tuple(reads_of(Frame(reader.domain, scop.sizes, boxes), value))
            value, reads = prune_reads(value, reads, temporaries)
            changed = replace(reader, value=value, reads=reads)
            prove_the_same("inline", producer, reader, changed)
            reader = changed
        statements.append(reader)
    storages = {key: s for key, s in scop.storages.items() if key != producer.target}
    return Scop(storages, tuple(statements), scop.sizes, around=scop.around)


def _pays(scop: Scop, trial: Scop, producer: ScopStatement) -> bool:
    """Whether some statement reads several elements, and all that read any stay cheap and run along memory."""
    several = False
    for reader in scop.users[producer.target]:
        if reader is producer:
            continue
        changed = trial.by_name[reader.name]
        lanes = lane_position(trial, changed)
        if lanes is None or operations(changed.value) > INLINING.most_operations:
            return False
        index = changed.indices[lanes]
        read = [r.subscripts for r in _reads_of(producer.target, reader.value)]
        if any(access_stride(scop, producer.target, s, index, scop.sizes) != 1 for s in read):
            return False
        if not {*strides_along(trial, changed, index)} <= {0, 1}:
            return False
        several = several or any(s != read[0] for s in read)
    return several


def operations(expr: Expr) -> int:
    """What an element costs: a read or an operation counts one, subscripts nothing."""
    match expr:
        case Read():
            return 1
        case Constant() | Index() | Size() | Cast(operand=Constant() | Index() | Size()):
            return 0
        case Call():
            own = INLINING.extremum if expr.intrinsic in EXTREMA else INLINING.function
        case Binary(op="/"):
            own = INLINING.division
        case _:
            own = 1
    return own + sum(operations(child) for child in children(expr))


def _is_arithmetic(expr: Expr) -> bool:
    """Whether an expression is made of arithmetic on elements that no data choose, which nothing is reported of."""
    match expr:
        case Read():
            return is_plain(expr)
        case Binary():
            known = expr.op in _ARITHMETIC and (expr.op != "/" or expr.dtype.is_float)
        case Call():
            known = expr.intrinsic in EXTREMA
        case _:
            known = isinstance(expr, Constant | Index | Size | Unary | Cast)
    return known and all(_is_arithmetic(child) for child in children(expr))


def is_plain(read: Read) -> bool:
    """Whether a read has neither a boundary nor subscripts that data choose."""
    return read.boundary is None and not any(depends_on_data(s) for s in read.subscripts)


def _reads_of(storage: str, expr: Expr) -> list[Read]:
    """The reads of a storage in an expression."""
    return [e for e in walk(expr) if isinstance(e, Read) and e.tensor == storage]


def _is_chosen_by(storage: str, expr: Expr) -> bool:
    """Whether elements of a storage are in subscripts, or outside of boundaries."""
    reads = (e for e in walk(expr) if isinstance(e, Read))
    return any(_reads_of(storage, child) for read in reads for child in children(read))


def _without(expr: Expr, producer: ScopStatement) -> Expr:
    """The expression with what the producer computes instead of the reads of it."""
    if isinstance(expr, Read) and expr.tensor == producer.target:
        return with_indices(producer.value, dict(zip(producer.indices, expr.subscripts, strict=True)))
    return map_children(expr, lambda child: _without(child, producer))


def prove_the_same(step: str, producer: ScopStatement, reader: ScopStatement, alone: ScopStatement) -> None:
    """Raise LegalityError unless a statement ``alone`` reads what a reader and the producer, for it, read."""
    wanted = [r for r in reader.reads if storage_of(r) != producer.target]
    for read in reader.reads:
        if storage_of(read) == producer.target:
            source = read.apply_range(producer.write.reverse())
            wanted += [source.apply_range(r) for r in producer.reads]
    if not union_map(wanted).is_equal(union_map(list(alone.reads))):
        raise LegalityError(f"pass '{step}' lets {reader.name} read other elements than before")
