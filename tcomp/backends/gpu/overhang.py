"""Threads that also compute what a torn tile lacks, so that no element of a contraction needs a test.

A tile that reaches over the end of a problem has elements that do not exist.  Threads keep theirs in registers and read
operands from shared memory, where there is room for all of a tile, and zeros for what lies outside the tensors: each
may compute all of its elements, of which those that exist are stored.  Tests of every element instead made threads of
a warp go different ways, and loops of every step: products of 1000 x 1000 took three times as long.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import islpy as isl

from tcomp.backends.gpu.lanes import lanes_of
from tcomp.backends.gpu.memory import registers_of
from tcomp.backends.gpu.statements import speller
from tcomp.backends.gpu.words.spelling import Fetched
from tcomp.backends.gpu.writer import KernelWriter
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
    Number,
    Operation,
    Scope,
    Variable,
    conjunction,
    flattened,
    substitute_all,
    substitute_below,
    variables,
    walk,
)
from tcomp.mapping.gpu.turns.fetching import copies_at
from tcomp.mapping.gpu.wholesteps import may_run_beyond
from tcomp.mapping.plan.deals import Deal, Phase
from tcomp.mapping.plan.operations import recognise_contraction
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
    coordinates = _resolved(node.body, writer, phase, statement)
    whole = _Whole(coordinates, _digits(node.body, coordinates, writer.plan.dealt[phase.cluster].deals))
    steps = _torn_steps(node.body, statement, coordinates)
    if steps and may_run_beyond(writer.plan, phase, statement, list(steps.values())):
        found = _made_whole(
            writer, node, phase, replace(whole, steps={i: size for i, (_, size) in steps.items()}), ranges
        )
        if found is not None:
            return found
    return _made_whole(writer, node, phase, replace(whole, values={}), ranges)


def _made_whole(writer: KernelWriter, node: Scope, phase: Phase, whole: _Whole, ranges: Ranges) -> Scope | None:
    """The phase in whole tiles; None where it has them already, or nothing shows that it may."""
    try:
        body = whole.node(node.body)
    except _KeepTestsError:
        return None
    changed = replace(node, body=body)
    if body == node.body or not _fills(writer, whole, body, phase):
        return None
    return changed if _has_room(writer, changed, phase, whole, ranges) else None


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
    fetched = [r for c in copies_at(writer.plan, phase.mark) if c.statement == statement.name for r in c.reads]
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


def _digits(node: LoopNode, coordinates: _Coordinates, deals: Sequence[Deal]) -> dict[str, tuple[int, int]]:
    """For each iterator about elements its trips in a full tile and what one of them is in the coordinate.

    Loops over the elements of a coordinate are those of its deal, in this order: threads, chunks, neighbours.
    """
    found: dict[str, tuple[int, int]] = {}
    for own, deal in zip(coordinates.of, deals, strict=True):
        loops = dict.fromkeys(n.iterator for n in walk(node) if isinstance(n, For) and n.iterator in own)
        apart = deal.threads * deal.vector
        if deal.dimension is None:
            digits = [(deal.extent, 1)]
        else:
            digits = [(deal.threads, deal.vector), (deal.chunks, apart), (deal.vector, 1)]
        kept = [digit for digit in digits if digit[0] > 1]
        if len(kept) != len(loops):
            return {}
        found |= dict(zip(loops, kept, strict=True))
    return found


def _torn_steps(
    node: LoopNode, statement: ScopStatement, coordinates: _Coordinates
) -> dict[str, tuple[int, int]]:  # fmt: skip
    """The iterators of steps whose number is less in some tiles: which index each is, and its number in a full one."""
    arguments = list(_arguments(node, {}))
    loops: dict[str, list[For]] = {}
    for loop in (n for n in walk(node) if isinstance(n, For) and n.iterator in coordinates.others):
        loops.setdefault(loop.iterator, []).append(loop)
    found: dict[str, tuple[int, int]] = {}
    for iterator, own in loops.items():
        places = {p for instance in arguments for p, a in enumerate(instance) if iterator in variables(a)}
        exact = all(instance[p] == Variable(iterator) for instance in arguments for p in places)
        sizes = [_trips(loop) for loop in own]
        size = max(sizes)
        if len(places) == 1 and exact and size and min(sizes) < size and all(_begins_at(loop, size) for loop in own):
            found[iterator] = (places.pop(), size)
    return found


def _trips(loop: For) -> int:
    """The number of trips of a loop; 0 where it is not the same in all tiles."""
    bounds = Ranges({}).bounds(Operation("-", (loop.upper, loop.lower)))
    return bounds[0] if bounds is not None and bounds[0] == bounds[1] and loop.step == 1 else 0


def _begins_at(loop: For, size: int) -> bool:
    """Whether a loop begins at a multiple of a number."""
    start = Ranges({}).sum_of(loop.lower)
    begins = all(n % size == 0 for n in (start.constant, *start.terms.values()))
    return begins and loop.step == 1


@dataclass(frozen=True, slots=True)
class _Whole:
    """Gives loops over elements the trips that they have in a full tile; raises _KeepTestsError where that is wrong.

    ``digits`` has those trips, and how far elements of one trip and the next are apart.  Loops over ``steps`` run to
    the end of each tile of steps.
    """

    coordinates: _Coordinates
    digits: dict[str, tuple[int, int]]
    steps: Mapping[str, int] = field(default_factory=dict)
    values: dict[str, LoopExpr] = field(default_factory=dict)

    def node(self, node: LoopNode) -> LoopNode:
        match node:
            case Block():
                return Block(tuple(self.node(c) for c in node.children))
            case For() if node.iterator in self.coordinates.all:
                if node.iterator not in self.digits or node.step != 1:
                    raise _KeepTestsError
                trips, _ = self.digits[node.iterator]
                return replace(node, lower=Number(0), upper=Number(trips), body=self.node(node.body))
            case For() if node.iterator in self.steps:
                upper = Operation("+", (node.lower, Number(self.steps[node.iterator])))
                return replace(node, upper=upper, body=self.node(node.body))
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
        return If(conjunction(kept), then, otherwise) if kept and then != otherwise else then

    def about_elements(self, expr: LoopExpr) -> bool:
        """Whether the iterators of elements have a part in an expression."""
        return bool(variables(substitute_all(expr, self.values)) & self.coordinates.all)

    def runs_beyond(self, expr: LoopExpr) -> bool:
        """Whether an expression may have values that it has in no instance that there is."""
        return bool(variables(substitute_all(expr, self.values)) & (self.coordinates.all | set(self.steps)))

    def _about_others(self, expr: LoopExpr) -> bool:
        return bool(variables(substitute_all(expr, self.values)) & self.coordinates.others)


def _instances(node: LoopNode) -> list[Execute]:
    return [n for n in walk(node) if isinstance(n, Execute)]


def _fills(writer: KernelWriter, whole: _Whole, node: LoopNode, phase: Phase) -> bool:
    """Whether every place of a full tile is one element of one thread: its digits are those of the deal."""
    coordinates = whole.coordinates
    if sum(map(len, coordinates.of)) != len(coordinates.all) or coordinates.all & coordinates.others:
        return False
    cluster = writer.plan.clusters[phase.cluster]
    positions = cluster.coordinates[next(n.statement for n in walk(node) if isinstance(n, Execute))]
    for arguments in _arguments(node, {}):
        for position, own in zip(positions, coordinates.of, strict=True):
            terms = Ranges({}).sum_of(arguments[position]).terms
            if any(terms.get(Variable(i)) != whole.digits[i][1] for i in own):
                return False
            if any(variables(term) & own and not isinstance(term, Variable) for term in terms):
                return False
    return True


def _has_room(writer: KernelWriter, node: Scope, phase: Phase, whole: _Whole, ranges: Ranges) -> bool:
    """Whether everything that the phase touches is in its threads' registers and in what they fetched.

    Where subscripts are not about elements, they are those of instances that there are.
    """
    for name, _, extent in lanes_of(writer.dialect, node.body, phase, writer.shape).identifiers:
        ranges = ranges.knowing(name, 0, extent - 1)
    copies = copies_at(writer.plan, phase.mark)
    around = {c.mark: node.around[: c.lower.dim(isl.dim_type.in_)] for c in copies}
    fetched = [Fetched(c, "", affine_expressions(c.lower, around[c.mark])) for c in copies]
    body = _from_their_first(node.body, whole.steps)
    return all(_inside(writer, n, whole, inner, fetched) for n, inner in _with_ranges(body, ranges))


def _from_their_first(node: LoopNode, steps: Mapping[str, int]) -> LoopNode:
    """The same with loops over steps that count from 0, so that places in what was fetched are numbers."""
    match node:
        case Block():
            return Block(tuple(_from_their_first(c, steps) for c in node.children))
        case For() if node.iterator in steps:
            shifted = Operation("+", (node.lower, Variable(node.iterator)))
            body = substitute_below(_from_their_first(node.body, steps), node.iterator, shifted)
            return replace(node, lower=Number(0), upper=Number(steps[node.iterator]), body=body)
        case For() | Let() | Scope():
            return replace(node, body=_from_their_first(node.body, steps))
        case If():
            otherwise = None if node.otherwise is None else _from_their_first(node.otherwise, steps)
            return replace(node, then=_from_their_first(node.then, steps), otherwise=otherwise)
        case Execute():
            return node


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
    found = [(ranges.bounds(p), e) for p, e in zip(places, extents, strict=True) if whole.runs_beyond(p)]
    return all(bounds is not None and bounds[0] >= 0 and bounds[1] < extent for bounds, extent in found)
