"""Tile sizes on a GPU where the user gives none: one tile is the work of one block."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace

from tcomp.grammar.tree.dataranges import ranges_of
from tcomp.grammar.tree.function import Read, walk
from tcomp.mapping.fusion.tiling import Tiling
from tcomp.mapping.gpu.atoms import AtomTile, tile_of_atom
from tcomp.mapping.gpu.dealing import Sides, deal, form_of, sides_of, steps_at_a_time, windowed
from tcomp.mapping.gpu.matrices.boxes import boxes_of_sides
from tcomp.mapping.gpu.model import TileShape, contraction_seconds, order_of_blocks
from tcomp.mapping.gpu.rows.lanes import lanes_of_range
from tcomp.mapping.gpu.turns.hidden import has_most_turns_last
from tcomp.mapping.machines.fitted.gpu import CONTRACTIONS, DEALING, DEVICE
from tcomp.mapping.machines.gpu import REGISTER_BYTES, Gpu, is_wide
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.values import Cluster, Group, Plan
from tcomp.mapping.tiles.footprint import coordinate_set
from tcomp.mapping.tiles.sizes import main_statement, reduction_positions, vector_position
from tcomp.mapping.tiles.splitting import is_part
from tcomp.mapping.tiles.strides import access_stride
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.unions import extents


@dataclass(frozen=True, slots=True)
class GpuTiles:
    """Chooses tile sizes for a device: large enough to reuse what is fetched, small enough to fill the device."""

    gpu: Gpu

    def __call__(
        self, scop: Scop, cluster: Cluster, members: tuple[int, ...], options: MappingOptions
    ) -> tuple[int, ...]:
        """Tile sizes for those coordinates of the root of a group that its tile loops run over."""
        whole = tuple(max(1, e) for e in extents(coordinate_set(scop, cluster)))
        if options.tile_sizes is not None:
            return _given(options.tile_sizes, whole, members, part=is_part(main_statement(scop, cluster)))
        sides = sides_of(scop, cluster)
        form = form_of(scop, cluster, options)
        if form == "serial" and sides is not None:
            sizes = self._contraction(scop, cluster, whole, members, sides, options)
        elif form == "shared":
            sizes = self._shared(scop, cluster, whole, members)
        else:
            sizes = self._streaming(scop, cluster, whole, members)
        return tuple(sizes[m] for m in members)

    def _contraction(
        self, scop: Scop, cluster: Cluster, whole: tuple[int, ...], members: Sequence[int], sides: Sides,
        options: MappingOptions,
    ) -> list[int]:  # fmt: skip
        """The tile among ``CONTRACTION_TILES`` that the model of the device finds fastest; of equals the largest.

        Where windows slide, a side takes the room that the other leaves: larger tiles share more of them.
        """
        best: tuple[float, list[int]] | None = None
        slide = windowed(scop, cluster)
        for sizes in self._of_atoms(scop, cluster, whole, members, sides, options):
            seconds = self._seconds(scop, cluster, whole, members, sides, sizes, options)
            if best is None or seconds < best[0]:
                best = (seconds, sizes)
        if best is not None:
            return best[1]
        for rows, columns in CONTRACTIONS.tiles:
            sizes = _one_each(whole, members)
            columns, rows = (
                _widened(columns, rows, whole, slide.intersection(sides.columns), sides.rows),
                _widened(rows, columns, whole, slide.intersection(sides.rows), sides.columns),
            )
            _fill(sizes, whole, [d for d in sides.columns if d in members], columns)
            _fill(sizes, whole, [d for d in sides.rows if d in members], rows)
            seconds = self._seconds(scop, cluster, whole, members, sides, sizes, options)
            if best is None or seconds < best[0]:
                best = (seconds, sizes)
        assert best is not None
        return best[1]

    def _of_atoms(
        self, scop: Scop, cluster: Cluster, whole: tuple[int, ...], members: Sequence[int], sides: Sides,
        options: MappingOptions,
    ) -> Iterator[list[int]]:  # fmt: skip
        """The tiles that warps can multiply with instructions for matrices: of single warps those with most taps."""
        of_groups = CONTRACTIONS.group_tiles if self.gpu.warpgroups and options.warpgroups else ()
        if not {sides.rows[0], sides.columns[0]} <= set(members):
            return
        found: list[tuple[list[int], AtomTile]] = []
        for pair in (*of_groups, *CONTRACTIONS.matrix_tiles):
            for box in boxes_of_sides(whole, members, sides.rows, sides.columns, pair):
                sizes = _one_each(whole, members)
                for d, extent in box.items():
                    sizes[d] = extent
                atoms = tile_of_atom(self.gpu, scop, cluster, sizes, options)
                if atoms is not None and (atoms.atom.in_groups or pair in CONTRACTIONS.matrix_tiles):
                    found.append((sizes, atoms))
        most = max((len(tile.sides.taps) for _, tile in found), default=0)
        yield from (sizes for sizes, tile in found if tile.atom.in_groups or len(tile.sides.taps) == most)

    def _seconds(
        self, scop: Scop, cluster: Cluster, whole: tuple[int, ...], members: Sequence[int], sides: Sides,
        sizes: list[int], options: MappingOptions,
    ) -> float:  # fmt: skip
        main = main_statement(scop, cluster)
        dealt = deal(self.gpu, scop, cluster, tuple(sizes), options)
        rows, columns = (math.prod(sizes[d] for d in side) for side in (sides.rows, sides.columns))
        share = tuple(math.prod(dealt.deals[d].elements for d in side) for side in (sides.rows, sides.columns))
        itemsize = scop.storages[main.target].dtype.itemsize
        wanted = steps_at_a_time(self.gpu, dealt, sides.elements(sizes), options)
        steps = math.prod(main.extents[p] for p in reduction_positions(cluster, main))
        faster, in_groups, sums = 1.0, False, 1
        atoms = tile_of_atom(self.gpu, scop, cluster, sizes, options)
        if atoms is not None:
            atom, in_groups = atoms.atom, atoms.atom.in_groups
            wanted, faster, sums = atoms.steps, self.gpu.matrix_flops(atom) / self.gpu.flops, atom.sums_kept
            itemsize = atom.itemsize if in_groups else itemsize
        tile = TileShape(rows, columns, dealt.threads, (share[0], share[1]), wanted, itemsize, faster, in_groups, sums)
        return contraction_seconds(self.gpu, tile, _blocks(whole, sizes, members), steps)

    def _shared(self, scop: Scop, cluster: Cluster, whole: tuple[int, ...], members: Sequence[int]) -> list[int]:
        """As many elements as leave each a warp or, if its reduction is long, all threads of the block.

        A block of its own for each that could employ all threads, where there are not too many.
        """
        main = main_statement(scop, cluster)
        steps = math.prod(main.extents[p] for p in reduction_positions(cluster, main))
        sizes = _one_each(whole, members)
        lanes = lanes_of_range(scop, main) if ranges_of(main.value) else None
        if lanes is not None:
            _fill(sizes, whole, sorted(members, reverse=True), CONTRACTIONS.block_threads // lanes.threads)
            return sizes
        alone = steps >= CONTRACTIONS.block_threads and _blocks(whole, sizes, members) <= self.gpu.multiprocessors
        _fill(
            sizes,
            whole,
            sorted(members, reverse=True),
            1 if alone else max(1, CONTRACTIONS.block_threads // max(32, steps // 4)),
        )
        return sizes

    @staticmethod
    def _transposed(scop: Scop, cluster: Cluster, members: Sequence[int]) -> int | None:
        """The coordinate along which a statement reads neighbouring elements of what it transposes, if it does."""
        main = main_statement(scop, cluster)
        vector, positions = vector_position(scop, main), cluster.coordinates[main.name]
        for read in (e for e in walk(main.value) if isinstance(e, Read) and len(e.subscripts) > 1):
            index = _contiguous(scop, main, read)
            if index is not None and vector is not None and index != main.indices[vector]:
                found = [d for d in members if main.indices[positions[d]] == index]
                along = access_stride(scop, read.tensor, read.subscripts, main.indices[vector], scop.sizes)
                if found and along not in (0, 1, -1):
                    return found[0]
        return None

    def _streaming(self, scop: Scop, cluster: Cluster, whole: tuple[int, ...], members: Sequence[int]) -> list[int]:
        """A block of threads, each with several elements where there are enough."""
        main = main_statement(scop, cluster)
        vector = vector_position(scop, main)
        positions = cluster.coordinates[main.name]
        order = sorted(members, key=lambda d: (positions[d] != vector, -d))
        inside = math.prod(e for d, e in enumerate(whole) if d not in members)
        across = self._transposed(scop, cluster, members)
        if across is not None and len(order) > 1 and positions[order[0]] == vector and across != order[0]:
            sizes = _one_each(whole, members)
            _fill(sizes, whole, order[:1], DEALING.transposed_tile)
            _fill(sizes, whole, [across], DEALING.transposed_tile)
            return sizes
        for elements in (DEALING.elements_per_thread, 1):
            sizes = _one_each(whole, members)
            _fill(sizes, whole, order, max(1, CONTRACTIONS.block_threads * elements // inside))
            if _blocks(whole, sizes, members) >= 2 * self.gpu.multiprocessors:
                break
        return sizes


def _given(sizes: Sequence[int], whole: tuple[int, ...], members: Sequence[int], part: bool) -> tuple[int, ...]:
    """The tile sizes of a user, which are those of the program's loops: a part of a split reduction is a tile."""
    given = dict(enumerate((1, *sizes) if part else sizes))
    return tuple(min(given.get(m, 0) or whole[m], whole[m]) for m in members)


