"""What lies outside the tensors that a contraction reads, and when whole vectors of columns do."""

from __future__ import annotations

import math

from tcomp.grammar.tree.conversions import rounded
from tcomp.grammar.tree.forms import to_form
from tcomp.grammar.tree.function import Cast, Constant, Expr, Read, Unary, depends_on_data
from tcomp.mapping.plan.operations import recognise_contraction
from tcomp.mapping.tiles.strides import access_stride, coefficient
from tcomp.model.scop import Scop, ScopStatement


def has_whole_columns(scop: Scop, statement: ScopStatement, read: Read, index: str) -> bool:
    """Whether what a contraction reads beyond a boundary lies outside for all values of an index, or for none of them.

    Those are neighbours in memory: the channels of a pixel, say.  A vector of them then comes from the tensor, or
    from a row of what lies outside, and no copy need have both.
    """
    storage = scop.storages[read.tensor]
    if read.boundary is None or not has_border(read) or 0 in storage.box.extent:
        return False
    border = border_of(read)
    kept = not read.dtype.is_short_float and read.dtype.kind != "bool"
    plain = kept or (border == 0 and math.copysign(1, border) > 0)
    if border is not None and not plain:
        return False
    if recognise_contraction(statement) is None or any(map(depends_on_data, read.subscripts)):
        return False
    if access_stride(scop, read.tensor, read.subscripts, index, scop.sizes) != 1:
        return False
    moving = [d for d, s in enumerate(read.subscripts) if coefficient(s, index, scop.sizes) != 0]
    form = to_form(read.subscripts[moving[0]], scop.sizes) if len(moving) == 1 else None
    if form is None or form.terms != ((index, 1),) or storage.is_open(moving[0]):
        return False
    position, (d,) = statement.indices.index(index), moving
    ends = (end(position).to_python() for end in (statement.domain.dim_min_val, statement.domain.dim_max_val))
    first, last = (form.constant + end for end in ends)
    return bool(storage.box.origin[d] <= first and last < storage.box.origin[d] + storage.box.extent[d])


def has_border(read: Read) -> bool:
    """Whether what a read with a boundary gives outside is one number, or an element of the tensor."""
    assert read.boundary is not None
    return read.boundary.kind != "constant_exterior" or border_of(read) is not None


def border_of(read: Read) -> int | float | None:
    """The number that a read gives outside its tensor; None where it gives something else or nothing."""
    if read.boundary is None or read.boundary.kind != "constant_exterior" or read.boundary.value is None:
        return None
    return _number(read.boundary.value)


def _number(expr: Expr) -> int | float | None:
    match expr:
        case Constant():
            return expr.value
        case Unary(op="-"):
            value = _number(expr.operand)
            if value is None or expr.dtype.kind != "uint":
                return None if value is None else -value
            return -value % (expr.dtype.highest + 1)
        case Cast() if expr.dtype.is_float:
            value = _number(expr.operand)
            return None if value is None else rounded(value, expr.dtype)
        case _:
            return None
