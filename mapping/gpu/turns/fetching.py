"""What the phases of a turn fetch: each turn its own keys, and once for all turns what is the same in each."""

from __future__ import annotations

from dataclasses import replace

import islpy as isl

from tcomp.mapping.memory.owners import home_of
from tcomp.mapping.memory.places import places
from tcomp.mapping.plan.values import Copy, Plan


def copies_at(plan: Plan, mark: str) -> list[Copy]:
    """The copies that the statements of a phase read: those made at its entry, and those made once for all turns."""
    own = next(p for p in places(plan.tree) if p.mark == mark).prefixes
    return [c for c in plan.copies if c.mark == mark or (c.mark.startswith("group") and c.statement in own)]


def once_for_all_turns(plan: Plan, copy: Copy) -> Copy:
    """The copy made at the head of a tile if it is the same in each turn, as that of queries is."""
    group, cluster = home_of(plan, copy.statement)
    if cluster not in group.turns:
        return copy
    rank, into = len(group.members), isl.dim_type.in_
    if copy.lower.dim(into) != rank + 1 or copy.lower.involves_dims(into, rank, 1):
        return copy
    return replace(copy, mark=f"group{plan.groups.index(group)}", lower=copy.lower.drop_dims(into, rank, 1))
