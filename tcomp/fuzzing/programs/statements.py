"""Random statements: what they write, over which indices, and from what."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tcomp.fuzzing.programs.choices import Choices
from tcomp.fuzzing.programs.exactness import exact_limit
from tcomp.fuzzing.programs.subscripts import Known, Span, element_inside, plain_read, term
from tcomp.fuzzing.programs.values import Expressions, Value, cast
from tcomp.grammar.checking.places import PLACES
from tcomp.grammar.ranges.ranges import Box
from tcomp.values.operators import BOOL, DTYPES, INT32, REDUCTIONS, DType, accumulation_type

_ASSIGNMENTS = ("=", "+=!", "max=!", "min=!", "+=!", "=", "*=!", "+=", "max=", "min=", "*=", *PLACES)
_EXTENTS = (1, 2, 3, 4, 5, 7, 8, 13)
_INTEGER = re.compile(r"(?<![\w./%])(?<![/%] )[1-9]\d*(?![\w.])")
"""A literal that is neither part of a word or of a float, nor a divisor."""

_NO_BOX = Box((), ())
"""Stands for the box of a tensor that cannot be read yet."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A statement to be tried; ``annotation`` declares its target, where that must be an output.

    ``others`` are further targets, those of a place of several indices.
    """

    text: str
    target: str
    annotation: str = ""
    others: tuple[str, ...] = ()

    @property
    def targets(self) -> tuple[str, ...]:
        """What it writes."""
        return (self.target, *self.others)


@dataclass(frozen=True, slots=True)
class Target:
    """A left-hand side: the subscripts, and the indices in them."""

    name: str
    subscripts: tuple[str, ...]
    spans: tuple[Span, ...]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(self.subscripts)})" if self.subscripts else self.name


@dataclass(frozen=True, slots=True)
class Drafter:
    """Makes statements over the sizes and tensors of an unfinished program."""

    choices: Choices
    sizes: Mapping[str, int]
    inputs: Mapping[str, Known]
    written: Mapping[str, Known]
    points: int

    def drafts(self) -> list[Draft]:
        """A statement, or several that only together write all of a new tensor."""
        assignment = self.choices.pick(_ASSIGNMENTS)
        if self.written and self.choices.chance(40):
            known = self.choices.pick(list(self.written.values()))
            if known.dtype != INT32:
                assignment = assignment.removeprefix("arg")
            return [self._statement(self._existing_target(known, assignment), assignment, known)]
        if self.choices.chance(15):
            return self._complementary()
        large = [
            t for t in reversed(list(self.written.values())) if max(t.box.extent, default=0) > 3 and t.dtype != BOOL
        ]
        if large and self.choices.chance(50):
            return [self._window(large[0] if not self.choices.chance(30) else self.choices.pick(large), assignment)]
        name = f"T{len(self.written)}"
        target = self._new_target(name, assignment)
        if not assignment.endswith("!") and assignment != "=":
            return [self._accumulation(target, assignment)]
        return [self._statement(target, assignment, None)]

    def _number(self, value: int) -> str:
        """A size symbol of that value, or one less something, or a literal."""
        equal = [n for n, v in self.sizes.items() if v == value]
        near = [f"{n}-{v - value}" for n, v in self.sizes.items() if 0 < v - value <= 2]
        return self.choices.pick([*equal, str(value), *near])

    def _extent(self, budget: int) -> int:
        used = [e for known in reversed(list(self.written.values())) for e in known.box.extent]
        windows = [e - 2 for e in used if e > 4] + [e - 1 for e in used if e > 4] + [e // 2 for e in used if e > 4]
        fitting = [e for e in (*used, *windows, *self.sizes.values(), *_EXTENTS) if 0 <= e <= budget]
        extents: list[int] = fitting or [1]
        return self.choices.pick(extents)

    def _span(self, name: str, low: int, extent: int) -> Span:
        return Span(name, low, low + extent - 1, self._number(low) if low else "0", self._number(low + extent))

    def _new_target(self, name: str, assignment: str) -> Target:
        budget = self.points // 8
        target = Target(name, (), ())
        for d in range(self.choices.pick([1, 2, 0, 3, 2, 4, 5])):
            extent = self._extent(budget)
            budget //= max(1, extent)
            subscripts, spans = self._new_dimension(f"i{d}", extent, assignment)
            target = Target(name, target.subscripts + subscripts, target.spans + spans)
        return target

    def _new_dimension(self, index: str, extent: int, assignment: str) -> tuple[tuple[str, ...], tuple[Span, ...]]:
        """Subscripts that reach every element of one dimension, or of the two that a packed one becomes."""
        span = self._span(index, 0, extent)
        match self.choices.pick("iiiiiiiirskpgc"):
            case "r":
                return (f"{self._number(extent - 1)} - {index}",), (span,)
            case "s":
                return (index,), (self._span(index, self.choices.pick((1, 2, 3, -1, -2, -7, 100_000)), extent),)
            case "k" if assignment != "=":
                stride = self.choices.integer(1, 3)
                window = self._span(f"{index}w", 0, stride + self.choices.integer(0, 2))
                return (f"{stride}*{index} + {window.name}",), (span, window)
            case "p":
                factor = self.choices.integer(2, 4)
                rounded = -(-extent // factor) * factor
                return (f"{index} / {factor}", f"{index} % {factor}"), (self._span(index, 0, rounded),)
            case "g" if assignment != "=":
                factor = self.choices.integer(2, 4)
                return (self.choices.pick([f"{index} / {factor}", f"{index} % {min(factor, max(1, extent))}"]),), (
                    span,
                )
            case "c":
                return ("0",), ()
            case _:
                return (index,), (span,)

    def _existing_target(self, known: Known, assignment: str) -> Target:
        """A left-hand side inside what has been written: all of it, or a part."""
        target = Target(known.name, (), ())
        diagonal = self.choices.chance(10)
        for d, (origin, extent) in enumerate(zip(known.box.origin, known.box.extent, strict=True)):
            first = (known.box.origin[0], known.box.extent[0]) == (origin, extent)
            if d and diagonal and first and "i0" in target.subscripts:
                target = replace(target, subscripts=(*target.subscripts, "i0"))
                continue
            subscript, spans = self._old_dimension(f"i{d}", origin, extent, assignment)
            numbers = [t for t in self.inputs.values() if t.dtype.is_integer and 0 not in t.box.extent]
            if assignment != "=" and numbers and spans and extent and self.choices.chance(12):
                subscript = element_inside(self.choices, origin, extent, spans, self.choices.pick(numbers))
            target = Target(known.name, (*target.subscripts, subscript), target.spans + spans)
        return target

    def _old_dimension(self, index: str, origin: int, extent: int, assignment: str) -> tuple[str, tuple[Span, ...]]:
        whole = self._span(index, origin, extent)
        match self.choices.pick("iiiiiipcrsk"):
            case "p" if extent > 1:
                low = self.choices.integer(0, extent - 1)
                return index, (self._span(index, origin + low, self.choices.integer(1, extent - low)),)
            case "c" if extent > 0:
                return str(origin + self.choices.integer(0, extent - 1)), ()
            case "r":
                return f"{2 * origin + extent - 1} - {index}", (whole,)
            case "s" if extent > 1:
                return f"2*{index} + {origin}", (self._span(index, 0, (extent + 1) // 2),)
            case "k" if assignment != "=" and extent > 2:
                window = self._span(f"{index}w", 0, 2)
                return f"{index} + {window.name}", (self._span(index, origin, extent - 1), window)
            case _:
                return index, (whole,)

    def _complementary(self) -> list[Draft]:
        """Two or three assignments that write the elements of a new tensor in turn."""
        target = self._new_target(f"T{len(self.written)}", "=")
        parts = self.choices.integer(2, 3)
        fresh = self._span("z", 0, self.choices.integer(1, 8))
        interleaved = self.choices.chance(50)
        dtype = DTYPES[self.choices.pick(["float32", "int32", "float64"])]
        drafts = []
        for part in range(parts):
            subscript, spans = (f"{parts}*z + {part}", (fresh,)) if interleaved else (str(part), ())
            full = Target(target.name, (*target.subscripts, subscript), target.spans + spans)
            drafts.append(self._statement(full, "=", Known(target.name, dtype, _NO_BOX, 0.0), fresh=True))
        return drafts

    def _window(self, known: Known, assignment: str) -> Draft:
        """A stencil, a pooling or the like: a new tensor whose elements each need several neighbours in an old one."""
        reduction = assignment.rstrip("!=") or None
        indices: list[str] = []
        clauses: list[str] = []
        accesses: list[list[str]] = [[], [], []]
        count = 1
        for d, (origin, extent) in enumerate(zip(known.box.origin, known.box.extent, strict=True)):
            size = self.choices.integer(1, 3) if extent > 3 else 1
            stride = self.choices.integer(1, 2) if size > 1 else 1
            indices.append(f"i{d}")
            clauses.append(f"i{d} in 0:{self._number((extent - size) // stride + 1)}")
            start = f"{stride}*i{d} + {origin}" if stride > 1 or origin else f"i{d}"
            if reduction is not None and size > 1:
                clauses.append(f"r{d} in 0:{size}")
                count *= size
                start += f" + r{d}"
                size = 1
            for number, subscripts in enumerate(accesses):
                subscripts.append(f"{start} + {min(number, size - 1)}" if size > 1 else start)
        name = f"T{len(self.written)}"
        reads = [Value(f"{known.name}({', '.join(a)})", known.dtype, known.bound) for a in accesses]
        expressions = Expressions(self.choices, [], (), ())
        value = reads[0] if reduction is not None else expressions.total(reads)
        if reduction in ("+", "*"):
            limit = 2.0 if reduction == "*" else exact_limit(value.dtype) / count
            value = value if value.bound <= limit else value.tame()
        others = self._others(name, sum(clause.startswith("r") for clause in clauses)) if assignment in PLACES else ()
        text = f"{', '.join((name, *others))}({', '.join(indices)}) {assignment.rstrip('!')}"
        text += f"{'!' if reduction else ''} {value.text} where {', '.join(clauses)}"
        return Draft(text, name, others=others)

    def _others(self, name: str, sought: int) -> tuple[str, ...]:
        """Further targets for the indices that a place has behind the first."""
        return tuple(f"{name}_{number}" for number in range(1, sought))

    def _accumulation(self, target: Target, assignment: str) -> Draft:
        """Accumulates into an output that the caller gives, which must be declared."""
        dtype = DTYPES[self.choices.pick(["float32", "float64", "int32", "float16", "bfloat16", "int8", "uint8"])]
        box = Known(target.name, dtype, _NO_BOX, 3.0)
        draft = self._statement(target, assignment, box, fresh=True)
        extents = [str(s.high + 1) for s in target.spans if s.name in target.subscripts]
        plain = len(extents) == len(target.subscripts) and all(s.low == 0 for s in target.spans)
        dims = f"({','.join(extents)})" if plain and extents else ""
        annotation = f"{dtype}{dims} {target.name}" if plain else ""
        return replace(draft, annotation=annotation)

    def _statement(self, target: Target, assignment: str, known: Known | None, fresh: bool = False) -> Draft:
        """A statement; ``known`` is its target where that has a type, ``fresh`` says that it cannot be read yet."""
        reduction = assignment.rstrip("!=") or None
        spans: list[Span] = list(target.spans)
        others: tuple[str, ...] = ()
        if reduction is not None:
            spans = self._reduced(spans)
        if assignment in PLACES:
            first, *more = spans[len(target.spans) :] or [self._span("r0", 0, self._extent(8))]
            sought = [first, *more] if known is None else [first]
            spans, others = [*target.spans, *sought], self._others(target.name, len(sought))
        readable = {**dict(reversed(list(self.written.items()))), **self.inputs}
        if fresh and known is not None:
            readable.pop(known.name, None)
        readable = {n: t for n, t in readable.items() if 0 not in t.box.extent or any(s.high < s.low for s in spans)}
        last_first = tuple(reversed(spans)) if reduction is not None else tuple(spans)
        symbols = [*self.sizes]
        given, named = self._integer_lets(last_first)
        expressions = Expressions(self.choices, list(readable.values()), (*last_first, *named), symbols)
        lets = self._lets(expressions)
        given += [f"{let.text} = {value.text}" for let, value in lets]
        expressions = replace(expressions, lets=[let for let, _ in lets])
        value = expressions.value(self.choices.integer(0, 3))
        value = _bounded(value, reduction, spans, target)
        clauses = [*self._clauses(target, spans, value, expressions), *given]
        text = value.text
        if known is not None and assignment not in PLACES and self._narrows(value.dtype, known.dtype, reduction):
            value = cast(value, known.dtype)
            text = f"{known.dtype}({text})"
        if others:
            target = replace(target, name=", ".join((target.name, *others)))
        statement = f"{target} {assignment} {text}"
        if clauses:
            statement += f" where {', '.join(clauses)}"
        return Draft(self._respelled(statement), target.name.partition(",")[0], others=others)

    def _integer_lets(self, spans: Sequence[Span]) -> tuple[list[str], list[Span]]:
        """Names for integer expressions over indices, as clauses and as what subscripts may hold."""
        if not spans or not self.choices.chance(12):
            return [], []
        found = term(self.choices, spans, ())
        return [f"at = {found.text}"], [Span("at", found.low, found.high, "", "")]

    def _lets(self, expressions: Expressions) -> list[tuple[Value, Value]]:
        """Names for values, with the values; later ones may use earlier ones."""
        lets: list[tuple[Value, Value]] = []
        for number in range(self.choices.pick((0, 0, 0, 0, 1, 2))):
            value = replace(expressions, lets=[let for let, _ in lets]).value(self.choices.integer(0, 2))
            lets.append((replace(value, text=f"held{number}"), value))
        return lets

    def _respelled(self, statement: str) -> str:
        """The statement with some of its integers written as size symbols that have their values."""

        def change(match: re.Match[str]) -> str:
            equal = [name for name, value in self.sizes.items() if value == int(match[0])]
            return self.choices.pick(equal) if equal and self.choices.chance(30) else match[0]

        return _INTEGER.sub(change, statement)

    def _narrows(self, found: DType, wanted: DType, reduction: str | None) -> bool:
        if found == wanted:
            return False
        accumulated = accumulation_type(wanted) if reduction in ("+", "*") else wanted
        wider = (found.is_float and not accumulated.is_float) or found.bits > accumulated.bits
        return wider or accumulated.kind in ("uint", "bool") or not accumulated.is_float

    def _reduced(self, spans: Sequence[Span]) -> list[Span]:
        """The indices with up to three reduction indices, some over triangles."""
        result = list(spans)
        budget = self.points
        for s in spans:
            budget //= max(1, s.high - s.low + 1)
        for d in range(self.choices.integer(0 if spans else 1, 3)):
            name = f"r{d}"
            extent = self._extent(max(1, budget))
            budget //= max(1, extent)
            span = self._span(name, 0, extent)
            outer = self.choices.pick(result) if result else None
            if outer is not None and outer.low >= 0 and self.choices.chance(15):
                span = self._triangle(name, outer)
            result.append(span)
        return result

    def _triangle(self, name: str, outer: Span) -> Span:
        most = outer.high
        return self.choices.pick(
            [
                Span(name, 0, most, "0", f"{outer.name}+1"),
                Span(name, 0, most - 1, "0", outer.name),
                Span(name, outer.low, most, outer.name, str(most + 1)),
                Span(name, 0, most - outer.low, "0", f"{most + 1}-{outer.name}"),
                Span(name, 0, most // 2, "0", f"{outer.name}/2+1"),
                Span(name, 0, min(most, 2), "0", f"min({outer.name}+1, 3)"),
                Span(name, 0, 2, "0", f"{outer.name}%3+1"),
            ]
        )

    def _clauses(self, target: Target, spans: Sequence[Span], value: Value, expressions: Expressions) -> list[str]:
        clauses = []
        for s in spans:
            appears = any(f"{mark}{s.name}{end}" in value.text for mark in "( " for end in ",) ")
            if not appears or s.lower != "0" or not self.choices.chance(30):
                clauses.append(f"{s.name} in {s.lower}:{s.upper}")
        numbers = [t for t in expressions.tensors if 0 not in t.box.extent and t.box.extent]
        if numbers and self.choices.chance(5):
            tensor = self.choices.pick(numbers)
            clauses.append(f"exists {plain_read(self.choices, tensor, spans, ())}")
        return clauses


def _bounded(value: Value, reduction: str | None, spans: Sequence[Span], target: Target) -> Value:
    """The value, tamed if what it is reduced to could round."""
    if reduction not in ("+", "*"):
        return value
    assert reduction in REDUCTIONS
    count = 1
    plain = set(target.subscripts)
    for s in spans:
        if s.name not in plain or len(plain) < len(target.subscripts):
            count *= max(1, s.high - s.low + 1)
    limit = exact_limit(value.dtype)
    if reduction == "+":
        return value if value.bound * count <= limit else value.tame()
    if value.bound > 1 and count > 10:
        tamed = value.tame()
        return Value(
            f"clamp({tamed.text}, -1, 1)", tamed.dtype, max(1.0, tamed.bound if tamed.dtype.kind == "uint" else 1)
        )
    return value if value.bound <= 5 else value.tame()
