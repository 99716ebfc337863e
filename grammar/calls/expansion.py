"""One call, replaced by the statements of the def that it calls."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace

from tcomp.errors import SourceText
from tcomp.grammar.calls.arguments import Argument, Bound, Called, Extents
from tcomp.grammar.calls.renaming import Declare, Stands, functions_of, moved, names_read, words_of
from tcomp.grammar.checking.check import Checker
from tcomp.grammar.checking.names import is_function
from tcomp.grammar.ranges.symbolic import Span as Coordinates
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.function import Agreement, Function, Inlined, Passed, Size, Tensor, map_children
from tcomp.grammar.tree.function import Expr as FunctionExpr
from tcomp.grammar.tree.syntax import Expr, Name, Statement

MOST_STATEMENTS = 20_000
"""A definition has no more of them, calls inlined."""

UNWANTED = "_"
"""Stands for a result that nobody needs."""

_LETTERS = "ijklmnopqrstuvw"


class Flat:
    """A definition without its calls, as far as it has been made; ``names`` are what may not be used again."""

    def __init__(self, definition: syntax.Definition, source: SourceText, defs: Collection[str]) -> None:
        self.definition = definition
        self.checker = Checker(definition, source, defs)
        self.extents = Extents(self.checker)
        self.words = words_of(definition)
        environment = self.checker.environment
        self.constants = frozenset(environment.constants)
        self.names = {p.name.name for p in (*definition.inputs, *definition.outputs)} | {*environment.sizes}
        self.names |= {n.name for s in syntax.statements(definition.body) for n in (s.target, *s.others)}
        self.body: list[syntax.Statement | syntax.Loop] = []
        self.calls: list[Inlined] = []
        self.agreements: list[Agreement] = []
        self.passed: list[Passed] = []

    @property
    def position(self) -> int:
        """How many statements there are."""
        return len(self.checker.statements)

    def add(self, item: Statement | syntax.Loop) -> None:
        """The next statement, or block of them."""
        if len(self.body) >= MOST_STATEMENTS:
            message = f"with all calls inlined, {self.definition.name} has more than {MOST_STATEMENTS} statements"
            self.checker.report.error(message, self.definition.name.span)
            self.checker.report.raise_errors()
        added = self.checker.add(item)
        self.names |= {s.target.name for s in syntax.statements(added)}
        self.body.extend(added)

    def fresh(self, wanted: str) -> str:
        """A name that means nothing here."""
        name, number = wanted, 2
        while name in self.words or name in self.names or is_function(name):
            name, number = f"{wanted}_{number}", number + 1
        self.names.add(name)
        return name

    def function(self) -> Function | None:
        """The whole program; None where a def that is called is wrong.  Raises CompileError with all errors."""
        self.checker.close()
        if self.checker.is_wrong:
            return None
        made = self.checker.whole(replace(self.definition, body=tuple(self.body)))
        own = self.definition.span
        return replace(
            made,
            # The defs that are called report their own.
            warnings=tuple(w for w in made.warnings if w.span is None or own.start <= w.span.start < own.end),
            inlined=tuple(self.calls),
            agreements=tuple(self.agreements),
            passed=tuple(sorted(self.passed, key=lambda passed: passed.position)),
        )


@dataclass(frozen=True, slots=True)
class _Result:
    """Where a result of a call goes: straight to ``name``, or from a tensor of its own by a copy."""

    name: Name
    tensor: Tensor
    box: tuple[Coordinates, ...]
    own: str
    is_copied: bool


class Expansion:
    """Adds what a call stands for to a definition."""

    def __init__(self, flat: Flat, called: Called, value: syntax.Apply, bound: Bound) -> None:
        self.flat = flat
        self.called = called
        self.function = called.function
        self.value = value
        self.bound = bound
        self.report, self.environment = flat.checker.report, flat.checker.environment

    def add(self, targets: tuple[Name, ...]) -> None:
        """Add the statements, which write ``targets``; errors go to the report."""
        if not self._has_its_functions():
            return
        results: list[_Result] = []
        for target, tensor in zip(targets, self.function.outputs, strict=True):
            box = self.called.ranges.boxes.get(tensor.name)
            if box is None:
                name = self.function.name
                message = f"the extents of the result {tensor.name} of `{name}` are no formulas of its sizes"
                hint = f"declare them: `-> ({tensor.dtype}(...) {tensor.name})`"
                self.report.error(message, self.value.span, hint, ("the result is here", tensor.span))
                return
            results.append(self._result(target, tensor, box))
        self.flat.agreements += self.bound.agreements
        for argument in (*self.bound.arguments.values(), *self.bound.contents.values()):
            self._note_passed(argument)
        stands = self._stands(results)
        self._inherit(stands, self._statements(results, stands))
        for result in results:
            if result.name.name != UNWANTED:
                self._finish(result, stands)

    def _has_its_functions(self) -> bool:
        """Report a tensor of the caller with the name of a built-in function that the def calls."""
        called = self.function
        wanted = functions_of(called.definition) - {*called.tensors}
        for name in self.environment.tensors:
            if name in wanted:
                message = f"`{called.name}` calls the built-in function `{name}`, which is a tensor here"
                note = (f"`{called.name}` is defined here", called.definition.name.span)
                self.report.error(message, self.value.span, f"give the tensor `{name}` another name", note)
                return False
        return True

    def _result(self, name: Name, tensor: Tensor, box: tuple[Coordinates, ...]) -> _Result:
        """A name that holds something already, or whose type or coordinates are others, gets a copy."""
        entry = self.environment.tensors.get(name.name)
        passed = (*self.bound.arguments.values(), *self.bound.contents.values())
        is_passed = any(argument.tensor == name.name for argument in passed)
        is_new = entry is None or not (entry.written or is_passed)
        fits = entry is None or not entry.declared or (tensor.dims is None and entry.dtype == tensor.dtype)
        starts_at_0 = not any(first.terms for first, _ in box)
        if name.name != UNWANTED and is_new and fits and starts_at_0:
            return _Result(name, tensor, box, name.name, False)
        return _Result(name, tensor, box, self.flat.fresh(f"{self.function.name}_{tensor.name}"), name.name != UNWANTED)

    def _note_passed(self, argument: Argument) -> None:
        """Have the extents of a tensor confirmed that only inference knows."""
        tensor = self.environment.tensors[argument.tensor] if argument.tensor is not None else None
        if tensor is not None and tensor.rank and tensor.role != "input":
            origin = tuple(self.flat.extents.typed(o.syntax()) for o in argument.origin)
            extents = tuple(self.flat.extents.typed(e.syntax()) for e in argument.extents)
            self.flat.passed.append(Passed(self.flat.position, tensor.name, origin, extents, argument.span))

    def _stands(self, results: list[_Result]) -> Stands:
        called, arguments = self.function, self.bound.arguments
        tensors = {t.name: Name(self.flat.fresh(f"{called.name}_{t.name}")) for t in called.temporaries}
        tensors |= {r.tensor.name: Name(r.own, syntax.NOWHERE if r.is_copied else r.name.span) for r in results}
        tensors |= {n: Name(a.tensor) for n, a in arguments.items() if a.tensor is not None}
        values = dict(self.bound.sizes)
        applied = functions_of(called.definition)
        for tensor in called.inputs:
            value = arguments[tensor.name].value
            if tensor.role == "const" or value is None:
                continue
            if tensor.name in applied:
                tensors[tensor.name] = self._held(tensor, value)
            else:
                values[tensor.name] = value
        origins = {
            n: tuple(o.syntax() for o in a.origin) for n, a in arguments.items() if any(o.terms for o in a.origin)
        }
        constants = frozenset(t.name for t in called.inputs if t.role == "const")
        fixed = self.flat.constants
        return Stands(tensors, origins, values, constants, frozenset(self.flat.names) | fixed, fixed)

    def _held(self, tensor: Tensor, value: Expr) -> Name:
        """A number in a tensor, for a def that writes the tensor with parentheses."""
        name = Name(self.flat.fresh(f"{self.function.name}_{tensor.name}"), value.span)
        declared = syntax.Declared(tensor.dtype.name, (), value.span)
        self.flat.add(Statement(name, None, "=", value, None, (), value.span, value.span, declared))
        return name

    def _statements(self, results: list[_Result], stands: Stands) -> list[int]:
        """Add the statements that are needed; returns where each of the def's came, or the next one did."""
        called = self.function
        wanted = {r.tensor.name for r in results if r.name.name != UNWANTED}
        needed: list[Statement | syntax.Loop | None] = []
        for item in reversed(called.definition.body):
            needed.append(_needed(item, wanted))
        outputs = {p.name.name: p for p in called.definition.outputs}
        direct = {r.tensor.name: r.name.name for r in results if not r.is_copied}
        written: set[str] = set()

        def declared(statement: Statement) -> syntax.Declared | None:
            own = statement.target.name
            declared, parameter = statement.declared, outputs.get(own)
            if own not in written and parameter is not None and parameter.type is not None:
                dims = parameter.dims if called.tensors[own].dims is not None else None
                declared = syntax.Declared(parameter.type, dims, parameter.span)
            entry = self.environment.tensors.get(direct.get(own, ""))
            if entry is not None and entry.declared:
                declared = None
            written.add(own)
            return declared

        for result in results:
            content = self.bound.contents.get(result.tensor.name)
            if content is not None and result.tensor.name in wanted:
                self.flat.add(self._continued(result, content, stands, declared))
        places: list[int] = []
        for item, kept in zip(called.definition.body, reversed(needed), strict=True):
            places += [self.flat.position] * len(list(syntax.statements((item,))))
            if isinstance(kept, syntax.Loop):
                self.flat.add(stands.loop(kept, declared))
            elif kept is not None:
                self.flat.add(stands.statement(kept, declared(kept)))
        return [*places, self.flat.position]

    def _continued(
        self, result: _Result, content: Argument, stands: Stands, declared: Declare
    ) -> Statement:  # fmt: skip
        """The statement that gives a result what it goes on from."""
        indices = [Name(i) for i in _letters(result.tensor.rank, self.flat.names | self.flat.constants)]
        firsts = [stands.expression(first.syntax()) for first, _ in result.box]
        own, span = Name(result.own, result.name.span), content.span
        assert content.tensor is not None
        read: Expr = Name(content.tensor, span)
        if indices:
            places = tuple(moved(i, o.syntax()) for i, o in zip(indices, content.origin, strict=True))
            read = syntax.Apply(Name(content.tensor, span), places, span)
        subscripts = tuple(map(moved, indices, firsts)) if indices else None
        kind = declared(Statement(Name(result.tensor.name), None, "=", read, None, (), span, span))
        if kind is not None and kind.dims is not None:
            kind = replace(kind, dims=tuple(map(stands.expression, kind.dims)))
        return Statement(own, subscripts, "=", read, None, (), span, span, kind)

    def _inherit(self, stands: Stands, places: list[int]) -> None:
        """Say what was inlined, and what that needs in turn, in terms of the caller."""
        called = self.function
        self.flat.calls.append(Inlined(called.name, self.value.span, called.definition.span, called.inlined))
        sizes = {
            n: self.flat.extents.typed(v)
            for n, v in stands.values.items()
            if n in called.sizes or n in stands.constants
        }
        change: Callable[[FunctionExpr], FunctionExpr] = lambda expr: _with_sizes(expr, sizes)  # noqa: E731
        self.flat.agreements += [replace(a, first=change(a.first), second=change(a.second)) for a in called.agreements]
        for passed in called.passed:
            tensor = stands.tensors[passed.tensor].name
            origin, extents = tuple(map(change, passed.origin)), tuple(map(change, passed.extents))
            self.flat.passed.append(Passed(places[passed.position], tensor, origin, extents, passed.span))

    def _finish(self, result: _Result, stands: Stands) -> None:
        """Have the extents confirmed that the def says, and copy what goes to a tensor with others."""
        origin = tuple(stands.expression(first.syntax()) for first, _ in result.box)
        extents = tuple(stands.expression((last - first + 1).syntax()) for first, last in result.box)
        if result.tensor.rank and result.tensor.dims is None:
            first, extent = tuple(map(self.flat.extents.typed, origin)), tuple(map(self.flat.extents.typed, extents))
            self.flat.passed.append(Passed(self.flat.position, result.own, first, extent, self.value.span))
        if not result.is_copied or not self._is_as_large(result):
            return
        indices = [Name(i) for i in _letters(result.tensor.rank, self.flat.names | self.flat.constants)]
        places = tuple(map(moved, indices, origin))
        own = Name(result.own, self.value.span)
        read: Expr = syntax.Apply(own, places, self.value.span) if indices else own
        subscripts = tuple(indices) if indices else None
        self.flat.add(Statement(result.name, subscripts, "=", read, None, (), self.value.span, self.value.span))

    def _is_as_large(self, result: _Result) -> bool:
        """Whether a tensor that is assigned anew stays as it is in rank and extents; if not, that is reported."""
        entry = self.environment.tensors.get(result.name.name)
        if self.report.errors or entry is None or not entry.written or not entry.rank:
            return not self.report.errors
        old, new = self.flat.extents.box(entry.name), self.flat.extents.box(result.own)
        if old is None or new is None or len(old) != len(new):
            same = len(old or ()) == len(new or ()) == 0
        else:
            same = all(a[1] - a[0] == b[1] - b[0] and not a[0].terms for a, b in zip(old, new, strict=True))
        if not same:
            shapes = [", ".join(str(last - first + 1) for first, last in box or ()) for box in (old, new)]
            message = f"{entry.name} has the extents ({shapes[0]}) here, and the result of the call ({shapes[1]})"
            self.report.error(message, self.value.span, "give the result a name of its own")
        return same


