"""Pass: tile the last cluster of a chain and pull its producers into the tiles (post-tiling fusion by footprint).

Working backwards, every cluster whose consumers all belong to a group is a candidate.  Its footprint decides: where no
instance belongs to two tiles it joins for free; where neighbours overlap, tile members on which the footprint does not
depend are given up (the grid shrinks, nothing is recomputed), and what overlap is left must stay under
``recompute_limit``.  Otherwise the intermediate is stored.

Where a target lets results leave, some consumers are enough: if each element is computed in one tile, what reads it
outside finds it in memory, and the cluster has no pass over memory of its own (``order.py`` sees that groups can run
one after another).  What a target calls alike needs no consumer inside: it joins what reads the same.
"""

from __future__ import annotations

from collections.abc import Mapping

import islpy as isl

from tcomp.mapping.fusion.aligning import sizes_like_parts
from tcomp.mapping.fusion.order import are_apart, leads_into
from tcomp.mapping.fusion.reading import (
    bytes_read,
    bytes_read_again,
    is_read_askew,
    is_spread,
    prepares,
    shared_storages,
)
from tcomp.mapping.fusion.tiling import Tiling, extents_of_tile, halved, worst
from tcomp.mapping.machines.fitted.cpufusion import FUSION
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.operations import recognise_contraction
from tcomp.mapping.plan.values import Footprint, Group, Plan
from tcomp.mapping.tiles.footprint import (
    box_hull,
    box_volume,
    coordinate_dependences,
    coordinate_set,
    follow,
    tiling,
    volume,
)
from tcomp.mapping.tiles.sizes import made_by, main_statement
from tcomp.mapping.tiles.splitting import is_part
from tcomp.mapping.tiles.strides import coefficient
from tcomp.model.scop import Scop
from tcomp.model.terms.unions import by_statements, extents, storage_of


