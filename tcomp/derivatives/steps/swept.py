"""Sweeps backwards: what each step gives to what it reads, and sums of that.  ``sweeps`` says what a sweep is."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from tcomp.derivatives.derivation import statement_of
from tcomp.derivatives.expressions import Adjoint
from tcomp.derivatives.steps.nests import Item, mentioned
from tcomp.derivatives.steps.scatters import Scatters
from tcomp.derivatives.steps.sweeps import Given, Shift, Sweep, count_of, shift_of, with_part
from tcomp.derivatives.text import SPELLINGS, ZERO, Expr, element, range_text, to_syntax, total
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.function import Call, Function, Select, children
from tcomp.grammar.tree.function import Expr as FunctionExpr


class Swept(Scatters):
    """``undone`` has what stands for each statement backwards, by position."""

    def __init__(self, function: Function, wrt: tuple[str, ...], ties: str) -> None:
        super().__init__(function, wrt, ties)
        self.undone: dict[int, list[syntax.Statement]] = {}
        self.sweeps: dict[int, Sweep] = {}
        self.nothing_given: list[syntax.Statement] = []
        """What sweeps keep, before they run."""
        self.swept: dict[int, list[syntax.Statement]] = {}
        """What follows on the sweep that begins with a statement."""

    def behind(self, positions: Sequence[int], depth: int) -> Sequence[Item]:
        sweep = self.sweeps.get(positions[0])
        return self.swept[positions[0]] if sweep is not None and depth == sweep.around else ()

    def sweep(self, sweep: Sweep) -> dict[int, list[syntax.Statement]]:
        """What its statements do to adjoints, by position; what follows on it is in ``swept``."""
        here, statements = sweep.at(), self.function.statements
        given: dict[str, list[Given]] = {tensor: [] for tensor in sweep.writers}
        parts: dict[int, list[syntax.Statement]] = {p: [] for p in sweep.positions}
        taken = {p: self.new(f"taken_{self.adjoints[t]}", self.wide(t)) for t, p in sweep.writers.items()}
        for position, own in taken.items():
            statement, arrays = statements[position], dict[tuple[Expr, str], str]()
            outside: list[Adjoint] = []
            inside: dict[tuple[str, Shift], Expr] = {}
            for adjoint in self.chain(position).push(statement.value, element(own, here)):
                tensor = adjoint.read.tensor
                if tensor not in given:
                    outside.append(adjoint)
                    continue
                shift = shift_of(adjoint.read, statements[sweep.writers[tensor]], sweep)
                assert shift is not None
                value = self.cast(adjoint.value, tensor, statement)
                for guard in reversed(adjoint.guards):
                    value = syntax.Conditional(guard, value, ZERO)
                key = tensor, shift
                inside[key] = total(inside[key], value) if key in inside else value
            for (tensor, shift), value in inside.items():
                kind = self.wide(tensor)
                if value == element(own, here) and kind == self.types[own]:
                    arrays[value, kind] = own
                if (value, kind) not in arrays:
                    arrays[value, kind] = self.new(f"given_{self.adjoints[tensor]}", kind)
                    parts[position].append(statement_of(arrays[value, kind], here, "=", value, ()))
                given[tensor].append(Given(arrays[value, kind], shift, position))
            parts[position] += self.added(position, self.scattered(position, outside))
        kept = {part.array for own in given.values() for part in own}
        for tensor, position in sweep.writers.items():
            later = [part for part in given[tensor] if sweep.is_later(part, position)]
            value = element(self.adjoints[tensor], self.places(position))
            gathered = sweep.gathered(later)
            value = value if gathered is None else total(value, gathered)
            parts[position] = self._taking(taken[position], here, value, parts[position], kept)
            parts[position] = self._with_calls_once(position, here, parts[position])
        self.nothing_given += [
            self._nothing(array, sweep, given)
            for array in dict.fromkeys(part.array for own in given.values() for part in own)
        ]
        self.swept[sweep.positions[0]] = [s for t in sweep.writers for s in self._after(t, sweep, given[t])]
        return parts

    def _taking(
        self, taken: str, here: tuple[Expr, ...], value: Expr, parts: list[syntax.Statement], kept: Collection[str]
    ) -> list[syntax.Statement]:
        """Statements behind the one for the adjoint that they take, or with it in them where one does so once."""
        whole = element(taken, here)
        if len(parts) == 1 and taken not in kept and count_of(parts[0].value, whole) == 1:
            return [replace(parts[0], value=with_part(parts[0].value, whole, value))]
        return [statement_of(taken, here, "=", value, ()), *parts]

    def _with_calls_once(
        self, position: int, here: tuple[Expr, ...], parts: list[syntax.Statement]
    ) -> list[syntax.Statement]:
        """What a statement calls, and several statements in its place would call again, is kept for them."""
        before: list[syntax.Statement] = []
        for call in _calls(self.function.statements[position].value):
            text = to_syntax(call, {})
            if call.dtype.bits < 32 or sum(count_of(s.value, text) > 0 for s in parts) < 2:
                continue
            own = self.new(
                f"{call.intrinsic}_{self.function.statements[position].target}",
                SPELLINGS.get(call.dtype.name, call.dtype.name),
            )
            before.append(statement_of(own, here, "=", text, ()))
            parts = [replace(s, value=with_part(s.value, text, element(own, here))) for s in parts]
        return [*before, *parts]

    def _nothing(self, array: str, sweep: Sweep, given: Mapping[str, Sequence[Given]]) -> syntax.Statement:
        """Zeros in an array of a sweep."""
        parts = [part for own in given.values() for part in own]
        spans = sweep.everywhere(parts)
        ranges = tuple(range_text(index, span) for index, span in zip(sweep.indices, spans, strict=True))
        zero = syntax.Cast("double", ZERO) if self.types[array] == "double" else ZERO
        return statement_of(array, sweep.at(), "=", zero, ranges)

    def _after(self, tensor: str, sweep: Sweep, given: Sequence[Given]) -> Iterator[syntax.Statement]:
        """The adjoint of what a sweep has overwritten, and of elements that it reads only."""
        position, own = sweep.writers[tensor], self.adjoints[tensor]
        places = self.places(position)
        if not sweep.around and not any(
            own in mentioned(s) for p in range(sweep.positions[0]) for s in self.undone.get(p, ())
        ):
            return
        earlier = sweep.gathered([part for part in given if not sweep.is_later(part, position)])
        ranges = tuple(range_text(i, span) for i, span in zip(sweep.indices, sweep.spans, strict=True))
        yield statement_of(own, places, "=", self.zero(tensor) if earlier is None else earlier, ranges)
        everything = sweep.gathered(given)
        if everything is None:
            return
        by_index = {str(place): span for place, span in zip(places, self.box(tensor), strict=True)}
        box = by_index[sweep.indices[0]], by_index[sweep.indices[1]]
        for rectangle in sweep.borders(given, box):
            ranges = tuple(range_text(i, span) for i, span in zip(sweep.indices, rectangle, strict=True))
            yield statement_of(own, places, "+=", everything, ranges)


def _calls(expr: FunctionExpr) -> Iterator[Call]:
    """The calls in an expression that are made whatever it chooses, inner ones last."""
    if isinstance(expr, Call):
        yield expr
    if not isinstance(expr, Select):
        for child in children(expr):
            yield from _calls(child)
