"""Two loops that walk through memory as one would become that one, so that short rows make long vectors.

``for i in 0..M: for j in 0..4: A[4 * i + j]`` runs through the same elements in the same order as
``for j in 0..4 * M: A[4 * 0 + j]``.  Nothing is scheduled anew: the instances keep their order, and only the iterator
that addresses them runs on where the inner loop began again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tcomp.grammar.tree.function import Expr, Index, Read, children, depends_on_data
from tcomp.loops.indexing import Ranges, step_of
from tcomp.loops.ir import (
    Execute,
    For,
    If,
    Let,
    LoopExpr,
    LoopNode,
    Number,
    Operation,
    Scope,
    flattened,
    substitute_below,
    variables,
    walk,
)
from tcomp.loops.narrowing import runs_over_data
from tcomp.mapping.plan.operations import indices_in
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.tiles.strides import stride_of
from tcomp.model.scop import ScopStatement

Apart = Callable[[For, Sequence[Execute]], bool]
"""Whether some instances depend on each other within iterations of a loop only."""


def joined(loop: For, plan: Plan, apart: Apart) -> For:
    """A loop with those that are its body, and nothing else, joined to one as far as they may be.

    Iterations of what comes out are ``apart`` if those of the innermost loop were, and of all that it was made of.
    """
    return _Joining(plan, apart).below(loop)


@dataclass(frozen=True, slots=True)
class _Joining:
    plan: Plan
    apart: Apart

    def below(self, outer: For) -> For:
        """A loop and the one that is its body, which is joined first, as one over the iterator of the latter."""
        if not isinstance(outer.body, For):
            return outer
        inner = self.below(outer.body)
        outer = replace(outer, body=inner)
        match inner:
            case For(lower=Number(low), upper=Number(high), step=1) if low < high and outer.step == 1:
                count = high - low
                if not self._runs_on(inner.body, outer.iterator, inner.iterator, count):
                    return outer
                if not self.apart(outer, [n for n in walk(inner.body) if isinstance(n, Execute)]):
                    return outer
                ends = [_scaled(end, count, low) for end in flattened(outer.upper, "min")]
                upper = ends[0]
                for end in ends[1:]:
                    upper = Operation("min", (upper, end))
                body = substitute_below(inner.body, outer.iterator, Number(0))
                return replace(inner, lower=_scaled(outer.lower, count, low), upper=upper, body=body)
        return outer

    def _runs_on(self, body: LoopNode, outer: str, inner: str, count: int) -> bool:
        """Whether all that a body does moves ``count`` times as far with one iterator as with the other."""
        moving = {outer, inner}
        for node in walk(body):
            match node:
                case For() if runs_over_data(node) or moving & (variables(node.lower) | variables(node.upper)):
                    return False
                case Let() if moving & variables(node.value):
                    return False
                case If() if moving & variables(node.condition):
                    return False
                case Scope() if any(moving & variables(e) for e in node.around) or self._is_opaque(node):
                    return False
                case Execute() if not self._instance_runs_on(node, outer, inner, count):
                    return False
        return True

    def _is_opaque(self, scope: Scope) -> bool:
        operation = self.plan.operations.get(scope.name)
        return operation is not None and operation.kind != "reduce"

    def _instance_runs_on(self, call: Execute, outer: str, inner: str, count: int) -> bool:
        motion = motion_of(self.plan, call, outer, inner)
        return motion is not None and all(far == count * near for far, near in (motion.target, *motion.reads.values()))


@dataclass(frozen=True, slots=True)
class Motion:
    """How far the elements that an instance touches move in memory with two iterators: what it writes and its reads."""

    target: tuple[int, int]
    reads: Mapping[Read, tuple[int, int]]


def motion_of(plan: Plan, call: Execute, outer: str, inner: str) -> Motion | None:
    """How an instance moves with two iterators.

    None if they do more than to move elements evenly: values or conditions depend on them, reads may leave their
    tensor or have copies, or subscripts depend on data and are reported with the indices of their instance.
    """
    statement = plan.scop.by_name[call.statement]
    steps = _steps_of(statement, call, outer, inner)
    if steps is None:
        return None
    copied = {r for c in plan.copies if c.statement == statement.name for r in c.reads}
    target = _moved(plan, statement.target, statement.subscripts, steps)
    reads: dict[Read, tuple[int, int]] = {}
    for expr in _outside_subscripts(statement.value):
        match expr:
            case Index() if expr.name in steps:
                return None
            case Read():
                if any(map(depends_on_data, expr.subscripts)):
                    return None
                if (expr.boundary is not None or expr in copied) and indices_in(expr) & steps.keys():
                    return None
                step = _moved(plan, expr.tensor, expr.subscripts, steps)
                if step is None:
                    return None
                reads[expr] = step
    return None if target is None else Motion(target, reads)


def moves_evenly(plan: Plan, call: Execute, iterator: str) -> bool:
    """Whether an instance writes another element for each value of an iterator."""
    statement = plan.scop.by_name[call.statement]
    steps = _steps_of(statement, call, iterator, "")
    moved = None if steps is None else _moved(plan, statement.target, statement.subscripts, steps)
    return moved is not None and moved[0] != 0


def _steps_of(statement: ScopStatement, call: Execute, outer: str, inner: str) -> dict[str, tuple[int, int]] | None:
    """How far the indices of an instance that move with two iterators do; None if one does not evenly."""
    steps: dict[str, tuple[int, int]] = {}
    for index, argument in zip(statement.indices, call.arguments, strict=True):
        far, near = step_of(argument, outer), step_of(argument, inner)
        if far is None or near is None:
            return None
        if far or near:
            steps[index] = far, near
    return steps


def _moved(
    plan: Plan, storage: str, subscripts: tuple[Expr, ...], steps: Mapping[str, tuple[int, int]]
) -> tuple[int, int] | None:
    """How far an element moves with two iterators; None if that is not constant."""
    buffer = plan.buffers.get(storage)
    if buffer is not None and buffer.space == "register":
        return 0, 0
    kept = plan.scop.storages[storage]
    strides, shape = (kept.known_strides, kept.box.extent) if buffer is None else (buffer.strides, buffer.shape)
    # What has one element along a dimension is addressed without it.
    strides = tuple(stride if extent > 1 else 0 for stride, extent in zip(strides, shape, strict=True))
    far = near = 0
    for index, (outer, inner) in steps.items():
        step = stride_of(subscripts, strides, index, plan.scop.sizes)
        if step is None:
            return None
        far, near = far + step * outer, near + step * inner
    return far, near


def _scaled(bound: LoopExpr, factor: int, offset: int) -> LoopExpr:
    """``factor`` times a bound and ``offset`` more, in normal form."""
    product = Operation("+", (Operation("*", (bound, Number(factor))), Number(offset)))
    return Ranges({}).simplify(product)


def _outside_subscripts(expr: Expr) -> Iterator[Expr]:
    """The expression and what it is made of, subscripts left out."""
    yield expr
    if isinstance(expr, Read):
        if expr.boundary is not None and expr.boundary.value is not None:
            yield from _outside_subscripts(expr.boundary.value)
        return
    for child in children(expr):
        yield from _outside_subscripts(child)
