"""Layers of whose weights most are zero, by those that are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.networks.algorithms import pruned

torch = pytest.importorskip("torch")
nn = torch.nn


class Layers(nn.Module):  # type: ignore[misc]
    """Convolutions by one pixel and by windows, with strides, borders and norms, and products of few and many rows."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(6, 20, 3, padding=1, bias=False), nn.BatchNorm2d(20), nn.ReLU(), nn.Conv2d(20, 16, 1),
            nn.Conv2d(16, 16, (3, 2), stride=(1, 2), padding=(0, 1)), nn.Tanh(),
            nn.Conv2d(16, 12, 1, stride=2, bias=False),
        )  # fmt: skip
        self.many, self.few = nn.Linear(12, 24), nn.Linear(24, 10, bias=False)

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.many(self.body(x).flatten(2).transpose(1, 2)))
        return self.few(x.mean(1))


LAYERS = ("conv2d", "linear")


def made(zeros: float, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    module = Layers().eval()
    with torch.no_grad():
        for weight in (p for p in module.parameters() if p.dim() > 1):
            weight[torch.rand(weight.shape) < zeros] = 0
    return module


def layers_of(net: Any) -> list[str]:
    return [c.function for c in net.network.calls if c.function.startswith(LAYERS)]


def named(network: Any) -> list[str]:
    """What the layers make; a norm goes into the first convolution, which then makes what the norm made."""
    names = [c.results[0] for c in network.calls if c.function.startswith(LAYERS)]
    return [next(c.results[0] for c in network.calls if c.function.startswith("batch_norm")), *names[1:]]


def test_every_form_computes_the_layer(tmp_path: Any) -> None:
    module, x = made(0.8), torch.randn(2, 6, 11, 12)
    source = tc.networks.from_torch(module, x)
    names = named(source)
    wanted = dict.fromkeys(names, pruned.NAME) | {"linear": pruned.TURNED}
    net = tc.compile_network(source, options={"algorithms": wanted})
    assert layers_of(net) == [
        "conv2d_bias_pruned", "conv2d_bias_pruned", "conv2d_bias_pruned", "conv2d_pruned",
        "linear_bias_pruned_turned", "linear_2d_pruned",
    ]  # fmt: skip
    assert sum(call.function.startswith("unfold") for call in net.network.calls) == 3
    assert all(f"{name} by {pruned.NAME}" in net.explain() for name in names if name != "linear")
    with torch.no_grad():
        np.testing.assert_allclose(net(x), module(x), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(net.network.reference(x.numpy()), net(x), rtol=1e-4, atol=1e-5)
    net.save(tmp_path / "net.tcn")
    assert torch.equal(tc.load_network(tmp_path / "net.tcn")(x), net(x))


@pytest.mark.parametrize("rows", [(), (3, 4)])
def test_blocks_of_rows(rows: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    module, x = (
        nn.Sequential(nn.Linear(40, 64), nn.Tanh(), nn.Linear(64, 32, bias=False)).eval(),
        torch.randn(*rows, 2, 40),
    )
    with torch.no_grad():
        for layer in (module[0], module[2]):
            rest = torch.rand(layer.weight.shape[0] // 16, layer.weight.shape[1]) < 0.2
            layer.weight *= rest.repeat_interleave(16, 0)
    net = tc.compile_network(module, x, options={"algorithms": {"linear": "pruned by 16", "linear_1": "pruned by 32"}})
    assert layers_of(net) == ["linear_bias_pruned_blocks", "linear_pruned_blocks"]
    with torch.no_grad():
        np.testing.assert_allclose(net(x), module(x), rtol=1e-4, atol=1e-5)


def test_rows_without_entries() -> None:
    module, x = made(0.5), torch.randn(1, 6, 9, 9)
    with torch.no_grad():
        module.body[0].weight[3:9] = 0
        module.body[0].weight[19] = 0
        module.few.weight[1:] = 0
    source = tc.networks.from_torch(module, x)
    net = tc.compile_network(source, options={"algorithms": {named(source)[0]: pruned.NAME, "linear_1": pruned.NAME}})
    with torch.no_grad():
        np.testing.assert_allclose(net(x), module(x), rtol=1e-4, atol=1e-5)


def test_the_cheapest_is_taken() -> None:
    """Of a weight with few zeros there is nothing to choose, and without the pass of none."""

    def taken(zeros: float, **options: Any) -> list[str]:
        torch.manual_seed(0)
        module = nn.Conv2d(128, 128, 1, bias=False).eval()
        with torch.no_grad():
            module.weight[torch.rand(module.weight.shape) < zeros] = 0
        net = tc.compile_network(module, torch.randn(1, 128, 28, 28), options=options)
        return layers_of(net)

    assert taken(0.95) == ["conv2d_pruned"]
    assert "pruned" not in taken(0.2)[0]
    assert "pruned" not in taken(0.95, skip_zeros=False)[0]


def test_a_layer_without_zeros_has_no_such_form() -> None:
    module, x = made(0.0), torch.randn(1, 6, 9, 9)
    with pytest.raises(tc.NetworkError, match="linear cannot be computed by pruned"):
        tc.compile_network(module, x, options={"algorithms": {"linear": pruned.NAME}})
