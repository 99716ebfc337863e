"""Scans down columns: a row of values that grow from one row of elements to the next.

``Y(i,n) +=! X(j,n) where j in 0:i+1`` adds a row of ``X`` to a row of running values, and stores it, for each ``i``: in
vectors, along memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tcomp.backends.c.loops.scans import NEXT, VALUE, RunningValue, row_length
from tcomp.backends.dialect import C_VALUE_TYPES, combine, constant_text, load, store
from tcomp.backends.spelling import loop_text
from tcomp.loops.ir import For, Variable
from tcomp.values.operators import REDUCTIONS

STEP = "tc_step"
"""The C name of a step that is new."""


@dataclass(frozen=True, slots=True)
class RowOfValues(RunningValue):
    """A scan whose elements are rows.

    Where it is ``ready``, what the loop reads is there before its first statement runs, so steps of a whole row run
    ahead of these; else each runs at its element.
    """

    ready: bool

    @property
    def row(self) -> For:
        """The loop over the elements of a row."""
        assert self.scan.row is not None
        return self.scan.row

    def declared(self) -> list[str]:
        """What stands in front of the loop over rows."""
        identity = constant_text(REDUCTIONS[self.reduction].identity(self.dtype), self.dtype)
        values = f"{C_VALUE_TYPES[self.dtype.name]} {VALUE}[{row_length(self.row)}] __attribute__((aligned(64)));"
        return [values, f"{self._each()} {self._value()} = {identity};", self.first_step()]

    def around(self, loop: For, body: Sequence[str]) -> Iterator[str]:
        """The loop over rows, from the lines of its body."""
        yield from self.declared()
        yield self.head(loop)
        steps = self.scan.steps
        if self.ready:
            yield f"  {self._new_steps()} {{"
            yield "    #pragma omp simd"
            yield f"    {self._each()} {self._combined()};"
            yield "  }"
        yield from body
        if self.scan.down:
            yield f"  {NEXT} = tc_min({NEXT}, {loop_text(steps.lower)});"
        else:
            yield f"  {NEXT} = tc_max({NEXT}, {loop_text(steps.upper)});"
        yield "}"

    def steps(self) -> list[str]:
        """What runs at one element."""
        target, dtype = self.target(), self.dtype
        stored = f"{target} = {store(combine(self.reduction, load(target, dtype), self._value(), dtype), dtype)};"
        return [stored] if self.ready else [f"{self._new_steps()} {self._combined()};", stored]

    def _each(self) -> str:
        name, low, high = self.row.iterator, loop_text(self.row.lower), loop_text(self.row.upper)
        return f"for (long {name} = {low}; {name} < {high}; {name}++)"

    def _value(self) -> str:
        return f"{VALUE}[{self.row.iterator} - ({loop_text(self.row.lower)})]"

    def _new_steps(self) -> str:
        steps = self.scan.steps
        if self.scan.down:
            return f"for (long {STEP} = {NEXT} - 1; {STEP} >= {loop_text(steps.lower)}; {STEP}--)"
        return f"for (long {STEP} = {NEXT}; {STEP} < {loop_text(steps.upper)}; {STEP}++)"

    def _combined(self) -> str:
        term = self.term(Variable(STEP))
        return f"{self._value()} = {combine(self.reduction, self._value(), term, self.dtype)}"
