"""``tcomp tune``: search for the mapping options that make programs fastest on this machine, and keep them."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tcomp.arrays.devices import MAIN
from tcomp.commands.inputs.programs import add_types_argument, read_chosen, suggestion
from tcomp.commands.inputs.shapes import parse_shapes
from tcomp.commands.inputs.types import parse_count, parse_seconds, parse_seed
from tcomp.commands.terminal.display import show_error, show_line
from tcomp.commands.terminal.exit_codes import DONE, INTERRUPTED, WRONG
from tcomp.commands.terminal.progress import ProgressDisplay
from tcomp.errors import ShapeError, TcompError
from tcomp.grammar.ranges.sizes import check_sizes
from tcomp.grammar.tree.function import Function
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.terms.sizes import Sizes
from tcomp.runtime.arguments import constant
from tcomp.runtime.registry import DEFAULT_TARGET, resolve
from tcomp.runtime.specialisation import Specialisation
from tcomp.tuner.database.database import Database
from tcomp.tuner.database.file import database_path, open_database
from tcomp.tuner.database.identity import device_model, identity_of
from tcomp.tuner.database.trials import Problem
from tcomp.tuner.report.report import write_report
from tcomp.tuner.report.result import TuningResult
from tcomp.tuner.settings import Settings, default_strategy
from tcomp.tuner.strategies import STRATEGIES
from tcomp.tuner.tuning import tune


@dataclass(frozen=True, slots=True)
class TuneRequest:
    """What the command line asks for; ``shapes`` are tuned for each of the ``definitions`` of the ``files``.

    ``types`` are the element types of those that have them as parameters.
    """

    files: tuple[str, ...]
    definitions: tuple[str, ...]
    shapes: tuple[Mapping[str, int], ...]
    types: Mapping[str, str]
    target: str
    settings: Settings
    jobs: int | None
    executor: str | None
    report: Path | None
    quiet: bool
    json: bool


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``tcomp tune``."""
    parser.add_argument(
        "files", metavar="FILE", nargs="+", help="program text; - reads stdin, library:NAME a shipped operator"
    )
    parser.add_argument(
        "--def",
        dest="definitions",
        action="append",
        default=[],
        metavar="NAME",
        help="a def to tune; by default the only one of each file, or the one named like the file",
    )
    parser.add_argument(
        "--sizes",
        type=parse_shapes,
        action="append",
        default=[],
        metavar="M=128..1024:pow2,N=256",
        help="values of size symbols and const parameters: a number, several as 128/300, a range with a step, or "
        "doublings; all combinations are tuned, one after another.  Given several times, each stands for itself",
    )
    add_types_argument(parser)
    parser.add_argument("--target", default=DEFAULT_TARGET, help=f"where to run (default: {DEFAULT_TARGET})")
    parser.add_argument(
        "--budget", type=parse_seconds, default=60.0, metavar="SECONDS", help="for each def and shape (default: 60)"
    )
    parser.add_argument(
        "--strategy",
        choices=tuple(STRATEGIES),
        default=default_strategy(),
        help=f"(default: {default_strategy()}; model needs scikit-learn: pip install 'tcomp[tune]')",
    )
    parser.add_argument("--seed", type=parse_seed, default=0, help="draws other candidates (default: 0)")
    parser.add_argument("--jobs", type=parse_count, help="processes that compile (default: one for each processor)")
    parser.add_argument("--executor", metavar="dask://HOST:PORT", help="compile and measure on the workers of Dask")
    parser.add_argument("--report", type=Path, metavar="FILE.html", help="write a page about the search")
    parser.add_argument("--quiet", action="store_true", help="print the best options only")
    parser.add_argument("--json", action="store_true", help="print everything as one JSON object")
    parser.set_defaults(execute=lambda values: execute(_request(values)))


def _request(values: argparse.Namespace) -> TuneRequest:
    shapes = tuple(shape for family in values.sizes for shape in family) or ({},)
    settings = Settings(values.budget, values.strategy, values.seed)
    return TuneRequest(
        tuple(values.files),
        tuple(values.definitions),
        shapes,
        values.types,
        values.target,
        settings,
        values.jobs,
        values.executor,
        values.report,
        values.quiet,
        values.json,
    )


def execute(request: TuneRequest) -> int:
    """Tune every def for every shape.  Returns INTERRUPTED after Ctrl-C, WRONG where a result could not be kept.

    Raises TcompError.
    """
    problems = _problems(request)
    results: list[TuningResult] = []
    with open_database() as database:
        try:
            for problem in problems:
                results.append(_tuned(problem, request, database, f" ({len(results) + 1} of {len(problems)})"))
                _show(results[-1], request)
                if results[-1].interrupted:
                    break
        finally:
            lost = _lost(results, database)
            _finish(results, request, lost)
    if results and results[-1].interrupted:
        return INTERRUPTED
    return WRONG if any(lost) else DONE


