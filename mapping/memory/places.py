"""The places of a schedule tree where a temporary may live, and the buffer that it needs there.

A place is a mark of the tree.  It can hold a temporary whose values never pass from one of its instances to another;
what an instance needs of it is its footprint there.  This is the one promotion mechanism for every kind of buffer.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import islpy as isl

from tcomp.mapping.plan.values import Buffer
from tcomp.mapping.tiles.footprint import box_hull
from tcomp.model.scop import ScopStatement
from tcomp.model.terms.storages import Storage
from tcomp.model.terms.unions import maps_of, sets_of, union_map

INNER_TILES = ("cluster", "steps")
"""Marks of inner tiles: of a processor's registers, and of what one thread of a GPU reduces."""


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """A mark of the tree: the instances below it, and what the band members around it are for each."""

    mark: str
    prefixes: Mapping[str, isl.Map]

    def prefix(self, statements: Iterable[str]) -> isl.UnionMap:
        """Instance to the values of the band members around, for some statements."""
        return union_map([self.prefixes[s] for s in statements])

    def holds(self, values: Mapping[tuple[str, str], isl.Map]) -> bool:
        """Whether no value is handed from one instance of the place to another."""
        return all(
            source in self.prefixes
            and sink in self.prefixes
            and passed.is_subset(self.prefixes[source].apply_range(self.prefixes[sink].reverse()))
            for (source, sink), passed in values.items()
        )


class _Tree:
    """A schedule as a key: trees are the same if they are one object, which nothing ever changes."""

    def __init__(self, tree: isl.Schedule) -> None:
        self.tree = tree

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Tree) and self.tree is other.tree

    def __hash__(self) -> int:
        return id(self.tree)


def places(tree: isl.Schedule) -> tuple[Place, ...]:
    """All marks of a schedule, outer ones first."""
    return _places(_Tree(tree))


@functools.lru_cache(maxsize=4)
def _places(key: _Tree) -> tuple[Place, ...]:
    start = isl.Set("{ [] }")
    everywhere = {s.get_tuple_name(): isl.Map.from_domain_and_range(s, start) for s in sets_of(key.tree.get_domain())}
    order = {name: number for number, name in enumerate(everywhere)}
    return tuple(_marks_below(key.tree.get_root(), everywhere, order))


def _marks_below(node: isl.ScheduleNode, prefixes: Mapping[str, isl.Map], order: Mapping[str, int]) -> Iterator[Place]:
    """The marks at a node and below it, where the band members around are ``prefixes`` of the instances, in ``order``.

    isl would collect them anew for each mark, from the root on.  A filter names its statements: a search through all
    those around it would take as long as there are pairs of statements.
    """
    match node.get_type():
        case isl.schedule_node_type.mark:
            yield Place(node.mark_get_id().get_name(), prefixes)
        case isl.schedule_node_type.band:
            own = {named_space(r.get_space().domain()): r for r in maps_of(node.band_get_partial_schedule_union_map())}
            spaces = {name: named_space(prefix.get_space().domain()) for name, prefix in prefixes.items()}
            prefixes = {n: p.flat_range_product(own[spaces[n]]) for n, p in prefixes.items() if spaces[n] in own}
        case isl.schedule_node_type.filter:
            parts = {named_space(part.get_space()): part for part in sets_of(node.filter_get_filter())}
            named = {name for name, _ in parts if name in prefixes}
            prefixes = {
                name: inside
                for name in sorted(named, key=order.__getitem__)
                if (part := parts.get(named_space(prefixes[name].get_space().domain()))) is not None
                and not (inside := prefixes[name].intersect_domain(part)).is_empty()
            }
    for child in range(node.n_children()):
        yield from _marks_below(node.child(child), prefixes, order)


def named_space(of: isl.Space) -> tuple[str, int]:
    """A statement and the number of its indices; plans written by hand may have other numbers."""
    return of.get_tuple_name(isl.dim_type.set), of.dim(isl.dim_type.set)


def boxed(storage: Storage, place: Place, writers: list[ScopStatement], always: bool = False) -> Buffer:
    """The buffer of a storage at a place: a register for one element unless a box is ``always`` wanted.

    Where data choose elements it is a box, whose subscripts are checked.
    """
    always |= any(writer.scatters for writer in writers)
    relation = None
    for writer in writers:
        access = place.prefixes[writer.name].reverse().apply_range(writer.write)
        step = own_element(access, len(storage.box.extent))
        relation = step if relation is None else relation.union(step)
    assert relation is not None
    hull = box_hull(relation)
    if not always and (all(extent <= 1 for extent in hull.shape) or relation.is_single_valued()):
        return Buffer(storage.name, storage.dtype, "register", (), (), None, place.mark)
    return Buffer(storage.name, storage.dtype, "tile", hull.shape, (), hull.lower, place.mark)


def own_element(access: isl.Map, rank: int) -> isl.Map:
    """The access without the tile that stands in front of the elements of an expanded storage."""
    extra = access.dim(isl.dim_type.out) - rank
    return access.project_out(isl.dim_type.out, 0, extra).reset_tuple_id(isl.dim_type.out)
