"""What a statement in a block adds to adjoints of what it reads, where it stands: scatters, inside their tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tcomp.derivatives.derivation import statement_of
from tcomp.derivatives.expressions import Adjoint
from tcomp.derivatives.gathering.folds import FOLDS, read_inside
from tcomp.derivatives.steps.inplace import InPlace
from tcomp.derivatives.steps.intervals import interval, lies_in, may_stand_left
from tcomp.derivatives.text import ZERO, Expr, conjunction, name, names_in, range_text, shortest, total
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.function import Expr as FunctionExpr
from tcomp.grammar.tree.function import Function, Read, walk

Target = tuple[str, tuple[Expr, ...]]
"""An adjoint and the subscripts of one of its elements."""


class Scatters(InPlace):
    """``adjoints`` has those of tensors, by name."""

    def __init__(self, function: Function, wrt: tuple[str, ...], ties: str) -> None:
        super().__init__(function, wrt, ties)
        self.adjoints: dict[str, str] = {}

    def contributions(self, position: int, seed: Expr, guards: tuple[Expr, ...] = ()) -> dict[Target, Expr]:
        value = self.function.statements[position].value
        return self.scattered(position, self.chain(position).push(value, seed, guards))

    def scattered(self, position: int, adjoints: Iterable[Adjoint]) -> dict[Target, Expr]:
        """What is added to each element that is read."""
        statement = self.function.statements[position]
        sums: dict[Target, Expr] = {}
        for adjoint in adjoints:
            own = self.adjoints.get(adjoint.read.tensor)
            if own is None:
                continue
            subscripts, tests = self._inside(position, adjoint)
            added = self.cast(adjoint.value, adjoint.read.tensor, statement)
            for guard in reversed((*adjoint.guards, *tests)):
                added = syntax.Conditional(guard, added, ZERO)
            key = own, self.as_target(subscripts, statement)
            sums[key] = total(sums[key], added) if key in sums else added
        return sums

    def added(self, position: int, sums: Mapping[Target, Expr]) -> Iterator[syntax.Statement]:
        for (own, places), added in sums.items():
            others = tuple(self.compared[n] for s in places for n in names_in(s) if n in self.compared)
            yield statement_of(own, places, "+=", added, (*self.ranges(position), *others))

    def _inside(self, position: int, adjoint: Adjoint) -> tuple[tuple[Expr, ...], list[Expr]]:
        """The subscripts of a read, inside its tensor wherever it reads, and what tells whether it does."""
        boundary, box = adjoint.read.boundary, self.box(adjoint.read.tensor)
        found: list[Expr] = []
        tests: list[Expr] = []
        pairs = zip(adjoint.read.subscripts, adjoint.subscripts, box, strict=True)
        for own, subscript, span in pairs:
            if not may_stand_left(own):
                there = subscript
                if boundary is not None and boundary.kind in FOLDS:
                    there = read_inside(boundary.kind, subscript, span)
                index = self.fresh("e")
                self.compared[index] = range_text(index, span)
                tests.append(syntax.Binary("==", there, name(index)))
                found.append(name(index))
                continue
            reached = interval(own, self.spans[position])
            if (not adjoint.guards and boundary is None) or lies_in(reached, span):
                found.append(subscript)
            elif boundary is not None and boundary.kind in FOLDS:
                found.append(read_inside(boundary.kind, subscript, span))
            else:
                if boundary is not None:
                    below = syntax.Binary("<=", span[0].syntax(), subscript)
                    tests.append(conjunction([below, syntax.Binary("<=", subscript, span[1].syntax())]))
                found.append(read_inside("repeat_edge", subscript, span))
        for d, (own, (first, _)) in enumerate(zip(adjoint.read.subscripts, box, strict=True)):
            if adjoint.guards and not self._can_be_read(position, own):
                for guard in reversed(adjoint.guards):
                    found[d] = syntax.Conditional(guard, found[d], first.syntax())
        return tuple(map(shortest, found)), tests

    def _can_be_read(self, position: int, subscript: FunctionExpr) -> bool:
        """Whether what a subscript reads lies inside its tensors, without the conditions around it."""
        reads = (e for e in walk(subscript) if isinstance(e, Read) and e.boundary is None)
        for read in reads:
            box = self.symbolic.boxes.get(read.tensor)
            reached = (interval(own, self.spans[position]) for own in read.subscripts)
            if box is None or not all(map(lies_in, reached, box)):
                return False
        return True
