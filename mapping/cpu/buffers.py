"""Pass: where temporaries live on a CPU.

A temporary shrinks to the innermost marked place whose instances never hand its values to each other: the loops around
that place move a box over it, which is the footprint of the place, and a box of one element is a register.  Of a box
that loops inside the place slide over, only the window is there.  What no place can hold is a global array in the
arena.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import replace

from tcomp.mapping.contraction.columns import columns_of
from tcomp.mapping.cpu.packing import packed_from_memory
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.memory.places import Place, boxed, places
from tcomp.mapping.memory.windows import as_window, dates_of
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.values import Buffer, Cluster, Plan
from tcomp.mapping.tiles.sizes import main_statement
from tcomp.mapping.tiles.strides import coefficient
from tcomp.model.scop import Scop
from tcomp.model.terms.storages import Storage


def place_buffers(machine: Machine, plan: Plan, options: MappingOptions) -> Plan:
    """Give every temporary its smallest scope."""
    available = [p for p in places(plan.tree) if not p.mark.startswith("parallel") and p.mark not in plan.operations]
    temporaries = [s for s in plan.scop.storages.values() if s.role == "temporary"]
    around: dict[str, list[Place]] = {}
    for place in reversed(available):
        for statement in place.prefixes:
            around.setdefault(statement, []).append(place)
    running = [plan.clusters[number] for group in plan.groups for number in group.clusters]
    several = any(group.shared for group in plan.groups)
    packed = {name for c in running if several for name in packed_from_memory(machine, plan.scop, c)}
    whole = {o.statement for o in plan.operations.values()}
    windows = {
        s.name for s in temporaries if not plan.scop.steps and whole.isdisjoint(u.name for u in plan.scop.users[s.name])
    }
    buffers = {s.name: _smallest(plan, s, around, packed, windows) for s in temporaries}
    turned = {name: order for cluster in running for name, order in _turned(plan.scop, cluster, machine.vector_bytes)}
    for name, order in turned.items():
        if buffers[name].space == "tile":
            buffers[name] = replace(buffers[name], order=order)
    return replace(plan, buffers=buffers)


def _turned(scop: Scop, cluster: Cluster, vector_bytes: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The accumulators of a contraction whose columns are no neighbours in them, and the order in which they are."""
    columns = columns_of(scop, cluster, vector_bytes)
    if columns is not None and columns.results is not None:
        main = main_statement(scop, cluster)
        index = main.indices[columns.position]
        dimensions = range(len(main.subscripts))
        along = next(d for d in dimensions if coefficient(main.subscripts[d], index, scop.sizes))
        yield main.target, (*(d for d in dimensions if d != along), along)


def _smallest(
    plan: Plan, storage: Storage, around: Mapping[str, list[Place]], packed: Container[str], windows: Container[str]
) -> Buffer:
    """The buffer of a storage.  What another group of a nest makes panels of stays in memory.

    Where a place further in sees all that touch the storage, but hands on its values, a window of it may do.
    """
    users = plan.scop.users[storage.name]
    writers = [s for s in users if s.target == storage.name]
    slides = False
    if writers:
        for place in around.get(writers[0].name, ()):
            if place.mark.startswith("nest") and storage.name in packed:
                continue
            if all(s.name in place.prefixes for s in users):
                if place.holds(plan.scop.values_through[storage.name]):
                    buffer = boxed(storage, place, writers)
                    slides = slides and buffer.space == "tile" and storage.name in windows
                    return as_window(plan.scop, buffer, place, dates_of(plan.tree)) if slides else buffer
                slides = True
    return Buffer(storage.name, storage.dtype, "global", storage.box.extent, storage.box.origin, None, "")
