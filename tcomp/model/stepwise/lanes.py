"""Tiles of rows that run side by side, each in a lane of vectors: blocks of steps over tensors of one dimension.

Tiles of a wave need nothing of each other, and all have one shape.  Where the elements of several lie interleaved, so
that row ``r`` of each is in one vector, neighbours are neighbouring vectors, and no vector is shuffled or loaded twice
(Henretty et al., CC 2011, interleave a row by itself in this way).  The rows go round: the last tile of a wave that has
moved takes the rows before its first, so that there are as many tiles in each wave.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tcomp.grammar.ranges.domains import StatementDomain
from tcomp.grammar.tree.forms import to_form
from tcomp.grammar.tree.function import (
    Binary,
    Call,
    Cast,
    Expr,
    Index,
    Read,
    Statement,
    Unary,
    depends_on_data,
    walk,
)
from tcomp.model.stepwise.pieces import Lanes, OwnRows, Piece, Pieces, Repeat
from tcomp.model.stepwise.views import Slice
from tcomp.values.operators import DType

_MOST_SLOTS = 8
"""Slices of a tensor that a tile keeps for itself, at most."""

_COUNTS = (2, 4, 8, 16)
_TYPES = ("float32", "float64", "int32", "uint32", "int64", "uint64")


@dataclass(frozen=True, slots=True)
class OfBlock:
    """What is asked about a block: its statements, as pieces see them, with the rows they write and their domains.

    ``step`` is that of the block, and ``values`` are those of the sizes.
    """

    statements: Sequence[Statement]
    slices: Mapping[str, Slice]
    rows: Sequence[str | int]
    domains: Sequence[StatementDomain]
    step: str
    values: Mapping[str, int]


def is_line(repeat: Repeat) -> bool:
    """Whether all that a block has are statements that write elements of tensors of one dimension."""
    piece = repeat.body[0] if len(repeat.body) == 1 else None
    if not isinstance(piece, Piece):
        return False
    ranks = {t.name: t.rank for t in (*piece.function.temporaries, *piece.function.outputs)}
    return all(ranks[s.target] == 1 for s in piece.function.statements)


def lanes_of(block: OfBlock, pieces: Pieces, vector_bytes: int, count: int = 0) -> Lanes | None:
    """How tiles of a block run in all lanes of vectors of so many bytes, or in ``count``; None where they may not."""
    own = _own_rows(block, pieces)
    if own is None:
        return None
    dtypes = {pieces.storages[rows.tensor].dtype for rows in own}
    written = [pieces.storages[block.slices[s.target].tensor].dtype for s in block.statements]
    if len(dtypes) != 1:
        return None
    (dtype,) = dtypes
    lanes = count or vector_bytes // dtype.itemsize
    if dtype.name not in _TYPES or lanes not in _COUNTS or any(kind != dtype for kind in written):
        return None
    spans = []
    for statement, row, domain in zip(block.statements, block.rows, block.domains, strict=True):
        plain = statement.reduction is None and not statement.scatters and statement.value.dtype == dtype
        if not plain or not domain.rectangular or any(map(depends_on_data, _subscripts(statement))):
            return None
        if isinstance(row, int):
            if any(index not in _steps(statement) for index in statement.indices):
                return None
            spans.append((row, row + 1))
            continue
        inside = [index for index in statement.indices if index not in _steps(statement)]
        if inside != [row] or not arithmetic_of_lanes(statement.value, row, dtype):
            return None
        low, high = domain.hull[row]
        spans.append((low, high + 1))
    return Lanes(lanes, tuple(own), tuple(spans))


def _steps(statement: Statement) -> set[str]:
    return {step.index for step in statement.steps}


def _subscripts(statement: Statement) -> list[Expr]:
    reads = [e for e in walk(statement.value) if isinstance(e, Read)]
    return [s for r in (*reads, *statement.exists) for s in r.subscripts]


def _own_rows(block: OfBlock, pieces: Pieces) -> list[OwnRows] | None:
    """What a tile keeps of each tensor; None where that is not a part of some rows."""
    reach: dict[tuple[str, tuple[object, ...]], list[int]] = {}
    facts: dict[tuple[str, tuple[object, ...]], tuple[Slice, int, int]] = {}
    written = {block.slices[s.target].tensor for s in block.statements}
    for statement, row in zip(block.statements, block.rows, strict=True):
        accesses = [(statement.target, statement.subscripts)]
        for read in walk(statement.value):
            if isinstance(read, Read):
                if read.boundary is not None:
                    return None
                accesses.append((read.tensor, read.subscripts))
        for view, subscripts in accesses:
            if view not in block.slices:
                return None
            cut = block.slices[view]
            storage = pieces.storages[cut.tensor]
            if storage.opened is not None or len(storage.strides) - len(cut.at) not in (0, 1):
                return None
            if len(storage.strides) == len(cut.at):
                if cut.tensor in written:
                    return None
                continue
            folded, kept = pieces.folds.get(cut.tensor, (-1, 1))
            others = tuple((d, form) for d, form in cut.at if d != folded)
            moves = any(block.step in dict(form.terms) for _, form in others)
            (dimension,) = set(range(len(storage.strides))) - {d for d, _ in cut.at}
            distance = _distance(subscripts, row, block.values)
            if moves or distance is None or dimension == folded or kept > _MOST_SLOTS:
                return None
            key = (cut.tensor, others)
            reach.setdefault(key, []).append(distance)
            facts[key] = Slice(cut.tensor, others), dimension, kept
    if sum(tensor in written for tensor, _ in reach) != len(written):
        return None  # two slices of what is written may be one
    found = []
    for named, distances in reach.items():
        own, dimension, kept = facts[named]
        before, behind = max(0, -min(distances)), max(0, *distances)
        found.append(OwnRows(own, dimension, kept, before, behind, own.tensor in written))
    return found


def _distance(subscripts: Sequence[Expr], row: str | int, values: Mapping[str, int]) -> int | None:
    """How many rows behind that of an instance the only subscript is."""
    if len(subscripts) != 1:
        return None
    form = to_form(subscripts[0], values)
    if form is None:
        return None
    if isinstance(row, int):
        return form.constant - row if not form.terms else None
    return form.constant if form.terms == ((row, 1),) else None


def arithmetic_of_lanes(value: Expr, row: str, dtype: DType) -> bool:
    """Whether a value, over lanes where it has the index ``row``, is arithmetic that vectors have."""
    if not any(isinstance(e, Index) and e.name == row for e in walk(value)):
        return value.dtype == dtype
    match value:
        case Read():
            return value.dtype == dtype
        case Unary(op="-"):
            operands: tuple[Expr, ...] = (value.operand,)
        case Binary(op="+" | "-" | "*" | "min" | "max"):
            operands = (value.lhs, value.rhs)
        case Binary(op="/") if dtype.is_float:
            operands = (value.lhs, value.rhs)
        case Call(intrinsic="abs" | "fabs") if dtype.is_float:
            operands = value.arguments
        case Call(intrinsic="relu"):
            operands = value.arguments
        case Cast():
            operands = (value.operand,)
        case _:
            return False
    return value.dtype == dtype and all(arithmetic_of_lanes(e, row, dtype) for e in operands)
