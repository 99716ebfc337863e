"""What fusion asks of tiles on a CPU."""

from __future__ import annotations

import functools
import math

from tcomp.grammar.tree.function import Index, walk
from tcomp.mapping.contraction.blocking import rows_of
from tcomp.mapping.contraction.columns import column_position, columns_of, operands_of
from tcomp.mapping.cpu.passing import read_alike
from tcomp.mapping.cpu.tiles import tile_sizes
from tcomp.mapping.fusion.nesting import Nesting
from tcomp.mapping.fusion.tiling import Tiling
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.machines.fitted.cpufusion import FUSION, NESTING
from tcomp.mapping.machines.fitted.cpusharing import SHARING
from tcomp.mapping.machines.fitted.cputiles import CONTRACTION_TILES
from tcomp.mapping.plan.values import Cluster
from tcomp.mapping.tiles.footprint import coordinate_set
from tcomp.mapping.tiles.sizes import main_statement
from tcomp.model.scop import Scop
from tcomp.model.terms.unions import extents


def cpu_tiling(machine: Machine) -> Tiling:
    """What the passes need to know of the processor that a kernel is compiled for."""
    shared = CONTRACTION_TILES.least_products if machine.threads > 1 else None
    return Tiling(
        functools.partial(tile_sizes, machine),
        FUSION.tile_bytes,
        SHARING.tiles,
        functools.partial(_packed_storages, machine),
        shared,
        overflows=functools.partial(_overflows, machine),
        prepares=True,
        rereads=functools.partial(_rereads, machine),
        leaves=True,
        kept_bytes=int(FUSION.kept_share * machine.middle_cache),
        nesting=Nesting(
            functools.partial(_suffice, machine),
            int(NESTING.share * machine.middle_cache),
            int(max(NESTING.share * machine.middle_cache, NESTING.left_share * machine.last_cache / machine.threads)),
            NESTING.most_groups,
        ),
        alike=functools.partial(read_alike, machine),
        fewer_rows=functools.partial(_fewer_rows, machine),
    )


def _suffice(machine: Machine, points: int) -> bool:
    """Whether threads that share points have several of them, and nearly as many of them each."""
    most = -(-points // machine.threads)
    return most >= NESTING.least_points and points >= NESTING.balance * most * machine.threads


def _fewer_rows(
    machine: Machine, scop: Scop, cluster: Cluster, members: tuple[int, ...], sizes: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Tile sizes with half of the rows, those of the longest side across vectors; None where there is no such side.

    A contraction needs its rows, to use what it reads of the other operand for all of them.
    """
    main = main_statement(scop, cluster)
    if operands_of(main) is not None:
        return None
    vector = column_position(scop, cluster, machine.vector_bytes)
    across = [d for d, m in enumerate(members) if sizes[d] > 1 and cluster.coordinates[main.name][m] != vector]
    if not across:
        return None
    longest = max(across, key=lambda d: sizes[d])
    return (*sizes[:longest], (sizes[longest] + 1) // 2, *sizes[longest + 1 :])


def _rereads(machine: Machine, scop: Scop, cluster: Cluster, box: tuple[int, ...]) -> bool:
    """Whether tiles of a contraction have few rows and read more of an operand than stays in the second cache.

    An operand that a tile reads for all rows that there are is read by no other tile.
    """
    main = main_statement(scop, cluster)
    operands = operands_of(main)
    if operands is None:
        return False
    whole = dict(zip(main.indices, main.lengths, strict=True))
    extent = dict(whole)
    for position, size in zip(cluster.coordinates[main.name], box, strict=True):
        extent[main.indices[position]] = min(extent[main.indices[position]], size)
    reduced = set(main.indices) - {s.name for s in main.subscripts if isinstance(s, Index)}
    for read in operands:
        own = {e.name for s in read.subscripts for e in walk(s) if isinstance(e, Index)}
        elements = math.prod(extent[i] for i in extent if i in own)
        others = whole.keys() - own - reduced
        rows = math.prod(extent[i] for i in others)
        again = any(extent[i] < whole[i] for i in others)
        if again and rows < FUSION.rows and elements * read.dtype.itemsize > FUSION.panel_share * machine.middle_cache:
            return True
    return False


def _overflows(
    machine: Machine, scop: Scop, cluster: Cluster, members: tuple[int, ...], sizes: tuple[int, ...]
) -> bool:
    """Whether tiles are strips of rows that take more than the second cache: passes over whole rows then are faster."""
    main = main_statement(scop, cluster)
    if main.kind == "update":
        return False
    whole = extents(coordinate_set(scop, cluster))
    tile = dict(zip(members, sizes, strict=True))
    vector = column_position(scop, cluster, machine.vector_bytes)
    strips = any(cluster.coordinates[main.name][m] == vector and size < whole[m] for m, size in tile.items())
    elements = math.prod(tile.get(d, extent) for d, extent in enumerate(whole))
    return strips and elements * scop.storages[main.target].dtype.itemsize > machine.middle_cache


def _packed_storages(machine: Machine, scop: Scop, cluster: Cluster) -> frozenset[str]:
    """What a cluster packs: the operands of a contraction, and of another update what has a border.

    Making operands takes less than computing with them, wherever they lie; what has a border has vectors only in a
    panel, which is made of what is in memory, or where whole vectors of it are in memory.
    """
    columns, main = columns_of(scop, cluster, machine.vector_bytes), main_statement(scop, cluster)
    if columns is None or columns.panel is None:
        both = operands_of(main) if columns is not None else None
        return frozenset(r.tensor for r in both or () if r.boundary is not None)
    rows = rows_of(main, columns)
    found = [columns.panel] if columns.packed else []
    found += [] if rows is None or rows.boundary is None else [rows]
    return frozenset(r.tensor for r in found if operands_of(main) is not None or r.boundary is not None)
