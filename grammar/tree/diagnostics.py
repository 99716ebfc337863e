"""Collecting what is wrong with a program, and guessing what was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice

from tcomp.errors import CompileError, Diagnostic, SourceText, Span, TcompError
from tcomp.grammar.tree.function import Function

MAX_ERRORS = 20
"""Most errors that one run reports."""

_MAX_CHOICES = 1_000
_LIKENESS = 0.65


class Report:
    """The errors and warnings found in one text so far."""

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.errors: list[Diagnostic] = []
        self.warnings: list[Diagnostic] = []

    def error(self, message: str, span: Span, hint: str | None = None, *notes: tuple[str, Span]) -> None:
        """Record an error; ``notes`` say of other places what they have to do with it."""
        related = tuple(Diagnostic(text, self.source, place, severity="note") for text, place in notes)
        self.errors.append(Diagnostic(message, self.source, span, hint, notes=related))

    def warn(self, message: str, span: Span, hint: str | None = None) -> None:
        """Note a warning."""
        self.warnings.append(Diagnostic(message, self.source, span, hint, "warning"))

    @property
    def is_full(self) -> bool:
        """Are there so many errors already that no more will be shown?"""
        return len(self.errors) > MAX_ERRORS

    def did_you_mean(self, name: str, known: Iterable[str]) -> str | None:
        """A hint naming the known word closest to ``name``; None if none is close, or nobody will see it."""
        if self.is_full:
            return None
        return did_you_mean(name, islice(known, _MAX_CHOICES))

    def raise_errors(self) -> None:
        """Raise CompileError if there are errors."""
        if self.errors:
            raise compile_error(self.errors)


def did_you_mean(name: str, known: Iterable[str]) -> str | None:
    """A hint naming the known word closest to ``name``; None if none is close."""
    choices = sorted({*known} - {name})
    close = difflib.get_close_matches(name, choices, n=1, cutoff=_LIKENESS)
    if not close:
        close = [choice for choice in choices if choice.lower() == name.lower()][:1]
    return f"did you mean `{close[0]}`?" if close else None


def compile_error(errors: Iterable[Diagnostic]) -> CompileError:
    """One CompileError for many errors, in textual order, the first ``MAX_ERRORS`` of them."""
    ordered = sorted(errors, key=lambda d: (d.span is None, d.span.start if d.span else 0))
    shown = ordered[:MAX_ERRORS]
    if len(ordered) > MAX_ERRORS:
        shown.append(Diagnostic("further errors are not shown", ordered[0].source))
    return CompileError(*shown)


def refuse_steps(function: Function, what: str, hint: str, error: type[TcompError] = CompileError) -> None:
    """Raise an error at the first block of steps of a program, if there is one; ``what`` is not there for it."""
    for statement in function.statements:
        for step in statement.steps[:1]:
            message = f"{function.name} runs step by step (`for {step.index}`), and {what}"
            raise error(Diagnostic(message, function.source, step.span, hint))
