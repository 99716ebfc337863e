"""Loops over an index that data give a range, cut to that range: ``for (e = row[i]; e < row[i+1]; e++)``.

A plan runs over the whole range for which a statement is proved, and the statement asks in each instance whether its
index is within.  Where one loop alone moves the index, and the ends of the range stay as they are in it, that loop runs
from one end to the other instead, and nothing is left to ask.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, replace

from tcomp.grammar.tree.dataranges import inside_ranges, ranges_of
from tcomp.grammar.tree.function import Expr, Index, Read, Select, Within, walk
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
    variables,
)
from tcomp.loops.ir import walk as nodes_below
from tcomp.mapping.plan.values import Plan
from tcomp.model.scop import Scop, ScopStatement

_FIRST = "tc_from"
"""How the names of lower bounds begin that data give."""


@dataclass(frozen=True, slots=True)
class Narrowing:
    """A loop that ran from ``lower`` to ``upper``, and runs where an index is ``within`` a range that data give.

    The index is ``step`` times the iterator plus ``offset``, which is None where that is nothing.  ``call`` has the
    other indices.
    """

    call: Execute
    within: Within
    offset: LoopExpr | None
    step: int
    lower: LoopExpr
    upper: LoopExpr


@dataclass(frozen=True, slots=True)
class Narrowed:
    """Loops, and the plan that they are of, whose statements do not ask for ranges that their loops keep to.

    ``ranges`` has what the names stand for that are the lower bounds of some loops, which ``ends`` are the upper ones.
    """

    plan: Plan
    loops: LoopNode
    ranges: Mapping[str, Narrowing]

    def of(self, loop: For) -> Narrowing | None:
        """How a loop was narrowed; None for any other."""
        return self.ranges.get(loop.lower.name) if isinstance(loop.lower, Variable) else None


def runs_over_data(loop: For) -> bool:
    """Whether data give the bounds of a loop, which then depend on iterators that they do not show."""
    return isinstance(loop.lower, Variable) and loop.lower.name.startswith(_FIRST)


def end_of(first: str) -> str:
    """The name of the upper bound of a loop whose lower bound has another one."""
    return f"{first}_end"


def narrow(plan: Plan, loops: LoopNode, *, over_elements: bool = True) -> Narrowed:
    """The loops of a plan, those narrowed that can be; those over elements stay where they may be no loops later."""
    if not any(map(_narrowed_by, plan.scop.statements)):
        return Narrowed(plan, loops, {})
    coordinates = {
        name: frozenset(plan.scop.by_name[name].indices[p] for p in cluster.coordinates[name])
        for cluster in plan.clusters
        for name in cluster.statements
    }
    lanes = {phase.mark: phase.lanes for phase in plan.phases.values()}
    found = _Narrowing(plan.scop, {} if over_elements else coordinates, lanes)
    loops = found.node(loops, {})
    statements = tuple(
        s if s.name in found.left else replace(s, value=inside_ranges(s.value)) for s in plan.scop.statements
    )
    return Narrowed(replace(plan, scop=replace(plan.scop, statements=statements)), loops, found.ranges)


@dataclass(slots=True)
class _Narrowing:
    """Narrows loops; ``left`` are the statements that run somewhere where not all of their ranges narrow a loop."""

    scop: Scop
    kept: Mapping[str, frozenset[str]]
    """Indices of statements whose loops stay as they are."""

    lanes: Mapping[str, str]
    """The marks below loops that stand for threads, by those above them."""

    ranges: dict[str, Narrowing] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)

    def node(self, node: LoopNode, narrowed: Mapping[str, int], lanes: str = "") -> LoopNode:
        """A node, around which loops are ``narrowed`` to so many ranges of each statement.

        Down to the mark ``lanes`` loops stand for threads, which there are whatever data say.
        """
        match node:
            case Scope():
                inside = "" if node.name == lanes else lanes
                return replace(node, body=self.node(node.body, narrowed, self.lanes.get(node.name, inside)))
            case For():
                ways = {} if lanes else self._ways(node)
                below = {**narrowed, **{name: narrowed.get(name, 0) + 1 for name in ways}}
                loop = replace(node, body=self.node(node.body, below, lanes))
                return self._cut(loop, next(iter(ways.values()))) if ways else loop
            case Block():
                return Block(tuple(self.node(child, narrowed, lanes) for child in node.children))
            case If():
                otherwise = None if node.otherwise is None else self.node(node.otherwise, narrowed, lanes)
                return If(node.condition, self.node(node.then, narrowed, lanes), otherwise)
            case Execute():
                statement = self.scop.by_name[node.statement]
                if not _narrowed_by(statement) or narrowed.get(node.statement, 0) < len(_narrowed_by(statement)):
                    self.left.add(node.statement)
                return node
            case Let():
                return replace(node, body=self.node(node.body, narrowed, lanes))

    def _cut(self, loop: For, way: Narrowing) -> For:
        first = f"{_FIRST}{len(self.ranges)}"
        self.ranges[first] = way
        return replace(loop, lower=Variable(first), upper=Variable(end_of(first)))

    def _ways(self, loop: For) -> dict[str, Narrowing]:
        """How a loop is narrowed for the statements in it, by their names: all in the same way, or none."""
        calls = [node for node in nodes_below(loop.body) if isinstance(node, Execute)]
        if loop.step != 1 or not all(_narrowed_by(self.scop.by_name[call.statement]) for call in calls):
            return {}
        inside = {loop.iterator, *(node.iterator for node in nodes_below(loop.body) if isinstance(node, For))}
        found: dict[str, Narrowing] = {}
        keys: set[Hashable] = set()
        for call in calls:
            ranges = _narrowed_by(self.scop.by_name[call.statement])
            ways = [way for within in ranges if (way := self._way(loop, call, within, inside)) is not None]
            if not ways:
                return {}
            found[call.statement], key = ways[0]
            keys.add(key)
        return found if len(keys) == 1 else {}

    def _way(self, loop: For, call: Execute, within: Within, inside: set[str]) -> tuple[Narrowing, Hashable] | None:
        """How a loop is narrowed to a range, and what two that are narrowed alike have in common."""
        index = within.index
        arguments = dict(zip(self.scop.by_name[call.statement].indices, call.arguments, strict=True))
        if not isinstance(index, Index) or index.name not in arguments:
            return None
        if index.name in self.kept.get(call.statement, ()):
            return None
        place, own = Ranges({}).sum_of(arguments[index.name]), Variable(loop.iterator)
        step = place.terms.get(own, 0)
        rest = replace(place, terms={atom: times for atom, times in place.terms.items() if atom != own})
        used = {n: arguments[n] for n in _indices(within.lower) | _indices(within.upper) if n in arguments}
        moving = [*rest.terms, *used.values()]
        if step < 1 or any(variables(expr) & inside for expr in moving):
            return None
        offset = rest.expression() if rest.terms or rest.constant else None
        key = (within.lower, within.upper, offset, step, tuple(sorted((n, str(a)) for n, a in used.items())))
        return Narrowing(call, within, offset, step, loop.lower, loop.upper), key


def _narrowed_by(statement: ScopStatement) -> tuple[Within, ...]:
    """The ranges of a statement outside of which nothing need be done; none if it writes something else there."""
    ranges, value = ranges_of(statement.value), statement.value
    if statement.kind == "update":
        return ranges
    for _ in ranges:
        assert isinstance(value, Select)
        kept = value.otherwise
        if not (isinstance(kept, Read) and (kept.tensor, kept.subscripts) == (statement.target, statement.subscripts)):
            return ()
        value = value.then
    return ranges


def narrowed_bounds(way: Narrowing, lower: str, upper: str) -> tuple[LoopExpr, LoopExpr]:
    """The bounds of a loop that is narrowed to a range whose ends have these names."""
    ends: list[LoopExpr] = [Variable(lower), Variable(upper)]
    if way.offset is not None:
        ends = [Operation("-", (end, way.offset)) for end in ends]
    if way.step != 1:
        # The first step at or behind an end.
        ends = [Operation("floordiv", (Operation("+", (e, Number(way.step - 1))), Number(way.step))) for e in ends]
    return Operation("max", (way.lower, ends[0])), Operation("min", (way.upper, ends[1]))


def _indices(expr: Expr) -> set[str]:
    return {e.name for e in walk(expr) if isinstance(e, Index)}
