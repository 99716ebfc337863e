"""Operators that take parts, repeat, pad or have several results: in networks of today, against eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as f  # noqa: E402

import tcomp as tc  # noqa: E402


class Decoder(nn.Module):
    """One token through a layer with cached keys, by RMS norm and a gate."""

    def __init__(self, width: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.gamma = heads, nn.Parameter(torch.rand(width))
        self.qkv, self.up, self.down = nn.Linear(width, 3 * width), nn.Linear(width, 2 * width), nn.Linear(width, width)

    def forward(self, x: Any, keys: Any, values: Any) -> Any:
        normed = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.gamma
        q, k, v = self.qkv(normed).view(1, 3, self.heads, 1, -1).unbind(1)
        keys, values = torch.cat([keys[:, :, 1:], k], 2), torch.cat([values[:, :, 1:], v], 2)
        x = x + f.scaled_dot_product_attention(q, keys, values).reshape(1, -1)
        up, gate = self.up(x).chunk(2, -1)
        return x + self.down(f.silu(gate) * up), keys, values


class Shuffle(nn.Module):
    """ShuffleNet: halves of the channels, grouped convolution, channels dealt; then a pad and group norm."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.norm = nn.Conv2d(4, 4, 3, padding=1, groups=2), nn.GroupNorm(2, 8)

    def forward(self, x: Any) -> Any:
        left, right = x.split(4, 1)
        y = torch.cat([left, self.inner(right)], 1)
        n, c, h, w = y.shape
        y = y.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)
        return f.pad(self.norm(y), (1, 1, 0, 2), value=0.25).clamp(min=-0.5)


class Vision(nn.Module):
    """A vision transformer with a class token, repeated for the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.token = nn.Conv2d(3, 16, 4, 4), nn.Parameter(torch.rand(1, 1, 16))
        self.layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True)

    def forward(self, x: Any) -> Any:
        t = self.patches(x).flatten(2).transpose(1, 2)
        return self.layer(torch.cat([self.token.expand(t.shape[0], -1, -1), t], 1))[:, 0]


class Temporal(nn.Module):
    """A causal dilated convolution of a signal."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Conv1d(3, 8, 3, dilation=2, padding=4)

    def forward(self, x: Any) -> Any:
        return f.leaky_relu(f.elu(self.inner(x)[..., :-4]), 0.2)


class Upscale(nn.Module):
    """Sub-pixel convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Conv2d(3, 8, 7, 2, 3)

    def forward(self, x: Any) -> Any:
        return f.pixel_shuffle(self.inner(x), 2)


class Numbers(nn.Module):
    """Functions of elements, and of one number."""

    def forward(self, x: Any) -> Any:
        y = f.softplus(x) + f.mish(x) - (2.0 - x) * torch.erf(x).neg()
        return (
            torch.sqrt(y.abs() + 0.5) * y.clamp(max=0.7) + (y.abs() + 1).pow(1.5).log().sin() + y[:, ::2].sum(1, True)
        )


NETWORKS: dict[str, Callable[[], tuple[nn.Module, tuple[Any, ...]]]] = {
    "decoder": lambda: (Decoder(), (torch.randn(1, 16), torch.randn(1, 4, 7, 4), torch.randn(1, 4, 7, 4))),
    "shuffle": lambda: (Shuffle(), (torch.randn(2, 8, 6, 5),)),
    "vision": lambda: (Vision(), (torch.randn(2, 3, 8, 8),)),
    "temporal": lambda: (Temporal(), (torch.randn(2, 3, 12),)),
    "upscale": lambda: (Upscale(), (torch.randn(1, 3, 9, 9),)),
    "numbers": lambda: (Numbers(), (torch.randn(3, 5),)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_compute_what_eager_does(name: str) -> None:
    torch.manual_seed(2)
    module, example = NETWORKS[name]()
    module.eval()
    net = tc.compile_network(module, *example)
    with torch.no_grad():
        expected = module(*example)
    several = expected if isinstance(expected, tuple) else (expected,)
    for found in (net(*example), net.source.reference(*(x.numpy() for x in example))):
        results = found if isinstance(found, tuple) else (found,)
        for mine, theirs in zip(results, several, strict=True):
            wanted = theirs.numpy()
            assert tuple(mine.shape) == wanted.shape
            assert np.linalg.norm(np.asarray(mine) - wanted) < 1e-5 * np.linalg.norm(wanted)


class Continued(nn.Module):
    def forward(self, x: Any) -> Any:
        modes = ("reflect", "replicate", "circular")
        return tuple(f.pad(x, (1, 2, 3, 0), mode=mode) for mode in modes)


def test_padding_that_continues_an_image() -> None:
    x = torch.randn(1, 2, 4, 4)
    for found, right in zip(
        tc.networks.from_torch(Continued().eval(), x).reference(x.numpy()), Continued()(x), strict=True
    ):
        assert np.array_equal(found, right)
