"""Reductions in several parts, each with an accumulator of its own, where every step reads at a place of its own.

Vectors gain nothing there, since lanes are loaded one by one; but steps need not wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tcomp.backends.dialect import C_STORAGE_TYPES, HOST_C, combine, constant_text, load, store
from tcomp.backends.spelling import Speller, loop_text
from tcomp.loops.ir import Execute, For, Number, Operation, Variable, substitute
from tcomp.model.scop import ScopStatement
from tcomp.values.operators import REDUCTIONS, DType

PARTS = 4
"""As many as hide how long an addition takes behind the loads of a step."""


def in_parts(
    loop: For, call: Execute, statement: ScopStatement, dtype: DType, register: str,
    spellers: Callable[[Mapping[str, str]], Speller],
) -> list[str]:  # fmt: skip
    """The C text of a loop that reduces into a ``register``."""
    assert statement.reduction is not None
    reduction, i, end = statement.reduction, loop.iterator, loop_text(loop.upper)
    c_type = C_STORAGE_TYPES[dtype.name]
    identity = store(constant_text(REDUCTIONS[reduction].identity(dtype), dtype, HOST_C), dtype)
    parts = [f"tc_part{n}" for n in range(PARTS)]

    def step(target: str, offset: int) -> str:
        own = Variable(i) if offset == 0 else Operation("+", (Variable(i), Number(offset)))
        moved = (substitute(a, i, own) for a in call.arguments)
        speller = spellers({n: loop_text(a) for n, a in zip(statement.indices, moved, strict=True)})
        value = combine(reduction, load(target, dtype), speller.value(statement.value), dtype)
        return f"{target} = {store(value, dtype)};"

    def joined(first: str, second: str) -> str:
        return f"{first} = {store(combine(reduction, load(first, dtype), load(second, dtype), dtype), dtype)};"

    lines = ["{", f"  {c_type} {', '.join(f'{part} = {identity}' for part in parts)};"]
    lines += [f"  long {i} = {loop_text(loop.lower)};", f"  for (; {i} < {end} - {PARTS - 1}; {i} += {PARTS}) {{"]
    lines += [f"    {step(part, n)}" for n, part in enumerate(parts)]
    lines += ["  }", f"  for (; {i} < {end}; {i}++) {{", f"    {step(register, 0)}", "  }"]
    lines += [f"  {joined(parts[0], parts[1])}", f"  {joined(parts[2], parts[3])}"]
    return [*lines, f"  {joined(parts[0], parts[2])}", f"  {joined(register, parts[0])}", "}"]
