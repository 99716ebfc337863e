"""Rows of memory to come, fetched by a reduction while it passes over those before them.

Where several statements pass over a few rows at a time (norms, softmax), the first pass reads memory and the others the
nearest cache, and processors fetch ahead within a page of memory only.  So every row would begin with a wait; the last
reduction of a tile, during which memory has nothing to do, fetches what the next tile reads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tcomp.backends.arena import home_groups
from tcomp.grammar.tree.function import Index, Read, depends_on_data, walk, with_indices
from tcomp.loops.ir import Execute, For, Variable
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.machines.fitted.cputext import NEXT_ROWS
from tcomp.mapping.plan.values import Group, Plan
from tcomp.mapping.tiles.sizes import main_statement
from tcomp.mapping.tiles.strides import access_stride
from tcomp.model.scop import Scop, ScopStatement

LEAST_PASSES = 2
"""Statements that pass over a row below which memory has no rest that could be used."""


Strides = tuple[int | None, ...]
"""Elements that a read goes on with each index of a statement; None where that is not constant."""


def next_rows(plan: Plan, machine: Machine, loop: For, call: Execute) -> Mapping[Read, int]:
    """The reads of inputs whose next rows a reduction should fetch, and how many elements further on these lie.

    ``loop`` runs over a row, or a part of one, and reduces it into one element, for the instance that is called.
    """
    scop, statement = plan.scop, plan.scop.by_name[call.statement]
    along = [n for n, a in zip(statement.indices, call.arguments, strict=True) if a == Variable(loop.iterator)]
    group = plan.groups[home_groups(plan)[statement.name]]
    if len(along) != 1 or not _is_last_of_several(plan, group, statement):
        return {}
    rows = -(-math.prod(statement.extents[: statement.coordinates]) // _tiles(scop, plan, group))
    reads = _inputs_behind(plan, group, statement)
    found = {read: _Row.of(scop, statement, read, strides, along[0]) for read, strides in reads.items()}
    return {
        read: rows * row.step
        for read, row in found.items()
        if row is not None
        and scop.storages[read.tensor].bytes >= machine.threads * machine.middle_cache
        and row.bytes >= NEXT_ROWS.least_row
        and rows * row.bytes <= NEXT_ROWS.near_rows * machine.nearest_cache
    }


@dataclass(frozen=True, slots=True)
class _Row:
    """What a reduction reads of a tensor for one element: so many ``bytes``, and elements from one to the next."""

    bytes: int
    step: int

    @classmethod
    def of(cls, scop: Scop, statement: ScopStatement, read: Read, strides: Strides, along: str) -> _Row | None:
        """Of a read that walks through memory where an index moves; None where there are no rows apart."""
        if None in strides or strides[statement.indices.index(along)] != 1:
            return None
        reduced = range(statement.coordinates, len(strides))
        length = math.prod(max(1, statement.extents[p]) for p in reduced if strides[p])
        apart = [s for s in strides[: statement.coordinates] if s]
        step = min(apart, key=abs, default=0)
        if abs(step) < length:
            return None
        return cls(length * scop.storages[read.tensor].dtype.itemsize, step)


def _is_last_of_several(plan: Plan, group: Group, statement: ScopStatement) -> bool:
    """Whether a reduction is the last one of a group in which several statements pass over what it reads."""
    inside = {s for c in group.clusters for s in plan.clusters[c].statements}
    statements = [s for s in plan.scop.statements if s.name in inside]
    passes = [s for s in statements if math.prod(s.extents) >= math.prod(statement.extents)]
    last = [s for s in statements if s.kind == "update"][-1]
    return len(passes) >= LEAST_PASSES and last.name == statement.name


def _tiles(scop: Scop, plan: Plan, group: Group) -> int:
    """How many tiles a group has."""
    root = plan.clusters[group.root]
    main = main_statement(scop, root)
    extents = [main.extents[root.coordinates[main.name][m]] for m in group.members]
    return math.prod(-(-max(1, e) // max(1, size)) for e, size in zip(extents, group.sizes, strict=True))


def _inputs_behind(plan: Plan, group: Group, statement: ScopStatement) -> dict[Read, Strides]:
    """The reads of inputs in an update, and those that the temporaries of its tile are made of, with their strides.

    Of those that lie side by side there is one.
    """
    scop, found = plan.scop, dict[tuple[str, Strides], Read]()
    inside = {s for c in group.clusters for s in plan.clusters[c].statements}
    waiting = [e for e in walk(statement.value) if isinstance(e, Read)]
    while waiting:
        read = waiting.pop(0)
        if read.boundary is not None or any(map(depends_on_data, read.subscripts)):
            continue
        indices = statement.indices
        strides = tuple(access_stride(scop, read.tensor, read.subscripts, n, scop.sizes) for n in indices)
        if found.setdefault((read.tensor, strides), read) is not read:
            continue
        writers = [s for s in scop.statements if s.target == read.tensor]
        if len(writers) == 1 and writers[0].kind == "assign" and writers[0].name in inside:
            names = [s.name for s in writers[0].subscripts if isinstance(s, Index)]
            if len(names) == len(read.subscripts):
                made_of = with_indices(writers[0].value, dict(zip(names, read.subscripts, strict=True)))
                waiting += [e for e in walk(made_of) if isinstance(e, Read)]
    return {read: strides for (name, strides), read in found.items() if scop.storages[name].role == "input"}
