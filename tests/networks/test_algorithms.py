"""Algorithms of layers: each computes the convolution within the error that is told, and the cheapest is taken."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tcomp as tc
from tcomp.mapping.machines.cpu import this_machine
from tcomp.networks import Network, Value
from tcomp.networks.algorithms import costs, winograd
from tcomp.networks.algorithms.choosing import choose
from tcomp.networks.network import Call
from tcomp.networks.texts import elements, layers


def layer(image: tuple[int, ...], filters: int, pad: int = 1, bias: bool = True) -> Network:
    """A convolution by 3 x 3 pixels and a ReLU."""
    rng = np.random.default_rng(3)
    conv = layers.conv2d(bias=bias, strided=False, padded=pad > 0, dilated=False)
    relu = elements.unary("relu", 4)
    after = (image[0], filters, image[2] + 2 * pad - 2, image[3] + 2 * pad - 2)
    weights = {"k": rng.standard_normal((filters, image[1], 3, 3), np.float32) / 3}
    weights |= {"b": rng.standard_normal(filters, np.float32)} if bias else {}
    values = [Value("x", "float32", image, "input")]
    values += [Value(name, "float32", array.shape, "weight") for name, array in weights.items()]
    values += [Value("y", "float32", after, "temporary"), Value("z", "float32", after, "output")]
    numbers = (("PH", pad), ("PW", pad)) if pad else ()
    calls = (Call(conv.name, ("x", *weights), numbers, ("y",)), Call(relu.name, ("y",), (), ("z",)))
    return Network("net", tuple(values), calls, {conv.name: conv, relu.name: relu}, weights)


@pytest.mark.parametrize(
    ("tile", "image", "pad", "bias"),
    [(2, (2, 3, 7, 5), 1, True), (4, (1, 5, 9, 14), 1, False), (4, (1, 2, 8, 7), 0, True)],
)
def test_winograd_computes_the_convolution(tile: int, image: tuple[int, ...], pad: int, bias: bool) -> None:
    network, x = layer(image, 6, pad, bias), np.random.default_rng(4).standard_normal(image, np.float32)
    net = tc.compile_network(network, options={"algorithms": {"y": f"F({tile},3)"}})
    expected = network.reference(x)
    bound = 3 * costs.ERRORS[tile] * costs.roundoff(image[1]) * np.linalg.norm(expected)
    assert np.linalg.norm(net(x) - expected) < bound
    assert np.linalg.norm(net.stages["choose_algorithms"].reference(x) - expected) < bound
    functions = [call.function for step in net.steps for call in step.group.calls]
    last = f"winograd{tile}_result{'_bias' if bias else ''}"
    assert functions == [f"winograd{tile}_image", "winograd_product", last, "relu_4d"] and len(net.steps) == 3
    assert f"y by F({tile},3)" in net.explain()
    plain = tc.compile_network(network, options={"choose_algorithms": False})
    assert len(plain.steps) == 1 and np.linalg.norm(plain(x) - expected) < bound
    again = tc.networks.from_text(str(net.network), weights=net.network.weights)
    assert again.calls == net.network.calls


@pytest.mark.parametrize("tile", winograd.TILES)
def test_errors_are_what_is_told(tile: int) -> None:
    rng = np.random.default_rng(5)
    image, kernel = (np.float32(rng.standard_normal(shape)) for shape in ((1, 256, 8, 8), (4, 256, 3, 3)))
    padded = np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1)))[0].astype("f8")
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    expected = np.einsum("chwij,fcij->fhw", windows, kernel)
    alone = layer((1, 256, 8, 8), 4, bias=False)
    result = replace(alone.by_name["y"], role="output")
    values = (alone.by_name["x"], alone.by_name["k"], result)
    network = replace(alone, values=values, calls=alone.calls[:1], weights={"k": kernel})
    found = tc.compile_network(network, options={"algorithms": {"y": f"F({tile},3)"}})(image)[0]
    ratio = np.linalg.norm(found - expected) / np.linalg.norm(expected) / costs.roundoff(256)
    assert 0.1 * costs.ERRORS[tile] < ratio < 1.3 * costs.ERRORS[tile]


def test_the_cheapest_is_taken_of_those_that_are_exact_enough() -> None:
    machine = replace(this_machine(), threads=2, vector_bytes=64, datapath_bytes=32)

    def taken(network: Network, accuracy: float = 1e-5) -> tuple[str, tuple[str, ...]]:
        (choice,) = choose(network, accuracy, machine=machine)[1]
        return choice.taken, choice.excluded

    assert taken(layer((1, 64, 56, 56), 64)) == ("F(4,3)", ())
    assert taken(layer((1, 64, 56, 56), 64), 1e-6) == ("F(2,3)", ("F(4,3)",))
    assert taken(layer((1, 64, 56, 56), 64), 1e-9) == ("direct", ("F(2,3)", "F(4,3)"))
    # Few channels: transforms cost more than they save.  7 x 7: F(4,3) reads four times the weights.
    assert taken(layer((1, 4, 16, 16), 4))[0] == "direct"
    assert taken(layer((1, 512, 7, 7), 512))[0] == "F(2,3)"
    with pytest.raises(tc.NetworkError, match=r"y cannot be computed by F\(6,3\)"):
        choose(layer((1, 4, 8, 8), 4), 1e-5, {"y": "F(6,3)"})
    with pytest.raises(tc.NetworkError, match="q is made by no layer"):
        choose(layer((1, 4, 8, 8), 4), 1e-5, {"q": "direct"})
