"""Pass and groups: attention in one kernel, whose blocks take the keys tile by tile.

A block has a tile of rows, queries say, and a loop over parts of the steps, the keys.  In each turn it computes the
scores of its rows, their maximum so far, the weights and what they add to the sums (``rescaling/running.py``).  Scores
and sums stay in the registers of threads, which all clusters deal alike: rows along one dimension of threads, steps and
columns of results along the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from tcomp.grammar.tree.function import Index, Read, walk
from tcomp.mapping.fusion.order import leads_into
from tcomp.mapping.gpu.turns.hidden import turns_seen
from tcomp.mapping.gpu.turns.sums import row_of_sums
from tcomp.mapping.machines.fitted.gputurns import TURNS
from tcomp.mapping.machines.gpu import Gpu
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.operations import recognise_contraction
from tcomp.mapping.plan.schedule import scheduled_anew
from tcomp.mapping.plan.values import Cluster, Footprint, Group, Plan, Rescaled
from tcomp.mapping.rescaling.inturn import Running
from tcomp.mapping.rescaling.running import can_run, running
from tcomp.mapping.rescaling.summing import summed, summed_of
from tcomp.mapping.rescaling.weights import Weights, scores_of, weights_of
from tcomp.mapping.tiles.footprint import coordinate_set, tiling
from tcomp.mapping.tiles.strides import coefficient
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.unions import by_statements, extents

LEAST_SUMS = 2
"""Sums over so many different steps; one alone has more blocks if what it multiplies is stored."""


def run_in_turns(gpu: Gpu, plan: Plan, options: MappingOptions) -> Plan:
    """Give weights of products a maximum that runs on from part to part, where one block can have what a part needs."""
    if not may_keep_rows(gpu, options):
        return plan
    for name in plan.scop.by_name:
        weights = weights_of(plan.scop, name)
        if weights is not None and _suits(plan.scop, weights):
            row = _row(plan.scop, weights)
            made = running(plan.scop, weights, TURNS.steps)
            return in_turns(plan, [made], [as_rescaled(name, made, TURNS.steps, row or 0)]) or plan
    return _sum_in_turns(plan)


def may_keep_rows(gpu: Gpu, options: MappingOptions) -> bool:
    """Whether a block may have all that a part of some weights needs: threads reduce its rows without barriers."""
    chosen = options.counts_loops or options.threads is not None or options.fusion_strategy == "min"
    memories = options.use_shared_memory and options.use_private_memory and options.match_reductions
    return gpu.shuffles and memories and not chosen


def _sum_in_turns(plan: Plan) -> Plan:
    """Let sums of what several products make take their steps in turns, each with what it needs of them.

    It is done where sums go over different steps, and nothing of what is made for them is left to be stored.
    """
    scop, every, done, made_of = plan.scop, list[Running](), list[Rescaled](), set[str]()
    for name in plan.scop.by_name:
        found = summed_of(scop, name)
        if found is not None and (row := row_of_sums(scop, found)) is not None:
            made = summed(scop, found, TURNS.steps)
            every.append(made)
            done.append(replace(as_rescaled(name, made, TURNS.steps, row), summed=True))
            made_of |= {*found.made}
            scop = made.scop
    if len(done) < LEAST_SUMS or made_of & scop.storages.keys():
        return plan
    return in_turns(plan, every, done) or plan


def as_rescaled(name: str, made: Running, steps: int, row: int) -> Rescaled:
    """What a plan says of parts that run in turn; ``name`` is the statement that they are made for."""
    return Rescaled(name, steps, frozenset(), made.inside, made.last, tuple(made.carried.items()), row)


def in_turns(plan: Plan, every: Sequence[Running], done: Sequence[Rescaled]) -> Plan | None:
    """The plan of the last of some programs, each made of the one before, whose parts run in turn.

    None if other clusters run between a turn and its results.
    """
    inside = frozenset(name for made in every for name in made.inside)
    together = tuple(names for made in every for names in made.together)
    plan = scheduled_anew(plan, every[-1].scop, inside, together)
    home = {s: c.number for c in plan.clusters for s in c.statements}
    successors: dict[int, set[int]] = {c.number: set() for c in plan.clusters}
    for a, b in by_statements(plan.scop.dependences):
        successors[home[a]].add(home[b])
    for one in done:
        own = {*_group(plan, one).clusters}
        leaving = {c for number in own for c in successors[number]} - own
        if leads_into(leaving, own, (), successors):
            return None
    return replace(plan, rescaled=(*plan.rescaled, *done))


def turning_groups(plan: Plan) -> tuple[Group, ...]:
    """The groups whose parts run in turn."""
    return tuple(_group(plan, done) for done in plan.rescaled if done.inside)


def _suits(scop: Scop, weights: Weights) -> bool:
    """Whether scores are products, rows are enough, and sums of a row are few enough for the registers of threads."""
    if weights.steps[1] < TURNS.least_steps or not can_run(scop, weights):
        return False
    if not scores_are_products(scop, weights):
        return False
    row = _row(scop, weights)
    if row is None or weights.statement.extents[weights.statement.indices.index(weights.rows[row])] < TURNS.least_rows:
        return False
    wide = [_columns(s, weights) for s in weights.sums]
    return all(len(c) <= 1 and math.prod(c) <= TURNS.most_columns for c in wide) and any(wide)


def scores_are_products(scop: Scop, weights: Weights) -> bool:
    """Whether scores are products, as many for each row."""
    writers = [s for name in scores_of(scop, weights) for s in scop.users[name] if s.target == name]
    # On a triangle some blocks have turns without scores, and with them no phase that threads could wait in front of.
    if not all(s.domain.is_box() for s in (weights.statement, weights.maximum, *weights.sums, *writers)):
        return False
    products = [s for s in writers if s.kind == "update"]
    return bool(products) and all(recognise_contraction(s) is not None for s in products)


def _columns(statement: ScopStatement, weights: Weights) -> list[int]:
    """Extents of the results that a sum has for each row."""
    read = next(e for e in walk(statement.value) if isinstance(e, Read) and e.tensor == weights.statement.target)
    rows = {s.name for s in read.subscripts if isinstance(s, Index)}
    sizes = zip(statement.indices[: statement.coordinates], statement.extents, strict=False)
    return [extent for index, extent in sizes if index not in rows]


def _row(scop: Scop, weights: Weights) -> int | None:
    """The number of the innermost row that no operand with a step has: a tile of them reads each of those once."""
    found = None
    for number in range(len(weights.rows)):
        if not any(_moves_with(scop, s, number, weights) for s in weights.sums):
            found = number
    return found


def _moves_with(scop: Scop, statement: ScopStatement, number: int, weights: Weights) -> bool:
    """Whether what a sum multiplies with weights is another one for each value of a row."""
    reads = [e for e in walk(statement.value) if isinstance(e, Read)]
    own = next(e for e in reads if e.tensor == weights.statement.target)
    place = weights.statement.indices.index(weights.rows[number])
    index = own.subscripts[place]
    assert isinstance(index, Index)
    return any(coefficient(s, index.name, scop.sizes) != 0 for e in reads if e is not own for s in e.subscripts)


def _group(plan: Plan, done: Rescaled) -> Group:
    """The group of what runs in turns and what takes its results: tiles are of rows, whole in everything else."""
    home = {s: c for c in plan.clusters for s in c.statements}
    inside = sorted({home[s].number for s in done.inside})
    after = sorted({home[s].number for s in done.last}, key=lambda n: (plan.clusters[n].rank, n))
    root = plan.clusters[after[-1]]
    carried = dict(done.carried)
    members, rows = rows_of(plan.scop, root, done, carried)
    whole = extents(coordinate_set(plan.scop, root))
    sizes, part = [1] * len(rows), next(iter(carried.values()))
    tiled = rows.index(done.row)
    sizes[tiled] = min(TURNS.rows, whole[members[tiled]])
    footprints: dict[int, Footprint] = {}
    for number in inside:
        footprints[number] = _footprint(plan, number, (*rows, part), (*sizes, 1))
    for number in after:
        own, order = rows_of(plan.scop, plan.clusters[number], done, carried)
        footprints[number] = _footprint(plan, number, tuple(own[order.index(r)] for r in rows), tuple(sizes))
    first, seen = turns_seen(plan.scop, done, home, footprints)
    return Group((*inside, *after), members, tuple(sizes), footprints, turns=tuple(inside), seen=seen, first=first)


def rows_of(
    scop: Scop, cluster: Cluster, done: Rescaled, carried: dict[str, int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The coordinates of a cluster that are rows of weights, in order, and the numbers of these rows."""
    name = next(s for s in cluster.statements if s in done.last)
    statement = scop.by_name[name]
    assert isinstance(statement.value, Read)
    count = carried[statement.value.tensor]
    named = {s.name: n for n, s in enumerate(statement.value.subscripts[:count]) if isinstance(s, Index)}
    at = [(d, named.get(statement.indices[p])) for d, p in enumerate(cluster.coordinates[name])]
    found = [(d, n) for d, n in at if n is not None]
    return tuple(d for d, _ in found), tuple(n for _, n in found)


def _footprint(plan: Plan, number: int, members: tuple[int, ...], sizes: tuple[int, ...]) -> Footprint:
    cluster = plan.clusters[number]
    whole = coordinate_set(plan.scop, cluster)
    return Footprint(tiling(cluster.rank, members, sizes).intersect_domain(whole).reverse(), True, 1.0, ())
