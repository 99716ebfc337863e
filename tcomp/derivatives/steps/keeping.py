"""What the forward pass keeps of what blocks overwrite: values that a derivative reads, and that are lost by then.

Which are read is asked element by element, for all sizes (Hascoët, Naumann and Pascual, "To be recorded analysis in
reverse-mode automatic differentiation", 2005): a statement that may be the first to overwrite what one before it reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tcomp.derivatives.derivation import statement_of
from tcomp.derivatives.steps.instances import Element
from tcomp.derivatives.steps.relative import begins
from tcomp.derivatives.steps.sweeps import sweeps_of
from tcomp.derivatives.steps.undoing import Undoing
from tcomp.derivatives.text import ZERO, Expr, element, name, to_syntax
from tcomp.derivatives.versions import are_disjoint
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.function import Index, Read, walk


class Keeping(Undoing):
    """``kept`` has the arrays with what statements overwrite, by position."""

    kept: dict[int, str]

    def decide(self) -> None:
        """Find out what is kept, and make what stands for each statement backwards.

        A derivative that reads a result may read nothing else that is put back with what was overwritten.
        """
        swept = sweeps_of(self.function, self.adjoints)
        self.sweeps = {p: sweep for sweep in swept for p in sweep.positions}
        taken, types, compared, positive = set(self.taken), dict(self.types), dict(self.compared), set(self.positive)
        while True:
            others = (p for p in range(len(self.function.statements)) if p not in self.sweeps)
            self.undone = {p: list(self.undo(p)) for p in others}
            for sweep in swept:
                self.undone |= self.sweep(sweep)
            lost = self._lost()
            mixed = {p for p in lost & self.by_result if self._reads_what_it_overwrites(p)}
            if not mixed:
                break
            self.by_result -= mixed
            self.taken, self.types, self.compared, self.positive = (
                set(taken),
                dict(types),
                dict(compared),
                set(positive),
            )
            self.nothing_given = []
        statements = self.function.statements
        self.kept = {p: self.new(f"was_{statements[p].target}", self.types[statements[p].target]) for p in sorted(lost)}

    def _lost(self) -> set[int]:
        """The statements that overwrite what a derivative reads."""
        read: dict[str, set[Element]] = {}
        for position in self.undone:
            for tensor, own in self._read(position):
                read.setdefault(tensor, set()).add(own)
        found = set()
        for position, statement in enumerate(self.function.statements):
            elements = read.get(statement.target, ())
            if elements and self._overwrites(position) and any(self.instances.is_lost(e, position) for e in elements):
                found.add(position)
        return found

    def _read(self, position: int) -> Iterator[tuple[str, Element]]:
        """The elements that the derivative of a statement reads of what the def writes."""
        statement = self.function.statements[position]
        known = {
            to_syntax(e, {}): Element(position, e.subscripts)
            for expr in statement.expressions()
            for e in walk(expr)
            if isinstance(e, Read) and e.boundary is None
        }
        known[self.old(position)] = Element(position, statement.subscripts, position in self.by_result)
        for expr, tensor in self._mentions(position):
            yield tensor, known.get(expr, Element(position, None))

    def _mentions(self, position: int) -> Iterator[tuple[Expr, str]]:
        """The places in what stands for a statement backwards that read a tensor of the def."""
        for statement in self.undone[position]:
            yield from self._mentioned((statement.value, *(statement.subscripts or ()), *_bounds(statement)))

    def _mentioned(self, exprs: Iterable[Expr]) -> Iterator[tuple[Expr, str]]:
        for expr in exprs:
            own: str | None = None
            match expr:
                case syntax.Apply():
                    own = expr.function.name
                case syntax.Name():
                    own = expr.name
                case syntax.Boundary():
                    own = expr.arguments[0].name if isinstance(expr.arguments[0], syntax.Name) else None
            if own is not None and own in self.function.tensors:
                yield expr, own
            yield from self._mentioned(syntax.children(expr))

    def _reads_what_it_overwrites(self, position: int) -> bool:
        target = self.function.statements[position].target
        return any(tensor == target and not own.behind for tensor, own in self._read(position))

    def filled(self, tensor: str) -> syntax.Statement:
        """Some value for elements that nobody reads, but that are kept."""
        kind = self.types[tensor]
        value = ZERO if kind == "float" else syntax.Cast(kind, ZERO if kind == "double" else syntax.Number("0"))
        return self.all_of(tensor, tensor, lambda indices: value)

    def _overwritten(self, position: int) -> tuple[tuple[Expr, ...], tuple[Expr, ...], tuple[syntax.Range, ...]]:
        """What a statement may overwrite in a step: its subscripts, those where it is kept, and ranges.

        It is kept by steps and indices, each counted from where its part begins.  Where data choose it, that is all of
        the tensor.
        """
        statement = self.function.statements[position]
        outer = () if statement.scatters else self.outer(position)
        parts = begins(statement, outer)
        counts = parts.keys() - self.widened(position)

        def counted(index: str) -> Expr:
            return syntax.Binary("-", name(index), self._text(parts[index])) if index in counts else name(index)

        kept = tuple(map(counted, (*(step.index for step in statement.steps), *outer)))
        if statement.scatters:
            indices, ranges = self.whole(statement.target)
            return indices, (*kept, *indices), ranges
        return self.places(position), kept, self.ranges(position, outer=True)

    def keep(self, position: int) -> syntax.Statement:
        places, kept, ranges = self._overwritten(position)
        old = self.old(position)
        if self.function.statements[position].scatters:
            old = element(self.function.statements[position].target, places)
        return statement_of(self.kept[position], kept, "=", old, ranges)

    def backwards(self, position: int) -> list[syntax.Statement]:
        """What stands for a statement backwards: values as they were, and what it does to adjoints."""
        if position not in self.kept:
            return self.undone[position]
        places, kept, ranges = self._overwritten(position)
        value = element(self.kept[position], kept)
        operator = "=" if self.function.statements[position].scatters else self.sets(position)
        back = statement_of(self.function.statements[position].target, places, operator, value, ranges)
        undone = self.undone[position]
        return [*undone, back] if position in self.by_result else [back, *undone]

    def _overwrites(self, position: int) -> bool:
        """Whether a statement may write what was written before: by another one, or by itself in an earlier step."""
        statement, function = self.function.statements[position], self.function
        for other, found in enumerate(function.statements):
            around = bool(statement.steps and found.steps and statement.steps[0].number == found.steps[0].number)
            before = other != position and found.target == statement.target and (other < position or around)
            if before and not are_disjoint(function, self.symbolic, position, other):
                return True
        plain = {s.name for s in statement.subscripts if isinstance(s, Index)}
        return not {step.index for step in statement.steps} <= plain


def _bounds(statement: syntax.Statement) -> Iterator[Expr]:
    for clause in statement.clauses:
        if isinstance(clause, syntax.Range):
            yield from (clause.lower, clause.upper)
