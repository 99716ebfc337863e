"""What stands around the register tile of a contraction: how its accumulators start, and where its results go."""

from __future__ import annotations

import islpy as isl

from tcomp.backends.c.loops.nests import Nest
from tcomp.backends.c.vectors.widening import NARROWED
from tcomp.grammar.tree.function import Cast, Constant, Read
from tcomp.loops.ir import Execute, For, LoopExpr, LoopNode, Scope, Variable
from tcomp.mapping.plan.values import Plan
from tcomp.model.scop import Scop, ScopStatement
from tcomp.values.operators import FLOAT32


def clears(start: LoopNode, nest: Nest, statement: ScopStatement, scop: Scop) -> bool:
    """Whether a node does nothing but set to zero what the rows and columns of a register tile accumulate into."""
    first = start_of(start, nest, statement, scop)
    return first is not None and str(first.value) in ("0", "0.0")


def start_of(start: LoopNode, nest: Nest, statement: ScopStatement, scop: Scop) -> Constant | None:
    """What a node sets all that a register tile accumulates into to, if it does nothing else."""
    init = _over_the_tile(start, nest, statement, scop)
    if init is None or init.kind != "init" or init.target != statement.target:
        return None
    return init.value if isinstance(init.value, Constant) else None


def copied_by(after: LoopNode, nest: Nest, statement: ScopStatement, plan: Plan) -> ScopStatement | None:
    """The statement that a node runs on a register tile, if it copies or rounds the elements, which nobody else reads.

    The results may then be stored where they are copied to, and the accumulators nowhere.
    """
    copy = _over_the_tile(after, nest, statement, plan.scop)
    if copy is None or copy.kind != "finish" or plan.buffers[statement.target].space == "global":
        return None
    readers = [s.name for s in plan.scop.statements if any(_reads(r, statement.target) for r in s.all_reads)]
    value, dtype = copy.value, plan.scop.storages[copy.target].dtype
    if isinstance(value, Cast) and value.operand.dtype == FLOAT32 and value.dtype == dtype and dtype in NARROWED:
        value, dtype = value.operand, FLOAT32
    if not isinstance(value, Read) or value.boundary is not None or value.tensor != statement.target:
        return None
    if value.subscripts != copy.subscripts or set(readers) - {statement.name, copy.name}:
        return None
    return copy if dtype == value.dtype else None


def _reads(access: isl.Map, storage: str) -> bool:
    name: str = access.get_tuple_name(isl.dim_type.out)
    return name == storage


def _over_the_tile(node: LoopNode, nest: Nest, statement: ScopStatement, scop: Scop) -> ScopStatement | None:
    """The one statement that a node runs, if it does so for the elements of a register tile and no others."""
    loops: list[For] = []
    while isinstance(node, For | Scope):
        if isinstance(node, For):
            loops.append(node)
        node = node.body
    if not isinstance(node, Execute) or nest.outer:
        return None
    found = scop.by_name[node.statement]
    tile = [nest.column] if nest.row is None else [nest.row, nest.column]
    names = {loop.iterator: Variable(own.iterator) for own, loop in zip(tile, loops, strict=False)}
    bounds = [(loop.lower, loop.upper, loop.step) for loop in loops]
    arguments = tuple(_renamed(a, names) for a in node.arguments[found.tile_rank :])
    fits = (
        bounds == [(loop.lower, loop.upper, loop.step) for loop in tile]
        and arguments == nest.call.arguments[statement.tile_rank : statement.coordinates]
        and found.plain
        and statement.plain
    )
    return found if fits else None


def _renamed(argument: LoopExpr, names: dict[str, Variable]) -> LoopExpr:
    return names.get(argument.name, argument) if isinstance(argument, Variable) else argument
