"""``tcomp export``: write kernels into a folder, to be compiled, linked and called where there is no tcomp."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tcomp.commands.inputs.programs import Request, add_program_arguments, program_request
from tcomp.commands.inputs.shapes import parse_shapes
from tcomp.commands.terminal.display import show_line
from tcomp.commands.terminal.exit_codes import DONE
from tcomp.export.folder import export
from tcomp.export.interface import Variant


@dataclass(frozen=True, slots=True)
class ExportRequest:
    """What the command line asks for: a kernel for each of the shapes."""

    program: Request
    shapes: tuple[Mapping[str, int], ...]
    folder: Path
    name: str | None
    architectures: tuple[str, ...] | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``tcomp export``."""
    add_program_arguments(parser, purpose="what to export for, cpu or such as cuda:sm_90; no GPU is needed")
    parser.add_argument("--output", type=Path, required=True, metavar="FOLDER", help="where the files go")
    parser.add_argument(
        "--shapes",
        type=parse_shapes,
        action="append",
        default=[],
        metavar="M=64/128,N=64",
        help="sizes, with several values, of several kernels behind one function",
    )
    parser.add_argument("--name", metavar="NAME", help="what the function is called instead of as the def")
    parser.add_argument(
        "--architectures",
        type=lambda text: tuple(text.split(",")),
        default=None,
        metavar="sm_80,sm_90",
        help="GPUs to make machine code for (default: all that run the kernels)",
    )

    def run(values: argparse.Namespace) -> int:
        if values.shapes and values.sizes:
            parser.error("--sizes is for one kernel, --shapes for several: give all sizes to --shapes")
        return execute(_request(values))

    parser.set_defaults(execute=run)


def _request(values: argparse.Namespace) -> ExportRequest:
    program = program_request(values)
    families = tuple(shape for family in values.shapes for shape in family)
    return ExportRequest(program, families or (program.sizes,), values.output, values.name, values.architectures)


def execute(request: ExportRequest) -> int:
    """Compile, write, and list the files.  Raises TcompError."""
    program = replace(request.program, sizes=request.shapes[0]).load()
    made = [program.specialised(shape, request.program.target) for shape in request.shapes]
    variants = [Variant(dict(m.sizes.values), m.source()[0]) for m in made]
    files = export(made[0].function, variants, made[0].target, request.folder, request.name, request.architectures)
    for file in files:
        show_line(str(file))
    return DONE
