"""Pictures of time and rates: loops with their share, rooflines, the curve of a search, what accesses of warps cost."""

from __future__ import annotations

import importlib
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tcomp.backends.simulator.report import KernelCounts
from tcomp.driver import Compilation
from tcomp.loops.counting import Path, placed, runs
from tcomp.loops.ir import Block, Execute, For, If, Let, LoopNode, Scope, children
from tcomp.mapping.tiles.flops import flops_of
from tcomp.pictures.canvas import BLUE, COLOURS, GOLD, INK, LINE, RED, SOFT, Picture, bare, figure, finished

_LONGEST, _MOST = 64, 70
_NAME, _LINE = 4.2, 8.5
"""In points: the width of a letter of a name beside a point, and the height of its line."""


@dataclass(frozen=True, slots=True)
class Work:
    """A kernel on a roofline: what it computes for a call, the bytes that it moves, and the seconds that it takes if
    they were measured."""

    name: str
    flops: float
    bytes: float
    seconds: float | None = None


def draw_loops(compilation: Compilation) -> Picture:
    """The loops, and beside each line its share of all operations; an instance without any counts as one."""
    flops, counts = flops_of(compilation.plan), runs(compilation.loops)
    calls = {path: node.statement for path, node in placed(compilation.loops) if isinstance(node, Execute)}
    instances: dict[str, float] = {}
    for path, name in calls.items():
        instances[name] = instances.get(name, 0.0) + counts.get(path, 0.0)
    weight = {
        path: counts.get(path, 0.0) * max(1.0, flops.get(name, 0) / max(1.0, instances[name]))
        for path, name in calls.items()
    }
    total = max(1.0, sum(weight.values()))
    lines = _lines(compilation.loops, (), weight, 0)
    shares = [(depth, text, None if part is None else part / total) for depth, text, part in lines]
    return draw_shares(shares, "share of all operations")


def draw_shares(lines: Sequence[tuple[int, str, float | None]], title: str) -> Picture:
    """Lines, indented by their depth, and beside each its share of a whole."""
    lines = lines[:_MOST]
    made, axes = figure(8.0, max(1.2, 0.2 * len(lines) + 0.5), 1, 1)
    place = axes[0]
    bare(place)
    place.set_xlim(0, 130)
    place.set_ylim(len(lines) + 0.2, -1.4)
    place.text(0, -0.9, "loops", fontsize=8, color=SOFT)
    place.text(100, -0.9, title, fontsize=8, color=SOFT)
    for number, (depth, text, share) in enumerate(lines):
        shown = "  " * depth + text
        shown = shown if len(shown) <= _LONGEST else f"{shown[: _LONGEST - 3]}..."
        place.text(
            0, number, shown.replace(" ", "\N{NO-BREAK SPACE}"), va="center", fontsize=7, family="monospace", color=INK
        )
        if share is not None:
            place.barh(number, 22 * share, left=100, height=0.62, color=BLUE)
            place.text(100.6 + 22 * share, number, f"{100 * share:.3g} %", va="center", fontsize=7, color=SOFT)
    return finished(made)


def _lines(node: LoopNode, path: Path, weight: Mapping[Path, float], depth: int) -> list[tuple[int, str, float | None]]:
    """Depth, text and weight of each line."""

    def below(place: int, deeper: int = 0) -> list[tuple[int, str, float | None]]:
        return _lines(children(node)[place], (*path, place), weight, depth + deeper)

    match node:
        case Block():
            return [line for place in range(len(node.children)) for line in below(place)]
        case For():
            share = sum(part for where, part in weight.items() if where[: len(path)] == path)
            return [(depth, f"for {node.iterator} in {node.lower} .. {node.upper}:", share), *below(0, 1)]
        case Let():
            return below(0)
        case If():
            otherwise = [(depth, "else:", None), *below(1, 1)] if node.otherwise is not None else []
            return [(depth, f"if {node.condition}:", None), *below(0, 1), *otherwise]
        case Scope():
            return [(depth, f"# {node.name}", None), *below(0)]
        case Execute():
            return [(depth, f"{node.statement}({', '.join(map(str, node.arguments))})", weight[path])]


