"""Program text laid out in one way, as ``tcomp fmt`` does: what the syntax tree prints, with the comments of the text.

Comments on lines of their own stay before what they stand before, those behind something stay behind it, and one in the
midst of a statement goes before it.  Blank lines stay, one at a time.  A def on one line stays on one if it fits.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tcomp.errors import SourceText, TcompError
from tcomp.grammar.parsing.lexer import comments_of, span_of, tokenize
from tcomp.grammar.parsing.parser import Parsed, parse_recovering
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.diagnostics import compile_error


@dataclass(frozen=True, slots=True)
class _Comment:
    start: int
    text: str

    @property
    def end(self) -> int:
        return self.start + len(self.text)


@dataclass(frozen=True, slots=True)
class _Item:
    """Something at a place of the source, as the lines that it becomes; ``apart`` asks for blank lines around it."""

    start: int
    end: int
    lines: tuple[str, ...]
    apart: bool = False


def formatted(text: str, name: str = "<string>") -> str:
    """The text laid out anew, which parses to the same definitions; twice is once.  Raises CompileError."""
    source = SourceText(text, name)
    parsed = _parsed(source)
    result = _Formatter(source).program(parsed)
    again = _parsed(SourceText(result, name))
    kept = sorted(c for _, c in comments_of(text)) == sorted(c for _, c in comments_of(result))
    if (again.definitions, again.uses) != (parsed.definitions, parsed.uses) or not kept:
        raise TcompError(f"{name} cannot be laid out without changing it; please report it")
    return result


def _parsed(source: SourceText) -> Parsed:
    parsed = parse_recovering(source)
    if parsed.errors:
        raise compile_error(parsed.errors)
    return parsed


class _Formatter:
    def __init__(self, source: SourceText) -> None:
        self._text = source.text
        self._braces = [span_of(token).end for token in tokenize(source) if token.type == "LBRACE"]
        self._comments = [_Comment(start, text) for start, text in comments_of(source.text)]

    def program(self, parsed: Parsed) -> str:
        """All definitions and what the text uses."""
        items = [_Item(use.span.start, use.span.end, (str(use),)) for use in parsed.uses]
        items += map(self._definition, parsed.definitions)
        items.sort(key=lambda item: item.start)
        inside = {c.start for d in parsed.definitions for c in self._within(d)}
        lines = self._laid_out(items, [c for c in self._comments if c.start not in inside], "")
        return "".join(f"{line}\n" for line in lines)

    def _within(self, definition: syntax.Definition | syntax.Loop) -> list[_Comment]:
        """The comments of a body."""
        low, high = (
            bisect_left(self._comments, place, key=lambda c: c.start)
            for place in (self._body(definition), definition.span.end)
        )
        return self._comments[low:high]

    def _body(self, definition: syntax.Definition | syntax.Loop) -> int:
        """What follows the brace with which a body begins."""
        return self._braces[bisect_right(self._braces, definition.span.start)]

    def _definition(self, definition: syntax.Definition) -> _Item:
        span, body, comments = definition.span, self._body(definition), self._within(definition)
        head = str(replace(definition, body=())).removesuffix("\n}")
        items = [self._item(item) for item in definition.body]
        if comments and self._is_behind(body, comments[0]) and (not items or comments[0].start < items[0].start):
            head, comments = f"{head}  {comments[0].text}", comments[1:]
        if "\n" not in self._text[span.start : span.end]:
            line = " ".join([head, "  ".join(line for item in items for line in item.lines), "}"])
            if len(line) <= syntax.LINE_WIDTH and all(len(item.lines) == 1 for item in items):
                return _Item(span.start, span.end, (line,))
        inside = {c.start for item in definition.body if isinstance(item, syntax.Loop) for c in self._within(item)}
        lines = self._laid_out(items, [c for c in comments if c.start not in inside], syntax.INDENT)
        return _Item(span.start, span.end, (*head.split("\n"), *lines, "}"), apart=True)

    def _item(self, item: syntax.Statement | syntax.Loop) -> _Item:
        """A statement, or a block with the comments in it."""
        start, end = item.span.start, item.span.end
        if isinstance(item, syntax.Statement):
            return _Item(start, end, tuple(str(item).split("\n")))
        head, items, comments = item.head, [self._item(inner) for inner in item.body], self._within(item)
        if comments and self._is_behind(self._body(item), comments[0]) and comments[0].start < items[0].start:
            head, comments = f"{head}  {comments[0].text}", comments[1:]
        inside = {c.start for inner in item.body if isinstance(inner, syntax.Loop) for c in self._within(inner)}
        lines = self._laid_out(items, [c for c in comments if c.start not in inside], syntax.INDENT)
        return _Item(start, end, (head, *lines, "}"))

    def _laid_out(self, items: Sequence[_Item], comments: Sequence[_Comment], indent: str) -> Iterator[str]:
        """The lines of items, with the comments that stand between, in and behind them."""
        left = deque(comments)
        before: _Item | _Comment | None = None
        for item in items:
            while left and left[0].start < item.start:
                yield from self._blank(before, left[0])
                before = left.popleft()
                yield indent + before.text
            yield from self._blank(before, item)
            while left and left[0].start < item.end:
                yield indent + left.popleft().text
            *others, last = item.lines
            yield from (indent + line if line else line for line in others)
            before = item
            if left and self._is_behind(item.end, left[0]):
                last += f"  {left[0].text}"
                before = replace(item, end=left.popleft().end)
            yield indent + last
        for comment in left:
            yield from self._blank(before, comment)
            yield indent + comment.text
            before = comment

    def _blank(self, before: _Item | _Comment | None, following: _Item | _Comment) -> Iterator[str]:
        """The blank line between two things, where there is one."""
        if before is None:
            return
        beside = isinstance(before, _Item) and (before.apart or (isinstance(following, _Item) and following.apart))
        if beside or self._text[before.end : following.start].count("\n") > 1:
            yield ""

    def _is_behind(self, end: int, comment: _Comment) -> bool:
        """Whether a comment stands on the line on which something ends, and nothing between."""
        return not self._text[end : comment.start].strip(" \t\r\f\v")
