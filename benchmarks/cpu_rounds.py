"""One row of the table: every peer verified first, then timed in turn, round after round."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.cpu_case import Case
from benchmarks.cpu_peer import OURS, SEARCH_SECONDS
from benchmarks.cpu_results import Entry
from benchmarks.cpu_stopwatch import Chunk, times_of, until_quiet
from benchmarks.cpu_workers import Worker, WorkerError

_REPEATS = 3
"""How often a noisy chunk is measured again."""

_SETTLE_SECONDS = 0.02
"""Before each chunk: pools of the peer before stop spinning."""
_EXPECT_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Protocol:
    """How a row is measured.

    ``seconds`` is a chunk's length, ``limit`` what one peer may take for the first call of a row, and again for its
    timing; ``first_calls`` how many fresh processes make tcomp's first call.
    """

    rounds: int = 5
    seconds: float = 0.25
    limit: float = 60.0
    first_calls: int = 3


@dataclass(slots=True)
class Patience:
    """Seconds that the whole run may spend on measuring chunks again."""

    seconds: float

    def left(self) -> bool:
        """Whether something may still be repeated."""
        return self.seconds > 0


@dataclass(slots=True)
class _State:
    """A peer's row while it is measured; ``most`` is the number of chunks that its limit allows."""

    built: Entry
    most: int
    chunks: list[Chunk] = field(default_factory=list)
    problem: str = ""

    def entry(self) -> Entry:
        if self.problem or not self.chunks:
            return Entry(None, self.built.first_ms, self.built.tuning_seconds, self.built.distance, self.problem)
        times = times_of(self.chunks)
        return Entry(times, self.built.first_ms, self.built.tuning_seconds, self.built.distance)


def measure_row(
    suite: str, case: Case, workers: Sequence[Worker], reference: Worker, folder: Path,
    protocol: Protocol, patience: Patience,
) -> dict[str, Entry]:  # fmt: skip
    """Entries by peer; those that have no such case have none."""
    expected = folder / "expected.npy"
    try:
        reference.ask("expect", _EXPECT_SECONDS, suite=suite, key=case.key, path=str(expected))
    except WorkerError as error:
        return {worker.peer: Entry(problem=f"the reference failed: {error}") for worker in workers}
    entries: dict[str, Entry] = {}
    states: dict[str, _State] = {}
    for worker in workers:
        try:
            limit = protocol.limit + SEARCH_SECONDS.get(worker.peer, 0.0)
            built = worker.ask("build", limit, suite=suite, key=case.key, expected=str(expected))
        except WorkerError as error:
            entries[worker.peer] = Entry(problem=str(error))
            continue
        if built["supported"]:
            entry = Entry(None, built["first_ms"], built["tuning_seconds"], built["distance"])
            states[worker.peer] = _State(entry, rounds_within(protocol, built["call_seconds"]))
    timed = [worker for worker in workers if worker.peer in states]
    for number in range(protocol.rounds):
        for worker in timed[number % max(1, len(timed)) :] + timed[: number % max(1, len(timed))]:
            _time(worker, states[worker.peer], number, protocol, patience)
    entries |= {peer: state.entry() for peer, state in states.items()}
    for worker in timed:
        with suppress(WorkerError):
            worker.ask("drop", protocol.limit)
    expected.unlink()
    return {worker.peer: entries[worker.peer] for worker in workers if worker.peer in entries}


def rounds_within(protocol: Protocol, call_seconds: float) -> int:
    """How many chunks a peer's limit allows, of which each takes at least a call; one at least."""
    return max(1, min(protocol.rounds, int(protocol.limit / max(protocol.seconds, call_seconds, 1e-9))))


def _time(worker: Worker, state: _State, number: int, protocol: Protocol, patience: Patience) -> None:
    """One chunk, again if others worked meanwhile."""
    if state.problem or number >= state.most:
        return

    def chunk() -> Chunk:
        time.sleep(_SETTLE_SECONDS)
        reply = worker.ask("time", 2 * protocol.limit + protocol.seconds, seconds=protocol.seconds)
        return Chunk(reply["median_ms"], reply["least_ms"], reply["calls"], reply["foreign"])

    try:
        first = chunk()
        start = time.monotonic()
        state.chunks.append(until_quiet(first, chunk, _REPEATS, patience.left))
        patience.seconds -= time.monotonic() - start
    except WorkerError as error:
        state.problem = str(error)


def first_calls(
    suite: str, cases: Sequence[Case], threads: int, folder: Path, protocol: Protocol
) -> Mapping[str, float]:
    """tcomp's milliseconds from a program's text to its first result, by case: medians over fresh processes.

    Each process has a cache of its own and compiles every case once.  Cases that fail are missing.
    """
    found: dict[str, list[float]] = {case.key: [] for case in cases}
    for number in range(protocol.first_calls):
        own = folder / f"first{number}"
        own.mkdir()
        worker = Worker(OURS, threads, own)
        try:
            for key in tuple(found):
                try:
                    found[key].append(worker.ask("build", protocol.limit, suite=suite, key=key)["first_ms"])
                except WorkerError:
                    del found[key]
        finally:
            worker.stop()
    return {key: statistics.median(times) for key, times in found.items() if times}
