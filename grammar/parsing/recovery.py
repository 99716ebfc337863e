"""Finding every independent syntax error in a text that the grammar rejects.

The text is split where definitions and statements begin, which their first tokens tell, and each part is parsed on its
own; each contributes at most its first error.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

from lark import Token, UnexpectedToken

from tcomp.errors import Diagnostic, SourceText, Span
from tcomp.grammar.parsing.errors import expected, hint, quoted
from tcomp.grammar.parsing.lexer import span_of
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.diagnostics import MAX_ERRORS

Parser = Callable[[Sequence[Token], str], Any]
"""Parses a list of tokens from a start rule; raises ``lark.UnexpectedToken``."""

_EXPRESSION_ENDS = ("WORD", "NUMBER", "RPAR", "LBRACE", "RBRACE", "INVALID")
_MENDABLE = ("EQUAL", "DIFFERS", "BANG", "EQUALS")


class Recovery:
    """Splits one list of tokens and collects ``items`` that parse and ``errors`` of those that do not."""

    def __init__(self, tokens: Sequence[Token], source: SourceText, parse: Parser) -> None:
        self.tokens = tokens
        self.source = source
        self.parse = parse
        self.items: list[syntax.Definition | syntax.Use] = []
        self.errors: list[Diagnostic] = []
        starts = [k for k, token in enumerate(tokens) if token.type == "DEF"]
        if not starts or starts[0] > 0:
            self._outside(0, starts[0] if starts else len(tokens))
        for begin, end in pairwise([*starts, len(tokens)]):
            if len(self.errors) > MAX_ERRORS:
                break
            self._definition(begin, end)

    def _definition(self, begin: int, end: int) -> None:
        try:
            self.items.extend(self.parse(self.tokens[begin:end], "program"))
        except UnexpectedToken as error:
            failure = error
        else:
            return
        known = len(self.errors)
        statements = self._statement_starts(begin, end)
        braces = [k for k in range(begin, end) if self.tokens[k].type == "LBRACE"]
        opening = min([*braces[:1], *statements[:1], end])
        if not self._head(begin, opening, end):
            return
        closing = self._closing_brace(opening, end, statements)
        for first, last in self._pieces(opening, closing, statements):
            if len(self.errors) > MAX_ERRORS:
                return
            self._attempt(first, last, "statement")
        if closing + 1 < end:
            self._outside(closing + 1, end)
        if len(self.errors) == known:
            self._report(failure, end)

    def _closing_brace(self, opening: int, end: int, statements: Sequence[int]) -> int:
        """The brace that ends a body: the one that matches, unless statements follow it; ``end`` if there is none."""
        depth, closing = 0, end
        for k in range(opening, end):
            if self.tokens[k].type == "LBRACE":
                depth += 1
            elif self.tokens[k].type == "RBRACE":
                depth -= 1
                closing = k
                if depth <= 0 and not any(start > k for start in statements):
                    break
        return closing

    def _head(self, begin: int, opening: int, end: int) -> bool:
        """Parse everything before the body, with an empty body; False if what looked like the body is not one."""
        head = list(self.tokens[begin : opening + 1])
        if opening < end:
            head.append(Token("RBRACE", "}", self.tokens[opening].start_pos, end_pos=self.tokens[opening].end_pos))
        try:
            self.parse(head, "program")
        except UnexpectedToken as error:
            self._report(error, end)
            return not (opening < end and self.tokens[opening].type == "LBRACE" and error.token is head[-2])
        return True

    def _pieces(self, opening: int, closing: int, statements: Sequence[int]) -> list[tuple[int, int]]:
        """The statements of a body as token ranges; the heads and ends of loops belong to none."""
        inner = [k for k in range(opening + 1, closing) if self.tokens[k].type in ("FOR", "RBRACE")]
        loops = any(self.tokens[k].type == "FOR" for k in inner)
        bounds = [k for k in statements if opening <= k < closing]
        first = opening if opening in bounds else opening + 1
        cuts = sorted({first, closing, *bounds, *(inner if loops else ())})
        pieces = []
        for start, stop in pairwise(cuts):
            if stop <= closing and not (loops and self.tokens[start].type in ("FOR", "RBRACE")):
                pieces.append((start, stop))
        return pieces

    def _statement_starts(self, begin: int, end: int) -> list[int]:
        """Where an identifier, perhaps with subscripts, stands before an assignment and is not a ``let``."""
        starts = []
        for k in range(begin + 2, end):
            token, before = self.tokens[k], self.tokens[k - 1]
            if token.type == "FOR":
                starts.append(k)
            if token.type != "WORD" or before.type in ("COMMA", "WHERE", "LPAR"):
                continue
            first = self._declaration(k, begin)
            if self.tokens[first - 1].type not in _EXPRESSION_ENDS and not self._newline_before(first):
                continue
            if self._assigns(self._after_subscripts(k + 1, end), end) or self._several(k + 1, end):
                starts.append(first)
        return starts

    def _declaration(self, k: int, begin: int) -> int:
        """Where the type and dimensions before a target begin; ``k`` if there are none."""
        j, depth = k - 1, 0
        while j > begin and (depth or self.tokens[j].type == "RPAR"):
            depth += (self.tokens[j].type == "RPAR") - (self.tokens[j].type == "LPAR")
            j -= 1
        return j if self.tokens[j].type == "TYPE" else k

    def _several(self, k: int, end: int) -> bool:
        """Do further results of a call begin at ``k``?"""
        kinds = [token.type for token in self.tokens[k : min(k + 2, end)]]
        while kinds == ["COMMA", "WORD"]:
            k += 2
            kinds = [token.type for token in self.tokens[k : min(k + 2, end)]]
            if kinds[:1] == ["EQUAL"]:
                return True
        return False

    def _after_subscripts(self, k: int, end: int) -> int:
        """The first token after a balanced list in parentheses that begins at ``k``; ``k`` if none does."""
        depth = 0
        for j in range(k, end):
            match self.tokens[j].type:
                case "LPAR":
                    depth += 1
                case "RPAR":
                    depth -= 1
                case "EQUAL" | "ACCUMULATE" | "LBRACE" | "RBRACE":
                    return j if depth == 0 else end
            if depth <= 0:
                return j + 1 if depth == 0 and self.tokens[j].type == "RPAR" else j
        return end

    def _assigns(self, k: int, end: int) -> bool:
        """Is there an assignment operator at ``k``, or something that was meant to be one?"""
        if k >= end:
            return False
        token = self.tokens[k]
        if token.type in ("EQUAL", "ACCUMULATE"):
            return True
        following = self.tokens[k + 1] if k + 1 < end else None
        return (
            token.type in ("PLUS", "MINUS", "STAR", "SLASH", "PERCENT", "COLON", "MIN", "MAX")
            and following is not None
            and following.type in _MENDABLE[: 4 if token.type in ("MIN", "MAX") else 2]
            and token.end_pos == following.start_pos
        )

    def _newline_before(self, k: int) -> bool:
        gap = slice(self.tokens[k - 1].end_pos, self.tokens[k].start_pos)
        return "\n" in self.source.text[gap]

    def _outside(self, begin: int, end: int) -> None:
        """What stands between defs: what the text uses, each parsed on its own."""
        starts = [k for k in range(begin, end) if self.tokens[k].type == "USE"]
        for first, last in pairwise(sorted({begin, *starts, end})):
            self._attempt(first, last, "program")

    def _attempt(self, begin: int, end: int, rule: str) -> None:
        try:
            parsed = self.parse(self.tokens[begin:end], rule)
        except UnexpectedToken as error:
            self._report(error, end, rule)
        else:
            self.items.extend(parsed if rule == "program" else ())

    def _report(self, error: UnexpectedToken, end: int, rule: str = "program") -> None:
        """Word an error in a part that ends before token ``end``."""
        accepted = error.accepts
        if rule == "statement" and accepted == {"TYPE", "WORD"}:
            accepted = {"WORD"}
        wanted = expected(accepted)
        if error.token.type == "$END":
            last = self.tokens[end - 1] if end else None
            span = span_of(last) if last is not None else Span(0, 0)
            where = f"after {quoted(last)}" if last is not None else "but found the end of the text"
            hinted = hint(self.tokens, end, accepted)
            self.errors.append(Diagnostic(f"expected {wanted} {where}", self.source, span, hinted))
            return
        k = bisect_left(self.tokens, error.token.start_pos or 0, key=_start)
        message = f"expected {wanted} but found {quoted(error.token)} here"
        if error.token.type == "INVALID":
            message = f"expected a valid token but found {quoted(error.token)} here"
        self.errors.append(Diagnostic(message, self.source, span_of(error.token), hint(self.tokens, k, accepted)))


def _start(token: Token) -> int:
    return token.start_pos or 0
