"""The formulas of the CPU benchmark in the functions that NumPy and jax.numpy share.

In float64 they are the reference; in float32 they are what jax compiles, and what the NumPy peer runs where it has
nothing better.  Each takes the namespace and the inputs of a case in order.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.cpu_case import Array, Case, Convolution, Einsum

Formula = Callable[..., Any]
"""``(namespace, *inputs) -> output``"""

EPSILON = 1e-5
THIRD = 0.33333334


def _layer(xp: Any, x: Any, w: Any, b: Any) -> Any:
    return xp.maximum(x @ w + b, 0)


def _mlp3(xp: Any, x: Any, w2: Any, b2: Any, w3: Any, b3: Any, w4: Any, b4: Any) -> Any:
    for weights, bias in ((w2, b2), (w3, b3), (w4, b4)):
        x = xp.maximum(x @ weights.T + bias, 0)
    return x


def _softmax(xp: Any, x: Any) -> Any:
    weights = xp.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def _log_softmax(xp: Any, x: Any) -> Any:
    shifted = x - x.max(-1, keepdims=True)
    return shifted - xp.log(xp.exp(shifted).sum(-1, keepdims=True))


def _normalised(xp: Any, x: Any, axes: int | tuple[int, ...]) -> Any:
    centred = x - x.mean(axes, keepdims=True)
    return centred / xp.sqrt((centred * centred).mean(axes, keepdims=True) + EPSILON)


def _layer_norm(xp: Any, x: Any, gamma: Any, beta: Any) -> Any:
    return _normalised(xp, x, -1) * gamma + beta


def _residual_norm(xp: Any, x: Any, y: Any, gamma: Any, beta: Any) -> Any:
    return _layer_norm(xp, x + y, gamma, beta)


def _rms_norm(xp: Any, x: Any, gamma: Any) -> Any:
    return x / xp.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * gamma


def _group_norm(xp: Any, x: Any, gamma: Any, beta: Any) -> Any:
    return _normalised(xp, x, (2, 3)) * gamma[..., None] + beta[..., None]


def _batch_norm_relu(xp: Any, x: Any, mean: Any, spread: Any, gamma: Any, beta: Any) -> Any:
    shape = (-1, 1, 1)
    scale = (gamma / xp.sqrt(spread * spread + EPSILON)).reshape(shape)
    return xp.maximum((x - mean.reshape(shape)) * scale + beta.reshape(shape), 0)


def _gelu_layer(xp: Any, x: Any, w: Any, b: Any) -> Any:
    y = x @ w + b
    return 0.5 * y * (1 + xp.tanh(0.7978845608 * (y + 0.044715 * y * y * y)))


def _swiglu(xp: Any, x: Any, y: Any) -> Any:
    return x / (1 + xp.exp(-x)) * y


def _blur(xp: Any, image: Any) -> Any:
    rows = (image[:, :-2] + image[:, 1:-1] + image[:, 2:]) * THIRD
    return (rows[:-2] + rows[1:-1] + rows[2:]) * THIRD


def _relu_tanh(xp: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    return xp.maximum(a * b + c, 0) * xp.tanh(d)


def _attention(xp: Any, q: Any, k: Any, v: Any) -> Any:
    return _softmax(xp, q @ xp.swapaxes(k, 1, 2) * 0.125) @ v


NAMED: dict[str, Formula] = {
    "layer": _layer,
    "mlp3": _mlp3,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "layer_norm": _layer_norm,
    "residual_norm": _residual_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "batch_norm_relu": _batch_norm_relu,
    "gelu_layer": _gelu_layer,
    "swiglu": _swiglu,
    "blur": _blur,
    "lut": lambda xp, table, index: table[index].sum(1),
    "relu_tanh": _relu_tanh,
    "attention": _attention,
    "column_means": lambda xp, x: x.mean(0),
    "row_sums": lambda xp, x: x.sum(1),
    "transpose": lambda xp, x: x.T.copy(),
}
"""By the names that cases use."""


def convolve(how: Convolution, image: Array, kernel: Array, bias: Array | None = None) -> Array:
    """A convolution in NumPy: the windows, then a contraction for each group."""
    if how.depthwise:
        result: Array = np.einsum("nchwkl,ckl->nchw", _windows(how, image, kernel.shape[1:]), kernel)
        return result
    spatial = "hw"[: kernel.ndim - (3 if how.group_axis else 2)]
    reach = "kl"[: len(spatial)]
    windows = _windows(how, image, kernel.shape[-len(spatial) :])
    subscripts = f"nc{spatial}{reach},fc{reach}->nf{spatial}"
    if how.group_axis:
        groups = [np.einsum(subscripts, windows[:, g], kernel[g], optimize=True) for g in range(kernel.shape[0])]
        result = np.stack(groups, 1)
    else:
        result = np.einsum(subscripts, windows, kernel, optimize=True)
    if bias is not None:
        result += bias.reshape(bias.shape + (1,) * len(spatial))
    return result


def _windows(how: Convolution, image: Array, reach: tuple[int, ...]) -> Array:
    """A view that has, behind the axes of the image, those of the kernel."""
    axes = tuple(range(image.ndim - len(reach), image.ndim))
    widths = tuple(how.dilation * (extent - 1) + 1 for extent in reach)
    windows: Array = np.lib.stride_tricks.sliding_window_view(image, widths, axes)
    steps = (slice(None),) * axes[0] + (slice(None, None, how.stride),) * len(reach)
    return windows[(*steps, *(slice(None, None, how.dilation),) * len(reach))]


def in_numpy(case: Case) -> Callable[..., Array]:
    """The case's formula in NumPy, for inputs of any type of float."""
    match case.formula:
        case Einsum(subscripts):
            return lambda *inputs: np.einsum(subscripts, *inputs, optimize=True)
        case Convolution() as how:
            return functools.partial(convolve, how)
        case str(name):
            return functools.partial(NAMED[name], np)
    raise AssertionError(case.formula)


def reference(case: Case) -> Array:
    """What the case computes, in float64; sums of integers are exact there."""
    doubles = [i if i.dtype == np.int32 else i.astype(np.float64) for i in case.make_inputs()]
    result: Array = np.asarray(in_numpy(case)(*doubles), np.float64)
    return result
