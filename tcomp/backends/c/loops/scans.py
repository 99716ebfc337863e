"""The ``scan`` tile operation on the CPU: a value that grows from one element to the next.

Around the loop over elements there are the value and the next step; at each element the steps that are new are
combined with the value, and the value with the element.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tcomp.backends.dialect import C_VALUE_TYPES, combine, constant_text, load, store
from tcomp.backends.spelling import Speller, loop_text
from tcomp.loops.indexing import constant_extent
from tcomp.loops.ir import (
    Block,
    Execute,
    For,
    If,
    LoopExpr,
    LoopNode,
    Scope,
    Variable,
    flattened,
    substitute,
    variables,
    walk,
)
from tcomp.mapping.plan.operations import TileOperation
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.tiles.scans import is_backwards, is_independent, scanned_position
from tcomp.model.scop import ScopStatement
from tcomp.values.operators import REDUCTIONS, DType

VALUE, NEXT = "tc_running", "tc_next"
"""The C names of what is combined so far, and of the first step that is not; going down, of the last that is."""


@dataclass(frozen=True, slots=True)
class Scan:
    """A loop over elements, at ``mark`` in which a loop over ``steps`` runs ``call``s of an update.

    Elements go ``backwards`` where each needs what those behind it need, and steps ``down`` where all elements have the
    last one in common, not the first one.  Where each element is a ``row`` of them, they have a value each.
    """

    mark: str
    steps: For
    call: Execute
    backwards: bool
    down: bool
    row: For | None = None


def scan_below(loop: For, plan: Plan) -> Scan | None:
    """The scan along a loop; None if there is none, or if its steps are not counted alike for all elements, or the loop
    goes from row to row, as in a plan that is skewed.

    The mark of a scan may also be around what starts its elements.
    """
    if loop.step != 1:
        return None
    for scope, operation, row in _operations(loop, plan):
        steps = scope.body
        if operation.kind != "scan" or not isinstance(steps, For) or not isinstance(steps.body, Execute):
            continue
        if [n.statement for n in walk(loop.body) if isinstance(n, Execute)].count(operation.statement) != 1:
            return None
        update = plan.scop.by_name[operation.statement]
        position = scanned_position(plan.scop, update)
        arguments = steps.body.arguments
        if position is None or arguments[position] != Variable(loop.iterator) or steps.step != 1:
            continue
        if row is not None and row.iterator in variables(steps.lower) | variables(steps.upper):
            continue
        backwards = is_backwards(plan.scop, update, position)
        if backwards and not _runs_backwards(loop, plan):
            return None
        down = loop.iterator in variables(steps.lower)
        fixed = variables(steps.upper if down else steps.lower) | variables(arguments[-1])
        fixed = fixed.union(*(variables(a) for place, a in enumerate(arguments[:-1]) if place != position))
        if loop.iterator not in fixed:
            return Scan(scope.name, steps, steps.body, backwards, down, row)
    return None


def row_length(row: For) -> int | None:
    """How many iterations a loop has at most; None where that is no number."""
    bounds = itertools.product(flattened(row.lower, "max"), flattened(row.upper, "min"))
    return min((n for lower, upper in bounds if (n := constant_extent(lower, upper)) is not None), default=None)


def _runs_backwards(loop: For, plan: Plan) -> bool:
    """Whether a loop may run from its end: nothing in it needs what another iteration makes."""
    positions: dict[str, int] = {}
    for call in (node for node in walk(loop.body) if isinstance(node, Execute)):
        if Variable(loop.iterator) not in call.arguments:
            return False
        position = call.arguments.index(Variable(loop.iterator))
        if positions.setdefault(call.statement, position) != position:
            return False
    return is_independent(plan.scop, positions)


def _operations(loop: For, plan: Plan) -> Iterator[tuple[Scope, TileOperation, For | None]]:
    """The operations that run once in an iteration of a loop, or once for each element of a row inside it."""

    def below(node: LoopNode, row: For | None) -> Iterator[tuple[Scope, TileOperation, For | None]]:
        match node:
            case Scope() if node.name in plan.operations:
                yield node, plan.operations[node.name], row
            case Scope():
                yield from below(node.body, row)
            case Block():
                for child in node.children:
                    yield from below(child, row)
            case If():
                yield from below(node.then, row)
            case For() if row is None and _is_row(loop, node):
                yield from below(node.body, node)
            case _:
                return

    return below(loop.body, None)


def _is_row(loop: For, inside: For) -> bool:
    """Whether a loop in another one has the same iterations in each of its iterations, so many at most."""
    moved = variables(inside.lower) | variables(inside.upper)
    return inside.step == 1 and loop.iterator not in moved and row_length(inside) is not None


@dataclass(frozen=True, slots=True)
class RunningValue:
    """Spells a scan.  ``speller`` spells expressions where indices have the C text given."""

    scan: Scan
    plan: Plan
    speller: Callable[[Mapping[str, str]], Speller]

    @property
    def statement(self) -> ScopStatement:
        """The update."""
        return self.plan.scop.by_name[self.scan.call.statement]

    @property
    def dtype(self) -> DType:
        """What is combined."""
        return self.plan.scop.storages[self.statement.target].dtype

    @property
    def reduction(self) -> str:
        """How it is combined."""
        assert self.statement.reduction is not None
        return self.statement.reduction

    def declared(self) -> list[str]:
        """What stands in front of the loop over elements."""
        identity = constant_text(REDUCTIONS[self.reduction].identity(self.dtype), self.dtype)
        return [f"{C_VALUE_TYPES[self.dtype.name]} {VALUE} = {identity};", self.first_step()]

    def first_step(self) -> str:
        """Declares the first step that is new."""
        begin = self.scan.steps.upper if self.scan.down else self.scan.steps.lower
        return f"long {NEXT} = {loop_text(begin)};"

    def around(self, loop: For, body: Sequence[str]) -> Iterator[str]:
        """The loop over elements, from the lines of its body."""
        yield from self.declared()
        yield self.head(loop)
        yield from body
        yield "}"

    def head(self, loop: For) -> str:
        """How the loop over elements begins."""
        i, first, end = loop.iterator, loop_text(loop.lower), loop_text(loop.upper)
        if self.scan.backwards:
            return f"for (long {i} = {end} - 1; {i} >= {first}; {i}--) {{"
        return f"for (long {i} = {first}; {i} < {end}; {i}++) {{"

    def term(self, step: LoopExpr) -> str:
        """What a step adds."""
        return self._spelled(step).value(self.statement.value)

    def target(self) -> str:
        """The element that is written, by the iterators around it."""
        return self._spelled(Variable(NEXT)).written(self.statement.target, self.statement.subscripts)

    def _spelled(self, step: LoopExpr) -> Speller:
        arguments = [substitute(a, self.scan.steps.iterator, step) for a in self.scan.call.arguments]
        return self.speller({n: loop_text(a) for n, a in zip(self.statement.indices, arguments, strict=True)})

    def steps(self) -> list[str]:
        """What runs at one element: most often a single step, which compilers would take for a long loop."""
        steps, dtype, target = self.scan.steps, self.dtype, self.target()
        term = combine(self.reduction, VALUE, self.term(Variable(NEXT)), dtype)
        result = combine(self.reduction, load(target, dtype), VALUE, dtype)
        stored = f"{target} = {store(result, dtype)};"
        if self.scan.down:
            lower = loop_text(steps.lower)
            return [
                f"for (; {NEXT} > {lower} + 1;) {{",
                f"  {NEXT}--;",
                f"  {VALUE} = {term};",
                "}",
                f"if ({NEXT} > {lower}) {{",
                f"  {NEXT}--;",
                f"  {VALUE} = {term};",
                "}",
                stored,
            ]
        upper = loop_text(steps.upper)
        return [
            f"for (; {NEXT} < {upper} - 1; {NEXT}++)",
            f"  {VALUE} = {term};",
            f"if ({NEXT} < {upper}) {{",
            f"  {VALUE} = {term};",
            f"  {NEXT}++;",
            "}",
            stored,
        ]
