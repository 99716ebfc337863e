"""Rules for PyTorch's images of another size: each axis is multiplied by a matrix that is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


@rule("aten._upsample_bilinear2d_aa.default", "aten._upsample_bicubic2d_aa.default")
def smoothed(
    b: Builder,
    n: Node,
    *,
    x: Value,
    output_size: Any,
    align_corners: bool,
    scales_h: float | None = None,
    scales_w: float | None = None,
) -> Value:
    """Made smaller without aliases: each pixel is a mean of all that lie in its place, with weights that fall off."""
    given = zip(x.shape[2:], n.shape[2:], (scales_h, scales_w), strict=True)
    falls, reach = (_tent, 1.0) if "bilinear" in n.operator else (_cubic, 2.0)
    return _by_matrices(b, n, x, [_smooth(*one, align_corners, falls, reach) for one in given])


def _tent(x: Matrix) -> Matrix:
    made: Matrix = np.maximum(1 - np.abs(x), 0)
    return made


def _cubic(x: Matrix) -> Matrix:
    """Keys' convolution kernel with -0.5, as of images that are made smaller."""
    a, x = -0.5, np.abs(x)
    near, far = ((a + 2) * x - (a + 3)) * x * x + 1, ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    made: Matrix = np.where(x < 1, near, np.where(x < 2, far, 0))
    return made


def _smooth(
    before: int, after: int, factor: float | None, corners: bool, falls: Callable[[Matrix], Matrix], reach: float
) -> Matrix:
    """Rows of weights of all pixels near a place, which add up to 1, as PyTorch counts them."""
    scale = 1 / factor if factor else before / after
    if corners:
        scale = (before - 1) / (after - 1) if after > 1 else 0.0
    support = reach * max(scale, 1.0)
    made = np.zeros((after, before), np.float32)
    for k in range(after):
        middle = scale * (k + 0.5)
        first, end = max(int(middle - support + 0.5), 0), min(int(middle + support + 0.5), before)
        weights = falls((np.arange(first, end) - middle + 0.5) / max(scale, 1.0))
        made[k, first:end] = weights / weights.sum()
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
