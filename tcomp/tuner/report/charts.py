"""Charts as SVG text, with logarithmic axes: no script, no other file."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 12.0, 12.0, 40.0
_MARGIN = 1.08
_PHONE = 600.0
"""Pixels across from which on a chart is read on a phone by moving it, not by making it smaller."""


@dataclass(frozen=True, slots=True)
class Axis:
    """A scale from ``low`` to ``high``, with labelled ``ticks``; logarithmic unless it is ``linear``."""

    low: float
    high: float
    ticks: tuple[tuple[float, str], ...]
    title: str
    linear: bool = False

    def share(self, value: float) -> float:
        """Where a value lies, from 0 to 1; what is outside lies at the end."""
        low, high = (self.low, self.high) if self.linear else (math.log(self.low), math.log(self.high))
        if high <= low:
            return 0.5
        at = value if self.linear else math.log(max(value, 1e-300))
        return min(1.0, max(0.0, (at - low) / (high - low)))


def logarithmic(values: Sequence[float], title: str, label: Callable[[float], str]) -> Axis:
    """An axis on which all values lie, which must be positive and finite."""
    low, high = min(values) / _MARGIN, max(values) * _MARGIN
    steps = (1.0, 1.5, 2.0, 3.0, 5.0, 7.0) if high / low < 10 else (1.0, 2.0, 5.0) if high / low < 100 else (1.0,)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**d for d in decades for step in steps if low <= step * 10.0**d <= high]
    if len(ticks) < 2:
        ticks = [min(values), max(values)] if max(values) > min(values) * 1.01 else [min(values)]
    return Axis(low, high, tuple((t, label(t)) for t in ticks), title)


def counting(count: int, title: str) -> Axis:
    """An axis from 0 to a number of things."""
    step = next(s for k in range(12) for m in (1, 2, 5) if count <= 8 * (s := m * 10**k))
    return Axis(0, max(1, count), tuple((float(t), str(t)) for t in range(0, count + 1, step)), title, linear=True)


def listing(names: Sequence[str], title: str) -> Axis:
    """An axis with a place for each name; the k-th lies at k."""
    return Axis(-0.5, len(names) - 0.5, tuple((float(k), name) for k, name in enumerate(names)), title, linear=True)


@dataclass(slots=True)
class Chart:
    """A picture of so many pixels, to which marks are added."""

    x: Axis
    y: Axis
    width: float = 640.0
    height: float = 300.0
    _marks: list[str] = field(default_factory=list)

    def _at(self, x: float, y: float) -> tuple[float, float]:
        across = _LEFT + self.x.share(x) * (self.width - _LEFT - _RIGHT)
        return across, self.height - _BOTTOM - self.y.share(y) * (self.height - _TOP - _BOTTOM)

    def point(self, x: float, y: float, style: str, title: str = "") -> None:
        """A dot; ``style`` is a class of the page's, ``title`` is shown under the mouse."""
        across, down = self._at(x, y)
        inside = f"<title>{escape(title)}</title>" if title else ""
        self._marks.append(f'<circle class="{style}" cx="{across:.1f}" cy="{down:.1f}" r="3">{inside}</circle>')

    def line(self, points: Sequence[tuple[float, float]], style: str, title: str = "") -> None:
        """A line through points."""
        path = " ".join("{:.1f},{:.1f}".format(*self._at(x, y)) for x, y in points)
        inside = f"<title>{escape(title)}</title>" if title else ""
        self._marks.append(f'<polyline class="{style}" points="{path}">{inside}</polyline>')

    def text(self, x: float, y: float, text: str) -> None:
        """Words below a place, on the side where there is more room."""
        across, down = self._at(x, y)
        anchor, offset = ("end", -6) if across > self.width * 0.7 else ("start", 6)
        place = f'x="{across + offset:.1f}" y="{down + 14:.1f}" text-anchor="{anchor}"'
        self._marks.append(f"<text {place}>{escape(text)}</text>")

    def svg(self) -> str:
        """The picture."""
        right, bottom = self.width - _RIGHT, self.height - _BOTTOM
        wide = ' class="wide"' if self.width > _PHONE else ""
        parts = [f'<svg{wide} viewBox="0 0 {self.width:.0f} {self.height:.0f}" role="img">']
        for value, label in self.y.ticks:
            _, down = self._at(self.x.low, value)
            parts.append(f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{down:.1f}" y2="{down:.1f}"/>')
            parts.append(f'<text x="{_LEFT - 6}" y="{down + 4:.1f}" text-anchor="end">{escape(label)}</text>')
        for value, label in self.x.ticks:
            across, _ = self._at(value, self.y.low)
            parts.append(f'<line class="grid" x1="{across:.1f}" x2="{across:.1f}" y1="{_TOP}" y2="{bottom}"/>')
            parts.append(f'<text x="{across:.1f}" y="{bottom + 15}" text-anchor="middle">{escape(label)}</text>')
        middle = (_LEFT + right) / 2
        parts.append(f'<text x="{middle:.1f}" y="{self.height - 6}" text-anchor="middle">{escape(self.x.title)}</text>')
        parts.append(f'<text x="6" y="{_TOP + 2}" class="axis">{escape(self.y.title)}</text>')
        return "".join([*parts, *self._marks, "</svg>"])
