"""What the benchmark found, as JSON that is complete after every item, and as tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.gpu_cases import BY_NAME
from benchmarks.gpu_workers import Outcome
from tcomp.commands.terminal.display import show_table
from tcomp.storage.wholefiles import write_whole

NO_GPU = "No GPU has run this: the kernels ran on the simulator, at small sizes.  Counts are exact; there are no times."

_CALLS = ("arrays", "what", "us, median", "us, least")
_TIMED = ("case", "implementation", "us", "tcomp takes", "TFLOP/s", "GB/s", "of roof", "error", "first call")
_SIMULATED = (
    *("program", "sizes", "kernels", "bytes read", "written", "moved / least", "sectors/request", "ideal"),
    *("conflicts", "barriers"),
)


class Results:
    """Outcomes so far, and the file that holds them."""

    def __init__(self, path: Path, head: Mapping[str, Any]) -> None:
        self._path, self._head = path, dict(head)
        self.outcomes: list[Outcome] = []
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self.write()

    def add(self, outcome: Outcome) -> None:
        """Keep an outcome and write the file again: the machine may be gone at any time."""
        self.outcomes.append(outcome)
        self.write()

    def write(self) -> None:
        """The file is replaced as a whole, so there is always a complete one."""
        parts: dict[str, list[dict[str, Any]]] = {}
        for outcome in self.outcomes:
            plain = asdict(outcome)
            parts.setdefault(plain.pop("part"), []).append(plain)
        write_whole(self._path, (json.dumps(self._head | {"parts": parts}, indent=1) + "\n").encode())

    def of(self, part: str) -> list[Outcome]:
        """The outcomes of a part, in the order in which they came."""
        return [outcome for outcome in self.outcomes if outcome.part == part]

    def problems(self) -> list[str]:
        """A line for everything that went wrong, problems of peers included."""
        return [
            f"{outcome.part}: {outcome.item}{who}: {text.strip().partition(chr(10))[0]}"
            for outcome in self.outcomes
            for who, text in _complaints(outcome)
        ]

    def passed(self) -> bool:
        """Whether nothing of tcomp failed; what was left out for want of time is no failure."""
        return not any(
            outcome.status == "failed" or any(who.startswith(": tcomp") for who, _ in _complaints(outcome))
            for outcome in self.outcomes
        )

    def show(self) -> None:
        """Tables of the parts that ran, then what went wrong."""
        for title, columns, rows in (
            ("On the simulator", _SIMULATED, _simulated(self.of("simulated"))),
            ("A call of add on 256 elements", _CALLS, _calls(self.of("overhead"))),
            ("On the device", _TIMED, _timed(self.of("cases"))),
            ("Tuned on the device", _TIMED, _timed(self.of("tuned"))),
        ):
            shown = list(rows)
            if shown:
                show_table(columns, shown, title)
                print()
        for part in ("corpus", "sanitizer"):
            if self.of(part):
                print(f"{part}: {_tally(self.of(part))}")
        for line in self.problems():
            print(line)


def _complaints(outcome: Outcome) -> Iterator[tuple[str, str]]:
    if outcome.error:
        yield "", f"{outcome.status}: {outcome.error}"
    for name, entry in outcome.result.get("implementations", {}).items():
        if "problem" in entry:
            yield f": {name}", entry["problem"]


def _tally(outcomes: Sequence[Outcome]) -> str:
    verdicts = [str(outcome.result.get("verdict", outcome.status)) for outcome in outcomes]
    return ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts))


def _calls(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, ...]]:
    for outcome in outcomes:
        for name, times in outcome.result.items():
            yield outcome.item, name, f"{times['median_us']:.2f}", f"{times['least_us']:.2f}"


def _timed(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, ...]]:
    for outcome in outcomes:
        if "gb_per_s" in outcome.result:
            time, rate = outcome.result["median_us"], outcome.result["gb_per_s"]
            yield outcome.item, "torch", f"{time:.1f}", "", "", f"{rate:.0f}", "", "", ""
        entries = outcome.result.get("implementations", {})
        ours = entries.get("tcomp", {}).get("median_us")
        for name, entry in entries.items():
            if "median_us" not in entry:
                yield outcome.item, name, "failed", *[""] * (len(_TIMED) - 3)
                continue
            calls = "*" if entry["how"] == "calls" else ""
            yield (
                outcome.item,
                name,
                f"{entry['median_us']:.1f}{calls}",
                f"{ours / entry['median_us']:.2f} x" if ours else "",
                f"{entry['tflop_per_s']:.2f}",
                f"{entry['gb_per_s']:.0f}",
                f"{100 * entry['share_of_roof']:.0f} %",
                f"{entry['error']:.1e}",
                f"{entry['first_call_seconds']:.1f} s",
            )


def _simulated(outcomes: Sequence[Outcome]) -> Iterator[tuple[str, ...]]:
    for outcome in outcomes:
        if outcome.status != "done":
            yield outcome.item, outcome.status, *[""] * (len(_SIMULATED) - 2)
            continue
        result = outcome.result
        kernels = result["kernels"]
        requests = max(1, sum(k["requests"] for k in kernels))
        yield (
            result["program"],
            BY_NAME[outcome.item].label(result["sizes"]),
            str(len(kernels)),
            str(sum(k["bytes_read"] for k in kernels)),
            str(sum(k["bytes_written"] for k in kernels)),
            f"{result['sector_bytes'] / result['least_bytes']:.2f}",
            f"{sum(k['sectors'] for k in kernels) / requests:.2f}",
            f"{sum(k['ideal_sectors'] for k in kernels) / requests:.2f}",
            str(sum(k["conflicts"] for k in kernels)),
            "+".join(f"{k['barriers_per_block']:g}" for k in kernels),
        )
