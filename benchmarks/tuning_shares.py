"""What short tuning runs reached of a long one, as a table."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from benchmarks.tuning_pieces import Findings
from tcomp.commands.terminal.display import show_table
from tcomp.tuner.report.wording import readable_seconds

COLUMNS = ("key", "workload", "default", "short", "long", "share", "least", "measured", "of", "long run", "of these")


def gains(found: Findings) -> list[float]:
    """For each short run how many times faster than the default options its winner is; nothing before they are known.

    The default options themselves are as fast as they are.
    """
    return [found.gains[s.options] for s in found.short.values()] if found.gains else []


def longest(found: Findings) -> float:
    """How many times faster than the default options the best is that the long run knows."""
    return max([1.0, *(found.gains.get(options, 0.0) for options in found.long)])


def shares(found: Findings) -> list[float]:
    """For each short run the time of the long run's best over that of its own winner."""
    return [gain / longest(found) for gain in gains(found)]


def show(findings: Mapping[str, Findings]) -> None:
    """A line for each workload, and what they say together.

    ``short`` and ``long`` are times faster than the default options, ``share`` and ``least`` the median and the least
    of the seeds; ``measured`` of so many kernels are those of the first short run; the last two columns are the long
    run's candidates, and how many of them had kernels of their own.
    """
    done = {key: found for key, found in findings.items() if found.gains and found.short}
    rows = []
    for key, found in done.items():
        first = next(iter(found.short.values()))
        rows.append(
            (
                key,
                found.title,
                readable_seconds(found.seconds) if found.seconds else "",
                f"{statistics.median(gains(found)):.3f}",
                f"{longest(found):.3f}",
                f"{statistics.median(shares(found)):.3f}",
                f"{min(shares(found)):.3f}",
                str(first.measured),
                str(first.kernels),
                f"{found.candidates}",
                f"{found.kernels}{' (all)' if found.exhausted else ''}",
            )
        )
    if not rows:
        print("no workload is done yet")
        return
    show_table(COLUMNS, rows)
    every = [share for found in done.values() for share in shares(found)]
    slower = sum(gain < 1.0 for found in done.values() for gain in gains(found))
    print(
        f"{len(done)} of {len(findings)} workloads, {len(every)} short runs: "
        f"median {statistics.median(every):.3f}, least {min(every):.3f}; slower than the default options: {slower}"
    )
