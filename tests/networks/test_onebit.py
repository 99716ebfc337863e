"""Layers of signs in bits: the same to the bit as in floats, where that is promised."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.networks.precision.onebit import packed
from tcomp.networks.precision.signs import Elements, Few

torch = pytest.importorskip("torch")
nn = torch.nn
f = torch.nn.functional

BINARY = {
    "sign": torch.sign,
    "choice": lambda x: torch.where(x >= 0, 1.0, -1.0),
    "comparison": lambda x: (x > 0).float() * 2 - 1,
    "zeros": lambda x: (x > 0).float(),
}


class Binarised(nn.Module):  # type: ignore[misc]
    """Convolutions with borders, strides and dilation, a norm, a pool of signs, and products of rows."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        shapes = {
            "a": (70, 9, 3, 3),
            "b": (21, 70, 3, 3),
            "c": (5, 21, 2, 2),
            "d": (66, 5, 1, 1),
            "l": (7, 66),
            "m": (7, 3),
        }
        self.kernels = nn.ParameterDict({name: nn.Parameter(torch.randn(shape)) for name, shape in shapes.items()})
        self.norm, self.bias = nn.BatchNorm2d(70), nn.Parameter(torch.randn(21))
        nn.init.uniform_(self.norm.running_var, 0.5, 2)

    def forward(self, x: Any) -> Any:
        binary, k = BINARY[self.kind], {name: torch.sign(weight) for name, weight in self.kernels.items()}
        x = self.norm(f.conv2d(binary(x), k["a"], padding=1))
        x = f.conv2d(binary(x), k["b"], self.bias, stride=2, padding=(1, 0))
        x = f.conv2d(f.max_pool2d(binary(x), 2, 1), k["c"], dilation=2)
        x = f.conv2d(binary(x), k["d"]).mean((2, 3))
        x = f.linear(binary(x).view(1, *x.shape), k["l"])
        return binary(x)[0] @ k["m"]


def functions(net: Any) -> list[str]:
    return [call.function for call in net.network.calls]


@pytest.mark.parametrize("kind", BINARY)
def test_bits_give_what_floats_give(kind: str) -> None:
    torch.manual_seed(1)
    module, x = Binarised(kind).eval(), torch.randn(2, 9, 15, 14)
    x[0, 0, 0, :5] = 0
    net = tc.compile_network(module, x)
    assert sum("onebit" in name for name in functions(net)) == 6
    assert sum("zeros" in name for name in functions(net) if "onebit" in name) == (
        0 if kind in ("choice", "comparison") else 6
    )
    plain = tc.compile_network(module, x, options={"one_bit": False})
    assert not any("onebit" in name for name in functions(plain))
    with torch.no_grad():
        assert torch.equal(net(x), module(x)) and torch.equal(plain(x), net(x))
    assert (net.stages["one_bit"].reference(x.numpy()) == module(x).detach().numpy()).all()


class Scaled(nn.Module):  # type: ignore[misc]
    """Signs times a number for each filter."""

    def __init__(self, scale: Any, zero: bool = False) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.sign(torch.randn(6, 40)) * scale)
        if zero:
            with torch.no_grad():
                self.kernel[3, 39] = 0

    def forward(self, x: Any) -> Any:
        return f.linear(torch.where(x > 0, 0.5, -0.5), self.kernel)


@pytest.mark.parametrize(("scale", "always"), [(2.0, True), (torch.rand(6, 1) + 0.1, False)])
def test_sizes_of_filters_are_factors(scale: Any, always: bool) -> None:
    module, x = Scaled(scale).eval(), torch.randn(3, 40)
    net, exact = (tc.compile_network(module, x, options={"exact": on}) for on in (False, True))
    assert any("onebit" in name for name in functions(net))
    assert any("onebit" in name for name in functions(exact)) == always
    with torch.no_grad():
        np.testing.assert_allclose(net(x), module(x), rtol=1e-5, atol=1e-5)
        assert not always or torch.equal(net(x), module(x))