def _widened(own: int, other: int, whole: tuple[int, ...], slide: Set[int], across: Sequence[int]) -> int:
    """Elements of one side of a tile: as many as windows slide over, if the other side leaves room for them."""
    room = own * other // min(other, math.prod(whole[d] for d in across))
    return max(own, min(room, math.prod(whole[d] for d in slide)))


def _contiguous(scop: Scop, statement: ScopStatement, read: Read) -> str | None:
    """The index along which a read touches neighbouring elements."""
    for index in statement.indices[statement.tile_rank :]:
        if access_stride(scop, read.tensor, read.subscripts, index, scop.sizes) in (1, -1):
            return index
    return None


def _one_each(whole: tuple[int, ...], members: Sequence[int]) -> list[int]:
    return [1 if d in members else e for d, e in enumerate(whole)]


def _fill(sizes: list[int], whole: tuple[int, ...], order: Sequence[int], elements: int) -> None:
    """Enlarge the sizes of ``order``, the first most, to ``elements`` in all; the tiles of a dimension are equals."""
    for d in order:
        most = max(1, min(whole[d], elements))
        sizes[d] = -(-whole[d] // -(-whole[d] // most)) if d != order[0] else most
        elements //= most


def _blocks(whole: tuple[int, ...], sizes: Sequence[int], members: Sequence[int]) -> int:
    return math.prod(-(-whole[d] // sizes[d]) for d in members)


def starves(gpu: Gpu, scop: Scop, cluster: Cluster, box: tuple[int, ...]) -> bool:
    """Whether a contraction reads its operands so often, in tiles of these extents, that it had better be stored.

    Each row and each column of a tile is read once for a step of the reduction, from the second-level cache.
    """
    sides, main = sides_of(scop, cluster), main_statement(scop, cluster)
    if sides is None or form_of(scop, cluster, MappingOptions()) != "serial":
        return False
    itemsize = scop.storages[main.target].dtype.itemsize
    rows, columns = (math.prod(box[d] for d in side) for side in (sides.rows, sides.columns))
    elements = math.prod(extents(coordinate_set(scop, cluster)))
    each = math.prod(main.extents) * itemsize / (DEVICE.l2_advantage * gpu.bandwidth)
    fused = each * (1 / rows + 1 / columns)
    apart = each * 2 / CONTRACTIONS.usual_side + 2 * elements * itemsize / gpu.bandwidth + DEVICE.launch_seconds
    return fused > apart


def order_blocks(gpu: Gpu, plan: Plan, options: MappingOptions) -> Plan:
    """Pass: let blocks of contractions take tiles in rows, so that those which run at a time share what they read.

    Blocks with turns take tiles with more of these first: then none of the long ones runs when all others are done.
    """
    if options.blocks is not None or options.order == 1:
        return plan
    plan = replace(plan, groups=tuple(replace(g, backwards=has_most_turns_last(g)) for g in plan.groups))
    orders: dict[int, int] = {}
    for number, group in enumerate(plan.groups):
        found = None if group.shared or group.turns else _tiles_of_sides(gpu, plan, group)
        if found is None:
            continue
        tiles, sides, resident = found
        together = gpu.multiprocessors * resident
        order = options.order or order_of_blocks(tiles, sides, together)
        if min(order, tiles[0]) > 1:
            orders[number] = min(order, tiles[0])
    return replace(plan, orders=orders) if orders else plan


def _tiles_of_sides(gpu: Gpu, plan: Plan, group: Group) -> tuple[tuple[int, int], tuple[int, int], int] | None:
    """Along the two innermost loops over tiles, if these are sides of a contraction: tiles, and their sizes.

    Also how many blocks a multiprocessor holds.
    """
    whole = extents(coordinate_set(plan.scop, plan.clusters[group.root]))
    counts = [-(-whole[m] // size) for m, size in zip(group.members, group.sizes, strict=True)]
    moving = [n for n, count in enumerate(counts) if count > 1]
    if len(moving) < 2:
        return None
    y, x = moving[-2:]
    members = group.members[y], group.members[x]
    for number in group.clusters:
        cluster = plan.clusters[number]
        own = sides_of(plan.scop, cluster) if cluster.rank == plan.clusters[group.root].rank else None
        if own is not None and any(members[0] in a and members[1] in b for a, b in _both(own)):
            dealt = plan.dealt[number]
            itemsize = plan.scop.storages[main_statement(plan.scop, cluster).target].dtype.itemsize
            wide = is_wide(dealt.elements * max(1, itemsize // REGISTER_BYTES))
            room = gpu.registers_per_multiprocessor // gpu.registers_per_thread if wide else DEVICE.threads_resident
            return (counts[y], counts[x]), (group.sizes[y], group.sizes[x]), max(1, room // dealt.threads)
    return None


def _both(sides: Sides) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    return (sides.rows, sides.columns), (sides.columns, sides.rows)


def gpu_tiling(gpu: Gpu) -> Tiling:
    """What a device asks of tiles; a third of the shared memory is left for what is fetched into it."""
    return Tiling(
        GpuTiles(gpu),
        gpu.usual_shared_bytes * 2 // 3,
        DEALING.parallel_blocks,
        starves=lambda scop, cluster, box: starves(gpu, scop, cluster, box),
    )
