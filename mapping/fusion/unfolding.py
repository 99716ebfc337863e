"""Which operands of contractions are worth a copy, in which indices that run together lie together.

``C(y,v,p,u) +=! A(r,u,p,v) * B(y,r)`` has columns of ``u`` alone, though results run through ``v``, ``p`` and ``u`` as
one, for ``A`` has them in another order.  A copy ``(r,v,p,u)`` of ``A`` makes it a product of matrices.

``K(h,w,f,c,kh,kw) +=! G(n,f,h,w) * I(n,c,h+kh,w+kw)`` has nine short columns where it could have one long one: in the
sums ``h+kh`` the columns meet the batch.  ``W(h,w,n,c,kh,kw) = I(n,c,h+kh,w+kw)`` ahead of it takes the sums away.
This is *im2col*, here only where both indices of a sum are those of results.  Where one is reduced over, as in
convolutions whose filters all places share, register tiles run along the image as it lies.
"""

from __future__ import annotations

import math

from tcomp.grammar.tree.function import Binary, Expr, Index, Read, walk
from tcomp.mapping.contraction.columns import step_cost
from tcomp.mapping.fusion.outlining import alone, can_outline, place_of
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.machines.fitted.cpufusion import UNFOLDING
from tcomp.mapping.plan.operations import Contraction, bare, indices_in, recognise_contraction
from tcomp.mapping.tiles.strides import access_stride
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
    if window.dtype.bits < 32:
        return None
    other = bare(value.rhs if window is value.lhs else value.lhs)
    summed = {i for s in window.subscripts if _is_sum(s) for i in indices_in(s)}
    if not summed or summed & {*bundles.k} or not isinstance(other, Read):
        return None
    place, order = place_of(statement, window), _order(bundles, window, other)
    return (statement.name, place, order) if can_outline(scop, statement.name, place, order) else None


def orders_of(scop: Scop, statement: ScopStatement) -> list[tuple[Unfolded, ...]]:
    """Copies of one operand of a contraction, or of both, in which its indices follow one another as in the results."""
    bundles, value = recognise_contraction(statement), statement.value
    if bundles is None or not isinstance(value, Binary) or statement.tile_rank or not statement.plain:
        return []
    if any(side.dtype.bits < 32 for side in (value.lhs, value.rhs)):
        return []
    reads = [r for r in (value.lhs, value.rhs) if isinstance(r, Read) and _is_in_some_order(scop, r)]
    found = list[Unfolded]()
    for read in reads:
        place, order = place_of(statement, read), _as_results(scop, statement, bundles, read)
        if order != tuple(_in_memory(scop, read)) and can_outline(scop, statement.name, place, order):
            found.append((statement.name, place, order))
    return [*((u,) for u in found), *([tuple(found)] if len(found) == 2 else [])]


def cost_of_unfolding(machine: Machine, scop: Scop, trial: Scop, name: str) -> float | None:
    """What a step costs a contraction whose indices are merged, copies included; None where it is not worth that.

    ``trial`` is the program with the copies, in which the indices are merged.
    """
    before, after = scop.by_name[name], trial.by_name[name]
    if len(after.indices) == len(before.indices):
        return None
    costs = [step_cost(s, alone(s, s.by_name[name]), machine.vector_bytes) for s in (scop, trial)]
    copied = [trial.storages[s.target] for s in trial.statements if s.name not in scop.by_name]
    if sum(storage.bytes for storage in copied) > max(UNFOLDING.least_room, scop.tensor_bytes):
        return None
    copying = sum(_copying(trial, s) for s in trial.statements if s.name not in scop.by_name)
    cost = costs[1] + copying / math.prod(before.extents)
    return cost if cost < UNFOLDING.most * costs[0] else None


def _copying(scop: Scop, statement: ScopStatement) -> float:
    """What all vectors of a copy cost, which are turned where other elements lie together than before."""
    reads = [e for e in walk(statement.value) if isinstance(e, Read)]
    innermost = statement.indices[-1]
    along = all(access_stride(scop, r.tensor, r.subscripts, innermost, scop.sizes) == 1 for r in reads)
    return (UNFOLDING.copied if along else UNFOLDING.turned) * math.prod(scop.storages[statement.target].box.extent)


def _is_in_some_order(scop: Scop, read: Read) -> bool:
    """Whether a read takes an input as it is, its dimensions in some order."""
    names = [s.name for s in read.subscripts if isinstance(s, Index)]
    known = len({*names}) == len(read.subscripts) and read.boundary is None
    return known and scop.storages[read.tensor].role == "input" and not scop.storages[read.tensor].bound


def _in_memory(scop: Scop, read: Read) -> list[str]:
    """The indices of a read from the slowest to the fastest."""
    strides = scop.storages[read.tensor].strides
    names = [s.name for s in read.subscripts if isinstance(s, Index)]
    return [name for _, name in sorted(zip(strides, names, strict=True), key=lambda pair: -abs(pair[0]))]


def _as_results(scop: Scop, statement: ScopStatement, bundles: Contraction, read: Read) -> tuple[str, ...]:
    """Batches and own indices as the results have them; steps as they lie, between them, or last in rows."""
    steps = [i for i in _in_memory(scop, read) if i in bundles.k]
    results = [i for s in statement.subscripts if isinstance(s, Index) for i in (s.name,)]
    own = [i for i in results if i in indices_in(read) and i not in bundles.batch]
    batch = [i for i in results if i in bundles.batch]
    return (*batch, *steps, *own) if results[-1:] == own[-1:] else (*batch, *own, *steps)


def _is_sum(subscript: Expr) -> bool:
    return len(indices_in(subscript)) > 1


def _order(bundles: Contraction, window: Read, other: Read) -> tuple[str, ...]:
    """Batches as results have them, steps as the other operand has them, then what is the window's alone."""
    steps = list(dict.fromkeys(i for s in other.subscripts for i in bundles.k if i in indices_in(s)))
    left = [i for i in bundles.k if i not in steps]
    every = (*bundles.batch, *steps, *left, *bundles.m, *bundles.n)
    return tuple(i for i in every if i in indices_in(window))
