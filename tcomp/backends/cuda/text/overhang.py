"""Threads that also compute what a torn tile lacks, so that no element of a contraction needs a test.

A tile that reaches over the end of a problem has elements that do not exist.  Threads keep theirs in registers and read
operands from shared memory, where there is room for all of a tile, and zeros for what lies outside the tensors: each
may compute all of its elements, of which those that exist are stored.  Tests of every element instead made threads of
a warp go different ways, and loops of every step: products of 1000 x 1000 took three times as long.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import islpy as isl

from tcomp.backends.cuda.text.lanes import lanes_of
from tcomp.backends.cuda.text.memory import registers_of
from tcomp.backends.cuda.text.spelling import Fetched
from tcomp.backends.cuda.text.statements import speller
from tcomp.backends.cuda.text.writer import KernelWriter
from tcomp.grammar.tree.function import Index, Read, depends_on_data
from tcomp.grammar.tree.function import walk as walk_expression
from tcomp.loops.codegen import affine_expressions
from tcomp.loops.indexing import Ranges
from tcomp.loops.ir import (
    Block,
    Execute,
    For,
    If,
    Let,
    LoopExpr,
    LoopNode,
    Operation,
    Scope,
    conjunction,
    flattened,
    substitute_all,
    variables,
    walk,
)
from tcomp.mapping.plan.operations import recognise_contraction
from tcomp.mapping.plan.values import Phase
from tcomp.model.scop import ScopStatement

WHOLE = ", whole tiles"
"""What the comment on such a phase says."""


def overhung(writer: KernelWriter, node: Scope, phase: Phase, ranges: Ranges) -> Scope | None:
    """The phase with whole tiles for its threads, where it may have them and has not already; else None."""
    instances = [n for n in walk(node.body) if isinstance(n, Execute)]
    names = {n.statement for n in instances}
    if len(names) != 1 or phase.mark in writer.plan.operations:
        return None
    statement = writer.statements[names.pop()]
    if not _may_compute_more(writer, statement, phase):
        return None
    whole = _Whole(_resolved(node.body, writer, phase, statement))
    try:
        body = whole.node(node.body)
    except _KeepTestsError:
        return None
    changed = replace(node, body=body)
    if body == node.body or not _fills(writer, whole, phase) or not _has_room(writer, changed, phase, whole, ranges):
        return None
    return changed


def _may_compute_more(writer: KernelWriter, statement: ScopStatement, phase: Phase) -> bool:
    """Whether nobody sees it if the statement runs on elements that do not exist: they are in registers.

    Their coordinates must name them: plans by hand may deal out the steps of a reduction as if they did.
    """
    buffer = writer.plan.buffers.get(statement.target)
    deals = writer.plan.dealt[phase.cluster].deals
    positions = writer.plan.clusters[phase.cluster].coordinates[statement.name]
    dealt = [p for p, deal in zip(positions, deals, strict=True) if deal.extent > 1]
    if buffer is None or registers_of(buffer) == 0 or not _is_box(statement.domain, dealt):
        return False
    named = {s.name for s in statement.subscripts if isinstance(s, Index)}
    if any(statement.indices[p] not in named for p in dealt):
        return False
    reads = [e for e in walk_expression(statement.value) if isinstance(e, Read)]
    if statement.kind == "init":
        return not reads
    if any(depends_on_data(s) for r in reads for s in r.subscripts):
        return False  # what does not exist has no subscript that is inside
    fetched = [r for c in writer.plan.copies if c.mark == phase.mark and c.statement == statement.name for r in c.reads]
    return recognise_contraction(statement) is not None and all(r in fetched for r in reads)


def _is_box(domain: isl.Set, positions: Sequence[int]) -> bool:
    """Whether a domain has all points of a box along some dimensions, wherever it has one along the others."""
    others = own = domain
    for p in range(domain.dim(isl.dim_type.set)):
        if p in positions:
            others = others.eliminate(isl.dim_type.set, p, 1)
        else:
            own = own.eliminate(isl.dim_type.set, p, 1)
    box = own
    for p in reversed(range(domain.dim(isl.dim_type.set))):
        if p not in positions:
            box = box.project_out(isl.dim_type.set, p, 1)
    return bool(box.is_box() and own.intersect(others).is_equal(domain))


class _KeepTestsError(Exception):
    """What the tests of a phase are about is not its elements alone."""


@dataclass(frozen=True, slots=True)
class _Coordinates:
    """Which of a phase's iterators are about elements: for each coordinate of the tile the iterators that give it."""

    of: tuple[frozenset[str], ...]
    others: frozenset[str]

    @property
    def all(self) -> frozenset[str]:
        return frozenset().union(*self.of)


