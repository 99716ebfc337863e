"""The parser's tables that are shipped are those of the grammar."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import lark
import pytest
from lark import Lark, Token, Transformer, UnexpectedToken

from tcomp.errors import SourceText
from tcomp.grammar.parsing import tables
from tcomp.grammar.parsing.lexer import tokenize

GRAMMAR = (tables.TABLES.parent / "tc.lark").read_text(encoding="utf-8")
TEXTS = (
    "def f(float(N,M) A, const int K = 3) -> (B) { B(i) +=! max(A(i,j), 0) * -2.5 where j in 0:M/2 }",
    "def f<T>(T(N) A) -> (B) { B(i) = A(i) > 0 ? A(i) : (A(i) as float) }",
    "use library softmax\ndef f(float(N) x) -> (y) { y = softmax(x) }",
    "def f(float(N) A) -> (B) { B(i) = A(i } }",
    "def f(float(N) A) -> (B) { for t in 0:3 { B(i) = A(i) ** 2 } }",
    "",
    "}",
)


@pytest.fixture(scope="module")
def computed() -> Lark:
    return tables.built(GRAMMAR, Plain())


@pytest.fixture(scope="module")
def written() -> str:
    return tables.written(GRAMMAR)


def shipped() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(tables.TABLES.read_text(encoding="utf-8"))
    return found


class Plain(Transformer[Token, Any]):
    """Trees as they are."""


def test_they_are_those_that_lark_computes(computed: Lark, written: str, request: pytest.FixtureRequest) -> None:
    kept, made = shipped(), json.loads(written)["made"]
    # Numbers of states and of words differ from process to process, so a file that is right stays as it is.
    if request.config.getoption("--update-golden") and kept["made"] != made:
        tables.TABLES.write_text(written, encoding="utf-8")
        kept = shipped()
    if kept["made"][0] != lark.__version__:
        pytest.skip(f"they were made by lark {kept['made'][0]}; others compute their own")
    assert kept["made"] == made, "pytest --update-golden writes them"
    assert _rows(tables.read(kept, Plain())) == _rows(computed)


@pytest.mark.parametrize("text", TEXTS)
def test_texts_are_read_alike(computed: Lark, written: str, text: str) -> None:
    assert _read(tables.read(json.loads(written), Plain()), text) == _read(computed, text)


def test_without_the_file_or_with_another_ones_the_parser_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []
    monkeypatch.setattr(tables, "built", lambda *given: built.append(given))
    tables.parser(Plain())
    expected = 0 if shipped()["made"][0] == lark.__version__ else 1
    assert len(built) == expected
    for number, content in enumerate((None, "{", '{"made": ["1.0", "0"]}', "{}", "[]", "\udcff")):
        monkeypatch.setattr(tables, "TABLES", tmp_path / f"tables{number}.json")
        if content is not None:
            tables.TABLES.write_bytes(content.encode("utf-8", "surrogateescape"))
        tables.parser(Plain())
        assert len(built) == expected + number + 1


def _rows(parser: Lark) -> list[dict[str, Any]]:
    """What a parser does in each state, whatever its states' numbers are."""
    table = parser.parser.parser._parse_table
    order = list(dict.fromkeys(table.start_states.values()))
    rows: list[dict[str, Any]] = []
    for state in order:
        row = {}
        for name, (action, argument) in sorted(table.states[state].items()):
            shifts = isinstance(argument, int)
            if shifts and argument not in order:
                order.append(argument)
            row[name] = (str(action), order.index(argument) if shifts else str(argument))
        rows.append(row)
    return [*rows, {start: order.index(state) for start, state in table.end_states.items()}]


def _read(parser: Lark, text: str) -> Any:
    try:
        return parser.parse(tokenize(SourceText(text, "t")), "program")
    except UnexpectedToken as error:
        return str(error.token), sorted(error.accepts or error.expected)
