"""Which contractions of narrow operands take several steps of the reduction at a time, and how operands lie for that.

Processors multiply groups of neighbouring integers and add the products to a lane of a sum.  A contraction may use that
if one index of its reduction subscripts both operands alone: groups are then consecutive values of it, brought together
in packed copies of both operands.  Nothing else is asked of the other indices, so products of matrices, batched and
transposed ones, tensor contractions and convolutions differ in nothing here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tcomp.grammar.tree.function import Binary, Cast, Expr, Index, Read, depends_on_data
from tcomp.mapping.contraction.borders import border_of
from tcomp.mapping.contraction.columns import Columns, depends_on, operands_of, step_when_packed
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.plan.layouts import MOST_DEPTH
from tcomp.mapping.plan.operations import bare, indices_in
from tcomp.mapping.plan.values import Cluster
from tcomp.mapping.tiles.sizes import main_statement
from tcomp.model.scop import Scop, ScopStatement
from tcomp.values.operators import BFLOAT16, FLOAT32, INT16, INT32, UINT32, DType

LANE_BYTES, BYTE = 4, 8
"""What a lane of a sum takes, and bits of the integers of which it takes four."""

LEAST_COLUMNS = 4
"""Columns, lanes of the narrowest vector, below which nothing is gained."""


@dataclass(frozen=True, slots=True)
class PackedOperand:
    """How an operand is packed: its elements become ``dtype``, their highest bits are inverted if ``flipped``, and
    ``summed`` says that their sums are needed."""

    read: Read
    dtype: DType
    flipped: bool = False
    summed: bool = False


@dataclass(frozen=True, slots=True)
class DotProduct:
    """A contraction that takes ``size`` steps of the reduction index at position ``step`` at a time.

    Instructions for matrices take ``depth`` times as many, the others, for which it is 0, no more.
    """

    step: int
    size: int
    panel: PackedOperand
    other: PackedOperand
    depth: int = 0

    @property
    def whole(self) -> int:
        """Steps that an instruction takes."""
        return self.size * max(1, self.depth)


def dot_product(scop: Scop, cluster: Cluster, columns: Columns | None, machine: Machine) -> DotProduct | None:
    """How a cluster's contraction takes several steps at a time; None where that is not possible on the machine."""
    main = main_statement(scop, cluster)
    operands = operands_of(main)
    if columns is None or columns.panel is None or operands is None:
        return None
    other = next((r for r in operands if r != columns.panel), None)
    if (
        other is None
        or not (_is_integral(main, scop) or _is_of_bfloat16(main, scop))
        or main.tile_rank
        or not main.domain.is_box()
    ):
        return None
    if any(depends_on_data(s) for r in operands for s in r.subscripts):
        return None
    if other.boundary is not None and border_of(other) is None:
        return None
    index, count = main.indices[columns.position], main.extents[columns.position]
    if count < LEAST_COLUMNS or step_when_packed(scop, columns.panel, index) is None:
        return None
    if columns.panel.boundary is not None and border_of(columns.panel) is None:
        return None
    if machine.matrix_tiles and _has_rows(scop, cluster, columns.panel):
        found = _of_matrices(scop, main, columns.panel, other)
        if found is not None:
            return found
    chosen = _packed(main, columns, columns.panel, other, machine)
    if chosen is None:
        return None
    panel, rows, size = chosen
    steps = list(_steps(scop, main, operands, size))
    return DotProduct(min(steps)[1], size, panel, rows) if steps else None


