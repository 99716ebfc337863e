"""What a tuning run returns: what it found, and a page about it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tcomp.tuner.report.found import Found
from tcomp.tuner.report.report import write_report


@dataclass(frozen=True, slots=True)
class TuningResult(Found):
    """The outcome of a run for one problem; its fields are those of ``Found``."""

    def report(self, path: str | Path) -> None:
        """Write a page about the search: the curve, every candidate, which options mattered, the roofline, the kernel.

        Raises TcompError if the file cannot be written.
        """
        write_report(path, [self])
