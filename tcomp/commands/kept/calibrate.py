"""``tcomp calibrate``: fit to this machine what was fitted to others."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping

from tcomp.calibration.kernels import Kernels
from tcomp.calibration.search import Search, Step
from tcomp.commands.inputs.types import parse_seconds
from tcomp.commands.terminal.display import show_line, show_table
from tcomp.commands.terminal.exit_codes import DONE
from tcomp.mapping.machines.cpu import processor_name
from tcomp.mapping.machines.fitted.replacing import shipped
from tcomp.runtime.calibrated import Calibration, calibrated, forget, keep, kept
from tcomp.runtime.registry import check_available

_SECONDS = 60.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of ``tcomp calibrate``."""
    parser.add_argument(
        "--seconds", type=parse_seconds, default=_SECONDS, help=f"how long to try (default: {_SECONDS:.0f})"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--show", action="store_true", help="show what was found before, and try nothing")
    what.add_argument("--forget", action="store_true", help="go back to the numbers that tcomp comes with")
    parser.set_defaults(execute=lambda values: execute(values.seconds, values.show, values.forget))


def execute(seconds: float, show: bool, forgetting: bool) -> int:
    """Fit, show or forget.  Raises TcompError; TargetError without a C compiler."""
    calibrated()
    if show:
        found = kept()
        if found is None:
            show_line("nothing was fitted to this processor: kernels use the numbers that tcomp comes with")
        else:
            show_line(f"fitted on {found.date}, {found.processor}")
            _show(found)
    elif forgetting:
        show_line("forgotten" if forget() else "nothing was fitted to this processor")
    else:
        _fit(seconds)
    return DONE


def _fit(seconds: float) -> None:
    check_available("cpu")
    search = Search(Kernels(), seconds, _report)
    numbers = search.run()
    found = Calibration(numbers, search.gains, processor_name(), time.strftime("%Y-%m-%d"))
    path = keep(found)
    if numbers:
        _show(found)
        show_line(f"kept in {path}; kernels are made with these numbers from now on")
    else:
        show_line(f"{len(search.steps)} values tried: those that tcomp comes with are the best; that is kept in {path}")


def _report(step: Step) -> None:
    change = ", ".join(f"{name} {ratio:.2f}" for name, ratio in step.ratios.items()) or "changes no program"
    show_line(f"{'*' if step.stays else ' '} {step.number} = {_plain(step.value)}: {change}")


def _show(found: Calibration) -> None:
    defaults: Mapping[str, float] = shipped()
    rows = [
        (name, _plain(defaults[name]), _plain(value), f"{found.gains.get(name, 1.0):.2f}")
        for name, value in found.numbers.items()
        if name in defaults
    ]
    show_table(("number", "shipped", "here", "time, of that before"), rows)


def _plain(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.4g}"