def _needed(item: Statement | syntax.Loop, wanted: set[str]) -> Statement | syntax.Loop | None:
    """What of an item makes one of the tensors ``wanted``, to which it adds those that are read for that.

    In a block a step reads what later statements of the step before have made, so it is gone over until no more is
    wanted.  One without bounds stays whole, since all that it reads says which steps it has.
    """
    if isinstance(item, Statement):
        if item.target.name not in wanted:
            return None
        wanted |= names_read(item)
        return item
    if item.lower is None:
        inside = list(syntax.statements(item.body))
        if wanted.isdisjoint(statement.target.name for statement in inside):
            return None
        wanted.update(*map(names_read, inside))
        return item
    before = -1
    body: list[Statement | syntax.Loop | None] = []
    while before != len(wanted):
        before = len(wanted)
        body = [_needed(each, wanted) for each in reversed(item.body)]
    kept = tuple(each for each in reversed(body) if each is not None)
    return replace(item, body=kept) if kept else None


def _letters(rank: int, taken: Collection[str]) -> list[str]:
    """Indices that mean nothing else."""
    letters = [letter for letter in _LETTERS if letter not in taken]
    return [*letters, *(name for n in range(rank) if (name := f"index_{n}") not in taken)][:rank]


def _with_sizes(expr: FunctionExpr, sizes: Mapping[str, FunctionExpr]) -> FunctionExpr:
    if isinstance(expr, Size):
        return sizes.get(expr.name, expr)
    return map_children(expr, lambda child: _with_sizes(child, sizes))
