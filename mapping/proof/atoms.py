"""Proof that warps that multiply matrices have, where the instruction looks for it, what the statement says.

The text of a phase goes by its deals.  So the threads of the tree, the corners of copies and the places of results must
be those of the deals, instance by instance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import islpy as isl

from tcomp.mapping.gpu.matrices.products import Kept, Operand, Product
from tcomp.mapping.gpu.threads import ThreadMaps
from tcomp.mapping.machines.atoms import LANES_OF_COLUMNS, LANES_OF_ROWS
from tcomp.mapping.memory.places import Place, own_element
from tcomp.mapping.memory.references import access_of, unfolded_access
from tcomp.mapping.plan.deals import Phase
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.tiles.footprint import box_hull
from tcomp.model.scop import ScopStatement


@dataclass(frozen=True, slots=True, eq=False)
class Lanes:
    """The update of a phase, and where its instances are.

    ``offsets`` map them to their places in a tile, along the indices of rows and then of columns, ``steps`` to the step
    of the tile and the taps, ``threads`` to threads.
    """

    plan: Plan
    statement: ScopStatement
    product: Product
    marks: Mapping[str, Place]
    offsets: isl.Map
    steps: isl.Map
    threads: isl.Map

    @classmethod
    def of(cls, plan: Plan, phase: Phase, product: Product, marks: Mapping[str, Place], maps: ThreadMaps) -> Lanes:
        """The lanes of a phase whose clusters are dealt along rows and columns."""
        statement, sides = plan.scop.by_name[next(iter(marks[phase.mark].prefixes))], product.sides
        number, group = next((n, g) for n, g in enumerate(plan.groups) if phase.cluster in g.clusters)
        corner = box_hull(group.footprints[phase.cluster].tiles).lower
        around = f"turn{number}" if phase.cluster in group.turns else f"group{number}"
        tile = marks[around].prefixes[statement.name]
        coordinates = plan.clusters[phase.cluster].coordinates[statement.name]
        along = [coordinates.index(p) for p in (*sides.rows, *sides.columns)]
        own = _picked(statement, [coordinates[n] for n in along])
        lower = tile.apply_range(_some(isl.Map.from_multi_aff(corner), along))
        domain = statement.domain
        first = {p: domain.dim_min_val(p).to_python() for p in (sides.step, *sides.taps)}
        sizes = {sides.step: product.steps * product.atom.steps, **dict(product.taps)}
        steps = [f"(i{p} - {first[p]}) mod {sizes[p]}" for p in (sides.step, *sides.taps)]
        names = ", ".join(f"i{d}" for d in range(len(statement.indices)))
        of_steps = isl.Map(f"{{ {statement.name}[{names}] -> [{', '.join(steps)}] }}").intersect_domain(domain)
        return cls(plan, statement, product, marks, own.sum(lower.neg()), of_steps, maps.threads[statement.name])

    def hold(self) -> bool:
        """Whether results and operands are where the instruction looks for them."""
        return self._dealt() and self._stays() and self._held(self.product.row) and self._held(self.product.column)

    def _dealt(self) -> bool:
        """Whether the threads are those whose lanes have a place, and whose warps."""
        product = self.product
        across, terms = len(product.rows), list[str]()
        for n, deal in enumerate(product.rows[:-1]):
            if deal.dimension is not None:
                terms.append(f"{LANES_OF_ROWS * LANES_OF_COLUMNS * product.warps}*(o{n} mod {deal.threads})")
        terms.append(f"{LANES_OF_COLUMNS}*(o{across - 1} mod {LANES_OF_ROWS * product.warps})")
        terms.append(f"floor(o{across + len(product.columns) - 1}/2) mod {LANES_OF_COLUMNS}")
        names = ", ".join(f"o{n}" for n in range(across + len(product.columns)))
        lanes = isl.Map(f"{{ [{names}] -> [{' + '.join(terms)}] }}")
        return bool(self.offsets.apply_range(lanes).is_equal(self.threads))

    def _stays(self) -> bool:
        """Whether a result is in the register of its place."""
        product, target = self.product, self.product.target
        assert target.lower is not None
        along = [product.dimensions[p] for p in (*product.sides.rows, *product.sides.columns)]
        deals = (*product.rows, *product.columns)
        if any(target.shape[n] != deal.elements for n, deal in zip(along, deals, strict=True)):
            return False
        corner = self.marks[target.mark].prefixes[self.statement.name].apply_range(isl.Map.from_multi_aff(target.lower))
        element = own_element(self.statement.write, len(target.shape)).sum(corner.neg())
        return bool(_some(element, along).is_equal(self.offsets))

    def _held(self, operand: Operand | Kept) -> bool:
        """Whether the instruction finds an operand where it looks for it."""
        return self._kept(operand) if isinstance(operand, Kept) else self._fetched(operand)

    def _fetched(self, operand: Operand) -> bool:
        """Whether a copy has an operand at its place in the tile and its steps, along each of its dimensions."""
        (access,) = access_of(self.statement, operand.copy.storage, operand.copy.reads)
        (read,) = operand.copy.reads
        if read.boundary is not None:
            access = unfolded_access(self.plan.scop, self.statement, read)
        inside = self.marks[operand.copy.mark].prefixes[self.statement.name]
        corner = inside.apply_range(isl.Map.from_multi_aff(operand.copy.lower))
        sides = self.product.sides
        order = (*sides.rows, *sides.columns, sides.step, *sides.taps)
        places = [{order.index(p): c for p, c in own.items()} for own in operand.places]
        return self._lies(access, corner, list(range(len(places))), places)

    def _kept(self, operand: Kept) -> bool:
        """Whether threads keep an operand at its row, and at its step of the tile."""
        buffer = operand.buffer
        assert buffer.lower is not None
        (access,) = access_of(self.statement, buffer.storage, (operand.read,))
        prefix = self.marks[buffer.mark].prefixes[self.statement.name]
        corner = prefix.apply_range(isl.Map.from_multi_aff(buffer.lower))
        step = len(self.product.rows) + len(self.product.columns)
        return self._lies(access, corner, [operand.side, operand.step], [{0: 1}, {step: 1}])

    def _lies(
        self, access: isl.Map, corner: isl.Map, dimensions: Sequence[int], places: Sequence[Mapping[int, int]]
    ) -> bool:
        """Whether an element lies, from a corner on, at its places: sums of offsets and steps, by their numbers."""
        element = _some(access.reset_tuple_id(isl.dim_type.out).sum(corner.neg()), dimensions)
        moving = self.offsets.flat_range_product(self.steps)
        names = ", ".join(f"o{n}" for n in range(moving.dim(isl.dim_type.out)))
        sums = [" + ".join(f"{c}*o{n}" for n, c in own.items()) or "0" for own in places]
        return bool(element.is_equal(moving.apply_range(isl.Map(f"{{ [{names}] -> [{', '.join(sums)}] }}"))))


def _picked(statement: ScopStatement, chosen: list[int]) -> isl.Map:
    """Instance to some of its indices."""
    names = [f"i{d}" for d in range(len(statement.indices))]
    text = f"{{ {statement.name}[{', '.join(names)}] -> [{', '.join(names[c] for c in chosen)}] }}"
    return isl.Map(text).intersect_domain(statement.domain)


def _some(of: isl.Map, chosen: Sequence[int]) -> isl.Map:
    """The map with some of its outputs, in that order."""
    names = [f"o{d}" for d in range(of.dim(isl.dim_type.out))]
    return of.apply_range(isl.Map(f"{{ [{', '.join(names)}] -> [{', '.join(names[c] for c in chosen)}] }}"))
