"""The pictures of the README and of the gallery: kernels beside their peers, the rooms of the code, schedules.

    python -m benchmarks.pictures

All are SVG with text as text, and come out the same to the byte for one version of matplotlib.  Needs matplotlib.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import ablation_plot, gallery
from benchmarks.ratios import gpu_ratios

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "pictures"
SPEED = ROOT / "benchmarks" / "results" / "gpu-h100-cases-2026-11-22.json"
ABLATIONS = sorted(SPEED.parent.glob("ablation-*.json"), key=lambda path: path.stem[-10:])

_AHEAD, _BEHIND, _INK = "#2a7f9e", "#c8553d", "#222222"
_PAPER, _WALL, _ROOM = "#ffffff", "#8aa4b0", "#e8f0f3"


@dataclass(frozen=True, slots=True)
class Storey:
    """Rooms that a program passes at one step of its way, or that all steps use; ``hint`` says what happens there."""

    title: str
    hint: str
    rooms: Sequence[str] = ()


def _of(folder: str, rooms: str) -> tuple[str, ...]:
    return tuple(f"{folder}/{room}" for room in rooms.split())


ABOVE = (
    Storey("commands", "tcomp run, compile, tune, ...", _of("commands", "inputs terminal comparing kept")),
    Storey("engine, operation", "define, and calls with arrays"),
    Storey("torch", "layers, patterns"),
    Storey("autograd", "defs as operators\nof torch"),
    Storey("bound", "arguments that\nare bound"),
    Storey(
        "networks",
        "whole networks, as\nchains of kernels",
        _of("networks", "algorithms aten batches kept lowering onnx precision rewriting studies texts"),
    ),
    Storey("schedules", "loops by hand,\nstep by step"),
    Storey(
        "tuner",
        "searches for the fastest options",
        _of("tuner", "space model searches measuring database report"),
    ),
    Storey("fuzzing", "random programs", _of("fuzzing", "programs")),
    Storey("calibration", "numbers fitted\nto this machine"),
)
WAY = (
    Storey("grammar", "text to a checked tree", _of("grammar", "parsing tree checking ranges calls")),
    Storey("model", "what is computed:\nstatements, accesses,\ndependences", _of("model", "stepwise terms")),
    Storey(
        "mapping",
        "when and where:\nschedule, fusion, tiles,\nthreads, memory, proof",
        _of("mapping", "plan fusion rescaling tiles contraction cpu gpu memory proof text options machines"),
    ),
    Storey("loops", "the plan as loops"),
    Storey("backends", "loops to C or CUDA", _of("backends", "c gpu cuda hip opencl simulator host")),
    Storey("runtime", "binds arrays, loads\nand runs kernels"),
)
BELOW = (
    Storey("arrays", "NumPy, CuPy,\nPyTorch"),
    Storey("values", "types, reductions,\nfunctions", _of("values", "vectormath")),
    Storey("export", "kernels\nto take away"),
    Storey("pictures", "what happens,\ndrawn"),
    Storey("derivatives", "gradients as\nprogram text", _of("derivatives", "gathering restating steps")),
    Storey("highlighting", "colours\nin editors"),
    Storey("storage", "caches, locks,\nfiles"),
    Storey("library", "operators that\ncome with it"),
)


def shown_rooms() -> set[str]:
    """Every folder that the picture of the rooms names."""
    storeys = [*ABOVE, *WAY, *BELOW]
    return {storey.title for storey in storeys} | {room for storey in storeys for room in storey.rooms}


def draw_rooms(path: Path) -> None:
    """The way of a program from left to right; above it what uses the way, below it what all of it uses."""
    pyplot = _pyplot()
    figure = pyplot.figure(figsize=(11, 5.85), facecolor=_PAPER)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_xlim(0, 110)
    axes.set_ylim(-4.5, 54)
    axes.axis("off")
    half = -(-len(ABOVE) // 2)
    _row(axes, ABOVE[:half], bottom=45, height=8, columns=3)
    _row(axes, ABOVE[half:], bottom=31.5, height=12.5, columns=3)
    _row(axes, WAY, bottom=12, height=16.5, columns=2)
    _row(axes, BELOW, bottom=-3, height=11.5, columns=1)
    for place in range(1, len(WAY)):
        right = 1.5 + place * 108.5 / len(WAY) - 1.5
        axes.annotate("", (right + 1.4, 26.5), (right - 0.4, 26.5), arrowprops={"arrowstyle": "-|>", "color": _INK})
    axes.text(55, 29.7, "from text to kernel", ha="center", va="center", fontsize=8, style="italic", color=_INK)
    axes.text(55, 10.2, "used by all of these", ha="center", va="center", fontsize=8, style="italic", color=_INK)
    _save(figure, path)


def _row(axes: Any, storeys: Sequence[Storey], bottom: float, height: float, columns: int) -> None:
    width = 108.5 / len(storeys)
    for place, storey in enumerate(storeys):
        _storey(axes, storey, (1.5 + place * width, bottom), (width - 1.5, height), columns)


def _storey(axes: Any, storey: Storey, corner: tuple[float, float], size: tuple[float, float], columns: int) -> None:
    patches = importlib.import_module("matplotlib.patches")
    (left, bottom), (width, height) = corner, size
    axes.add_patch(patches.Rectangle(corner, width, height, facecolor=_ROOM, edgecolor=_WALL))
    top = bottom + height
    axes.text(left + 0.8, top - 1.6, storey.title, va="center", fontsize=10, weight="bold", color=_INK)
    axes.text(left + 0.8, top - 3, storey.hint, va="top", fontsize=7.5, color=_INK, linespacing=1.1)
    first = top - 4.6 - 1.15 * storey.hint.count("\n")
    for number, room in enumerate(storey.rooms):
        line, column = divmod(number, columns)
        name = room.partition("/")[2]
        across = left + 0.8 + column * width / columns
        axes.text(
            across, first - 1.55 * line - 0.8, f"{name}/", va="center", fontsize=6.6, color=_AHEAD, family="monospace"
        )


def draw_speed(found: Mapping[str, Any], path: Path) -> None:
    """A bar for each case: the time of the fastest peer over that of tcomp, on a logarithmic axis."""
    pyplot = _pyplot()
    cases = list(reversed(gpu_ratios(found)))
    figure, axes = pyplot.subplots(figsize=(9, 1.2 + 0.21 * len(cases)), layout="constrained", facecolor=_PAPER)
    axes.barh(
        [case.name for case in cases], [case.ratio - 1 for case in cases], left=1, height=0.7,
        color=[_AHEAD if case.ratio >= 1 else _BEHIND for case in cases],
    )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.axvline(1, color=_INK, linewidth=0.8)
    for place, case in enumerate(cases):
        side, gap = ("left", 3) if case.ratio >= 1 else ("right", -3)
        axes.annotate(
            f"{case.ratio:.2f}  {case.peer}", (case.ratio, place), (gap, 0), textcoords="offset points",
            ha=side, va="center", fontsize=7,
        )  # fmt: skip
    axes.set_xlim(0.35, 12)
    axes.set_ylim(-0.7, len(cases) - 0.3)
    axes.set_xticks([0.5, 1, 2, 4, 8], ["half", "as fast", "2 times", "4 times", "8 times"])
    axes.tick_params(labelsize=7)
    for spine in ("top", "right"):
        axes.spines[spine].set_visible(False)
    axes.set_title(
        f"How many times as fast as the fastest of the others, which stands beside the bar\n"
        f"{found['device'].partition('(')[2].partition(',')[0]}, fp32, default options, {found['date'][:10]}",
        fontsize=9,
    )
    _save(figure, path)


def draw_ratios(ratios: Sequence[tuple[str, float]], path: Path) -> None:
    """A bar for each row of a benchmark: the time of the fastest peer over that of tcomp, on a logarithmic axis."""
    figure, axes = _pyplot().subplots(
        figsize=(max(4.0, 1.0 + 0.28 * len(ratios)), 2.6), layout="constrained", facecolor=_PAPER
    )
    places = range(len(ratios))
    axes.bar(places, [r - 1 for _, r in ratios], bottom=1, color=[_AHEAD if r >= 1 else _BEHIND for _, r in ratios])
    axes.set_yscale("log", base=2)
    ticks = [
        t for t in (0.25, 0.5, 1, 2, 4, 8, 16, 32) if min(r for _, r in ratios) / 2 < t < 2 * max(r for _, r in ratios)
    ]
    axes.set_yticks(ticks, [f"{t:g}" for t in ticks], fontsize=7)
    axes.axhline(1, color=_INK, linewidth=0.8)
    axes.set_xticks(places, [name for name, _ in ratios], rotation=90, fontsize=7)
    for spine in ("top", "right"):
        axes.spines[spine].set_visible(False)
    _save(figure, path)


def _pyplot() -> Any:
    matplotlib = importlib.import_module("matplotlib")
    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "tcomp", "font.family": "sans-serif"})
    return importlib.import_module("matplotlib.pyplot")


def _save(figure: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, facecolor=_PAPER)
    importlib.import_module("matplotlib.pyplot").close(figure)


def draw(folder: Path, suffix: str = "svg") -> Iterator[Path]:
    """All pictures, into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in gallery.pictures():
        yield picture.save((folder / name).with_suffix(f".{suffix}"))
    speed, rooms = folder / f"speed.{suffix}", folder / f"rooms.{suffix}"
    draw_speed(json.loads(SPEED.read_text(encoding="utf-8")), speed)
    draw_rooms(rooms)
    yield from (speed, rooms)
    for ablation in ABLATIONS[-1:]:
        passes = folder / f"passes.{suffix}"
        ablation_plot.draw(json.loads(ablation.read_text(encoding="utf-8")), passes)
        yield passes


if __name__ == "__main__":
    for drawn in draw(FOLDER):
        print(drawn)
