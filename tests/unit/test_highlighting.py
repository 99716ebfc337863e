"""Colours of program text: the Pygments lexer and the TextMate grammar see what the compiler's own tokens are."""

from __future__ import annotations

import configparser
import importlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tcomp.errors import SourceText
from tcomp.grammar.checking.names import BOUNDARIES, is_function
from tcomp.grammar.parsing.lexer import KEYWORDS, PUNCTUATION, tokenize
from tcomp.highlighting import textmate
from tcomp.highlighting.rules import RULES
from tcomp.values.operators import INTRINSICS, TYPE_KEYWORDS
from tests import corpus

pygments = pytest.importorskip("pygments")
from tcomp.highlighting.pygmentslexer import TcLexer  # noqa: E402  (needs Pygments)

ROOT = Path(__file__).parents[2]
TEXTS = {
    **{p.name: p.read_text(encoding="utf-8") for p in sorted((ROOT / "tcomp" / "library").glob("*.tc"))},
    **{str(p.relative_to(ROOT)): p.read_text(encoding="utf-8") for p in sorted((ROOT / "examples").rglob("*.tc"))},
    **{
        f"{page} {k}": text
        for page in ("constructs", "language")
        for k, text in enumerate(
            re.findall(r"```tc\n(.*?)```", (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"), re.DOTALL)
        )
    },
}

Piece = tuple[int, str, str]
"""Where something stands, its text and its scope."""

SCOPES = {
    "ACCUMULATE": "keyword.operator.assignment.reduction.tc",
    "PLACE": "keyword.operator.assignment.reduction.tc",
    "TYPE": "storage.type.tc",
    "NUMBER": "constant.numeric.tc",
    "STRING": "string.quoted.double.tc",
    **dict.fromkeys(("DEF", "WHERE", "IN", "EXISTS", "CONST", "ORDER", "FOR", "USE"), "keyword.control.tc"),
}
NAMES = {
    "variable.other.tc",
    "entity.name.function.tc",
    "support.function.boundary.tc",
    "support.function.builtin.tc",
}


def by_textmate(text: str) -> Iterator[Piece]:
    """What an editor sees, which goes line by line."""
    patterns = [(re.compile(p["match"]), p["name"]) for p in json.loads(textmate.shipped())["patterns"]]
    start = 0
    for line in text.splitlines(keepends=True):
        at = 0
        while at < len(line):
            found = [(m.start(), k, m) for k, (p, _) in enumerate(patterns) if (m := p.search(line, at))]
            if not found:
                break
            begin, k, match = min(found, key=lambda f: f[:2])
            assert match.end() > begin
            yield start + begin, match.group(), patterns[k][1]
            at = match.end()
        start += len(line)


def by_pygments(text: str) -> Iterator[Piece]:
    scopes: dict[str, str] = {}
    for rule in RULES:
        scopes[f"Token.{rule.token}"] = rule.scope
    for at, kind, value in TcLexer(stripnl=False, ensurenl=False).get_tokens_unprocessed(text):
        if value.strip():
            yield at, value, scopes.get(str(kind), str(kind))


def disagreements(text: str, pieces: Iterator[Piece]) -> list[str]:
    """Tokens of the compiler that are no pieces, or pieces of another kind; type parameters are names to an editor."""
    seen = {at: (value, scope) for at, value, scope in pieces}
    wrong = []
    for token in tokenize(SourceText(text)):
        assert token.start_pos is not None
        value, scope = seen.get(token.start_pos, ("", "nothing"))
        kind = "WORD" if token.type == "TYPE" and token.value not in TYPE_KEYWORDS else token.type
        if kind in SCOPES:
            right = scope == SCOPES[kind]
        elif kind == "WORD":
            right = scope in NAMES
        elif kind in ("MIN", "MAX"):
            right = scope == "support.function.builtin.tc"
        else:
            right = scope in ("keyword.operator.tc", "punctuation.tc")
        if value != token.value or not right:
            wrong.append(f"{token.value!r}, a {token.type}, is {value!r}, {scope}")
    return wrong


@pytest.mark.parametrize("see", [by_pygments, by_textmate])
def test_the_library_examples_and_pages_are_seen_as_the_compiler_does(see: Callable[[str], Iterator[Piece]]) -> None:
    assert len(TEXTS) > 60
    assert {name: wrong for name, text in TEXTS.items() if (wrong := disagreements(text, see(text)))} == {}


@pytest.mark.parametrize("see", [by_pygments, by_textmate])
def test_the_catalogue_is_seen_as_the_compiler_does(see: Callable[[str], Iterator[Piece]]) -> None:
    if not corpus.CATALOGUE.exists():
        pytest.skip("the catalogue is not beside the project")
    texts = [entry["tc"] for entry in json.loads(corpus.CATALOGUE.read_text(encoding="utf-8"))]
    valid = [t for t in texts if all(token.type != "INVALID" for token in tokenize(SourceText(t)))]
    assert len(valid) > 150
    assert [wrong for text in valid if (wrong := disagreements(text, see(text)))] == []


@pytest.mark.parametrize("see", [by_pygments, by_textmate])
@pytest.mark.parametrize(
    ("text", "word", "scope"),
    [
        ("O(i) max=! A(i)", "max=!", "keyword.operator.assignment.reduction.tc"),
        ("O argmax=! A(i)", "argmax=!", "keyword.operator.assignment.reduction.tc"),
        ("O(i) += A(i)", "+=", "keyword.operator.assignment.reduction.tc"),
        ("O(i) = xmin=! + 1", "xmin", "variable.other.tc"),
        ("O = max == min", "max", "variable.other.tc"),
        ("O = min(A(i), 2)", "min", "support.function.builtin.tc"),
        ("O = clamp(A(i), 1, 2)", "clamp", "support.function.builtin.tc"),
        ("O = repeat_edge(A)(i-1)", "repeat_edge", "support.function.boundary.tc"),
        ("exp = A(i)", "exp", "variable.other.tc"),
        ("for t in 1:T {", "for", "keyword.control.tc"),
        ("for t {", "for", "keyword.control.tc"),
        ("A(for) = 1 where for in 0:3", "for", "variable.other.tc"),
        ('use "a.tc"', "use", "keyword.control.tc"),
        ("O = use + 1", "use", "variable.other.tc"),
        ("def f(const int S) ->", "const", "keyword.control.tc"),
        ("O = A(const)", "const", "variable.other.tc"),
        ("def mm(float A) ->", "mm", "entity.name.function.tc"),
        ("def mm(float16 A) ->", "float16", "storage.type.tc"),
        ("# for x in 1:2", "# for x in 1:2", "comment.line.number-sign.tc"),
        ("O = 0x1.8p3", "0x1.8p3", "constant.numeric.tc"),
        ("O = .5e-3", ".5e-3", "constant.numeric.tc"),
        ("O = A(i) << 2", "<<", "keyword.operator.tc"),
    ],
)
def test_colours(see: Callable[[str], Iterator[Piece]], text: str, word: str, scope: str) -> None:
    assert (word, scope) in [(value, kind) for _, value, kind in see(text)]


def test_every_word_of_the_language_has_its_colour() -> None:
    def words(scope: str) -> set[str]:
        lists = [re.search(r"\(\?:([\w|]+)\)\\b", r.pattern) for r in RULES if r.scope == scope]
        return {w for found in lists if found for w in found[1].split("|")}

    assert words("storage.type.tc") == set(TYPE_KEYWORDS)
    assert words("keyword.control.tc") == set(KEYWORDS) - set(TYPE_KEYWORDS) - {"min", "max"}
    assert words("support.function.boundary.tc") == set(BOUNDARIES)
    functions = words("support.function.builtin.tc")
    assert functions >= set(INTRINSICS)
    assert all(is_function(word) for word in functions - {"min", "max"})


def test_every_mark_is_seen_whole() -> None:
    for mark in PUNCTUATION:
        assert [value for _, value, _ in by_pygments(f"a {mark} b")] == ["a", mark, "b"]


def test_what_is_no_program_text_is_an_error_in_pygments() -> None:
    assert [value for _, value, scope in by_pygments("O(i) = $A(i)") if scope == "Token.Error"] == ["$"]


def test_the_shipped_grammar_is_that_of_the_rules(golden: Callable[[Path, str], None]) -> None:
    golden(ROOT / "tcomp" / "highlighting" / textmate.FILE, textmate.grammar())


def test_pygments_is_told_of_the_lexer() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    points = setup["options.entry_points"]["pygments.lexers"].split()
    module, _, name = points[-1].partition(":")
    assert getattr(importlib.import_module(module), name) is TcLexer
    assert TcLexer.aliases == ("tc",)
    assert TcLexer.filenames == ("*.tc",)
