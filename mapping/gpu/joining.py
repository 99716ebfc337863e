"""Rows of a box that lie one behind another in the tensor, copied as one run.

A box of 72 x 26 elements of a tensor with rows of 26 is 1872 elements in a row.  Vectors of four do not divide its
rows, but the run.  It lies in shared memory as in the tensor, so that vectors are whole there, too.
"""

from __future__ import annotations

import math
from dataclasses import replace

import islpy as isl

from tcomp.mapping.gpu.banks import fetch_order
from tcomp.mapping.machines.gpu import VECTOR_BYTES
from tcomp.mapping.plan.values import Copy
from tcomp.model.terms.storages import Storage


def joins_rows(copy: Copy, storage: Storage) -> bool:
    """Whether the vectors of a copy run on from row to row."""
    fastest = fetch_order(copy.shape, storage.strides)[-1] if copy.shape else 0
    return copy.vector > 1 and copy.shape[fastest] % copy.vector != 0


def run_of(shape: tuple[int, ...], storage: Storage) -> tuple[int, ...]:
    """The dimensions of a box that lie in one run, outermost first: all but the first are whole dimensions."""
    order = fetch_order(shape, storage.strides)
    run: list[int] = []
    step = 1
    for d in reversed(order):
        if storage.strides[d] != step and shape[d] > 1:
            break
        run.insert(0, d)
        step *= shape[d]
        if shape[d] != storage.box.extent[d]:
            break
    return tuple(run)


def joined(copy: Copy, storage: Storage) -> Copy | None:
    """The copy in whole vectors, with rows joined and as they lie; None where vectors would be half outside."""
    vector = VECTOR_BYTES // storage.dtype.itemsize
    order = tuple(fetch_order(copy.shape, storage.strides)) if copy.shape else ()
    candidate = replace(copy, order=order, padding=0, vector=vector)
    corners = isl.Map.from_multi_aff(copy.lower).range()
    several = len(run_of(copy.shape, storage)) > 1 and joins_rows(candidate, storage)
    return candidate if several and runs_are_whole(candidate, storage, corners) else None


def runs_are_whole(copy: Copy, storage: Storage, corners: isl.Set) -> bool:
    """Whether runs begin, and the tensor ends, at multiples of a vector; ``corners`` are the first elements of boxes.

    The copy must lie as in the tensor, without room between rows.
    """
    run, vector = run_of(copy.shape, storage), copy.vector
    if not run or copy.order != tuple(fetch_order(copy.shape, storage.strides)) or copy.padding or copy.step != 1:
        return False
    origin, extent, strides = storage.box.origin, storage.box.extent, storage.strides
    first = run[0]
    outside = [d for d in range(len(copy.shape)) if d not in run and extent[d] > 1]
    lengths = (math.prod(copy.shape[d] for d in run), extent[first] * strides[first], *(strides[d] for d in outside))
    if any(length % vector for length in lengths):
        return False
    names = [f"e{d}" for d in range(len(copy.shape))]
    begins = " + ".join(f"{strides[d]} * ({names[d]} - {origin[d]})" for d in run)
    inner = " and ".join(f"{names[d]} = {origin[d]}" for d in run[1:])
    condition = f"({begins}) mod {vector} = 0" + (f" and {inner}" if inner else "")
    return bool(corners.is_subset(isl.Set(f"{{ [{', '.join(names)}] : {condition} }}")))
