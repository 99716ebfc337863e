"""What is coloured in program text: patterns, the first that matches where a word begins, with a name for each colour.

Words come from the tables of the language.  The patterns mean the same to ``re`` and to the Oniguruma of TextMate.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from tcomp.grammar.checking.names import BOUNDARIES, REWRITTEN
from tcomp.grammar.parsing.lexer import ASSIGNMENTS, KEYWORDS, PUNCTUATION
from tcomp.values.operators import INTRINSICS, TYPE_KEYWORDS

FILES = "*.tc"
"""Names of files with program text."""

_WORD = "[A-Za-z_][A-Za-z_0-9]*"
_BRACKETS = "(){},:?"

_CONTEXTUAL = {
    "const": r"(?=\s+(?!in\b|where\b)[A-Za-z_])",
    "for": r"(?=\s+[A-Za-z_][A-Za-z_0-9]*(?:\s+in\b|\s*\{))",
    "use": r'(?=\s*"|\s+[A-Za-z_][A-Za-z_0-9]*\s*:)',
}
"""Words that are keywords in some places only, and what follows them there."""

_ORDER = r"(?:(?<=\bwhere )|(?<=,)|(?<=, ))(?:first|last)(?=\s+(?!in\b|where\b|arg(?:min|max)=!|min\b|max\b)[A-Za-z_])"
"""Where a clause begins, what says which of several values counts."""


@dataclass(frozen=True, slots=True)
class Rule:
    """What ``pattern`` matches has the colour ``token`` in Pygments and ``scope`` in TextMate."""

    pattern: str
    token: str
    scope: str


def _words(words: Iterable[str], after: str = "") -> str:
    return rf"\b(?:{'|'.join(sorted(words, key=lambda w: (-len(w), w)))})\b{after}"


def _marks(marks: Iterable[str]) -> str:
    return "|".join(re.escape(m) for m in sorted(marks, key=lambda m: (-len(m), m)))


def _reductions() -> str:
    """``+=!``, ``max=`` and so on, and ``argmax=!``; not ``max==``, which compares."""
    spelled = [rf"\b{a}" if a[0].isalpha() else re.escape(a) for a in sorted(ASSIGNMENTS, key=lambda a: -len(a))]
    return rf"\barg(?:min|max)=!(?!=)|(?:{'|'.join(spelled)})(?!=)"


_FUNCTIONS = {*INTRINSICS, *REWRITTEN, "min", "max"}

RULES = (
    Rule(r"#[^\n]*", "Comment.Single", "comment.line.number-sign.tc"),
    Rule(r'"[^"\n]*"', "Literal.String", "string.quoted.double.tc"),
    Rule(_reductions(), "Operator.Word", "keyword.operator.assignment.reduction.tc"),
    Rule(rf"(?<=\bdef ){_WORD}", "Name.Function", "entity.name.function.tc"),
    Rule(_words(TYPE_KEYWORDS), "Keyword.Type", "storage.type.tc"),
    Rule(_words(set(KEYWORDS) - set(TYPE_KEYWORDS) - _FUNCTIONS), "Keyword", "keyword.control.tc"),
    *(Rule(rf"\b{word}{follows}", "Keyword", "keyword.control.tc") for word, follows in _CONTEXTUAL.items()),
    Rule(_ORDER, "Keyword", "keyword.control.tc"),
    Rule(_words(BOUNDARIES, r"(?=\s*\()"), "Name.Function.Magic", "support.function.boundary.tc"),
    Rule(_words(_FUNCTIONS, r"(?=\s*\()"), "Name.Builtin", "support.function.builtin.tc"),
    Rule(_WORD, "Name", "variable.other.tc"),
    Rule(
        r"0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)(?:[pP][+-]?[0-9]+)?"
        r"|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?",
        "Literal.Number",
        "constant.numeric.tc",
    ),
    Rule(_marks(set(PUNCTUATION) - set(_BRACKETS)), "Operator", "keyword.operator.tc"),
    Rule(_marks(set(PUNCTUATION) & set(_BRACKETS)), "Punctuation", "punctuation.tc"),
)
"""Every rule, in the order in which they are tried."""
