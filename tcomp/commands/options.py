"""``tcomp options``: the mapping options, and the sets of them that have names."""

from __future__ import annotations

import argparse

from tcomp.commands.terminal.display import show_line, show_table
from tcomp.commands.terminal.exit_codes import DONE
from tcomp.mapping.options.options import NAMED, OPTIONS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``tcomp options`` takes none."""
    parser.set_defaults(execute=lambda _: list_options())


def list_options() -> int:
    """One row per option, one per set."""
    rows = [(name, default.strip("`"), where, text) for name, (default, text, where) in _described().items()]
    show_table(("option", "default", "matters", "what it is"), rows)
    show_line("")
    show_table(("set", "options"), [(name, str(options)) for name, options in NAMED.items()])
    return DONE


def _described() -> dict[str, tuple[str, str, str]]:
    return {name: option.describe() for name, option in OPTIONS.items()}
