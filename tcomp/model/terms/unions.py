"""Maps and sets of isl by statement and by tensor, and unions of them."""

from __future__ import annotations

from functools import lru_cache

import islpy as isl

from tcomp.model.terms.functions import plain_function
from tcomp.model.terms.remembered import remembered

_NO_SETS, _NO_MAPS = isl.UnionSet("{ }"), isl.UnionMap("{ }")


@lru_cache(maxsize=1000)
def map_from_text(text: str) -> isl.Map:
    """A relation by its text.  isl reads one in a quarter of a millisecond, and passes ask for the same ones again."""
    function = plain_function(text)
    return isl.Map(text) if function is None else isl.Map.from_multi_aff(function)


@remembered
def extents(points: isl.Set) -> tuple[int, ...]:
    """Extent of the bounding box along each dimension."""
    rank = points.dim(isl.dim_type.set)
    return tuple(points.dim_max_val(d).to_python() - points.dim_min_val(d).to_python() + 1 for d in range(rank))


@remembered
def extents_at_once(points: isl.Set) -> tuple[int, ...]:
    """The longest extent along each dimension for any values of the parameters: of boxes that move, as a rule."""
    if points.dim(isl.dim_type.param) == 0 or points.is_empty():
        return extents(points)
    kinds, rank = isl.dim_type, points.dim(isl.dim_type.set)
    found = []
    for d in range(rank):
        along = points.project_out(kinds.set, d + 1, rank - d - 1).project_out(kinds.set, 0, d)
        apart = isl.Map.from_domain_and_range(along, along).deltas()
        found.append(apart.dim_max_val(0).to_python() + 1)
    return tuple(found)


def storage_of(access: isl.Map) -> str:
    """The storage to whose elements an access goes."""
    return str(access.get_tuple_name(isl.dim_type.out))


def by_statements(relation: isl.UnionMap) -> dict[tuple[str, str], isl.Map]:
    """The parts of a relation between instances, by the names of the two statements."""
    types = isl.dim_type
    return {(m.get_tuple_name(types.in_), m.get_tuple_name(types.out)): m for m in maps_of(relation)}


def maps_of(relation: isl.UnionMap) -> list[isl.Map]:
    """The maps of which a union map is made.

    isl calls back for each; nothing that may fail is done there, since isl cannot carry a Python exception.
    """
    maps: list[isl.Map] = []
    relation.foreach_map(maps.append)
    return maps


def sets_of(union: isl.UnionSet) -> list[isl.Set]:
    """The sets of which a union set is made."""
    sets: list[isl.Set] = []
    union.foreach_set(sets.append)
    return sets


def union_set(sets: list[isl.Set]) -> isl.UnionSet:
    """The union of sets from different spaces."""
    result = _NO_SETS
    for s in sets:
        result = result.union(isl.UnionSet.from_set(s))
    return result


def union_map(maps: list[isl.Map]) -> isl.UnionMap:
    """The union of maps between different spaces."""
    result = _NO_MAPS
    for m in maps:
        result = result.union(isl.UnionMap.from_map(m))
    return result
