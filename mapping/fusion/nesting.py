"""Which groups run one behind the other as one nest, over leading loops that they share.

Six nests of a backward pass may all run over batches and heads, and hand values on only within one of these.  As one
nest over them, what one head touches stays in a cache from group to group, and threads begin and end once.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.grammar.tree.function import Read, walk
from tcomp.mapping.fusion.order import Waiting
from tcomp.mapping.plan.operations import recognise_contraction
from tcomp.mapping.plan.values import Cluster, Group
from tcomp.mapping.tiles.footprint import as_map, box_hull, coordinate_map, coordinate_set, volume
from tcomp.mapping.tiles.sizes import main_statement
from tcomp.model.scop import Scop
from tcomp.model.terms.unions import extents, storage_of, union_map


@dataclass(frozen=True, slots=True)
class Nesting:
    """What a target asks of loops that groups share.

    ``suffice`` says whether so many points of them are work for all threads.  What several groups touch at one point
    may take ``most_bytes``, with ``most_left`` beside it of what parts of sums leave, and there are ``most_groups`` of
    them.
    """

    suffice: Callable[[int], bool]
    most_bytes: int
    most_left: int
    most_groups: int


@dataclass(frozen=True, slots=True)
class _Nest:
    """Groups over the same loops, with the number of ``points`` of each loop; one group alone has all of its loops.

    ``tiles`` say how many tiles of each group are at a point, along each loop.
    """

    groups: tuple[Group, ...]
    points: tuple[int, ...]
    tiles: tuple[tuple[int, ...], ...]

    def outer(self, loops: int) -> _Nest:
        """The same over the first few of the loops."""
        return _Nest(self.groups, self.points[:loops], tuple(t[:loops] for t in self.tiles))

    def done(self) -> list[Group]:
        """The groups with what they share."""
        if len(self.groups) == 1:
            return [*self.groups]
        return [
            replace(group, shared=len(self.points) if number else 0, together=tiles if max(tiles) > 1 else ())
            for number, (group, tiles) in enumerate(zip(self.groups, self.tiles, strict=True))
        ]


class Nests:
    """The facts about a program that are asked for at each pair of groups.

    ``needs`` are the coordinates of a producer that those of a consumer read, ``conflicts`` the pairs of clusters whose
    order is one of memory.  ``parts`` are the storages of what parts of sums leave.
    """

    def __init__(
        self,
        nesting: Nesting,
        scop: Scop,
        clusters: tuple[Cluster, ...],
        needs: Mapping[tuple[int, int], isl.Map],
        conflicts: set[tuple[int, int]],
        parts: Container[str] = (),
    ) -> None:
        self.nesting = nesting
        self.scop = scop
        self.clusters = clusters
        self.needs = needs
        self.conflicts = conflicts
        self.parts = parts
        self._touched: dict[tuple[Group, tuple[int, ...]], dict[str, isl.Map]] = {}
        self._sizes: dict[tuple[str, Group, tuple[int, ...]], int] = {}

    def arranged(self, groups: Iterable[Group], successors: Mapping[int, set[int]]) -> tuple[Group, ...]:
        """The groups in an order to run in, each with the loops that it shares with the one before.

        Of those that could be next the first in the text that shares loops is taken, so that what lies between two
        groups of a nest does not part them: the sums over parts of a reduction, say, which nothing else waits for.
        """
        waiting = Waiting(groups, successors)
        found: list[_Nest] = []
        while ready := waiting.ready:
            near = [self._alone(group) for group in ready[: self.nesting.most_groups]]
            joined = next((n for n in (self._joined(found[-1], a) for a in near) if n), None) if found else None
            found[len(found) - bool(joined) :] = [joined or near[0]]
            waiting.run(found[-1].groups[-1])
        return tuple(group for nest in self._merged(found) for group in nest.done())

    def _merged(self, nests: Iterable[_Nest]) -> list[_Nest]:
        """The nests, those one behind the other joined where they can be.

        A group may touch nothing of the one before it, and the one behind it something of both.
        """
        found: list[_Nest] = []
        for nest in nests:
            found.append(nest)
            while len(found) > 1 and (joined := self._joined(*found[-2:])):
                found[-2:] = [joined]
        return found

    def _alone(self, group: Group) -> _Nest:
        whole = extents(coordinate_set(self.scop, self.clusters[group.root]))
        counts = tuple(-(-whole[m] // size) for m, size in zip(group.members, group.sizes, strict=True))
        return _Nest((group,), counts, ((1,) * len(counts),))

    def _joined(self, first: _Nest, second: _Nest) -> _Nest | None:
        """Two nests as one, over as many leading loops as can be; None if they should not be."""
        own = len(first.groups)
        joined = _over_the_same(first, second)
        if len(joined.groups) > self.nesting.most_groups:
            return None
        while self.nesting.suffice(volume(joined.points)):
            if joined.points[-1] > 1 and self._stays_inside(joined, own):
                own_panels = self._hands_parts_on(joined, own) or self._move(joined)
                return joined if own_panels and self._fits(joined, own) else None
            joined = joined.outer(len(joined.points) - 1)
        return None

    def _stays_inside(self, nest: _Nest, count: int) -> bool:
        """Whether what groups need of the first ``count`` was made at the same point."""
        groups = [*zip(nest.groups, nest.tiles, strict=True)]
        for (first, before), (second, points) in itertools.product(groups[:count], groups[count:]):
            for producer, consumer in itertools.product(first.clusters, second.clusters):
                if (producer, consumer) in self.conflicts or (consumer, producer) in self.conflicts:
                    return False
                need = self.needs.get((consumer, producer))
                if need is not None:
                    made, used = _at_points(first, producer, before), _at_points(second, consumer, points)
                    between = used.apply_range(need).apply_range(made.reverse())
                    if not between.is_subset(isl.Map.identity(between.get_space())):
                        return False
        return True

    def _hands_parts_on(self, nest: _Nest, count: int) -> bool:
        """Whether parts of sums go from the first groups to the others: all of them would take much memory."""
        written, read = set[str](), set[str]()
        for number, group in enumerate(nest.groups):
            for statement in (self.scop.by_name[s] for c in group.clusters for s in self.clusters[c].statements):
                if number < count:
                    written.add(statement.target)
                else:
                    read |= {storage_of(r) for r in statement.reads}
        return any(s in self.parts for s in written & read)

    def _move(self, nest: _Nest) -> bool:
        """Whether no contraction has an operand that all points read wholly.

        The panels of weights, say, are made once for all tiles of a nest of their own.
        """
        for group, tiles in zip(nest.groups, nest.tiles, strict=True):
            touched = self._touches(group, tiles)
            mains = [main_statement(self.scop, self.clusters[number]) for number in group.clusters]
            contracted = [m for m in mains if recognise_contraction(m) is not None]
            operands = {e.tensor for m in contracted for e in walk(m.value) if isinstance(e, Read)}
            if any(self._bytes(o, touched[o]) >= self.scop.storages[o].bytes for o in operands):
                return False
        return True

    def _fits(self, nest: _Nest, count: int) -> bool:
        """Whether groups touch what the first ``count`` do at the same point, and a cache holds what several touch."""
        each = [*zip(nest.groups, nest.tiles, strict=True)]
        users: dict[str, list[int]] = {}
        for number, (group, tiles) in enumerate(each):
            for storage in self._touches(group, tiles):
                users.setdefault(storage, []).append(number)
        moves, kept, left = False, 0, 0
        for storage, numbers in users.items():
            if len(numbers) == 1:
                continue
            maps = [self._touches(*each[n])[storage] for n in numbers]
            together = self._bytes(storage, functools.reduce(isl.Map.union, maps))
            kept, left = (kept, left + together) if storage in self.parts else (kept + together, left)
            if kept > self.nesting.most_bytes or left > self.nesting.most_left:
                return False
            whole = self.scop.storages[storage].bytes
            if not moves and together < whole and numbers[0] < count <= numbers[-1]:
                moves = together <= max(self._bytes_of(storage, *each[n]) for n in numbers) < whole
        return moves

    def _bytes_of(self, storage: str, group: Group, tiles: tuple[int, ...]) -> int:
        """What a group touches of a storage at a point."""
        key = storage, group, tiles
        if key not in self._sizes:
            self._sizes[key] = self._bytes(storage, self._touches(group, tiles)[storage])
        return self._sizes[key]

    def _bytes(self, storage: str, touched: isl.Map) -> int:
        return volume(box_hull(touched).shape) * self.scop.storages[storage].dtype.itemsize

    def _touches(self, group: Group, tiles: tuple[int, ...]) -> dict[str, isl.Map]:
        """The elements of every storage that a group touches at each point."""
        if (group, tiles) not in self._touched:
            found: dict[str, isl.Map] = {}
            for number in group.clusters:
                points = isl.UnionMap.from_map(_at_points(group, number, tiles))
                instances = points.apply_range(coordinate_map(self.scop, self.clusters[number]).reverse())
                accesses: dict[str, list[isl.Map]] = {}
                for name in self.clusters[number].statements:
                    statement = self.scop.by_name[name]
                    for access in (statement.write, *statement.reads):
                        accesses.setdefault(storage_of(access), []).append(access.reset_tuple_id(isl.dim_type.out))
                for storage, maps in accesses.items():
                    rank = len(self.scop.storages[storage].box.extent)
                    touched = as_map(instances.apply_range(union_map(maps)), len(tiles), rank)
                    found[storage] = found[storage].union(touched) if storage in found else touched
            self._touched[group, tiles] = found
        return self._touched[group, tiles]


def _over_the_same(first: _Nest, second: _Nest) -> _Nest:
    """Two nests over the leading loops that can have the same number of points.

    Where one has more of them, so many of its points are one as make them as few as those of the other.
    """
    points, factors = [], []
    for one, other in zip(first.points, second.points, strict=False):
        fewest = min(one, other)
        pair = -(-one // fewest), -(-other // fewest)
        if (-(-one // pair[0]), -(-other // pair[1])) != (fewest, fewest):
            break
        points.append(fewest)
        factors.append(pair)
    tiles = [
        tuple(t * pair[side] for t, pair in zip(own, factors, strict=False))
        for side, nest in enumerate((first, second))
        for own in nest.tiles
    ]
    return _Nest((*first.groups, *second.groups), tuple(points), tuple(tiles))


def _at_points(group: Group, number: int, together: tuple[int, ...]) -> isl.Map:
    """The coordinates of a cluster at each point of the leading loops of its group, with so many tiles together."""
    tiles, loops = group.footprints[number].tiles, len(together)
    outer = tiles.project_out(isl.dim_type.in_, loops, tiles.dim(isl.dim_type.in_) - loops)
    return outer if max(together, default=1) == 1 else outer.apply_domain(points_of_tiles(together))


def points_of_tiles(together: tuple[int, ...]) -> isl.Map:
    """Tile to point of the loops that a group shares, where so many tiles along each of them are at one point."""
    names = [f"t{d}" for d in range(len(together))]
    points = [f"floor({name}/{count})" for name, count in zip(names, together, strict=True)]
    return isl.Map(f"{{ [{', '.join(names)}] -> [{', '.join(points)}] }}")
