"""torch in eager mode: the shortest way to say each formula."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.cpu_case import Array, Case, Convolution, Einsum
from benchmarks.cpu_peer import Implementation, returning
from benchmarks.gpu_peers import EAGER

Function = Callable[..., Tensor]


def _blur(image: Tensor) -> Tensor:
    rows = (image[:, :-2] + image[:, 1:-1] + image[:, 2:]) * 0.33333334
    return (rows[:-2] + rows[1:-1] + rows[2:]) * 0.33333334


def _mlp3(x: Tensor, *layers: Tensor) -> Tensor:
    for weights, bias in zip(layers[::2], layers[1::2], strict=True):
        x = torch.relu(functional.linear(x, weights, bias))
    return x


def _gelu_layer(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return functional.gelu(torch.addmm(b, x, w), approximate="tanh")


def _group_norm(x: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    n, groups, channels, size = x.shape
    flat = x.reshape(n, groups * channels, size)
    return functional.group_norm(flat, groups, gamma.reshape(-1), beta.reshape(-1), 1e-5).reshape(x.shape)


def _batch_norm_relu(x: Tensor, mean: Tensor, spread: Tensor, gamma: Tensor, beta: Tensor) -> Tensor:
    return torch.relu(functional.batch_norm(x, mean, spread * spread, gamma, beta, eps=1e-5))


NAMED: dict[str, Callable[..., Any]] = {
    "layer": EAGER["mlp1"],
    "mlp3": _mlp3,
    "softmax": EAGER["softmax"],
    "log_softmax": lambda x: torch.log_softmax(x, 1),
    "layer_norm": EAGER["layer_norm"],
    "residual_norm": lambda x, y, gamma, beta: functional.layer_norm(x + y, x.shape[1:], gamma, beta, 1e-5),
    "rms_norm": lambda x, gamma: functional.rms_norm(x, x.shape[1:], gamma, 1e-5),
    "group_norm": _group_norm,
    "batch_norm_relu": _batch_norm_relu,
    "gelu_layer": _gelu_layer,
    "swiglu": lambda x, y: functional.silu(x) * y,
    "blur": _blur,
    "lut": EAGER["lut1"],
    "relu_tanh": lambda a, b, c, d: torch.relu(a * b + c) * torch.tanh(d),
    "attention": lambda q, k, v: functional.scaled_dot_product_attention(q, k, v, scale=0.125),
    "column_means": lambda x: x.mean(0),
    "row_sums": lambda x: x.sum(1),
    "transpose": lambda x: x.t().contiguous(),
}
_PRODUCTS: dict[str, Function] = {
    "mk,kn->mn": lambda a, b: a @ b,
    "mk,nk->mn": lambda a, b: a @ b.t(),
    "km,kn->mn": lambda a, b: a.t() @ b,
    "km,nk->mn": lambda a, b: a.t() @ b.t(),
    "bnk,bkm->bnm": torch.bmm,
}


def _convolve(how: Convolution, image: Tensor, kernel: Tensor, bias: Tensor | None = None) -> Tensor:
    if how.group_axis:
        assert bias is not None
        grouped: Tensor = EAGER["group_convolution"](image, kernel, bias)  # type: ignore[assignment]  # one output
        return grouped
    function = functional.conv1d if image.ndim == 3 else functional.conv2d
    if how.depthwise:
        return function(image, kernel[:, None], bias, stride=how.stride, dilation=how.dilation, groups=image.shape[1])
    return function(image, kernel, bias, stride=how.stride, dilation=how.dilation)


def in_torch(case: Case, named: Mapping[str, Callable[..., Any]]) -> Callable[..., Any]:
    """The case's formula as a function of tensors."""
    match case.formula:
        case Einsum() if case.output_dtype == "int32":
            return torch._int_mm
        case Einsum(subscripts):
            return _PRODUCTS.get(subscripts) or functools.partial(torch.einsum, subscripts)
        case Convolution() as how:
            return functools.partial(_convolve, how)
        case str(name):
            return named[name]
    raise AssertionError(case.formula)


class Torch:
    """Results are new tensors each time."""

    version = torch.__version__

    def build(self, case: Case, inputs: list[Array]) -> Implementation | None:
        """Every case has a formula."""
        function, tensors = in_torch(case, NAMED), [torch.from_numpy(a) for a in inputs]

        @torch.no_grad()
        def call() -> Any:
            return function(*tensors)

        return returning(call, lambda result: result.numpy())


def peer() -> Torch:
    """This process's torch."""
    return Torch()
