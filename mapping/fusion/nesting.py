"""Which groups one behind the other run as one nest, over leading loops that they share.

Six nests of a backward pass may all run over batches and heads, and hand values on only within one of these.  As one
nest over them, what one head touches stays in a cache from group to group, and threads begin and end once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.grammar.tree.function import Read, walk
from tcomp.mapping.plan.operations import recognise_contraction
from tcomp.mapping.plan.values import Cluster, Group
from tcomp.mapping.tiles.footprint import as_map, box_hull, coordinate_map, coordinate_set, volume
from tcomp.mapping.tiles.sizes import main_statement
from tcomp.model.scop import Scop, extents, storage_of, union_map


@dataclass(frozen=True, slots=True)
class Nesting:
    """What a target asks of loops that groups share.

    ``suffice`` says whether so many points of them are work for all threads.  What several groups touch at one point
    may take ``most_bytes``, and there are ``most_groups`` of them.
    """

    suffice: Callable[[int], bool]
    most_bytes: int
    most_groups: int


class Nests:
    """The facts about a program that are asked for at each pair of groups.

    ``needs`` are the coordinates of a producer that those of a consumer read, ``conflicts`` the pairs of clusters whose
    order is one of memory.
    """

    def __init__(
        self,
        nesting: Nesting,
        scop: Scop,
        clusters: tuple[Cluster, ...],
        needs: Mapping[tuple[int, int], isl.Map],
        conflicts: set[tuple[int, int]],
    ) -> None:
        self.nesting = nesting
        self.scop = scop
        self.clusters = clusters
        self.needs = needs
        self.conflicts = conflicts
        self._touched: dict[tuple[Group, int], dict[str, int]] = {}

    def shared(self, groups: Iterable[Group]) -> tuple[Group, ...]:
        """The groups, in their order, each with the number of loops that it shares with the one before."""
        found: list[Group] = []
        nest: list[Group] = []
        count = 0
        for group in groups:
            loops = self._loops(nest, count, group) if nest else 0
            if loops:
                nest.append(group)
                found[len(found) - len(nest) + 2 :] = [replace(g, shared=loops) for g in nest[1:]]
            else:
                nest = [group]
                found.append(group)
            count = loops
        return tuple(found)

    def _loops(self, nest: list[Group], count: int, group: Group) -> int:
        """How many leading loops a group can share with those of a nest, which share a ``count``; 0 if it should not.

        A nest of one group has all of its loops to share.
        """
        most = count if len(nest) > 1 else len(nest[0].members)
        alike = self._alike(nest[0], group)
        loops = min(most, alike)
        while loops and not all(self._stays_inside(before, group, loops) for before in nest):
            loops -= 1
        if not loops or len(nest) == self.nesting.most_groups or not self.nesting.suffice(self._points(group, loops)):
            return 0
        if not all(self._move(g, loops) for g in (*nest, group)):
            return 0
        touched = [self._touches(g, loops) for g in (*nest, group)]
        if not any(own.keys() & touched[-1].keys() for own in touched[:-1]):
            return 0
        together: dict[str, list[int]] = {}
        for own in touched:
            for storage, size in own.items():
                together.setdefault(storage, []).append(size)
        kept = sum(max(each) for each in together.values() if len(each) > 1)
        return loops if kept <= self.nesting.most_bytes else 0

    def _alike(self, first: Group, second: Group) -> int:
        """How many leading loops of two groups have the same tiles."""
        count = 0
        for one, other in zip(self._tiles(first), self._tiles(second), strict=False):
            if one != other:
                break
            count += 1
        return count

    def _tiles(self, group: Group) -> list[tuple[int, int]]:
        """The extent of each loop over tiles, in elements, and the size of a tile."""
        whole = extents(coordinate_set(self.scop, self.clusters[group.root]))
        return [(whole[m], size) for m, size in zip(group.members, group.sizes, strict=True)]

    def _points(self, group: Group, loops: int) -> int:
        return volume(tuple(-(-extent // size) for extent, size in self._tiles(group)[:loops]))

    def _stays_inside(self, first: Group, second: Group, loops: int) -> bool:
        """Whether what a group needs of one before it was made at the same point of so many loops."""
        for consumer in second.clusters:
            for producer in first.clusters:
                if (producer, consumer) in self.conflicts or (consumer, producer) in self.conflicts:
                    return False
                need = self.needs.get((consumer, producer))
                if need is not None:
                    made = _at_points(first, producer, loops)
                    used = _at_points(second, consumer, loops)
                    between = used.apply_range(need).apply_range(made.reverse())
                    if not between.is_subset(isl.Map.identity(between.get_space())):
                        return False
        return True

    def _move(self, group: Group, loops: int) -> bool:
        """Whether no contraction of a group has an operand that all points of some loops read wholly.

        The panels of weights, say, are made once for all tiles of a nest of their own.
        """
        touched = self._touches(group, loops)
        mains = [main_statement(self.scop, self.clusters[number]) for number in group.clusters]
        contracted = [m for m in mains if recognise_contraction(m) is not None]
        operands = {e.tensor for m in contracted for e in walk(m.value) if isinstance(e, Read)}
        return all(touched[o] < self.scop.storages[o].bytes for o in operands)

    def _touches(self, group: Group, loops: int) -> dict[str, int]:
        """Bytes of every storage that a group touches at one point of some loops."""
        if (group, loops) not in self._touched:
            found: dict[str, int] = {}
            for number in group.clusters:
                points = isl.UnionMap.from_map(_at_points(group, number, loops))
                instances = points.apply_range(coordinate_map(self.scop, self.clusters[number]).reverse())
                accesses: dict[str, list[isl.Map]] = {}
                for name in self.clusters[number].statements:
                    statement = self.scop.by_name[name]
                    for access in (statement.write, *statement.reads):
                        accesses.setdefault(storage_of(access), []).append(access.reset_tuple_id(isl.dim_type.out))
                for storage, maps in accesses.items():
                    rank = len(self.scop.storages[storage].box.extent)
                    touched = as_map(instances.apply_range(union_map(maps)), loops, rank)
                    size = volume(box_hull(touched).shape) * self.scop.storages[storage].dtype.itemsize
                    found[storage] = max(found.get(storage, 0), size)
            self._touched[group, loops] = found
        return self._touched[group, loops]


def _at_points(group: Group, number: int, loops: int) -> isl.Map:
    """The coordinates of a cluster at each point of the leading loops of its group."""
    tiles = group.footprints[number].tiles
    return tiles.project_out(isl.dim_type.in_, loops, tiles.dim(isl.dim_type.in_) - loops)
