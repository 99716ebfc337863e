"""A network as a picture: its kernels in order, what each reads, and the block of memory between them over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tcomp.networks.kernels import Step
from tcomp.networks.network import Value
from tcomp.networks.program import CompiledNetwork
from tcomp.pictures.canvas import COLOURS, INK, LINE, SOFT, Picture, figure, finished, shade

_ROW, _MOST_INCHES = 0.24, 400.0
_WORDS, _NAMED = 56, 0.06
"""Characters of a kernel's name, and the share of the block from which on a result in it is named."""


def draw(net: CompiledNetwork, seconds: Sequence[float]) -> Picture:
    """The picture of a network; given the seconds of its steps, they are coloured by them.

    Raises MissingPackageError without matplotlib.
    """
    rows = len(net.steps)
    made, (graph, memory) = figure(11, min(_MOST_INCHES, 1.2 + _ROW * (rows + 2)), 1, 2)
    _kernels(graph, net, seconds)
    _block(memory, net)
    for axes in (graph, memory):
        axes.set_ylim(rows + 0.5, -1.5)
        for spine in axes.spines.values():
            spine.set_visible(False)
    return finished(made)


def _kernels(axes: Any, net: CompiledNetwork, seconds: Sequence[float]) -> None:
    """A row for each kernel, and a bow from what makes a value to what reads it, where that is not the next one."""
    told = "kernels in order; darker ones take more" if seconds else "kernels in order"
    axes.set_title(f"{net.network.name}: {told}", fontsize=8, color=INK, loc="left")
    axes.set_xlim(-4, 30)
    axes.axis("off")
    values = net.network.by_name
    inputs = ", ".join(_typed(value) for value in net.network.inputs)
    axes.text(0.3, -1, inputs[:_WORDS], fontsize=7, color=SOFT, va="center")
    made = {value.name: -1 for value in net.network.inputs}
    longest = max(seconds, default=0.0)
    most = max((value.bytes for value in values.values() if value.role != "weight"), default=1) or 1
    for row, step in enumerate(net.steps):
        share = seconds[row] / longest if longest else 0.0
        colour = "#ffffff" if share > 0.5 else INK
        axes.barh(row, 30, left=0, height=0.72, color=shade(share), edgecolor=LINE, linewidth=0.5)
        name = step.group.results[0]
        time = f"  {1e3 * seconds[row]:.3g} ms" if seconds else ""
        shown = f"{step.told} → {_typed(values[name])}{_lies(net, step)}{time}"
        axes.text(0.3, row, shown[: 2 * _WORDS], fontsize=5.5, color=colour, va="center")
        for read in dict.fromkeys(net.layout_of(n).root for n in step.group.arguments):
            start = made.get(read)
            if start is not None and start < row - 1:
                width = 0.5 + 3 * values[read].bytes / most
                _bow(axes, start, row, width)
        made |= dict.fromkeys(step.group.results, row)


def _bow(axes: Any, start: int, end: int, width: float) -> None:
    """A line from one row to a later one, at the left of all rows; the wider, the more bytes."""
    reach = -min(3.6, 0.6 + 0.35 * (end - start) ** 0.7)
    axes.plot([0, reach, reach, 0], [start, start + 0.4, end - 0.4, end], color=LINE, linewidth=width, zorder=0)


def _lies(net: CompiledNetwork, step: Step) -> str:
    """The order of axes in memory, outermost first, where that is not the order of subscripts."""
    name = step.group.results[0]
    strides = net.layout_of(name).strides
    shape = net.network.by_name[name].shape
    axes = [axis for axis in range(len(shape)) if shape[axis] > 1]
    order = sorted(axes, key=lambda axis: -strides[axis])
    return "" if order == axes else f", axes {','.join(map(str, order))}"


def _typed(value: Value) -> str:
    return f"{value.name} {'x'.join(map(str, value.shape)) or 'a number'}"


def _block(axes: Any, net: CompiledNetwork) -> None:
    """A box for each result between kernels: across where it lies, down how long it is needed."""
    total = max(1, net.places.bytes)
    unit, scale = ("MB", 1e6) if total >= 1e6 else ("KB", 1e3)
    title = f"memory between kernels, {total / scale:.3g} {unit}, step by step"
    axes.set_title(title, fontsize=8, color=INK, loc="left")
    axes.set_xlim(0, total / scale)
    axes.set_xlabel(unit, fontsize=7)
    axes.set_yticks([])
    for number, life in enumerate(net.lives):
        start, width = net.places.offsets[life.name] / scale, life.bytes / scale
        rows = life.last - life.first + 1
        axes.barh(
            life.first - 0.5, width, left=start, height=rows, align="edge", color=COLOURS[number % len(COLOURS)],
            alpha=0.75, edgecolor="#ffffff", linewidth=0.6,
        )  # fmt: skip
        if life.bytes >= _NAMED * total:
            middle = (life.first + life.last) / 2
            axes.text(start + width / 2, middle, life.name, fontsize=5, ha="center", va="center", color=INK)
