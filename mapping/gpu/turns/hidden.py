"""Turns that a condition hides wholly, as keys behind its query are from causal attention: they are left out.

Where a condition holds for no instance of a turn, every score counts as a number below all others, and every weight is
0.  Then the turn leaves the maximum as it was, if any score that is seen is above that number, and the sums, if what is
multiplied by 0 is finite (``docs/numerics.md``).  A tile ends with the last turn of which it sees
anything, and has one at least.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import islpy as isl

from tcomp.errors import LegalityError
from tcomp.grammar.ranges.affine import to_set
from tcomp.grammar.tree.function import Constant, Expr, Select
from tcomp.mapping.plan.values import Cluster, Footprint, Group, Plan, Rescaled
from tcomp.mapping.rescaling.weights import is_low, unrounded
from tcomp.model.scop import Scop, ScopStatement

MOST_PIECES = 3
"""Pieces that the number of turns may have, as a function of the tile."""


def turns_seen(
    scop: Scop, done: Rescaled, clusters: Mapping[str, Cluster], footprints: Mapping[int, Footprint]
) -> isl.PwAff | None:
    """How many turns each tile has until the rest of them is hidden; None if all tiles have all.

    ``clusters`` are those of the statements.
    """
    turns, seen = (None, None) if done.summed else _turns(scop, done, clusters, footprints)
    if turns is None or seen is None:
        return None
    most, wanted = (isl.PwMultiAff.from_map(m.lexmax()).get_at(0) for m in (turns, seen))
    if not wanted.domain().is_equal(most.domain()):
        first = isl.PwAff.zero_on_domain(isl.LocalSpace.from_space(most.get_domain_space()))
        wanted = wanted.union_max(first.intersect_domain(most.domain().subtract(wanted.domain())))
    one = isl.PwAff.zero_on_domain(isl.LocalSpace.from_space(most.get_domain_space())).add_constant_val(isl.Val(1))
    count = wanted.add(one).coalesce()
    return None if wanted.is_equal(most) or count.n_piece() > MOST_PIECES else count


def prove_hidden(plan: Plan, group: Group, step: str) -> None:
    """Raise LegalityError, naming the pass, if a turn that is left out would change anything."""
    if group.seen is None:
        return
    number = plan.groups.index(group)
    home = {s: c for c in plan.clusters for s in c.statements}
    done = next((r for r in plan.rescaled if {home[s].number for s in r.inside} == {*group.turns}), None)
    found = None if done is None else _turns(plan.scop, done, home, group.footprints)
    turns, seen = (None, None) if found is None else found
    if turns is None or seen is None:
        raise LegalityError(f"pass '{step}' leaves out turns of group {number}, which no condition hides")
    count = isl.Map.from_pw_aff(group.seen).intersect_domain(turns.domain())
    run = count.apply_range(isl.Map("{ [n] -> [t] : t < n }")).intersect(turns)
    first = isl.Map.from_domain_and_range(turns.domain(), isl.Set("{ [0] }")).intersect(turns)
    if not seen.union(first).is_subset(run):
        missing = seen.union(first).subtract(run).wrap().sample_point()
        raise LegalityError(f"pass '{step}' leaves out a turn of group {number} that counts: {missing}")


def _turns(
    scop: Scop, done: Rescaled, clusters: Mapping[str, Cluster], footprints: Mapping[int, Footprint]
) -> tuple[isl.Map, isl.Map | None]:
    """Tile to its turns, and to those of which it sees anything; None if it is not known which these are."""
    inside = [scop.by_name[name] for name in done.inside]
    maxima = [s for s in inside if s.reduction == "max"]
    weights = [s for s in inside if s.kind == "assign" and _is_zero(_otherwise(s))]
    every: list[isl.Map] = []
    seen: list[isl.Map] = []
    for statement in (*maxima, *weights):
        cluster, where = clusters[statement.name], _visible(scop, statement)
        footprint = footprints[cluster.number]
        every.append(_tiles(statement, cluster, footprint, statement.domain))
        seen += [] if where is None else [_tiles(statement, cluster, footprint, where)]
    turns = _joined(every)
    if not len(maxima) == len(weights) == 1 or len(seen) < 2:
        return turns, None
    return turns, _joined(seen)


def _joined(maps: Sequence[isl.Map]) -> isl.Map:
    whole: isl.Map | None = None
    for own in maps:
        whole = own if whole is None else whole.union(own)
    assert whole is not None
    return whole.coalesce()


def _otherwise(statement: ScopStatement) -> Expr | None:
    """What a statement has where its condition does not hold."""
    value = unrounded(statement.value)
    return value.otherwise if isinstance(value, Select) else None


def _is_zero(value: Expr | None) -> bool:
    return isinstance(value, Constant) and value.value == 0


def _visible(scop: Scop, statement: ScopStatement) -> isl.Set | None:
    """Where a weight is not 0, or a score not low; None if it is not known."""
    value, otherwise = unrounded(statement.value), _otherwise(statement)
    if not isinstance(value, Select) or otherwise is None:
        return None
    low = is_low(otherwise) if statement.reduction == "max" else _is_zero(otherwise)
    domain = statement.domain
    for position, index in enumerate(statement.indices):
        domain = domain.set_dim_name(isl.dim_type.set, position, index)
    where = to_set(value.condition, domain.get_space(), scop.sizes) if low else None
    return None if where is None else domain.intersect(where)


def _tiles(statement: ScopStatement, cluster: Cluster, footprint: Footprint, instances: isl.Set) -> isl.Map:
    """Tile to its turns that have some instances of a statement."""
    names = [f"i{d}" for d in range(len(statement.indices))]
    picked = ", ".join(names[p] for p in cluster.coordinates[statement.name])
    coordinates = instances.apply(isl.Map(f"{{ {statement.name}[{', '.join(names)}] -> [{picked}] }}"))
    both = footprint.tiles.intersect_range(coordinates).domain()
    rank = both.dim(isl.dim_type.set) - 1
    tile = [f"t{d}" for d in range(rank)]
    inside = ", ".join(tile)
    return both.apply(isl.Map(f"{{ [{', '.join([*tile, 'n'])}] -> [[{inside}] -> [n]] }}")).unwrap()