def _tuned(problem: Problem, request: TuneRequest, database: Database, place: str) -> TuningResult:
    with ProgressDisplay(request.quiet or request.json) as display:
        display.place = "" if place == " (1 of 1)" else place
        return tune(
            problem, request.settings, jobs=request.jobs, executor=request.executor, database=database, watch=display
        )


def _show(result: TuningResult, request: TuneRequest) -> None:
    if request.quiet and not request.json:
        show_line(f"{result.label}: {result.best}")
    elif not request.json:
        for line in result.summary().splitlines():
            show_line(line)
    sys.stdout.flush()


def _lost(results: Sequence[TuningResult], database: Database) -> list[str]:
    """Why each result could not be kept; an empty text where it could, or where nothing is to be kept."""
    if database.path is None:
        # There was a warning if there is a place for the file, but it cannot serve.
        return ["it cannot be used" if database_path() is not None and _is_found(r) else "" for r in results]
    return [database.lost.get(identity_of(r.problem.specialisation, r.problem.device), "") for r in results]


def _is_found(result: TuningResult) -> bool:
    """Whether there is something to keep."""
    return result.seconds < math.inf and not result.undecided


def _finish(results: Sequence[TuningResult], request: TuneRequest, lost: Sequence[str]) -> None:
    """Write what is told of all problems together."""
    if request.json:
        sys.stdout.write(json.dumps({"results": [r.to_plain() for r in results]}, indent=1) + "\n")
    if request.report is not None and results:
        write_report(request.report, results)
    place = database_path()
    reasons = [reason for reason in lost if reason]
    if results and not request.quiet and not request.json:
        kept = f"kept in {place}; calls use it from now on"
        if place is None or not any(_is_found(r) and not reason for r, reason in zip(results, lost, strict=True)):
            kept = "nothing is kept for calls" if place else "nothing is kept: TCOMP_TUNED is 0, or there is no cache"
        show_line(kept if request.report is None else f"{kept}; report in {request.report}")
    if reasons:
        sys.stdout.flush()
        which = "the result" if len(results) == 1 else f"{len(reasons)} of {len(results)} results"
        show_error(f"error: {which} could not be kept in {place}: {reasons[0]}")


def _problems(request: TuneRequest) -> list[Problem]:
    """Every def for every shape.  Raises TcompError."""
    functions, names = _functions(request)
    found = {function.name for function in functions}
    missing = [name for name in request.definitions if name not in found]
    if missing:
        raise TcompError(f"there is no def {missing[0]} in {', '.join(request.files)}")
    known = {name for function in functions for name in _size_names(function)}
    for shape in request.shapes:
        unknown = [name for name in shape if name not in known]
        if unknown:
            raise ShapeError(f"there is no size {unknown[0]}; {suggestion(unknown[0], known, 'the sizes are')}")
    other = [name for name in request.types if name not in names]
    if other:
        raise TcompError(
            f"there is no element type {other[0]}; {suggestion(other[0], names, 'those that are parameters are')}"
        )
    target = resolve(request.target, MAIN)
    device = device_model(target, MAIN)
    problems: dict[str, Problem] = {}
    for function in functions:
        for shape in request.shapes:
            made = _specialisation(function, shape, target)
            problems.setdefault(made.key(), Problem(made, device, request.settings.seed))
    return list(problems.values())


def _functions(request: TuneRequest) -> tuple[list[Function], set[str]]:
    """The defs to tune, and the names of the element types that are parameters of them.  Raises TcompError."""
    functions: list[Function] = []
    names: set[str] = set()
    for file in request.files:
        chosen, types = read_chosen(file, request.definitions, request.types)
        functions += chosen
        names |= types
    for function in functions:
        for warning in function.warnings:
            show_error(str(warning), "yellow")
    return functions, names


def _size_names(function: Function) -> tuple[str, ...]:
    return (*function.sizes, *(tensor.name for tensor in function.inputs if tensor.role == "const"))


def _specialisation(function: Function, shape: Mapping[str, int], target: str) -> Specialisation:
    """A def for those of the sizes that it has.  Raises ShapeError if one is missing or wrong."""
    sizes = function.defaults | {name: shape[name] for name in _size_names(function) if name in shape}
    check_sizes(function, sizes)
    for tensor in function.inputs:
        if tensor.role == "const":
            constant(sizes[tensor.name], tensor, function.source)
    return Specialisation(function, Sizes(sizes), MappingOptions(), target, False)
