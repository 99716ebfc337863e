"""The rules for Resize, each axis by a table of the elements that each result is made of, and for GridSample."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcomp.networks.importing import Array, rule
from tcomp.networks.network import Value, retyped
from tcomp.networks.onnx.operands import Constant, OnnxBuilder, OnnxNode, Operand
from tcomp.networks.texts.elements import at, indices
from tcomp.networks.texts.general import definition, tensor, typed
from tcomp.networks.texts.sampling import affine_grid, grid_sample


@dataclass(frozen=True, slots=True)
class Sampling:
    """How an axis is resized: what ONNX calls the attributes of Resize."""

    mode: str
    nearest_mode: str
    coordinates: str
    cubic: float
    exclude_outside: bool
    antialias: bool

    def taps(self, before: int, after: int, scale: float, start: float, end: float) -> tuple[Array, Array, Array]:
        """For each result the elements that it is made of, their weights, and whether it lies outside."""
        where = self._places(before, after, scale, start, end)
        if self.mode == "nearest":
            found = _NEAREST[self.nearest_mode](where).astype(np.int64)[:, None]
            return np.clip(found, 0, before - 1), np.ones((after, 1)), self._outside(where, before)
        first = np.floor(where)
        ratio = where - first
        shrink = min(scale, 1.0) if self.antialias else 1.0
        reach = 2 if self.mode == "cubic" else 1
        low = math.floor(-reach / shrink) + 1
        steps = (
            np.arange(low, low + 2 * reach - 2 * (low + reach - 1)) if shrink < 1 else np.arange(1 - reach, reach + 1)
        )
        distance = abs((steps[None] - ratio[:, None]) * shrink)
        weights = self._cubic(distance) if self.mode == "cubic" else np.maximum(0.0, 1.0 - distance)
        taken = first[:, None] + steps[None]
        if self.exclude_outside:
            weights = np.where((taken < 0) | (taken >= before), 0.0, weights)
        if self.exclude_outside or shrink < 1:
            weights = weights / weights.sum(1, keepdims=True)
        return np.clip(taken, 0, before - 1).astype(np.int64), weights, self._outside(where, before)

    def _outside(self, where: Array, before: int) -> Array:
        cropped = self.coordinates == "tf_crop_and_resize"
        return ((where < 0) | (where > before - 1)) & cropped

    def _cubic(self, d: Array) -> Array:
        a = self.cubic
        near = ((a + 2) * d - (a + 3)) * d * d + 1
        far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
        return np.where(d <= 1, near, np.where(d < 2, far, 0.0))

    def _places(self, before: int, after: int, scale: float, start: float, end: float) -> Array:
        """Where each result lies among the elements that there are.  Raises KeyError for what is not known."""
        i = np.arange(after, dtype=np.float64)
        length = scale * before
        half = (i + 0.5) / scale - 0.5
        offset = before / 2 * (1 - after / length)
        cropped = start * (before - 1) + i * (end - start) * (before - 1) / max(length - 1, 1)
        middle = np.full(after, 0.5 * (start + end) * (before - 1))
        return {
            "half_pixel": half,
            "half_pixel_symmetric": offset + half,
            "pytorch_half_pixel": half if after > 1 else 0 * i,
            "align_corners": i * (before - 1) / (length - 1) if length != 1 else 0 * i,
            "asymmetric": i / scale,
            "tf_crop_and_resize": cropped if after > 1 else middle,
        }[self.coordinates]


_NEAREST: dict[str, Callable[[Array], Array]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


@rule("onnx.Resize")
def resize(
    b: OnnxBuilder,
    n: OnnxNode,
    *,
    X: Operand,
    roi: Operand | None = None,
    scales: Operand | None = None,
    sizes: Operand | None = None,
    axes: Sequence[int] | None = None,
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    antialias: int = 0,
    keep_aspect_ratio_policy: str = "stretch",
) -> Any:
    rank = len(X.shape)
    dims = [n.axis(k, rank) for k in axes] if axes else list(range(rank))
    region = n.known(roi, "a region") if roi is not None and 0 not in roi.shape else None
    factors = n.known(scales, "scales") if scales is not None and 0 not in scales.shape else None
    if factors is None:
        wanted = n.integers(sizes, "sizes") or ()
        each = [after / X.shape[k] for after, k in zip(wanted, dims, strict=True)]
        if keep_aspect_ratio_policy != "stretch":
            each = [(min if keep_aspect_ratio_policy == "not_larger" else max)(each)] * len(each)
        factors = np.array(each)
    sampling = Sampling(
        mode, nearest_mode, coordinate_transformation_mode, cubic_coeff_a, bool(exclude_outside), bool(antialias)
    )
    made = X
    for position, (dim, scale) in enumerate(zip(dims, np.ravel(factors).tolist(), strict=True)):
        start, end = (region[position], region[position + len(dims)]) if region is not None else (0.0, 1.0)
        before, after = X.shape[dim], n.shape[dim]
        found, weights, outside = sampling.taps(before, after, scale, float(start), float(end))
        if outside.any():
            raise n.refuse("reads outside the region")
        if before == after and weights.shape[1] == 1 and (found[:, 0] == np.arange(after)).all():
            continue
        shape = (*made.shape[:dim], after, *made.shape[dim + 1 :])
        made = _resized(b, n, made, dim, shape, found, weights)
    return [made]


def _resized(
    b: OnnxBuilder, n: OnnxNode, x: Operand, dim: int, shape: tuple[int, ...], found: Array, weights: Array
) -> Operand:
    """One axis resized."""
    rank = len(shape)
    i = indices(rank)
    c, before, after = i[dim], x.shape[dim], shape[dim]
    left = at("Y", [*i])
    name = f"r{c}"
    whole = after // before
    if weights.shape[1] == 1:
        if after % before == 0 and (found[:, 0] == np.arange(after) // whole).all():
            line = f"{left} = {at('X', [f'{c}/S' if k == c else k for k in i])} where {c} in 0:S*{c.upper()}"
            made = definition(f"enlarge_{rank}d_axis{dim}", [f"{tensor(i)} X", "const int S"], "Y", [line])
            return b.make(n, retyped(made, x.dtype), [x], shape, name, S=whole)
        table = Constant(f"{n.name}_{c}_taken", found[:, 0].astype(np.int32))
        parameters = [f"{tensor([k.upper() if k != c else 'Z' for k in i], x.dtype)} X", f"int32({c.upper()}) I"]
        line = f"{left} = {at('X', [f'I({c})' if k == c else k for k in i])}"
        made = definition(typed(f"sample_{rank}d_axis{dim}", x.dtype), parameters, "Y", [line])
        return b.make(n, made, [x, table], shape, name)
    if x.dtype not in ("float32", "float64"):
        raise n.refuse(f"interpolates {x.dtype}")
    table = Constant(f"{n.name}_{c}_taken", found.astype(np.int32))
    shares = Constant(f"{n.name}_{c}_weight", weights.astype(x.dtype))
    parameters = [
        f"{tensor([k.upper() if k != c else 'Z' for k in i])} X",
        f"int32({c.upper()},K) I",
        f"float({c.upper()},K) V",
    ]
    line = f"{left} +=! {at('X', [f'I({c},k)' if k == c else k for k in i])} * V({c},k)"
    made = definition(f"interpolate_{rank}d_axis{dim}", parameters, "Y", [line])
    return b.make(n, retyped(made, x.dtype), [x, table, shares], shape, name)


@rule("onnx.GridSample")
def grid_sampled(
    b: OnnxBuilder, n: OnnxNode, *, X: Operand, grid: Operand, align_corners: int, mode: str, padding_mode: str
) -> Value:
    fits = len(X.shape) == 4 and mode in ("bilinear", "linear", "nearest") and padding_mode in ("zeros", "border")
    if not fits or {X.dtype, grid.dtype} != {"float32"}:
        raise n.refuse("reads volumes, by cubes, mirrored, or others than float32", "linear and nearest are known")
    return b.call(n, grid_sample(mode == "nearest", padding_mode == "border", bool(align_corners)), [X, grid])


@rule("onnx.AffineGrid")
def affine_gridded(b: OnnxBuilder, n: OnnxNode, *, theta: Operand, size: Operand, align_corners: int) -> Value:
    extents = (n.integers(size, "the size") or ())[2:]
    if theta.dtype != "float32":
        raise n.refuse(f"takes {theta.dtype}", "float32 is known")
    if theta.shape[1:] != (len(extents), len(extents) + 1):
        raise n.refuse(f"takes maps of {theta.shape[1:]} for {len(extents)} coordinates")
    constants = {f"Q{c}": extent for c, extent in zip("DHW"[3 - len(extents) :], extents, strict=True)}
    return b.call(n, affine_grid(len(extents), bool(align_corners)), [theta], **constants)
