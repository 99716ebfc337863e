"""A roofline drawn with characters: how fast a device could run kernels, given how much they compute for each byte.

After Williams, Waterman and Patterson, "Roofline: an insightful visual performance model", CACM 52(4), 2009.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tcomp.mapping.machines.gpu import Gpu

_COLUMNS_PER_DECADE, _ROWS_PER_DECADE = 12, 4
"""Three columns a row on the slope: each of ``.-'`` is a third of a row higher than the one before."""

_SLOPE = ".-'"
_DECADES = 5
_MARKS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Point:
    """A kernel: its floating-point operations, and the bytes that move between global memory and the processors."""

    kernel: str
    flops: int
    bytes: int

    @property
    def intensity(self) -> float:
        """Operations for each byte."""
        return self.flops / self.bytes if self.bytes else math.inf


def ridge(gpu: Gpu) -> float:
    """The intensity, in operations for each byte, from which on arithmetic limits a device and not memory."""
    return gpu.flops / gpu.bandwidth


def attainable(gpu: Gpu, point: Point) -> float:
    """Operations per second that the device does at most."""
    return min(gpu.flops, gpu.bandwidth * point.intensity)


def least_seconds(gpu: Gpu, point: Point) -> float:
    """The time below which the device cannot run the kernel."""
    return max(point.flops / gpu.flops, point.bytes / gpu.bandwidth)


def bound(gpu: Gpu, point: Point) -> str:
    """What limits a kernel: "arithmetic" or "bandwidth"."""
    return "arithmetic" if point.intensity >= ridge(gpu) else "bandwidth"


def readable(intensity: float) -> str:
    """Three digits, or all before the point."""
    return f"{intensity:.3g}" if intensity < 1000 or math.isinf(intensity) else f"{intensity:.0f}"


def picture(gpu: Gpu, points: Sequence[Point]) -> str:
    """The roof and, on it, a letter for each kernel that computes; below it what the letters stand for.

    Both axes are logarithmic.  A kernel outside the picture is put at its edge.
    """
    shown = [p for p in points if p.flops]
    inside = [p.intensity for p in shown if p.intensity < math.inf]
    lowest = math.floor(math.log10(min([ridge(gpu) / 100, *inside])))
    decades = max(_DECADES, math.ceil(math.log10(max([ridge(gpu), *inside]))) + 1 - lowest)
    canvas = _Canvas(gpu, lowest, decades)
    canvas.draw_roof()
    for point, mark in zip(shown, _MARKS, strict=False):
        canvas.put(point, mark)
    return "\n".join([*canvas.lines(), *(_legend(gpu, p, m) for p, m in zip(shown, _MARKS, strict=False))]) + "\n"


class _Canvas:
    """Columns from ``10 ** lowest`` operations a byte on; the roof lies in the top row."""

    def __init__(self, gpu: Gpu, lowest: int, decades: int) -> None:
        self.gpu = gpu
        self.lowest = lowest
        self.width = decades * _COLUMNS_PER_DECADE + 1
        self.height = math.floor(self._level(0) + 0.5) + 1
        self.rows = [[" "] * self.width for _ in range(self.height)]

    def _level(self, column: int) -> float:
        """Rows below the roof; 0 on it."""
        below = math.log10(ridge(self.gpu)) - self.lowest - column / _COLUMNS_PER_DECADE
        return max(0.0, below * _ROWS_PER_DECADE)

    def draw_roof(self) -> None:
        """The slope of the bandwidth, then the peak."""
        for column in range(self.width):
            level = self._level(column)
            row = min(self.height - 1, math.floor(level + 0.5))
            third = 1 if level == 0 else min(2, max(0, int((row + 0.5 - level) * 3)))
            self.rows[row][column] = "-" if level == 0 else _SLOPE[third]

    def put(self, point: Point, mark: str) -> None:
        """A mark on the roof; where there is one already, below it."""
        place = (math.log10(min(point.intensity, 1e30)) - self.lowest) * _COLUMNS_PER_DECADE
        column = min(self.width - 1, max(0, round(place)))
        row = min(self.height - 1, math.floor(self._level(column) + 0.5))
        while row < self.height - 1 and self.rows[row][column] in _MARKS:
            row += 1
        self.rows[row][column] = mark

    def lines(self) -> list[str]:
        """The picture with its axes."""
        peak, slope = f"{_rate(self.gpu.flops)}flop/s", f"{_rate(self.gpu.bandwidth)}B/s"
        knee = f"ridge at {ridge(self.gpu):.3g} flop/byte"
        title = f"{self.gpu.architecture} ({self.gpu.name}): {peak} in single precision, {slope}, {knee}"
        axis = "".join("+" if c % _COLUMNS_PER_DECADE == 0 else "-" for c in range(self.width))
        return [title, *(f"  |{''.join(row).rstrip()}" for row in self.rows), f"  {axis}", self._ticks()]

    def _ticks(self) -> str:
        text = ""
        for number, column in enumerate(range(0, self.width, _COLUMNS_PER_DECADE)):
            text = text.ljust(2 + column) + f"{10.0 ** (self.lowest + number):g}"
        return f"{text}  flop/byte"


def _legend(gpu: Gpu, point: Point, mark: str) -> str:
    rate = f"at most {_rate(attainable(gpu, point))}flop/s"
    time = f"at least {least_seconds(gpu, point) * 1e6:.3g} us"
    return (
        f"  {mark}  {point.kernel}: {readable(point.intensity)} flop/byte, bound by {bound(gpu, point)}: {rate}, {time}"
    )


def _rate(value: float) -> str:
    """A number per second with a metric prefix, such as ``67 T``."""
    for prefix, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= scale:
            return f"{value / scale:.3g} {prefix}"
    return f"{value:.3g} "
