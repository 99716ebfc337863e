"""``tcomp fmt``: program text laid out in one way."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tcomp.commands.inputs.programs import read_source
from tcomp.commands.terminal.display import show_line
from tcomp.commands.terminal.exit_codes import DONE, WRONG
from tcomp.errors import TcompError
from tcomp.grammar.parsing.formatting import formatted
from tcomp.shipped import PREFIX
from tcomp.storage.wholefiles import write_whole


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``tcomp fmt FILE... [--check]``."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="program text to rewrite; - reads stdin and prints")
    parser.add_argument("--check", action="store_true", help="only name the files that would change, with status 1")
    parser.set_defaults(execute=lambda values: execute(values.files, check=values.check))


def execute(files: Sequence[str], *, check: bool) -> int:
    """Rewrite files whose layout is another.  Returns WRONG if ``check`` finds some.  Raises TcompError."""
    changed = False
    for file in files:
        if file.startswith(PREFIX):
            raise TcompError(f"{file} comes with tcomp; print it with `tcomp library`, and format your copy")
        text, name = read_source(file)
        laid_out = formatted(text, name)
        if file == "-" and not check:
            sys.stdout.write(laid_out)
        elif laid_out != text:
            changed = True
            if not check:
                _write(Path(file), laid_out)
            show_line(f"{name}: {'would be ' if check else ''}laid out anew")
    return WRONG if changed and check else DONE


def _write(path: Path, text: str) -> None:
    try:
        write_whole(path, text.encode())
    except OSError as error:
        raise TcompError(f"cannot write {path}: {error.strerror or error}") from None
