"""Definitions with calls: each call is replaced by the statements of what it calls, which are checked as any other.

``inlined`` goes through a definition statement by statement.  A call is resolved against what is known at that point:
the types of tensors, and their extents as formulas of sizes (``ranges/symbolic.py``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import replace

from tcomp.errors import SourceText
from tcomp.grammar.calls.arguments import Called, bind, types_of_call
from tcomp.grammar.calls.expansion import UNWANTED, Expansion, Flat
from tcomp.grammar.checking.names import TensorEntry, is_function
from tcomp.grammar.checking.places import is_place
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.diagnostics import Report
from tcomp.grammar.tree.function import Function
from tcomp.grammar.tree.syntax import Expr, Name, Statement

MOST_NESTED = 40
"""Calls among the arguments of calls, and defs that call each other, nest no deeper."""


class Callee(ABC):
    """Finds the defs that a definition may call."""

    @abstractmethod
    def definition(self, name: Name) -> syntax.Definition:
        """The def of a name, as written."""

    @abstractmethod
    def called(self, name: Name, report: Report, types: tuple[str, ...] = ()) -> Called | None:
        """The checked def of a name, where a call mentions it; None if it is wrong, which has been reported.

        ``types`` are the keywords of the element types that its parameters stand for.
        """


def has_calls(definition: syntax.Definition, defs: Collection[str]) -> bool:
    """Whether a statement may be a call: names of tensors are told from those of defs later."""
    return any(
        (s.others and not is_place(s))
        or (
            isinstance(s.value, syntax.Apply)
            and s.subscripts is None
            and (s.value.function.name in defs or not is_function(s.value.function.name))
        )
        for s in syntax.statements(definition.body)
    )


def inlined(
    definition: syntax.Definition, source: SourceText, defs: Collection[str], callee: Callee
) -> Function | None:
    """The typed program of a definition that calls ``defs``; None where one of these is wrong.

    Raises CompileError with every independent error.
    """
    inliner = _Inliner(Flat(definition, source, defs), defs, callee)
    for item in definition.body:
        inliner.item(item)
    return inliner.flat.function()


class _Inliner:
    """Goes through one definition."""

    def __init__(self, flat: Flat, defs: Collection[str], callee: Callee) -> None:
        self.flat = flat
        self.checker = flat.checker
        self.report, self.environment = self.checker.report, self.checker.environment
        self.defs = defs
        self.callee = callee
        self.depth = 0

    def item(self, item: Statement | syntax.Loop) -> None:
        if isinstance(item, syntax.Loop) or (is_place(item) and item.others):
            self.flat.add(item)
        elif item.others and not isinstance(item.value, syntax.Apply):
            message = "several results stand before `=`, but no call of a def behind it"
            self.report.error(message, item.value.span, "write a statement for each tensor")
            self._fail((item.target, *item.others))
        elif (
            isinstance(item.value, syntax.Apply)
            and item.subscripts is None
            and (item.others or self._is_called(item.value))
        ):
            self._call(item, item.value, (item.target, *item.others))
        else:
            self.flat.add(item)

    def _is_called(self, value: syntax.Apply) -> bool:
        """Names of tensors come first, and built-in functions where no whole tensor is passed."""
        name = value.function.name
        if name in self.environment.tensors:
            return False
        if any(isinstance(argument, syntax.Named) for argument in value.arguments):
            return True
        if name not in self.defs:
            return not is_function(name) and any(self._is_whole(argument) for argument in value.arguments)
        return not is_function(name) or any(self._is_whole(argument) for argument in value.arguments)

    def _is_whole(self, argument: Expr) -> bool:
        """Whether an argument is a whole tensor, which no built-in function takes."""
        if isinstance(argument, syntax.Apply):
            return argument.function.name in self.defs and self._is_called(argument)
        entry = self.environment.tensors.get(argument.name) if isinstance(argument, Name) else None
        return entry is not None and bool(entry.rank)

    def _call(self, statement: Statement, value: syntax.Apply, targets: tuple[Name, ...]) -> None:
        """Replace ``targets = value`` by statements; without them where something is wrong."""
        errors = len(self.report.errors)
        if statement.clauses:
            message = "a call has no `where`: the def that is called says what its ranges are"
            self.report.error(message, statement.clauses[0].span, "pass sizes as `const` arguments")
        if statement.operator != "=":
            message = f"the result of `{value.function}` can only be assigned, by `=`"
            hint = f"write `T = {value}` before this, then `{statement.target}(...) {statement.operator} T(...)`"
            self.report.error(message, statement.operator_span, hint)
        if statement.declared is not None:
            message = f"the result of `{value.function}` has the type and the extents that it gives it"
            self.report.error(message, statement.declared.span, f"remove `{statement.declared}`")
        self._check_targets(targets)
        if not self._expand(value, targets) or len(self.report.errors) > errors:
            self._fail(targets)

    def _check_targets(self, targets: tuple[Name, ...]) -> None:
        for position, target in enumerate(targets):
            name, kind = target.name, self.environment.kind_of(target.name)
            entry = self.environment.tensors.get(name)
            if name in [other.name for other in targets[:position]] and name != UNWANTED:
                self.report.error(f"{name} stands twice among the results", target.span)
            elif entry is not None and entry.role == "input":
                message = f"TC inputs are immutable, but input {name} is written here"
                self.report.error(message, target.span, "write to another tensor")
            elif kind and entry is None:
                self.report.error(f"{name} already defined", target.span, f"`{name}` is {kind}")

    def _fail(self, targets: tuple[Name, ...]) -> None:
        """Nothing is said any more of tensors that a wrong call would have written."""
        self.environment.misdirected = True
        for target in targets:
            if self.environment.kind_of(target.name) is None:
                self.environment.tensors[target.name] = TensorEntry(target.name, "temporary", target.span, read=True)
            entry = self.environment.tensors.get(target.name)
            if entry is not None and entry.role != "input":
                entry.failed = entry.written = True

    def _expand(self, value: syntax.Apply, targets: tuple[Name, ...]) -> bool:
        """Add the statements of the def that is called; False where something is wrong."""
        name = value.function
        if name.name not in self.defs:
            hint = self.report.did_you_mean(name.name, self.defs)
            hint = hint or ("the defs are " + ", ".join(sorted(self.defs)[:8]) if self.defs else None)
            self.report.error(f"there is no def {name} to call", name.span, hint)
            return False
        definition = self.callee.definition(name)
        given: tuple[Expr, ...] | None = None
        types: tuple[str, ...] | None = ()
        if definition.types:
            given = self._given(value.arguments)
            types = None if given is None else types_of_call(definition, value, given, self.checker)
        called = None if types is None else self.callee.called(name, self.report, types)
        if called is None or not self._gives(called.function, value, targets):
            return False
        given = self._given(value.arguments) if given is None else given
        bound = (
            None
            if given is None
            else bind(called.function, called.ranges.boxes, value, given, self.checker, self.flat.extents)
        )
        if bound is None or self.checker.is_wrong:
            return False
        Expansion(self.flat, called, value, bound).add(targets)
        return not self.report.errors

    def _gives(self, called: Function, value: syntax.Apply, targets: tuple[Name, ...]) -> bool:
        """Whether a def has as many results as are wanted."""
        name, here = value.function, (f"`{value.function}` is defined here", called.definition.name.span)
        gives, stand = len(called.outputs), len(targets)
        if gives != stand:
            message = f"`{name}` gives {gives} result{'s' * (gives != 1)}, but {stand} name{'s' * (stand != 1)}"
            hint = f"its results are {', '.join(t.name for t in called.outputs)}; `_` stands for one that is not needed"
            self.report.error(f"{message} {'stand' if stand != 1 else 'stands'} before `=`", value.span, hint, here)
            return False
        return True

    def _given(self, arguments: tuple[Expr, ...]) -> tuple[Expr, ...] | None:
        """The arguments, with a tensor in place of each call; None where one of these is wrong."""
        given: list[Expr] = []
        for argument in arguments:
            value = argument.value if isinstance(argument, syntax.Named) else argument
            if isinstance(value, syntax.Apply) and value.function.name in self.defs and self._is_called(value):
                outputs = self.callee.definition(value.function).outputs
                if not outputs or not self._is_right(value.function):
                    return None
                result = Name(self.flat.fresh(f"{value.function}_{outputs[0].name}"), value.span)
                self.depth += 1
                if self.depth > MOST_NESTED:
                    self.report.error(f"calls nest more than {MOST_NESTED} deep here", value.span)
                    return None
                if not self._expand(value, (result,)):
                    return None
                self.depth -= 1
                value = result
            given.append(replace(argument, value=value) if isinstance(argument, syntax.Named) else value)
        return tuple(given)

    def _is_right(self, name: Name) -> bool:
        """Whether a def can be called; one with types as parameters may be wrong for some of them."""
        return bool(self.callee.definition(name).types) or self.callee.called(name, self.report) is not None
