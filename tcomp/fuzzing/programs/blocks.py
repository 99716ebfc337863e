"""Random blocks of steps: in place, slice by slice, and element by element."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tcomp.fuzzing.programs.statements import Draft, Drafter
from tcomp.fuzzing.programs.subscripts import Known, Span, inside, shifted
from tcomp.fuzzing.programs.targets import Target
from tcomp.fuzzing.programs.values import Value
from tcomp.grammar.ranges.ranges import Box
from tcomp.values.operators import BOOL, DTYPES, DType

_TYPES = ("float32", "int32", "float64", "int16", "float16")
_IN_PLACE = ("=", "=", "+=", "max=", "min=")
_FEW = 4
"""Steps of a block, and more."""

_KNOWN_BOUND = 3.0
"""What values are brought into: those of one step are what the next one starts from."""


class Blocks:
    """Makes blocks of steps over what an unfinished program has."""

    def __init__(self, drafter: Drafter) -> None:
        self._drafter = drafter
        self._choices = drafter.choices

    def drafts(self) -> list[Draft]:
        """A block, and what must be written before it."""
        old = [t for t in self._drafter.written.values() if t.dtype != BOOL and t.box.extent and 0 not in t.box.extent]
        match self._choices.pick("pse"):
            case "p" if old:
                return [self._in_place(self._choices.pick(old))]
            case "e":
                return self._by_elements()
            case _:
                return self._by_slices()

    def _step(self, name: str, low: int) -> Span:
        count = self._choices.integer(1, _FEW)
        return Span(name, low, low + count - 1, str(low), str(low + count))

    def _in_place(self, known: Known) -> Draft:
        """Statements that write what is there already, anew in each step or a slice in each."""
        step, short = (
            self._step("t", self._choices.integer(0, 2)),
            [d for d, e in enumerate(known.box.extent) if e <= 8],
        )
        sliced = self._choices.pick(short) if short and self._choices.chance(40) else None
        if sliced is not None:
            origin, extent = known.box.origin[sliced], known.box.extent[sliced]
            step = Span("t", origin, origin + extent - 1, str(origin), str(origin + extent))
        inner = self._step("c", 0) if self._choices.chance(25) else None
        drafter = replace(self._drafter, steps=(step,) if inner is None else (step, inner))
        lines = []
        for _ in range(self._choices.integer(1, 2)):
            assignment = self._choices.pick(_IN_PLACE)
            target = drafter.existing_target(known, assignment)
            if sliced is not None and self._choices.chance(70):
                target = _with_step(target, sliced, step.name)
            lines.append(drafter.statement(target, assignment, known).text)
        if inner is not None:
            where = self._choices.integer(0, len(lines) - 1)
            lines[where:] = [_block(inner, lines[where:])]
        return Draft(_block(step, lines), known.name)

    def _by_slices(self) -> list[Draft]:
        """A new tensor with the step in front: a first slice, and each other one from those before it."""
        dtype, name = DTYPES[self._choices.pick(_TYPES)], f"T{len(self._drafter.written)}"
        extents = [self._choices.pick((1, 2, 3, 5, 8, 17, 33)) for _ in range(self._choices.integer(0, 2))]
        spans = tuple(Span(f"i{d}", 0, e - 1, "0", str(e)) for d, e in enumerate(extents))
        first, own = Known(name, dtype, Box((), ()), 0.0), tuple(s.name for s in spans)
        base = self._drafter.statement(Target(name, ("0", *own), spans), "=", first, fresh=True)
        step = self._step("t", 1)
        reads = []
        for _ in range(self._choices.integer(1, 2)):
            places = [inside(self._choices, 0, e, spans, ()) for e in extents]
            before = "t - 1" if self._choices.chance(70) else "max(t - 2, 0)"
            reads.append(_read(name, [before, *places], dtype))
        drafter = replace(self._drafter, steps=(step,), recent=tuple(reads))
        target = Target(name, ("t", *own), spans)
        lines = [drafter.statement(target, "=", first, fresh=True).text]
        if self._choices.chance(30):
            lines.append(drafter.statement(target, "+=", first, fresh=True).text)
        return [_typed(base, dtype), Draft(_block(step, lines), name)]

    def _by_elements(self) -> list[Draft]:
        """A table that is filled element by element, behind a first row and a first column."""
        dtype, name = DTYPES[self._choices.pick(_TYPES)], f"T{len(self._drafter.written)}"
        first = Known(name, dtype, Box((), ()), 0.0)
        steps = [Span(s, 1, e, "1", str(e + 1)) for s, e in (("t", self._side()), ("c", self._side()))]
        edges = []
        for position, span in enumerate(steps):
            low = position  # the corner is in the first column
            along = Span("i0", low, span.high, str(low), str(span.high + 1))
            subscripts = ("i0", "0") if position == 0 else ("0", "i0")
            edges.append(self._drafter.statement(Target(name, subscripts, (along,)), "=", first, fresh=True))
        near = (("t - 1", "c"), ("t", "c - 1"), ("t - 1", "c - 1"))
        reads = tuple(_read(name, place, dtype) for place in near if self._choices.chance(80))
        drafter = replace(self._drafter, steps=tuple(steps), recent=reads)
        line = drafter.statement(Target(name, ("t", "c"), ()), "=", first, fresh=True).text
        return [_typed(edges[0], dtype), edges[1], Draft(_block(steps[0], [_block(steps[1], [line])]), name)]

    def _side(self) -> int:
        return self._choices.pick((3, 1, 2, 5, 9, 20, 37))


def _read(name: str, subscripts: Sequence[str], dtype: DType) -> Value:
    return Value(f"{name}({', '.join(subscripts)})", dtype, _KNOWN_BOUND)


def _typed(draft: Draft, dtype: DType) -> Draft:
    """A first statement whose target has a type without a declaration."""
    target, _, value = draft.text.partition(" = ")
    value, where, clauses = value.partition(" where ")
    return replace(draft, text=f"{target} = {dtype}({value}){where}{clauses}")


def _with_step(target: Target, dimension: int, step: str) -> Target:
    """The target with a step for a subscript."""
    gone = target.subscripts[dimension]
    subscripts = (*target.subscripts[:dimension], step, *target.subscripts[dimension + 1 :])
    kept = tuple(s for s in target.spans if s.name not in gone or any(s.name in other for other in subscripts))
    return Target(target.name, subscripts, kept)


def _block(step: Span, lines: Sequence[str]) -> str:
    return f"for {step.name} in {shifted(step.lower, 0)}:{step.upper} {{ {' '.join(lines)} }}"