def _of_matrices(scop: Scop, main: ScopStatement, panel: Read, other: Read) -> DotProduct | None:
    """The product by instructions that multiply matrices of bytes of any signs, or of bfloat16; None for others."""
    size = LANE_BYTES // panel.dtype.itemsize
    same = panel.dtype == other.dtype == BFLOAT16 or panel.dtype.bits == other.dtype.bits == BYTE
    if not same or (panel.dtype == BFLOAT16 and any(border_of(r) for r in (panel, other))):
        return None
    steps = list(_steps(scop, main, (panel, other), size))
    if not steps:
        return None
    position = min(steps)[1]
    groups = -(-main.extents[position] // size)
    depth = -(-groups // -(-groups // MOST_DEPTH))
    if any(border_of(r) for r in (panel, other)):  # then nothing may be filled up
        depth = next(d for d in range(MOST_DEPTH, 0, -1) if groups % d == 0)
    return DotProduct(position, size, PackedOperand(panel, panel.dtype), PackedOperand(other, other.dtype), depth=depth)


def _has_rows(scop: Scop, cluster: Cluster, panel: Read) -> bool:
    """Whether several values of a coordinate read the same elements of a panel."""
    main = main_statement(scop, cluster)
    coordinates = cluster.coordinates[main.name]
    return any(main.extents[p] > 1 and not depends_on(scop, panel, main.indices[p]) for p in coordinates)


def _is_integral(main: ScopStatement, scop: Scop) -> bool:
    """Whether products of narrow integers are summed modulo 2^32."""
    value, dtype = main.value, scop.storages[main.target].dtype
    if dtype not in (INT32, UINT32) or not isinstance(value, Binary) or value.dtype != dtype:
        return False
    return all(bare(side).dtype.bits < dtype.bits and keeps_values(side) for side in (value.lhs, value.rhs))


def _is_of_bfloat16(main: ScopStatement, scop: Scop) -> bool:
    """Whether products of bfloat16 are summed in float32."""
    value = main.value
    if scop.storages[main.target].dtype != FLOAT32 or not isinstance(value, Binary) or value.dtype != FLOAT32:
        return False
    return all(isinstance(side, Cast) and side.operand == bare(side) and side.operand.dtype == BFLOAT16
               for side in (value.lhs, value.rhs))  # fmt: skip


def keeps_values(expr: Expr) -> bool:
    """Whether conversions of an integer change it by nothing but multiples of 2 to the width of the result."""
    width = expr.dtype.bits
    while isinstance(expr, Cast):
        source, result = expr.operand.dtype, expr.dtype
        if not (source.kind in ("int", "uint") and result.kind in ("int", "uint")):
            return False
        if result.bits < width and not holds(source, result):
            return False
        expr = expr.operand
    return True


def holds(source: DType, result: DType) -> bool:
    """Whether every value of a type is one of another."""
    if source == result or (source.is_float and result.is_float):
        return source == result or source.bits < result.bits
    inside = float(result.lowest) <= float(source.lowest) and float(source.highest) <= float(result.highest)
    return source.is_integer and result.is_integer and inside


def _packed(
    main: ScopStatement, columns: Columns, panel: Read, other: Read, machine: Machine
) -> tuple[PackedOperand, PackedOperand, int] | None:
    """The operands for the instruction that takes most steps at a time, and how many it takes.

    Integers of 8 bits must be of different signedness: else one operand is flipped, and sums of the other make up for
    that.
    """
    size = machine.products_in_a_lane(panel.dtype)
    if panel.dtype == BFLOAT16:
        fits = size and not any(border_of(r) for r in (panel, other))
        return (PackedOperand(panel, BFLOAT16), PackedOperand(other, BFLOAT16), size) if fits else None
    if size and panel.dtype.bits == other.dtype.bits == 8:
        if panel.dtype != other.dtype:
            return PackedOperand(panel, panel.dtype), PackedOperand(other, other.dtype), size
        if columns.step == 1 and _is_summable(main, panel):
            return PackedOperand(panel, panel.dtype, summed=True), PackedOperand(other, other.dtype, True), size
        if _is_summable(main, other):
            return PackedOperand(panel, panel.dtype, True), PackedOperand(other, other.dtype, summed=True), size
    size = machine.products_in_a_lane(INT16)
    if size and all(holds(r.dtype, INT16) for r in (panel, other)):
        return PackedOperand(panel, INT16), PackedOperand(other, INT16), size
    return None


def _is_summable(main: ScopStatement, read: Read) -> bool:
    """Whether some dimensions of an operand are the reduction, each index one of them, and the others have none."""
    steps = main.indices[main.coordinates :]
    found = [s.name for s in read.subscripts if isinstance(s, Index) and s.name in steps]
    mixed = any(not isinstance(s, Index) and indices_in(s) & set(steps) for s in read.subscripts)
    return sorted(found) == sorted(steps) and not mixed and read.boundary is None


def _steps(scop: Scop, main: ScopStatement, operands: tuple[Read, Read], size: int) -> Iterator[tuple[float, int]]:
    """The indices whose values may be grouped: the share of groups that zeros fill up, and the position."""
    sizes = main.extents
    for position in range(main.coordinates, len(main.indices)):
        extent, index = sizes[position], main.indices[position]
        if extent < 2 or any(step_dimension(r, index) is None for r in operands):
            continue
        whole = -(-extent // size) * size
        low = main.domain.dim_min_val(position).to_python()
        if all(_starts_inside(scop, r, index, low, extent) for r in operands) and (
            whole == extent or not any(border_of(r) for r in operands)
        ):
            yield whole / extent, position


def step_dimension(read: Read, index: str) -> int | None:
    """The dimension that an index subscripts alone, and no other; None if there is none."""
    found = [d for d, s in enumerate(read.subscripts) if index in indices_in(s)]
    alone = len(found) == 1 and isinstance(read.subscripts[found[0]], Index)
    return found[0] if alone else None


def _starts_inside(scop: Scop, read: Read, index: str, low: int, extent: int) -> bool:
    """Whether no value of an index reads outside the tensor, whatever others do."""
    dimension = step_dimension(read, index)
    assert dimension is not None
    box = scop.storages[read.tensor].box
    start = box.origin[dimension]
    return start <= low and low + extent <= start + box.extent[dimension]
