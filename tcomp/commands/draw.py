"""``tcomp draw``: pictures of a compiled program as SVG, PNG or GIF."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from tcomp.arrays.devices import MAIN
from tcomp.commands.inputs.programs import Program, Request, add_program_arguments, program_request, read_functions
from tcomp.commands.terminal.display import show_line
from tcomp.commands.terminal.exit_codes import DONE
from tcomp.errors import TcompError
from tcomp.grammar.ranges.ranges import infer
from tcomp.model.madeup import random_arguments
from tcomp.pictures.canvas import Picture
from tcomp.pictures.drawing import BANKS, KINDS, OF_STEPS, PROFILE, draw
from tcomp.pictures.rates import Work, draw_curve, draw_roofline
from tcomp.runtime.kernel import Kernel
from tcomp.runtime.specialisation import Specialisation
from tcomp.tuner.database.identity import device_model
from tcomp.tuner.database.trials import Problem
from tcomp.tuner.measuring.timing import sampled, stopwatch_of
from tcomp.tuner.report.roofs import roofs_of, work_of

_ROOFLINE, _TUNING = "roofline", "tuning"
_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class DrawRequest:
    """What the command line asks for."""

    program: Request
    what: str
    output: Path
    seconds: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``tcomp draw``."""
    add_program_arguments(parser, purpose="what to compile for, such as cuda:sm_90; no GPU is needed")
    kinds = (*KINDS, BANKS, PROFILE, _ROOFLINE, _TUNING)
    parser.add_argument("--what", choices=kinds, default="tree", help="the picture (default: tree)")
    parser.add_argument(
        "--output",
        type=Path,
        default=None,
        metavar="FILE",
        help="a name that ends in .svg, .png or .gif (default: WHAT.svg)",
    )
    parser.add_argument(
        "--budget", type=float, default=_SECONDS, metavar="SECONDS", help="how long to tune for its curve"
    )
    parser.set_defaults(execute=lambda values: execute(_request(values)))


def _request(values: argparse.Namespace) -> DrawRequest:
    output = values.output or Path(f"{values.what}.svg")
    return DrawRequest(program_request(values), values.what, output, values.budget)


def execute(request: DrawRequest) -> int:
    """Compile, draw, and write.  Raises TcompError."""
    show_line(str(_drawn(request).save(request.output)))
    return DONE


def _drawn(request: DrawRequest) -> Picture:
    sizes, target = request.program.sizes, request.program.target
    if request.what == _ROOFLINE:
        return _roofline(request)
    program = request.program.load()
    specialisation = program.specialised(sizes, target)
    if program.operation.function.recurs and request.what not in (*OF_STEPS, PROFILE):
        known = ", ".join((*OF_STEPS, PROFILE))
        raise TcompError(f"{program.operation.name} runs step by step (`for`); what is drawn of that: {known}")
    if request.what == _TUNING:
        result = program.operation.tune(sizes=sizes, target=target, budget=request.seconds)
        return draw_curve(result.ratios, result.label)
    return draw(specialisation.lower(), request.what, specialisation.sizes)


def _roofline(request: DrawRequest) -> Picture:
    """All defs of a file whose sizes are given, or the one that is named, on one roofline; on a processor measured."""
    names: Sequence[str] = [request.program.definition] if request.program.definition else []
    if not names:
        functions, _ = read_functions(request.program.file)
        names = [n for n, f in functions.items() if {*f.sizes} - {*f.defaults} <= {*request.program.sizes}]
    if not names:
        raise TcompError("there is no def whose sizes are all given: say --sizes")
    works, roofs = [], None
    for name in names:
        function = read_functions(request.program.file, name)[0][name]
        own = {
            n: v for n, v in request.program.sizes.items() if n in (*function.sizes, *(t.name for t in function.inputs))
        }
        program = replace(request.program, definition=name, sizes=own).load()
        specialisation = program.specialised(own, request.program.target)
        work = work_of(specialisation.lower())
        roofs = roofs or roofs_of(Problem(specialisation, device_model(specialisation.target, MAIN), 0, None))
        works.append(Work(name, work.flops, work.bytes, _seconds(program, specialisation)))
    assert roofs is not None
    return draw_roofline(works, roofs.flops, roofs.bandwidth, roofs.source)


def _seconds(program: Program, specialisation: Specialisation) -> float | None:
    """The median time of a call on a processor; None for a GPU."""
    if specialisation.target != "cpu":
        return None
    kernel, function = Kernel(specialisation), program.operation.function
    arguments = random_arguments(function, infer(function, specialisation.sizes.values), 0)
    out = arguments.fresh_contents() or None
    return float(np.median(sampled(stopwatch_of(lambda: kernel(*arguments.values, out=out)))))
