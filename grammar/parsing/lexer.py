"""Tokens of the language.

A token is a ``lark.Token`` with its character offsets; its type is the name that ``tc.lark`` uses.  Text that is no
token becomes a token of type ``INVALID``, so that the parser reports it where it stands.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import cast

from lark import Token
from lark.lexer import Lexer, LexerState

from tcomp.errors import CompileError, Diagnostic, SourceText, Span
from tcomp.values.operators import REDUCTIONS, TYPE_KEYWORDS

MAX_TOKENS = 250_000
"""Longest program that is read; about 15,000 statements."""

MAX_BLOCKS = 50
"""Deepest nesting of braces that is read."""

MAX_WORD = 1_000
"""Longest name or number, in characters."""

KEYWORDS: dict[str, str] = dict.fromkeys(TYPE_KEYWORDS, "TYPE") | {
    word: word.upper() for word in ("def", "where", "in", "exists", "min", "max")
}
"""Words that cannot be identifiers, with the type of their token."""

PUNCTUATION: dict[str, str] = {
    "<<": "SHIFTLEFT", ">>": "SHIFTRIGHT", "~": "TILDE",
    "<=>": "EQUIVALENT", "->": "ARROW", "<=": "LESSEQUAL", ">=": "GREATEREQUAL", "==": "EQUALS", "!=": "DIFFERS",
    "&&": "AND", "||": "OR", "+": "PLUS", "-": "MINUS", "*": "STAR", "/": "SLASH", "%": "PERCENT", "(": "LPAR",
    ")": "RPAR", "{": "LBRACE", "}": "RBRACE", "?": "QMARK", ":": "COLON", ",": "COMMA", "=": "EQUAL", ">": "GREATER",
    "<": "LESS", "!": "BANG", "&": "AMPERSAND", "|": "PIPE", "^": "CARET",
}  # fmt: skip

ASSIGNMENTS = tuple(f"{symbol}={bang}" for symbol in REDUCTIONS for bang in ("!", ""))
"""How reductions are spelled, each by the symbol of its row."""

_COMBINE = "|".join(rf"\b{symbol}" if symbol.isalpha() else re.escape(symbol) for symbol in REDUCTIONS)

_TOKEN = re.compile(
    r"""
    (?P<SPACE>(?:[ \t\r\n\f\v]++|\#[^\n]*+)++)
  | (?P<ACCUMULATE>(?:"""
    + _COMBINE
    + r""")=!?(?!=))
  | (?P<PLACE>\barg(?:min|max)=!(?!=))
  | (?P<WORD>[A-Za-z_][A-Za-z_0-9]*)
  | (?P<INVALID>[0-9]+\.\.[0-9]*)
  | (?P<NUMBER>0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?
             |(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
  | (?P<PUNCTUATION>"""
    + "|".join(re.escape(mark) for mark in PUNCTUATION)
    + r""")
  | (?P<STRING>"[^"\n]*")
  | (?P<OTHER>\.{2,}|[^\x00-\x7f]+|[\x00-\x08\x0e-\x1f\x7f]+|.)
    """,
    re.VERBOSE | re.DOTALL,
)


_STEPS = (["WORD", "IN"], ["WORD", "LBRACE"])
"""What follows ``for`` where it begins a block of steps."""

_COMMENT = re.compile(r"#[^\n]*")


def tokenize(source: SourceText, start: int = 0) -> list[Token]:
    """All tokens of a text from ``start`` on.

    Raises CompileError where the text is longer than ``MAX_TOKENS`` or its braces nest deeper than ``MAX_BLOCKS``.
    """
    tokens: list[Token] = []
    depth = 0
    for match in _TOKEN.finditer(source.text, start):
        kind, value = match.lastgroup, match.group()
        if kind == "SPACE":
            continue
        if kind == "WORD":
            kind = KEYWORDS.get(value, "WORD")
        elif kind == "PUNCTUATION":
            kind = PUNCTUATION[value]
            if kind == "LBRACE":
                depth += 1
            elif kind == "RBRACE":
                depth = max(0, depth - 1)
        if kind == "STRING" and (depth or not tokens or tokens[-1].value != "use"):
            kind = "OTHER"
        if kind == "OTHER" or (kind in ("WORD", "NUMBER") and len(value) > MAX_WORD):
            kind = "INVALID"
        assert kind is not None
        span = Span(match.start(), match.end())
        if depth > MAX_BLOCKS:
            raise CompileError(Diagnostic(f"braces nest more than {MAX_BLOCKS} deep here", source, span))
        if len(tokens) >= MAX_TOKENS:
            raise CompileError(
                Diagnostic(
                    f"the program is too long: more than {MAX_TOKENS} tokens",
                    source,
                    span,
                    "split it into several programs",
                )
            )
        tokens.append(Token(kind, value, span.start, end_pos=span.end))
    _mark_types(tokens)
    _mark_contextual_words(tokens)
    return tokens


def comments_of(text: str) -> list[tuple[int, str]]:
    """The comments of a text and where they begin, without spaces at their ends."""
    found = (match for match in _TOKEN.finditer(text) if match.lastgroup == "SPACE")
    places = ((space.start(), comment) for space in found for comment in _COMMENT.finditer(space.group()))
    return [(start + comment.start(), comment.group().rstrip()) for start, comment in places]


def _mark_types(tokens: list[Token]) -> None:
    """Turn what stands in ``<...>`` after the name of a def into types, from there to the next def."""
    types: set[str] = set()
    until = 0
    for k, token in enumerate(tokens):
        if token.type == "DEF":
            types, until = set(), k
            if k + 2 < len(tokens) and tokens[k + 2].type == "LESS":
                until = next((j for j in range(k + 3, len(tokens)) if tokens[j].type not in ("WORD", "COMMA")), k)
                types = {t.value for t in tokens[k + 3 : until] if t.type == "WORD"}
        elif types and k > until and token.type == "WORD" and token.value in types:
            token.type = "TYPE"


def _mark_contextual_words(tokens: list[Token]) -> None:
    """Turn ``const`` before a type, ``for`` before ``x in`` or ``x {``, ``use`` between defs and ``last`` where a
    clause begins into keywords.

    Elsewhere they are identifiers.
    """
    depth = 0
    for k, token in enumerate(tokens):
        if token.type != "WORD":
            depth += (token.type == "LBRACE") - (token.type == "RBRACE")
            continue
        if token.value == "const" and k + 1 < len(tokens) and tokens[k + 1].type == "TYPE":
            token.type = "CONST"
        elif token.value == "for" and [t.type for t in tokens[k + 1 : k + 3]] in _STEPS:
            token.type = "FOR"
        elif token.value == "use" and depth <= 0 and _begins_use(tokens, k):
            token.type = "USE"
        elif token.value in ("first", "last") and _is_order(tokens, k):
            token.type = "ORDER"


def _is_order(tokens: Sequence[Token], k: int) -> bool:
    """Whether ``first`` or ``last`` begins a clause: it stands before a word."""
    before, after = tokens[k - 1].type if k else "", tokens[k + 1].type if k + 1 < len(tokens) else ""
    return before in ("WHERE", "COMMA") and after == "WORD"


def _begins_use(tokens: Sequence[Token], k: int) -> bool:
    """Whether a word between defs stands before what can be used, or where only a def could begin."""
    following = [t.type for t in tokens[k + 1 : k + 3]]
    before = tokens[k - 1].type if k else "RBRACE"
    return following[:1] == ["STRING"] or following == ["WORD", "COLON"] or before in ("RBRACE", "STRING")


def span_of(token: Token) -> Span:
    """Where a token stands in its text."""
    assert token.start_pos is not None and token.end_pos is not None
    return Span(token.start_pos, token.end_pos)


class TokenList(Lexer):
    """Hands the parser a list of tokens that exists already."""

    __future_interface__ = 2

    def __init__(self, lexer_conf: object) -> None:
        pass

    def lex(self, lexer_state: LexerState, parser_state: object) -> Iterator[Token]:
        """The tokens that were passed to ``Lark.parse`` in place of a text."""
        return iter(cast(Sequence[Token], lexer_state.text))