def test_other_layers_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(3, 40)
    assert not any("onebit" in name for name in functions(tc.compile_network(Scaled(1.0, zero=True).eval(), x)))
    with torch.no_grad():
        two_sizes = Scaled(1.0).eval()
        two_sizes.kernel[2, 30] = 2
    assert not any("onebit" in name for name in functions(tc.compile_network(two_sizes, x)))
    plain = nn.Sequential(nn.ReLU(), nn.Linear(40, 6)).eval()
    with torch.no_grad():
        plain[1].weight.copy_(torch.sign(plain[1].weight))
    assert not any("onebit" in name for name in functions(tc.compile_network(plain, x)))


class Shared(nn.Module):  # type: ignore[misc]
    """An image that a convolution and products read, and a weight that is turned in one of two products."""

    def __init__(self) -> None:
        super().__init__()
        shapes = {"k": (5, 64, 1, 1), "w": (64, 64)}
        self.signs = nn.ParameterDict({n: nn.Parameter(torch.sign(torch.randn(s))) for n, s in shapes.items()})

    def forward(self, x: Any) -> Any:
        x = torch.where(x > 0, 1.0, -1.0)
        product = f.linear(x, self.signs["w"])
        back = torch.where(product > 0, 1.0, -1.0)[0, 0] @ self.signs["w"]
        return f.conv2d(x, self.signs["k"]), product, back, f.linear(x[None], self.signs["w"])


def test_what_several_layers_read_is_packed_for_each() -> None:
    torch.manual_seed(0)
    module, x = Shared().eval(), torch.randn(1, 64, 3, 64)
    net = tc.compile_network(module, x)
    assert sum("onebit" in name for name in functions(net)) == 4
    with torch.no_grad():
        assert all(torch.equal(found, wanted) for found, wanted in zip(net(x), module(x), strict=True))


ELEMENTS = """
def f(float(N) X, float y) -> (O) { O(n) = %s }
def network(float(4) x) -> (o) { o = f(x, y=0.5) }
"""


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("X(n) > 0 ? 1.0 : -1.0", Few(frozenset({1.0, -1.0}))),
        ("sign(X(n))", Few(frozenset({1.0, 0.0, -1.0}), nan=True)),
        ("sign(sign(X(n)) + y)", Few(frozenset({1.0, -1.0}), nan=True)),
        ("copysign(3.0, X(n))", Few(frozenset({3.0, -3.0}))),
        ("(X(n) > 0 ? 1.0 : 0.0) * 2 - 1", Few(frozenset({1.0, -1.0}))),
        ("1.0 > y ? 2.0 : X(n)", Few(frozenset({2.0}))),
        ("X(n) > 0 ? 1.0 : X(n)", None),
        ("X(n) * 0", None),
        ("(X(n) > 0 ? 1.0 : 0.0) / 0", None),
        ("relu(X(n))", None),
        ("float(uint8(X(n) > 0 ? 1 : 0) - uint8(1))", None),
        ("float(-uint8(X(n) > 0 ? 1 : 0))", None),
        ("float(int8(X(n) > 0 ? 200.0 : 1.0))", None),
        ("float(int32(sign(X(n))))", None),
        ("float(float8_e4m3fn(X(n) > 0 ? 0.3 : -1000.0))", Few(frozenset({0.3125, -448.0}))),
    ],
)
def test_what_elements_a_function_gives(text: str, found: Few | None) -> None:
    network = tc.networks.from_text(ELEMENTS % text)
    assert Elements(network).of("o") == found


def test_words() -> None:
    signs = np.random.default_rng(0).standard_normal((3, 70))
    words = packed(signs, 1)
    assert words.shape == (3, 2) and words.dtype == np.uint64
    bits = [[int(words[r, c // 64]) >> (c % 64) & 1 for c in range(128)] for r in range(3)]
    assert (np.array(bits)[:, :70] == (signs > 0)).all() and not np.array(bits)[:, 70:].any()
