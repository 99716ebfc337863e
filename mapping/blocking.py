"""Blocks of a reduction: so many steps that the panel of a register tile stays in a near cache.

The register tiles of a panel read it one after another.  If the reduction is long the panel would be read from a far
cache each time, so all register tiles of a tile run one block of steps after another, and their accumulators go through
memory in between (K. Goto and R. van de Geijn, "Anatomy of high-performance matrix multiplication", TOMS 2008).
"""

from __future__ import annotations

import math

from tcomp.grammar.function import Read
from tcomp.mapping.columns import Columns, operands_of
from tcomp.mapping.dotproducts import dot_product
from tcomp.mapping.footprint import extents
from tcomp.mapping.machine import Machine
from tcomp.mapping.plan import Cluster
from tcomp.mapping.strides import access_stride
from tcomp.mapping.tilesizes import main_statement, reduction_positions
from tcomp.scop import Scop, ScopStatement

PANEL_SHARE, SLACK = 4 / 3, 2.0
"""Panels of a block against the nearest cache, and how much longer a reduction may be that runs in one block.

A panel is read in order, which hides the second-level cache; what it costs to load and store the accumulators once more
is a little, too."""

PACKED_SHARE, PACKED_SLACK = 2 / 3, 1.1
"""The same where the rows are packed block by block."""

PAGE, FEW_SETS = 4096, 4
"""Bytes that a way of the nearest cache has on common processors.  Steps that are so far apart, and fall into so few of
its sets, throw each other out of it."""


STREAMED_STEPS, STREAMED_ROWS = 12, 2
"""Steps of a block whose panel is read once or twice from far away, so many register tiles high: as many rows of memory
as the processor fetches ahead of."""

FAR = 16
"""Operands of so many times the nearest cache come from far away."""

NEAR_SHARE = 1 / 3
"""Part of the nearest cache that the panel of a whole tile may take to stay there while rows pass by."""


def panel_stays_near(scop: Scop, cluster: Cluster, width: int, machine: Machine) -> bool:
    """Whether so many columns are a panel that stays in the nearest cache whatever else a tile reads and writes.

    Results are then written row by row, in the order of memory.
    """
    main = main_statement(scop, cluster)
    steps = math.prod(extents(main.domain)[p] for p in reduction_positions(cluster, main))
    return width * steps * scop.storages[main.target].dtype.itemsize <= NEAR_SHARE * machine.nearest_cache


def reduction_blocks(
    scop: Scop, cluster: Cluster, columns: Columns, tile: tuple[int, int], rows: int, machine: Machine
) -> tuple[tuple[int, int], ...]:
    """Positions of the reduction indices that run in blocks, outermost first, and the sizes of their blocks.

    A panel serves so many ``rows`` of a tile, which has register tiles of ``tile`` rows and columns.  Blocks of the
    last of the positions are even; of those before it, one value is a block.  Where several values are taken at a time,
    so many count as one.
    """
    main = main_statement(scop, cluster)
    positions = reduction_positions(cluster, main)
    dot = dot_product(scop, cluster, columns, machine)
    together = {} if dot is None else {dot.step: dot.size}
    sizes = {p: -(-e // together.get(p, 1)) for p, e in enumerate(extents(main.domain))}
    height, width = tile
    other = rows_of(main, columns)
    share, slack = PANEL_SHARE, SLACK
    if dot is not None or (other is not None and steps_collide(scop, main, other)):
        share, slack = PACKED_SHARE, PACKED_SLACK
    most = max(1, int(share * machine.nearest_cache / (width * scop.storages[main.target].dtype.itemsize)))
    if dot is None and rows <= STREAMED_ROWS * height and _is_streamed(scop, main, columns, machine):
        most, slack = STREAMED_STEPS, SLACK
    steps = math.prod(sizes[p] for p in positions)
    if steps <= slack * most:
        return ()
    blocks: list[tuple[int, int]] = []
    for position in positions:
        steps //= max(1, sizes[position])
        if steps <= most:
            count = -(-sizes[position] * steps // most)
            return (*blocks, (position, -(-sizes[position] // count) * together.get(position, 1)))
        blocks.append((position, together.get(position, 1)))
    return tuple(blocks)


def _is_streamed(scop: Scop, statement: ScopStatement, columns: Columns, machine: Machine) -> bool:
    """Whether the panel comes from far away, in rows that are longer than a tile is wide."""
    read = columns.panel
    if read is None or columns.packed or scop.storages[read.tensor].bytes < FAR * machine.nearest_cache:
        return False
    return steps_apart(scop, statement, read) >= PAGE


def steps_apart(scop: Scop, statement: ScopStatement, read: Read) -> int:
    """Bytes between what the nearest two steps of the reduction read; 0 where all read the same."""
    steps = statement.indices[statement.coordinates :]
    strides = [access_stride(scop, read.tensor, read.subscripts, step, scop.sizes) for step in steps]
    return min((abs(s) for s in strides if s), default=0) * scop.storages[read.tensor].dtype.itemsize


def rows_of(statement: ScopStatement, columns: Columns) -> Read | None:
    """The operand of a contraction that is not its panel, if it has one."""
    operands = operands_of(statement)
    if operands is None or columns.panel is None:
        return None
    return operands[0] if operands[1] is columns.panel else operands[1]


def steps_collide(scop: Scop, statement: ScopStatement, read: Read) -> bool:
    """Whether steps of the reduction read from few sets of the nearest cache."""
    apart = steps_apart(scop, statement, read)
    return apart >= PAGE and math.gcd(apart, PAGE) * FEW_SETS >= PAGE
