"""Pass: deal the tiles of every cluster to the threads of a block.

Below the tile of a block each cluster becomes a sequence of phases.  A phase is a band of threads with serial point
loops below; whatever happens between phases happens in control flow that all threads of the block share, so that
barriers may stand there.  A reduction runs in one of three forms (``dealing.form_of``): element by element inside the
point loops; serially in each thread, its loop tiled around the phase so that operands can be fetched; or shared by
threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Items
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.grammar.tree.dataranges import ranges_of
from tcomp.mapping.fusion.groups import group_tree
from tcomp.mapping.gpu.atoms import atom_of, tile_of_atom, whole_steps_of_atoms
from tcomp.mapping.gpu.dealing import deal, sides_of, steps_at_a_time, tile_of_steps
from tcomp.mapping.gpu.rows.dealing import RowThreads, rows_of_threads
from tcomp.mapping.gpu.turns.dealing import Turning, deal_in_turns, rows_in_turns
from tcomp.mapping.machines.fitted.gputurns import TURNS
from tcomp.mapping.machines.gpu import Gpu
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.deals import Dealt, Phase, Share
from tcomp.mapping.plan.operations import TileOperation
from tcomp.mapping.plan.tree import Band, Mark, Sequence, Subtree
from tcomp.mapping.plan.values import Cluster, Footprint, Group, Plan
from tcomp.mapping.tiles.expand import tile_rows
from tcomp.mapping.tiles.footprint import box_hull
from tcomp.mapping.tiles.sizes import indices_of_ends, reduction_positions
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.unions import maps_of, union_map, union_set


def deal_to_threads(gpu: Gpu, plan: Plan, options: MappingOptions) -> Plan:
    """Give each cluster its phases, its point loops and its marks."""
    homes = {c: g for g in plan.groups for c in g.clusters}
    phases: dict[str, Phase] = {}
    operations: dict[str, TileOperation] = {}
    dealt: dict[int, Dealt] = {}

    single, rows = replace(options, matrix_units=False), rows_in_turns(gpu, plan, options)
    apart = {g.clusters for g in plan.groups if not g.turns and len(_shapes(gpu, plan, g, options)) > 1}

    shared = {g.clusters: rows_of_threads(gpu, plan, g, options) for g in plan.groups}

    def subtree(cluster: Cluster, footprint: Footprint) -> Subtree:
        group = homes[cluster.number]
        own = single if group.clusters in apart else options
        dealer = _Dealer(gpu, plan.scop, group, cluster, footprint, own, rows.get(cluster.number),
                         shared[group.clusters])  # fmt: skip
        tree = dealer.tree()
        phases.update(dealer.phases)
        operations.update(dealer.operations)
        dealt[cluster.number] = dealer.dealt
        return tree

    tree = group_tree(plan, subtree)
    return replace(plan, tree=tree, phases=phases, operations=operations, dealt=dealt)


def _shapes(gpu: Gpu, plan: Plan, group: Group, options: MappingOptions) -> set[tuple[int, ...]]:
    """How threads would be arranged for each cluster of a group: warps multiply only where that is one shape."""
    boxes = {c: tuple(max(1, e) for e in box_hull(group.footprints[c].tiles).shape) for c in group.clusters}
    return {deal(gpu, plan.scop, plan.clusters[c], box, options).shape for c, box in boxes.items()}


@dataclass(frozen=True, slots=True, eq=False)
class Position:
    """Where an instance of a statement lies in the tile of its cluster, coordinate by coordinate."""

    statement: ScopStatement
    offsets: isl.PwMultiAff
    dealt: Dealt

    def chunk(self, d: int) -> isl.PwAff:
        """The round of dealing."""
        own = self.dealt.deals[d]
        return self.offsets.get_at(d).scale_down_val(isl.Val(own.threads * own.vector)).floor()

    def thread(self, d: int) -> isl.PwAff:
        """The thread along the coordinate's dimension."""
        own = self.dealt.deals[d]
        within = self.offsets.get_at(d)
        if own.chunks > 1:
            within = within.mod_val(isl.Val(own.threads * own.vector))
        return within if own.vector == 1 else within.scale_down_val(isl.Val(own.vector)).floor()

    def element(self, d: int) -> isl.PwAff:
        """The element within a thread's share of one round."""
        own = self.dealt.deals[d]
        return self.offsets.get_at(d).mod_val(isl.Val(own.vector)) if own.threads > 1 else self.offsets.get_at(d)

    def index(self, position: int, divisor: int = 1, modulus: int | None = None) -> isl.PwAff:
        """An index of the statement, divided, or what is left of it."""
        local = isl.LocalSpace.from_space(self.statement.domain.get_space())
        aff = isl.PwAff.from_aff(isl.Aff.var_on_domain(local, isl.dim_type.set, position))
        aff = aff.intersect_domain(self.statement.domain)
        if modulus is not None:
            aff = aff.mod_val(isl.Val(modulus))
        return aff if divisor == 1 else aff.scale_down_val(isl.Val(divisor)).floor()


