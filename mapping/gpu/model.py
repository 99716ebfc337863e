"""What a tile of a contraction costs on a device: an estimate that ranks tiles, not a prediction.

A multiprocessor works on its resident blocks at a time, a tile of steps after another.  Each takes the longer of
arithmetic, slowed by the reads from shared memory that a thread's share of elements needs for each multiplication, and
of what operands need to arrive; then threads wait for each other.  All together take no less than the traffic (Roller,
OSDI 2022, and tritonBLAS rank tiles in this manner).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from tcomp.mapping.machines.atoms import LANES_OF_COLUMNS, LANES_OF_ROWS, ROWS, Atom
from tcomp.mapping.machines.fitted.gpu import CONTRACTIONS, DEVICE, SHARED
from tcomp.mapping.machines.gpu import REGISTER_BYTES, STATIC_SHARED_BYTES, WARP, Gpu, is_wide


@dataclass(frozen=True, slots=True)
class TileShape:
    """The tile of a block: ``rows`` by ``columns`` elements by ``threads``, of each ``share`` (rows, columns) elements.

    ``steps`` is how much of the reduction is fetched at a time; ``itemsize`` in bytes; ``faster`` is how many times as
    fast as single products the instructions are that multiply matrices, if they do; ``in_groups`` says that they read
    shared memory by themselves, in stages that take most of it.  Each accumulator is so many ``sums``.
    """

    rows: int
    columns: int
    threads: int
    share: tuple[int, int]
    steps: int
    itemsize: int
    faster: float = 1.0
    in_groups: bool = False
    sums: int = 1

    @property
    def busy(self) -> float:
        """The share of a multiprocessor's cycles in which it multiplies, as reads from shared memory leave it.

        Of a warp's multiplications four start in a cycle, but one of its passes over the banks, and however many
        elements a thread reads at a time, each costs one.
        """
        products, reads = self.share[0] * self.share[1], sum(self.share)
        if self.in_groups:
            return 1.0
        if self.faster > 1:
            own = products * WARP // self.columns + self.columns  # a warp has rows alone, and all columns
            return 1 / max(1.0, own * CONTRACTIONS.matrix_reads / (products * WARP))
        return products / 4 / max(products / 4 + reads / 16, reads * max(1, self.itemsize // REGISTER_BYTES))

    @property
    def shared_bytes(self) -> int:
        """Bytes of both operands."""
        return (self.rows + self.columns) * self.steps * self.itemsize

    @property
    def kept(self) -> int:
        """Registers of a thread for its accumulators."""
        return self.share[0] * self.share[1] * max(1, self.itemsize // REGISTER_BYTES) * self.sums

    @property
    def registers(self) -> int:
        """Registers of a thread."""
        if self.in_groups:
            return DEVICE.base_registers + self.kept  # operands stay in shared memory
        return DEVICE.base_registers + self.kept + sum(self.share) * max(1, self.itemsize // REGISTER_BYTES)

    @property
    def half_busy(self) -> int:
        """Threads with which a multiprocessor reaches half of what it could."""
        return DEVICE.half_busy_wide_threads if is_wide(self.kept) else DEVICE.half_busy_threads


def contraction_threads(elements: int, itemsize: int) -> int:
    """Threads for so many elements of a tile: so few that each has a wide share where these fill its registers."""
    wide = elements // CONTRACTIONS.wide_share
    if itemsize > REGISTER_BYTES or wide < CONTRACTIONS.block_threads // 2:
        return CONTRACTIONS.block_threads
    return min(CONTRACTIONS.block_threads, wide)


def fetched_steps(threads: int, elements: int, share: int, ahead: bool) -> int:
    """Steps of a contraction between two fetches, each of which needs so many ``elements`` of the operands.

    ``share`` is how many elements of the result a thread has; what is fetched asynchronously ``ahead`` takes none of
    its registers.
    """
    few = threads < CONTRACTIONS.block_threads and share >= CONTRACTIONS.wide_share and not ahead
    least = CONTRACTIONS.least_wide_steps if few else CONTRACTIONS.least_steps
    return max(least, min(CONTRACTIONS.most_steps, CONTRACTIONS.fetched_elements * threads // max(1, elements)))


def resident_blocks(gpu: Gpu, tile: TileShape) -> int:
    """Blocks that a multiprocessor holds at a time, as registers, threads and shared memory allow; 0 if none fits."""
    most = gpu.shared_per_block if tile.in_groups else STATIC_SHARED_BYTES
    if tile.shared_bytes > most or tile.registers > gpu.registers_per_thread:
        return 0
    stages = SHARED.group_stages if tile.in_groups else 1
    return min(
        gpu.threads_per_multiprocessor // tile.threads,
        gpu.registers_per_multiprocessor // (tile.registers * tile.threads),
        max(1, gpu.shared_per_multiprocessor // max(1, stages * tile.shared_bytes)),
        gpu.blocks_per_multiprocessor,
    )


def contraction_seconds(gpu: Gpu, tile: TileShape, blocks: int, steps: int) -> float:
    """Seconds for ``blocks`` tiles of a contraction with ``steps`` steps each; infinite where none fits."""
    resident = resident_blocks(gpu, tile)
    if resident == 0:
        return math.inf
    multiprocessors, flops = gpu.multiprocessors, gpu.flops / gpu.multiprocessors
    step = 2.0 * tile.rows * tile.columns * min(tile.steps, steps) / (tile.busy * tile.faster * flops)
    tiles = -(-steps // tile.steps)

    def turn(at_a_time: int) -> float:
        if not at_a_time:
            return 0.0
        filled = at_a_time * tile.threads / (at_a_time * tile.threads + tile.half_busy)
        return (
            tiles * (max(at_a_time * step / filled, DEVICE.step_latency) + DEVICE.barrier_seconds) + DEVICE.step_latency
        )

    full, rest = divmod(blocks, multiprocessors * resident)
    traffic = blocks * (tile.rows + tile.columns) * steps * tile.itemsize / (DEVICE.l2_advantage * gpu.bandwidth)
    return max(full * turn(resident) + turn(-(-rest // multiprocessors)), traffic)


def parts_of_contraction(gpu: Gpu, work: Work, most: int, atom: Atom | None = None) -> int:
    """Into how many parts, of ``most``, to split the steps of a contraction; 1 if that does not pay.

    ``atom`` is the instruction that multiplies matrices for it.
    """
    candidates = [1, *(p for p in CONTRACTIONS.parts if p <= most)]
    return min(candidates, key=lambda parts: (_seconds_in_parts(gpu, work, parts, atom), parts))


@dataclass(frozen=True, slots=True)
class Work:
    """A contraction: ``batches`` products of ``rows`` by ``columns`` elements over ``steps``; ``itemsize`` in bytes."""

    batches: int
    rows: int
    columns: int
    steps: int
    itemsize: int


def _seconds_in_parts(gpu: Gpu, work: Work, parts: int, atom: Atom | None) -> float:
    moved = 0 if parts == 1 else 2 * parts * work.batches * work.rows * work.columns * work.itemsize
    steps = -(-work.steps // parts)
    return min(
        contraction_seconds(gpu, tile, parts * work.batches * blocks, steps) for tile, blocks in _tiles(gpu, work, atom)
    ) + (DEVICE.launch_seconds + moved / gpu.bandwidth if parts > 1 else 0.0)


def _tiles(gpu: Gpu, work: Work, atom: Atom | None) -> Iterator[tuple[TileShape, int]]:
    """The tiles that a block may compute, dealt to as many threads as usual, with how many there are."""
    for rows, columns in CONTRACTIONS.tiles if atom is None else CONTRACTIONS.matrix_tiles:
        own = min(rows, work.rows), min(columns, work.columns)
        if atom is not None:
            warps = max(1, own[0] // (2 * ROWS))
            each = max(1, own[0] // (LANES_OF_ROWS * warps)), max(1, own[1] // LANES_OF_COLUMNS)
            faster = gpu.matrix_flops(atom) / gpu.flops
            tile = TileShape(*own, WARP * warps, each, atom.tile, work.itemsize, faster)
            yield tile, -(-work.rows // own[0]) * -(-work.columns // own[1])
            continue
        threads = contraction_threads(own[0] * own[1], work.itemsize)
        share = math.sqrt(own[0] * own[1] / threads)
        each = max(1, round(share)), max(1, math.ceil(share))
        steps = fetched_steps(threads, sum(own), math.prod(each), gpu.copies_asynchronously)
        tile = TileShape(*own, threads, each, steps, work.itemsize)
        yield tile, -(-work.rows // own[0]) * -(-work.columns // own[1])


def rows_read(tiles: tuple[int, int], order: int, first: int, count: int) -> tuple[int, int]:
    """The rows and the columns of tiles that some blocks in turn, of all of ``tiles``, take, in groups of rows."""
    rows, columns = tiles
    seen_rows: set[int] = set()
    seen_columns: set[int] = set()
    for block in range(first, min(first + count, rows * columns)):
        row, column = tile_of_block(tiles, order, block)
        seen_rows.add(row)
        seen_columns.add(column)
    return len(seen_rows), len(seen_columns)


def tile_of_block(tiles: tuple[int, int], order: int, block: int) -> tuple[int, int]:
    """The row and the column of the tile that a block takes: ``order`` rows at a time, fewer in the last group."""
    rows, columns = tiles
    first = block // (order * columns) * order
    group, inside = min(order, rows - first), block % (order * columns)
    return first + inside % group, inside // group


def order_of_blocks(tiles: tuple[int, int], sides: tuple[int, int], together: int) -> int:
    """How many rows of tiles blocks had best take together, where so many run at a time; 1 is row by row.

    ``sides`` are the rows and the columns of one tile.  Blocks that run together read each row and each column from
    memory once, so these should be few (CUTLASS and Triton swizzle blocks for that).
    """
    rows, columns = tiles
    if rows * columns <= together:
        return 1

    waves = range(0, min(rows * columns, CONTRACTIONS.waves * together), together)

    def read(order: int) -> int:
        found = [rows_read(tiles, order, first, together) for first in waves]
        return sum(own * sides[0] + across * sides[1] for own, across in found)

    return min((order for order in CONTRACTIONS.orders if order <= rows), key=lambda order: (read(order), order))
