"""What the CPU benchmark found: rows with their ratios, a table, and JSON that is complete after every row."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.cpu_case import Case
from benchmarks.cpu_limits import Limits
from benchmarks.cpu_peer import OURS
from benchmarks.cpu_stopwatch import Times
from tcomp.commands.terminal.display import show_table

COMPILER = "torch.compile"
"""The peer that has a column of ratios to itself."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One implementation of a row: its times, or why there are none; all empty where the peer has no such case."""

    times: Times | None = None
    first_ms: float | None = None
    tuning_seconds: float = 0.0
    distance: float | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """A case and its entries by peer; ``share`` is what tcomp reaches of the limit that bounds the case."""

    case: Case
    entries: Mapping[str, Entry]
    share: float | None = None

    def median(self, peer: str) -> float | None:
        """Milliseconds, where the peer was timed."""
        entry = self.entries.get(peer)
        return entry.times.median_ms if entry is not None and entry.times is not None else None

    @property
    def best_peer(self) -> str | None:
        """The fastest of the others."""
        medians = {peer: self.median(peer) for peer in self.entries if peer != OURS}
        timed = {peer: median for peer, median in medians.items() if median is not None}
        return min(timed, key=lambda peer: timed[peer], default=None)

    def ratio(self, peer: str | None) -> float | None:
        """A peer's median over tcomp's: above 1 where tcomp is faster."""
        ours, theirs = self.median(OURS), self.median(peer) if peer is not None else None
        return theirs / ours if ours is not None and theirs is not None else None


@dataclass(frozen=True, slots=True)
class Summary:
    """Geometric means of ratios, and the row with the least; None where nothing could be compared."""

    against_best: float | None
    against_compiler: float | None
    worst: tuple[str, float] | None
    rows: int
    without_ratio: tuple[str, ...]


def geometric_mean(values: Iterable[float | None]) -> float | None:
    """The geometric mean of those that are there."""
    found = [value for value in values if value is not None]
    return statistics.geometric_mean(found) if found else None


def summary(rows: Sequence[Row]) -> Summary:
    """What rows say together."""
    ratios = {row.case.key: row.ratio(row.best_peer) for row in rows}
    found = {key: ratio for key, ratio in ratios.items() if ratio is not None}
    return Summary(
        geometric_mean(found.values()),
        geometric_mean(row.ratio(COMPILER) for row in rows),
        min(found.items(), key=lambda item: item[1], default=None),
        len(rows),
        tuple(key for key in ratios if key not in found),
    )


@dataclass(slots=True)
class Results:
    """Rows so far, and the file that holds them; ``head`` says of what machine and what versions."""

    head: Mapping[str, Any]
    peers: Sequence[str]
    path: Path | None = None
    rows: list[Row] = field(default_factory=list)

    def add(self, row: Row) -> None:
        """Keep a row, and write the file as a whole, so there is always a complete one."""
        self.rows.append(row)
        if self.path is None:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(self.plain(), indent=1) + "\n", encoding="utf-8")
        new.replace(self.path)

    def plain(self) -> dict[str, Any]:
        """Everything, as JSON has it."""
        return {**self.head, "summary": asdict(summary(self.rows)), "rows": [_plain(row) for row in self.rows]}

    def passed(self) -> bool:
        """Whether tcomp computed every row."""
        return all(row.median(OURS) is not None for row in self.rows)

    def show(self) -> None:
        """The table, the means, and what went wrong."""
        compared = (f"vs {COMPILER}",) if COMPILER in self.peers else ()
        columns = ("", "workload", *self.peers, OURS, "vs best", *compared, "of limit", "first call")
        show_table(columns, [self._texts(row) for row in self.rows], "median ms; * measured while others worked")
        print("\n".join(["", *self._closing(), *problems(self.rows)]))

    def _texts(self, row: Row) -> tuple[str, ...]:
        best = row.best_peer
        ours = row.entries.get(OURS, Entry())
        return (
            row.case.key,
            row.case.title,
            *(_time(row.entries.get(peer, Entry()), peer == best) for peer in self.peers),
            _time(ours, False),
            _ratio(row.ratio(best)),
            *((_ratio(row.ratio(COMPILER)),) if COMPILER in self.peers else ()),
            _reached(row),
            "" if ours.first_ms is None else f"{ours.first_ms:.0f} ms",
        )

    def _closing(self) -> Iterable[str]:
        found = summary(self.rows)
        yield f"geometric mean against the best peer of each row: {_ratio(found.against_best) or 'none'}"
        if COMPILER in self.peers:
            yield f"geometric mean against {COMPILER}: {_ratio(found.against_compiler) or 'none'}"
        if found.worst is not None:
            yield f"worst row: {found.worst[0]}, {found.worst[1]:.2f}"
        if found.without_ratio:
            yield f"in no mean: {', '.join(found.without_ratio)}"


def problems(rows: Sequence[Row]) -> list[str]:
    """A line for everything that went wrong."""
    return [
        f"{row.case.key}: {peer}: {entry.problem.strip().partition(chr(10))[0]}"
        for row in rows
        for peer, entry in row.entries.items()
        if entry.problem
    ]


def _time(entry: Entry, best: bool) -> str:
    if entry.times is None:
        return "failed" if entry.problem else "-"
    median = entry.times.median_ms
    digits = 1 if median >= 100 else 2 if median >= 1 else 4
    return f"{median:.{digits}f}{'*' if entry.times.noisy else ''}{' <' if best else ''}"


def _ratio(ratio: float | None) -> str:
    return "" if ratio is None else f"{ratio:.2f}"


def _reached(row: Row) -> str:
    """The share of the limit; for what memory bounds, the rate."""
    median = row.median(OURS)
    if median is None:
        return ""
    if row.case.bound == "memory":
        return f"{row.case.least_bytes / median / 1e6:.0f} GB/s"
    return "" if row.share is None else f"{100 * row.share:.0f} %"


def _plain(row: Row) -> dict[str, Any]:
    best = row.best_peer
    return {
        "key": row.case.key,
        "title": row.case.title,
        "flops": row.case.flops,
        "least_bytes": row.case.least_bytes,
        "bound": row.case.bound,
        "share_of_limit": row.share,
        "best_peer": best,
        "ratio": row.ratio(best),
        "ratio_to_compiler": row.ratio(COMPILER),
        "entries": {peer: asdict(entry) for peer, entry in row.entries.items()},
    }


def share_of(case: Case, entry: Entry | None, limits: Limits | None) -> float | None:
    """The share of the machine's limit that an entry reaches, where both are known."""
    if entry is None or entry.times is None or limits is None:
        return None
    return limits.share(case, entry.times.median_ms)
