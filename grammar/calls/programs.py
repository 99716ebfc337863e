"""The defs of a text and of the texts that it uses, each checked when it is first needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from tcomp.errors import CompileError, Diagnostic, SourceText, Span, TcompError
from tcomp.grammar.calls.arguments import Called
from tcomp.grammar.calls.generics import combinations, instance, keyword, wrong_types
from tcomp.grammar.calls.inlining import MOST_NESTED, Callee, has_calls, inlined
from tcomp.grammar.checking.check import check
from tcomp.grammar.parsing.parser import Parsed, parse_recovering
from tcomp.grammar.ranges.ranges import solvable
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.diagnostics import Report, compile_error
from tcomp.grammar.tree.function import Function
from tcomp.values.operators import DType

MOST_FILES = 256
"""A text uses no more of them, those that they use counted in."""


@dataclass(frozen=True, slots=True)
class Used:
    """A text that another one uses: what it is known by, what errors call it, and the text."""

    key: str
    name: str
    text: str


class Reader(Protocol):
    """Finds what texts use; ``key`` is that of the first text, None if nothing can use it."""

    @property
    def key(self) -> str | None: ...

    def read(self, use: syntax.Use, key: str | None) -> Used:
        """What the text known as ``key`` uses.  Raises TcompError."""
        ...


class NoFiles:
    """The reader of texts that stand alone."""

    key = None

    def read(self, use: syntax.Use, key: str | None) -> Used:
        raise TcompError(f"`{use}` cannot be read here")


@dataclass(slots=True)
class _File:
    """A text: its own definitions, and the files that it uses."""

    definitions: dict[str, syntax.Definition] = field(default_factory=dict)
    uses: list[tuple[syntax.Use, int]] = field(default_factory=list)
    visible: dict[str, tuple[int, syntax.Definition]] = field(default_factory=dict)


_Key = tuple[int, str, tuple[str, ...]]
"""The number of a file, the name of a def in it, and the types that its parameters stand for."""


class Program:
    """All texts as one source; ``errors`` are those found so far.

    Where the text begins with that of another program, which stands alone and has no errors, that is ``begun`` with:
    what it defines is not read and checked again.
    """

    def __init__(self, text: str, name: str, reader: Reader, begun: Program | None = None) -> None:
        self.source = SourceText(text, name)
        self.errors: list[Diagnostic] = []
        self.files: list[_File] = []
        self.is_unclear = False
        self._numbers: dict[str, int] = {}
        self._checked: dict[_Key, Called | None] = {}
        self._wrong: dict[_Key, list[Diagnostic]] = {}
        self._twice: set[tuple[int, str]] = set()
        self._open: list[tuple[int, str, Span]] = []
        first: tuple[syntax.Definition, ...] = ()
        if begun is not None:
            first, self._checked = begun.definitions, dict(begun._checked)
        parsed = parse_recovering(self.source, 0 if begun is None else len(begun.source.text))
        parsed = replace(parsed, definitions=(*first, *parsed.definitions))
        self.definitions: tuple[syntax.Definition, ...] = parsed.definitions
        self._enter(parsed)
        if parsed.uses:
            if reader.key is not None:
                self._numbers[reader.key] = 0
            self._read(parsed.uses, reader)
            self._check_clashes()

    def own_functions(self) -> dict[str, Function]:
        """The checked defs of the first text that are right; none where it is not clear what names mean."""
        if self.is_unclear:
            return {}
        found = {name: self._own(definition) for name, definition in self.files[0].definitions.items()}
        return {name: called.function for name, called in found.items() if called is not None}

    def _own(self, definition: syntax.Definition) -> Called | None:
        """A def of the first text; with types as parameters, for the first types for which it is right.

        If there are none, what is wrong with the first ones is reported.
        """
        known = len(self.errors)
        first: list[Diagnostic] = []
        for types in combinations(definition):
            called = self._function(0, definition.name.name, types)
            if called is not None:
                return called
            first = first or self.errors[known:]
            del self.errors[known:]
        self.errors += first
        return None

    def generics(self, functions: Mapping[str, Function]) -> Mapping[str, Generic]:
        """The defs of the first text with element types as parameters, given ``own_functions``."""
        definitions = self.files[0].definitions
        return {n: Generic(self, definitions[n], function) for n, function in functions.items() if definitions[n].types}

    def instance(self, definition: syntax.Definition, types: Mapping[str, DType]) -> Function:
        """A def of the first text for element types.  Raises CompileError where it is wrong for these."""
        key = 0, definition.name.name, tuple(keyword(types[name.name]) for name in definition.types)
        self.errors.clear()
        called = self._function(*key)
        if called is not None:
            return called.function
        raise compile_error(_with_note(self.source, error, definition, key[2]) for error in self.errors)

    def __getstate__(self) -> dict[str, object]:
        """Without the functions, which are made again."""
        return self.__dict__ | {"_checked": {}, "_wrong": {}}

    def _enter(self, parsed: Parsed) -> int:
        """Take up a file; a def that is there twice is an error."""
        self.errors.extend(parsed.errors)
        file = _File()
        for definition in parsed.definitions:
            name = definition.name.name
            if name in file.definitions:
                self.errors.append(Diagnostic(f"{name} already defined", self.source, definition.name.span))
                self._twice.add((len(self.files), name))
                self._check_alone(definition)
            else:
                file.definitions[name] = definition
        self.files.append(file)
        return len(self.files) - 1

    def _read(self, uses: Iterable[syntax.Use], reader: Reader) -> None:
        """Read what the first text uses, and what that uses in turn; each text once."""
        waiting = [(0, reader.key, use) for use in uses]
        while waiting:
            number, key, use = waiting.pop(0)
            try:
                used = reader.read(use, key)
            except TcompError as error:
                first = error.diagnostics[0]
                self.errors.append(Diagnostic(first.message, self.source, use.span, first.hint))
                self.is_unclear = True
                continue
            if used.key not in self._numbers:
                if len(self.files) > MOST_FILES:
                    message = f"more than {MOST_FILES} files are used"
                    self.errors.append(Diagnostic(message, self.source, use.span))
                    return
                start = len(self.source.text) + 1
                self.source = self.source.with_texts([(used.text, used.name)])
                parsed = parse_recovering(self.source, start)
                self._numbers[used.key] = self._enter(parsed)
                waiting += [(self._numbers[used.key], used.key, further) for further in parsed.uses]
            self.files[number].uses.append((use, self._numbers[used.key]))

    def _check_clashes(self) -> None:
        """Every file sees its own defs and those of the files that it uses, and that these use."""
        for number, file in enumerate(self.files):
            seen = dict.fromkeys([number])
            file.visible = {name: (number, definition) for name, definition in file.definitions.items()}
            for use, first in file.uses:
                for other in self._reached(first, seen):
                    for name, definition in self.files[other].definitions.items():
                        known = file.visible.setdefault(name, (other, definition))
                        if known[0] != other:
                            self._clash(name, use, known[1], definition)

    def _reached(self, first: int, seen: dict[int, None]) -> Iterator[int]:
        waiting = [first]
        while waiting:
            number = waiting.pop()
            if number not in seen:
                seen[number] = None
                yield number
                waiting += [other for _, other in self.files[number].uses]

    def _clash(self, name: str, use: syntax.Use, first: syntax.Definition, second: syntax.Definition) -> None:
        notes = tuple(
            Diagnostic(f"one {name} is defined here", self.source, definition.name.span, severity="note")
            for definition in (first, second)
        )
        message = f"`{use}` brings in another def {name} than the one that is there already"
        hint = "give one of them another name, or use only one of the files"
        self.errors.append(Diagnostic(message, self.source, use.span, hint, notes=notes))
        self.is_unclear = True

    def visible(self, number: int) -> dict[str, tuple[int, syntax.Definition]]:
        file = self.files[number]
        if not file.visible:
            file.visible = {name: (number, definition) for name, definition in file.definitions.items()}
        return file.visible

    def _function(self, number: int, name: str, types: tuple[str, ...] = ()) -> Called | None:
        """The checked def of a file for element types; None if it is wrong, which has been reported."""
        key = number, name, types
        if (number, name) in self._twice:
            return None
        if key not in self._checked:
            definition = self.files[number].definitions[name]
            wrong = tuple(wrong_types(definition, self.source))
            known = len(self.errors)
            self.errors.extend(wrong)
            self._checked[key] = None
            if not wrong:
                chosen = {name.name: kind for name, kind in zip(definition.types, types, strict=True)}
                self._checked[key] = self._check(number, instance(definition, chosen))
            if types:
                self._wrong[key] = self.errors[known:]
        elif types and self._checked[key] is None:
            # What was found when these types were tried.
            told = {(error.message, error.span) for error in self.errors}
            self.errors += [error for error in self._wrong.get(key, ()) if (error.message, error.span) not in told]
        return self._checked[key]

    def _check(self, number: int, definition: syntax.Definition) -> Called | None:
        defs = self.visible(number)
        known = len(self.errors)
        try:
            if has_calls(definition, defs):
                callee = _Callee(self, number, definition)
                function = inlined(definition, self.source, defs.keys(), callee)
                if function is None:
                    return None
            else:
                function = check(definition, self.source, defs.keys())
        except CompileError as error:
            self.errors.extend(error.diagnostics)
            return None
        self.errors.extend(solvable(function))
        return Called(function) if len(self.errors) == known else None

    def callee(
        self,
        number: int,
        caller: syntax.Definition,
        name: syntax.Name,
        report: Report,
        types: tuple[str, ...],
    ) -> Called | None:
        """A def that another one calls; a cycle of calls is reported."""
        home, definition = self.visible(number)[name.name]
        known = len(self.errors)
        self._open.append((number, caller.name.name, name.span))
        try:
            names = [(file, own) for file, own, _ in self._open]
            if (home, name.name) in names:
                self._report_cycle(self._open[names.index((home, name.name)) :], name, report)
                return None
            if len(self._open) > MOST_NESTED:
                report.error(f"calls nest more than {MOST_NESTED} deep here", name.span)
                return None
            called = self._function(home, definition.name.name, types)
            if called is None and types:
                noted = (_with_note(self.source, e, definition, types, name.span) for e in self.errors[known:])
                self.errors[known:] = noted
            return called
        finally:
            self._open.pop()

    def _report_cycle(self, cycle: list[tuple[int, str, Span]], name: syntax.Name, report: Report) -> None:
        path = " calls ".join([*(own for _, own, _ in cycle), name.name])
        following = [*(own for _, own, _ in cycle[1:]), name.name]
        notes = [
            (f"{own} calls {other} here", span) for (_, own, span), other in zip(cycle[:-1], following, strict=False)
        ]
        report.error(
            f"a def cannot call itself: {path}", name.span, "write the repetition out, or run it in Python", *notes
        )

    def _check_alone(self, definition: syntax.Definition) -> None:
        """Report the errors of a def that no name leads to."""
        try:
            check(instance(definition, dict.fromkeys((n.name for n in definition.types), "float")), self.source)
        except CompileError as error:
            self.errors.extend(error.diagnostics)


@dataclass(frozen=True, slots=True)
class Generic:
    """A def with element types as parameters; ``function`` is it for the first types for which it is right."""

    program: Program
    definition: syntax.Definition
    function: Function

    @property
    def first_types(self) -> dict[str, DType]:
        """The types that the parameters stand for in ``function``."""
        pairs = zip(self.definition.inputs, self.function.inputs, strict=True)
        types = {p.type: tensor.dtype for p, tensor in pairs if p.type is not None and not p.const}
        return {name.name: types[name.name] for name in self.definition.types}

    def instance(self, types: Mapping[str, DType]) -> Function:
        """The def for a type for each parameter.  Raises CompileError where it is wrong for these."""
        return self.program.instance(self.definition, types)


@dataclass(frozen=True, slots=True)
class _Callee(Callee):
    """Finds the defs that one of a file calls."""

    program: Program
    number: int
    caller: syntax.Definition

    def definition(self, name: syntax.Name) -> syntax.Definition:
        return self.program.visible(self.number)[name.name][1]

    def called(self, name: syntax.Name, report: Report, types: tuple[str, ...] = ()) -> Called | None:
        return self.program.callee(self.number, self.caller, name, report, types)


def _with_note(
    source: SourceText,
    error: Diagnostic,
    definition: syntax.Definition,
    types: tuple[str, ...],
    call: Span | None = None,
) -> Diagnostic:
    """What is wrong with a def, and with which types that is so."""
    stands = " and ".join(f"{name} is {kind}" for name, kind in zip(definition.types, types, strict=True))
    span = definition.types[0].span if call is None else call
    note = Diagnostic(f"{stands} in this call" if call else f"{stands} here", source, span, severity="note")
    return replace(error, notes=(*error.notes, note))
