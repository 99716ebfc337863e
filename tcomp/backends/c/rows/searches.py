"""The first of some iterations that satisfies a condition, as ``argmax=!`` seeks it: loops end where it is found.

Of ``P(n) min=! X(n,k) == best(n) ? k : 2147483647`` the places after the first one cannot count, for ``k`` grows.
Blocks of iterations are asked as a whole, in vectors, whether one of them has it; then those of one block, in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tcomp.backends.dialect import C_STORAGE_TYPES, combine
from tcomp.backends.spelling import Speller, loop_text
from tcomp.grammar.tree.dataranges import ranges_of
from tcomp.grammar.tree.function import Cast, Constant, Expr, Index, Read, Select, depends_on_data, walk
from tcomp.loops.ir import Execute, For, LoopExpr, Number, Operation, Variable, substitute
from tcomp.mapping.machines.fitted.cputext import VECTOR_ROWS
from tcomp.model.scop import ScopStatement
from tcomp.values.operators import INT32, INT64, REDUCTIONS, DType


@dataclass(frozen=True, slots=True)
class Search:
    """A loop that seeks the least of its iterations for which the ``condition`` of a statement holds.

    ``target`` is the C name of a variable of the element type ``dtype``; ``speller`` spells what an iteration computes.
    """

    loop: For
    call: Execute
    statement: ScopStatement
    condition: Expr
    place: Expr
    dtype: DType
    target: str
    speller: Callable[[Mapping[str, str]], Speller]

    def lines(self) -> Iterator[str]:
        """The loop in C."""
        i, upper = self.loop.iterator, loop_text(self.loop.upper)
        own = self._at(Variable(i))
        asked = self._at(Operation("+", (Variable(i), Variable("l")))).value(self.condition)
        word = C_STORAGE_TYPES[(INT64 if _is_wide(self.condition) else INT32).name]
        yield "{"
        yield f"  long {i} = {loop_text(self.loop.lower)};"
        yield f"  for (; {i} + {VECTOR_ROWS.sought} <= {upper}; {i} += {VECTOR_ROWS.sought}) {{"
        yield f"    {word} found = 0;"
        yield f"    for (int l = 0; l < {VECTOR_ROWS.sought}; l++) found |= {asked};"
        yield "    if (found) break;"
        yield "  }"
        yield f"  for (; {i} < {upper}; {i}++)"
        yield f"    if ({own.value(self.condition)}) {{"
        yield f"      {self.target} = {combine('min', self.target, own.value(self.place), self.dtype)};"
        yield "      break;"
        yield "    }"
        yield "}"

    def _at(self, iteration: LoopExpr) -> Speller:
        arguments = [substitute(a, self.loop.iterator, iteration) for a in self.call.arguments]
        return self.speller({n: loop_text(a) for n, a in zip(self.statement.indices, arguments, strict=True)})


def search_of(
    loop: For,
    call: Execute,
    statement: ScopStatement,
    dtype: DType,
    target: str,
    speller: Callable[[Mapping[str, str]], Speller],
) -> Search | None:
    """The search that the innermost loop of a reduction is; None where it is none, short, or skips checks."""
    value = statement.value
    if statement.reduction != "min" or dtype not in (INT32, INT64) or loop.step != 1 or not isinstance(value, Select):
        return None
    if not (isinstance(value.otherwise, Constant) and value.otherwise.value == REDUCTIONS["min"].identity(dtype)):
        return None
    place = value.then.operand if isinstance(value.then, Cast) else value.then
    low, high = loop.lower, loop.upper
    if isinstance(low, Number) and isinstance(high, Number) and high.value - low.value < 2 * VECTOR_ROWS.sought:
        return None
    arguments = dict(zip(statement.indices, call.arguments, strict=True))
    if not isinstance(place, Index) or arguments.get(place.name) != Variable(loop.iterator):
        return None
    checked = any(depends_on_data(s) for e in walk(value) if isinstance(e, Read) for s in e.subscripts)
    if checked or ranges_of(value):
        return None
    return Search(loop, call, statement, value.condition, value.then, dtype, target, speller)


def _is_wide(condition: Expr) -> bool:
    return any(e.dtype.bits == 64 for e in walk(condition) if isinstance(e, Read))
