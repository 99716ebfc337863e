"""``tcomp debug``: the environment variables that show what happens, with their present values."""

from __future__ import annotations

import argparse
import os

from tcomp.commands.terminal.display import show_table
from tcomp.commands.terminal.exit_codes import DONE
from tcomp.debug import VARIABLES


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``tcomp debug`` takes none."""
    parser.set_defaults(execute=lambda _: list_variables())


def list_variables() -> int:
    """One row per variable."""
    show_table(
        ("variable", "values", "now", "what it does"),
        [(v.name, v.values, os.environ.get(v.name, "-"), v.help) for v in VARIABLES],
    )
    return DONE