def _resolved(node: LoopNode, writer: KernelWriter, phase: Phase, statement: ScopStatement) -> _Coordinates:
    own = {n.iterator for n in walk(node) if isinstance(n, For)}
    positions = writer.plan.clusters[phase.cluster].coordinates[statement.name]
    of = [set[str]() for _ in positions]
    others: set[str] = set()
    for arguments in _arguments(node, {}):
        for position, argument in enumerate(arguments):
            names = own & variables(argument)
            if position in positions:
                of[positions.index(position)] |= names
            else:
                others |= names
    return _Coordinates(tuple(map(frozenset, of)), frozenset(others))


def _arguments(node: LoopNode, known: dict[str, LoopExpr]) -> Iterator[tuple[LoopExpr, ...]]:
    """The arguments of every instance, without the iterators of loops of one iteration."""
    match node:
        case Block():
            for child in node.children:
                yield from _arguments(child, known)
        case Let():
            yield from _arguments(node.body, known | {node.iterator: substitute_all(node.value, known)})
        case For() | Scope():
            yield from _arguments(node.body, known)
        case If():
            yield from _arguments(node.then, known)
            if node.otherwise is not None:
                yield from _arguments(node.otherwise, known)
        case Execute():
            yield tuple(substitute_all(a, known) for a in node.arguments)


@dataclass(frozen=True, slots=True)
class _Whole:
    """Gives loops over elements the trips that they have in a full tile; raises _KeepTestsError where that is wrong."""

    coordinates: _Coordinates
    trips: dict[str, int] = field(default_factory=dict)
    values: dict[str, LoopExpr] = field(default_factory=dict)

    def node(self, node: LoopNode) -> LoopNode:
        match node:
            case Block():
                return Block(tuple(self.node(c) for c in node.children))
            case For() if node.iterator in self.coordinates.all:
                lower, upper, trips = _full(node)
                if self.trips.setdefault(node.iterator, trips) != trips:
                    raise _KeepTestsError
                return replace(node, lower=lower, upper=upper, body=self.node(node.body))
            case For():
                if self.about_elements(node.lower) or self.about_elements(node.upper):
                    raise _KeepTestsError
                return replace(node, body=self.node(node.body))
            case Let():
                self.values[node.iterator] = substitute_all(node.value, self.values)
                return replace(node, body=self.node(node.body))
            case Scope():
                return replace(node, body=self.node(node.body))
            case If():
                return self._branch(node)
            case Execute():
                return node

    def _branch(self, node: If) -> LoopNode:
        then = self.node(node.then)
        otherwise = None if node.otherwise is None else self.node(node.otherwise)
        if otherwise is not None and _instances(then) != _instances(otherwise):
            raise _KeepTestsError  # two halves of the work, not two versions of it
        tests = flattened(node.condition, "&&")
        kept = [t for t in tests if not self.about_elements(t)]
        if any(self.about_elements(t) and self._about_others(t) for t in tests):
            raise _KeepTestsError
        return If(conjunction(kept), then, otherwise) if kept else then

    def about_elements(self, expr: LoopExpr) -> bool:
        """Whether the iterators of elements have a part in an expression."""
        return bool(variables(substitute_all(expr, self.values)) & self.coordinates.all)

    def _about_others(self, expr: LoopExpr) -> bool:
        return bool(variables(substitute_all(expr, self.values)) & self.coordinates.others)