def positions(scop: Scop, group: Group, cluster: Cluster, footprint: Footprint, dealt: Dealt) -> dict[str, Position]:
    """The position in its tile of every statement of a cluster."""
    lower = isl.PwMultiAff.from_multi_aff(box_hull(footprint.tiles).lower)
    rows = maps_of(tile_rows(scop, cluster, footprint, group.sizes_of(cluster.number))) if group.members else []
    tiles = {m.get_tuple_name(isl.dim_type.in_): m for m in rows}
    found = {}
    for name in cluster.statements:
        statement = scop.by_name[name]
        coordinates = _pick(statement, cluster.coordinates[name])
        if name in tiles:
            tile = isl.PwMultiAff.from_map(tiles[name].intersect_domain(statement.domain))
        else:
            tile = _pick(statement, ())
        offsets = coordinates.sub(lower.pullback_pw_multi_aff(tile))
        found[name] = Position(statement, offsets, dealt)
    return found


def _pick(statement: ScopStatement, chosen: Items[int]) -> isl.PwMultiAff:
    """Instance to some of its indices."""
    names = [f"i{d}" for d in range(len(statement.indices))]
    text = f"{{ {statement.name}[{', '.join(names)}] -> [{', '.join(names[c] for c in chosen)}] }}"
    return isl.PwMultiAff.from_map(isl.Map(text).intersect_domain(statement.domain))


