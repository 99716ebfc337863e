"""Small members of families of networks, written as their authors write them, and modules with odd operators."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as f

Tensors = tuple[torch.Tensor, ...]


def _block(before: int, after: int, kernel: int | tuple[int, int], pad: int | tuple[int, int] = 0) -> nn.Sequential:
    conv = nn.Conv2d(before, after, kernel, padding=pad, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(after, eps=1e-3), nn.ReLU(inplace=True))


class Fire(nn.Module):
    """SqueezeNet's block."""

    def __init__(self, before: int, narrow: int, wide: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(before, narrow, 1)
        self.one, self.three = nn.Conv2d(narrow, wide, 1), nn.Conv2d(narrow, wide, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = f.relu(self.squeeze(x))
        return torch.cat([f.relu(self.one(x)), f.relu(self.three(x))], 1)


class Inception(nn.Module):
    """Convolutions of several sizes of one image, side by side."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.pool = _block(6, 4, 1), nn.Sequential(nn.AvgPool2d(3, 1, 1), _block(6, 3, 1))
        self.three = nn.Sequential(_block(6, 3, 1), _block(3, 5, 3, 1))
        self.seven = nn.Sequential(_block(6, 3, 1), _block(3, 4, (1, 7), (0, 3)), _block(4, 4, (7, 1), (3, 0)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([self.one(x), self.three(x), self.seven(x), self.pool(x)], 1)


class Detector(nn.Module):
    """SSDLite: heads for classes and boxes on maps of two sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Sequential(nn.Conv2d(c, 8, 3, 2, 1), nn.ReLU6()) for c in (3, 8))
        self.classes = nn.ModuleList(self.head(9) for _ in range(2))
        self.boxes = nn.ModuleList(self.head(12) for _ in range(2))

    @staticmethod
    def head(after: int) -> nn.Sequential:
        depthwise = nn.Conv2d(8, 8, 3, padding=1, groups=8, bias=False)
        return nn.Sequential(depthwise, nn.BatchNorm2d(8), nn.ReLU6(), nn.Conv2d(8, after, 1))

    def forward(self, x: torch.Tensor) -> Tensors:
        found = []
        for layer, *heads in zip(self.maps, self.classes, self.boxes, strict=True):
            x = layer(x)
            widths = zip(heads, (3, 4), strict=True)
            found.append([head(x).permute(0, 2, 3, 1).reshape(x.shape[0], -1, k) for head, k in widths])
        classes, boxes = (torch.cat(parts, 1) for parts in zip(*found, strict=True))
        return f.softmax(classes, -1), boxes


class Step(nn.Module):
    """One token through a decoder, with the keys and values of those before it."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.norm = nn.Parameter(torch.rand(width))
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up, self.down = nn.Linear(width, 24), nn.Linear(width, 24), nn.Linear(24, width)

    def normed(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.norm

    def forward(self, x: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> Tensors:
        q, k, v = self.qkv(self.normed(x)).view(1, 1, 3, 2, 8).permute(2, 0, 3, 1, 4)
        k, v = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        x = x + self.out(f.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape))
        y = self.normed(x)
        return x + self.down(f.silu(self.gate(y)) * self.up(y)), k, v


class Gpt(nn.Module):
    """A layer of a causal model, with the mask spelled out."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(20, width), nn.Embedding(8, width)
        self.qkv, self.head = nn.Linear(width, 3 * width), nn.Linear(width, 20, bias=False)
        self.norm = nn.LayerNorm(width)
        self.register_buffer("mask", torch.tril(torch.ones(8, 8)).view(1, 1, 8, 8))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        batch, length = ids.shape
        x = self.tokens(ids) + self.places(torch.arange(length))
        q, k, v = (y.view(batch, length, 2, -1).transpose(1, 2) for y in self.qkv(self.norm(x)).split(16, 2))
        scores = (q @ k.transpose(-2, -1)) * k.size(-1) ** -0.5
        scores = scores.masked_fill(self.mask[:, :, :length, :length] == 0, float("-inf"))
        y = (f.softmax(scores, -1) @ v).transpose(1, 2).contiguous().view(batch, length, -1)
        return self.head(x + y)[:, [-1], :]


class Vit(nn.Module):
    """Patches of an image through an encoder, by PyTorch's own layer."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 2, 32, batch_first=True, activation="gelu", norm_first=True)
        self.patches, self.encoder = (
            nn.Conv2d(3, width, 4, 4),
            nn.TransformerEncoder(layer, 1, enable_nested_tensor=False),
        )
        self.first, self.places = nn.Parameter(torch.rand(1, 1, width)), nn.Parameter(torch.rand(1, 5, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.encoder(x)[:, 0]


class Shuffle(nn.Module):
    """ShuffleNet v2: half of the channels, put back between the others."""

    def __init__(self) -> None:
        super().__init__()
        depthwise = nn.Conv2d(4, 4, 3, 1, 1, groups=4, bias=False)
        self.right = nn.Sequential(_block(4, 4, 1), depthwise, nn.BatchNorm2d(4))
        self.last = nn.Conv2d(8, 8, 1, groups=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        left, right = x.chunk(2, dim=1)
        n, c, h, w = x.shape
        y = torch.cat((left, self.right(right)), 1).view(n, 2, c // 2, h, w).transpose(1, 2).contiguous()
        return self.last(y.view(n, c, h, w)).mean([2, 3])


class Temporal(nn.Module):
    """A TCN: causal convolutions with normed weights, their ends cut off."""

    def __init__(self) -> None:
        super().__init__()
        normed = torch.nn.utils.parametrizations.weight_norm
        self.one = normed(nn.Conv1d(4, 6, 3, padding=2))
        self.two = normed(nn.Conv1d(6, 6, 3, padding=4, dilation=2))
        self.down, self.norm = nn.Conv1d(4, 6, 1), nn.BatchNorm1d(6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = f.relu(self.one(x)[:, :, :-2].contiguous())
        return f.leaky_relu(self.norm(f.relu(self.two(y)[:, :, :-4])) + self.down(x), 0.1)


class Odd(nn.Module):
    """Operators that few networks have."""

    def forward(self, x: torch.Tensor) -> Tensors:
        y = torch.roll(x, (-1, 2), (2, 3)).repeat(2, 1, 1, 1)
        z = torch.where(y > 0.25, y.var(1, keepdim=True), torch.maximum(y, -y)) + 0.5 * y.amax(-1, keepdim=True)
        sizes = f.interpolate(x, scale_factor=2, mode="bilinear"), f.adaptive_avg_pool2d(x, (2, 4))
        pools = f.max_pool2d(x, 2, ceil_mode=True), f.avg_pool2d(x, 2, ceil_mode=True)
        turned = f.pad(x, (1, 2, 2, 0), mode="reflect").flip(3)
        return z, f.instance_norm(z), z.argmax(1), *sizes, *pools, turned, f.normalize(z), f.log_softmax(x, 1).cumsum(1)


class InPlace(nn.Module):
    """Tensors that are changed where they lie, through a view, too."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x + 1
        y.relu_()
        y[:, 0].mul_(2)
        return y * 3


def squeezenet() -> nn.Module:
    layers = [nn.Conv2d(3, 8, 3, stride=2), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True), Fire(8, 4, 8), nn.Dropout()]
    return nn.Sequential(*layers, nn.Conv2d(16, 5, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())


FAMILIES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensors]]] = {
    "SqueezeNet": (squeezenet, lambda: (torch.randn(1, 3, 18, 18),)),
    "Inception": (Inception, lambda: (torch.randn(1, 6, 9, 8),)),
    "SSDLite": (Detector, lambda: (torch.randn(1, 3, 12, 12),)),
    "decoder step": (Step, lambda: (torch.randn(1, 1, 16), torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8))),
    "GPT": (Gpt, lambda: (torch.tensor([[1, 2, 3, 4, 5]]),)),
    "ViT": (Vit, lambda: (torch.randn(2, 3, 8, 8),)),
    "ShuffleNet": (Shuffle, lambda: (torch.randn(2, 8, 5, 5),)),
    "TCN": (Temporal, lambda: (torch.randn(2, 4, 9),)),
    "odd operators": (Odd, lambda: (torch.randn(1, 4, 5, 6),)),
    "in place": (InPlace, lambda: (torch.randn(2, 3),)),
}


def made(name: str) -> tuple[nn.Module, Tensors]:
    """A module in evaluation mode and its inputs, the same each time."""
    torch.manual_seed(1)
    module, example = FAMILIES[name]
    return module().eval(), example()
