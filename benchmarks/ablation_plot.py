"""A picture of what networks take without each pass: passes down, classes of networks across, darker for more."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

_MOST = 4.0
"""The ratio from which on cells are no darker."""
_SAME = "\N{MIDDLE DOT}"


def ratios(found: Mapping[str, Any], measured: str) -> tuple[list[str], list[list[float | None]]]:
    """Passes, and for each of them and each class how many times as long a network takes without it.

    ``measured`` is "ms" (one input) or "several_ms".  None stands where a pass changes nothing, or nothing was
    measured.  Passes that change no network are left out.
    """
    kinds: Sequence[Mapping[str, Any]] = found["classes"]
    by_class = [{row["without"]: row for row in kind["rows"]} for kind in kinds]
    names = [name for name in by_class[0] if name]
    rows = [[_ratio(rows, name, measured) for rows in by_class] for name in names]
    kept = [(name, row) for name, row in zip(names, rows, strict=True) if any(row)]
    return [name for name, _ in kept], [row for _, row in kept]


def _ratio(rows: Mapping[str, Mapping[str, Any]], name: str, measured: str) -> float | None:
    row, whole = rows.get(name), rows[""]
    if row is None or row["same"] or not row[measured] or not whole[measured]:
        return None
    return float(row[measured] / whole[measured])


def draw(found: Mapping[str, Any], path: Path) -> None:
    """One square for each pass and each class, of one input on the left and of several on the right."""
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "tcomp", "font.family": "sans-serif"})
    pyplot = importlib.import_module("matplotlib.pyplot")
    colors = importlib.import_module("matplotlib.colors").TwoSlopeNorm(1.0, 1 / _MOST, _MOST)
    sides = [("one input", "ms"), (f"{found['batch']} inputs", "several_ms")]
    count = len(ratios(found, "ms")[0])
    figure, both = pyplot.subplots(1, 2, figsize=(10, 1.3 + 0.24 * count), layout="constrained", facecolor="#ffffff")
    for axes, (title, measured) in zip(both, sides, strict=True):
        names, rows = ratios(found, measured)
        shown = [[1.0 if r is None else min(r, _MOST) for r in row] for row in rows]
        axes.imshow(shown, cmap="RdBu_r", norm=colors, aspect="auto")
        for down, row in enumerate(rows):
            for across, ratio in enumerate(row):
                ink = "#ffffff" if ratio and ratio > _MOST * 0.7 else "#222222"
                told = _SAME if ratio is None else f"{ratio:.2f}"
                axes.text(across, down, told, ha="center", va="center", fontsize=7, color=ink)
        axes.set_xticks(range(len(found["classes"])), [kind["class"] for kind in found["classes"]], fontsize=7)
        axes.set_yticks(range(len(names)), [f"without {name}" for name in names], fontsize=7)
        axes.tick_params(length=0)
        axes.set_title(title, fontsize=8)
    figure.suptitle(
        f"How many times as long a network takes without a pass; {_SAME}: it changes nothing there\n"
        f"{found['machine']['processor']}, {found['machine']['threads']} threads, {found['date'][:10]}",
        fontsize=9,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, facecolor="#ffffff")
    pyplot.close(figure)