class Fuser:
    """The facts about a plan that every candidate asks for."""

    def __init__(self, tiling: Tiling, plan: Plan, options: MappingOptions) -> None:
        self.tiling = tiling
        self.scop: Scop = plan.scop
        self.clusters = plan.clusters
        self.apart = {c.number for c in plan.clusters if options.of_parts.keys() & made_by(plan.scop, c)}
        self.options = options
        self._whole = options
        self.stored = plan.stored.union(*(p.storages for p in plan.parted))
        self.families = {storage: r.storages for r in plan.rescaled for storage in r.storages}
        home = {s: c.number for c in plan.clusters for s in c.statements}
        pairs = {(home[a], home[b]) for a, b in by_statements(plan.scop.dependences)}
        self.successors: dict[int, set[int]] = {c.number: set() for c in plan.clusters}
        for a, b in pairs:
            if a != b:
                self.successors[a].add(b)
        self._writers: dict[str, set[int]] = {}
        for c in plan.clusters:
            for s in c.statements:
                self._writers.setdefault(plan.scop.by_name[s].target, set()).add(c.number)
        memory = {(home[a], home[b]) for a, b in by_statements(plan.scop.anti.union(plan.scop.output))}
        self.conflicts = {pair for pair in memory if pair[0] != pair[1]}
        self.needs = coordinate_dependences(plan.scop, plan.clusters, plan.scop.flow)
        self.alike = tiling.alike(plan, options)
        self._followed = dict(self.needs)
        for pair, same in self.alike.items():
            self._followed[pair] = self.needs[pair].union(same) if pair in self.needs else same
        self.coordinates = {c.number: coordinate_set(plan.scop, c) for c in plan.clusters}
        outputs = {s.name for s in plan.scop.storages.values() if s.role != "temporary"}
        self._writing = {number for name, numbers in self._writers.items() if name in outputs for number in numbers}
        self.notes: list[str] = []
        self._handed_on: dict[int, dict[str, isl.Map]] = {}
        self._bytes: dict[Footprint, int] = {}
        self._known: dict[tuple[tuple[int, ...], tuple[int, ...]], dict[int, Footprint]] = {}

    def grow(self, root: int, free: set[int], formed: list[Group], sizes: tuple[int, ...] | None = None) -> Group:
        """The group of ``root`` with every producer among ``free`` that may join, where some are ``formed``.

        Tiles of the root alone have ``sizes``, if these are given.
        """
        cluster = self.clusters[root]
        self.options = self._whole.of_part(made_by(self.scop, cluster))
        self._known = {}
        members = tuple(range(cluster.rank))
        current = self._root_group(root, members, self._sizes(root, members) if sizes is None else sizes)
        if self.options.fusion_strategy == "min":
            return current
        inside = {root}
        for candidate in sorted(free - {root}, reverse=True):
            consumers = self.successors[candidate] & inside
            leaving = self.successors[candidate] - inside
            if consumers and candidate in self.apart:
                self._note(candidate, "it has options of its own")
                continue
            if (root, candidate) in self.alike:
                if not are_apart({candidate}, inside, formed, self.successors):
                    continue
            elif not consumers or (leaving and not self._may_leave(candidate, leaving, inside, formed)):
                continue
            if self._is_packed(candidate, consumers):
                self._note(candidate, "what reads it packs it, strides or boundaries included")
                continue
            if is_read_askew(self.scop, self.clusters, candidate, consumers):
                self._note(candidate, "what reads it moves along several of its dimensions at once")
                continue
            if is_spread(self.scop, self.clusters[candidate]):
                self._note(candidate, "its results are spread over elements, and have tiles of their own")
                continue
            if any((candidate, c) in self.conflicts for c in inside):
                continue
            if consumers and self._is_stored(candidate, root):
                continue
            joined = self._join(current, candidate, bool(leaving))
            if isinstance(joined, Group):
                current = joined
                inside = {*current.clusters}
            else:
                self._note(candidate, joined)
        stray = {c for c in current.expanded if not self._fellow_writers(c) <= set(current.clusters)}
        return self.grow(root, free - stray, formed, sizes) if stray else current

    def regrown(self, group: Group, formed: list[Group]) -> Group:
        """A group with tiles that read what tiles of another leave of parts of sums, if it can have them."""
        facts = self.tiling, self.scop, self.clusters, self.needs, self.families, self._whole
        wanted = next(filter(None, (sizes_like_parts(*facts, group, f) for f in formed if f is not group)), None)
        if wanted is None or self._whole.tile_sizes is not None:
            return group
        found = self.grow(group.root, {*group.clusters}, [f for f in formed if f is not group], wanted)
        return found if (found.clusters, found.sizes) == (group.clusters, wanted) else group

    def _note(self, candidate: int, why: str) -> None:
        names = " ".join(self.clusters[candidate].statements)
        self.notes.append(f"{names} stays outside the tiles of its consumers: {why}")

    def _may_leave(self, candidate: int, leaving: set[int], inside: set[int], formed: list[Group]) -> bool:
        """Whether a cluster may join a group beside which others read it: what they compute is not needed there.

        A contraction keeps the tiles that were made for it.
        """
        if not self.tiling.leaves or recognise_contraction(main_statement(self.scop, self.clusters[candidate])):
            return False
        return not leads_into(leaving, inside, formed, self.successors)

    def _is_packed(self, number: int, consumers: set[int]) -> bool:
        """Whether one of its consumers packs what a cluster computes: panels are made of what is in global memory."""
        written = {self.scop.by_name[s].target for s in self.clusters[number].statements}
        return any(self.tiling.packs(self.scop, self.clusters[c]) & written for c in consumers)

    def _is_stored(self, number: int, root: int) -> bool:
        """Whether a cluster's results must go to a later group, that of ``root`` or one behind it."""
        left = {self.scop.by_name[s].target for s in self.clusters[root].statements}
        targets = {self.scop.by_name[s].target for s in self.clusters[number].statements}
        return any(t in self.stored or not self.families.get(t, left) & left for t in targets)

    def _fellow_writers(self, number: int) -> set[int]:
        """Clusters that write a storage which this one writes: if tiles have copies of it, all must be inside."""
        targets = {self.scop.by_name[s].target for s in self.clusters[number].statements}
        return {c for target in targets for c in self._writers[target]}

    def _sizes(self, root: int, members: tuple[int, ...]) -> tuple[int, ...]:
        """The sizes of tiles of a root: what parts of sums left for one stays in half of a cache."""
        sizes = self.tiling.sizes(self.scop, self.clusters[root], members, self.options)
        if self.tiling.nesting is not None and self.families:
            while self._parts_read(root, members, sizes) > self.tiling.nesting.most_bytes // 2:
                sizes = halved(sizes) or sizes
        return sizes

    def _parts_read(self, root: int, members: tuple[int, ...], sizes: tuple[int, ...]) -> int:
        """Bytes that a tile reads of what parts of sums left; 0 for the smallest tile."""
        cluster = self.clusters[root]
        read = {storage_of(r) for s in cluster.statements for r in self.scop.by_name[s].reads} & self.families.keys()
        if not read or halved(sizes) is None:
            return 0
        footprint = self._root_group(root, members, sizes).footprints[root]
        return sum(bytes_read(self.scop, cluster, footprint, storage) for storage in read)

    def _root_group(self, root: int, members: tuple[int, ...], sizes: tuple[int, ...]) -> Group:
        tiles = tiling(self.clusters[root].rank, members, sizes).intersect_domain(self.coordinates[root]).reverse()
        return Group((root,), members, sizes, {root: Footprint(tiles, True, 1.0, ())})

    def _join(self, current: Group, candidate: int, leaving: bool) -> Group | str:
        """The group with ``candidate``, its grid shrunk and its tiles fitted as needed; else why it may not join.

        For one whose results leave the group, which have their place in memory anyway, tiles are not fitted.
        """
        order = (candidate, *current.clusters)
        members, sizes = current.members, current.sizes
        few = self._would_idle(current, candidate)
        if few is not None:
            return f"only {few} tiles would run in parallel, which leaves threads idle"
        growing = together = self.options.tile_sizes is None
        while True:
            trial = self._footprints(order, members, sizes)
            given_up = {d for f in trial.values() if f.ratio > 1 for d in f.free}
            if given_up:
                readers = set() if (order[-1], candidate) in self.alike else self.successors[candidate] & {*order}
                if growing and self.tiling.prepares and prepares(self.scop, self.clusters, candidate, readers):
                    return "it makes operands of a contraction, once for all tiles"
                shared = given_up if growing and together else set()
                fewer = self._apart(order, members, sizes, shared) or self._given_up(order, members, given_up, growing)
                if isinstance(fewer, str):
                    return fewer
                together = together and len(fewer[0]) < len(members)
                members, sizes = fewer
                continue
            inside = {*order}
            if not all(self._keeps_outputs(number, f, inside) for number, f in trial.items()):
                return "what others read would be written by several tiles, or in part"
            limit = self.options.recompute_limit
            if worst(trial) > limit:
                grown = self._grown(order, members, sizes, worst(trial)) if growing and not leaving else None
                if grown is None:
                    return f"its instances would run {worst(trial):.2f} times (recompute_limit is {limit:g})"
                sizes = grown
            elif self.tile_bytes(trial) <= self.tiling.tile_bytes:
                lower = self._fewer_rows(trial, members, sizes, (candidate, order[-1])) if growing else None
                if lower is None:
                    return self._too_small(trial, candidate, order[-1]) or Group(order, members, sizes, trial)
                sizes = lower
            else:
                growing = False
                smaller = None if leaving else halved(sizes)
                if smaller is None:
                    return f"a tile of it takes {self.tile_bytes(trial)} bytes, more than {self.tiling.tile_bytes}"
                sizes = smaller

    def _given_up(
        self, order: tuple[int, ...], members: tuple[int, ...], given_up: set[int], growing: bool
    ) -> tuple[tuple[int, ...], tuple[int, ...]] | str:
        """The members and sizes of a grid without those members that tiles share instances along; else why not."""
        root = order[-1]
        if self._loses_parts(root, {members[d] for d in given_up}):
            return "the parts of a reduction would run in one tile"
        members = tuple(m for d, m in enumerate(members) if d not in given_up)
        sizes = self._sizes(root, members)
        few = self._too_little_parallelism(root, members)
        if few is not None:
            return f"only {few} points of the loops over tiles could run in parallel"
        if growing and self.tiling.overflows(self.scop, self.clusters[root], members, sizes):
            return "no cache holds what their tiles would share"
        return members, sizes

    def _apart(
        self, order: tuple[int, ...], members: tuple[int, ...], sizes: tuple[int, ...], shared: set[int]
    ) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """The members, with sizes for which tiles that shared instances along some share none; None if there are none.

        Where clusters write every fourth row each, of what is the same for the four, tiles have multiples of four.
        """
        statements = [self.scop.by_name[s] for c in order for s in self.clusters[c].statements if shared]
        written = [(subscript, index) for s in statements for subscript in s.subscripts for index in s.indices]
        step = max((abs(coefficient(s, i, self.scop.sizes) or 0) for s, i in written), default=0)
        if step < 2:
            return None
        larger = tuple(-(-size // step) * step if d in shared else size for d, size in enumerate(sizes))
        full = [self._extents(order[-1])[m] for m in members]
        tiles = volume(tuple(-(-e // s) for e, s in zip(full, larger, strict=True)))
        if larger == sizes or tiles < self.tiling.parallel_instances:
            return None
        return (members, larger) if worst(self._footprints(order, members, larger)) <= 1 else None

    def _too_small(self, trial: Mapping[int, Footprint], candidate: int, root: int) -> str | None:
        """Why tiles that hold both take longer than tiles of each."""
        if self.tiling.starves(self.scop, self.clusters[candidate], extents_of_tile(trial[candidate])):
            return "their tiles are too narrow for what it reads"
        if self.options.tile_sizes is None:
            for number in (candidate, root):
                if self.tiling.rereads(self.scop, self.clusters[number], extents_of_tile(trial[number])):
                    return "tiles of both would be too low for the operand that all of them read"
        return None

    def _fewer_rows(
        self,
        trial: Mapping[int, Footprint],
        members: tuple[int, ...],
        sizes: tuple[int, ...],
        ends: tuple[int, int],
    ) -> tuple[int, ...] | None:
        """Smaller sizes, if a tile reads more than a cache keeps of what its first cluster and the others both read.

        The ``ends`` are the first cluster and the root.
        """
        first, root = ends
        most = self.tiling.kept_bytes
        smaller = self.tiling.fewer_rows(self.scop, self.clusters[root], members, sizes)
        if most is None or smaller is None:
            return None
        again = bytes_read_again(self.scop, self.clusters, trial, first, most)
        return smaller if again > most else None

    def _grown(
        self, order: tuple[int, ...], members: tuple[int, ...], sizes: tuple[int, ...], ratio: float
    ) -> tuple[int, ...] | None:
        """The sizes with that one doubled which saves most recomputation; None if none does, or too few tiles stay."""
        full = [self._extents(order[-1])[m] for m in members]
        best: tuple[float, tuple[int, ...]] | None = None
        for d, (extent, size) in enumerate(zip(full, sizes, strict=True)):
            larger = (*sizes[:d], min(extent, 2 * size), *sizes[d + 1 :])
            tiles = volume(tuple(-(-e // s) for e, s in zip(full, larger, strict=True)))
            if size >= extent or tiles < self.tiling.parallel_instances:
                continue
            found = worst(self._footprints(order, members, larger))
            if found < ratio and (best is None or found < best[0]):
                best = (found, larger)
        return None if best is None else best[1]

    def _footprints(
        self, order: tuple[int, ...], members: tuple[int, ...], sizes: tuple[int, ...]
    ) -> dict[int, Footprint]:
        """The footprint of each cluster of a group.

        A cluster joins only after all of its consumers, so its footprint stays what it is while the group grows.
        """
        root = order[-1]
        known = self._known.setdefault((members, sizes), {})
        if root not in known:
            known[root] = self._root_group(root, members, sizes).footprints[root]
        full = self._extents(root)
        count = 1.0
        for m, s in zip(members, sizes, strict=True):
            count *= max(1.0, full[m] / s)
        found: dict[int, Footprint] = {}
        for number in reversed(order):
            if number not in known:
                consumers = {c: f.tiles for c, f in found.items()}
                known[number] = follow(consumers, number, self._followed, self.coordinates[number], count)
            found[number] = known[number]
        return found

    def _would_idle(self, current: Group, candidate: int) -> int | None:
        """The tiles of a group, if they are for few threads where a cluster has work for many."""
        full = self._extents(current.root)
        tiles = volume(tuple(-(-full[m] // s) for m, s in zip(current.members, current.sizes, strict=True)))
        most = self.tiling.shared_instances
        if most is None or not self.options.parallel or tiles >= FUSION.few_tiles:
            return None
        instances = sum(box_volume(self.scop.by_name[s].domain) for s in self.clusters[candidate].statements)
        many = instances >= most and volume(self._extents(candidate)) >= self.tiling.parallel_instances
        return tiles if many else None

    def _loses_parts(self, root: int, given_up: set[int]) -> bool:
        """Whether what is given up tells the parts of a reduction, which are there for threads to share."""
        main = main_statement(self.scop, self.clusters[root])
        return is_part(main) and any(self.clusters[root].coordinates[main.name][d] == 0 for d in given_up)

    def _too_little_parallelism(self, root: int, members: tuple[int, ...]) -> int | None:
        """The points of the loops over tiles, if they are too few, or the strategy wants more of these loops."""
        full = self._extents(root)
        before, after = volume(full), volume(tuple(full[m] for m in members))
        if self.options.fusion_strategy == "preserve3coincident" and len(members) < min(3, len(full)):
            return after
        return None if after >= min(before, self.tiling.parallel_instances) else after

    def _extents(self, root: int) -> tuple[int, ...]:
        return extents(self.coordinates[root])

    def _keeps_outputs(self, number: int, footprint: Footprint, inside: set[int]) -> bool:
        """Whether each element that the cluster writes, and that is read outside, is written by exactly one tile."""
        if number not in self._writing and self.successors[number] <= inside:
            return True
        return footprint.partition and bool(self.coordinates[number].is_subset(footprint.tiles.range()))

    def tile_bytes(self, footprints: Mapping[int, Footprint]) -> int:
        """Bytes of the intermediates that one tile hands from cluster to cluster."""
        return sum(self._bytes_of(number, footprint) for number, footprint in footprints.items())

    def _bytes_of(self, number: int, footprint: Footprint) -> int:
        """What one cluster has of that; its footprint stays what it is while the group grows."""
        if footprint not in self._bytes:
            total = 0
            for storage, relation in self._shared(number).items():
                elements = footprint.tiles.apply_range(relation)
                total += volume(box_hull(elements).shape) * self.scop.storages[storage].dtype.itemsize
            self._bytes[footprint] = total
        return self._bytes[footprint]

    def _shared(self, number: int) -> dict[str, isl.Map]:
        if number not in self._handed_on:
            readers = self.successors[number]
            self._handed_on[number] = shared_storages(self.scop, self.clusters, number, readers)
        return self._handed_on[number]
