"""What each part of a network takes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """A kernel of a network: the defs that it computes, the module that they come from, its seconds."""

    calls: str
    place: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Profile:
    """The kernels of a network in the order in which they run."""

    rows: tuple[Row, ...]

    @property
    def seconds(self) -> float:
        """The time of all kernels together."""
        return sum(row.seconds for row in self.rows)

    def __str__(self) -> str:
        whole = self.seconds or 1.0
        lines = [f"{'ms':>9}  share  kernel"]
        lines += [
            f"{1e3 * row.seconds:9.3f}  {100 * row.seconds / whole:4.1f}%  {row.calls}"
            + (f"  ({row.place})" if row.place else "")
            for row in self.rows
        ]
        return "\n".join([*lines, f"{1e3 * self.seconds:9.3f}   100%  all"])
