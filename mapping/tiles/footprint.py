"""What one tile needs of each producer: the relations behind post-tiling fusion.

From the tile of a root cluster, the flow dependences are followed back to the producer instances that the tile needs,
``tile^-1 . reads . writes^-1`` (Zhao and Di, MICRO 2020, describe fusion by such upwards exposed footprints).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import islpy as isl

from tcomp.mapping.plan.tree import rows
from tcomp.mapping.plan.values import Cluster, Footprint
from tcomp.model.scop import Scop
from tcomp.model.terms.remembered import remembered
from tcomp.model.terms.unions import extents, map_from_text, maps_of, union_map, union_set


def coordinate_map(scop: Scop, cluster: Cluster) -> isl.UnionMap:
    """Instance to cluster coordinates."""
    parts = [(scop.by_name[s], cluster.coordinates[s]) for s in cluster.statements]
    return rows(parts).intersect_domain(union_set([scop.by_name[s].domain for s in cluster.statements]))


def coordinate_set(scop: Scop, cluster: Cluster) -> isl.Set:
    """All coordinates of a cluster."""
    return as_set(coordinate_map(scop, cluster).range(), cluster.rank)


def as_map(relation: isl.UnionMap, inputs: int, outputs: int) -> isl.Map:
    """The part of a union map between two unnamed spaces, as a map."""
    ctx = relation.get_ctx()
    space = isl.Space.alloc(ctx, 0, inputs, outputs)
    return relation.extract_map(space)


def as_set(elements: isl.UnionSet, rank: int) -> isl.Set:
    """The part of a union set in an unnamed space, as a set."""
    return elements.extract_set(isl.Space.set_alloc(elements.get_ctx(), 0, rank))


def coordinate_dependences(
    scop: Scop, clusters: tuple[Cluster, ...], flow: isl.UnionMap
) -> dict[tuple[int, int], isl.Map]:
    """For each consumer and producer cluster, consumer coordinates to the producer coordinates they read from."""
    home = {s: c.number for c in clusters for s in c.statements}
    pieces: dict[tuple[int, int], list[isl.Map]] = {}

    for piece in maps_of(flow):
        producer = home[piece.get_tuple_name(isl.dim_type.in_)]
        consumer = home[piece.get_tuple_name(isl.dim_type.out)]
        if producer != consumer:
            pieces.setdefault((consumer, producer), []).append(piece)
    maps = {c.number: coordinate_map(scop, c) for c in clusters}
    result = {}
    for (consumer, producer), found in pieces.items():
        backward = union_map(found).reverse()
        relation = maps[consumer].reverse().apply_range(backward).apply_range(maps[producer])
        result[consumer, producer] = as_map(relation, clusters[consumer].rank, clusters[producer].rank).coalesce()
    return result


def tiling(rank: int, members: tuple[int, ...], sizes: tuple[int, ...]) -> isl.Map:
    """Coordinates to tile, one member per tiled coordinate."""
    inputs = ", ".join(f"i{d}" for d in range(rank))
    outputs = ", ".join(f"floor(i{m}/{s})" for m, s in zip(members, sizes, strict=True))
    return map_from_text(f"{{ [{inputs}] -> [{outputs}] }}")


def follow(
    consumers: Mapping[int, isl.Map],
    producer: int,
    needs: Mapping[tuple[int, int], isl.Map],
    needed: isl.Set,
    tile_count: float,
) -> Footprint:
    """The footprint of ``producer`` given the tiles of its consumers; ``needed`` are all its coordinates.

    Where tiles overlap, a tile runs the whole box around what it needs: the exact set, a union of shifted and pierced
    pieces that grows from stencil to stencil, would save few instances and cost isl minutes.
    ``tile_count`` is the number of tiles, a partial one counted by the part that it fills.
    """
    relation = None
    for consumer, tiles in consumers.items():
        need = needs.get((consumer, producer))
        if need is not None:
            step = tiles.apply_range(need)
            relation = step if relation is None else relation.union(step)
    assert relation is not None
    relation = relation.coalesce().intersect_range(needed)
    members = relation.dim(isl.dim_type.in_)
    if relation.is_injective():
        return Footprint(relation, True, 1.0, ())
    hull = box_hull(relation)
    boxed = hull.relation().intersect_domain(relation.domain()).intersect_range(needed)
    around = hull.relation().intersect_domain(_bounds(relation.domain())).intersect_range(_bounds(needed))
    free = tuple(d for d in range(members) if _is_free(around, d))
    return Footprint(boxed, False, tile_count * volume(hull.shape) / max(1, box_volume(needed)), free)


def _bounds(points: isl.Set) -> isl.Set:
    """Everything within the bounds of some points, without the holes between them, which cost isl seconds."""
    return isl.Set.from_basic_set(points.remove_divs().simple_hull())


def _is_free(relation: isl.Map, member: int) -> bool:
    """Whether tiles that differ only in one member need the same coordinates."""
    relaxed = relation.drop_constraints_involving_dims(isl.dim_type.in_, member, 1)
    tiles = relation.domain()
    return bool(relaxed.intersect_domain(tiles).is_subset(relation))


def box_volume(points: isl.Set) -> int:
    """Number of points of the bounding box."""
    return volume(extents(points))


def volume(shape: tuple[int, ...]) -> int:
    """Number of elements of a box."""
    result = 1
    for extent in shape:
        result *= extent
    return result


@dataclass(frozen=True, slots=True, eq=False)
class BoxHull:
    """A box of constant shape, moving with the tile, that holds every image of a relation."""

    lower: isl.MultiAff
    shape: tuple[int, ...]

    def relation(self) -> isl.Map:
        """Tile to every point of its box."""
        offsets = isl.Set.universe(self.lower.get_space().range())
        for d, extent in enumerate(self.shape):
            offsets = offsets.lower_bound_val(isl.dim_type.set, d, isl.Val(0))
            offsets = offsets.upper_bound_val(isl.dim_type.set, d, isl.Val(extent - 1))
        corner = isl.Map.from_multi_aff(self.lower)
        return corner.sum(isl.Map.from_domain_and_range(corner.domain(), offsets))


def box_hull(relation: isl.Map, rounded: bool = False) -> BoxHull:
    """The smallest such box whose lower corner is one affine function of the tile.

    For each dimension every affine lower bound of the relation is a candidate corner; the one from which the relation
    reaches least far wins (the method of isl's fixed box hull, which islpy does not expose).  If corners may be
    ``rounded``, one element that is another one in every so many tiles has such a corner, floor(i/4) say.
    """
    lower = isl.MultiAff.zero(relation.get_space())
    tiles, variables = isl.LocalSpace.from_space(relation.get_space().domain()), _variables(relation)
    shape = []
    for d, (coefficients, constant, extent) in enumerate(_best_bounds(relation)):
        rounded_corner = _rounded(_single(relation, d)) if rounded and extent > 1 else None
        if rounded_corner is not None:
            lower = lower.set_at(d, rounded_corner)
            shape.append(1)
            continue
        corner = isl.Aff.zero_on_domain(tiles)
        for (kind, t), coefficient in zip(variables, coefficients, strict=False):
            if coefficient:
                corner = corner.set_coefficient_val(kind, t, isl.Val(coefficient))
        lower = lower.set_at(d, corner.set_constant_val(isl.Val(constant)))
        shape.append(extent)
    return BoxHull(lower, tuple(shape))


def _single(relation: isl.Map, dimension: int) -> isl.Map:
    """One dimension of what a relation gives."""
    outputs = relation.dim(isl.dim_type.out)
    if outputs == 1:
        return relation
    single = relation.project_out(isl.dim_type.out, dimension + 1, outputs - dimension - 1)
    return single.project_out(isl.dim_type.out, 0, dimension).reset_tuple_id(isl.dim_type.out)


def _rounded(single: isl.Map) -> isl.Aff | None:
    """The corner of a relation that gives each tile one element, if that is one function of the tile."""
    if not single.is_single_valued():
        return None
    pieces: list[isl.MultiAff] = []
    isl.PwMultiAff.from_map(single).coalesce().foreach_piece(lambda _, value: pieces.append(value))
    return pieces[0].get_at(0) if len(pieces) == 1 else None


@remembered
def _best_bounds(relation: isl.Map) -> tuple[tuple[tuple[int, ...], int, int], ...]:
    """For each dimension ``_best_bound``."""
    return tuple(_best_bound(_single(relation, d)) for d in range(relation.dim(isl.dim_type.out)))


@remembered
def _best_bound(single: isl.Map) -> tuple[tuple[int, ...], int, int]:
    """The best affine lower bound of a relation with one output, and the extent counted from it.

    It has ``coefficients`` of ``_variables``, none where there is nothing, and a constant.
    """
    if single.is_empty():
        return (), 0, 0
    inputs = single.dim(isl.dim_type.in_)
    points = single.wrap().flatten()
    point_space = isl.LocalSpace.from_space(points.get_space())
    best: tuple[tuple[int, ...], int, int] | None = None
    for coefficients, constant in _lower_bounds(single, points, inputs):
        gap = isl.Aff.var_on_domain(point_space, isl.dim_type.set, inputs).set_constant_val(isl.Val(-constant))
        for (kind, t), coefficient in zip(_variables(single), coefficients, strict=True):
            gap = gap.set_coefficient_val(kind, t, isl.Val(-coefficient))
        extent = points.max_val(gap).to_python() + 1
        if best is None or extent < best[2]:
            best = (coefficients, constant, extent)
    assert best is not None
    return best


def _variables(single: isl.Map) -> list[tuple[isl.dim_type, int]]:
    """What a corner is a function of: the tile, and the steps around a piece of a program."""
    return [(kind, t) for kind in (isl.dim_type.in_, isl.dim_type.param) for t in range(single.dim(kind))]


def _lower_bounds(single: isl.Map, points: isl.Set, inputs: int) -> list[tuple[tuple[int, ...], int]]:
    """Affine lower bounds, ``coefficients`` of ``_variables`` and a constant; the constant one always exists."""
    variables = _variables(single)
    bounds = [((0,) * len(variables), points.dim_min_val(inputs).to_python())]
    for constraint in single.remove_divs().simple_hull().get_constraints():
        own = constraint.get_coefficient_val(isl.dim_type.out, 0).to_python()
        if own != 1 and (own != -1 or not constraint.is_equality()):
            continue
        tile = tuple(constraint.get_coefficient_val(kind, t).to_python() for kind, t in variables)
        if any(tile):
            constant = constraint.get_constant_val().to_python()
            bounds.append((tuple(-own * c for c in tile), -own * constant))
    # In an order of their own: of two that reach as far one must be the best whatever isl's order is.
    return bounds[:1] + sorted(dict.fromkeys(bounds[1:]))
