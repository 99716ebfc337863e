"""THE PASS LISTS: what each kind of target does to a plan, in order.

For every target the plan that comes in has clusters, each scheduled by isl in the sunk form (``tcomp/schedule.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tcomp.mapping.buffers import place_buffers
from tcomp.mapping.groups import fuse
from tcomp.mapping.nests import nest_clusters
from tcomp.mapping.options import MappingOptions
from tcomp.mapping.plan import Plan


@dataclass(frozen=True, slots=True)
class Pass:
    """One step of a strategy: its name in dumps, and the function that makes the next plan."""

    name: str
    run: Callable[[Plan, MappingOptions], Plan]


CPU_PASSES = (
    Pass("fuse", fuse),
    Pass("nest", nest_clusters),
    Pass("place", place_buffers),
)
