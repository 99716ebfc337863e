"""Pass: let instances of a reduction whose elements data choose run at the same time, each a single atomic operation.

All instances of ``O(I(i),d) +=! V(i,d)`` with one ``d`` may meet, so they run one after another; where that leaves
threads idle, and the user gives up that sums of floats are the same from run to run, they run in any order, and an
element is read, combined and written as one.  Nothing of such an element is kept elsewhere meanwhile.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tcomp.errors import Diagnostic, MissingOperationError
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.schedule import scheduled_anew
from tcomp.mapping.plan.values import Cluster, Plan
from tcomp.model.scop import Scop, ScopStatement


def meet_in_elements(words: tuple[int, ...], enough: int, plan: Plan, options: MappingOptions) -> Plan:
    """Make reductions atomic that leave fewer than ``enough`` elements side by side, if the user allows that.

    A target has such operations on elements of so many ``words`` of bytes.  Raises MissingOperationError for others.
    """
    if not options.atomics or not words:
        return plan
    chosen = [
        s.name
        for s in plan.scop.statements
        if can_be_atomic(plan.scop, s.name) and not s.domain.is_empty() and _side_by_side(plan.clusters, s) < enough
    ]
    for name in chosen:
        _refuse_others(plan.scop, plan.scop.by_name[name], words)
    if not chosen:
        return plan
    return replace(scheduled_anew(plan, made_atomic(plan.scop, chosen)), atomic=tuple(chosen))


def can_be_atomic(scop: Scop, name: str) -> bool:
    """Whether a statement is a reduction in whose elements instances may meet that data choose."""
    statement = scop.by_name[name]
    return statement.kind == "update" and statement.scatters and not statement.tile_rank


def made_atomic(scop: Scop, names: list[str]) -> Scop:
    """The program in which some updates are atomic."""
    statements = tuple(replace(s, atomic=True) if s.name in names else s for s in scop.statements)
    return Scop(scop.storages, statements, scop.sizes, scop.warnings, scop.around)


def _side_by_side(clusters: tuple[Cluster, ...], statement: ScopStatement) -> int:
    """How many elements threads may share out without that."""
    cluster = next(c for c in clusters if statement.name in c.statements)
    return math.prod(statement.extents[p] for p in cluster.coordinates[statement.name])


def _refuse_others(scop: Scop, statement: ScopStatement, words: tuple[int, ...]) -> None:
    storage = scop.storages[statement.target]
    if storage.dtype.itemsize in words:
        return
    sizes = " or ".join(map(str, words))
    raise MissingOperationError(
        Diagnostic(
            f"there is no atomic `{statement.reduction}=` of {storage.dtype} here, only of elements of {sizes} bytes",
            hint="reduce in int32 or float, or leave the option atomics out",
        )
    )
