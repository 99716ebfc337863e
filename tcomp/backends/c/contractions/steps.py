"""One step of a register tile: what is loaded, what is multiplied, and in what order."""

from __future__ import annotations

from collections.abc import Iterator

from tcomp.backends.c.contractions.places import Operand
from tcomp.backends.c.vectors.types import vector_type
from tcomp.backends.c.vectors.widening import WIDENED, widened, widened_type
from tcomp.backends.dialect import C_STORAGE_TYPES, C_VALUE_TYPES, is_kept_as_bits
from tcomp.mapping.contraction.registertile import RegisterTile
from tcomp.values.operators import DType


def step_lines(
    tile: RegisterTile, operands: tuple[Operand, Operand], offsets: list[int], dtype: DType
) -> Iterator[str]:
    """The C text of a step, which adds products of a type to the accumulators (``cell``) of each row and vector.

    The vectors of a row begin at ``offsets``.
    """
    by_vectors = all(o.is_vector for o in operands)
    return (_vector_by_vector if by_vectors else _row_by_row)(tile, operands, offsets, dtype)


def cell(row: int, vector: int) -> str:
    """The register with the sums of a vector of a row."""
    return f"tc_c{row}_{vector}"


def forgotten(pointer: str, volatile: str = "") -> str:
    """The C statement after which a compiler does not know what it has read from there already.

    Kept in registers for steps to come, that would drive accumulators out of them.  A ``volatile`` one stays behind
    those before it: of accumulators that two versions of a tile load, gcc loaded some before both, kept them in memory
    while no register was to be used, and one of them there in the loop, which took twice as long.
    """
    return f'__asm__ {volatile}("" : "+r"({pointer}));'


def _row_by_row(
    tile: RegisterTile, operands: tuple[Operand, Operand], offsets: list[int], dtype: DType
) -> Iterator[str]:
    """One step, row by row: vectors that rows share are in registers meanwhile."""
    first, second = operands
    for o in operands:
        yield from _pointer(o)
        if not o.row:
            yield from _loads(o, 0, tile, offsets, dtype)
    for r in range(tile.rows):
        for o in operands:
            if o.row:
                yield from _loads(o, r, tile, offsets, dtype)
        for v in range(tile.vectors):
            yield f"{cell(r, v)} += {_part(first, r, v)} * {_part(second, r, v)};"


def _vector_by_vector(
    tile: RegisterTile, operands: tuple[Operand, Operand], offsets: list[int], dtype: DType
) -> Iterator[str]:
    """One step of two operands that are vectors: one of each is in a register at a time."""
    first, second = operands
    for o in operands:
        yield from _pointer(o)
        for r in range(tile.rows if o.row else 1):
            yield from _pointer_of_row(o, r)
    for v, offset in enumerate(offsets):
        for r in range(tile.rows):
            yield from (_load(o, r, v, offset, tile, dtype) for o in operands if o.row or not r)
            yield f"{cell(r, v)} += {_part(first, r, v)} * {_part(second, r, v)};"


def _loads(operand: Operand, row: int, tile: RegisterTile, offsets: list[int], dtype: DType) -> Iterator[str]:
    """One row of an operand, in registers."""
    if not operand.is_vector:
        c = C_VALUE_TYPES[dtype.name]
        yield f"const {c} {_part(operand, row, 0)} = {_scalar(operand, operand.offset(row, 0), dtype)};"
        return
    yield from _pointer_of_row(operand, row)
    yield from (_load(operand, row, v, offset, tile, dtype) for v, offset in enumerate(offsets))


def _pointer_of_row(operand: Operand, row: int) -> Iterator[str]:
    """Where a row is, if it may lie outside the tensor.

    gcc would else load the vectors of each row where it finds out, and keep those of all rows in memory.
    """
    if operand.bordered is not None:
        place, border = operand.bordered(row)
        address = border.address(place.text, operand.name)
        yield f"const {C_STORAGE_TYPES[place.dtype.name]} *{operand.name}{row} = {address};"
        yield forgotten(f"{operand.name}{row}")


def _load(operand: Operand, row: int, v: int, offset: int, tile: RegisterTile, dtype: DType) -> str:
    """One vector of an operand, in a register."""
    kept = not operand.row and tile.rows > 1
    pointer, row_of = (operand.name, row) if operand.bordered is None else (f"{operand.name}{row}", 0)
    loaded = _loaded(operand, f"{pointer} + {operand.offset(row_of, offset)}", dtype, tile.lanes, kept)
    return f"const {vector_type(dtype, tile.lanes)} {_part(operand, row, v)} = {loaded};"


def _pointer(operand: Operand) -> list[str]:
    """The C lines that declare where a step finds the first row of an operand, unless each row asks for its own."""
    if operand.bordered is not None:
        return []
    constant = "" if operand.again else "const "
    c = C_STORAGE_TYPES[operand.place.dtype.name]
    line = f"const {c} *{constant}{operand.name} = &{operand.place.text};"
    fetched = [f"__builtin_prefetch({operand.name} + {distance});" for distance in operand.ahead]
    return [line, *fetched, forgotten(operand.name)] if operand.again else [line, *fetched]


def _scalar(operand: Operand, offset: str, dtype: DType) -> str:
    text = f"{operand.name}[{offset}]"
    if is_kept_as_bits(operand.place.dtype):
        return f"tc_from_{operand.place.dtype}({text})"
    return text if operand.place.dtype == dtype else f"({C_VALUE_TYPES[dtype.name]}){text}"


def _loaded(operand: Operand, place: str, dtype: DType, lanes: int, kept: bool) -> str:
    """A vector of an operand, in a type; ``kept`` in a register, since gcc would rather read it for every use."""
    own = operand.place.dtype
    vector = vector_type(dtype, lanes)
    if own.name in WIDENED and own != dtype:
        wide = widened(place, own, lanes)
        return wide if widened_type(own) == dtype else f"__builtin_convertvector({wide}, {vector})"
    raw = f"*(const {'volatile ' if kept else ''}{vector_type(own, lanes)} *)({place})"
    return raw if own == dtype else f"__builtin_convertvector({raw}, {vector})"


def _part(operand: Operand, row: int, vector: int) -> str:
    """The register that holds what an operand gives to one cell."""
    row = row if operand.row else 0
    return f"{operand.name}{row}_{vector}" if operand.is_vector else f"{operand.name}{row}"
