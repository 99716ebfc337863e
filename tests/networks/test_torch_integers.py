"""Integers in modules of PyTorch, outputs that are no results of their own, and windows of two lengths."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tcomp as tc

torch = pytest.importorskip("torch")

I = torch.tensor([[-9, -4, 0, 3, 7], [5, -5, 1, -1, 12]])  # noqa: E741
D = torch.tensor([[2, -3, 4, -1, 5], [-2, 3, 7, 2, -5]])
X = torch.tensor([[1.0, -0.35, 2.5], [0.3, 7.0, -1.0]])


class Module(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("row", torch.arange(3.0))

    def forward(self, *given: Any) -> Any:
        return self.function(self, *given)


def compared(function: Callable[..., Any], *given: Any) -> None:
    """All results of the interpreter are torch's, to the type."""
    module = Module(function).eval()
    found = tc.networks.from_torch(module, given).reference(*(g.numpy() for g in given))
    wanted = module(*given)
    assert len(found) == len(wanted)
    for got, expected in zip(found, wanted, strict=True):
        assert got.dtype == expected.numpy().dtype and got.shape == tuple(expected.shape)
        np.testing.assert_allclose(got, expected.numpy(), rtol=1e-6)


def test_quotients_have_the_signs_of_torch() -> None:
    div = torch.div
    compared(
        lambda _, i, d: (
            i // d, i // 3, i // -3, div(i, d, rounding_mode="floor"), div(i, d, rounding_mode="trunc"),
            div(i, -4, rounding_mode="trunc"), i % d, i % -5, torch.fmod(i, d), torch.fmod(i, -4), 7 - i, -i, abs(i),
            i**3,
        ), I, D,
    )  # fmt: skip


def test_bits() -> None:
    compared(
        lambda _, i, d: (i & d, i | 12, i ^ d, ~i, i << 3, i >> abs(d), torch.bitwise_xor(i, 5), (i > 0) & (d > 0)),
        I,
        D,
    )


def test_integers_are_moved_and_turned_into_floats() -> None:
    compared(
        lambda _, i, d: (
            i.flip(1), i.roll(2, 1), torch.cat([i, d], 1), i.repeat(2, 1), i[:, [0, -1]],
            torch.nn.functional.pad(i, (1, 2)), i.argmax(), i[:1].expand(3, -1), i.T, torch.relu(i), torch.exp(i),
            7 / d, torch.cat([i, d.float()]),
        ), I, D,
    )  # fmt: skip


def test_floats_are_divided_as_in_python() -> None:
    """`1.0 // 0.1` is 9: what is rounded down is the quotient of what `%` leaves nothing of."""
    compared(lambda _, x: (x // 0.1, x // -0.1, x // x.roll(1, 1), 2 - x, 1 / x), X)


def test_outputs_may_be_inputs_weights_and_given_twice() -> None:
    compared(lambda m, x: (x, x + 1, x, m.row), X)
    net = tc.compile_network(Module(lambda m, x: (x, *([x * 2] * 2), m.row)).eval(), X)
    first, *doubled, row = net(X)
    assert torch.equal(first, X) and all(torch.equal(one, X * 2) for one in doubled) and row.tolist() == [0, 1, 2]


def test_places_that_were_expanded() -> None:
    compared(lambda _, x, p: (torch.gather(x, 1, p[:, :1].expand(-1, 4)), x), X, torch.tensor([[2, 0], [1, 1]]))


def test_adaptive_maxima_of_windows_of_two_lengths() -> None:
    image = torch.randn(2, 3, 7, 9, generator=torch.Generator().manual_seed(0)).round(decimals=0)
    compared(lambda _, x: torch.nn.functional.adaptive_max_pool2d(x, (3, 2), return_indices=True), image)
