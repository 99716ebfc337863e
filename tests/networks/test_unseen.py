"""Networks of kinds that the rules were not written for: volumes, diffusion, decoders, scans, sampling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as f  # noqa: E402

import tcomp as tc  # noqa: E402


class Apply(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Any) -> Any:
        return self.function(*arguments)


class Diffusion(nn.Module):
    """A block of a U-Net that removes noise: angles of a step in time, and attention between pixels."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.enter, self.time = nn.GroupNorm(4, 16), nn.Conv2d(16, 16, 3, padding=1), nn.Linear(32, 16)
        self.qkv, self.leave = nn.Conv2d(16, 48, 1), nn.Conv2d(16, 16, 1)

    def forward(self, x: Any, t: Any) -> Any:
        angles = t[:, None] * torch.exp(-torch.arange(16) * 0.5)[None]
        told = f.silu(torch.cat([angles.sin(), angles.cos()], -1))
        h = self.enter(f.silu(self.norm(x))) + self.time(told)[:, :, None, None]
        q, k, v = (z.flatten(2).transpose(1, 2) for z in self.qkv(h).chunk(3, 1))
        mixed = torch.softmax(q @ k.transpose(1, 2) * 0.25, -1) @ v
        return x + self.leave(mixed.transpose(1, 2).reshape(x.shape))


class Decoder(nn.Module):
    """A step of a decoder: places as rotations, a cache that grows, a gated layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.gate, self.down = (
            nn.RMSNorm(16),
            nn.Linear(16, 48),
            nn.Linear(16, 64),
            nn.Linear(32, 16),
        )

    def forward(self, x: Any, keys: Any, values: Any) -> Any:
        q, k, v = self.qkv(self.norm(x)).view(1, -1, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
        angles = torch.arange(4) * 0.1

        def turned(y: Any) -> Any:
            a, b = y[..., ::2], y[..., 1::2]
            return torch.stack([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1).flatten(
                -2
            )

        keys, values = torch.cat([keys, turned(k)], 2), torch.cat([values, v], 2)
        x = x + f.scaled_dot_product_attention(turned(q), keys, values).transpose(1, 2).reshape(x.shape)
        a, b = self.gate(x).chunk(2, -1)
        return x + self.down(f.silu(a) * b), keys, values


class Scan(nn.Module):
    """A selective scan, step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.mix = nn.Linear(6, 16), nn.Conv1d(8, 8, 4, groups=8, padding=3)
        self.ways, self.rates, self.leave = nn.Linear(8, 9), nn.Parameter(torch.rand(8, 4)), nn.Linear(8, 6)

    def forward(self, x: Any) -> Any:
        u, z = self.enter(x).chunk(2, -1)
        u = f.silu(self.mix(u.transpose(1, 2))[..., : u.shape[1]].transpose(1, 2))
        step, b, c = self.ways(u).split([1, 4, 4], -1)
        step = f.softplus(step)[..., None]
        decay, given = torch.exp(-step * torch.exp(self.rates)), step * b[:, :, None] * u[..., None]
        h, found = torch.zeros(x.shape[0], 8, 4), []
        for t in range(u.shape[1]):
            h = decay[:, t] * h + given[:, t]
            found.append((h * c[:, t, None]).sum(-1))
        return self.leave(torch.stack(found, 1) * f.silu(z))


def volumes() -> nn.Module:
    return nn.Sequential(
        nn.Conv3d(4, 8, (3, 1, 3), groups=2, stride=(1, 2, 1), padding=(1, 0, 1)), nn.BatchNorm3d(8), nn.ReLU(),
        nn.MaxPool3d(2, 1, ceil_mode=True), nn.ConvTranspose3d(8, 4, 3, stride=2, padding=1, output_padding=1),
        nn.AvgPool3d(3, 2, 1, count_include_pad=False),
    )  # fmt: skip


Y = torch.randn(1, 4, 6, 6, generator=torch.Generator().manual_seed(1))
PLACES = torch.rand(1, 3, 5, 2, generator=torch.Generator().manual_seed(2)) * 2.6 - 1.3
CHOSEN = torch.tensor([[0, 1, 3]]), torch.tensor([[5], [2]])

NETWORKS: dict[str, Callable[[], tuple[Any, tuple[Any, ...]]]] = {
    "diffusion": lambda: (Diffusion(), (torch.randn(2, 16, 4, 4), torch.tensor([3.0, 9.0]))),
    "decoder": lambda: (Decoder(), (torch.randn(1, 1, 16), torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8))),
    "scan": lambda: (Scan(), (torch.randn(2, 5, 6),)),
    "volumes": lambda: (volumes(), (torch.randn(1, 4, 5, 6, 7),)),
}
FUNCTIONS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "logsumexp": (lambda y: y.logsumexp((1, 2)), (Y,)),
    "local response": (lambda y: f.local_response_norm(y, 3), (Y,)),
    "product": (lambda y: y.prod(1), (Y,)),
    "gather": (lambda y, i: y.gather(1, i), (Y, torch.randint(0, 4, (1, 3, 5, 6)))),
    "scatter add and distances": (
        lambda y, i: torch.cdist(y.scatter_add(1, i, 2 * y[:, :3]), y + 0.5),
        (Y, torch.randint(0, 4, (1, 3, 6, 6))),
    ),
    "round": (
        lambda y: torch.round(2 * y) + torch.atan2(y, y + 1),
        (torch.cat([Y, torch.tensor(0.25).expand(Y.shape)]),),
    ),
    "remainder": (lambda y: (y % 0.7) + torch.fmod(y, y + 3) + torch.floor_divide(y, 0.3), (Y,)),
    "places together": (lambda y, i, j: y[:, i, j] + y[[[0]], :, [[1], [2]]].sum(), (Y, *CHOSEN)),
    "nearest": (lambda y, g: f.grid_sample(y, g, mode="nearest", align_corners=True), (Y, PLACES)),
    "linear": (lambda y, g: f.grid_sample(y, g, align_corners=False), (Y, PLACES)),
    "border": (lambda y, g: f.grid_sample(y, g, padding_mode="border", align_corners=True), (Y, PLACES)),
}


def agrees(module: Any, example: tuple[Any, ...]) -> None:
    with torch.no_grad():
        right = module.eval()(*example)
    net = tc.compile_network(module, *example)
    found = net(*example)
    for mine, other in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, right)), strict=True):
        assert np.linalg.norm(mine - other) < 1e-5 * np.linalg.norm(other)


@pytest.mark.parametrize(
    "name", [*(pytest.param(n, marks=pytest.mark.long) for n in ("diffusion", "decoder", "scan")), "volumes"]
)
def test_networks_agree_with_torch(name: str) -> None:
    torch.manual_seed(3)
    agrees(*NETWORKS[name]())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_agree_with_torch(name: str) -> None:
    function, example = FUNCTIONS[name]
    agrees(Apply(function), example)


def test_places_outside_are_an_error_of_the_call() -> None:
    net = tc.compile_network(Apply(lambda y, i: y[:, i, i]).eval(), Y, torch.tensor([[1, 2]]))
    with pytest.raises(tc.ShapeError, match="7"):
        net(Y, torch.tensor([[1, 7]]))
