"""``tcomp library``: the operators that come with tcomp, and the text of each."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from tcomp.commands.terminal.display import show_source, show_table
from tcomp.commands.terminal.exit_codes import DONE
from tcomp.shipped import PREFIX, text_of, texts

_SIGNATURE = re.compile(r"^def (\w+)((?:<[^>]*>)?\(.*?\)\s*->\s*\(.*?\)) \{", re.MULTILINE | re.DOTALL)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``tcomp library [NAME]``."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="a file of the library, or one of its defs, to print")
    parser.set_defaults(execute=lambda values: execute(values.name))


def execute(name: str | None) -> int:
    """List all operators, or print one.  Raises TcompError."""
    if name is None:
        show_table(("def", "file", "signature"), list(_rows()))
        return DONE
    text = text_of(name)
    show_source(_def_text(name, text) if name not in texts() else text, "tc")
    return DONE


def _rows() -> Iterator[tuple[str, str, str]]:
    for file, text in texts().items():
        for name, signature in _SIGNATURE.findall(text):
            yield name, PREFIX + file, " ".join(signature.split())


def _def_text(name: str, text: str) -> str:
    """A def with the comment above it."""
    parts = text.split("\n\n")
    return next(part for part in parts if re.search(rf"^def {name}[(<]", part, re.MULTILINE)).strip("\n") + "\n"
