"""The ``reduce`` tile operation on the CPU: all updates of one element, in vector lanes.

Sums and products use the compiler's own reduction clause.  Extrema, whose rule for NaN no clause knows, go through an
array of lanes that are folded at the end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tcomp.backends.dialect import C_STORAGE_TYPES, combine, constant_text, mangle
from tcomp.backends.spelling import loop_text
from tcomp.loops import Execute, For, LoopExpr, Operation, Variable
from tcomp.operators import REDUCTIONS, DType
from tcomp.scop import ScopStatement

VECTOR_BYTES = 64

Update = Callable[[Execute, str], str]
"""Spells one update: the instance, and the C name of what it combines with."""


def reduce_innermost(loop: For, statement: ScopStatement, dtype: DType, update: Update) -> list[str]:
    """The innermost loop of a reduction into the register of ``statement``'s target, as lines of C."""
    assert statement.reduction is not None and isinstance(loop.body, Execute)
    target = mangle(statement.target)
    lower, upper, i = loop_text(loop.lower), loop_text(loop.upper), loop.iterator
    if statement.reduction in ("+", "*") or dtype.bits < 32:
        clause = [f"#pragma omp simd reduction({statement.reduction}:{target})"]
        plain = [f"for (long {i} = {lower}; {i} < {upper}; {i}++)", f"  {update(loop.body, target)}"]
        return clause + plain if statement.reduction in ("+", "*") else plain
    lanes = 2 * VECTOR_BYTES // dtype.itemsize
    identity = constant_text(REDUCTIONS[statement.reduction].identity(dtype), dtype)
    each = f"for (int l = 0; l < {lanes}; l++)"
    shifted = replace(loop.body, arguments=tuple(_shifted(a, i) for a in loop.body.arguments))
    return [
        "{",
        f"  {C_STORAGE_TYPES[dtype.name]} lane[{lanes}];",
        f"  {each} lane[l] = {identity};",
        f"  long {i} = {lower};",
        f"  for (; {i} + {lanes} <= {upper}; {i} += {lanes})",
        f"    {each} {update(shifted, 'lane[l]')}",
        f"  for (; {i} < {upper}; {i}++)",
        f"    {update(loop.body, target)}",
        f"  {each} {target} = {combine(statement.reduction, target, 'lane[l]', dtype)};",
        "}",
    ]


def _shifted(argument: LoopExpr, iterator: str) -> LoopExpr:
    """The argument of a lane: the iterator moved by the lane's number ``l``."""
    match argument:
        case Variable(name=name) if name == iterator:
            return Operation("+", (argument, Variable("l")))
        case Operation():
            return Operation(argument.operator, tuple(_shifted(o, iterator) for o in argument.operands))
        case _:
            return argument
