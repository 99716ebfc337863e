"""Turns that a condition hides wholly, as keys behind its query are from causal attention: they are left out.

So are those in front of the first key that a tile sees, as windows have them.

Where a condition holds for no instance of a turn, every score counts as a number below all others, and every weight is
0.  Then the turn leaves the maximum as it was, if any score that is seen is above that number, and the sums, if what is
multiplied by 0 is finite (``docs/numerics.md``).  A tile begins with the first turn of which it sees
anything, which takes what the first of all turns would, ends with the last one, and has one at least.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import islpy as isl

from tcomp.errors import LegalityError
from tcomp.grammar.ranges.affine import to_set
from tcomp.grammar.tree.function import Constant, Expr, Index, Read, Select, walk
from tcomp.mapping.plan.values import Cluster, Footprint, Group, Plan, Rescaled
from tcomp.mapping.rescaling.inturn import begins
from tcomp.mapping.rescaling.weights import is_low, unrounded
from tcomp.model.scop import Scop, ScopStatement

MOST_PIECES = 3
"""Pieces that the number of a turn may have, as a function of the tile."""


def turns_seen(
    scop: Scop, done: Rescaled, clusters: Mapping[str, Cluster], footprints: Mapping[int, Footprint]
) -> tuple[isl.PwAff | None, isl.PwAff | None]:
    """The first turn of each tile of which it sees anything, and that behind the last; None if all tiles have all.

    ``clusters`` are those of the statements.
    """
    turns, seen = (None, None) if done.summed else _turns(scop, done, clusters, footprints)
    if turns is None or seen is None:
        return None, None
    # A tile that sees nothing has the first turn of all.
    least = turns.lexmin()
    wanted = seen.union(least.subtract_domain(seen.domain())).coalesce()
    first, last, begin, end = (
        isl.PwMultiAff.from_map(m).get_at(0).coalesce()
        for m in (wanted.lexmin(), wanted.lexmax(), least, turns.lexmax())
    )
    behind = last.add_constant_val(isl.Val(1))
    return (
        None if first.is_equal(begin) or first.n_piece() > MOST_PIECES else first,
        None if last.is_equal(end) or behind.n_piece() > MOST_PIECES else behind,
    )


def has_most_turns_last(group: Group) -> bool:
    """Whether the last tile of a group has more turns than the first one, as those of causal attention have."""
    if group.seen is None:
        return False
    turns = group.seen if group.first is None else group.seen.sub(group.first)
    tiles = turns.domain()
    least, most = (turns.eval(s.sample_point()).to_python() for s in (tiles.lexmin(), tiles.lexmax()))
    return bool(most > least)


def prove_hidden(plan: Plan, group: Group, step: str) -> None:
    """Raise LegalityError, naming the pass, if a turn that is left out would change anything."""
    if group.seen is None and group.first is None:
        return
    number = plan.groups.index(group)
    home = {s: c for c in plan.clusters for s in c.statements}
    done = next((r for r in plan.rescaled if {home[s].number for s in r.inside} == {*group.turns}), None)
    found = None if done is None else _turns(plan.scop, done, home, group.footprints)
    turns, seen = (None, None) if found is None else found
    if turns is None or seen is None:
        raise LegalityError(f"pass '{step}' leaves out turns of group {number}, which no condition hides")
    run = turns
    for bound, beside in ((group.seen, "t < n"), (group.first, "n <= t")):
        if bound is not None:
            run = run.intersect(isl.Map.from_pw_aff(bound).apply_range(isl.Map(f"{{ [n] -> [t] : {beside} }}")))
    if not seen.is_subset(run):
        missing = seen.subtract(run).wrap().sample_point()
        raise LegalityError(f"pass '{step}' leaves out a turn of group {number} that counts: {missing}")
    if not turns.domain().is_subset(run.domain()):
        missing = turns.domain().subtract(run.domain()).sample_point()
        raise LegalityError(f"pass '{step}' leaves out all turns of group {number} in tile {missing}")
    if group.first is not None:
        assert done is not None
        if not isl.Map.from_pw_aff(group.first).intersect_domain(turns.domain()).is_subset(turns):
            raise LegalityError(f"pass '{step}' begins tiles of group {number} with turns that they do not have")
        _prove_beginnings(plan.scop, done, number, step)


def _prove_beginnings(scop: Scop, done: Rescaled, number: int, step: str) -> None:
    """What a first turn takes instead of what the one before left is what hidden turns would leave."""
    carried = dict(done.carried)
    for statement in (scop.by_name[name] for name in done.inside):
        earlier = [e for e in walk(statement.value) if isinstance(e, Read) and e.tensor in carried]
        earlier = [e for e in earlier if not isinstance(e.subscripts[carried[e.tensor]], Index)]
        begun = begins(statement)
        if not earlier or (begun is not None and _leaves_nothing(begun, earlier)):
            continue
        raise LegalityError(f"pass '{step}' lets {statement.name} of group {number} begin with what no turn has left")


def _leaves_nothing(begun: Select, earlier: Sequence[Expr]) -> bool:
    """Whether a statement that begins anew takes nothing from earlier turns then."""
    only = all(e not in earlier for e in walk(begun.otherwise))
    return only and (_is_zero(begun.otherwise) or is_low(begun.otherwise))


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
