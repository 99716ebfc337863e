"""The parser's tables as a file, so that no process computes them: ``parser``.

``tc.tables.json`` has what Lark makes of ``tc.lark``, and of which grammar and by which Lark it was made.  Where either
is another one, Lark computes the tables anew: that takes 0.09 s of the processor, and reading them 0.01.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import lark
from lark import Lark, Token, Transformer
from lark.grammar import Rule
from lark.lexer import TerminalDef

from tcomp.grammar.parsing.lexer import TokenList

_FOLDER = Path(__file__).parents[1]
TABLES = _FOLDER / "tc.tables.json"
_STARTS = ["program", "statement"]


def parser(transformer: Transformer[Token, Any]) -> Lark:
    """The parser of ``tc.lark``, which gives what ``transformer`` makes of a list of tokens."""
    grammar = _FOLDER.joinpath("tc.lark").read_text(encoding="utf-8")
    try:
        kept = json.loads(TABLES.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        kept = {}
    fits = isinstance(kept, dict) and kept.get("made") == _made(grammar)
    return read(kept, transformer) if fits else built(grammar, transformer)


def built(grammar: str, transformer: Transformer[Token, Any] | None = None) -> Lark:
    """The parser with tables that are computed now."""
    return Lark(grammar, parser="lalr", lexer=TokenList, transformer=transformer, start=_STARTS)


def read(kept: dict[str, Any], transformer: Transformer[Token, Any]) -> Lark:
    """The parser with tables that were written."""
    frontend = kept["parser"]
    table = frontend["parser"] | {
        "tokens": _numbered(frontend["parser"]["tokens"]),
        "states": {state: _numbered(row) for state, row in _numbered(frontend["parser"]["states"]).items()},
    }
    lexer = frontend["lexer_conf"] | {"lexer_type": TokenList}
    options = kept["options"] | {"lexer": TokenList, "transformer": transformer}
    data = {"parser": frontend | {"parser": table, "lexer_conf": lexer}, "rules": kept["rules"], "options": options}
    return Lark.load({"data": data, "memo": _numbered(kept["memo"])})


def written(grammar: str) -> str:
    """What ``tc.tables.json`` has to be for a grammar."""
    data, memo = built(grammar).memo_serialize([TerminalDef, Rule])
    kept = {"made": _made(grammar), **data, "memo": memo}
    # The class that hands over tokens, which nothing reads from here.
    text = json.dumps(kept, separators=(",", ":"), default=lambda _: None)
    return text.replace('},"', '},\n"') + "\n"


def _made(grammar: str) -> list[str]:
    return [lark.__version__, hashlib.sha256(grammar.encode()).hexdigest()]


def _numbered(found: dict[str, Any]) -> dict[int, Any]:
    """JSON has only texts as keys."""
    return {int(number): value for number, value in found.items()}
