"""Blocks of a reduction: so many steps that the panel of a register tile stays in a near cache.

The register tiles of a panel read it one after another.  If the reduction is long the panel would be read from a far
cache each time, so all register tiles of a tile run one block of steps after another, and their accumulators go through
memory in between (K. Goto and R. van de Geijn, "Anatomy of high-performance matrix multiplication", TOMS 2008).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from tcomp.grammar.tree.function import Expr, Read
from tcomp.mapping.contraction.columns import Columns, depends_on, operands_of
from tcomp.mapping.contraction.dotproducts import dot_product
from tcomp.mapping.contraction.registertile import Loads
from tcomp.mapping.machines.cpu import LINE_BYTES, PAGE, Machine
from tcomp.mapping.machines.fitted.cpucontractions import REGISTER_TILES
from tcomp.mapping.machines.fitted.cpupanels import BLOCKS
from tcomp.mapping.plan.values import Cluster
from tcomp.mapping.tiles.sizes import main_statement, reduction_positions
from tcomp.mapping.tiles.strides import access_stride, coefficient
from tcomp.model.scop import Scop, ScopStatement


def runs_by_rows(
    scop: Scop,
    cluster: Cluster,
    columns: Columns,
    sides: tuple[int, int],
    tile: tuple[int, int],
    blocks: Mapping[int, int],
    machine: Machine,
) -> bool:
    """Whether register tiles run along the rows of a tile, with one panel for all of its columns.

    ``sides`` are the rows and columns of the tile, ``tile`` those of a register tile, ``blocks`` the sizes of the
    blocks of the reduction by the positions of its indices.  Results are then written row by row, in the order of
    memory, and what the rows read is fetched once, so it pays if the panel stays near whatever else a tile reads and
    writes.  A panel that is packed because its steps lie far apart may take part of the second-level cache, from which
    each register tile would read its own columns, too: packing all at once fetches whole rows of memory.  Where the
    reduction runs in blocks, or columns lie apart, it pays if what the rows read does not stay in that cache, and is
    read along its lines.
    """
    main = main_statement(scop, cluster)
    steps = math.prod(blocks.get(p, main.lengths[p]) for p in reduction_positions(cluster, main))
    dot = dot_product(scop, cluster, columns, machine)
    itemsize = scop.storages[main.target].dtype.itemsize
    size = sides[1] * (steps if dot is None else -(-steps // dot.size)) * itemsize
    if not blocks and size <= BLOCKS.near_share * machine.nearest_cache:
        return True
    afar, room = is_read_afar(scop, cluster, columns, machine), BLOCKS.middle_share * machine.middle_cache
    if dot is not None or not (columns.packed or afar) or size > room:
        return False
    if not blocks and not columns.packed:
        return True
    rows = rows_of(main, columns)
    if rows is None or sides[0] <= tile[0] or sides[1] <= tile[1]:
        return False
    element = scop.storages[rows.tensor].dtype.itemsize
    along = steps_apart(scop, main, rows, steps_in_order(scop, cluster, columns)) <= element
    return along and sides[0] * steps * element > machine.middle_cache


def reduction_blocks(
    scop: Scop,
    cluster: Cluster,
    columns: Columns,
    tile: tuple[int, int],
    extents: Mapping[int, int],
    rows: int,
    machine: Machine,
) -> tuple[tuple[int, int], ...]:
    """Positions of the reduction indices that run in blocks, outermost first, and the sizes of their blocks.

    A panel serves so many ``rows`` of a tile, which has ``extents`` by the positions of its coordinates, and register
    tiles of ``tile`` rows and columns.  The innermost loops get what room there is, once those along which an operand
    is contiguous have a line of it.  Where several values are taken at a time, so many count as one.
    """
    main = main_statement(scop, cluster)
    positions = steps_in_order(scop, cluster, columns)
    dot = dot_product(scop, cluster, columns, machine)
    together = {} if dot is None else {dot.step: dot.whole}
    sizes = {p: -(-e // together.get(p, 1)) for p, e in enumerate(main.lengths)}
    height, width = tile
    other = rows_of(main, columns)
    share, slack = BLOCKS.panel_share, BLOCKS.slack
    if dot is not None or (other is not None and steps_collide(scop, main, other, positions)):
        share, slack = BLOCKS.packed_share, BLOCKS.packed_slack
    most = max(1, int(share * machine.nearest_cache / (width * scop.storages[main.target].dtype.itemsize)))
    if dot is not None and dot.depth:
        most = max(1, most // dot.depth)
    streamed = is_streamed(scop, cluster, columns, machine) and rows <= BLOCKS.streamed_rows * height
    streamed = streamed and not is_near_for_few(scop, cluster, columns, machine)
    near = None if dot is not None or other is None else _steps_near(scop, main, other, positions, extents, machine)
    if streamed:
        most, slack = BLOCKS.streamed_steps, BLOCKS.slack
    elif near is not None and near < most:
        most, slack = near, 1.0
    if math.prod(sizes[p] for p in positions) <= slack * most:
        return ()
    lines = not streamed or rows > 1
    least = {p: min(sizes[p], BLOCKS.line_steps) if lines and _in_lines(scop, main, p) else 1 for p in positions}
    shape = dict(least)
    for position in reversed(positions):
        others = math.prod(shape[p] for p in positions if p != position)
        shape[position] = max(least[position], _even(sizes[position], max(1, most // others)))
    return tuple((p, shape[p] * together.get(p, 1)) for p in positions if shape[p] < sizes[p])


def _steps_near(
    scop: Scop, main: ScopStatement, read: Read, positions: list[int], extents: Mapping[int, int], machine: Machine
) -> int | None:
    """Steps of a block for which what all rows of a tile read stays near; None where that does not matter.

    It does where rows share lines of the cache and neighbouring steps do not: each register tile would touch lines of
    its own for each of many steps, which nothing fetches ahead.  With the steps of a few channels at a time rows of an
    image pass by in order.
    """
    if machine.middle_is_large:
        return None
    itemsize = scop.storages[read.tensor].dtype.itemsize
    strides = {p: access_stride(scop, read.tensor, read.subscripts, main.indices[p], scop.sizes) for p in extents}
    if not any(s and abs(s) * itemsize < LINE_BYTES and extents[p] > 1 for p, s in strides.items()):
        return None

    def touched(steps: Mapping[int, int]) -> int:
        return itemsize * math.prod(_span(scop, main, s, {**extents, **steps}) for s in read.subscripts)

    if touched({p: main.lengths[p] for p in positions}) <= machine.nearest_cache:
        return None
    block: dict[int, int] = {}
    for position in reversed(positions):
        block[position] = main.lengths[position]
        room = BLOCKS.near_rows * machine.middle_cache
        if touched(block) > room:
            block[position] = 1
            inner = math.prod(block.values())
            return max(int(room / touched(block)), -(-BLOCKS.least_block // inner)) * inner
    return None


def _span(scop: Scop, statement: ScopStatement, subscript: Expr, extents: Mapping[int, int]) -> int:
    """From the first element that a subscript names to the last, of indices with extents by their positions."""
    steps = {p: coefficient(subscript, statement.indices[p], scop.sizes) or 0 for p in extents}
    return 1 + sum(abs(steps[p]) * (extent - 1) for p, extent in extents.items())


def _in_lines(scop: Scop, statement: ScopStatement, position: int) -> bool:
    """Whether neighbouring steps of an index read neighbours of an operand."""
    index = statement.indices[position]
    operands = operands_of(statement) or ()
    return any(abs(access_stride(scop, r.tensor, r.subscripts, index, scop.sizes) or 0) == 1 for r in operands)


def steps_in_order(scop: Scop, cluster: Cluster, columns: Columns | None) -> list[int]:
    """Positions of the reduction indices in the order of their loops, outermost first.

    The operand that is no panel is read where it lies, so that what it reads next should lie next to it.
    """
    main = main_statement(scop, cluster)
    positions = reduction_positions(cluster, main)
    rows = None if columns is None else rows_of(main, columns)
    if rows is None:
        return positions
    strides = {p: access_stride(scop, rows.tensor, rows.subscripts, main.indices[p], scop.sizes) for p in positions}
    if any(s is None for s in strides.values()):
        return positions
    return sorted(positions, key=lambda p: -abs(strides[p] or 0))


def panel_loads(
    scop: Scop, cluster: Cluster, columns: Columns, shared: bool, machine: Machine, row: int | None = None
) -> Loads:
    """What the operands of a contraction ask of a step.

    ``shared`` says whether all rows of a register tile use the panel, ``row`` is the coordinate that they run over.
    """
    itemsize = scop.storages[main_statement(scop, cluster).target].dtype.itemsize
    dot = dot_product(scop, cluster, columns, machine)
    if dot is not None:
        line = LINE_BYTES // scop.storages[dot.panel.read.tensor].dtype.itemsize
        return Loads(shared, itemsize, line=line)
    aligned = _vectors_are_aligned(scop, cluster, columns, machine)
    depth = _panel_depth(scop, cluster, columns, machine)
    afar = is_near_for_few(scop, cluster, columns, machine)
    apart = 0 if row is None else _rows_apart(scop, cluster, columns, row)
    loads = Loads(shared, itemsize, depth, aligned and not afar, beyond=columns.packed, afar=afar, apart=apart)
    if columns.panel is not None:
        return loads
    operands = operands_of(main_statement(scop, cluster)) or ()
    return replace(loads, shared=False, both=True, pointers=sum(read.boundary is not None for read in operands))


def _rows_apart(scop: Scop, cluster: Cluster, columns: Columns, row: int) -> int:
    """Bytes between what neighbouring rows read; 0 where they read a copy, or it is not known."""
    main = main_statement(scop, cluster)
    read = rows_of(main, columns)
    if read is None or read.boundary is not None:
        return 0
    if steps_collide(scop, main, read, steps_in_order(scop, cluster, columns)):
        return 0
    index = main.indices[cluster.coordinates[main.name][row]]
    apart = access_stride(scop, read.tensor, read.subscripts, index, scop.sizes) or 0
    return abs(apart) * scop.storages[read.tensor].dtype.itemsize


def _vectors_are_aligned(scop: Scop, cluster: Cluster, columns: Columns, machine: Machine) -> bool:
    """Whether the columns of every step begin at a line of the cache, or will once they are packed."""
    if columns.panel is None:
        return True
    return _in_whole_lines(scop, columns.panel) or columns.packed or is_read_afar(scop, cluster, columns, machine)


def _in_whole_lines(scop: Scop, read: Read) -> bool:
    """Whether all rows of a tensor begin with a line of the cache if it does."""
    storage = scop.storages[read.tensor]
    return all(stride * storage.dtype.itemsize % LINE_BYTES == 0 for stride in storage.strides if stride != 1)


def _panel_depth(scop: Scop, cluster: Cluster, columns: Columns, machine: Machine) -> int:
    """Elements that a block of the reduction reads of a panel for each of its columns; 0 where there is no panel.

    A long reduction runs in blocks of as many steps as stay near with a line of columns each.  Windows read an element
    in several steps.
    """
    main = main_statement(scop, cluster)
    read = columns.panel
    if read is None:
        return 0
    sizes = main.lengths
    depth = 1
    for subscript in read.subscripts:
        if coefficient(subscript, main.indices[columns.position], scop.sizes) == 0:
            depth *= _span(scop, main, subscript, {p: sizes[p] for p in reduction_positions(cluster, main)})
    count = math.prod(sizes[p] for p in reduction_positions(cluster, main))
    most = int(BLOCKS.panel_share * machine.nearest_cache / LINE_BYTES)
    return depth if count <= BLOCKS.slack * most else -(-depth * most // count)


def is_read_afar(scop: Scop, cluster: Cluster, columns: Columns, machine: Machine) -> bool:
    """Whether the steps of a panel lie so far apart that it should be packed for that.

    They do if neighbouring ones do, or where a long loop around these moves far, as one over the channels of an image.
    Panels whose lines many rows straddle count, too.
    """
    main, read = main_statement(scop, cluster), columns.panel
    if read is None:
        return False
    steps = steps_in_order(scop, cluster, columns)
    loops = [steps, *([p] for p in steps if main.lengths[p] >= BLOCKS.many_steps)]
    apart = max(steps_apart(scop, main, read, loop) for loop in loops)
    if apart < machine.far_stride:
        return _is_straddled_by_many(scop, cluster, columns, machine)
    return not is_near_for_few(scop, cluster, columns, machine)


def is_near_for_few(scop: Scop, cluster: Cluster, columns: Columns, machine: Machine) -> bool:
    """Whether few rows read a panel that stays in the nearest cache as it lies: they would not pay for a copy of it.

    Its lines then come from far away while others are multiplied, where a copy waits for them first.
    """
    main, read = main_statement(scop, cluster), columns.panel
    if read is None or columns.packed or not machine.middle_is_large:
        return False
    steps = steps_in_order(scop, cluster, columns)
    if steps_collide(scop, main, read, steps) or steps_apart(scop, main, read, steps) < machine.far_stride:
        return False
    coordinates = [p for p in cluster.coordinates[main.name] if not depends_on(scop, read, main.indices[p])]
    if math.prod(main.lengths[p] for p in coordinates) > BLOCKS.few_rows:
        return False
    row = BLOCKS.few_vectors * machine.vector_bytes + LINE_BYTES
    return _panel_depth(scop, cluster, columns, machine) * row <= REGISTER_TILES.nearest_share * machine.nearest_cache


def _is_straddled_by_many(scop: Scop, cluster: Cluster, columns: Columns, machine: Machine) -> bool:
    """Whether many rows read whole lines from the second cache: those of an array that begins within one take two each.

    That is so where the panel of a register tile does not stay in the nearest cache, and the reduction runs in one
    block.  The other operand must not lie in memory, for panels are kept where it may be read again for each.
    """
    main, steps = main_statement(scop, cluster), steps_in_order(scop, cluster, columns)
    panel, other = columns.panel, rows_of(main, columns)
    if panel is None or other is None or not _in_whole_lines(scop, panel):
        return False
    count = math.prod(main.lengths[p] for p in steps)
    near = machine.nearest_cache / (BLOCKS.panel_vectors * machine.vector_bytes)
    if not near < count <= BLOCKS.slack * BLOCKS.panel_share * near or machine.overflows(
        scop.storages[other.tensor].bytes
    ):
        return False
    coordinates = [p for p in cluster.coordinates[main.name] if not depends_on(scop, panel, main.indices[p])]
    rows = math.prod(main.lengths[p] for p in coordinates)
    return rows >= BLOCKS.many_rows and steps_apart(scop, main, panel, steps) >= PAGE // 2


def _even(extent: int, most: int) -> int:
    """The size of blocks of which none is longer than ``most``: of equal ones, if up to twice as many are equal."""
    least = -(-extent // most)
    count = next((n for n in range(least, 2 * least) if extent % n == 0), least)
    return -(-extent // count)


def is_streamed(scop: Scop, cluster: Cluster, columns: Columns, machine: Machine) -> bool:
    """Whether the panel comes from far away, in rows that are longer than a tile is wide."""
    main, read = main_statement(scop, cluster), columns.panel
    if read is None or columns.packed or scop.storages[read.tensor].bytes < BLOCKS.far * machine.nearest_cache:
        return False
    if dot_product(scop, cluster, columns, machine) is not None:
        return False
    return steps_apart(scop, main, read, steps_in_order(scop, cluster, columns)) >= PAGE


def passes_once(scop: Scop, cluster: Cluster, columns: Columns, machine: Machine) -> bool:
    """Whether the panel comes from far away and no coordinate shares it: each element of it is read once.

    Several rows, as those of images of a batch, would each read a panel of their own, and that many streams more.
    """
    main, read = main_statement(scop, cluster), columns.panel
    if read is None or not is_streamed(scop, cluster, columns, machine):
        return False
    return all(depends_on(scop, read, main.indices[p]) for p in cluster.coordinates[main.name] if main.lengths[p] > 1)


def steps_apart(scop: Scop, statement: ScopStatement, read: Read, steps: list[int]) -> int:
    """Bytes between what neighbouring steps of the innermost loop that moves a read touch; 0 where there is none.

    ``steps`` are the positions of the reduction indices in the order of their loops; loops of one iteration move
    nothing.
    """
    indices = [statement.indices[p] for p in reversed(steps) if statement.lengths[p] > 1]
    strides = [access_stride(scop, read.tensor, read.subscripts, index, scop.sizes) for index in indices]
    return abs(next((s for s in strides if s), 0)) * scop.storages[read.tensor].dtype.itemsize


def rows_of(statement: ScopStatement, columns: Columns) -> Read | None:
    """The operand of a contraction that is not its panel, if it has one."""
    operands = operands_of(statement)
    if operands is None or columns.panel is None:
        return None
    return operands[0] if operands[1] is columns.panel else operands[1]


def steps_collide(scop: Scop, statement: ScopStatement, read: Read, steps: list[int]) -> bool:
    """Whether steps of the reduction, in the order of their loops, read from few sets of the nearest cache."""
    apart = steps_apart(scop, statement, read, steps)
    return apart >= PAGE and math.gcd(apart, PAGE) * BLOCKS.few_sets >= PAGE
