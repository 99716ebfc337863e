"""Whole steps of training, compiled."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import tcomp as tc
import tcomp.torch as tct

TEXT = """
def linear(float(N,D) X, float(C,D) W, float(C) b) -> (Y) { Y(n,c) +=! X(n,d) * W(c,d)  Y(n,c) = Y(n,c) + b(c) }
def norm(float(N,D) X, float eps) -> (Y) {
    s(n) +=! X(n,d) * X(n,d)
    Y(n,d) = X(n,d) * rsqrt(s(n) + eps)
}
"""


def model() -> torch.nn.Sequential:
    torch.manual_seed(0)
    ops = tc.define(TEXT)
    normed = tct.Layer(ops.norm, eps=torch.tensor(0.1))
    return torch.nn.Sequential(tct.Layer(ops.linear, W=(5, 4), b=(5,)), torch.nn.Tanh(), normed)


def steps_of(trained: torch.nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = trained(x).pow(2)[:, 0].mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@pytest.mark.long
def test_a_step_that_is_compiled_whole() -> None:
    plain = model()
    compiled = copy.deepcopy(plain)
    one, other = steps_of(plain), torch.compile(steps_of(compiled), backend="aot_eager")
    for seed in range(4):
        x = torch.rand(6, 4, generator=torch.Generator().manual_seed(seed))
        torch.testing.assert_close(one(x), other(x))
    torch.testing.assert_close(list(plain.parameters()), list(compiled.parameters()))


def test_one_graph_for_all_batches_with_gradients() -> None:
    ops, eps = tc.define(TEXT), torch.tensor(0.1)

    def f(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = ops.norm(ops.linear(x, w, b), eps).sin().sum()
        return found

    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(f, backend=counter, dynamic=True, fullgraph=True)
    w, b = torch.rand(5, 4, requires_grad=True), torch.rand(5)
    for n in (6, 8, 12, 9):
        x = torch.rand(n, 4, requires_grad=True)
        torch.testing.assert_close(
            torch.autograd.grad(compiled(x, w, b), (x, w)), torch.autograd.grad(f(x, w, b), (x, w))
        )
    assert counter.frame_count == 1
