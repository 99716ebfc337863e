"""The benchmark's programs written in torch, as a user of torch would: what eager mode and torch.compile run.

Each function takes the inputs in the order of the program's parameters and returns its outputs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

Outputs = Tensor | tuple[Tensor, ...]


def _group_convolution(i: Tensor, weights: Tensor, bias: Tensor) -> Tensor:
    n, groups, channels, height, width = i.shape
    filters, (kernel_height, kernel_width) = weights.shape[1], weights.shape[3:]
    flat = weights.reshape(groups * filters, channels, kernel_height, kernel_width)
    image = i.reshape(n, groups * channels, height, width)
    result = functional.conv2d(image, flat, bias.reshape(-1), groups=groups)
    return result.reshape(n, groups, filters, *result.shape[2:])


def _mlp3(x: Tensor, w2: Tensor, b2: Tensor, w3: Tensor, b3: Tensor, w4: Tensor, b4: Tensor) -> tuple[Tensor, ...]:
    first = torch.relu(functional.linear(x, w2, b2))
    second = torch.relu(functional.linear(first, w3, b3))
    return first, second, torch.relu(functional.linear(second, w4, b4))


def _bag(table: Tensor, index: Tensor) -> Tensor:
    return functional.embedding_bag(index, table, mode="sum")


def _gathered(table: Tensor, index: Tensor) -> Tensor:
    return table[index].sum(1)


EAGER: dict[str, Callable[..., Outputs]] = {
    "mm": lambda a, b: a @ b,
    "tmm": lambda a, b: a @ b.t(),
    "tbmm": torch.bmm,
    "group_convolution": _group_convolution,
    "kronecker1": lambda w, x: torch.einsum("abcn,dn->abcd", x, w),
    "kronecker2": lambda w, x: torch.einsum("abnc,dn->abdc", x, w),
    "kronecker3": lambda w, x: torch.einsum("anbc,dn->adbc", x, w),
    "lut1": _bag,
    "lut2": lambda t1, i1, t2, i2: (_bag(t1, i1), _bag(t2, i2)),
    "mlp1": lambda x, w, b: torch.relu(torch.addmm(b, x, w)),
    "mlp3": _mlp3,
    "softmax": lambda x: torch.softmax(x, 1),
    "layer_norm": lambda x, gamma, beta: functional.layer_norm(x, x.shape[1:], gamma, beta, 1e-5),
}
"""By formula: the shortest way to say it in torch."""

FUSIBLE: dict[str, Callable[..., Outputs]] = EAGER | {
    "lut1": _gathered,
    "lut2": lambda t1, i1, t2, i2: (_gathered(t1, i1), _gathered(t2, i2)),
}
"""What torch.compile gets: where the shortest way is one opaque call, a form that it can fuse."""
