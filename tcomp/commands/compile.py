"""``tcomp compile``: print the source of a kernel, or any stage on the way to it.  Nothing runs."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass

from tcomp.commands.display import show_line, show_source
from tcomp.commands.exit_codes import DONE
from tcomp.commands.programs import Request, add_program_arguments, program_request, suggestion
from tcomp.debug import stage_suffix
from tcomp.errors import TcompError

_LIST = "list"
_SOURCE = "source"
_KERNEL = "kernel"


@dataclass(frozen=True, slots=True)
class CompileRequest:
    """What the command line asks for; ``until`` is None unless all stages up to one are wanted."""

    program: Request
    emit: str
    until: str | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``tcomp compile``."""
    add_program_arguments(parser)
    parser.add_argument(
        "--emit",
        default=_SOURCE,
        metavar="STAGE",
        help="the stage to print; source is the last one, list names them all",
    )
    parser.add_argument("--until", metavar="PASS", help="print every stage up to this one")
    parser.set_defaults(
        execute=lambda values: execute(CompileRequest(program_request(values), values.emit, values.until))
    )


def execute(request: CompileRequest) -> int:
    """Compile a program and print what is asked for.  Raises TcompError."""
    program = request.program.load()
    kernel = program.operation.compile(
        sizes=dict(request.program.sizes), target=request.program.target, options=program.options
    )
    stages = kernel.stages
    if request.until is not None:
        last = _stage(request.until, stages)
        for name in list(stages)[: list(stages).index(last) + 1]:
            show_line(f"==== {name}", "bold")
            show_source(stages[name], stage_suffix(name))
    elif request.emit == _LIST:
        for name in stages:
            show_line(name)
    else:
        name = _stage(request.emit, stages)
        show_source(stages[name], stage_suffix(name))
    return DONE


def _stage(name: str, stages: Mapping[str, str]) -> str:
    """A stage by name; ``source`` is the kernel.  Raises TcompError for a name that is none."""
    name = _KERNEL if name == _SOURCE else name
    if name not in stages:
        raise TcompError(f"there is no stage {name}; {suggestion(name, stages, 'the stages are')}")
    return name
