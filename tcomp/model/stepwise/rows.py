"""Blocks whose steps go from each element to its neighbour in a row."""

from __future__ import annotations

from tcomp.grammar.tree.function import Call, Expr, walk
from tcomp.model.stepwise.cutting import Cutter
from tcomp.model.stepwise.pieces import Piece, Pieces, Repeat
from tcomp.values.intrinsics import INTRINSICS


def runs_along_rows(cutter: Cutter, pieces: Pieces, repeat: Repeat) -> bool:
    """Whether the only statement of a block makes each element from the one beside it, in each of several rows.

    Run step by step for all rows, it would touch a line of each for one element.
    """
    piece = repeat.body[0] if len(repeat.body) == 1 else None
    if not isinstance(piece, Piece) or len(piece.numbers) != 1:
        return False
    statement = cutter.function.statements[piece.numbers[0]]
    own = [dict(cut.at) for cut in piece.slices.values() if cut.tensor == statement.target]
    strides = pieces.storages[statement.target].strides
    if len(own) != 2 or own[0].keys() != own[1].keys() or not 0 < len(own[0]) < len(strides):
        return False
    along = [d for d, form in own[0].items() if repeat.index in dict(form.terms)]
    if len(along) != 1 or calls_much(statement.value):
        return False
    steps = [form.add(own[1][d], -1) for d, form in own[0].items()]
    distance = [form.constant for form in steps if form.constant]
    factor = dict(own[0][along[0]].terms)[repeat.index]
    beside = not any(form.terms for form in steps) and len(distance) == 1 and abs(distance[0]) == 1
    return beside and abs(factor * strides[along[0]]) == 1


def calls_much(value: Expr) -> bool:
    """Whether a value calls functions of more than an instruction or two: rows had better do that in vectors."""
    return any(isinstance(e, Call) and not INTRINSICS[e.intrinsic].keeps_integers for e in walk(value))
