"""What a result of ``benchmarks/gpu.py`` says of tcomp beside its peers."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

OURS = ("tcomp", "tcomp tuned", "tcomp unchecked")
UNCHECKED = "tcomp unchecked"
"""Without run-time checks of subscripts that are data: no peer makes them, so this is compared where it was timed."""


@dataclass(frozen=True, slots=True)
class GpuCase:
    """A case that tcomp and at least one peer computed.

    ``ratio`` is the median of the fastest peer, ``peer``, over tcomp's; ``peers`` has the microseconds of each.
    """

    name: str
    microseconds: float
    share_of_roof: float
    peer: str
    ratio: float
    peers: Mapping[str, float]


def gpu_ratios(found: Mapping[str, Any], part: str = "cases", ours: str = "tcomp") -> list[GpuCase]:
    """The cases of a part, in the order in which they were measured."""
    cases = []
    for outcome in found["parts"].get(part, ()):
        entries = outcome["result"].get("implementations", {})
        timed = {name: entry for name, entry in entries.items() if "median_us" in entry}
        peers = {name: entry["median_us"] for name, entry in timed.items() if name not in OURS}
        alike = UNCHECKED in timed and ours == "tcomp"
        mine = timed.get(UNCHECKED if alike else ours)
        if mine is not None and peers:
            peer = min(peers, key=lambda name: peers[name])
            name = f"{outcome['item']}, unchecked" if alike else outcome["item"]
            ratio = peers[peer] / mine["median_us"]
            cases.append(GpuCase(name, mine["median_us"], mine["share_of_roof"], peer, ratio, peers))
    return cases


def mean(cases: Sequence[GpuCase]) -> float:
    """The geometric mean of their ratios."""
    return statistics.geometric_mean(case.ratio for case in cases)
