"""The defs of a text and of the texts that it uses, each checked when it is first needed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from tcomp.errors import CompileError, Diagnostic, SourceText, Span, TcompError
from tcomp.grammar.calls.arguments import Called
from tcomp.grammar.calls.inlining import MOST_NESTED, has_calls, inlined
from tcomp.grammar.checking.check import check
from tcomp.grammar.parsing.parser import Parsed, parse_recovering
from tcomp.grammar.ranges.ranges import solvable
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.diagnostics import Report
from tcomp.grammar.tree.function import Function

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


class Program:
    """All texts as one source; ``errors`` are those found so far."""

    def __init__(self, text: str, name: str, reader: Reader) -> None:
        self.source = SourceText(text, name)
        self.errors: list[Diagnostic] = []
        self.files: list[_File] = []
        self.is_unclear = False
        self._numbers: dict[str, int] = {}
        self._checked: dict[tuple[int, str], Called | None] = {}
        self._open: list[tuple[int, str, Span]] = []
        parsed = parse_recovering(self.source)
        self.definitions = parsed.definitions
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
        for name in self.files[0].definitions:
            self._function(0, name)
        found = {name: self._checked[0, name] for name in self.files[0].definitions}
        return {name: called.function for name, called in found.items() if called is not None}

    def _enter(self, parsed: Parsed) -> int:
        """Take up a file; a def that is there twice is an error."""
        self.errors.extend(parsed.errors)
        file = _File()
        for definition in parsed.definitions:
            name = definition.name.name
            if name in file.definitions:
                self.errors.append(Diagnostic(f"{name} already defined", self.source, definition.name.span))
                self._checked[len(self.files), name] = None
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

    def _visible(self, number: int) -> dict[str, tuple[int, syntax.Definition]]:
        file = self.files[number]
        if not file.visible:
            file.visible = {name: (number, definition) for name, definition in file.definitions.items()}
        return file.visible

    def _function(self, number: int, name: str) -> Called | None:
        """The checked def of a file; None if it is wrong, which has been reported."""
        key = number, name
        if key not in self._checked:
            definition = self.files[number].definitions[name]
            self._checked[key] = None
            self._checked[key] = self._check(number, definition)
        return self._checked[key]

    def _check(self, number: int, definition: syntax.Definition) -> Called | None:
        defs = self._visible(number)
        known = len(self.errors)
        try:
            if has_calls(definition, defs):
                callee = lambda name, report: self._callee(number, definition, name, report)  # noqa: E731
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

    def _callee(self, number: int, caller: syntax.Definition, name: syntax.Name, report: Report) -> Called | None:
        """A def that another one calls; a cycle of calls is reported."""
        home, definition = self._visible(number)[name.name]
        self._open.append((number, caller.name.name, name.span))
        try:
            names = [(file, own) for file, own, _ in self._open]
            if (home, name.name) in names:
                self._report_cycle(self._open[names.index((home, name.name)) :], name, report)
                return None
            if len(self._open) > MOST_NESTED:
                report.error(f"calls nest more than {MOST_NESTED} deep here", name.span)
                return None
            return self._function(home, definition.name.name)
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
            check(definition, self.source)
        except CompileError as error:
            self.errors.extend(error.diagnostics)
