"""Times of device work: CUDA events around replays of captured graphs, interleaved, behind a flush of the L2 cache."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

Call = Callable[[], object]

_MOST_ROUNDS, _FEWEST_ROUNDS = 200, 7
_WARM_UPS = 3
_FLUSH_BYTES = 1 << 28
"""More than any L2 cache, and long enough to write that what follows is queued before it is done."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Microseconds of the device: the median of ``rounds``, and the quartiles.

    ``how`` is ``graph`` where a captured graph was replayed, so that no launch from the host is in it; else ``calls``,
    and ``why`` says why.
    """

    median_us: float
    low_us: float
    high_us: float
    rounds: int
    how: str
    why: str = ""


@dataclass(frozen=True, slots=True)
class Prepared:
    """Work that can be timed.

    ``call`` is what was captured: a graph goes on to use the tensors that only the call may hold.
    """

    run: Call
    how: str
    call: Call
    why: str = ""


def prepared(call: Call, capturable: bool = True) -> Prepared:
    """Warm a call up, and capture it where that works."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(_WARM_UPS):
            call()
    torch.cuda.synchronize()
    if not capturable:
        return Prepared(call, "calls", call, "it waits for the device")
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            call()
    except Exception as error:  # noqa: BLE001  (whatever a peer raises: it is timed without a graph)
        torch.cuda.synchronize()
        return Prepared(call, "calls", call, f"{type(error).__name__}: {error}"[:300])
    graph.replay()
    torch.cuda.synchronize()
    return Prepared(graph.replay, "graph", call)


def time_all(works: Mapping[str, Prepared], seconds: float) -> dict[str, Timing]:
    """Time several works in turn, each once a round, until ``seconds`` are over or there are rounds enough."""
    flush = torch.empty(_FLUSH_BYTES // 4, dtype=torch.int32, device="cuda")
    times: dict[str, list[float]] = {name: [] for name in works}
    names, stop_at = list(works), time.monotonic() + seconds
    for number in range(_MOST_ROUNDS + 1):
        order = names[number % len(names) :] + names[: number % len(names)]
        pairs = []
        for name in order:
            start, end = _event(), _event()
            flush.zero_()
            start.record()
            works[name].run()
            end.record()
            pairs.append((name, start, end))
        torch.cuda.synchronize()
        if number:  # The first round is a warm-up.
            for name, start, end in pairs:
                times[name].append(1e3 * start.elapsed_time(end))
        if number >= _FEWEST_ROUNDS and time.monotonic() > stop_at:
            break
    return {name: _timing(times[name], works[name]) for name in works}


def _timing(runs: list[float], work: Prepared) -> Timing:
    low, median, high = statistics.quantiles(runs, n=4)
    return Timing(round(median, 3), round(low, 3), round(high, 3), len(runs), work.how, work.why)


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
