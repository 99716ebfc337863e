"""Random left-hand sides: all elements of a new tensor, or some of one that is there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tcomp.fuzzing.programs.choices import Choices
from tcomp.fuzzing.programs.dataranges import integer_tensors
from tcomp.fuzzing.programs.subscripts import Known, Span, element_inside

_EXTENTS = (1, 2, 3, 4, 5, 7, 8, 13)


@dataclass(frozen=True, slots=True)
class Target:
    """A left-hand side: the subscripts, and the indices in them."""

    name: str
    subscripts: tuple[str, ...]
    spans: tuple[Span, ...]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.subscripts)})" if self.subscripts else self.name


@dataclass(frozen=True, slots=True)
class Targets:
    """Makes left-hand sides over the sizes and tensors of an unfinished program."""

    choices: Choices
    sizes: Mapping[str, int]
    inputs: Mapping[str, Known]
    written: Mapping[str, Known]
    points: int

    def number(self, value: int) -> str:
        """A size symbol of that value, or one less something, or a literal."""
        equal = [n for n, v in self.sizes.items() if v == value]
        near = [f"{n}-{v - value}" for n, v in self.sizes.items() if 0 < v - value <= 2]
        return self.choices.pick([*equal, str(value), *near])

    def extent(self, budget: int) -> int:
        """An extent of at most so much; often one that is there already, or that a window leaves of one."""
        used = [e for known in reversed(list(self.written.values())) for e in known.box.extent]
        windows = [e - 2 for e in used if e > 4] + [e - 1 for e in used if e > 4] + [e // 2 for e in used if e > 4]
        fitting = [e for e in (*used, *windows, *self.sizes.values(), *_EXTENTS) if 0 <= e <= budget]
        extents: list[int] = fitting or [1]
        return self.choices.pick(extents)

    def span(self, name: str, low: int, extent: int) -> Span:
        """An index that begins at ``low``."""
        return Span(name, low, low + extent - 1, self.number(low) if low else "0", self.number(low + extent))

    def new_target(self, name: str, assignment: str) -> Target:
        """A left-hand side that reaches all of a new tensor."""
        budget = self.points // 8
        target = Target(name, (), ())
        for d in range(self.choices.pick([1, 2, 0, 3, 2, 4, 5])):
            extent = self.extent(budget)
            budget //= max(1, extent)
            subscripts, spans = self._new_dimension(f"i{d}", extent, assignment)
            target = Target(name, target.subscripts + subscripts, target.spans + spans)
        return target

    def _new_dimension(self, index: str, extent: int, assignment: str) -> tuple[tuple[str, ...], tuple[Span, ...]]:
        """Subscripts that reach every element of one dimension, or of the two that a packed one becomes."""
        span = self.span(index, 0, extent)
        match self.choices.pick("iiiiiiiirskpgc"):
            case "r":
                return (f"{self.number(extent - 1)} - {index}",), (span,)
            case "s":
                return (index,), (self.span(index, self.choices.pick((1, 2, 3, -1, -2, -7, 100_000)), extent),)
            case "k" if assignment != "=":
                stride = self.choices.integer(1, 3)
                window = self.span(f"{index}w", 0, stride + self.choices.integer(0, 2))
                return (f"{stride}*{index} + {window.name}",), (span, window)
            case "p":
                factor = self.choices.integer(2, 4)
                rounded = -(-extent // factor) * factor
                return (f"{index} / {factor}", f"{index} % {factor}"), (self.span(index, 0, rounded),)
            case "g" if assignment != "=":
                factor = self.choices.integer(2, 4)
                return (self.choices.pick([f"{index} / {factor}", f"{index} % {min(factor, max(1, extent))}"]),), (
                    span,
                )
            case "c":
                return ("0",), ()
            case _:
                return (index,), (span,)

    def existing_target(self, known: Known, assignment: str) -> Target:
        """A left-hand side inside what has been written: all of it, or a part."""
        target = Target(known.name, (), ())
        diagonal = self.choices.chance(10)
        for d, (origin, extent) in enumerate(zip(known.box.origin, known.box.extent, strict=True)):
            first = (known.box.origin[0], known.box.extent[0]) == (origin, extent)
            if d and diagonal and first and "i0" in target.subscripts:
                target = replace(target, subscripts=(*target.subscripts, "i0"))
                continue
            subscript, spans = self._old_dimension(f"i{d}", origin, extent, assignment)
            numbers = integer_tensors(self.inputs)
            if numbers and spans and extent and self.choices.chance(12):
                subscript = element_inside(self.choices, origin, extent, spans, self.choices.pick(numbers))
            target = Target(known.name, (*target.subscripts, subscript), target.spans + spans)
        return target

    def _old_dimension(self, index: str, origin: int, extent: int, assignment: str) -> tuple[str, tuple[Span, ...]]:
        whole = self.span(index, origin, extent)
        match self.choices.pick("iiiiiipcrsk"):
            case "p" if extent > 1:
                low = self.choices.integer(0, extent - 1)
                return index, (self.span(index, origin + low, self.choices.integer(1, extent - low)),)
            case "c" if extent > 0:
                return str(origin + self.choices.integer(0, extent - 1)), ()
            case "r":
                return f"{2 * origin + extent - 1} - {index}", (whole,)
            case "s" if extent > 1:
                return f"2*{index} + {origin}", (self.span(index, 0, (extent + 1) // 2),)
            case "k" if assignment != "=" and extent > 2:
                window = self.span(f"{index}w", 0, 2)
                return f"{index} + {window.name}", (self.span(index, origin, extent - 1), window)
            case _:
                return index, (whole,)
