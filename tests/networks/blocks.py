"""Small versions of well-known blocks, as modules of PyTorch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as f


class MobileBlock(nn.Module):
    """MobileNet v2: expand, depthwise, project, with the residual."""

    def __init__(self, channels: int = 6) -> None:
        super().__init__()
        wide = 4 * channels
        self.body = nn.Sequential(
            *(nn.Conv2d(channels, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6()),
            *(nn.Conv2d(wide, wide, 3, padding=1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.ReLU6()),
            *(nn.Conv2d(wide, channels, 1, bias=False), nn.BatchNorm2d(channels)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x)


class ResidualBlock(nn.Module):
    """ResNet: two convolutions, a strided shortcut, and the head."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm1 = nn.Conv2d(4, 8, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(8)
        self.second, self.norm2 = nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8)
        self.short, self.norm3 = nn.Conv2d(4, 8, 1, stride=2, bias=False), nn.BatchNorm2d(8)
        self.pool, self.head = nn.AdaptiveAvgPool2d(1), nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = f.max_pool2d(x, 3, stride=2, padding=1)
        y = self.norm2(self.second(torch.relu(self.norm1(self.first(x)))))
        y = torch.relu(y + self.norm3(self.short(x)))
        return self.head(torch.flatten(self.pool(y), 1))


class BertLayer(nn.Module):
    """An encoder layer behind an embedding."""

    def __init__(self, width: int = 16, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.table = heads, nn.Embedding(11, width)
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.up, self.down, self.drop = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.Dropout(0.1)

    def split(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(*x.shape[:2], self.heads, -1).transpose(1, 2)

    def forward(self, tokens: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        x = self.table(tokens)
        q, k, v = (self.split(layer(x)) for layer in (self.query, self.key, self.value))
        a = f.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = self.norm1(x + self.drop(self.out(a.transpose(1, 2).reshape(x.shape))))
        return self.norm2(x + self.drop(self.down(f.gelu(self.up(x)))))


class UNetBlock(nn.Module):
    """Down, up again, and the skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.deep = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 12, 3, padding=2, dilation=2)
        self.up, self.leave = nn.ConvTranspose2d(12, 6, 2, stride=2), nn.Conv2d(12, 2, 3, padding=1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        skip = torch.relu(self.enter(x))
        deep = f.silu(self.deep(f.avg_pool2d(skip, 2)))
        return torch.sigmoid(self.leave(torch.cat([skip, self.up(deep)], 1))), deep


class MixerBlock(nn.Module):
    """MLP-Mixer: across patches, then across channels."""

    def __init__(self, patches: int = 6, width: int = 10) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.tokens = nn.Sequential(nn.Linear(patches, 8), nn.GELU(), nn.Linear(8, patches))
        self.channels = nn.Sequential(nn.Linear(width, 20), nn.GELU(approximate="tanh"), nn.Linear(20, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.tokens(self.norm1(x).permute(0, 2, 1)).permute(0, 2, 1)
        return (x + self.channels(self.norm2(x))).mean(1)


def mobile() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return MobileBlock(), (torch.randn(1, 6, 9, 9),)


def residual() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return ResidualBlock(), (torch.randn(2, 4, 13, 11),)


def bert() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    mask = torch.zeros(1, 1, 1, 7)
    mask[..., 5:] = -1e4
    return BertLayer(), (torch.randint(0, 11, (2, 7)), mask)


def unet() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return UNetBlock(), (torch.randn(1, 3, 10, 12),)


def mixer() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return MixerBlock(), (torch.randn(2, 6, 10),)


BLOCKS: dict[str, Callable[[], tuple[nn.Module, tuple[torch.Tensor, ...]]]] = {
    "MobileNet v2 block": mobile,
    "ResNet block": residual,
    "BERT layer": bert,
    "U-Net block": unet,
    "MLP-Mixer block": mixer,
}


def made(name: str) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    """A block in evaluation mode, the same each time, whose statistics are not those of a new one."""
    torch.manual_seed(1)
    module, example = BLOCKS[name]()
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm2d):
            nn.init.normal_(norm.running_mean, 0, 0.3)
            nn.init.uniform_(norm.running_var, 0.5, 2)
            nn.init.uniform_(norm.weight, 0.5, 2)
            nn.init.normal_(norm.bias, 0, 0.3)
    return module.eval(), example
