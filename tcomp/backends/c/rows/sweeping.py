"""A loop over instances of which data send some into a thread's stretch of the elements: found first, then run.

Which way a branch goes that half of the instances take is nothing that a processor can guess.  So a block of them is
asked in vectors, a bit for each, and those whose bits are set run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from tcomp.backends.dialect import combine, load, store
from tcomp.backends.spelling import Gather, Speller, loop_text
from tcomp.backends.stretches import PLACE, chosen, first_of
from tcomp.grammar.tree.function import Index, walk
from tcomp.loops.ir import Execute, For, LoopExpr, Operation, Variable, substitute, variables
from tcomp.model.scop import Scop, ScopStatement, Stretch

WORD_BITS = 32
"""Instances that are asked together: the bits of a word."""


@dataclass(frozen=True, slots=True)
class Sweep:
    """A loop of instances of an update with a stretch; ``speller`` spells them where indices have the C text given."""

    loop: For
    call: Execute
    statement: ScopStatement
    scop: Scop
    speller: Callable[[Mapping[str, str]], Speller]

    def lines(self) -> Iterator[str]:
        """The loop in C."""
        i, upper = self.loop.iterator, loop_text(self.loop.upper)
        yield "{"
        yield f"  const long tc_low = {self._at(Variable(i)).subscript(first_of(self.statement, self.stretch))};"
        yield f"  long {i} = {loop_text(self.loop.lower)};"
        yield f"  for (; {i} + {WORD_BITS} <= {upper}; {i} += {WORD_BITS}) {{"
        yield "    unsigned int tc_own = 0, tc_out = 0;"
        yield f"    for (int l = 0; l < {WORD_BITS}; l++) {{"
        yield from ("      " + line for line in self._asked())
        yield "    }"
        yield "    if (__builtin_expect(tc_out, 0))"
        yield f"      for (int l = 0; l < {WORD_BITS}; l++) (void){self._checked(self._behind('l'))};"
        yield "    for (; tc_own; tc_own &= tc_own - 1) {"
        yield "      const long tc_one = __builtin_ctz(tc_own);"
        yield from ("      " + line for line in self._run(self._behind("tc_one"), self._place(self._behind("tc_one"))))
        yield "    }"
        yield "  }"
        yield f"  for (; {i} < {upper}; {i}++) {{"
        yield from ("    " + line for line in self._run(Variable(i), self._checked(Variable(i)), guarded=True))
        yield "  }"
        yield "}"

    @property
    def stretch(self) -> Stretch:
        """The elements of a thread's own."""
        assert self.statement.stretch is not None
        return self.statement.stretch

    @property
    def _subscript(self) -> Gather:
        return chosen(self.statement, self.stretch)

    def _behind(self, number: str) -> LoopExpr:
        return Operation("+", (Variable(self.loop.iterator), Variable(number)))

    def _place(self, iteration: LoopExpr) -> str:
        """Where data send an instance, which is outside of the tensor perhaps."""
        return self._at(iteration).subscript(self._subscript.subscript)

    def _checked(self, iteration: LoopExpr) -> str:
        gather = self._subscript
        return self._at(iteration).gathered(gather.tensor, gather.dimension, gather.subscript)

    def _asked(self) -> Iterator[str]:
        """Lines that ask of one instance of a block whether it is the thread's own, and whether it is outside."""
        box = self.scop.storages[self.statement.target].box
        origin, extent = box.origin[self.stretch.dimension], box.extent[self.stretch.dimension]
        short = self._subscript.subscript.dtype.bits <= 32 and origin >= 0 and origin + extent < 1 << 31
        kind, word = ("int", "unsigned int") if short else ("long", "unsigned long")
        yield f"const {kind} tc_place = ({kind})({self._place(self._behind('l'))});"
        yield f"tc_own |= (unsigned int)(({word})(tc_place - ({kind})tc_low) < {self.stretch.width}) << l;"
        yield f"tc_out |= ({word})(tc_place - {origin}) >= {extent};"

    def _run(self, iteration: LoopExpr, place: str, guarded: bool = False) -> Iterator[str]:
        """Lines that run one instance, if it is the thread's own."""
        statement, own = self.statement, self._at(iteration)
        assert statement.reduction is not None
        own = replace(own, known={**own.known, self._subscript: PLACE})
        dtype = self.scop.storages[statement.target].dtype
        target = own.written(statement.target, statement.subscripts)
        value = combine(statement.reduction, load(target, dtype), own.value(statement.value), dtype)
        yield f"const long {PLACE} = {place};"
        guard = f"if ((unsigned long)({PLACE} - tc_low) < {self.stretch.width}) " if guarded else ""
        yield f"{guard}{target} = {store(value, dtype)};"

    def _at(self, iteration: LoopExpr) -> Speller:
        arguments = [substitute(a, self.loop.iterator, iteration) for a in self.call.arguments]
        return self.speller({n: loop_text(a) for n, a in zip(self.statement.indices, arguments, strict=True)})


def sweep_of(loop: For, scop: Scop, speller: Callable[[str, Mapping[str, str]], Speller]) -> Sweep | None:
    """The sweep that a loop is; None where it is none, or data send all of its instances to one place."""
    call = loop.body
    if not isinstance(call, Execute) or loop.step != 1:
        return None
    statement = scop.by_name[call.statement]
    if statement.stretch is None:
        return None
    moving = {n for n, a in zip(statement.indices, call.arguments, strict=True) if loop.iterator in variables(a)}
    names = {e.name for e in walk(statement.subscripts[statement.stretch.dimension]) if isinstance(e, Index)}
    if statement.stretch.index in moving or not names & moving:
        return None
    return Sweep(loop, call, statement, scop, lambda indices: speller(statement.name, indices))
