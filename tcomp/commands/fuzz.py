"""``tcomp fuzz``: compile random programs under random options, run them, and compare them with the interpreter."""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from tcomp.commands.inputs.programs import read_source
from tcomp.commands.inputs.types import parse_count, parse_seconds, parse_seed
from tcomp.commands.terminal.display import show_line, show_table
from tcomp.commands.terminal.exit_codes import DONE, WRONG
from tcomp.errors import TargetError
from tcomp.fuzzing.campaign import Campaign, Settings, Tally, make_directory
from tcomp.fuzzing.cases import read_case
from tcomp.fuzzing.execution import Verdict
from tcomp.fuzzing.gradients import try_many
from tcomp.fuzzing.machinery import MACHINERY
from tcomp.fuzzing.programs.features import FEATURES
from tcomp.fuzzing.workers import Worker
from tcomp.mapping.machines.gpu import GPUS
from tcomp.runtime.registry import check_available, targets
from tcomp.storage.wholefiles import write_whole

_TARGETS = {
    "cpu": ("cpu",),
    "simulator": ("simulator",),
    "both": ("cpu", "simulator"),
    "cuda": ("cuda",),
    "opencl": ("opencl",),
}
OPERANDS = ("float8_e4m3fn", "float8_e5m2", "float16", "bfloat16", "int8", "uint8", "float32", "float64")
"""Types whose products are multiplied by instructions for matrices."""

_REPORT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class FuzzRequest:
    """What the command line asks for: a search, or, if ``replayed`` names files, the cases in them once more.

    Settings without targets stand for those that are here.
    """

    settings: Settings
    replayed: tuple[str, ...]
    statistics: bool
    gradients: bool = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``tcomp fuzz``."""
    parser.add_argument("--seconds", type=parse_seconds, default=60.0, help="how long to go on (default: 60)")
    parser.add_argument("--programs", type=parse_count, metavar="N", help="end after so many programs, too")
    parser.add_argument("--seed", type=parse_seed, default=1, help="draws other programs (default: 1)")
    parser.add_argument(
        "--target",
        action="append",
        type=_parse_target,
        metavar="TARGET",
        help=f"where to run, once or several times: {', '.join(_TARGETS)}, or simulator with an architecture, such as"
        " simulator:sm_90 (default: those of both that are here)",
    )
    parser.add_argument(
        "--matrices", action="store_true", help="begin programs with products of large matrices of 16-bit floats"
    )
    parser.add_argument(
        "--operands",
        choices=OPERANDS,
        default="",
        metavar="TYPE",
        help="begin programs with products of such elements, and draw `math`: %(choices)s",
    )
    parser.add_argument("--jobs", type=parse_count, default=1, help="processes that try programs (default: 1)")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="write a reproducer of each failure to DIR")
    parser.add_argument(
        "--limit",
        type=parse_seconds,
        default=300.0,
        metavar="SECONDS",
        help="a run that works for longer fails (default: 300)",
    )
    parser.add_argument(
        "--reduction",
        type=parse_seconds,
        default=300.0,
        metavar="SECONDS",
        help="how long to try to make a failure small (default: 300)",
    )
    parser.add_argument(
        "--gradients", action="store_true", help="compare derivatives of random programs instead, by the interpreter"
    )
    parser.add_argument("--statistics", action="store_true", help="print how many programs have each feature")
    parser.add_argument("--replay", nargs="+", default=[], metavar="FILE", help="run reproducers instead")
    parser.set_defaults(execute=lambda values: execute(_request(values)))


def _parse_target(text: str) -> tuple[str, ...]:
    """The targets that one word of the command line stands for.  Raises argparse.ArgumentTypeError."""
    name, _, architecture = text.partition(":")
    if text in _TARGETS:
        return _TARGETS[text]
    if name == "simulator" and architecture in GPUS:
        return (text,)
    raise argparse.ArgumentTypeError(f"there is no target {text!r}")


def _request(values: argparse.Namespace) -> FuzzRequest:
    names = tuple(dict.fromkeys(name for target in values.target or () for name in target))
    settings = Settings(
        values.seconds, values.seed, names, values.jobs, values.keep, values.limit, values.reduction, values.programs,
        values.matrices, values.operands,
    )  # fmt: skip
    return FuzzRequest(settings, tuple(values.replay), values.statistics, values.gradients)


def execute(request: FuzzRequest) -> int:
    """Search or replay.  Returns WRONG if anything failed.  Raises TcompError, TargetError if a target is not here."""
    if request.gradients:
        return _try_gradients(request.settings)
    if request.replayed:
        return _replay(request)
    campaign = Campaign(replace(request.settings, targets=_targets_here(request.settings.targets)), _say)
    try:
        campaign.run(_REPORT_SECONDS)
    finally:
        _show(campaign.tally, request.statistics)
    return WRONG if campaign.tally.failed else DONE


def _try_gradients(settings: Settings) -> int:
    """Derivatives of random programs.  Returns WRONG if any are wrong."""
    tally = try_many(settings.seed, settings.seconds, settings.programs, settings.jobs)
    for refusal, count in tally.refusals.most_common():
        show_line(f"refused {count} times: {refusal}")
    for seed, text, reason in tally.failures:
        _say(f"seed {seed}: {reason}\n{text}")
        if settings.keep is not None:
            make_directory(settings.keep)
            write_whole(settings.keep / f"gradient-{seed}.tc", f"{text}\n".encode())
    show_line(str(tally), "red" if tally.failures else "green")
    return WRONG if tally.failures else DONE


def _targets_here(names: tuple[str, ...]) -> tuple[str, ...]:
    """These targets, or if there are none, those that are here.  Raises TargetError for one that is not."""
    state = targets()
    here = tuple(name for name in _TARGETS["both"] if state[name])
    asked = (name.partition(":")[0] for name in names or here or _TARGETS["both"])
    missing = [name for name in asked if not state[name]]
    if missing:
        raise TargetError(f"the target {missing[0]} is not here: {state[missing[0]].detail}")
    return names or here


def _replay(request: FuzzRequest) -> int:
    failed = False
    with Worker(request.settings.limit) as worker:
        for file in request.replayed:
            case = read_case(read_source(file)[0])
            check_available(case.target)
            outcome = worker.run(case).outcome
            failed |= outcome.verdict is not Verdict.PASSED
            _say(f"{file}: {outcome.verdict} {outcome.kind}\n{outcome.detail}".rstrip())
    return WRONG if failed else DONE


def _say(text: str) -> None:
    show_line(text)
    sys.stdout.flush()


def _show(tally: Tally, statistics: bool) -> None:
    if statistics:
        rows = [
            (name, str(tally.features[name]), f"{tally.features[name] / max(1, tally.programs):.1%}")
            for name in FEATURES
        ]
        show_table(("feature", "programs", "share"), rows)
        for target, used in tally.used.items():
            runs = tally.runs[target]
            found = [(name, str(used[name]), f"{used[name] / runs:.1%}") for name in MACHINERY[target]]
            show_table((f"used on {target}", "runs", "share"), found)
        tried = ", ".join(f"{count} {name}" for name, count in sorted(tally.attempts.items()))
        show_line(f"statements tried: {tried}; slowest run: {tally.slowest:.1f} s")
    for kind, count in tally.refused.most_common():
        show_line(f"refused {count} times: {kind}")
    for kind, count in tally.failed.most_common():
        show_line(f"failed {count} times: {kind}", "red")
    show_line(str(tally), "red" if tally.failed else "green")
