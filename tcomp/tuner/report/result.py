"""What a tuning run returns: what it found, and a page about it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from tcomp.tuner.report.found import Found
from tcomp.tuner.report.report import curve, write_report

if TYPE_CHECKING:
    from tcomp.pictures.canvas import Picture


@dataclass(frozen=True, slots=True)
class TuningResult(Found):
    """The outcome of a run for one problem; its fields are those of ``Found``."""

    @property
    def ratios(self) -> tuple[float, ...]:
        """The times of the candidates measured, in order, where that of the default options is 1."""
        return tuple(t.ratio for t in self.history if t.certain and 0 < t.ratio < math.inf)

    def draw(self) -> Picture:
        """The curve of the search.  Raises MissingPackageError without matplotlib."""
        from tcomp.pictures.rates import draw_curve  # noqa: PLC0415  (few processes draw)

        return draw_curve(self.ratios, self.label)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.summary())}</pre>{curve(self)}"

    def report(self, path: str | Path) -> None:
        """Write a page about the search: the curve, every candidate, which options mattered, the roofline, the kernel.

        Raises TcompError if the file cannot be written.
        """
        write_report(path, [self])
