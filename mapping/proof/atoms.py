"""Proof that warps that multiply matrices have, where the instruction looks for it, what the statement says.

The text of a phase goes by its deals.  So the threads of the tree, the corners of copies and the places of results must
be those of the deals, instance by instance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import islpy as isl

from tcomp.mapping.gpu.matrices.products import Kept, Operand, Product
from tcomp.mapping.gpu.threads import ThreadMaps
from tcomp.mapping.machines.atoms import LANES_OF_COLUMNS, LANES_OF_ROWS
from tcomp.mapping.memory.places import Place, own_element
from tcomp.mapping.memory.references import access_of
from tcomp.mapping.plan.values import Buffer, Phase, Plan
from tcomp.mapping.tiles.footprint import box_hull
from tcomp.model.scop import ScopStatement


@dataclass(frozen=True, slots=True, eq=False)
class Lanes:
    """The update of a phase: ``offsets`` map its instances to row and column in a tile, ``threads`` to threads."""

    plan: Plan
    statement: ScopStatement
    marks: Mapping[str, Place]
    offsets: isl.Map
    threads: isl.Map

    @classmethod
    def of(cls, plan: Plan, phase: Phase, marks: Mapping[str, Place], maps: ThreadMaps) -> Lanes:
        """The lanes of a phase whose clusters are dealt along rows and columns."""
        statement = plan.scop.by_name[next(iter(marks[phase.mark].prefixes))]
        number, group = next((n, g) for n, g in enumerate(plan.groups) if phase.cluster in g.clusters)
        corner = box_hull(group.footprints[phase.cluster].tiles).lower
        around = f"turn{number}" if phase.cluster in group.turns else f"group{number}"
        tile = marks[around].prefixes[statement.name]
        coordinates = plan.clusters[phase.cluster].coordinates[statement.name]
        along = {d.dimension: n for n, d in enumerate(plan.dealt[phase.cluster].deals) if d.dimension is not None}
        both = [along[0], along[1]]
        own = _picked(statement, [coordinates[n] for n in both])
        lower = tile.apply_range(_some(isl.Map.from_multi_aff(corner), both))
        return cls(plan, statement, marks, own.sum(lower.neg()), maps.threads[statement.name])

    def hold(self, product: Product) -> bool:
        """Whether results and operands are where the instruction looks for them."""
        lanes = (
            f"{{ [r, c] -> [{LANES_OF_COLUMNS}*(r mod {LANES_OF_ROWS * product.warps})"
            f" + floor(c/2) mod {LANES_OF_COLUMNS}] }}"
        )
        dealt = self.offsets.apply_range(isl.Map(lanes)).is_equal(self.threads)
        sides = ((0, product.row), (1, product.column))
        steps = product.steps * product.atom.steps
        first, second = (self._step_of(self._access(o), o.step, steps) for _, o in sides)
        held = bool(dealt) and bool(first.is_equal(second)) and self._stays(product.target)
        return held and all(self._held(n, o, steps) for n, o in sides)

    def _held(self, side: int, operand: Operand | Kept, steps: int) -> bool:
        """Whether the instruction finds an operand where it looks for it."""
        return self._kept(side, operand, steps) if isinstance(operand, Kept) else self._fetched(side, operand, steps)

    def _stays(self, target: Buffer) -> bool:
        """Whether a result is in the register of its row and column."""
        assert target.lower is not None
        along = {d.dimension: n for n, d in enumerate(target.deals) if d.dimension is not None}
        both = [along[0], along[1]]
        if any(target.shape[n] != target.deals[n].elements for n in both):
            return False
        corner = self.marks[target.mark].prefixes[self.statement.name].apply_range(isl.Map.from_multi_aff(target.lower))
        element = own_element(self.statement.write, len(target.shape)).sum(corner.neg())
        return bool(_some(element, both).is_equal(self.offsets))

    def _access(self, operand: Operand | Kept) -> isl.Map:
        """Instance to the element of an operand that it reads."""
        if isinstance(operand, Kept):
            (access,) = access_of(self.statement, operand.buffer.storage, (operand.read,))
        else:
            (access,) = access_of(self.statement, operand.copy.storage, operand.copy.reads)
        return access

    def _fetched(self, side: int, operand: Operand, steps: int) -> bool:
        """Whether a copy has an operand at its row or column, and at its step of the tile."""
        inside = self.marks[operand.copy.mark].prefixes[self.statement.name]
        corner = inside.apply_range(isl.Map.from_multi_aff(operand.copy.lower))
        return self._lies(corner, side, operand, steps)

    def _kept(self, side: int, operand: Kept, steps: int) -> bool:
        """Whether threads keep an operand at its row, and at its step of the tile."""
        buffer = operand.buffer
        assert buffer.lower is not None
        prefix = self.marks[buffer.mark].prefixes[self.statement.name]
        return self._lies(prefix.apply_range(isl.Map.from_multi_aff(buffer.lower)), side, operand, steps)

    def _lies(self, corner: isl.Map, side: int, operand: Operand | Kept, steps: int) -> bool:
        """Whether an element lies, from a corner on, at its place along a side and at its step of a tile."""
        access = self._access(operand)
        element = access.reset_tuple_id(isl.dim_type.out).sum(corner.neg())
        found = _some(element, [operand.side, operand.step])
        expected = _some(self.offsets, [side]).flat_range_product(self._step_of(access, operand.step, steps))
        return bool(found.is_equal(expected))

    def _step_of(self, access: isl.Map, dimension: int, steps: int) -> isl.Map:
        """Instance to its step in a tile of so many."""
        own = _some(access.reset_tuple_id(isl.dim_type.out), [dimension])
        first = own.range().dim_min_val(0).to_python()
        return own.apply_range(isl.Map(f"{{ [s] -> [(s - {first}) mod {steps}] }}"))


def _picked(statement: ScopStatement, chosen: list[int]) -> isl.Map:
    """Instance to some of its indices."""
    names = [f"i{d}" for d in range(len(statement.indices))]
    text = f"{{ {statement.name}[{', '.join(names)}] -> [{', '.join(names[c] for c in chosen)}] }}"
    return isl.Map(text).intersect_domain(statement.domain)


def _some(of: isl.Map, chosen: list[int]) -> isl.Map:
    """The map with some of its outputs, in that order."""
    names = [f"o{d}" for d in range(of.dim(isl.dim_type.out))]
    return of.apply_range(isl.Map(f"{{ [{', '.join(names)}] -> [{', '.join(names[c] for c in chosen)}] }}"))
