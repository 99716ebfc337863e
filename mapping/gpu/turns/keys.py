"""Pass and groups: attention of few queries, as a step of decoding has, whose keys several blocks share.

With fewer queries than a block takes in turns (``groups.py``), each row of scores was one block's, and a device had as
many blocks as heads.  Here the keys come in parts, each with a maximum of its own (``rescaling/parts.py``): a block has
the queries of one head and one part of the keys, and a second kernel combines what the parts leave (Flash-Decoding, Dao
and others, 2023).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace

import islpy as isl

from tcomp.grammar.tree.function import Index, Read, walk
from tcomp.mapping.fusion.merging import can_merge, merged
from tcomp.mapping.fusion.quotients import can_part, parted, quotients_of
from tcomp.mapping.gpu.turns.dealing import by_warps
from tcomp.mapping.gpu.turns.groups import as_rescaled, in_turns, may_keep_rows, scores_are_products, turning_groups
from tcomp.mapping.machines.atoms import ROWS
from tcomp.mapping.machines.fitted.gputurns import TURNS
from tcomp.mapping.machines.gpu import Gpu
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.schedule import scheduled_anew
from tcomp.mapping.plan.values import Footprint, Group, Plan, Rescaled
from tcomp.mapping.rescaling.parts import rescaled
from tcomp.mapping.rescaling.running import can_run, running
from tcomp.mapping.rescaling.sharing import shared_in_turns
from tcomp.mapping.rescaling.weights import Weights, weights_of
from tcomp.mapping.tiles.footprint import coordinate_dependences, coordinate_set, follow, tiling
from tcomp.mapping.tiles.sizes import made_by, main_statement
from tcomp.mapping.tiles.splitting import PART_MULTIPLE
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.unions import by_statements, extents


def share_keys(gpu: Gpu, plan: Plan, options: MappingOptions) -> Plan:
    """Split the keys of few queries between blocks, as many as keep all multiprocessors busy or as the user says."""
    if plan.rescaled or not may_keep_rows(gpu, options):
        return plan
    for name in plan.scop.by_name:
        weights = weights_of(plan.scop, name)
        if weights is None or not _suits(plan.scop, weights):
            continue
        trials = [(trial, weights_of(trial.scop, name)) for trial in (_heads_together(plan, weights), plan)]
        ways = itertools.product((_by_matrices, _by_threads), trials)
        found = (way(gpu, trial, own, options) for way, (trial, own) in ways if own is not None)
        shared = next((p for p in found if p is not None), None)
        if shared is not None:
            return shared
    return plan


def _by_threads(gpu: Gpu, plan: Plan, weights: Weights, options: MappingOptions) -> Plan | None:
    """The plan whose blocks have a part of the keys at once, and multiply by single threads; None where one part is
    enough, or queries are many."""
    steps = _steps(gpu, weights, options) if _queries(weights) < TURNS.least_rows else 0
    if not steps:
        return None
    scop, storages = rescaled(plan.scop, weights, steps)
    done = Rescaled(weights.statement.name, steps, storages)
    shared = replace(scheduled_anew(plan, scop), rescaled=(done,))
    return None if _group(shared, done) is None else shared


def _heads_together(plan: Plan, weights: Weights) -> Plan:
    """The plan in which all queries that share keys are values of one index, so that a block has them in one tile."""
    scop, name = plan.scop, weights.statement.name
    quotients: list[tuple[str, str, int]] = []
    for summed in _wide(weights):
        for index, number in dict.fromkeys(quotients_of(scop, summed.name)):
            if can_part(scop, summed.name, index, number):
                scop = parted(scop, summed.name, index, number)
                quotients.append((summed.name, index, number))
    pairs: list[tuple[str, str, str]] = []
    while (found := weights_of(scop, name)) is not None and (pair := _pair_of_rows(scop, found)) is not None:
        scop = merged(scop, name, pair)
        pairs.append((name, *pair))
    if found is None or not (quotients or pairs):
        return plan
    return replace(scheduled_anew(plan, scop), quotients=tuple(quotients), merged=(*plan.merged, *pairs))


def _pair_of_rows(scop: Scop, weights: Weights) -> tuple[str, str] | None:
    """Two rows of weights that share keys, and can be one."""
    pairs = itertools.pairwise(weights.rows[n] for n, _ in _rows_that_share_keys(weights))
    return next((pair for pair in pairs if can_merge(scop, weights.statement.name, *pair)), None)


def _by_matrices(gpu: Gpu, plan: Plan, weights: Weights, options: MappingOptions) -> Plan | None:
    """The plan whose blocks take keys in turns and multiply matrices of them by warps; None where they cannot.

    The queries that share keys are the rows of these.  Where heads fill the device, a block has all keys of one.
    """
    row = _row_of_matrices(weights)
    if row is None:
        return None
    name, parts = weights.statement.name, _parts(gpu, weights, options)
    if parts > 1:
        sizes = _turns(parts, weights.steps[1], options.split_reduction is not None)
        made = None if sizes is None else shared_in_turns(plan.scop, weights, *sizes)
        if sizes is None or made is None:
            return None
        run, (share, steps) = made.running, sizes
        done = replace(as_rescaled(name, run, steps, row), storages=made.storages, shared=share)
    else:
        run = running(plan.scop, weights, TURNS.steps)
        done = as_rescaled(name, run, TURNS.steps, row)
    found = in_turns(plan, [run], [done])
    return found if found is not None and by_warps(gpu, found, done, options) else None


def _row_of_matrices(weights: Weights) -> int | None:
    """The number of the row with most values that share keys; None where no two do."""
    (summed,) = _wide(weights)
    sizes = dict(zip(summed.indices, summed.extents, strict=True))
    found = [(sizes[index], n) for n, index in _rows_that_share_keys(weights) if sizes[index] > 1]
    return max(found)[1] if found else None


def _rows_that_share_keys(weights: Weights) -> list[tuple[int, str]]:
    """Numbers of rows of weights that read the same keys, each with its index in the sum."""
    (summed,) = _wide(weights)
    read = next(e for e in walk(summed.value) if isinstance(e, Read) and e.tensor == weights.statement.target)
    named = dict(zip(weights.statement.indices, read.subscripts, strict=True))
    own = [(n, s.name) for n, row in enumerate(weights.rows) if isinstance(s := named[row], Index)]
    return [(n, index) for n, index in own if _is_shared(summed, index)]


def formed_groups(plan: Plan) -> tuple[Group, ...]:
    """The groups whose parts run in turn, and those of parts that blocks share."""
    shared = (_group(plan, done) for done in plan.rescaled if not done.inside)
    return (*turning_groups(plan), *(group for group in shared if group is not None))


def of_shared_keys(plan: Plan) -> set[str]:
    """The statements that make the parts of keys which blocks share, and those that combine them."""
    found: set[str] = set()
    for done in (d for d in plan.rescaled if d.storages):
        group = None if done.inside else _group(plan, done)
        found |= {s for c in (() if group is None else group.clusters) for s in plan.clusters[c].statements}
        made = set(done.storages)
        for _ in range(2):
            users = {s.name: s.target for storage in made for s in plan.scop.users[storage]}
            found |= users.keys()
            made = {target for target in users.values() if plan.scop.storages[target].role == "temporary"}
    return found | {s for c in plan.clusters if found & {*c.statements} for s in c.statements}


def _steps(gpu: Gpu, weights: Weights, options: MappingOptions) -> int:
    """How many keys a part has; 0 where one block had better have all of a row."""
    keys = weights.steps[1]
    even = -(-keys // max(1, _parts(gpu, weights, options)))
    steps = even + -even % PART_MULTIPLE
    return steps if steps < keys else 0


def _parts(gpu: Gpu, weights: Weights, options: MappingOptions) -> int:
    """How many parts fill a device, or the user wants."""
    if options.split_reduction is not None:
        return options.split_reduction
    (summed,) = _wide(weights)
    sizes = dict(zip(summed.indices, summed.extents, strict=True))
    tiles = math.prod(sizes[row] for row in _rows(summed, weights) if not _is_shared(summed, row))
    return min(gpu.multiprocessors * TURNS.blocks_of_parts // tiles, weights.steps[1] // TURNS.least_part)


def _turns(parts: int, keys: int, exactly: bool) -> tuple[int, int] | None:
    """Keys of a part and of a turn, so that each part has as many turns, and about so many parts cover all keys.

    No turn is empty then, and only the last one is torn.  None where no number of parts between half and twice of what
    is wanted has such turns, or the one that is wanted ``exactly``.
    """
    found: list[tuple[float, int, int, int]] = []
    for steps in range(TURNS.steps // 2, 2 * TURNS.steps, ROWS):
        turns = -(-keys // steps)
        for each in (n for n in range(2, turns) if turns % n == 0):
            apart = abs(math.log2(turns // each / parts))
            if turns // each == parts or (apart <= 1 and not exactly):
                found.append((apart + abs(math.log2(steps / TURNS.steps)), -steps, each * steps, steps))
    return min(found)[2:] if found else None


def _wide(weights: Weights) -> list[ScopStatement]:
    """The sums that take something besides weights."""
    return [s for s in weights.sums if s is not weights.total]


def _rows(statement: ScopStatement, weights: Weights) -> list[str]:
    """The indices of a sum that are rows of its weights."""
    read = next(e for e in walk(statement.value) if isinstance(e, Read) and e.tensor == weights.statement.target)
    named = dict(zip(weights.statement.indices, read.subscripts, strict=True))
    return [i.name for row in weights.rows if isinstance(i := named[row], Index)]


def _is_shared(statement: ScopStatement, index: str) -> bool:
    """Whether only one operand of a sum has an index: then a block that has all of its values reads the others once."""
    reads = {e for e in walk(statement.value) if isinstance(e, Read)}
    return sum(any(isinstance(i, Index) and i.name == index for s in e.subscripts for i in walk(s)) for e in reads) == 1


def _suits(scop: Scop, weights: Weights) -> bool:
    """Whether scores are products for these weights alone, and there is one sum."""
    if not can_run(scop, weights) or len(_wide(weights)) != 1 or not scores_are_products(scop, weights):
        return False
    types = {scop.storages[s.target].dtype for s in (weights.maximum, *weights.sums)} | {weights.core.dtype}
    if len(types) != 1:
        return False
    (summed,) = _wide(weights)
    sizes, rows = dict(zip(summed.indices, summed.extents, strict=True)), _rows(summed, weights)
    columns = math.prod(sizes[i] for i in summed.indices[: summed.coordinates] if i not in rows)
    return weights.steps[1] >= TURNS.least_steps and columns <= TURNS.most_columns


def _queries(weights: Weights) -> int:
    """How many queries a block has that takes all of one head."""
    (summed,) = _wide(weights)
    sizes = dict(zip(summed.indices, summed.extents, strict=True))
    return math.prod(sizes[row] for row in _rows(summed, weights) if _is_shared(summed, row))


def _group(plan: Plan, done: Rescaled) -> Group | None:
    """The group of what parts of some weights leave; None where its clusters cannot share tiles.

    A tile has one part of one head, with all queries and columns.
    """
    scop, clusters = plan.scop, plan.clusters
    left = {c.number: made_by(scop, c) & done.storages for c in clusters}
    root = max(n for n, storages in left.items() if storages)
    part = min(len(scop.storages[storage].box.extent) for storage in done.storages) - 1
    main, whole = main_statement(scop, clusters[root]), extents(coordinate_set(scop, clusters[root]))
    places = clusters[root].coordinates[main.name]
    many = [p > part or (p < part and _is_shared(main, main.indices[p])) for p in places]
    sizes = tuple(extent if all_of_it else 1 for extent, all_of_it in zip(whole, many, strict=True))
    members = tuple(range(clusters[root].rank))
    tiles = tiling(clusters[root].rank, members, sizes).intersect_domain(coordinate_set(scop, clusters[root])).reverse()
    footprints = {root: Footprint(tiles, True, 1.0, ())}
    needs = coordinate_dependences(scop, clusters, scop.flow)
    count = math.prod(-(-extent // size) for extent, size in zip(whole, sizes, strict=True))
    for number in sorted(_inside(plan, done, root), reverse=True):
        consumers = {c: f.tiles for c, f in footprints.items() if (c, number) in needs}
        if not consumers:
            return None
        coordinates = coordinate_set(scop, clusters[number])
        found = follow(consumers, number, needs, coordinates, count)
        if found.partition and left[number] and not coordinates.is_subset(found.tiles.range()):
            # Others read what nobody needs here, of parts that a condition hides.
            same = _beside(plan, number, places, sizes).intersect_range(coordinates)
            found = replace(found, tiles=same.intersect_domain(tiles.domain()))
        if not found.partition or (left[number] and not coordinates.is_subset(found.tiles.range())):
            return None
        footprints[number] = found
    order = tuple(sorted(footprints, key=lambda n: (n == root, n)))
    return Group(order, members, sizes, footprints)


def _beside(plan: Plan, number: int, places: Sequence[int], sizes: Sequence[int]) -> isl.Map:
    """Tile to the coordinates of a cluster that has the same indices in front as those at some ``places``."""
    cluster = plan.clusters[number]
    own = cluster.coordinates[main_statement(plan.scop, cluster).name]
    tile, inside = [f"t{d}" for d in range(len(places))], [f"i{p}" for p in own]
    rows = [f"{t} = floor(i{p}/{size})" for t, p, size in zip(tile, places, sizes, strict=True) if p in own]
    return isl.Map(f"{{ [{', '.join(tile)}] -> [{', '.join(inside)}] : {' and '.join(rows) or 'true'} }}")


def _inside(plan: Plan, done: Rescaled, root: int) -> set[int]:
    """The clusters that only parts need, or nobody else than what combines them, and that are made of others' results.

    These are what makes the parts, their weights and scores.
    """
    home = {s: c.number for c in plan.clusters for s in c.statements}
    users: dict[int, set[int]] = {c.number: set() for c in plan.clusters}
    for a, b in by_statements(plan.scop.flow):
        users[home[a]] |= {home[b]} - {home[a]}
    found = {root}
    for number in range(root - 1, -1, -1):
        left = made_by(plan.scop, plan.clusters[number]) & done.storages
        if (left or users[number] <= found) and users[number] & found:
            found.add(number)
    return found - {root}
