"""Innermost loops over elements of float16, for which compilers know no vectors: they convert one by one.

The language computes with such elements in float32.  A block of what is read is widened into an array of float32, the
loop runs on arrays, and a block of results is rounded at the end.  So do minima and maxima, whose elements are the
only ones of 16 bits that are updated in a loop over neighbours: sums have others while they run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from tcomp.backends.c.rows.gathers import unconditional_reads
from tcomp.backends.c.vectors.types import vector_type
from tcomp.backends.c.vectors.values import VectorSpeller, neighbours
from tcomp.backends.c.vectors.widening import narrowed, widened
from tcomp.backends.dialect import combine, load, store
from tcomp.backends.spelling import Speller, loop_text
from tcomp.grammar.tree.function import Cast, Expr, Read, walk
from tcomp.loops.indexing import constant_extent
from tcomp.loops.ir import Execute, For, LoopExpr, Number, Operation, Variable, substitute
from tcomp.mapping.machines.fitted.cputext import VECTOR_ROWS
from tcomp.model.scop import ScopStatement
from tcomp.values.operators import FLOAT16, FLOAT32, DType

ALIGNED = "__attribute__((aligned(64)))"


@dataclass(frozen=True, slots=True)
class HalfRow:
    """The innermost loop of a statement that sets each element once, or takes the extreme of it and something else.

    ``dtype`` is that of the elements, ``lanes`` the float32 elements of a vector; ``speller`` spells expressions where
    indices have the C text given.
    """

    loop: For
    call: Execute
    statement: ScopStatement
    dtype: DType
    lanes: int
    speller: Callable[[Mapping[str, str]], Speller]

    def lines(self) -> list[str] | None:
        """The loop in C; None if no neighbouring elements of float16 are read or written, or there are too few."""
        along = neighbours(self.loop, self.call, self.statement)
        updates = self.statement.kind == "update"
        if along is None or (updates and not self._takes_extremes()):
            return None
        first = VectorSpeller(self._at(Variable(self.loop.iterator)), along, self.lanes)
        every = dict.fromkeys(unconditional_reads(self.statement.value))
        reads = [r for r in every if r.dtype == FLOAT16 and first.moves(r) and first.first(r) is not None]
        rounds = self.dtype == FLOAT16 and first.write_stride(self.statement) == 1
        block = self._block() if rounds or not updates else 0
        return [*self._spelled(along, reads, rounds, block)] if block and (reads or rounds) else None

    def _takes_extremes(self) -> bool:
        """Whether an update is a minimum or maximum, of nothing that it makes itself."""
        own = self.statement.target
        apart = all(e.tensor != own for e in walk(self.statement.value) if isinstance(e, Read))
        return apart and self.statement.reduction in ("min", "max")

    def _block(self) -> int:
        """Elements of a block, a multiple of ``lanes``; 0 if the loop has fewer."""
        extent = constant_extent(self.loop.lower, self.loop.upper)
        if extent is None:
            return VECTOR_ROWS.block
        block = VECTOR_ROWS.block
        while block > self.lanes and extent % block:
            block //= 2
        return block if self.lanes <= block <= extent else 0

    def _spelled(self, along: str, reads: list[Read], rounds: bool, block: int) -> Iterator[str]:
        i, upper, updates = self.loop.iterator, loop_text(self.loop.upper), self.statement.kind == "update"
        kind = vector_type(FLOAT32, self.lanes)
        yield "{"
        yield f"  long {i} = {loop_text(self.loop.lower)};"
        yield f"  for (; {i} + {block} <= {upper}; {i} += {block}) {{"
        for number in range(len(reads)):
            yield f"    float wide{number}[{block}] {ALIGNED};"
        if rounds:
            yield f"    float value[{block}] {ALIGNED};"
        for offset in range(0, block, self.lanes):
            there = self._at(Operation("+", (Variable(i), Number(offset))) if offset else Variable(i))
            vectors = VectorSpeller(there, along, self.lanes)
            for number, read in enumerate(reads):
                element = vectors.first(read)
                yield f"    *({kind} *)&wide{number}[{offset}] = {widened(f'&{element}', FLOAT16, self.lanes)};"
            if updates:
                before = widened(f"&{self._element(there)}", FLOAT16, self.lanes)
                yield f"    *({kind} *)&value[{offset}] = {before};"
        speller = self._at(Operation("+", (Variable(i), Variable("l"))))
        held: dict[Expr, str] = {read: f"wide{number}[l]" for number, read in enumerate(reads)}
        inside = replace(speller, held={**speller.held, **held})
        result = "value[l]" if rounds else self._element(inside)
        value = self._value(inside, result)
        yield "    #pragma omp simd"
        yield f"    for (int l = 0; l < {block}; l++) {result} = {value if rounds else store(value, self.dtype)};"
        for offset in range(0, block if rounds else 0, self.lanes):
            there = self._at(Operation("+", (Variable(i), Number(offset))) if offset else Variable(i))
            vector = f"*(const {kind} *)&value[{offset}]"
            yield "    " + narrowed(f"&{self._element(there)}", vector, FLOAT16, self.lanes)
        yield "  }"
        extent = constant_extent(self.loop.lower, self.loop.upper)
        if extent is None or extent % block:
            here = self._at(Variable(i))
            yield f"  for (; {i} < {upper}; {i}++)"
            before = load(self._element(here), self.dtype)
            yield f"    {self._element(here)} = {store(self._value(here, before), self.dtype)};"
        yield "}"

    def _at(self, iteration: LoopExpr) -> Speller:
        arguments = [substitute(a, self.loop.iterator, iteration) for a in self.call.arguments]
        return self.speller({n: loop_text(a) for n, a in zip(self.statement.indices, arguments, strict=True)})

    def _element(self, speller: Speller) -> str:
        return speller.written(self.statement.target, self.statement.subscripts)

    def _value(self, speller: Speller, before: str) -> str:
        """What one iteration stores, where ``before`` is what was there, not rounded to the type of the elements.

        A value in float64 is rounded to them here: on the way through float32 it would be rounded twice.
        """
        expr = self.statement.value
        if isinstance(expr, Cast) and expr.dtype == self.dtype == FLOAT16 and expr.operand.dtype == FLOAT32:
            expr = expr.operand
        value = speller.value(expr)
        reduction = self.statement.reduction
        return value if reduction is None else combine(reduction, before, value, self.dtype)
