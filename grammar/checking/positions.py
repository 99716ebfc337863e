"""``I(n) argmax=! X(n,d)``: where the largest element is, as reductions that there are already.

The largest element is a ``max=!``, and its position the least index at which it stands: a ``min=!``.  So everything
that goes on with a program, the proof and every target, knows nothing of positions.  The first index wins, and NaN
counts as the largest and as the smallest element, as in NumPy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tcomp.errors import CompileError, Diagnostic, SourceText, Span
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.syntax import Expr, Name, Statement
from tcomp.values.operators import INTRINSICS, POSITIONS

NOWHERE_FOUND = 2**31 - 1
"""The position in no elements."""


def with_positions(definition: syntax.Definition, source: SourceText) -> syntax.Definition:
    """The definition with its ``argmax=!`` and ``argmin=!`` written as other reductions.

    Raises CompileError where one has no single index to find.
    """
    if not any(_symbol(item) for item in syntax.statements(definition.body)):
        return definition
    body: list[syntax.Statement | syntax.Loop] = []
    for item in definition.body:
        symbol = _symbol(item) if isinstance(item, Statement) else None
        if isinstance(item, Statement) and symbol:
            body += _Position(definition, item, POSITIONS[symbol], source, tuple(body)).statements()
        else:
            body.append(item)
    return replace(definition, body=tuple(body))


def _symbol(statement: Statement) -> str | None:
    symbol = statement.operator.rstrip("!").removesuffix("=")
    return symbol if symbol in POSITIONS else None


@dataclass(frozen=True, slots=True)
class _Position:
    """One statement that finds a position by the reduction ``extremum``, behind others that may have that already."""

    definition: syntax.Definition
    statement: Statement
    extremum: str
    source: SourceText
    before: tuple[syntax.Statement | syntax.Loop, ...]

    def statements(self) -> Iterator[Statement]:
        own = self.statement
        index, subscripts = self._index(), own.subscripts or ()
        plain = replace(own, declared=None, equivalent=None)
        value, clauses = own.value, own.clauses
        if not (isinstance(value, syntax.Apply) and value.function.name in self._tensors()):
            # Computed once: two loops may round differently.
            held = self._fresh("value")
            yield replace(plain, target=held, subscripts=(*subscripts, index), operator="=")
            value = syntax.Apply(held, (*subscripts, index), own.value.span)
            clauses = tuple(c for c in clauses if isinstance(c, syntax.Range))
        best = self._known_extremum(value)
        if best is None:
            best = self._fresh("best")
            yield replace(plain, target=best, operator=f"{self.extremum}=!", value=value, clauses=clauses)
        extreme: Expr = syntax.Apply(best, subscripts, own.span) if subscripts else best
        is_best = syntax.Binary("==", value, extreme, own.value.span)
        is_nan = syntax.Binary("!=", value, value, own.value.span)
        here = syntax.Binary("||", is_best, is_nan, own.value.span)
        found = syntax.Conditional(here, index, syntax.Number(str(NOWHERE_FOUND), own.value.span), own.value.span)
        if self._type() is not None:
            yield replace(own, operator="min=!", value=found, clauses=clauses)
            return
        first = self._fresh("first")
        yield replace(plain, target=first, operator="min=!", value=found, clauses=clauses)
        read: Expr = syntax.Apply(first, subscripts, own.span) if subscripts else first
        yield replace(own, operator="=", value=syntax.Cast("int64", read, own.value.span), clauses=())

    def _index(self) -> Name:
        own = self.statement
        if not own.operator.endswith("!"):
            message = f"{own.operator} has no position to go on from"
            self._refuse(message, f"write `{own.operator}!`", own.operator_span)
        subscripts = own.subscripts or ()
        for subscript in subscripts:
            if not isinstance(subscript, Name):
                self._refuse(f"what {own.operator} writes has indices as subscripts", None, own.target.span)
        written = {s.name for s in subscripts if isinstance(s, Name)}
        lets = {c.name.name for c in own.clauses if isinstance(c, syntax.Let)}
        ranges = [c.index for c in own.clauses if isinstance(c, syntax.Range)]
        known = written | lets | self._names()
        found: dict[str, Name] = {}
        values = [own.value, *(c.value for c in own.clauses if isinstance(c, syntax.Let))]
        for name in (*ranges, *(n for v in values for n in _in_subscripts(v))):
            if name.name not in known:
                found.setdefault(name.name, name)
        if len(found) != 1:
            which = f"the indices {', '.join(found)}" if found else "no index"
            hint = "find the position along one index, or give the value one index of its own first"
            self._refuse(f"{own.operator} finds the position along one index, not along {which}", hint, own.value.span)
        return next(iter(found.values()))

    def _refuse(self, message: str, hint: str | None, span: Span) -> None:
        raise CompileError(Diagnostic(message, self.source, span, hint))

    def _known_extremum(self, value: Expr) -> Name | None:
        """The tensor that has the extremum already: the largest value is often wanted, too."""
        own = self.statement
        written: set[str] = set()
        for item in reversed(list(syntax.statements(self.before))):
            same = replace(own, target=item.target, operator=f"{self.extremum}=!", declared=None, equivalent=None)
            if replace(item, declared=None, equivalent=None) == same:
                return None if item.target.name in written else item.target
            written.add(item.target.name)
            if written & {n.name for n in _names_in(value)}:
                return None
        return None

    def _type(self) -> str | None:
        """The type that the text declares for the positions."""
        if self.statement.declared is not None:
            return self.statement.declared.type
        outputs = {p.name.name: p.type for p in self.definition.outputs}
        return outputs.get(self.statement.target.name)

    def _tensors(self) -> set[str]:
        definition = self.definition
        own = {p.name.name for p in (*definition.inputs, *definition.outputs)}
        return own | {s.target.name for s in syntax.statements(definition.body)}

    def _names(self) -> set[str]:
        """Names of tensors and sizes."""
        definition = self.definition
        dims = [d for p in (*definition.inputs, *definition.outputs) for d in p.dims or ()]
        dims += [d for s in syntax.statements(definition.body) if s.declared for d in s.declared.dims or ()]
        return self._tensors() | {n.name for d in dims for n in _names_in(d)}

    def _fresh(self, what: str) -> Name:
        name = f"{self.statement.target.name}_{what}"
        while name in self._names() or name in {n.name for i in self.before for n in _written(i)}:
            name += "_"
        return Name(name, self.statement.target.span)


def _written(item: syntax.Statement | syntax.Loop) -> Iterable[Name]:
    return (s.target for s in syntax.statements((item,)))


def _names_in(expr: Expr) -> Iterator[Name]:
    if isinstance(expr, Name):
        yield expr
    if isinstance(expr, syntax.Apply):
        yield expr.function
    for child in syntax.children(expr):
        yield from _names_in(child)


def _in_subscripts(expr: Expr) -> Iterator[Name]:
    """Names in subscripts of tensors."""
    for child in syntax.children(expr):
        is_subscript = isinstance(expr, syntax.Apply | syntax.Boundary) and not (
            isinstance(expr, syntax.Apply) and expr.function.name in INTRINSICS
        )
        if is_subscript:
            yield from (n for n in _names_in(child) if n.name not in INTRINSICS)
        else:
            yield from _in_subscripts(child)
