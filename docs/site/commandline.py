"""The page of the commands, from the parsers of the command line."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from tcomp.cli import build_parser

PLACE = "reference/commands.md"


def page() -> str:
    """The text of the page: every command with its arguments."""
    parser = build_parser()
    lines = ["# The command line", "", "Made from what the commands themselves say (`tcomp COMMAND --help`).", ""]
    lines += [_sentence(parser.epilog or ""), ""]
    lines += _commands(parser, 2)
    return "\n".join(lines)


def _commands(parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            told = {choice.dest: choice.help or "" for choice in action._choices_actions}
            for name, command in action.choices.items():
                yield from (f"{'#' * level} {parser.prog.partition(' ')[2]} {name}".replace("  ", " "), "")
                yield from (_sentence(command.description or told[name]), "")
                yield from ("```text", " ".join(command.format_usage().removeprefix("usage: ").split()), "```", "")
                rows = list(_arguments(command))
                if rows:
                    yield from ("| argument | what it is |", "|---|---|", *rows, "")
                yield from _commands(command, level + 1)


def _arguments(command: argparse.ArgumentParser) -> Iterator[str]:
    for action in command._actions:
        if isinstance(action, (argparse._SubParsersAction, argparse._HelpAction)):
            continue
        names = ", ".join(f"`{name}`" for name in action.option_strings) or f"`{action.metavar or action.dest}`"
        if action.option_strings and action.nargs != 0:
            names += f" `{action.metavar or action.dest.upper()}`"
        told = (action.help or "").replace("%(default)s", str(action.default)).replace("%%", "%")
        yield f"| {names} | {told.replace('|', chr(92) + '|')} |"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
