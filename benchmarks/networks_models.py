"""Networks that ``benchmarks.networks`` measures, with random weights, as modules of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as f


def block(
    before: int, after: int, kernel: int, stride: int = 1, groups: int = 1, act: Any = nn.ReLU
) -> list[nn.Module]:
    """A convolution, its norm and perhaps an activation."""
    conv = nn.Conv2d(before, after, kernel, stride, kernel // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(after), *([act()] if act else [])]


def head(channels: int) -> list[nn.Module]:
    """The mean of each channel and a thousand classes."""
    return [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)]


def mobilenet_v1() -> nn.Module:
    layers, width = block(3, 32, 3, 2), 32
    for after, stride in (
        (64, 1),
        (128, 2),
        (128, 1),
        (256, 2),
        (256, 1),
        (512, 2),
        *[(512, 1)] * 5,
        (1024, 2),
        (1024, 1),
    ):
        layers += [*block(width, width, 3, stride, width), *block(width, after, 1)]
        width = after
    return nn.Sequential(*layers, *head(width))


class Inverted(nn.Module):
    """Expand, depthwise, project; with the residual where it fits."""

    def __init__(self, before: int, after: int, stride: int, factor: int) -> None:
        super().__init__()
        wide = before * factor
        self.residual = stride == 1 and before == after
        enter = block(before, wide, 1, act=nn.ReLU6) if factor != 1 else []
        middle, leave = block(wide, wide, 3, stride, wide, nn.ReLU6), block(wide, after, 1, act=None)
        self.body = nn.Sequential(*enter, *middle, *leave)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.body(x)
        return x + y if self.residual else y  # type: ignore[no-any-return]


def mobilenet_v2() -> nn.Module:
    layers, width = block(3, 32, 3, 2, act=nn.ReLU6), 32
    rows = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
    for factor, after, count, stride in rows:
        for k in range(count):
            layers.append(Inverted(width, after, stride if k == 0 else 1, factor))
            width = after
    return nn.Sequential(*layers, *block(width, 1280, 1, act=nn.ReLU6), *head(1280))


class Bottleneck(nn.Module):
    """ResNet's block of three convolutions."""

    def __init__(self, before: int, middle: int, stride: int) -> None:
        super().__init__()
        after = 4 * middle
        self.body = nn.Sequential(
            *block(before, middle, 1), *block(middle, middle, 3, stride), *block(middle, after, 1, act=None)
        )
        same = stride == 1 and before == after
        self.short = nn.Identity() if same else nn.Sequential(*block(before, after, 1, stride, act=None))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.short(x))


