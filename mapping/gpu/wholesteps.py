"""Steps of a contraction beyond its last one, of which both operands are zeros: adding them changes nothing.

The last tile of steps may be torn, as tiles of elements may.  Where what lies beyond is outside of both tensors, copies
have zeros there, and all steps of a tile are run: their number is then a number, and one loop serves all tiles.  One
operand alone would not do, for the other may hold what is not finite.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

import islpy as isl

from tcomp.grammar.tree.function import Cast, Constant, Read, walk
from tcomp.mapping.memory.places import places
from tcomp.mapping.plan.deals import Phase
from tcomp.mapping.plan.values import Plan
from tcomp.model.accesses import Frame, box_set, element_map
from tcomp.model.scop import ScopStatement


def may_run_beyond(
    plan: Plan, phase: Phase, statement: ScopStatement, steps: Sequence[tuple[int, int]], zeros: Container[str] = (),
    bordered: bool = False,
) -> bool:  # fmt: skip
    """Whether indices of the reduction, in tiles of some sizes, may run to the end of each: all of it adds nothing.

    ``steps`` are (position, size).  A run of the phase must lie in one tile, and every operand outside its tensor
    beyond the last step, unless its storage is one of those that hold ``zeros`` where nothing was written.
    What is ``bordered`` by zeros has these in its copies.
    """
    reads = [e for e in walk(statement.value) if isinstance(e, Read)]
    if statement.tile_rank or any(r.boundary is not None and not (bordered and is_zero_outside(r)) for r in reads):
        return False
    reads = [read for read in reads if read.tensor not in zeros]
    names = [f"i{d}" for d in range(len(statement.indices))]
    instance = f"{statement.name}[{', '.join(names)}]"
    tile_of_steps = isl.Map(f"{{ {instance} -> [{', '.join(f'floor({names[p]}/{size})' for p, size in steps)}] }}")
    prefix = next(p for p in places(plan.tree) if p.mark == phase.mark).prefixes[statement.name]
    if not prefix.reverse().apply_range(tile_of_steps).is_single_valued():
        return False
    beyond = _beyond(statement, steps)
    boxes = {name: storage.box for name, storage in plan.scop.storages.items()}
    frame = Frame(beyond, plan.scop.sizes, boxes)
    return all(
        element_map(frame, read.tensor, read.subscripts)
        .intersect_range(box_set(read.tensor, boxes[read.tensor]))
        .is_empty()
        for read in reads
    )


def is_zero_outside(read: Read) -> bool:
    """Whether a read is 0 wherever it is outside of its tensor."""
    if read.boundary is None:
        return True
    value = read.boundary.value
    while isinstance(value, Cast):
        value = value.operand
    return read.boundary.kind == "constant_exterior" and isinstance(value, Constant) and value.value == 0


def _beyond(statement: ScopStatement, steps: Sequence[tuple[int, int]]) -> isl.Set:
    """The instances that the domain lacks in tiles of steps of which it has some."""
    domain = statement.domain
    names = [f"i{d}" for d in range(len(statement.indices))]
    sizes = dict(steps)
    tiles = [f"floor({name}/{sizes[p]})" if p in sizes else name for p, name in enumerate(names)]
    to_tile = isl.Map(f"{{ {statement.name}[{', '.join(names)}] -> [{', '.join(tiles)}] }}")
    whole = domain.apply(to_tile).apply(to_tile.reverse())
    beyond = whole.subtract(domain)
    for position, index in enumerate(statement.indices):
        beyond = beyond.set_dim_name(isl.dim_type.set, position, index)
    return beyond
