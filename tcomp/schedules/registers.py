"""How an operation of a schedule is cut to the registers of a processor."""

from __future__ import annotations

from dataclasses import replace

from tcomp.mapping.contraction.registertile import Loads, best_register_tile, vectorised
from tcomp.mapping.machines.cpu import Machine
from tcomp.schedules.expressions import names_in
from tcomp.schedules.stages import Loop, Stage, main_of
from tcomp.schedules.state import State
from tcomp.schedules.steps import split


def in_registers(state: State, machine: Machine) -> State:
    """The state with tensorized loops of more rows and columns than registers hold in tiles of as many as they do.

    The loops over these tiles stand as far out as sums stay where they are: outside of all that is reduced, but inside
    of copies of operands.
    """
    for stage in state.stages:
        if stage.tensorized:
            state = _cut(state, stage, machine)
    return state


def _cut(state: State, stage: Stage, machine: Machine) -> State:
    inside = stage.loops[stage.shared :]
    sides = [loop for loop in inside if names_in(loop.value) <= {*stage.coordinates} and loop.extent > 1]
    if len(sides) != 2 or sides[-1] is not inside[-1]:
        return state
    row, column = sides
    loads = Loads(True, state.scop.storages[main_of(state.scop, stage).target].dtype.itemsize)
    if vectorised(row.extent, column.extent, loads, machine) is not None:
        return state
    tile = best_register_tile(row.extent, column.extent, loads, machine, (True, True))
    if tile is None:
        return state
    copied = max((stage.depth(at) for _, at in stage.copied), default=0)
    outer = max(stage.shared, copied)
    sizes = [(loop, size) for loop, size in ((row, tile.rows), (column, tile.columns)) if size < loop.extent]
    for loop, size in sizes:
        state = split(state, state.stage(stage.name), loop.name, size, (_name(loop), loop.name))
    stage = state.stage(stage.name)
    parts = [stage.loop(_name(loop)) for loop, _ in sizes]
    left = [loop for loop in stage.loops if loop not in parts]
    return state.with_stage(replace(stage, loops=(*left[:outer], *parts, *left[outer:])))


def _name(loop: Loop) -> str:
    return f"{loop.name}_by_registers"
