"""Loops that slide a window: along them, elements of a folded buffer take their places in turn."""

from __future__ import annotations

from tcomp.grammar.tree.function import Expr, Index, Read, walk
from tcomp.loops.ir import Execute, For, LoopNode, variables
from tcomp.loops.ir import walk as nodes_below
from tcomp.mapping.plan.values import Plan


def slides(node: LoopNode, plan: Plan) -> bool:
    """Whether loops at a node or below it move a window.

    Their iterations run in order and one by one: vectors and register tiles know elements that lie apart evenly.
    """
    folded = {b.storage: b.folded for b in plan.buffers.values() if b.folded}
    if not folded:
        return False
    below = [*nodes_below(node)]
    iterators = {n.iterator for n in below if isinstance(n, For)}
    return any(_moves(n, plan, folded, iterators) for n in below if isinstance(n, Execute))


def _moves(call: Execute, plan: Plan, folded: dict[str, tuple[int, ...]], iterators: set[str]) -> bool:
    statement = plan.scop.by_name[call.statement]
    arguments = zip(statement.indices, call.arguments, strict=True)
    moving = {index for index, argument in arguments if iterators & variables(argument)}
    touched: list[tuple[str, tuple[Expr, ...]]] = [(statement.target, statement.subscripts)]
    touched += [(e.tensor, e.subscripts) for e in walk(statement.value) if isinstance(e, Read)]
    return any(
        isinstance(e, Index) and e.name in moving
        for storage, subscripts in touched
        for d in folded.get(storage, ())
        for e in walk(subscripts[d])
    )