def resnet_50() -> nn.Module:
    layers: list[nn.Module] = [*block(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    width = 64
    for middle, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for k in range(count):
            layers.append(Bottleneck(width, middle, stride if k == 0 else 1))
            width = 4 * middle
    return nn.Sequential(*layers, *head(width))


class BertLayer(nn.Module):
    """An encoder layer."""

    def __init__(self, width: int = 768, heads: int = 12) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            layer(x).view(*x.shape[:2], self.heads, -1).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        a = f.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)
        x = self.first(x + self.out(a))
        return self.second(x + self.down(f.gelu(self.up(x))))  # type: ignore[no-any-return]


class UNet(nn.Module):
    """Three levels of two convolutions each, down by pools, up by transposed convolutions and concatenations."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()

        def twice(before: int, after: int) -> nn.Module:
            return nn.Sequential(*block(before, after, 3), *block(after, after, 3))

        widths = [width, 2 * width, 4 * width, 8 * width]
        self.down = nn.ModuleList(twice(b, a) for b, a in zip([3, *widths], widths, strict=False))
        self.grow = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(widths[:-1]))
        self.up = nn.ModuleList(twice(2 * w, w) for w in reversed(widths[:-1]))
        self.leave = nn.Conv2d(width, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept: list[torch.Tensor] = []
        for level, layers in enumerate(self.down):
            x = layers(x if level == 0 else f.max_pool2d(x, 2))
            kept.append(x)
        for grow, layers, beside in zip(self.grow, self.up, reversed(kept[:-1]), strict=True):
            x = layers(torch.cat([beside, grow(x)], 1))
        return self.leave(x)  # type: ignore[no-any-return]


MAPS = ((20, 672), (10, 480), (5, 512), (3, 256), (2, 256), (1, 128))
"""The side and the channels of the images that SSDLite looks at."""


class Heads(nn.Module):
    """The boxes and classes of SSDLite: two separable convolutions for each of six maps."""

    def __init__(self, classes: int = 91) -> None:
        super().__init__()
        self.classes = classes
        self.heads = nn.ModuleList(
            nn.Sequential(
                *block(channels, channels, 3, groups=channels, act=nn.ReLU6), nn.Conv2d(channels, 6 * count, 1)
            )
            for _, channels in MAPS
            for count in (classes, 4)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        begun, made = 0, []
        for number, (side, channels) in enumerate(MAPS):
            count = channels * side * side
            image = x[:, begun : begun + count].view(-1, channels, side, side)
            begun += count
            scores, boxes = (
                self.heads[2 * number + k](image).permute(0, 2, 3, 1).reshape(x.shape[0], -1, size)
                for k, size in ((0, self.classes), (1, 4))
            )
            made.append(torch.cat([f.softmax(scores, 2), boxes], 2))
        return torch.cat(made, 1)


class Decoder(nn.Module):
    """A token through four layers of width 512, beside the keys and values of 255 tokens before it."""

    def __init__(self, width: int = 512, heads: int = 8, layers: int = 4) -> None:
        super().__init__()
        self.width, self.heads, self.layers = width, heads, layers
        each = [nn.Linear(width, 3 * width), nn.Linear(width, width), nn.Linear(width, 4 * width)]
        each += [nn.Linear(width, 4 * width), nn.Linear(4 * width, width)]
        self.parts = nn.ModuleList(
            nn.ModuleList(nn.Linear(one.in_features, one.out_features, bias=False) for one in each)  # type: ignore[attr-defined]
            for _ in range(layers)
        )
        self.scales = nn.ParameterList(torch.rand(width) + 0.5 for _ in range(2 * layers))
        self.cache = nn.ParameterList(torch.randn(1, heads, 255, width // heads) for _ in range(2 * layers))

    def _normed(self, x: torch.Tensor, number: int) -> torch.Tensor:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * self.scales[number]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for number, (inside, out, gate, up, down) in enumerate(self.parts):  # type: ignore[misc]
            parts = inside(self._normed(x, 2 * number)).view(x.shape[0], 1, 3, self.heads, -1)
            q, k, v = (parts[:, :, one].transpose(1, 2) for one in range(3))
            before = (self.cache[2 * number + one].expand(x.shape[0], -1, -1, -1) for one in range(2))
            keys, values = (torch.cat([old, new], 2) for old, new in zip(before, (k, v), strict=True))
            a = f.scaled_dot_product_attention(q, keys, values).transpose(1, 2).reshape(x.shape)
            x = x + out(a)
            y = self._normed(x, 2 * number + 1)
            x = x + down(f.silu(gate(y)) * up(y))
        return x


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mobilenet_v1": (mobilenet_v1, (3, 224, 224)),
    "mobilenet_v2": (mobilenet_v2, (3, 224, 224)),
    "resnet_50": (resnet_50, (3, 224, 224)),
    "bert_layer": (BertLayer, (128, 768)),
    "bert_4": (lambda: nn.Sequential(*(BertLayer() for _ in range(4))), (128, 768)),
    "unet": (UNet, (3, 128, 128)),
    "ssd_heads": (Heads, (sum(channels * side * side for side, channels in MAPS),)),
    "decoder": (Decoder, (1, 512)),
}
"""Each with the shape of an input without its batch."""


def made(name: str, batch: int = 1) -> tuple[nn.Module, torch.Tensor]:
    """A network in evaluation mode, the same each time, with statistics that are not those of a new one."""
    torch.manual_seed(0)
    build, shape = NETWORKS[name]
    return settled(build()), torch.randn(batch, *shape)


def settled(module: nn.Module) -> nn.Module:
    """A module in evaluation mode, with statistics that are not those of a new one."""
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm2d):
            nn.init.normal_(norm.running_mean, 0, 0.2)
            nn.init.uniform_(norm.running_var, 0.5, 2)
    return module.eval()
