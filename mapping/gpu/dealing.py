"""How the tile of a cluster is dealt to the threads of a block: which thread runs which element, and in what order.

A tile is a box of the cluster's coordinates.  Each coordinate is dealt on its own (``plan.Deal``); what is left of it
for one thread becomes serial point loops.  A reduction may be shared by threads, too: then it has the innermost
dimensions of the thread shape, whose extents are powers of two, so that its threads are neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tcomp.grammar.tree.dataranges import ranges_of
from tcomp.grammar.tree.function import Read, walk
from tcomp.mapping.gpu.atoms import deal_to_atoms, tile_of_atom
from tcomp.mapping.gpu.model import contraction_threads, fetched_steps
from tcomp.mapping.gpu.rows.lanes import lanes_of_range
from tcomp.mapping.machines.fitted.gpu import CONTRACTIONS, DEALING
from tcomp.mapping.machines.gpu import VECTOR_BYTES, WARP, Gpu
from tcomp.mapping.options.choices import MOST_THREADS
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.deals import Deal, Dealt, Share
from tcomp.mapping.plan.operations import recognise_contraction
from tcomp.mapping.plan.values import Cluster
from tcomp.mapping.tiles.sizes import main_statement, reduction_positions, vector_position
from tcomp.mapping.tiles.strides import access_stride, coefficient
from tcomp.model.scop import Scop, ScopStatement


@dataclass(frozen=True, slots=True)
class Sides:
    """The coordinates of a contraction's tile: ``columns`` hold the index with contiguous writes, ``rows`` the others.

    Both are ordered innermost first; coordinates of batch indices are in neither.
    """

    rows: tuple[int, ...]
    columns: tuple[int, ...]

    def elements(self, box: Sequence[int]) -> int:
        """Rows and columns of a tile: what a step reads of operands that have no other coordinates."""
        return math.prod(box[d] for d in self.rows) + math.prod(box[d] for d in self.columns)


def steps_at_a_time(gpu: Gpu, dealt: Dealt, elements: int, options: MappingOptions) -> int:
    """Steps of a contraction between two fetches, each of which needs so many ``elements`` of the operands."""
    if options.reduction_tile is not None and options.use_shared_memory:
        return options.reduction_tile
    ahead = gpu.copies_asynchronously and options.prefetch and options.stages != 1
    return fetched_steps(dealt.threads, elements, dealt.elements, ahead)


def tile_of_steps(extent: int, most: int) -> int:
    """A tile of at most so many steps of a number: one that divides it, or one of equals that are whole vectors."""
    if most >= extent:
        return max(1, extent)
    most = max(1, most if most < DEALING.step_multiple else most - most % DEALING.step_multiple)
    sizes = (
        size
        for size in range(most, most // 2, -1)
        if most <= DEALING.step_multiple or size % DEALING.step_multiple == 0
    )
    whole = next((size for size in sizes if extent % size == 0), None)
    if whole is not None:
        return whole
    even = -(-extent // -(-extent // most))
    return min(even + -even % DEALING.step_multiple, most) if even > DEALING.step_multiple else even


def sides_of(scop: Scop, cluster: Cluster) -> Sides | None:
    """The two sides of a cluster that contracts with reuse on both; None for every other cluster."""
    main = main_statement(scop, cluster)
    contraction = recognise_contraction(main)
    if contraction is None or not reduction_positions(cluster, main):
        return None
    positions = cluster.coordinates[main.name]
    sizes = main.extents

    def side(indices: Sequence[str]) -> tuple[int, ...]:
        found = [d for d, p in enumerate(positions) if main.indices[p] in indices and sizes[p] > 1]
        return tuple(sorted(found, key=lambda d: _write_stride(scop, main, positions[d])))

    rows, columns = side(contraction.m), side(contraction.n)
    if not rows or not columns:
        return None
    first = [_write_stride(scop, main, positions[s[0]]) for s in (rows, columns)]
    return Sides(rows, columns) if first[1] <= first[0] else Sides(columns, rows)


def _write_stride(scop: Scop, statement: ScopStatement, position: int) -> int:
    stride = access_stride(scop, statement.target, statement.subscripts, statement.indices[position], scop.sizes)
    return 1 << 60 if stride is None else abs(stride) or 1 << 59


def form_of(scop: Scop, cluster: Cluster, options: MappingOptions) -> str:
    """Whether threads share the cluster's reduction.

    They do where neighbouring steps, not neighbouring elements, lie together in memory, unless it is a contraction
    whose operands are reused on both sides: fetched into shared memory, those need no particular order.
    """
    main = main_statement(scop, cluster)
    positions = reduction_positions(cluster, main)
    if main.kind != "update" or not positions:
        return "pointwise"
    sizes = main.extents
    if not options.match_reductions or not main.plain or not _starts_in(scop, cluster):
        return "serial"
    if ranges_of(main.value):
        return "shared" if lanes_of_range(scop, main) is not None else "serial"
    if math.prod(sizes[p] for p in positions) < DEALING.long_reduction:
        return "serial"
    elements = math.prod(sizes[p] for p in cluster.coordinates[main.name])
    if sides_of(scop, cluster) is not None and elements > WARP * WARP:
        return "serial"
    if elements < CONTRACTIONS.block_threads:
        return "shared"
    return "shared" if vector_position(scop, main) in positions else "serial"


def _starts_in(scop: Scop, cluster: Cluster) -> bool:
    """Whether the cluster also starts its reduction, element by element: results go where that says."""
    others = [scop.by_name[s] for s in cluster.statements if scop.by_name[s].kind != "update"]
    again = any(s.extents[p] > 1 for s in others for p in reduction_positions(cluster, s))
    return any(s.kind == "init" for s in others) and not again


def deal(gpu: Gpu, scop: Scop, cluster: Cluster, box: tuple[int, ...], options: MappingOptions) -> Dealt:
    """Deal a tile of extents ``box``, one per coordinate, to the usual threads of a block at most, or the user's."""
    form = form_of(scop, cluster, options)
    given = options.threads
    if form == "shared":
        return _deal_shared(scop, cluster, box, options)
    atoms = tile_of_atom(gpu, scop, cluster, box, options) if form == "serial" else None
    if atoms is not None:
        return deal_to_atoms(cluster, main_statement(scop, cluster), box, atoms)
    sides = sides_of(scop, cluster) if form == "serial" else None
    order = _innermost_first(scop, cluster)
    if given is not None:
        if sides is not None:
            order = _alternating(sides, order)
        wanted = dict(zip([d for d in order if box[d] > 1], given, strict=False))
    elif sides is not None:
        wanted = _two_sided(box, sides, _contraction_threads(scop, cluster, box, sides))
    else:
        wanted = _filled(box, order, usual_threads(math.prod(box)))
    width = 1 if sides is None else VECTOR_BYTES // _widest_operand(scop, cluster)
    together = windowed(scop, cluster) if sides is not None else frozenset()
    vectors = [_vector(options.distribution, d in together, width) for d in range(len(box))]
    if sides is not None and given is None:
        for d in (d for d, threads in wanted.items() if vectors[d] and threads > 1 and box[d] % min(threads, box[d])):
            wanted[d], vectors[d] = _covering(box[d], wanted[d], vectors[d])
    return _dealt(form, box, order, wanted, vectors)


