"""Pass: register tiles that a diagonal cuts also compute what the program lacks of them, and lose it.

Of ``C(i,j) += A(i,k) * B(j,k) where j in 0:i+1`` tiles on the diagonal have rows of different lengths.  Where sums
stand in a buffer of tcomp's own, nobody reads those that the program does not have, so all of a tile is computed as
one of those inside is, and results alone are cut.  (On a GPU, threads do so with tiles at the end of a problem.)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import islpy as isl

from tcomp.grammar.ranges.ranges import Box
from tcomp.grammar.tree.function import Expr, Read, depends_on_data, walk
from tcomp.mapping.memory.places import places
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.operations import TileOperation, recognise_contraction
from tcomp.mapping.plan.values import Buffer, Plan
from tcomp.model.accesses import Frame, box_set, element_map, elements_of
from tcomp.model.scop import ScopStatement
from tcomp.model.terms.unions import extents, storage_of


def overhang_diagonals(plan: Plan, options: MappingOptions) -> Plan:
    """Let register tiles be whole on diagonals, where they may."""
    found = {
        mark: replace(operation, overhang=True)
        for mark, operation in plan.operations.items()
        if may_overhang(plan, operation)
    }
    return replace(plan, operations={**plan.operations, **found}) if found else plan


def may_overhang(plan: Plan, operation: TileOperation) -> bool:
    """Whether tiles of a contraction may be computed as far as each index has values at all.

    Sums must be kept in a buffer that has room for them and holds nothing else there, operands must be in memory
    there, and the steps must be the same for every row and column of a tile.
    """
    statement = plan.scop.by_name[operation.statement]
    buffer = plan.buffers.get(statement.target)
    if operation.kind != "contract" or operation.atom or plan.phases or plan.scop.around is not None:
        return False
    if buffer is None or buffer.space not in ("tile", "global") or not statement.plain:
        return False
    if recognise_contraction(statement) is None or _own(statement, statement.domain).is_box():
        return False
    tile = _Tile.of(plan, operation) if _is_alone(plan, statement) else None
    return tile is not None and tile.holds_sums(buffer) and all(map(tile.finds, _reads(statement)))


def overhanging(plan: Plan) -> dict[str, tuple[tuple[int, int], ...]]:
    """Statements of which tiles are whole: of each index of their elements the least value, and the one behind the
    greatest, behind those of the tile that may stand in front.
    """
    found: dict[str, tuple[tuple[int, int], ...]] = {}
    for operation in plan.operations.values():
        if operation.overhang:
            statement = plan.scop.by_name[operation.statement]
            elements = found[statement.name] = _sides(statement)[: statement.coordinates]
            start = plan.scop.by_name.get(f"{statement.name}i")
            # What starts other elements, too, was not asked for its room.
            if start is not None and _sides(start) == elements:
                found[start.name] = elements
    return found


def _sides(statement: ScopStatement) -> tuple[tuple[int, int], ...]:
    lows = [statement.domain.dim_min_val(d).to_python() for d in range(len(statement.indices))]
    return tuple((low, low + extent) for low, extent in zip(lows, extents(statement.domain), strict=True))


def _own(statement: ScopStatement, instances: isl.Set) -> isl.Set:
    """Instances without the tile in front of their indices."""
    return instances.project_out(isl.dim_type.set, 0, statement.tile_rank)


def _reads(statement: ScopStatement) -> list[Read]:
    return [e for e in walk(statement.value) if isinstance(e, Read)]


def _hull(statement: ScopStatement) -> isl.Set:
    """All instances whose indices each have a value that some instance has."""
    hull = isl.Set.universe(statement.domain.get_space())
    for d, (low, high) in enumerate(_sides(statement)):
        hull = hull.lower_bound_val(isl.dim_type.set, d, isl.Val(low))
        hull = hull.upper_bound_val(isl.dim_type.set, d, isl.Val(high - 1))
    return hull


def _is_alone(plan: Plan, statement: ScopStatement) -> bool:
    """Whether no statement touches elements that whole tiles may have beside the sums of one."""
    boxes = {s.name: s.box for s in plan.scop.storages.values()}
    frame = Frame(_named(_hull(statement), statement), plan.scop.sizes, boxes)
    beside = element_map(frame, statement.target, statement.subscripts).range().subtract(statement.write.range())
    touched = [a for s in plan.scop.statements for a in (*s.all_reads, s.write) if storage_of(a) == statement.target]
    return all(access.range().intersect(beside).is_empty() for access in touched)


@dataclass(frozen=True, eq=False)
class _Tile:
    """The tiles of a contraction: ``instances`` has for each run of it all that are in the tile, or would be."""

    plan: Plan
    statement: ScopStatement
    instances: isl.Map

    @classmethod
    def of(cls, plan: Plan, operation: TileOperation) -> _Tile | None:
        """None where tiles are whole, or steps differ, or the tree does not say in which tile other instances are.

        Nor may what is added be the sum of an element that has other steps, which stand in other runs of the tile.
        """
        statement = plan.scop.by_name[operation.statement]
        prefix = next(p for p in places(plan.tree) if p.mark == operation.mark).prefixes[statement.name]
        everywhere = prefix.gist_domain(statement.domain)
        if not (everywhere.is_single_valued() and _hull(statement).is_subset(everywhere.domain())):
            return None
        if not everywhere.intersect_domain(statement.domain).is_equal(prefix):
            return None
        there = prefix.reverse()
        if not _joined(statement, there, there).is_equal(there):
            return None
        hull = everywhere.intersect_range(prefix.range()).reverse().intersect_range(_hull(statement))
        instances = _joined(statement, hull, there)
        added = _elements_of(statement, instances.subtract(there).range())
        if added.is_empty() or not added.is_disjoint(_elements_of(statement, statement.domain)):
            return None
        return cls(plan, statement, instances)

    def holds_sums(self, buffer: Buffer) -> bool:
        """Whether a buffer has room for the sums of whole tiles."""
        subscripts = self.statement.subscripts
        if buffer.space == "tile":
            return self._is_inside(subscripts, buffer.storage, buffer.lower, buffer.shape)
        room = box_set(buffer.storage, Box(buffer.origin, buffer.shape))
        return bool(self._elements(subscripts, buffer.storage).range().is_subset(room))

    def finds(self, read: Read) -> bool:
        """Whether an operand is in memory for all of a tile."""
        if any(map(depends_on_data, read.subscripts)):
            return False
        own = [c for c in self.plan.copies if c.statement == self.statement.name and read in c.reads]
        if own:
            return all(
                c.groups is None and self._is_inside(read.subscripts, read.tensor, c.lower, c.shape) for c in own
            )
        if read.boundary is not None:
            return False
        buffer, storage = self.plan.buffers.get(read.tensor), self.plan.scop.storages[read.tensor]
        in_memory = buffer is None or buffer.space == "global"
        there = box_set(storage.name, storage.box) if buffer is not None else elements_of(storage)
        return in_memory and bool(self._reaches(read).is_subset(there))

    def _reaches(self, read: Read) -> isl.Set:
        return self._elements(read.subscripts, read.tensor).range()

    def _elements(self, subscripts: tuple[Expr, ...], storage: str) -> isl.Map:
        """Run of the operation to the elements of a storage at some subscripts."""
        boxes = {s.name: s.box for s in self.plan.scop.storages.values()}
        frame = Frame(_named(_hull(self.statement), self.statement), self.plan.scop.sizes, boxes)
        return self.instances.apply_range(element_map(frame, storage, subscripts))

    def _is_inside(
        self, subscripts: tuple[Expr, ...], storage: str, lower: isl.MultiAff | None, shape: tuple[int, ...]
    ) -> bool:
        """Whether elements are in a box whose first one is an affine function of the loops around."""
        if lower is None:
            return False
        elements = self._elements(subscripts, storage).reset_tuple_id(isl.dim_type.out)
        inner = elements.dim(isl.dim_type.in_) - lower.dim(isl.dim_type.in_)
        corner = isl.Map.from_multi_aff(lower).insert_dims(isl.dim_type.in_, lower.dim(isl.dim_type.in_), inner)
        room = isl.Set.universe(corner.range().get_space())
        for d, extent in enumerate(shape):
            room = room.lower_bound_val(isl.dim_type.set, d, isl.Val(0))
            room = room.upper_bound_val(isl.dim_type.set, d, isl.Val(extent - 1))
        offsets = elements.sum(corner.neg())
        return bool(offsets.range().is_subset(room))


def _elements_of(statement: ScopStatement, instances: isl.Set) -> isl.Set:
    return instances.project_out(isl.dim_type.set, statement.coordinates, statement.reduction_rank)


def _joined(statement: ScopStatement, elements: isl.Map, steps: isl.Map) -> isl.Map:
    """For each run of an operation all pairs of elements and steps, where the two relations have instances."""
    count, rank = statement.coordinates, statement.reduction_rank
    left = elements.project_out(isl.dim_type.out, count, rank)
    right = steps.project_out(isl.dim_type.out, 0, count)
    return left.flat_range_product(right).set_tuple_name(isl.dim_type.out, statement.name)


def _named(points: isl.Set, statement: ScopStatement) -> isl.Set:
    for position, index in enumerate(statement.indices):
        points = points.set_dim_name(isl.dim_type.set, position, index)
    return points
