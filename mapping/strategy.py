"""THE PASS LISTS: what each kind of target does to a plan, in order.

For every target the plan that comes in has clusters, each scheduled by isl in the sunk form (``tcomp/schedule.py``).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

from tcomp.mapping.buffers import place_buffers
from tcomp.mapping.groups import fuse
from tcomp.mapping.machine import Machine
from tcomp.mapping.nests import nest_clusters
from tcomp.mapping.options import MappingOptions
from tcomp.mapping.plan import Plan


@dataclass(frozen=True, slots=True)
class Pass:
    """One step of a strategy: its name in dumps, and the function that makes the next plan."""

    name: str
    run: Callable[[Plan, MappingOptions], Plan]


def cpu_passes(machine: Machine) -> tuple[Pass, ...]:
    """The passes of the CPU target."""
    return (
        Pass("fuse", fuse),
        Pass("nest", functools.partial(nest_clusters, machine)),
        Pass("place", place_buffers),
    )