def _full(loop: For) -> tuple[LoopExpr, LoopExpr, int]:
    """Bounds whose distance is a number, and that number: of several the least."""
    unknown = Ranges({})
    found = []
    for lower in flattened(loop.lower, "max"):
        for upper in flattened(loop.upper, "min"):
            bounds = unknown.bounds(Operation("-", (upper, lower)))
            if bounds is not None and bounds[0] == bounds[1] and bounds[0] > 0:
                found.append((bounds[0], lower, upper))
    if not found or loop.step != 1:
        raise _KeepTestsError
    trips, lower, upper = min(found, key=lambda f: f[0])
    return lower, upper, trips


def _instances(node: LoopNode) -> list[Execute]:
    return [n for n in walk(node) if isinstance(n, Execute)]


def _fills(writer: KernelWriter, whole: _Whole, phase: Phase) -> bool:
    """Whether the trips of the loops are those of a full tile, each of one coordinate."""
    coordinates = whole.coordinates
    if sum(map(len, coordinates.of)) != len(coordinates.all) or coordinates.all & coordinates.others:
        return False
    deals = writer.plan.dealt[phase.cluster].deals
    counts = [math.prod(whole.trips.get(i, 0) for i in own) for own in coordinates.of]
    return counts == [d.extent for d in deals] == [d.threads * d.elements for d in deals]


def _has_room(writer: KernelWriter, node: Scope, phase: Phase, whole: _Whole, ranges: Ranges) -> bool:
    """Whether everything that the phase touches is in its threads' registers and in what they fetched.

    Where subscripts are not about elements, they are those of instances that there are.
    """
    for name, _, extent in lanes_of(node.body, phase, writer.shape).identifiers:
        ranges = ranges.knowing(name, 0, extent - 1)
    copies = [c for c in writer.plan.copies if c.mark == phase.mark]
    fetched = [Fetched(c, "", affine_expressions(c.lower, node.around)) for c in copies]
    return all(_inside(writer, n, whole, inner, fetched) for n, inner in _with_ranges(node.body, ranges))


def _with_ranges(node: LoopNode, ranges: Ranges) -> Iterator[tuple[Execute, Ranges]]:
    """Every instance with what is known of the iterators around it."""
    match node:
        case Block():
            for child in node.children:
                yield from _with_ranges(child, ranges)
        case For() | Let():
            lower, upper = (node.lower, node.upper) if isinstance(node, For) else (node.value, node.value)
            low, high = ranges.bounds(lower), ranges.bounds(upper)
            if low is not None and high is not None and node.iterator not in ranges.known:
                last = high[1] - 1 if isinstance(node, For) else high[1]
                ranges = ranges.knowing(node.iterator, low[0], max(low[0], last))
            yield from _with_ranges(node.body, ranges)
        case Scope():
            yield from _with_ranges(node.body, ranges)
        case If():
            yield from _with_ranges(node.then, ranges)
            if node.otherwise is not None:
                yield from _with_ranges(node.otherwise, ranges)
        case Execute():
            yield node, ranges


def _inside(writer: KernelWriter, node: Execute, whole: _Whole, ranges: Ranges, fetched: list[Fetched]) -> bool:
    own, statement = speller(writer, node, ranges), writer.statements[node.statement]
    local = writer.locals.get(statement.target)
    if local is None:
        return False
    places = own.places(local, statement.subscripts)
    extents = list(local.buffer.shape)
    for read in (e for e in walk_expression(statement.value) if isinstance(e, Read)):
        copy = next(f for f in fetched if read in f.copy.reads and f.copy.statement == statement.name)
        places += own.distances(read.subscripts, copy.corner)
        extents += copy.copy.shape
    found = [(ranges.bounds(p), e) for p, e in zip(places, extents, strict=True) if whole.about_elements(p)]
    return all(bounds is not None and bounds[0] >= 0 and bounds[1] < extent for bounds, extent in found)
