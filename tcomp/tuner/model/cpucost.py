"""What a candidate costs on a CPU, estimated from its tiles alone: it ranks candidates, and predicts no times.

The time is the longer of what the vector units do and what moves through the caches, a part of the shorter, and what
every tile costs to enter.  Register tiles take the cycles that ``mapping/contraction/registertile.py`` gives them;
those that do not fit the registers load and store each accumulator in every step.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from tcomp.mapping.contraction.registertile import Loads, best_register_tile
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.machines.fitted.cpucontractions import REGISTER_TILES
from tcomp.mapping.machines.fitted.cpuestimates import ESTIMATE
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.tiles.sizes import register_tile
from tcomp.tuner.space.outline import Access, Band


@dataclass(frozen=True, slots=True)
class Cost:
    """What a band costs under some options, in cycles, and what it is made of.

    ``moved`` are the bytes that tiles fetch, over those that one pass over the arrays takes; ``registers`` how many of
    the vector registers a register tile takes.
    """

    cycles: float
    arithmetic: float
    memory: float
    tiles: int
    tile: tuple[int, ...]
    tile_bytes: int
    moved: float
    rows: int
    columns: int
    registers: float


def band_costs(
    bands: Sequence[Band], tiles: Sequence[tuple[int, ...]], options: MappingOptions, machine: Machine
) -> tuple[Cost, ...]:
    """The costs of bands with these tiles; what a fused tile read for one, the next finds in a cache."""
    fused = options.fusion_strategy != "min"
    together = sum({a.tensor: a.bytes(tile) for b, tile in zip(bands, tiles, strict=True) for a in b.accesses}.values())
    known: set[str] = set()
    found = []
    for band, tile in zip(bands, tiles, strict=True):
        found.append(_band_cost(band, tile, options, machine, _Kept(frozenset(known), together)))
        known.update(a.tensor for a in band.accesses if fused)
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Kept:
    """The tensors that a tile has read before, and the bytes of all that it touches."""

    tensors: frozenset[str]
    bytes: int


def _band_cost(band: Band, tile: tuple[int, ...], options: MappingOptions, machine: Machine, kept: _Kept) -> Cost:
    tiles = band.tiles(tile)
    lanes = max(1, machine.vector_bytes // band.itemsize)
    rows, columns, registers = 1, lanes, 0.0
    if band.reduces and band.vector is not None:
        rows, columns = _register_tile(band, tile, options, machine)
        vectors = -(-columns // lanes)
        registers = (rows * vectors + vectors + 1) / machine.registers
        blocks = _blocks(band, tile, rows, columns)
        arithmetic = blocks * (
            band.steps * _step_cycles(band, rows, vectors, registers, machine) + ESTIMATE.block_cycles
        )
        arithmetic += blocks * 2 * rows * vectors
    else:
        arithmetic = _row_cycles(band, tile, lanes)
    moving = _moving(band, options)
    whole = sum(a.bytes(band.extents) for a in moving)
    each = sum(a.line_bytes(tile) for a in moving)
    tile_bytes = sum(a.bytes(tile) for a in band.accesses)
    memory = 0.0
    for access in moving:
        held = kept.bytes if access.tensor in kept.tensors else whole
        memory += _cycles_to_fetch(access, band, tile, held, machine) / tiles
    if band.reduces and band.vector is not None and tile_bytes > machine.nearest_cache:
        block = _clipped(band, tile, rows, columns)
        inner = sum(a.bytes(block) for a in band.accesses) * _blocks(band, tile, rows, columns)
        memory += inner / (ESTIMATE.near_bytes if tile_bytes <= ESTIMATE.middle_cache else ESTIMATE.middle_bytes)
    if band.packed:
        memory += sum(a.line_bytes(tile) for a in band.accesses if a.vector_stride) / ESTIMATE.near_bytes
    cycles = tiles * (max(arithmetic, memory) + ESTIMATE.overlap * min(arithmetic, memory) + ESTIMATE.tile_cycles)
    if options.parallel and band.instances >= ESTIMATE.least_parallel:
        turns = -(-tiles // machine.threads)
        cycles = cycles * turns / tiles + ESTIMATE.fork_cycles
    return Cost(
        cycles, tiles * arithmetic, tiles * memory, tiles, tile, tile_bytes, tiles * each / max(1, whole),
        rows, columns, registers,
    )  # fmt: skip


def _cycles_to_fetch(access: Access, band: Band, tile: tuple[int, ...], held: int, machine: Machine) -> float:
    """Cycles for what an access moves in all tiles.

    The first time comes from the level of memory that holds ``held`` bytes, what comes again from that of the array.
    Each run of neighbours that does not go on from the one before costs what the processor fetches in vain.
    """
    count, length, goes_on = access.runs(tile)
    each = count * (length + (0 if goes_on else ESTIMATE.run_bytes))
    first = access.bytes(band.extents)
    again = max(0.0, float(band.tiles(tile)) * each - first)
    return first / _rate(held, machine) + again / _rate(2 * first, machine)


def _rate(size: int, machine: Machine) -> float:
    """Bytes per cycle from the level of memory that holds so many bytes."""
    if size <= machine.nearest_cache:
        return ESTIMATE.nearest_bytes
    if size <= ESTIMATE.middle_cache:
        return ESTIMATE.near_bytes
    return ESTIMATE.middle_bytes if size <= machine.last_cache else ESTIMATE.far_bytes


def _moving(band: Band, options: MappingOptions) -> list[Access]:
    """What comes from beyond a tile: temporaries stay in it where clusters are fused."""
    return [a for a in band.accesses if not a.temporary or options.fusion_strategy == "min"]


def _register_tile(band: Band, tile: tuple[int, ...], options: MappingOptions, machine: Machine) -> tuple[int, int]:
    """Rows and columns of a register tile, inside the tile."""
    assert band.vector is not None
    height, width = 1 if band.row is None else tile[band.row], tile[band.vector]
    if options.register_tile is not None:
        rows, columns = options.register_tile
        return min(rows, height), min(columns, width)
    return _fitted(height, width, band.contraction, band.shared_vectors, band.itemsize, machine)


@functools.lru_cache(maxsize=4096)
def _fitted(
    height: int, width: int, contraction: bool, shared: bool, itemsize: int, machine: Machine
) -> tuple[int, int]:
    found = best_register_tile(height, width, Loads(shared, itemsize), machine) if contraction else None
    if found is not None:
        return found.rows, found.columns
    return register_tile(width, height, max(1, machine.vector_bytes // itemsize), machine.registers)


def _clipped(band: Band, tile: tuple[int, ...], rows: int, columns: int) -> tuple[int, ...]:
    """The tile of a register tile."""
    sides = {band.vector: columns, band.row: rows}
    return tuple(min(t, sides.get(d, 1)) for d, t in enumerate(tile))


def _blocks(band: Band, tile: tuple[int, ...], rows: int, columns: int) -> int:
    """Register tiles in a tile."""
    block = _clipped(band, tile, rows, columns)
    return math.prod(-(-t // b) for t, b in zip(tile, block, strict=True))


def _step_cycles(band: Band, rows: int, vectors: int, registers: float, machine: Machine) -> float:
    """Cycles of one step of the reduction for a register tile."""
    passes = max(1.0, machine.vector_bytes / machine.datapath_bytes)
    loads = vectors * passes * (1 if band.shared_vectors else rows) + rows
    spilled = 2.0 * rows * vectors * passes if registers > 1 else 0.0
    return max(
        rows * vectors * passes / REGISTER_TILES.ports,
        (loads + spilled) / REGISTER_TILES.ports,
        REGISTER_TILES.latency * passes,
    )


def _row_cycles(band: Band, tile: tuple[int, ...], lanes: int) -> float:
    """Cycles of a tile that runs row by row, or element by element with vectors along the reduction."""
    points = math.prod(tile)
    if band.vector is None:
        vectors = -(-band.steps // lanes)
        return points * (
            vectors * max(1.0, band.flops / max(1, band.steps) / REGISTER_TILES.ports) + ESTIMATE.row_cycles
        )
    width = tile[band.vector]
    scattered = sum(a.vector_stride not in (0, 1) for a in band.accesses)
    each = (
        max(1.0, band.flops / REGISTER_TILES.ports, len(band.accesses) / REGISTER_TILES.ports)
        + scattered * lanes / REGISTER_TILES.ports
    )
    return points / width * (-(-width // lanes) * each + ESTIMATE.row_cycles)
