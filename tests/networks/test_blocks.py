"""Networks of PyTorch as text and as kernels give what PyTorch gives."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import tcomp as tc  # noqa: E402
from tcomp.networks.grouping import group  # noqa: E402
from tests.networks.blocks import BLOCKS, ResidualBlock, made  # noqa: E402


def error(found: Any, expected: Any) -> float:
    """The largest error of the results, each against its norm."""
    pairs = zip(*((r if isinstance(r, tuple) else (r,)) for r in (found, expected)), strict=True)
    arrays = [(np.asarray(a, np.float64), np.asarray(b, np.float64)) for a, b in pairs]
    assert all(a.shape == b.shape for a, b in arrays)
    return max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in arrays)


@pytest.mark.parametrize("name", BLOCKS)
def test_text_computes_what_eager_does(name: str) -> None:
    module, example = made(name)
    network = tc.networks.from_torch(module, example)
    with torch.no_grad():
        expected = module(*example)
    assert error(network.reference(*(x.numpy() for x in example)), expected) < 1e-5
    assert list(tc.define(str(network)))[-1] == "network"


@pytest.mark.parametrize("name", BLOCKS)
def test_kernels_compute_what_eager_does(name: str) -> None:
    module, example = made(name)
    net = tc.compile_network(module, *example)
    with torch.no_grad():
        expected = module(*example)
        assert error(net(*example), expected) < 1e-5
    assert isinstance(net(*(x.numpy() for x in example)), tuple if isinstance(expected, tuple) else np.ndarray)


def test_passes_keep_what_is_computed() -> None:
    module, example = made("ResNet block")
    net = tc.compile_network(module, *example)
    inputs = [x.numpy() for x in example]
    assert error(net.network.reference(*inputs), net.source.reference(*inputs)) < 1e-5
    assert not any(call.function.startswith("batch_norm") for call in net.network.calls)
    assert sum(call.function.startswith("batch_norm") for call in net.source.calls) == 3


def test_followers_join_what_they_follow() -> None:
    module, example = made("ResNet block")
    net = tc.compile_network(module, *example)
    told = [tuple(call.function for call in step.group.calls) for step in net.steps]
    assert ("conv2d_strided_padded_bias", "relu_4d") in told
    assert any(calls[1:] == ("add_4d", "relu_4d") for calls in told)
    assert len(net.steps) < len(group(net.network, followers=False))


def test_equal_layers_share_a_kernel() -> None:
    torch.manual_seed(0)
    layers = [m for _ in range(3) for m in (torch.nn.Linear(8, 8), torch.nn.ReLU())]
    net = tc.compile_network(torch.nn.Sequential(*layers).eval(), torch.randn(4, 8))
    assert (len(net.steps), net.kernels) == (3, 1)


def test_results_are_not_written_again() -> None:
    module, (x,) = made("MobileNet v2 block")
    net = tc.compile_network(module, x)
    first = net(x)
    kept = first.clone()
    net(2 * x)
    assert torch.equal(first, kept)


def test_several_threads_call_one_network() -> None:
    module, (x,) = made("U-Net block")
    net = tc.compile_network(module, x)
    inputs = [x * k for k in range(1, 9)]
    expected = [net(x)[0] for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(20):
            found = list(pool.map(lambda x: net(x)[0], inputs))
            assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


class Snatched(list[Any]):
    """Arenas of which another thread takes the last one as soon as this one has looked."""

    def __len__(self) -> int:
        found = super().__len__()
        self.clear()
        return found


def test_a_thread_finds_no_arena_that_it_saw() -> None:
    module, (x,) = made("MLP-Mixer block")
    net = tc.compile_network(module, x)
    expected = net(x)
    net._arenas = Snatched(net._arenas)
    assert torch.equal(net(x), expected)


def test_sizes_beyond_64_bits_are_counted() -> None:
    assert tc.networks.Value("x", "float32", (2**32, 2**32), "input").bytes == 2**66


def test_weights_are_those_of_the_moment() -> None:
    module, (x,) = made("MLP-Mixer block")
    net = tc.compile_network(module, x)
    before = net(x)
    with torch.no_grad():
        module.norm1.weight.mul_(3)
    assert torch.equal(net(x), before)


class Views(torch.nn.Module):
    """Views of an input, of a result that is an output itself, and outputs that are views of one another."""

    def forward(self, x: Any) -> Any:
        y = torch.relu(x.view(3, 4))
        z = y.view(12)
        return y, z, torch.sigmoid(x).view(4, 3).unsqueeze(0), x.view(4, 3)


def test_outputs_may_be_views() -> None:
    x = torch.randn(2, 6)
    net = tc.compile_network(Views().eval(), x)
    assert error(net(x), Views()(x)) < 1e-6


def test_profile_and_explain() -> None:
    module, example = made("ResNet block")
    net = tc.compile_network(module, *example)
    profile = net.profile(*example, repeats=3)
    assert len(profile.rows) == len(net.steps)
    assert all(row.seconds > 0 for row in profile.rows)
    assert "second" in str(profile)
    assert len(net.explain().splitlines()) == 3 + len(net.steps) + len(net.choices)


class Strange(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.AdaptiveMaxPool3d(3)

    def forward(self, x: Any) -> Any:
        return self.inner(x)


def test_an_operator_without_a_rule_is_named() -> None:
    with pytest.raises(
        tc.NetworkError, match=r"aten.adaptive_max_pool3d.default has no rule \(node \w+ of inner\)"
    ) as found:
        tc.networks.from_torch(Strange().eval(), torch.randn(1, 1, 4, 4, 4))
    assert "tcomp network ops" in str(found.value)


def test_what_does_not_fit_is_refused() -> None:
    module, (x,) = made("ResNet block")
    net = tc.compile_network(module, x)
    for wrong in ((), (x, x), (x[:1],), (x.double(),)):
        with pytest.raises(tc.ShapeError):
            net(*wrong)
    with pytest.raises(tc.NetworkError, match="training mode"):
        tc.compile_network(ResidualBlock(), x)
    with pytest.raises(tc.NetworkError, match="not int"):
        tc.compile_network(3)


def test_a_tuple_of_inputs_is_told_from_inputs() -> None:
    module, x = torch.nn.Linear(3, 2).eval(), torch.ones(4, 3)
    with pytest.raises(tc.NetworkError, match="one by one, not as one tuple"):
        tc.compile_network(module, (x,))
