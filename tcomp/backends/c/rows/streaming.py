"""Stores past the caches, for outputs that would not stay in them.

An ordinary store first fetches the line that it changes.  Where whole lines are written and nobody reads them soon,
streaming stores save that, and leave in the caches what is worth it.  They must be aligned: the first and the last
elements of a row are stored in ordinary vectors, which overlap the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import islpy as isl

from tcomp.backends.c.rows.ahead import FetchedReads, behind
from tcomp.backends.c.rows.reductions import VALUE_BYTES
from tcomp.backends.c.vectors.types import vector_type
from tcomp.backends.c.vectors.values import ELEMENTS, VectorSpeller, neighbours
from tcomp.backends.dialect import C_STORAGE_TYPES, store
from tcomp.backends.prelude import INLINE
from tcomp.backends.spelling import Speller, loop_text
from tcomp.loops.indexing import constant_extent
from tcomp.loops.ir import Execute, For, LoopExpr, Number, Operation, Variable, substitute
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.machines.fitted.cputext import VECTOR_ROWS
from tcomp.mapping.plan.values import Plan
from tcomp.model.scop import ScopStatement
from tcomp.values.operators import DType

LINE = 64
"""Bytes of a cache line on every processor that has these stores."""

FENCE = "tc_stream_fence();"

_FUNCTIONS = {
    "tc_stream_64": f"""{INLINE} void tc_stream_64(void *to, const void *from) {{
  typedef float line __attribute__((vector_size(64), may_alias));
#if defined __clang__
  __builtin_nontemporal_store(*(const line *)from, (line *)to);
#elif defined __AVX512F__
  __builtin_ia32_movntps512((float *)to, *(const line *)from);
#else
  tc_stream_32(to, from);
  tc_stream_32((char *)to + 32, (const char *)from + 32);
#endif
}}
""",
    "tc_stream_32": f"""{INLINE} void tc_stream_32(void *to, const void *from) {{
  typedef float half __attribute__((vector_size(32), may_alias));
#if defined __clang__
  __builtin_nontemporal_store(*(const half *)from, (half *)to);
#elif defined __AVX__
  __builtin_ia32_movntps256((float *)to, *(const half *)from);
#else
  *(half *)to = *(const half *)from;
#endif
}}
""",
    "tc_stream_fence": f"""{INLINE} void tc_stream_fence(void) {{
#ifdef __SSE__
  __builtin_ia32_sfence();
#endif
}}
""",
}


def stream_functions(text: str) -> str:
    """The definitions that a text calls."""
    needed = [name for name in _FUNCTIONS if name in text]
    if "tc_stream_64" in needed:
        needed = ["tc_stream_32", *(name for name in needed if name != "tc_stream_32")]
    return "".join(_FUNCTIONS[name] for name in needed)


def streamed_statements(plan: Plan, machine: Machine) -> frozenset[str]:
    """Statements whose results no statement reads, of kernels whose tensors exceed the caches.

    Tiles in time read from the caches what they have just written.
    """
    if not machine.overflows(plan.scop.tensor_bytes) or (plan.scop.around is not None and plan.scop.around.tiled):
        return frozenset()
    read = {r.get_tuple_name(isl.dim_type.out) for s in plan.scop.statements for r in s.reads}
    return frozenset(
        s.name
        for s in plan.scop.statements
        if s.kind in ("assign", "finish") and s.target not in read and plan.scop.storages[s.target].role == "output"
    )


@dataclass(frozen=True, slots=True)
class StreamedRow:
    """The innermost loop of a statement that writes neighbouring elements of an output.

    ``speller`` spells expressions where indices have the C text given; ``fetched`` is what is fetched ahead.
    """

    loop: For
    call: Execute
    statement: ScopStatement
    dtype: DType
    vector_bytes: int
    speller: Callable[[Mapping[str, str]], Speller]
    fetched: FetchedReads

    def lines(self) -> Iterator[str] | None:
        """The loop in C; None if it does not write neighbouring elements, or too few."""
        along = neighbours(self.loop, self.call, self.statement)
        if along is None or self.dtype.name not in ELEMENTS or self.vector_bytes < VALUE_BYTES:
            return None
        if VectorSpeller(self._at(Variable(self.loop.iterator)), along, 1).write_stride(self.statement) != 1:
            return None
        extent = constant_extent(self.loop.lower, self.loop.upper)
        if extent is not None and extent * self.dtype.itemsize < VECTOR_ROWS.least_lines * LINE:
            return None
        return self._spelled(along)

    def _spelled(self, along: str) -> Iterator[str]:
        i = self.loop.iterator
        lower, upper = loop_text(self.loop.lower), loop_text(self.loop.upper)
        count = LINE // self.dtype.itemsize
        values, size = self._values(along, count)
        start, here = self._element(self.loop.lower), self._element(Variable(i))
        line = self._element(Operation("+", (Variable(i), Variable("l"))))
        extent = constant_extent(self.loop.lower, self.loop.upper)
        yield "{" if extent is not None else f"if ({upper} - {lower} >= {VECTOR_ROWS.least_lines * count}) {{"
        yield f"  long {i} = {lower};"
        yield f"  const long first = (long)(-((unsigned long)&{start} / {self.dtype.itemsize}) % {count});"
        yield "  if (first != 0) {"
        yield from ("    " + text for text in values)
        yield f"    for (int l = 0; l < first; l++) {line} = value[l];"
        yield f"    {i} += first;"
        yield "  }"
        yield f"  for (; {i} + {count} <= {upper}; {i} += {count}) {{"
        yield from ("    " + text for text in self.fetched.lines(lambda n: self._at(behind(i, n)), count))
        yield from ("    " + text for text in values)
        for offset in range(0, LINE, size):
            yield f"    tc_stream_{size}((char *)&{here} + {offset}, (const char *)value + {offset});"
        yield "  }"
        yield f"  const long last = {upper} - {i};"
        yield "  if (last != 0) {"
        yield f"    {i} = {upper} - {count};"
        yield from ("    " + text for text in values)
        yield f"    for (int l = {count} - last; l < {count}; l++) {line} = value[l];"
        yield "  }"
        if extent is None:
            yield "} else {"
            yield f"  for (long {i} = {lower}; {i} < {upper}; {i}++)"
            yield f"    {here} = {self._value(Variable(i))};"
        yield "}"

    def _values(self, along: str, count: int) -> tuple[list[str], int]:
        """An array of ``count`` elements from the iterator on, as lines, and the bytes of the vectors that fill it."""
        here = Variable(self.loop.iterator)
        lines = [f"{C_STORAGE_TYPES[self.dtype.name]} value[{count}] __attribute__((aligned({LINE})));"]
        size = min(LINE, self.vector_bytes)
        lanes = size // self.dtype.itemsize
        for first in range(0, count, lanes):
            text = self._vector(along, Operation("+", (here, Number(first))) if first else here, lanes)
            if text is None:
                value = self._value(Operation("+", (here, Variable("l"))))
                return [lines[0], f"for (int l = 0; l < {count}; l++) value[l] = {value};"], VALUE_BYTES
            lines.append(f"*({vector_type(self.dtype, lanes)} *)&value[{first}] = {text};")
        return lines, size

    def _vector(self, along: str, iteration: LoopExpr, lanes: int) -> str | None:
        return VectorSpeller(self._at(iteration), along, lanes).value(self.statement.value, self.dtype)

    def _at(self, iteration: LoopExpr) -> Speller:
        arguments = [substitute(a, self.loop.iterator, iteration) for a in self.call.arguments]
        return self.speller({n: loop_text(a) for n, a in zip(self.statement.indices, arguments, strict=True)})

    def _element(self, iteration: LoopExpr) -> str:
        speller = self._at(iteration)
        return speller.written(self.statement.target, self.statement.subscripts)

    def _value(self, iteration: LoopExpr) -> str:
        return store(self._at(iteration).value(self.statement.value), self.dtype)
