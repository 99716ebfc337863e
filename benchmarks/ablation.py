"""Which pass of networks pays on which class of them::

    python -m benchmarks.ablation [--only cnn,recurrent] [--rounds 15] [--json FILE]

A few minutes for three classes where nothing else runs; the rest can go into the same file.

Six networks with random weights, one of each class, are compiled with all passes, without each of them, and without
any; calls of all variants are measured in turn, with one input (latency) and with eight (throughput).  Each variant is
also compiled once in a process of its own with an empty cache, which tells seconds and memory.  Energy is that of the
processor where it can be read.
"""

from __future__ import annotations

import argparse
import datetime
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

import tcomp as tc
from benchmarks.gradients import machine
from benchmarks.networks_models import BertLayer, UNet, block, head, mobilenet_v2, settled
from tcomp.networks.studies.ablation import Row

BATCH = 8


class Basic(nn.Module):
    """ResNet's block of two convolutions."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(*block(before, after, 3, stride), *block(after, after, 3, act=None))
        same = stride == 1 and before == after
        self.short = nn.Identity() if same else nn.Sequential(*block(before, after, 1, stride, act=None))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.body(x) + self.short(x))


def resnet_18() -> nn.Module:
    layers: list[nn.Module] = [*block(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    width = 64
    for after, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Basic(width, after, stride), Basic(after, after, 1)]
        width = after
    return nn.Sequential(*layers, *head(width))


class Recurrent(nn.Module):
    """Two layers of an LSTM, and classes of the last step."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.steps, self.leave = nn.LSTM(width, width, 2, batch_first=True), nn.Linear(width, 100)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.leave(self.steps(x)[0][:, -1])  # type: ignore[no-any-return]


class Mixing(nn.Module):
    """MLP-Mixer's block: a perceptron along the patches, and one along the channels."""

    def __init__(self, patches: int, width: int) -> None:
        super().__init__()

        def perceptron(size: int) -> nn.Module:
            return nn.Sequential(nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size))

        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.along, self.across = perceptron(patches), perceptron(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.along(self.first(x).transpose(1, 2)).transpose(1, 2)
        return x + self.across(self.second(x))  # type: ignore[no-any-return]


class Mixer(nn.Module):
    """Patches of 16 x 16 pixels, four blocks, classes of their mean."""

    def __init__(self, width: int = 256) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.blocks = nn.Sequential(*(Mixing(196, width) for _ in range(4)))
        self.leave = nn.Linear(width, 1000)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.blocks(self.patches(x).flatten(2).transpose(1, 2))
        return self.leave(x.mean(1))  # type: ignore[no-any-return]


CLASSES: Mapping[str, tuple[str, Callable[[], nn.Module], tuple[int, ...]]] = {
    "cnn": ("ResNet-18", resnet_18, (3, 224, 224)),
    "depthwise": ("MobileNet v2", mobilenet_v2, (3, 224, 224)),
    "transformer": ("BERT layer, 128 tokens", BertLayer, (128, 768)),
    "recurrent": ("LSTM, two layers of 256, 64 steps", Recurrent, (64, 256)),
    "u-net": ("U-Net, 128 x 128", UNet, (3, 128, 128)),
    "mlp": ("MLP-Mixer, four blocks", Mixer, (3, 224, 224)),
}
"""Of each class the name of a network, the network, and the shape of an input without its batch."""


def measure(kind: str, rounds: int) -> dict[str, Any]:
    """The rows of a class: those of one input, with the seconds of eight beside them."""
    title, build, shape = CLASSES[kind]
    torch.manual_seed(0)
    module = settled(build())
    begun = time.perf_counter()
    one, several = (torch.randn(batch, *shape) for batch in (1, BATCH))
    found = tc.networks.ablate(tc.networks.from_torch(module, one), [one.numpy()], rounds)
    print(f"{title}\n{found}", flush=True)
    passes = [row.without for row in found.rows if row.without and not row.same]
    network = tc.networks.from_torch(module, several)
    beside = tc.networks.ablate(network, [several.numpy()], max(3, rounds // 2), passes=passes, processes=False)
    seconds = {row.without: row.seconds for row in beside.rows}
    rows = [_plain(row, seconds.get(row.without)) for row in found.rows]
    told = ", ".join(f"{row['without'] or 'whole'} {row['several_ms']:.2f}" for row in rows if row["several_ms"])
    print(f"ms for {BATCH}: {told}; measured in {time.perf_counter() - begun:.0f} s\n", flush=True)
    return {"class": kind, "network": title, "rows": rows}


def _plain(row: Row, several: float | None) -> dict[str, Any]:
    facts = {"without": row.without, "same": row.same, "ms": 1e3 * row.seconds, "kernels": row.steps}
    facts |= {
        "several_ms": None if several is None else 1e3 * several,
        "compile_s": row.compiling,
        "peak_mb": None if row.peak is None else row.peak / 1e6,
    }
    return facts | {"joules": row.joules}


def main() -> None:
    """Measure, print, and write a file where asked."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default=",".join(CLASSES), help="classes with commas between them")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", type=Path, help="write all rows into this file; other classes in it stay")
    values = parser.parse_args()
    rows = [measure(kind, values.rounds) for kind in values.only.split(",")]
    if values.json:
        date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        facts = {"benchmark": "ablation", "date": date, "machine": machine(), "rounds": values.rounds, "batch": BATCH}
        known = json.loads(values.json.read_text())["classes"] if values.json.exists() else []
        found = {row["class"]: row for row in (*known, *rows)}
        classes = [found[kind] for kind in CLASSES if kind in found]
        values.json.write_text(json.dumps(facts | {"classes": classes}, indent=1) + "\n")


if __name__ == "__main__":
    main()
