"""Texts that nobody would write, made from texts that somebody did, and what the front end owes to every text."""

from __future__ import annotations

import json
import pickle
import random
import re
from collections.abc import Callable, Sequence
from importlib import resources
from pathlib import Path

from tcomp.errors import CompileError, Diagnostic, ShapeError, TcompError
from tcomp.grammar import define
from tcomp.grammar.ranges.ranges import infer
from tcomp.grammar.tree.function import Function
from tests.corpus import CATALOGUE
from tests.programs import PROGRAMS

WORDS = (
    *("def", "where", "in", "exists", "for", "const", "min", "max", "float", "double", "half", "bfloat16", "int"),
    "int8",
    *("uint64", "bool", "->", "<=>", "+=!", "+=", "*=!", "min=!", "max=", "=", "==", "!=", "<=", ">=", "<", ">"),
    "&&",
    *("||", "+", "-", "*", "/", "%", "!", "?", ":", ",", "(", ")", "{", "}", "#", "\n", " ", "\t", "\r\n", "\0"),
    *("0", "1", "2", "0:3", "1e5", ".5", "1..2", "0x1p3", "2147483648", "9223372036854775808", "1e999", "i", "j", "N"),
    *("\ufeff", "A", "O", "A(i)", "O(i)", "i/2", "i%3", "constant_exterior", "mirror_image", "exp", "select"),
    "repeat_image",
    *("\u0391", "\u200b", "\u2212", "\uff08", "\u00e9", "\U0001f600", "\x7f", "\x1b[31m", "'", '"', "`", "\\", ";"),
)  # fmt: skip
"""What is put into texts: words of the language, and characters that are in none of them."""

_TOKEN = re.compile(
    r"[A-Za-z_]\w*|\d+\.?\d*(?:[eE][+-]?\d+)?|(?:[+*]|min|max)=!?|<=>|->|&&|\|\||[<>=!]=|\s+|.", re.DOTALL
)
_TOO_LONG = 20_000
_LARGE = (0, 1, 2, 3, 5, 8, 64, 1 << 31, 1 << 62)

Mutation = Callable[[random.Random, list[str], Sequence[str]], None]


def seeds() -> list[str]:
    """Programs to start from: shipped ones, those of the tests, wrong ones, and the catalogue's if it is here."""
    folder = resources.files("tcomp") / "library"
    shipped = [p.read_text(encoding="utf-8") for p in sorted(folder.iterdir(), key=str) if p.name.endswith(".tc")]
    wrong = [p.read_text(encoding="utf-8") for p in sorted((Path(__file__).parents[1] / "errors").glob("*.tc"))]
    published = [entry["tc"] for entry in json.loads(CATALOGUE.read_text())] if CATALOGUE.exists() else []
    return [*shipped, *(text for text, _, _ in PROGRAMS.values()), *wrong, *published]


def split(text: str) -> list[str]:
    """A text in pieces, most of which are tokens; joined they are the text."""
    return _TOKEN.findall(text)


def mutated(rng: random.Random, text: str, others: Sequence[str]) -> str:
    """The text with one to six changes to its tokens or its characters; ``others`` lend pieces."""
    whole = rng.random() < 0.25
    pieces = list(text) if whole else split(text)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 6))):
        rng.choice(_MUTATIONS)(rng, pieces, others)
    return "".join(pieces)[:_TOO_LONG]


def _delete(rng: random.Random, pieces: list[str], others: Sequence[str]) -> None:
    begin = rng.randrange(len(pieces) + 1)
    del pieces[begin : begin + rng.choice((1, 1, 1, 2, 5, 40))]


def _repeat(rng: random.Random, pieces: list[str], others: Sequence[str]) -> None:
    begin = rng.randrange(len(pieces) + 1)
    part = pieces[begin : begin + rng.choice((1, 1, 2, 5, 20))]
    at = rng.randrange(len(pieces) + 1)
    pieces[at:at] = part * rng.choice((1, 1, 1, 2, 50))


def _swap(rng: random.Random, pieces: list[str], others: Sequence[str]) -> None:
    if pieces:
        a, b = rng.randrange(len(pieces)), rng.randrange(len(pieces))
        pieces[a], pieces[b] = pieces[b], pieces[a]