def draw_roofline(works: Sequence[Work], flops: float, bandwidth: float, source: str) -> Picture:
    """What a device can do at most for each byte that is moved, and kernels below it, or on it if none was measured.

    After Williams, Waterman and Patterson, CACM 52(4), 2009.
    """
    made, axes = figure(6.0, 4.0)
    place = axes[0]
    points = [w for w in works if w.flops and w.bytes]
    intensities = [w.flops / w.bytes for w in points] or [flops / bandwidth]
    ridge = flops / bandwidth
    low, high = min(*intensities, ridge) / 4, max(*intensities, ridge) * 4
    place.plot([low, ridge, high], [low * bandwidth, flops, flops], color=INK, linewidth=1.4)
    place.set_xscale("log")
    place.set_yscale("log")
    names = []
    for number, work in enumerate(points):
        intensity = work.flops / work.bytes
        rate = work.flops / work.seconds if work.seconds else min(flops, intensity * bandwidth)
        colour = COLOURS[number % len(COLOURS)]
        place.plot(
            [intensity, intensity], [rate, min(flops, intensity * bandwidth)], color=colour, linewidth=0.8, ls=":"
        )
        share = rate / min(flops, intensity * bandwidth)
        told = f"{work.name}: {100 * share:.0f} %" if work.seconds else f"{work.name}: at most"
        place.plot([intensity], [rate], marker="o", color=colour, markersize=6)
        names.append((told, (intensity, rate)))
    _beside(place, names)
    place.set_xlabel("operations for each byte of inputs and outputs", fontsize=8)
    place.set_ylabel("operations per second", fontsize=8)
    place.set_title("\n".join(textwrap.wrap(f"Roofline: {source}", 70)), fontsize=8, color=INK)
    place.grid(True, which="major", color=LINE, linewidth=0.5)
    return finished(made)


def _beside(place: Any, names: Sequence[tuple[str, tuple[float, float]]]) -> None:
    """Names at the right of their points; one that would cover another stands below it."""
    points = 72 / place.figure.dpi
    low, high = place.get_ylim()
    room = _LINE * (len(names) + 1) / (points * place.get_window_extent().height)
    place.set_ylim(low * (low / high) ** min(1.0, room), high)
    taken: list[tuple[float, float, float]] = []
    at = [(told, point, *(points * place.transData.transform(point))) for told, point in names]
    for told, point, x, y in sorted(at, key=lambda name: -name[3]):
        width, line = _NAME * len(told), y - 9
        for left, right, other in taken:
            if x < right and left < x + width and line > other - _LINE:
                line = min(line, other - _LINE)
        taken.append((x, x + width, line))
        place.annotate(told, point, (5, line - y), textcoords="offset points", fontsize=7, color=INK)


def draw_curve(ratios: Sequence[float], title: str) -> Picture:
    """A search: the time of each candidate measured, where the default's is 1, and the best so far."""
    made, axes = figure(6.0, 3.4)
    place = axes[0]
    best, steps = math.inf, []
    for ratio in ratios:
        best = min(best, ratio)
        steps.append(best)
    numbers = list(range(1, len(ratios) + 1))
    place.plot(numbers, list(ratios), "o", color=BLUE, markersize=3, alpha=0.6)
    place.step(numbers, steps, where="post", color=RED, linewidth=1.4)
    place.axhline(1, color=SOFT, linewidth=0.8, linestyle="--")
    if ratios:
        place.set_yscale("log")
        ticker = importlib.import_module("matplotlib.ticker")
        for setter in (place.yaxis.set_major_formatter, place.yaxis.set_minor_formatter):
            setter(ticker.FuncFormatter(lambda ratio, _: f"{ratio:.3g}"))
    place.xaxis.get_major_locator().set_params(integer=True)
    place.set_xlabel("candidates measured", fontsize=8)
    place.set_ylabel("time, the default's is 1", fontsize=8)
    place.set_title(title, fontsize=8, color=INK)
    return finished(made)


def draw_banks(kernels: Sequence[KernelCounts]) -> Picture:
    """For each access of each kernel, beside the fewest that are possible: sectors of global memory that a request of a
    warp touches, and its passes over the banks of shared memory."""
    rows = []
    for kernel in kernels:
        for a in kernel.accesses:
            shared = a.space == "shared"
            taken, ideal = (a.wavefronts, a.ideal_wavefronts) if shared else (a.sectors, a.ideal_sectors)
            requests = max(1, a.requests)
            what = f"{kernel.kernel}: {a.access} {a.buffer}, {a.space}, {a.bytes_per_lane} B a thread"
            rows.append((what, taken / requests, ideal / requests, shared))
    rows = rows[:_MOST]
    made, axes = figure(7.5, max(1.6, 0.3 * len(rows) + 1.0))
    place = axes[0]
    for line, (_, bars, least, shared) in enumerate(rows):
        place.barh(line, bars, height=0.7, color=RED if bars > 1.01 * least else GOLD if shared else BLUE)
        place.plot([least, least], [line - 0.42, line + 0.42], color=INK, linewidth=1.6)
        place.text(bars + 0.08, line, f"{bars:.3g}", va="center", fontsize=7, color=SOFT)
    place.set_yticks(range(len(rows)), [row[0] for row in rows], fontsize=7)
    place.set_ylim(len(rows) - 0.4, -0.6)
    axis = "sectors (global) or passes over banks (shared) of a warp's request; the line is the fewest"
    place.set_xlabel(axis, fontsize=7)
    for spine in ("top", "right"):
        place.spines[spine].set_visible(False)
    return finished(made)
