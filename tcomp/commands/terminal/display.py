"""What the command line prints: tables and highlighted text on a terminal, plain text in a pipe or a file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

_LEXERS = {"tc": "cpp", "c": "c", "cl": "c", "cu": "cuda", "hip": "cuda", "isl": "yaml", "toml": "toml"}


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """A table on stdout: drawn on a terminal, else aligned columns two spaces apart, one row a line."""
    console = Console()
    if console.is_terminal:
        table = Table(title=title or None, title_justify="left", box=SIMPLE_HEAD, collapse_padding=True, pad_edge=False)
        for column in columns:
            table.add_column(column, overflow="fold")
        for row in rows:
            table.add_row(*(Text(cell) for cell in row))
        console.print(table)
        return
    lines = [tuple(columns), *(tuple(row) for row in rows)]
    widths = [max(len(line[k]) for line in lines) for k in range(len(columns))]
    text = "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
    sys.stdout.write(f"{title}\n{text}\n" if title else f"{text}\n")


def show_source(text: str, suffix: str) -> None:
    """Program text on stdout, highlighted on a terminal; ``suffix`` tells the language, as in a dump."""
    console = Console()
    if console.is_terminal and suffix in _LEXERS:
        highlighted = Syntax("", _LEXERS[suffix], theme="ansi_dark", background_color="default").highlight(text)
        console.print(highlighted, soft_wrap=True, end="")
    else:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")


def show_line(text: str, style: str = "") -> None:
    """One line on stdout."""
    Console().print(Text(text, style=style), soft_wrap=True)


def show_error(text: str, style: str = "red") -> None:
    """A message on stderr, if somebody reads it."""
    with suppress(OSError):
        Console(stderr=True).print(Text(text, style=style), soft_wrap=True)
