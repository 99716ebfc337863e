"""Channels innermost: each layer computes the same, and where that is done costs least."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional as f  # noqa: E402

import tcomp as tc  # noqa: E402
from tcomp.networks.algorithms import costs  # noqa: E402
from tcomp.networks.algorithms.mincut import END, START, Labels  # noqa: E402


class Layers(nn.Module):
    """What has images, once each: strides, windows, one pixel, each channel, pools, residual, gate, concat."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1, bias=False), nn.BatchNorm2d(8), nn.ReLU())
        self.alone, self.point = nn.Conv2d(8, 8, 3, 2, 1, groups=8), nn.Conv2d(8, 12, 1)
        self.window, self.short = nn.Conv2d(12, 12, 3, padding=1), nn.Conv2d(12, 6, 1, 2, bias=False)
        self.gate, self.offset = nn.Conv2d(12, 12, 1), nn.Parameter(torch.randn(1, 12, 5, 6))
        self.head = nn.Linear(18, 3)

    def forward(self, x: Any) -> Any:
        y = self.point(self.alone(f.max_pool2d(self.enter(x), 3, 2, 1)))
        z = torch.relu(self.window(y) + y) + self.offset
        z = z * torch.sigmoid(self.gate(z.mean((2, 3), keepdim=True)))
        s = self.short(z)
        both = torch.cat([s, f.avg_pool2d(z, 2, 2, ceil_mode=False)[:, :, :3, :3]], 1) if s.shape[2] == 2 else s
        grown = f.interpolate(s, scale_factor=2.0)
        return self.head(torch.cat([both, both * 2, both + s], 1).mean((2, 3))), grown


X = torch.arange(2 * 3 * 40 * 48, dtype=torch.float32).sin().view(2, 3, 40, 48)


@pytest.fixture(scope="module")
def module() -> Layers:
    torch.manual_seed(1)
    return Layers().eval()


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever has channels innermost costs nothing."""
    for name, last in (("direct", 2), ("winograd", 3), ("depthwise", 2), ("pooling", 3)):
        plain = getattr(costs, name)
        monkeypatch.setattr(costs, name, lambda *a, p=plain, n=last: 0.0 if len(a) > n and a[n] else p(*a))
    monkeypatch.setattr(costs, "turned", lambda value, last: 1.0)


@pytest.mark.parametrize("algorithms", [{}, {"choose_algorithms": False}])
def test_all_layers_compute_the_same_with_channels_innermost(
    algorithms: dict[str, bool], module: Layers, cheap: None
) -> None:
    net = tc.compile_network(module, X, options=algorithms)
    plain = tc.compile_network(module, X, options={"choose_layouts": False, **algorithms})
    with torch.no_grad():
        expected = module(X)
    reference = net.network.reference(X.numpy())
    for found in (net(X), plain(X), reference):
        for array, right in zip(found, expected, strict=True):
            assert np.linalg.norm(np.asarray(array) - right.numpy()) < 2e-6 * np.linalg.norm(right.numpy())
    functions = [call.function for call in net.network.calls]
    assert not any(name.endswith("_last") for name in (call.function for call in plain.network.calls))
    images = [name for name in functions if name.startswith(("conv2d", "winograd", "max_pool", "mean_4d_over_cd_kept"))]
    assert len(images) >= 8 and all(name.endswith("_last") for name in images)
    # The input and the second output are turned, and what has one pixel lies either way.
    assert sum(step.group.view[:1] == ("permute",) for step in net.steps) <= 3
    again = tc.networks.from_text(str(net.network), weights=net.network.weights)
    assert again.calls == net.network.calls
    assert "channels innermost" in net.explain()


def test_layers_are_turned_where_that_costs_least() -> None:
    deep = nn.Sequential(nn.Conv2d(512, 1024, 1), nn.ReLU(), nn.Conv2d(1024, 512, 1)).eval()
    net = tc.compile_network(deep, torch.zeros(1, 512, 7, 7))
    turned = ["conv2d_point_bias_last + relu_4d", "conv2d_point_bias_last"]
    kernels = [" + ".join(call.function for call in step.group.calls) for step in net.steps]
    assert kernels == ["permute_0231", *turned, "permute_0312"]
    wide = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=8)).eval()
    alone = tc.compile_network(wide, torch.zeros(1, 8, 64, 64))
    assert [call.function for call in alone.network.calls] == ["conv2d_padded_depthwise_bias"]


@pytest.mark.parametrize("seed", range(6))
def test_labels_are_the_cheapest_of_all(seed: int) -> None:
    rng = np.random.default_rng(seed)
    count = 7
    single = rng.integers(0, 20, (count, 2))
    edges = [
        (int(a), int(b), int(c)) for a, b, c in zip(*rng.integers(0, 9, (2, 12)), rng.integers(0, 15, 12), strict=True)
    ]
    labels = Labels()
    nodes = [labels.node(int(first), int(second)) for first, second in single]
    numbers = [START, END, *nodes]
    for a, b, cost in edges:
        labels.edge(numbers[a], numbers[b], cost)
    ones = labels.ones()

    def cost_of(chosen: tuple[int, ...]) -> int:
        label = dict(zip(numbers, (0, 1, *chosen), strict=True))
        alone = sum(int(single[k][one]) for k, one in enumerate(chosen))
        return alone + sum(c for a, b, c in edges if label[numbers[a]] == 0 and label[numbers[b]] == 1)

    best = min(itertools.product((0, 1), repeat=count), key=lambda chosen: (cost_of(chosen), sum(chosen)))
    assert tuple(int(node in ones) for node in nodes) == best
