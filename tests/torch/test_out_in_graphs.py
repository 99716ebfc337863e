"""``out=`` inside compiled graphs, and as operators by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tcomp as tc
import tcomp.torch as tct

TEXT = """
def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,kk) * B(kk,n) }
def several(float(N) X, const int out0) -> (Y, Z) {
    Y(i) = X(i) * out0
    Z(i) = sin(X(i))
}
def more(float(N) X) -> (O) { O(i) += X(i) }
"""

A, B = torch.rand(4, 3), torch.rand(3, 5)


@pytest.fixture(scope="module")
def ops() -> tc.Module:
    return tct.define(TEXT, namespace="outingraphs")


def compiled(f: Any, backend: str = "aot_eager") -> Any:
    torch.compiler.reset()
    return torch.compile(f, fullgraph=True, backend=backend)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.long)])
def test_written_in_a_graph(ops: tc.Module, backend: str) -> None:
    c = torch.zeros(4, 5)
    result = compiled(lambda a, b, c: ops.mm(a, b, out=c) + 1, backend)(A, B, c)
    torch.testing.assert_close((c, result), (A @ B, A @ B + 1))
    y, z, x = torch.zeros(3), torch.zeros(3), A[0]
    for out in ((y, z), {"Z": z, "Y": y}):
        y.zero_(), z.zero_()
        compiled(lambda x, y, z, out=out: ops.several(x, 3, out=out), backend)(x, y, z)
        torch.testing.assert_close((y, z), (3 * x, x.sin()))
    compiled(lambda x, y: ops.more(x, out=y), backend)(x, y)
    torch.testing.assert_close(y, 4 * x)


def test_what_is_refused_before_it_is_written(ops: tc.Module) -> None:
    c, wanting = torch.zeros(4, 5), A.clone().requires_grad_()
    cases: list[tuple[Any, tuple[Any, ...], str]] = [
        (lambda a, b, c: ops.mm(a, b, out=c), (wanting, B, c), "input A requires a gradient"),
        (lambda a, b, c: ops.mm(a, b, out=c), (A, B, torch.zeros(5, 4)), r"expected shape \(4, 5\)"),
        (lambda a, b, c: ops.mm(a, b, out=c), (A, B, c.double()), "expected type float32"),
        (lambda x, y: ops.several(x, 3, out=(y, None)), (A[0], torch.zeros(3)), "out= takes a tensor for each of Y, Z"),
    ]
    for f, arguments, message in cases:
        with pytest.raises(Exception, match=message):
            compiled(f)(*arguments)
    assert not c.any()
    with torch.no_grad():
        compiled(cases[0][0])(wanting, B, c)
    torch.testing.assert_close(c, A @ B)


def test_by_name(ops: tc.Module) -> None:
    c = torch.zeros(4, 5)
    overload = torch.ops.outingraphs.mm.out
    weight = torch.rand(4, 5, requires_grad=True)
    loss = (weight * c).sum()
    torch.ops.outingraphs.mm(A, B, out=c)
    torch.testing.assert_close(c, A @ B)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
    with pytest.raises(tc.ShapeError, match="does not go with out="):
        overload(A.clone().requires_grad_(), B, c)
    torch.library.opcheck(overload, (A, B, c))
    with torch.inference_mode():
        overload(A, B, inside := torch.zeros(4, 5))
    torch.testing.assert_close(inside, A @ B)
