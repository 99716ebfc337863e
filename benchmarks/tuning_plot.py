"""A picture of the tuning benchmark: the best time of all over the best so far, against measured candidates."""

from __future__ import annotations

import importlib
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.cpu_plot import check
from benchmarks.tuning_curves import Curve

_COLOURS = {"model": "#2a7f9e", "genetic": "#7a9e2a", "random": "#c8553d"}
_COLUMNS = 4


def draw(curves: Mapping[str, Mapping[str, Sequence[Curve]]], best: Mapping[str, float], path: Path) -> None:
    """One frame for each workload: the median over seeds of each strategy, and all of its seeds as a band.

    ``curves`` are by workload and strategy.  Raises TargetError if matplotlib is not installed.
    """
    check()
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot = importlib.import_module("matplotlib.pyplot")
    rows = math.ceil(len(curves) / _COLUMNS)
    figure, frames = pyplot.subplots(
        rows, _COLUMNS, figsize=(3.2 * _COLUMNS, 2.4 * rows), squeeze=False, sharey=True, layout="constrained"
    )
    for frame in frames.flat[len(curves) :]:
        frame.set_visible(False)
    for frame, (workload, strategies) in zip(frames.flat, curves.items(), strict=False):
        for strategy, found in strategies.items():
            length = min(map(len, found))
            shares = [[best[workload] / curve[count] for curve in found] for count in range(length)]
            counts = range(1, length + 1)
            colour = _COLOURS.get(strategy)
            frame.plot(counts, [statistics.median(s) for s in shares], color=colour, label=strategy)
            frame.fill_between(counts, [min(s) for s in shares], [max(s) for s in shares], color=colour, alpha=0.15)
        frame.set_title(workload, fontsize=9)
        frame.set_ylim(0, 1.05)
    frames.flat[0].legend(fontsize=8)
    figure.supxlabel("measured candidates")
    figure.supylabel("best time of all / best so far")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
