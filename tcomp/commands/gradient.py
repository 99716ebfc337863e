"""``tcomp gradient``: print the gradients of a def, or its tangents, as program text.  Nothing is compiled."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass

from tcomp.commands.inputs.programs import add_types_argument, read_function
from tcomp.commands.terminal.display import show_source
from tcomp.commands.terminal.exit_codes import DONE
from tcomp.derivatives.saving import Save
from tcomp.derivatives.tangent import tangent_text
from tcomp.operation import Operation


@dataclass(frozen=True, slots=True)
class GradientRequest:
    """What the command line asks for; ``wrt`` is None for all inputs of floats."""

    file: str
    definition: str | None
    wrt: tuple[str, ...] | None
    tangent: bool
    save: Save
    types: Mapping[str, str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``tcomp gradient``."""
    parser.add_argument("file", metavar="FILE", help="program text; - reads stdin, library:NAME a shipped operator")
    parser.add_argument("--def", dest="definition", metavar="NAME", help="the def to use; by default the only one")
    parser.add_argument(
        "--wrt", metavar="A,B", help="inputs to find gradients with respect to; by default all of floats"
    )
    parser.add_argument(
        "--save",
        default="statistics",
        metavar="WHAT",
        help="what the backward pass takes of the forward pass: statistics (default), all, none, or names, as A,B",
    )
    add_types_argument(parser)
    parser.add_argument("--tangent", action="store_true", help="forward mode: how outputs move with the inputs")
    parser.set_defaults(execute=lambda values: execute(_request(values)))


def _request(values: argparse.Namespace) -> GradientRequest:
    wrt = None if values.wrt is None else _names(values.wrt)
    save: Save = values.save if values.save in ("statistics", "all") else _names(values.save)
    save = () if values.save == "none" else save
    return GradientRequest(values.file, values.definition, wrt, values.tangent, save, values.types)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(","))


def execute(request: GradientRequest) -> int:
    """Derive and print.  Raises TcompError."""
    function = read_function(request.file, request.definition, request.types)
    operation = Operation(function)
    text = (
        tangent_text(function, request.wrt).text
        if request.tangent
        else operation.gradient(request.wrt, request.save).text
    )
    show_source(text, "tc")
    return DONE
