"""Which windows of contractions are worth a copy of their own, in which indices that run together lie together.

``K(h,w,f,c,kh,kw) +=! G(n,f,h,w) * I(n,c,h+kh,w+kw)`` has nine short columns where it could have one long one: in the
sums ``h+kh`` the columns meet the batch.  ``W(h,w,n,c,kh,kw) = I(n,c,h+kh,w+kw)`` ahead of it takes the sums away.
This is *im2col*, here only where both indices of a sum are those of results.  Where one is reduced over, as in
convolutions whose filters all places share, register tiles run along the image as it lies.
"""

from __future__ import annotations

import math

from tcomp.grammar.tree.function import Binary, Expr, Read
from tcomp.mapping.contraction.columns import step_cost
from tcomp.mapping.fusion.outlining import alone, can_outline, place_of
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.machines.fitted.cpufusion import UNFOLDING
from tcomp.mapping.plan.operations import Contraction, bare, indices_in, recognise_contraction
from tcomp.model.scop import Scop, ScopStatement

Unfolded = tuple[str, int, tuple[str, ...]]
"""A statement, the place of a window in its value, and the indices of the copy in order."""


def window_of(scop: Scop, statement: ScopStatement) -> Unfolded | None:
    """The window that keeps indices of a contraction apart, if only one of its operands is a window."""
    bundles, value = recognise_contraction(statement), statement.value
    if bundles is None or not isinstance(value, Binary) or statement.tile_rank or not statement.plain:
        return None
    windows = [r for r in (value.lhs, value.rhs) if isinstance(r, Read) and any(map(_is_sum, r.subscripts))]
    if len(windows) != 1:
        return None
    (window,) = windows
    other = bare(value.rhs if window is value.lhs else value.lhs)
    summed = {i for s in window.subscripts if _is_sum(s) for i in indices_in(s)}
    if not summed or summed & {*bundles.k} or not isinstance(other, Read):
        return None
    place, order = place_of(statement, window), _order(bundles, window, other)
    return (statement.name, place, order) if can_outline(scop, statement.name, place, order) else None


def is_worth_unfolding(machine: Machine, scop: Scop, trial: Scop, name: str) -> bool:
    """Whether a contraction gains more by its merged indices than the copy of the window costs.

    ``trial`` is the program with the copy, in which the indices are merged.
    """
    before, after = scop.by_name[name], trial.by_name[name]
    if len(after.indices) == len(before.indices):
        return False
    costs = [step_cost(s, alone(s, s.by_name[name]), machine.vector_bytes) for s in (scop, trial)]
    copied = trial.storages[next(s.target for s in trial.statements if s.name not in scop.by_name)]
    if copied.bytes > max(UNFOLDING.least_room, scop.tensor_bytes):
        return False
    uses = math.prod(before.extents) / math.prod(copied.box.extent)
    return costs[1] + UNFOLDING.copied / uses < UNFOLDING.most * costs[0]


def _is_sum(subscript: Expr) -> bool:
    return len(indices_in(subscript)) > 1


def _order(bundles: Contraction, window: Read, other: Read) -> tuple[str, ...]:
    """Batches as results have them, steps as the other operand has them, then what is the window's alone."""
    steps = list(dict.fromkeys(i for s in other.subscripts for i in bundles.k if i in indices_in(s)))
    left = [i for i in bundles.k if i not in steps]
    every = (*bundles.batch, *steps, *left, *bundles.m, *bundles.n)
    return tuple(i for i in every if i in indices_in(window))
