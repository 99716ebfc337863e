"""Transformations of ``torch.func`` inside compiled graphs, and of operators by name, against PyTorch's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode

import tcomp as tc
import tcomp.torch as tct
from tcomp.autograd.operators import operator_of
from tests.torch.test_autograd import TEXT, doubles

pytestmark = pytest.mark.sweep(3)

X, V = (t.detach() for t in doubles((3, 4), (3, 4)))

Function = Callable[..., torch.Tensor]

TRANSFORMS: dict[str, Callable[[Function], Function]] = {
    "grad": torch.func.grad,
    "vjp": lambda f: lambda x: torch.func.vjp(f, x)[1](torch.tensor(2.0, dtype=torch.float64))[0],
    "jvp": lambda f: lambda x: torch.func.jvp(f, (x,), (V,))[1],
    "jacrev": torch.func.jacrev,
    "jacfwd": torch.func.jacfwd,
    "hessian": torch.func.hessian,
    "per sample": lambda f: lambda x: torch.vmap(torch.func.grad(f))(torch.stack([x, V])),
    "twice": lambda f: torch.func.grad(lambda x: torch.func.grad(f)(x).sin().sum()),
}


@pytest.fixture(scope="module")
def ops() -> tc.Module:
    return tct.define(TEXT, namespace="funcingraphs")


def theirs(x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, 1).pow(2).sum()


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("by_name", [False, True])
def test_in_graphs_and_outside(ops: tc.Module, name: str, by_name: bool) -> None:
    softmax = torch.ops.funcingraphs.softmax if by_name else ops.softmax
    transform = TRANSFORMS[name]

    def ours(x: torch.Tensor) -> torch.Tensor:
        return softmax(x).pow(2).sum()  # type: ignore[no-any-return]

    expected = transform(theirs)(X)
    torch.testing.assert_close(transform(ours)(X), expected)
    torch.compiler.reset()
    for backend in ("eager", "aot_eager"):
        compiled = torch.compile(transform(ours), fullgraph=True, backend=backend)
        torch.testing.assert_close(compiled(X), expected)
    torch.testing.assert_close(compiled(V), transform(theirs)(V))


@pytest.mark.long
@pytest.mark.parametrize("name", ["grad", "jvp", "hessian"])
def test_with_inductor(ops: tc.Module, name: str) -> None:
    transform = TRANSFORMS[name]
    torch.compiler.reset()
    compiled = torch.compile(transform(lambda x: ops.softmax(x).pow(2).sum()), fullgraph=True)
    torch.testing.assert_close(compiled(X), transform(theirs)(X))


def test_gradients_of_several_tensors_for_any_sizes(ops: tc.Module) -> None:
    def loss(multiply: Any) -> Function:
        return lambda a, b: multiply(a, b).sin().sum()

    torch.compiler.reset()
    compiled = torch.compile(torch.func.grad(loss(ops.mm), (0, 1)), fullgraph=True, dynamic=True, backend="aot_eager")
    for n in (4, 6, 9):
        a, b = (t.detach() for t in doubles((n, 3), (3, n + 1)))
        torch.testing.assert_close(compiled(a, b), torch.func.grad(loss(torch.mm), (0, 1))(a, b))


def test_tangents_are_not_lost_where_there_is_no_memory(ops: tc.Module) -> None:
    """An operator that is called by name in forward mode, with tensors that are none, raises."""
    overload, forward_ad = operator_of(ops.softmax).overload, torch.autograd.forward_ad
    with FakeTensorMode(), forward_ad.dual_level():
        x = forward_ad.make_dual(torch.empty(3, 4, dtype=torch.float64), torch.empty(3, 4, dtype=torch.float64))
        with pytest.raises(tc.DerivativeError, match="in forward mode"):
            overload(x)
