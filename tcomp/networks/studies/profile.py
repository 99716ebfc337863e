"""What each part of a network takes: as a table, as JSON, as a trace for the tracing page of Chrome."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from tcomp.networks.precision.agreement import Agreement


@dataclass(frozen=True, slots=True)
class Row:
    """A kernel of a network.

    The defs that it computes, the module that they come from, its seconds, the value that it makes, the number of its
    kernel, and the bytes of all arrays that it reads and writes.
    """

    calls: str
    place: str
    seconds: float
    makes: str = ""
    kernel: int = 0
    bytes: int = 0

    @property
    def rate(self) -> float:
        """Gigabytes a second."""
        return 1e-9 * self.bytes / (self.seconds or 1.0)


@dataclass(frozen=True, slots=True)
class Profile:
    """The kernels of a network in the order in which they run; how far its results are from those in floats."""

    rows: tuple[Row, ...]
    agreement: Agreement | None = None

    @property
    def seconds(self) -> float:
        """The time of all kernels together."""
        return sum(row.seconds for row in self.rows)

    def to_json(self) -> str:
        """The rows, the seconds of all, and the agreement, null where none was measured."""
        agreed = None if self.agreement is None else asdict(self.agreement)
        rows = [asdict(row) for row in self.rows]
        return json.dumps({"seconds": self.seconds, "agreement": agreed, "rows": rows}, indent=1)

    def to_trace(self) -> str:
        """JSON that chrome://tracing and Perfetto draw: one event a kernel, one behind the other."""
        events, start = [], 0.0
        for row in self.rows:
            told = {"calls": row.calls, "place": row.place, "kernel": row.kernel, "bytes": row.bytes}
            event = {"name": row.makes, "cat": "kernel", "ph": "X", "pid": 0, "tid": 0, "args": told}
            events.append(event | {"ts": 1e6 * start, "dur": 1e6 * row.seconds})
            start += row.seconds
        return json.dumps({"displayTimeUnit": "ms", "traceEvents": events})

    def __str__(self) -> str:
        whole = self.seconds or 1.0
        lines = [f"{'ms':>9}  share   GB/s  kernel"]
        lines += [
            f"{1e3 * row.seconds:9.3f}  {100 * row.seconds / whole:4.1f}% {row.rate:6.1f}"
            f"  {row.calls}" + (f"  ({row.place})" if row.place else "")
            for row in self.rows
        ]
        lines.append(f"{1e3 * self.seconds:9.3f}   100%         all")
        return "\n".join(lines if self.agreement is None else [*lines, f"agreement: {self.agreement}"])
