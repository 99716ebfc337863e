"""``tcomp compare``: several mappings of a program beside each other, as tables, as JSON, and as a page."""

from __future__ import annotations

import argparse
import difflib
import itertools
import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tcomp.commands.comparing.page import page
from tcomp.commands.comparing.sides import Side, side_of
from tcomp.commands.inputs.programs import Request, add_program_arguments, program_request
from tcomp.commands.terminal.display import show_line, show_source, show_table
from tcomp.commands.terminal.exit_codes import DONE
from tcomp.errors import TcompError
from tcomp.storage.wholefiles import write_whole
from tcomp.tuner.report.wording import readable_seconds

_NARROWEST = 24
"""Characters of a column of loops."""


@dataclass(frozen=True, slots=True)
class CompareRequest:
    """What the command line asks for: a side for each of ``programs``, which differ in their options."""

    names: tuple[str, ...]
    programs: tuple[Request, ...]
    timed: bool
    json: bool
    text: bool
    html: Path | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``tcomp compare``."""
    add_program_arguments(parser, purpose="what to map for", mapped=False)
    parser.add_argument(
        "--options",
        dest="sides",
        action="append",
        default=[],
        metavar="OPTIONS",
        help="mapping options of a side, as other commands take them; 'default' is the model's choice; give it several "
        "times, or once to compare with the model's choice",
    )
    parser.add_argument("--no-time", dest="timed", action="store_false", help="run nothing, and simulate nothing")
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")
    parser.add_argument("--text", action="store_true", help="print the difference of the texts, too")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page as well")
    parser.set_defaults(execute=lambda values: execute(_request(values)))


def _request(values: argparse.Namespace) -> CompareRequest:
    names = list(dict.fromkeys(values.sides))
    if len(names) < 2 and "default" not in names:
        names.insert(0, "default")
    if len(names) < 2:
        raise TcompError("there is nothing to compare: give --options more than once, with different values")
    program = program_request(values)
    sides = tuple(replace(program, options="" if name == "default" else name) for name in names)
    return CompareRequest(tuple(names), sides, values.timed, values.json, values.text, values.html)


def execute(request: CompareRequest) -> int:
    """Compile every side, and print what differs.  Raises TcompError."""
    sides = []
    for name, program in zip(request.names, request.programs, strict=True):
        loaded = program.load()
        sides.append(side_of(name, loaded, program.sizes, program.target, request.timed))
    first = request.programs[0]
    title = f"{first.file} for {first.target}, {', '.join(f'{n}={v}' for n, v in first.sizes.items()) or 'no sizes'}"
    if request.html is not None:
        try:
            write_whole(request.html, page(title, sides, fact_rows(sides), differences(sides)).encode())
        except OSError as error:
            raise TcompError(f"cannot write {request.html}: {error.strerror or error}") from None
    if request.json:
        show_line(json.dumps(plain(title, sides), indent=1))
        return DONE
    show_table(("", *request.names), fact_rows(sides), title)
    show_line("")
    show_table(request.names, beside([side.loops for side in sides]), "loops")
    for one, other in itertools.pairwise(sides):
        changed = sum(line.startswith(("+", "-")) for line in difference(one, other)[2:])
        show_line(f"text: {changed} lines differ between {one.name} and {other.name}")
    if request.text:
        for text in differences(sides):
            show_source(text, "diff")
    return DONE


def fact_rows(sides: Sequence[Side]) -> list[tuple[str, ...]]:
    """A row for each fact, a column for each side; what only some sides have is empty in the others."""
    names = list(dict.fromkeys(fact[0] for side in sides for fact in side.facts))
    tables = [{what: (value, unit) for what, value, unit in side.facts} for side in sides]
    rows = [("options", *(side.options for side in sides))]
    return rows + [(name, *(_readable(*table[name]) if name in table else "" for table in tables)) for name in names]


def beside(texts: Sequence[str]) -> list[tuple[str, ...]]:
    """Texts as columns that fit a terminal."""
    width = max(_NARROWEST, shutil.get_terminal_size((160, 50)).columns // len(texts) - 2)
    columns = [[line if len(line) <= width else f"{line[: width - 3]}..." for line in t.splitlines()] for t in texts]
    return list(itertools.zip_longest(*columns, fillvalue=""))


def difference(one: Side, other: Side) -> list[str]:
    """How the text of one side becomes that of another, line by line."""
    lines = difflib.unified_diff(one.text.splitlines(), other.text.splitlines(), one.name, other.name, "", "", 2, "")
    return list(lines)


def differences(sides: Sequence[Side]) -> list[str]:
    """The difference from each side to the next."""
    return ["\n".join(difference(one, other)) + "\n" for one, other in itertools.pairwise(sides)]


def plain(title: str, sides: Sequence[Side]) -> dict[str, object]:
    """Everything as JSON has it; what is no number there is null."""

    def number(value: float) -> float | None:
        return value if math.isfinite(value) else None

    plain_sides = [
        asdict(side) | {"facts": {what: {"value": number(value), "unit": unit} for what, value, unit in side.facts}}
        for side in sides
    ]
    return {"title": title, "sides": plain_sides, "text": differences(sides)}


def _readable(value: float, unit: str) -> str:
    if unit == "s":
        return readable_seconds(value)
    text = f"{value:,.0f}" if value == round(value) else f"{value:,.3g}"
    return f"{text} {unit}".rstrip()
