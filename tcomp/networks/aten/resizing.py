"""Rules for PyTorch's images of another size: each axis is multiplied by a matrix that is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tcomp.networks.aten.choosing import gathered
from tcomp.networks.importing import Builder, Node, rule
from tcomp.networks.network import Value
from tcomp.networks.texts import layers

Matrix = np.ndarray[Any, np.dtype[np.float32]]


@rule("aten.upsample_bilinear2d.vec")
def bilinear(
    b: Builder, n: Node, *, x: Value, output_size: Any, align_corners: bool, scale_factors: Sequence[float] | None
) -> Value:
    given = scale_factors or (None, None)
    each = zip(x.shape[2:], n.shape[2:], given, strict=True)
    return _by_matrices(b, n, x, [_linear(*one, align_corners) for one in each])


def _linear(before: int, after: int, factor: float | None, corners: bool) -> Matrix:
    """Rows of the two nearest elements of each place, as PyTorch counts them."""
    if corners:
        where = np.arange(after) * ((before - 1) / (after - 1) if after > 1 else 0.0)
    else:
        where = np.maximum((np.arange(after) + 0.5) * (1 / factor if factor else before / after) - 0.5, 0)
    low = np.minimum(where.astype(int), before - 1)
    made = np.zeros((after, before), np.float32)
    np.add.at(made, (np.arange(after), low), 1 - (where - low))
    np.add.at(made, (np.arange(after), np.minimum(low + 1, before - 1)), where - low)
    return made


def adaptive(b: Builder, n: Node, x: Value) -> Value:
    """The mean of as many windows as the result has pixels, whose sizes differ by one."""
    matrices = []
    for before, after in zip(x.shape[2:], n.shape[2:], strict=True):
        made = np.zeros((after, before), np.float32)
        for k in range(after):
            first, end = k * before // after, -(-(k + 1) * before // after)
            made[k, first:end] = 1 / (end - first)
        matrices.append(made)
    return _by_matrices(b, n, x, matrices)


def _by_matrices(b: Builder, n: Node, x: Value, matrices: Sequence[Matrix]) -> Value:
    """Columns, then rows, of images ``N x C x H x W``."""
    rows, columns = (np.ascontiguousarray(matrix) for matrix in matrices)
    across = b.weight(f"{n.name}_columns", columns.T)
    narrow = replace(n, name=f"{n.name}_across", shape=(*x.shape[:3], columns.shape[0]))
    middle = b.call(narrow, layers.matmul(x.shape, across.shape), [x, across])
    down = b.weight(f"{n.name}_rows", rows)
    return b.call(n, layers.matmul(down.shape, middle.shape), [down, middle])


def nearest(b: Builder, n: Node, x: Value, factors: Sequence[float] | None) -> Value:
    """An image of other extents, each pixel of which is the nearest one before it, as PyTorch counts."""
    for axis in (2, 3):
        before, after = x.shape[axis], n.shape[axis]
        step = np.float32(1 / factors[axis - 2]) if factors else np.float32(before) / np.float32(after)
        places = np.minimum((np.arange(after, dtype=np.float32) * step).astype(np.int64), before - 1)
        shape = (*x.shape[:axis], after, *x.shape[axis + 1 :])
        inner = replace(n, name=f"{n.name}_axis{axis}", shape=shape) if axis == 2 else n
        x = gathered(b, inner, x, axis, b.weight(f"{n.name}_places{axis}", places))
    return x
