"""Whole networks against PyTorch, torch.compile and ONNX Runtime::

    python -m benchmarks.networks [--only mobilenet_v1,bert] [--compiled] [--rounds 30]

The modules are written here and have random weights.  Everything is checked against eager PyTorch first, then measured
in turn, so that whatever the machine does besides hits all; medians in milliseconds.  ONNX Runtime takes part where it
is installed and the module can be exported.
"""

from __future__ import annotations

import argparse
import io
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as f

import tcomp as tc


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


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mobilenet_v1": (mobilenet_v1, (1, 3, 224, 224)),
    "mobilenet_v2": (mobilenet_v2, (1, 3, 224, 224)),
    "resnet_50": (resnet_50, (1, 3, 224, 224)),
    "bert_layer": (BertLayer, (1, 128, 768)),
}


_WARM_SECONDS = 0.06
"""How long a network runs before it is timed."""


def made(name: str) -> tuple[nn.Module, torch.Tensor]:
    """A network in evaluation mode, the same each time, with statistics that are not those of a new one."""
    torch.manual_seed(0)
    build, shape = NETWORKS[name]
    module = build()
    for norm in module.modules():
        if isinstance(norm, nn.BatchNorm2d):
            nn.init.normal_(norm.running_mean, 0, 0.2)
            nn.init.uniform_(norm.running_var, 0.5, 2)
    return module.eval(), torch.randn(shape)


def onnx_runtime(module: nn.Module, x: torch.Tensor) -> Callable[[], Any] | None:
    """The network in ONNX Runtime; None where that cannot be."""
    try:
        import onnxruntime  # noqa: PLC0415

        file = io.BytesIO()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(module, (x,), file, dynamo=False)
    except Exception as error:  # noqa: BLE001  (a peer that is not there)
        print(f"no ONNX Runtime: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    # Its threads go on spinning after a run, on the processors that the next network needs.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])
    given = {session.get_inputs()[0].name: x.numpy()}
    return lambda: session.run(None, given)[0]


def measure(name: str, compiled: bool, rounds: int) -> None:
    """Check and time one network; print its row."""
    module, x = made(name)
    start = time.perf_counter()
    net = tc.compile_network(module, x)
    seconds = time.perf_counter() - start
    array = x.numpy()
    runs: dict[str, Callable[[], Any]] = {"tcomp": lambda: net(array), "eager": lambda: module(x).numpy()}
    if compiled:
        other = torch.compile(module)
        runs["compile"] = lambda: other(x).numpy()
    if (session := onnx_runtime(module, x)) is not None:
        runs["ONNX Runtime"] = session
    with torch.inference_mode():
        expected = module(x).numpy()
        for label, run in runs.items():
            error = np.linalg.norm(run() - expected) / np.linalg.norm(expected)
            if error > 1e-4:
                raise SystemExit(f"{label} computes something else for {name}: {error:.1e}")
        times: dict[str, list[float]] = {label: [] for label in runs}
        for _ in range(rounds):
            for label, run in runs.items():
                # The threads of the one before may still be waiting for work, and take a processor meanwhile.
                ready = time.perf_counter() + _WARM_SECONDS
                while time.perf_counter() < ready:
                    run()
                start = time.perf_counter()
                run()
                times[label].append(time.perf_counter() - start)
    told = ", ".join(f"{label} {1e3 * np.median(found):.2f}" for label, found in times.items())
    print(f"{name}: {told} ms; {len(net.steps)} steps, {net.kernels} kernels in {seconds:.1f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", help="names with commas between them", default=",".join(NETWORKS))
    parser.add_argument("--compiled", action="store_true", help="torch.compile takes part")
    parser.add_argument("--rounds", type=int, default=30)
    values = parser.parse_args()
    for name in values.only.split(","):
        measure(name, values.compiled, values.rounds)


if __name__ == "__main__":
    main()
