"""How many images each kernel goes over at a time: the cheapest by what caches hold, what weights cost and starts.

The estimate counts what differs, in cycles of the processor.  A result that is read again costs nothing where all that
is touched in between fits into the second caches.  Beyond that the last cache, which others use, has lost a share of it
that grows with what is touched, until all comes from memory; what is written is also fetched before, and carried back.
Weights come from memory in each turn, and each turn starts each kernel.  Where turns begin, what was made before was
made for the whole batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isqrt

from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.machines.fitted.cputiles import CACHES
from tcomp.mapping.machines.fitted.networks import LAYERS

_FETCHED = 2
"""A line that is written is fetched before and carried back later."""


@dataclass(frozen=True, slots=True)
class Work:
    """What a kernel touches: bytes by the place that they have, those of weights, and whether it may go over parts."""

    reads: Mapping[str, int]
    writes: Mapping[str, int]
    weights: int
    apart: bool

    @property
    def results(self) -> int:
        """The bytes of all but weights."""
        return sum(self.reads.values()) + sum(self.writes.values())


def turns(works: Sequence[Work], batch: int, machine: Machine) -> tuple[int, ...]:
    """In how many turns each kernel goes over the batch, those of neighbours together; 1 is all at once."""
    counts = _divisors(batch)
    made = {n: _Costs(works, n, machine) for n in counts}
    border = _borders(works, made[1])
    best: dict[int, tuple[float, tuple[int, ...]]] = {1: (0.0, ())}
    for step, work in enumerate(works):
        found: dict[int, tuple[float, tuple[int, ...]]] = {}
        for now in counts if work.apart else [1]:
            ways = [
                (cost + (border[step] if now > 1 and before != now else 0.0), before)
                for before, (cost, _) in best.items()
            ]
            cost, before = min(ways)
            found[now] = cost + made[now].steps[step], (*best[before][1], now)
        best = found
    return min(best.values(), key=lambda way: way[0])[1] if best else ()


def _divisors(number: int) -> list[int]:
    """All divisors of a batch; of one beyond 2^32 those that are at most 2^16, and their quotients."""
    small = [n for n in range(1, min(isqrt(number), 1 << 16) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


class _Costs:
    """What each step costs in so many turns, where all since what it reads was made goes in as many."""

    def __init__(self, works: Sequence[Work], count: int, machine: Machine) -> None:
        self.machine = machine
        self.touched = [0.0]  # before each step
        self.made: dict[str, int] = {}
        last: dict[str, int] = {}
        far: dict[str, float] = {}
        users = {name: step for step, work in enumerate(works) for name in work.reads}
        self.steps: list[float] = []
        for step, work in enumerate(works):
            self.touched.append(self.touched[-1] + work.results / count + work.weights)
            cost = count * (LAYERS.kernel + work.weights / LAYERS.memory_bytes)
            for name, size in work.reads.items():
                if name not in self.made:
                    continue  # an input comes from elsewhere either way
                rate = self.rate(self.touched[step + 1] - self.touched[last[name]])
                far[name] = max(far.get(name, 0.0), rate)
                cost += size * rate
                if users[name] == step:
                    cost += _FETCHED * size * far[name]
                last[name] = step
            for name in work.writes:
                self.made.setdefault(name, step)
                last[name] = step
            self.steps.append(cost)

    def rate(self, distance: float) -> float:
        """Cycles for a byte that is touched again when so many others have been."""
        if distance <= self.machine.middle_cache * self.machine.threads:
            return 0.0
        near, far = 1 / LAYERS.near_bytes, 1 / LAYERS.memory_bytes
        return near + (far - near) * min(1.0, distance / (CACHES.last_share * self.machine.last_cache))


def _borders(works: Sequence[Work], whole: _Costs) -> list[float]:
    """What it costs to begin parts at each step: what is read later was made for the whole batch."""
    users = {name: step for step, work in enumerate(works) for name in work.reads}
    costs = [0.0] * (len(works) + 1)
    sizes = {name: size for work in works for name, size in work.writes.items()}
    for name, first in whole.made.items():
        for step in range(first + 1, users.get(name, first) + 1):
            distance = whole.touched[step] - whole.touched[first]
            costs[step] += (1 + _FETCHED) * sizes[name] * whole.rate(distance)
    return costs
