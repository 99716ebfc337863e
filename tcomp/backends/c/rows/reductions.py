"""The ``reduce`` tile operation on the CPU: all updates of one element, in vectors.

Several vectors take turns, since an operation takes longer than the processor needs to start the next.  They are folded
by halves.  What is left of a loop of known length runs in one vector that overlaps the one before it: extrema do not
mind, sums leave the lanes out that are there already.  Otherwise it runs in vectors of the same halves, so that less
than two iterations are left to run alone.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field

from tcomp.backends.c.vectors.extrema import of_vectors
from tcomp.backends.c.vectors.types import vector_type
from tcomp.backends.c.vectors.values import VectorSpeller, computed_type, neighbours
from tcomp.backends.dialect import C_STORAGE_TYPES, combine, constant_text, load, store
from tcomp.backends.spelling import Speller, loop_text
from tcomp.grammar.tree.function import Read
from tcomp.loops.ir import Execute, For, LoopExpr, Number, Operation, Variable, substitute
from tcomp.mapping.machines.cpu import LINE_BYTES
from tcomp.mapping.machines.fitted.cputext import VECTOR_ROWS
from tcomp.model.scop import ScopStatement
from tcomp.values.operators import REDUCTIONS, DType

FOLDED = 4
"""Lanes that are folded by turning them, not by halves: vectors of two are slow, and scalar extrema are branches."""

_OVERLAPPING = ("min", "max", "+")
"""Reductions of which a vector may overlap another one."""

VALUE_BYTES = 32
"""Vectors in which values are read that the compiler computes: no longer than those in which it stores them."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """The innermost loop of a reduction whose other indices are those of one element.

    ``target`` is the C name of a variable; ``speller`` spells expressions where indices have the C text given.  With
    the vectors of some reads those so many elements ``ahead`` are fetched into the cache.
    """

    loop: For
    call: Execute
    statement: ScopStatement
    dtype: DType
    target: str
    vector_bytes: int
    speller: Callable[[Mapping[str, str]], Speller]
    ahead: Mapping[Read, int] = field(default_factory=dict)

    @property
    def element(self) -> DType:
        """What the lanes of vectors are."""
        return computed_type(self.dtype)

    def lines(self) -> Iterator[str]:
        """The loop in C."""
        i, upper = self.loop.iterator, loop_text(self.loop.upper)
        yield "{"
        yield f"  long {i} = {loop_text(self.loop.lower)};"
        yield from ("  " + line for line in self._in_vectors())
        yield f"  for (; {i} < {upper}; {i}++)"
        value = self._combined(load(self.target, self.dtype), self.value(Variable(i)))
        yield f"    {self.target} = {store(value, self.dtype)};"
        yield "}"

    def vector_lines(self, result: str) -> Iterator[str]:
        """The loop in C up to a vector of ``FOLDED`` lanes, the ``result``, with all that they contribute.

        Only if ``fills_vectors``.  The lanes still have to be folded, and combined with the target.
        """
        yield f"long {self.loop.iterator} = {loop_text(self.loop.lower)};"
        found = yield from self._parts()
        assert found is not None
        name, _ = yield from self._halved(*found)
        yield f"{result} = {name};"

    def fills_vectors(self) -> bool:
        """Whether the loop is known to fill a vector of ``FOLDED`` lanes, and lanes may run again."""
        extent, room = self._extent(), self.vector_bytes // self.element.itemsize
        return self.element.bits >= 32 and room >= FOLDED <= (extent or 0) and self._reduction in _OVERLAPPING

    def _in_vectors(self) -> Iterator[str]:
        """What of the loop fills vectors; the iterator stands behind it afterwards."""
        found = yield from self._parts()
        if found is not None:
            yield from self._folded(*found)

    def _parts(self) -> Generator[str, None, tuple[int, int | None, bool] | None]:
        """What of the loop fills vectors, in one of them; its lanes, the iterations left, and how values are read."""
        if self.element.bits < 32:
            return None
        direct = self._vector(2) is not None
        lanes = (self.vector_bytes if direct else min(VALUE_BYTES, self.vector_bytes)) // self.element.itemsize
        extent = self._extent()
        while extent is not None and lanes > max(extent, 1):
            lanes //= 2
        if lanes < 2:
            return None
        vectors = VECTOR_ROWS.accumulators if direct else 2 * VECTOR_ROWS.accumulators
        if extent is not None:
            vectors = min(vectors, extent // lanes)
        i, upper = self.loop.iterator, loop_text(self.loop.upper)
        identity = constant_text(REDUCTIONS[self._reduction].identity(self.dtype), self.element)
        kind = vector_type(self.element, lanes)
        for v in range(vectors):
            yield f"{kind} part{v} = ({kind}){{}} + {identity};"
        if vectors > 1:
            yield f"for (; {i} + {vectors * lanes} <= {upper}; {i} += {vectors * lanes}) {{"
            yield from ("  " + line for line in self._step(vectors, lanes, direct))
            yield "}"
        count = vectors
        while count > 1:
            half = -(-count // 2)
            for v in range(count - half):
                yield f"part{v} = {self._of_vectors(f'part{v}', f'part{v + half}', lanes)};"
            count = half
        rest = None if extent is None else extent % (vectors * lanes) if vectors > 1 else extent
        if rest is None or rest >= lanes:
            yield f"for (; {i} + {lanes} <= {upper}; {i} += {lanes}) {{"
            yield from ("  " + line for line in self._step(1, lanes, direct))
            yield "}"
        if rest is not None and rest % lanes and self._reduction in _OVERLAPPING:
            yield f"{i} = {upper} - {lanes};"
            yield "{"
            yield from ("  " + line for line in self._step(1, lanes, direct, left=rest % lanes))
            yield "}"
            yield f"{i} = {upper};"
            rest = 0
        return lanes, rest, direct

    def _folded(self, lanes: int, rest: int | None, direct: bool) -> Iterator[str]:
        """One vector folded into the target, with the iterations that are left, a ``rest`` of which may be known."""
        name, lanes = yield from self._halved(lanes, rest, direct)
        first = f"{name}[0]"
        if lanes == FOLDED:
            for order in ("2, 3, 0, 1", "1, 0, 3, 2"):
                turned = f"__builtin_shufflevector({name}, {name}, {order})"
                yield f"{name} = {self._of_vectors(name, turned, lanes)};"
        else:
            first = self._combined(first, f"{name}[1]")
        value = self._combined(load(self.target, self.dtype), first)
        yield f"{self.target} = {store(value, self.dtype)};"

    def _halved(self, lanes: int, rest: int | None, direct: bool) -> Generator[str, None, tuple[str, int]]:
        """One vector halved until it has ``FOLDED`` lanes, or two if others are left; its name and its lanes."""
        i, upper = self.loop.iterator, loop_text(self.loop.upper)
        name = "part0"
        least = 2 if rest is None or rest % min(lanes, FOLDED) else min(lanes, FOLDED)
        while lanes > least:
            lanes //= 2
            kind = vector_type(self.element, lanes)
            halves = self._of_vectors(f"*(const {kind} *)&{name}", f"*((const {kind} *)&{name} + 1)", lanes)
            yield f"{kind} half{lanes} = {halves};"
            name = f"half{lanes}"
            if rest is None or rest & lanes:
                yield f"if ({i} + {lanes} <= {upper}) {{"
                yield from ("  " + line for line in self._step(1, lanes, direct, name))
                yield f"  {i} += {lanes};"
                yield "}"
        return name, lanes

    def _step(
        self, vectors: int, lanes: int, direct: bool, into: str = "part0", left: int | None = None
    ) -> Iterator[str]:
        """The next iterations, combined with one vector each; of the last vector only so many may be ``left``."""
        i = self.loop.iterator
        kind = vector_type(self.element, lanes)
        if not direct:
            yield f"{C_STORAGE_TYPES[self.element.name]} value[{vectors * lanes}];"
            value = self.value(Operation("+", (Variable(i), Variable("l"))))
            yield f"for (int l = 0; l < {vectors * lanes}; l++) value[l] = {value};"
        if left is None:
            yield from self._fetched(vectors * lanes)
        for v in range(vectors):
            name = into if vectors == 1 else f"part{v}"
            value = f"*(const {kind} *)(value + {v * lanes})"
            if direct:
                value = self._vector(lanes, v * lanes) or value
            if left is not None and self._reduction == "+":
                mask = f"tc_int{self.element.bits}_x{lanes}"
                chosen = ", ".join(["0"] * (lanes - left) + ["-1"] * left)
                value = f"({kind})(({mask})({value}) & ({mask}){{{chosen}}})"
            yield f"{name} = {self._of_vectors(name, value, lanes)};"

    def _fetched(self, count: int) -> Iterator[str]:
        """Lines that fetch what is read ahead of the next ``count`` iterations."""
        for read, distance in self.ahead.items():
            for offset in range(0, count, max(1, LINE_BYTES // read.dtype.itemsize)):
                speller = self._speller(self._after(offset))
                element = speller.element(read.tensor, tuple(speller.subscript(s) for s in read.subscripts))
                yield f"__builtin_prefetch(&{element} + {distance}L);"

    def _after(self, offset: int) -> LoopExpr:
        """The iteration so far behind the next one."""
        first = Variable(self.loop.iterator)
        return Operation("+", (first, Number(offset))) if offset else first

    @property
    def _reduction(self) -> str:
        assert self.statement.reduction is not None
        return self.statement.reduction

    def _combined(self, a: str, b: str) -> str:
        return combine(self._reduction, a, b, self.dtype)

    def _of_vectors(self, a: str, b: str, lanes: int) -> str:
        return of_vectors(self._reduction, self.element, lanes)(a, b)

    def value(self, iteration: LoopExpr) -> str:
        """What one iteration contributes."""
        return self._speller(iteration).value(self.statement.value)

    def _vector(self, lanes: int, offset: int = 0) -> str | None:
        """What ``lanes`` iterations contribute from ``offset`` on; None if it takes more than vector types."""
        along = neighbours(self.loop, self.call, self.statement)
        if along is None:
            return None
        scalar = self._speller(self._after(offset))
        return VectorSpeller(scalar, along, lanes).value(self.statement.value, self.element)

    def _speller(self, iteration: LoopExpr) -> Speller:
        arguments = [substitute(a, self.loop.iterator, iteration) for a in self.call.arguments]
        return self.speller({n: loop_text(a) for n, a in zip(self.statement.indices, arguments, strict=True)})

    def _extent(self) -> int | None:
        """How often the loop runs, if its bounds are numbers."""
        if isinstance(self.loop.lower, Number) and isinstance(self.loop.upper, Number):
            return max(0, self.loop.upper.value - self.loop.lower.value)
        return None