def _covering(extent: int, threads: int, width: int) -> tuple[int, int]:
    """Threads, at most so many, and how many neighbours each has, so that as few elements as can be are too many.

    Each thread has as many elements as ``threads`` would leave it, or the next whole vectors of up to ``width``.
    """
    share = -(-extent // threads)
    vectors = [v for v in (width, *(1 << n for n in range(width.bit_length() - 1))) if v <= 2 * share]
    each = {v: -(-share // v) * v for v in vectors}
    best = min(vectors, key=lambda v: (-(-extent // each[v]) * each[v], each[v], -v))
    return -(-extent // each[best]), best


def windowed(scop: Scop, cluster: Cluster) -> frozenset[int]:
    """The coordinates along which neighbours read what overlaps: a subscript has them and an index of the reduction."""
    main = main_statement(scop, cluster)
    steps = [main.indices[p] for p in reduction_positions(cluster, main)]
    subscripts = [s for e in walk(main.value) if isinstance(e, Read) for s in e.subscripts]
    sliding = [s for s in subscripts if any(coefficient(s, step, scop.sizes) for step in steps)]
    indices = [main.indices[p] for p in cluster.coordinates[main.name]]
    return frozenset(d for d, index in enumerate(indices) if any(coefficient(s, index, scop.sizes) for s in sliding))


def _vector(distribution: str, together: bool, width: int) -> int:
    """How many elements of a thread lie together; 0 for all."""
    if distribution == "blocked" or (distribution == "vectors" and together):
        return 0
    return width if distribution == "vectors" else 1


def _widest_operand(scop: Scop, cluster: Cluster) -> int:
    """Bytes of an element of the widest operand of a cluster's update."""
    reads = (e for e in walk(main_statement(scop, cluster).value) if isinstance(e, Read))
    return max(e.dtype.itemsize for e in reads)


def _innermost_first(scop: Scop, cluster: Cluster) -> list[int]:
    """The coordinates, that with contiguous accesses first, then inner ones before outer ones."""
    main = main_statement(scop, cluster)
    vector = vector_position(scop, main)
    positions = cluster.coordinates[main.name]
    if vector not in positions:
        strides = [_write_stride(scop, main, p) for p in positions]
        return sorted(range(cluster.rank), key=lambda d: (strides[d], -d))
    return sorted(range(cluster.rank), key=lambda d: (positions[d] != vector, -d))


def _alternating(sides: Sides, order: list[int]) -> list[int]:
    """A column coordinate on x, a row coordinate on y, then the rest."""
    first = [sides.columns[0], sides.rows[0]]
    return first + [d for d in order if d not in first]


def _filled(box: tuple[int, ...], order: Sequence[int], threads: int) -> dict[int, int]:
    """Threads per coordinate, as many as fit, for at most three coordinates."""
    wanted: dict[int, int] = {}
    for d in order:
        if threads > 1 and box[d] > 1 and len(wanted) < 3:
            wanted[d] = min(threads, _power_of_two_above(box[d]))
            threads //= wanted[d]
    return wanted


def _contraction_threads(scop: Scop, cluster: Cluster, box: tuple[int, ...], sides: Sides) -> int:
    """Threads for the tile of a contraction.  Windows have tiles as large as their image, whatever that is."""
    both = (*sides.rows, *sides.columns)
    if not windowed(scop, cluster).isdisjoint(both):
        return CONTRACTIONS.block_threads
    itemsize = scop.storages[main_statement(scop, cluster).target].dtype.itemsize
    return contraction_threads(math.prod(box[d] for d in both), itemsize)


def _two_sided(box: tuple[int, ...], sides: Sides, threads: int) -> dict[int, int]:
    """How so many threads share the tile of a contraction: up to 8 columns each, and rows; columns on x."""
    columns = math.prod(box[d] for d in sides.columns)
    rows = math.prod(box[d] for d in sides.rows)
    share = max(1, min(8, math.isqrt(max(1, columns * rows // threads))))
    wanted = _filled(box, sides.columns[:2], max(1, min(threads, _power_of_two_above(-(-columns // share)))))
    used = math.prod(wanted.values())
    rest = min(threads // used, _power_of_two_above(-(-rows // share)))
    return wanted | _filled(box, sides.rows[: 3 - len(wanted)], max(1, rest))


def _dealt(
    form: str, box: tuple[int, ...], order: Sequence[int], wanted: dict[int, int], vectors: Sequence[int]
) -> Dealt:
    """Deal with at most ``wanted`` threads per coordinate, each of which has as many neighbours as ``vectors`` says."""
    used = [d for d in order if min(wanted.get(d, 1), box[d]) > 1]
    shape = tuple(min(wanted[d], box[d]) for d in reversed(used))
    dimension = {d: len(used) - 1 - n for n, d in enumerate(used)}
    deals = tuple(_deal_one(box[d], shape[dimension[d]], dimension[d], vectors[d]) if d in dimension
                  else Deal(box[d], 1, max(1, box[d]), None) for d in range(len(box)))  # fmt: skip
    return Dealt(form, deals, (), shape or (1,))


def _deal_one(extent: int, threads: int, dimension: int, vector: int) -> Deal:
    share = -(-extent // threads)
    if vector == 0:
        return Deal(extent, threads, share, dimension)
    return Deal(extent, threads, math.gcd(share, vector), dimension)


def _deal_shared(scop: Scop, cluster: Cluster, box: tuple[int, ...], options: MappingOptions) -> Dealt:
    main = main_statement(scop, cluster)
    sizes = main.extents
    vector = vector_position(scop, main)
    positions = sorted(reduction_positions(cluster, main), key=lambda p: (p != vector, -p))
    lanes = lanes_of_range(scop, main) if ranges_of(main.value) else None
    usual = usual_threads(math.prod(sizes[p] for p in positions))
    budget = usual if options.threads is None else math.prod(options.threads)
    each = max(WARP, power_of_two_below(usual // max(1, math.prod(box))))
    if lanes is not None:
        positions, each = [lanes.position], lanes.threads
    first = each if options.threads is None else options.threads[0]
    shares: list[tuple[int, int]] = []
    for p in positions[:2]:
        limit = first if not shares else (each if options.threads is None else budget) // shares[0][1]
        threads = min(power_of_two_below(limit), power_of_two_below(sizes[p]))
        if threads > 1:
            shares.append((p, threads))
    budget //= math.prod(t for _, t in shares)
    wanted = _filled(box, _innermost_first(scop, cluster), budget)
    used = list(wanted)[: 3 - len(shares)]
    shape = tuple(min(wanted[d], box[d], MOST_THREADS[len(shares) + n]) for n, d in reversed(list(enumerate(used))))
    deals = tuple(
        Deal(box[d], shape[len(used) - 1 - used.index(d)], 1, len(used) - 1 - used.index(d))
        if d in used
        else Deal(box[d], 1, 1, None)
        for d in range(len(box))
    )
    # Neighbours would have to be told from data round by round: a range is cut to rounds of single entries.
    together = options.distribution == "vectors" and lanes is None
    vectors = [_neighbours(scop, main, p, threads) if together else 1 for p, threads in shares]
    below = tuple(
        Share(p, threads, len(shape) + len(shares) - 1 - n, vectors[n]) for n, (p, threads) in enumerate(shares)
    )
    return Dealt("shared", deals, below, (*shape, *(t for _, t in reversed(shares))) or (1,))


def _neighbours(scop: Scop, main: ScopStatement, position: int, threads: int) -> int:
    """How many neighbouring steps a thread has of those that it shares: 16 bytes of what lies so in memory, if all do.

    No thread is left without any.
    """
    index, most, factors = main.indices[position], 1, {main.extents[position]}
    for read in (e for e in walk(main.value) if isinstance(e, Read)):
        storage = scop.storages[read.tensor]
        stride = access_stride(scop, read.tensor, read.subscripts, index, scop.sizes)
        # What is made in the same tile may stay with the threads that make it, one neighbour after another.
        made = stride == 1 and storage.role == "temporary"
        if stride not in (0, 1) or made or read.boundary is not None:
            return 1
        if stride == 1:
            most = max(most, VECTOR_BYTES // storage.dtype.itemsize)
            factors |= {s for s, e in zip(storage.strides, storage.box.extent, strict=True) if s != 1 and e > 1}
    vector = math.gcd(most, *factors)
    while vector > 1 and threads * vector > main.extents[position]:
        vector //= 2
    return vector


def usual_threads(points: int) -> int:
    """Threads of a block that share so many steps or elements."""
    return CONTRACTIONS.block_threads if points <= DEALING.usual_points else 2 * CONTRACTIONS.block_threads


def _power_of_two_above(n: int) -> int:
    return 1 << max(0, n - 1).bit_length()


def power_of_two_below(n: int) -> int:
    return 1 << (max(1, n).bit_length() - 1)
