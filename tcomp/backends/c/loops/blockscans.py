"""Scans by blocks of elements: what each element adds is computed for all of a block, and summed up in vectors.

A running value waits for one operation after the other.  Where each element of a loop has one new step, the terms of
some hundred elements are stored first.  A vector of them is combined with itself, moved by one lane, by two, by four
and so on; only the last lane goes from vector to vector.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tcomp.backends.c.loops.rowscans import RowOfValues
from tcomp.backends.c.loops.scans import NEXT, VALUE, RunningValue, Scan
from tcomp.backends.c.vectors.extrema import of_vectors
from tcomp.backends.c.vectors.types import vector_type
from tcomp.backends.c.vectors.values import ELEMENTS
from tcomp.backends.dialect import C_VALUE_TYPES, combine, constant_text, load, store
from tcomp.backends.spelling import Speller, loop_text
from tcomp.grammar.tree.function import Read, Within, is_indirect, walk
from tcomp.loops.indexing import constant_extent, step_of
from tcomp.loops.ir import Execute, For, LoopExpr, Number, Operation, Variable, substitute
from tcomp.loops.ir import walk as nodes_below
from tcomp.mapping.machines.fitted.cputext import VECTOR_ROWS
from tcomp.mapping.plan.values import Plan
from tcomp.values.operators import REDUCTIONS

BLOCK, FIRST, COUNT, AT = "tc_block", "tc_first", "tc_count", "tc_at"
"""The C names of a block's values, of its first element, of how many it has and of the place of one in it."""


def running_value(
    scan: Scan, loop: For, plan: Plan, speller: Callable[[Mapping[str, str]], Speller], vector_bytes: int
) -> RunningValue:
    """How a scan along a loop is spelled: by rows if its elements are some, else by blocks if each has one new step."""
    update = plan.scop.by_name[scan.call.statement]
    dtype = plan.scop.storages[update.target].dtype
    extent, lanes = constant_extent(loop.lower, loop.upper), vector_bytes // dtype.itemsize
    written = {plan.scop.by_name[n.statement].target for n in nodes_below(loop.body) if isinstance(n, Execute)}
    parts = list(walk(update.value))
    reads = [e for e in parts if isinstance(e, Read)]
    # What the loop itself makes is not there yet when the terms of a block, or of a row, are computed.
    ready = not any(read.tensor in written or any(map(is_indirect, read.subscripts)) for read in reads)
    ready = ready and not any(isinstance(e, Within) for e in parts)
    if scan.row is not None:
        return RowOfValues(scan, plan, speller, ready)
    moved = step_of(scan.steps.lower if scan.down else scan.steps.upper, loop.iterator)
    alike = moved == (-1 if scan.down != scan.backwards else 1)
    if alike and ready and dtype.name in ELEMENTS and lanes > 1 and (extent is None or extent >= 2 * lanes):
        return BlockedValue(scan, plan, speller, lanes)
    return RunningValue(scan, plan, speller)


@dataclass(frozen=True, slots=True)
class BlockedValue(RunningValue):
    """A scan whose values are computed for blocks of elements, in vectors of so many ``lanes``."""

    lanes: int

    def steps(self) -> list[str]:
        """What runs at one element."""
        target, dtype = self.target(), self.dtype
        return [f"{target} = {store(combine(self.reduction, load(target, dtype), f'{BLOCK}[{AT}]', dtype), dtype)};"]

    def around(self, loop: For, body: Sequence[str]) -> Iterator[str]:
        """The loop over blocks of elements."""
        element, first = C_VALUE_TYPES[self.dtype.name], loop_text(loop.lower)
        end, sign = loop_text(loop.upper), "-" if self.scan.backwards else "+"
        yield from self.declared()
        yield f"{element} {BLOCK}[{VECTOR_ROWS.scanned * self.lanes}] __attribute__((aligned(64)));"
        if self.scan.backwards:
            yield f"for (long {FIRST} = {end} - 1, {COUNT}; {FIRST} >= {first}; {FIRST} -= {COUNT}) {{"
            left = f"{FIRST} - {first} + 1"
        else:
            yield f"for (long {FIRST} = {first}, {COUNT}; {FIRST} < {end}; {FIRST} += {COUNT}) {{"
            left = f"{end} - {FIRST}"
        steps = self.scan.steps
        bound = loop_text(substitute(steps.lower if self.scan.down else steps.upper, loop.iterator, Variable(FIRST)))
        yield f"  if ({NEXT} == {bound} {'+' if self.scan.down else '-'} 1) {{"
        yield f"    {COUNT} = tc_min({VECTOR_ROWS.scanned * self.lanes}, {left});"
        yield from ("    " + line for line in self._block())
        yield f"    {NEXT} {'-' if self.scan.down else '+'}= {COUNT};"
        yield "  } else {"
        yield f"    {COUNT} = 1;"
        if self.scan.down:
            yield f"    for (; {NEXT} > {bound};) {{"
            yield f"      {NEXT}--;"
        else:
            yield f"    for (; {NEXT} < {bound}; {NEXT}++) {{"
        yield f"      {VALUE} = {combine(self.reduction, VALUE, self.term(Variable(NEXT)), self.dtype)};"
        yield "    }"
        yield f"    {BLOCK}[0] = {VALUE};"
        yield "  }"
        yield f"  for (long {AT} = 0; {AT} < {COUNT}; {AT}++) {{"
        yield f"    const long {loop.iterator} = {FIRST} {sign} {AT};"
        yield from ("  " + line for line in body)
        yield "  }"
        yield "}"

    def _block(self) -> Iterator[str]:
        """The terms of a block, and then, in their place, what is combined up to each.

        What is behind the last one changes nothing.
        """
        lanes, kind = self.lanes, vector_type(self.dtype, self.lanes)
        identity = constant_text(REDUCTIONS[self.reduction].identity(self.dtype), self.dtype)
        step: LoopExpr = Operation("+", (Variable(NEXT), Variable(AT)))
        if self.scan.down:
            step = Operation("-", (Operation("-", (Variable(NEXT), Number(1))), Variable(AT)))
        yield "#pragma omp simd"
        yield f"for (long {AT} = 0; {AT} < {COUNT}; {AT}++) {BLOCK}[{AT}] = {self.term(step)};"
        yield f"for (long {AT} = {COUNT}; {AT} % {lanes}; {AT}++) {BLOCK}[{AT}] = {identity};"
        yield f"const {kind} tc_neutral = {identity} - ({kind}){{}};"
        yield f"{kind} tc_before = {VALUE} - ({kind}){{}};"
        yield f"for (long {AT} = 0; {AT} < {COUNT}; {AT} += {lanes}) {{"
        yield f"  {kind} tc_sum = *(const {kind} *)({BLOCK} + {AT});"
        combined = of_vectors(self.reduction, self.dtype, lanes)
        moved = 1
        while moved < lanes:
            order = [*range(moved), *range(lanes, 2 * lanes - moved)]
            shifted = f"__builtin_shufflevector(tc_neutral, tc_sum, {', '.join(map(str, order))})"
            yield f"  tc_sum = {combined(shifted, 'tc_sum')};"
            moved *= 2
        last = ", ".join([str(lanes - 1)] * lanes)
        yield f"  *({kind} *)({BLOCK} + {AT}) = {combined('tc_before', 'tc_sum')};"
        yield f"  tc_before = {combined('tc_before', f'__builtin_shufflevector(tc_sum, tc_sum, {last})')};"
        yield "}"
        yield f"{VALUE} = tc_before[0];"
