"""A picture of the CPU benchmark: a bar for every row's ratio, from the JSON."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tcomp.errors import TargetError

_AHEAD, _BEHIND = "#2a7f9e", "#c8553d"


def check() -> None:
    """Raises TargetError if matplotlib is not installed."""
    try:
        importlib.import_module("matplotlib")
    except ImportError as error:
        raise TargetError(f"--plot needs matplotlib, which is not installed: {error}") from None


def draw(found: Mapping[str, Any], path: Path) -> None:
    """Write horizontal bars of the ratio to the best peer, which is named beside each, on a logarithmic axis.

    Raises TargetError if matplotlib is not installed.
    """
    check()
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    pyplot = importlib.import_module("matplotlib.pyplot")
    rows = [row for row in reversed(found["rows"]) if row["ratio"] is not None]
    figure, axes = pyplot.subplots(figsize=(9, 1.5 + 0.3 * len(rows)), layout="constrained")
    ratios = [row["ratio"] for row in rows]
    axes.barh(
        [f"{row['key']}  {row['title']}" for row in rows], [ratio - 1 for ratio in ratios], left=1,
        color=[_AHEAD if ratio >= 1 else _BEHIND for ratio in ratios],
    )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.axvline(1, color="black", linewidth=0.8)
    for place, row in enumerate(rows):
        side = "left" if row["ratio"] >= 1 else "right"
        gap = 3 if side == "left" else -3
        axes.annotate(
            f"{row['ratio']:.2f} {row['best_peer']}", (row["ratio"], place), (gap, 0), textcoords="offset points",
            ha=side, va="center", fontsize=8,
        )  # fmt: skip
    axes.set_xlim(min([0.5, *ratios]) / 2, max([2, *ratios]) * 2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    mean = found["summary"]["against_best"]
    axes.set_title(f"best peer's time / tcomp's, threads: {found['threads']}; geometric mean {mean or 0:.2f}")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    pyplot.close(figure)