def _insert(rng: random.Random, pieces: list[str], others: Sequence[str]) -> None:
    pieces.insert(rng.randrange(len(pieces) + 1), rng.choice(WORDS))


def _replace(rng: random.Random, pieces: list[str], others: Sequence[str]) -> None:
    if pieces:
        pieces[rng.randrange(len(pieces))] = rng.choice(WORDS) if rng.random() < 0.7 else rng.choice(pieces)


def _splice(rng: random.Random, pieces: list[str], others: Sequence[str]) -> None:
    lender = split(rng.choice(others))
    begin, at = rng.randrange(len(lender) + 1), rng.randrange(len(pieces) + 1)
    pieces[at:at] = lender[begin : begin + rng.choice((2, 5, 15, 60))]


def _character(rng: random.Random, pieces: list[str], others: Sequence[str]) -> None:
    pieces.insert(rng.randrange(len(pieces) + 1), chr(rng.choice((rng.randrange(128), rng.randrange(0xD800)))))


_MUTATIONS: tuple[Mutation, ...] = (_delete, _repeat, _swap, _insert, _insert, _replace, _replace, _splice, _character)


def soup(rng: random.Random) -> str:
    """Words in any order, half of the time with the head of a program before them."""
    head = rng.choice(("", "def f(float(N) A) -> (O) {"))
    return head + "".join(rng.choice(WORDS) + rng.choice(("", " ")) for _ in range(rng.randrange(60)))


def judge(text: str, rng: random.Random) -> str:
    """Give a text to the front end: "defined" or "refused".

    Definitions also go through range inference with random sizes.  Raises AssertionError, or whatever the front end
    raises that it must not, for a text that it does not treat as it should.
    """
    refusal: CompileError | None = None
    try:
        functions = define(text)
    except CompileError as error:
        refusal = error
    if refusal is not None:
        check_error(refusal, text)
        assert refusal.line is not None and refusal.column is not None, "an error of the text without a place"
        return "refused"
    for function in functions.values():
        for warning in function.warnings:
            check_diagnostic(warning, text)
        _infer(function, text, rng)
    return "defined"


def _infer(function: Function, text: str, rng: random.Random) -> None:
    constants = [tensor.name for tensor in function.inputs if tensor.role == "const"]
    sizes = {name: rng.choice(_LARGE if rng.random() < 0.2 else _LARGE[:6]) for name in (*function.sizes, *constants)}
    try:
        infer(function, sizes)
    except (CompileError, ShapeError) as error:
        check_error(error, text)


def check_error(error: TcompError, text: str) -> None:
    """An error can be shown and sent to another process, and points into the text where it says it does."""
    assert error.diagnostics and error.message and str(error)
    for diagnostic in error.diagnostics:
        check_diagnostic(diagnostic, text)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def check_diagnostic(diagnostic: Diagnostic, text: str) -> None:
    """Line, column and marks of a diagnostic are those of its span."""
    span = diagnostic.span
    if span is None:
        return
    assert 0 <= span.start <= span.end <= len(text), f"{span} in a text of {len(text)} characters"
    shown = str(diagnostic)
    line, column = text.count("\n", 0, span.start) + 1, span.start - (text.rfind("\n", 0, span.start) + 1) + 1
    assert f":{line}:{column}: {diagnostic.severity}: " in shown
    excerpt, marks = shown.partition(f"{diagnostic.message}\n")[2].split("\n")[:2]
    first = marks.index("^")
    marked = marks.count("^")
    assert set(marks) <= set(" \t^") and marks.rstrip() == marks[: first + marked], "marks in pieces"
    under = text[span.start : min(span.end, span.start + marked)].partition("\n")[0]
    found = excerpt[first : first + len(under)]
    assert all(f == u or not (u.isprintable() or u == "\t") for f, u in zip(found, under, strict=True)), (found, under)
    tabs = [k for k, c in enumerate(excerpt[:first]) if c == "\t"]
    assert [k for k, c in enumerate(marks[:first]) if c == "\t"] == tabs
