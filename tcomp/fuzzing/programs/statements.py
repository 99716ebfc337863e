"""Random statements: what they write, over which indices, and from what."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tcomp.fuzzing.programs.dataranges import all_entries, data_range, integer_tensors, orders, rows_of
from tcomp.fuzzing.programs.exactness import exact_limit
from tcomp.fuzzing.programs.subscripts import Known, Span, element_inside, plain_read, term
from tcomp.fuzzing.programs.targets import Target, Targets
from tcomp.fuzzing.programs.values import Expressions, Value, cast
from tcomp.grammar.checking.places import PLACES
from tcomp.grammar.ranges.ranges import Box
from tcomp.values.operators import BOOL, DTYPES, INT32, REDUCTIONS, DType, accumulation_type

_ASSIGNMENTS = ("=", "+=!", "max=!", "min=!", "+=!", "=", "*=!", "+=", "max=", "min=", "*=", *PLACES)
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
class Drafter(Targets):
    """Makes statements over the sizes and tensors of an unfinished program."""

    entries: tuple[tuple[Span, ...], str] | None = None
    """Indices that a statement must have besides those of its target, and a range from data that is one of its."""

    steps: tuple[Span, ...] = ()
    """The indices of the blocks around it."""

    recent: tuple[Value, ...] = ()
    """What earlier steps have written."""

    def drafts(self) -> list[Draft]:
        """A statement, or several that only together write all of a new tensor."""
        assignment = self.choices.pick(_ASSIGNMENTS)
        if self.written and self.choices.chance(40):
            known = self.choices.pick(list(self.written.values()))
            if known.dtype != INT32:
                assignment = assignment.removeprefix("arg")
            return [self.statement(self.existing_target(known, assignment), assignment, known)]
        if self.choices.chance(15):
            return self._complementary()
        integers = integer_tensors({**self.written, **self.inputs})
        if integers and self.choices.chance(15):
            return self._rows(integers) if self.choices.chance(60) else [self._chosen(integers)]
        large = [
            t for t in reversed(list(self.written.values())) if max(t.box.extent, default=0) > 3 and t.dtype != BOOL
        ]
        if large and self.choices.chance(50):
            return [self._window(large[0] if not self.choices.chance(30) else self.choices.pick(large), assignment)]
        name = f"T{len(self.written)}"
        target = self.new_target(name, assignment)
        if not assignment.endswith("!") and assignment != "=":
            return [self._accumulation(target, assignment)]
        return [self.statement(target, assignment, None)]

    def _complementary(self) -> list[Draft]:
        """Two or three assignments that write the elements of a new tensor in turn."""
        target = self.new_target(f"T{len(self.written)}", "=")
        parts = self.choices.integer(2, 3)
        fresh = self.span("z", 0, self.choices.integer(1, 8))
        interleaved = self.choices.chance(50)
        dtype = DTYPES[self.choices.pick(["float32", "int32", "float64"])]
        drafts = []
        for part in range(parts):
            subscript, spans = (f"{parts}*z + {part}", (fresh,)) if interleaved else (str(part), ())
            full = Target(target.name, (*target.subscripts, subscript), target.spans + spans)
            drafts.append(self.statement(full, "=", Known(target.name, dtype, _NO_BOX, 0.0), fresh=True))
        return drafts

    def _chosen(self, integers: Sequence[Known]) -> Draft:
        """A new tensor, declared, whose elements data choose."""
        assignment = self.choices.pick(("=", "+=!", "max=!", "min=!"))
        name, dtype = f"T{len(self.written)}", DTYPES[self.choices.pick(["float32", "int32", "float64", "int8"])]
        extents = [self.extent(16) or 1 for _ in range(self.choices.integer(1, 3))]
        spans = [self.span(f"i{d}", 0, extent) for d, extent in enumerate(extents)]
        subscripts = [s.name for s in spans]
        d = self.choices.integer(0, len(extents) - 1)
        subscripts[d] = element_inside(self.choices, 0, extents[d], spans, self.choices.pick(integers))
        known = Known(name, dtype, _NO_BOX, 0.0)
        draft = self.statement(Target(name, tuple(subscripts), tuple(spans)), assignment, known, fresh=True)
        return replace(draft, text=f"{dtype}({', '.join(map(str, extents))}) {draft.text}")

    def _rows(self, integers: Sequence[Known]) -> list[Draft]:
        """A tensor that says where rows begin, and a statement that runs over the entries of each."""
        rows, number = self.choices.integer(1, 40), len(self.written)
        text, entries = rows_of(self.choices, f"T{number}", rows, integers)
        drafts = [Draft(text, f"T{number}")]
        row, entry = self.span("i0", 0, rows), Span("e", 0, entries - 1, "0", str(entries))
        if self.choices.chance(40):
            number += 1
            drafts.append(Draft(all_entries(f"T{number}", f"T{number - 1}", rows, entries), f"T{number}"))
            name, assignment = f"T{number + 1}", "="
            target, spans = Target(name, ("e",), (entry,)), (row,)
        else:
            name, assignment = f"T{number + 1}", self.choices.pick(("+=!", "max=!", "min=!", "argmax=!"))
            dense = tuple(
                self.span(f"i{d}", 0, self.choices.integer(1, 20)) for d in range(1, self.choices.integer(1, 3))
            )
            target, spans = Target(name, ("i0", *(s.name for s in dense)), (row, *dense)), (entry,)
        given = f"e in T{number}(i0):T{number}(i0 + 1)"
        return [*drafts, replace(self, entries=(spans, given)).statement(target, assignment, None)]

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
            clauses.append(f"i{d} in 0:{self.number((extent - size) // stride + 1)}")
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
        draft = self.statement(target, assignment, box, fresh=True)
        extents = [str(s.high + 1) for s in target.spans if s.name in target.subscripts]
        plain = len(extents) == len(target.subscripts) and all(s.low == 0 for s in target.spans)
        dims = f"({','.join(extents)})" if plain and extents else ""
        annotation = f"{dtype}{dims} {target.name}" if plain else ""
        return replace(draft, annotation=annotation)

    def statement(self, target: Target, assignment: str, known: Known | None, fresh: bool = False) -> Draft:
        """A statement; ``known`` is its target where that has a type, ``fresh`` says that it cannot be read yet."""
        reduction = assignment.rstrip("!=") or None
        spans: list[Span] = list(target.spans)
        others: tuple[str, ...] = ()
        if self.entries is not None:
            spans += self.entries[0]
        elif reduction is not None:
            spans = self._reduced(spans)
        if assignment in PLACES:
            first, *more = spans[len(target.spans) :] or [self.span("r0", 0, self.extent(8))]
            sought = [first, *more] if known is None else [first]
            spans, others = [*target.spans, *sought], self._others(target.name, len(sought))
        readable = {**dict(reversed(list(self.written.items()))), **self.inputs}
        if fresh and known is not None:
            readable.pop(known.name, None)
        readable = {n: t for n, t in readable.items() if 0 not in t.box.extent or any(s.high < s.low for s in spans)}
        last_first = (*(tuple(reversed(spans)) if reduction is not None else tuple(spans)), *self.steps)
        symbols = [*self.sizes]
        given, named = self._integer_lets(last_first)
        expressions = Expressions(self.choices, list(readable.values()), (*last_first, *named), symbols)
        lets = self._lets(expressions)
        given += [f"{let.text} = {value.text}" for let, value in lets]
        expressions = replace(expressions, lets=[*self.recent, *(let for let, _ in lets)])
        value = expressions.value(self.choices.integer(0, 3))
        if self.recent:
            value = expressions.total([value, self.choices.pick(self.recent)])
        value = value.tame() if self.steps else _bounded(value, reduction, spans, target)
        certain = fresh or bool(self.steps) or self.entries is not None
        clauses = [*self._clauses(spans, value, expressions, certain), *given]
        if assignment == "=":
            clauses += orders(self.choices, target.subscripts, spans)
        if self.entries is not None:
            clauses.append(self.entries[1])
        elif self.choices.chance(10) and (reduction is not None or not fresh):
            clauses += self._data_range(spans, readable)
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

    def _data_range(self, spans: Sequence[Span], readable: Mapping[str, Known]) -> list[str]:
        """A further range for an index with a range of numbers, as a clause."""
        plain = [s for s in spans if s.low <= s.high and not any(f"{o.name}" in s.lower + s.upper for o in spans)]
        integers = integer_tensors(readable)
        if not plain or not integers:
            return []
        span = self.choices.pick(plain)
        others = [s for s in spans if s is not span]
        return [data_range(self.choices, span, others, integers)]

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
            extent = self.extent(max(1, budget))
            budget //= max(1, extent)
            span = self.span(name, 0, extent)
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

    def _clauses(self, spans: Sequence[Span], value: Value, expressions: Expressions, certain: bool) -> list[str]:
        """Ranges; of some indices they are left out, unless it is ``certain`` that nothing else says them."""
        clauses = []
        for s in spans:
            appears = any(f"{mark}{s.name}{end}" in value.text for mark in "( " for end in ",) ")
            if certain or not appears or s.lower != "0" or not self.choices.chance(30):
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
