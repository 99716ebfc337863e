"""Derived text of a def with blocks as they stand: what stands for each statement, in the blocks in which it stands."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NoReturn

from tcomp.derivatives.derivation import Derivation, spelling
from tcomp.derivatives.restating.choices import whole_numbers, with_settled_choices
from tcomp.derivatives.steps.intervals import spans_of
from tcomp.derivatives.steps.nests import Item, reversed_loop
from tcomp.derivatives.text import Expr, name, to_syntax
from tcomp.derivatives.tidy import with_repetitions_named
from tcomp.errors import DerivativeError, Diagnostic, UnsaidError
from tcomp.errors import Span as Place
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.function import Expr as FunctionExpr
from tcomp.grammar.tree.function import Function, Step

Written = Callable[[int], Iterable[syntax.Statement]]
"""What stands in the text for the statement at a position."""


class Nested(Derivation):
    """``spans`` has the intervals of the indices of each statement, ``types`` those of tensors, derived ones, too."""

    def __init__(self, function: Function, wrt: tuple[str, ...], ties: str) -> None:
        super().__init__(function, wrt, ties)
        self.spans = [*map(spans_of, function.statements, self.symbolic.ranges)]
        self.written = list(syntax.statements(function.definition.body))
        if len(self.written) != len(function.statements):
            self.refuse(function.statements[0].span, "places with several coordinates have no derivative in blocks")
        self.types = {t.name: spelling(t) for t in function.tensors.values()}
        dims = {p.name.name: p.dims for p in function.definition.outputs}
        self.dims = dims | {s.target.name: s.declared.dims for s in self.written if s.declared is not None}

    def refuse(self, span: Place, message: str) -> NoReturn:
        raise DerivativeError(Diagnostic(message, self.function.source, span, "write the derivative as a def"))

    def nest(self, written: Written, *, backwards: bool = False) -> list[Item]:
        """What stands for each statement, in the blocks of the def or in blocks that take their steps backwards."""
        return self._nest(range(len(self.function.statements)), 0, written, backwards)

    def _nest(self, positions: Sequence[int], depth: int, written: Written, backwards: bool) -> list[Item]:
        groups: list[list[int]] = []
        steps: Step | None = None
        for position in positions:
            own = self.function.statements[position].steps[depth : depth + 1]
            if own and steps is not None and own[0].number == steps.number:
                groups[-1].append(position)
            else:
                groups.append([position])
            steps = own[0] if own else None
        found: list[Item] = []
        for group in reversed(groups) if backwards else groups:
            around = self.function.statements[group[0]].steps[depth : depth + 1]
            if not around:
                found += written(group[0])
                continue
            body = self._nest(group, depth + 1, written, backwards)
            if body:
                found.append(self._loop(around[0], group[0], body, backwards))
            found += self.behind(group, depth) if backwards else ()
        return found

    def behind(self, positions: Sequence[int], depth: int) -> Sequence[Item]:
        """What follows on a block that runs backwards, which is so deep in others and has some statements."""
        return ()

    def _loop(self, step: Step, position: int, body: Sequence[Item], backwards: bool) -> syntax.Loop:
        lower, upper = self.bounds_of(step, position)
        loop = syntax.Loop(name(step.index), lower, upper, tuple(body))
        return reversed_loop(loop) if backwards else loop

    def bounds_of(self, step: Step, position: int) -> tuple[Expr, Expr]:
        """The range of a step, half-open."""
        if step.lower is not None and step.upper is not None:
            return self._text(step.lower), self._text(step.upper)
        known = self.symbolic.ranges[position].get(step.index)
        if known is None:
            message = f"the range of {step.index} cannot be said for all sizes, so there is no derivative"
            raise UnsaidError(Diagnostic(message, self.function.source, step.span, "add a range"))
        return known[0].syntax(), (known[1] + 1).syntax()

    def written_out(
        self,
        wanted: str,
        inputs: Sequence[syntax.Parameter],
        results: Sequence[syntax.Parameter],
        parts: Sequence[tuple[str, Sequence[Item]]],
    ) -> str:
        """The text of a def, of parts with a comment each."""
        head = syntax.Definition(name(wanted), tuple(inputs), tuple(results), ())
        lines = [str(head).removesuffix("\n}")]
        begun = {p.name.name for p in results}
        types = {own: spelling(tensor) for own, tensor in self.function.tensors.items()} | self.types
        for comment, items in parts:
            lines += [f"{syntax.INDENT}# {comment}"] if items else []
            for item in items:
                settled = with_settled_choices(item, whole_numbers(self.function), types)
                named = with_repetitions_named(self._declared(settled, begun), self.taken)
                lines.append(textwrap.indent(str(named), syntax.INDENT))
        return "\n".join([*lines, "}"]) + "\n"

    def _declared(self, item: Item, begun: set[str]) -> Item:
        """The first statement of each tensor says its type."""
        if isinstance(item, syntax.Loop):
            return replace(item, body=tuple(self._declared(own, begun) for own in item.body))
        target = item.target.name
        if target in begun:
            return replace(item, declared=None)
        begun.add(target)
        return replace(item, declared=syntax.Declared(self.types[target], self.dims.get(target)))

    @staticmethod
    def _text(expr: FunctionExpr) -> Expr:
        return to_syntax(expr, {})