class _Dealer:
    """Builds the tree of one cluster."""

    def __init__(
        self,
        gpu: Gpu,
        scop: Scop,
        group: Group,
        cluster: Cluster,
        footprint: Footprint,
        options: MappingOptions,
        turning: Turning | None,
        threads: RowThreads | None,
    ) -> None:
        self.gpu = gpu
        self.scop = scop
        self.cluster = cluster
        self.options = options
        self.statements = [scop.by_name[s] for s in cluster.statements]
        box = tuple(max(1, e) for e in box_hull(footprint.tiles).shape)
        self.turning = turning
        if turning is not None:
            self.dealt = deal_in_turns(scop, group, cluster, turning)
        elif threads is not None:
            self.dealt = threads.deal(scop, cluster, box)
        else:
            self.dealt = deal(gpu, scop, cluster, box, options)
        single = turning is not None or self.dealt.form != "serial"
        self.atoms = None if single else tile_of_atom(gpu, scop, cluster, box, options)
        self.at = positions(scop, group, cluster, footprint, self.dealt)
        self.phases: dict[str, Phase] = {}
        self.operations: dict[str, TileOperation] = {}

    def tree(self) -> Subtree:
        """The phases of the cluster, in order."""
        match self.dealt.form:
            case "shared":
                return self._shared()
            case "serial":
                return self._in_order(self._serial_parts())
            case _:
                return self._in_order(self._elementwise(self.statements, self.options.point_fusion))

    def _in_order(self, parts: list[tuple[list[ScopStatement], Subtree]]) -> Subtree:
        return Sequence(tuple((union_set([s.domain for s in own]), tree) for own, tree in parts))

    def _elementwise(self, statements: list[ScopStatement], fusion: str) -> list[tuple[list[ScopStatement], Subtree]]:
        """One phase for all statements, or one for each."""
        together = [[s] for s in statements] if fusion == "min" else [statements]
        return [(own, self._phase(own, self._point_loops(own))) for own in together if own]

    def _serial_parts(self) -> list[tuple[list[ScopStatement], Subtree]]:
        parts: list[tuple[list[ScopStatement], Subtree]] = []
        rest: list[ScopStatement] = []
        for s in self.statements:
            if s.kind == "init":
                parts.append(([s], self._phase([s], self._point_loops([s]))))
            elif s.kind == "update":
                parts.append(([s], self._update(s)))
            else:
                rest.append(s)
        return parts + self._elementwise(rest, self.options.point_fusion)

    def _update(self, statement: ScopStatement) -> Subtree:
        """The reduction's loops: tiles of steps around the phase, the steps and then the elements of a thread in it."""
        steps = reduction_positions(self.cluster, statement)
        at = self.at[statement.name]
        tiled = self._reduction_tiles(statement, steps)
        rows = [at.index(p) for p in steps]
        around, ends = list[isl.PwAff](), indices_of_ends(statement)
        for d, position in enumerate(self.cluster.coordinates[statement.name]):
            (around if statement.indices[position] in ends else rows).extend(self._serial_rows(at, d))
        rows = around + rows
        phase = self._phase([statement], _band([(statement, rows)], 0))
        if not tiled:
            return phase
        around, inner = ([at.index(p, size) for p, size in part] for part in self._nested(tiled))
        return _band([(statement, around)], 0, _band([(statement, inner)], 0, phase))

    def _nested(self, tiled: list[tuple[int, int]]) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """Tiles of steps in a band, and those in one inside: where warps multiply, the latter run ahead."""
        step = [] if self.atoms is None else [t for t in tiled if t[0] == self.atoms.sides.step]
        if not step and self.atoms is not None and self.atoms.atom.in_groups:
            step = tiled[-1:]  # of windows over few channels the innermost taps are the tiles
        return ([t for t in tiled if t not in step], step) if step else (tiled, [])

    def _reduction_tiles(self, statement: ScopStatement, steps: list[int]) -> list[tuple[int, int]]:
        """(position, size) of the reduction indices that are tiled, outermost first."""
        if not self.options.use_shared_memory or ranges_of(statement.value):
            return []
        both = sides_of(self.scop, self.cluster)
        if both is None and self.options.reduction_tile is None:
            return []
        sizes = statement.extents
        if self.atoms is not None:
            sides = self.atoms.sides
            own = {sides.step: self.atoms.steps} | {p: sizes[p] for p in sides.taps}
            return [(p, own.get(p, 1)) for p in steps if own.get(p, 1) < sizes[p]]
        if self.turning is not None:
            tiles = [(p, self._steps_of_a_turn(statement, sizes[p])) for p in steps]
            return [(p, size) for p, size in tiles if size < sizes[p]]
        left = steps_at_a_time(self.gpu, self.dealt, 0 if both is None else both.elements(self.dealt.box), self.options)
        tiled = []
        for p in reversed(steps):
            size = tile_of_steps(sizes[p], left)
            left //= size
            if size < sizes[p]:
                tiled.append((p, size))
        return tiled[::-1]

    def _steps_of_a_turn(self, statement: ScopStatement, extent: int) -> int:
        """Steps of a reduction that a turn takes at a time."""
        if self.turning is None or not self.turning.warps:
            return tile_of_steps(extent, TURNS.steps)
        atom = atom_of(self.gpu, self.scop, statement, self.options)
        assert atom is not None
        return whole_steps_of_atoms(atom, extent, TURNS.steps_by_warps)

    def _shared(self) -> Subtree:
        """Rounds of elements; in each, every stage is a phase, and the reduction's is a tile operation."""
        number = self.cluster.number
        parts: list[tuple[list[ScopStatement], Subtree]] = []
        rest: list[ScopStatement] = []
        for s in self.statements:
            if s.kind == "update":
                parts.append(([s], self._shared_update(s)))
            elif s.kind == "init" or not parts:
                parts.append(([s], self._phase([s], self._steps_inside(s))))
            else:
                rest.append(s)
        if rest:
            body = Sequence(tuple((isl.UnionSet.from_set(s.domain), self._steps_inside(s)) for s in rest))
            parts.append((rest, self._phase(rest, Mark(f"point{number}", body))))
        rounds = [(d, row) for d in range(self.cluster.rank) for row in self._rounds(d)]
        below: Subtree = Mark(f"round{number}", self._in_order(parts))
        if not rounds:
            return below
        return _band([(s, [row(self.at[s.name], d) for d, row in rounds]) for s in self.statements], len(rounds), below)

    def _rounds(self, d: int) -> list[Callable[[Position, int], isl.PwAff]]:
        """The loops over what one thread has along a coordinate, one element at a time."""
        own = self.dealt.deals[d]
        chunks: list[Callable[[Position, int], isl.PwAff]] = [Position.chunk] if own.chunks > 1 else []
        return [*chunks, Position.element] if own.vector > 1 and own.dimension is not None else chunks

    def _shared_update(self, statement: ScopStatement) -> Subtree:
        number = self.cluster.number
        at = self.at[statement.name]
        shares = {s.position: s for s in self.dealt.shares}
        rows = [row for p in reduction_positions(self.cluster, statement) for row in self._steps_of(at, p, shares)]
        operation = TileOperation(f"reduce{number}", "reduce", statement.name)
        self.operations[operation.mark] = operation
        return self._phase([statement], _band([(statement, rows)], 0), mark=operation.mark, shared=True)

    def _steps_of(self, at: Position, position: int, shares: Mapping[int, Share]) -> list[isl.PwAff]:
        """The loops over those steps of an index that one thread takes."""
        if position not in shares:
            return [at.index(position)]
        share = shares[position]
        rounds = at.index(position, share.threads * share.vector)
        if share.vector == 1:
            return [rounds]
        neighbours = at.index(position, 1, share.vector)
        return [rounds, neighbours] if at.statement.extents[position] > share.threads * share.vector else [neighbours]

    def _steps_inside(self, statement: ScopStatement) -> Subtree:
        steps = reduction_positions(self.cluster, statement)
        return _band([(statement, [self.at[statement.name].index(p) for p in steps])], 0) if steps else None

    def _point_loops(self, statements: list[ScopStatement]) -> Subtree:
        """The elements of one thread, all statements on each in turn."""
        number = self.cluster.number
        body = Sequence(tuple((isl.UnionSet.from_set(s.domain), self._steps_inside(s)) for s in statements))
        below = Mark(f"point{number}_{len(self.phases)}", body)
        parts = []
        for s in statements:
            at = self.at[s.name]
            parts.append((s, [row for d in range(self.cluster.rank) for row in self._serial_rows(at, d)]))
        return _band(parts, len(parts[0][1]), below)

    def _serial_rows(self, at: Position, d: int) -> list[isl.PwAff]:
        own = self.dealt.deals[d]
        if own.dimension is None:
            return [at.offsets.get_at(d)] if own.extent > 1 else []
        found = [at.chunk(d)] if own.chunks > 1 else []
        return [*found, at.element(d)] if own.vector > 1 else found

    def _phase(
        self, statements: list[ScopStatement], below: Subtree, mark: str | None = None, shared: bool = False
    ) -> Subtree:
        """A band of threads over ``below``; ``shared`` also deals the steps of the reduction."""
        name = mark or f"phase{self.cluster.number}_{len(self.phases)}"
        steps = statements[0].kind == "update" and not shared
        lanes = f"{'steps' if steps else 'lanes'}{self.cluster.number}_{len(self.phases)}"
        dealt = [(d, own.dimension) for d, own in enumerate(self.dealt.deals) if own.dimension is not None]
        dealt.sort(key=lambda pair: pair[1])
        parts = []
        for s in statements:
            at = self.at[s.name]
            rows = [at.thread(d) for d, _ in dealt]
            if shared:
                rows += [_share_of(at, x) for x in sorted(self.dealt.shares, key=lambda x: x.dimension)]
            parts.append((s, rows))
        dimensions = tuple(n for _, n in dealt)
        if shared:
            dimensions += tuple(sorted(x.dimension for x in self.dealt.shares))
        reads = frozenset(r.get_tuple_name(isl.dim_type.out) for s in statements for r in s.all_reads)
        writes = frozenset(s.target for s in statements)
        self.phases[name] = Phase(name, lanes, self.cluster.number, self.dealt.shape, dimensions, reads, writes)
        return Mark(name, _band(parts, len(dimensions), Mark(lanes, below)))


def _share_of(at: Position, share: Share) -> isl.PwAff:
    """The thread that takes a step."""
    own = at.index(share.position, 1, share.threads * share.vector)
    return own if share.vector == 1 else own.scale_down_val(isl.Val(share.vector)).floor()


def _band(parts: list[tuple[ScopStatement, list[isl.PwAff]]], coincident: int, child: Subtree = None) -> Subtree:
    """A band of rows given as functions on instances; ``child`` alone where there are none."""
    if not parts[0][1]:
        return child
    maps = []
    for statement, rows in parts:
        together = isl.Map.from_pw_aff(rows[0])
        for row in rows[1:]:
            together = together.flat_range_product(isl.Map.from_pw_aff(row))
        maps.append(together.intersect_domain(statement.domain))
    return Band(union_map(maps), coincident, child)
