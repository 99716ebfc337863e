"""Defs that can be derived for known sizes only: calls of PyTorch know them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tcomp as tc

TEXT = """
def part(double(N) A, double(M) B, const int S) -> (Y) { Y(i) = A(i) * B(i) * S where i in 0:(N > 3 ? 4 : 4) }
def both(double(N) A) -> (Y, Z) { Y(i) = A(i) * A(i) where i in 0:(N > 3 ? 4 : 4)  Z(i) = exp(A(i)) }
"""


def theirs(a: torch.Tensor, b: torch.Tensor, s: int) -> torch.Tensor:
    return a[:4] * b[:4] * s


def inputs(n: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(n)
    return [torch.rand(n, dtype=torch.float64, generator=generator).requires_grad_() for _ in range(2)]


@pytest.fixture(scope="module")
def ops() -> tc.Module:
    return tc.define(TEXT)


def test_recorded_calls(ops: tc.Module) -> None:
    for n in (9, 4, 9, 5):
        a, b = inputs(n)
        for _ in range(2):  # the second call is quick
            found = torch.autograd.grad(ops.part(a, b, 2).sin().sum(), (a, b))
            torch.testing.assert_close(found, torch.autograd.grad(theirs(a, b, 2).sin().sum(), (a, b)))
        (found_a,) = torch.autograd.grad(ops.both(a)[1].sum(), a)
        torch.testing.assert_close(found_a, a.exp().detach())
    assert torch.autograd.gradgradcheck(lambda a, b: ops.part(a, b, 2), inputs(4))


def test_transformed_calls(ops: tc.Module) -> None:
    def squares(f: Any) -> Any:
        return lambda a: f(a, b, 2).pow(2).sum()

    for n in (9, 5):
        a, b = (t.detach() for t in inputs(n))
        for transform in (torch.func.grad, torch.func.hessian):
            torch.testing.assert_close(transform(squares(ops.part))(a), transform(squares(theirs))(a))
        moved = [torch.func.jvp(lambda a, f=f: f(a, b, 2), (a,), (b,)) for f in (ops.part, theirs)]  # noqa: B023
        torch.testing.assert_close(*moved)


def test_fewer_elements_than_a_mirror_reads_outside() -> None:
    f = tc.define("def f(double(N) A) -> (Y) { Y(i) = mirror_image(A)(i - 3) where i in 0:N }").f
    torch.compiler.reset()
    compiled = torch.compile(f, fullgraph=True, backend="aot_eager", dynamic=True)
    for n in (5, 2, 3):
        a, b = inputs(n)
        for call in (f, compiled):
            (found,) = torch.autograd.grad(call(a) @ b, a)
            rows = torch.stack([f(e) for e in torch.eye(n, dtype=torch.float64)])
            torch.testing.assert_close(found, (rows @ b).detach())


def test_compiled_calls(ops: tc.Module) -> None:
    torch.compiler.reset()
    compiled = torch.compile(lambda a, b: ops.part(a, b, 2).sin(), fullgraph=True, backend="aot_eager")
    for n in (9, 5):
        a, b = inputs(n)
        found = torch.autograd.grad(compiled(a, b).sum(), (a, b))
        torch.testing.assert_close(found, torch.autograd.grad(theirs(a, b, 2).sin().sum(), (a, b)))
