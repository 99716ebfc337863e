"""Everything that tcomp raises on bad input.

``CompileError``: the text is wrong whatever the sizes.  ``ShapeError``: the arguments or sizes do not fit.
``TargetError``: the target is not available here.  ``PlanError``: the text of a plan is no plan of the program.
``LegalityError``: a plan would change what the program computes.  All are ``TcompError``; each carries the
``Diagnostic`` values that it reports.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A half-open range ``[start, end)`` of character offsets in a source text."""

    start: int
    end: int

    def to(self, other: Span) -> Span:
        """The span from the start of this one to the end of ``other``."""
        return Span(self.start, other.end)


@dataclass(frozen=True, slots=True)
class SourceText:
    """Program text and the name under which errors mention it.

    The texts of the files that it uses follow its own: ``parts`` has where each begins, and its name.
    """

    text: str
    name: str = "<string>"
    parts: tuple[tuple[int, str], ...] = ()

    def name_at(self, offset: int) -> str:
        """The name of the file that holds a character offset."""
        return self._part(offset)[1]

    def position(self, offset: int) -> tuple[int, int]:
        """The 1-based line and column of a character offset, in its file."""
        line_start = self.text.rfind("\n", 0, offset) + 1
        return self.text.count("\n", self._part(offset)[0], offset) + 1, offset - line_start + 1

    def line_at(self, offset: int) -> str:
        """The whole source line that holds ``offset``, without its newline."""
        start = self.text.rfind("\n", 0, offset) + 1
        end = self.text.find("\n", offset)
        return self.text[start : end if end >= 0 else len(self.text)]

    def with_texts(self, more: Iterable[tuple[str, str]]) -> SourceText:
        """The same with further texts and their names behind it."""
        pieces, parts, length = [self.text], list(self.parts), len(self.text)
        for text, name in more:
            parts.append((length + 1, name))
            pieces.append(text)
            length += len(text) + 1
        return SourceText("\n".join(pieces), self.name, tuple(parts))

    def _part(self, offset: int) -> tuple[int, str]:
        for start, name in reversed(self.parts):
            if start <= offset:
                return start, name
        return 0, self.name


_LINE_WIDTH = 160


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One finding: what is wrong, where, and where there is one, how to mend it."""

    message: str
    source: SourceText | None = None
    span: Span | None = None
    hint: str | None = None
    severity: str = "error"
    notes: tuple[Diagnostic, ...] = ()
    """Other places that have to do with it."""

    def __str__(self) -> str:
        text = f"{self.severity}: {self.message}"
        if self.source is not None and self.span is not None:
            text = f"{self._location()}: {text}\n{self._excerpt()}"
        elif self.source is not None:
            text = f"{self.source.name}: {text}"
        text = f"{text}\n  help: {self.hint}" if self.hint else text
        return "\n".join((text, *map(str, self.notes)))

    def _location(self) -> str:
        assert self.source is not None and self.span is not None
        line, column = self.source.position(self.span.start)
        return f"{self.source.name_at(self.span.start)}:{line}:{column}"

    def _excerpt(self) -> str:
        assert self.source is not None and self.span is not None
        line = self.source.line_at(self.span.start)
        _, column = self.source.position(self.span.start)
        first = max(0, column - 1 - _LINE_WIDTH // 2) if len(line) > _LINE_WIDTH else 0
        shown = line[first : first + _LINE_WIDTH]
        width = min(max(1, self.span.end - self.span.start), max(1, len(shown) - (column - 1 - first)))
        lead = "".join("\t" if c == "\t" else " " for c in shown[: column - 1 - first])
        printable = "".join(c if c.isprintable() or c == "\t" else "\N{REPLACEMENT CHARACTER}" for c in shown)
        return f"  {printable}\n  {lead}{'^' * width}"


class ProgramWarning(UserWarning):
    """Something in a program is ignored, or is probably not what its author meant."""


class TcompError(Exception):
    """Base of all errors that tcomp raises on purpose.

    ``message``, ``line`` and ``column`` (1-based, or None) are those of the first diagnostic; ``caret`` is the source
    line with the marks under it, or the empty string.
    """

    def __init__(self, *diagnostics: Diagnostic | str) -> None:
        self.diagnostics: tuple[Diagnostic, ...] = tuple(
            Diagnostic(d) if isinstance(d, str) else d for d in diagnostics
        ) or (Diagnostic(type(self).__name__),)
        super().__init__("\n".join(str(d) for d in self.diagnostics))

    @property
    def message(self) -> str:
        return self.diagnostics[0].message

    @property
    def line(self) -> int | None:
        return self._position()[0]

    @property
    def column(self) -> int | None:
        return self._position()[1]

    @property
    def caret(self) -> str:
        first = self.diagnostics[0]
        return first._excerpt() if first.source is not None and first.span is not None else ""

    def _position(self) -> tuple[int | None, int | None]:
        first = self.diagnostics[0]
        if first.source is None or first.span is None:
            return None, None
        return first.source.position(first.span.start)

    def __reduce__(self) -> tuple[type[TcompError], tuple[Diagnostic, ...]]:
        return type(self), self.diagnostics


class CompileError(TcompError):
    """The program text is wrong whatever the sizes."""


class DerivativeError(CompileError):
    """The program has no derivative, or none that can be written down yet; the place is in the program's text."""


class UnsaidError(DerivativeError):
    """No formula says the extents or ranges of a program for all sizes; for some sizes alone there is a derivative."""


class ShapeError(TcompError):
    """Arguments or sizes do not fit the program: count, rank, element type, size, device, or an access outside."""


class ArgumentError(ShapeError, TypeError):
    """A call has too few or too many arguments, one twice, or one of no parameter's name: a TypeError, too."""


class TargetError(TcompError):
    """The target, or a tool that it needs, is not available here."""


class MissingPackageError(TargetError):
    """A package is not installed that only some programs or commands need; the message names it."""


class MissingOperationError(TargetError):
    """The target has no operation that an option asks for."""


class NetworkError(TcompError):
    """A network cannot be read or compiled; the message names the node, its operator and its place in the module."""


class PlanError(TcompError):
    """The text of a plan cannot be read, or is no plan of the program and the target."""


class LegalityError(TcompError):
    """A plan breaks a dependence or an access bound."""
