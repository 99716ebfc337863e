"""Statistics in graphs: recorded calls hand out what the backward pass takes, which computes none of it again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch._functorch.aot_autograd import make_boxed_func

import tcomp as tc
import tcomp.torch as tct
from tcomp.autograd.operators import operator_of
from tests.torch.test_autograd import doubles

TEXT = """
def norm(double(N,D) X, double(D) g) -> (Y) {
    s(n) +=! X(n,d) * X(n,d)
    Y(n,d) = X(n,d) * rsqrt(s(n) + 0.125) * g(d)
}
def mm(double(M,K) A, double(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }
"""


@pytest.fixture(scope="module")
def ops() -> tc.Module:
    return tct.define(TEXT, namespace="savingingraphs")


def norm(x: torch.Tensor, g: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt((x * x).sum(1, keepdim=True) + 0.125) * g


def nodes_of(graph: torch.fx.GraphModule) -> list[str]:
    return [str(node.target) for node in graph.graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize("dynamic", [False, True])
def test_statistics_are_saved(ops: tc.Module, dynamic: bool) -> None:
    """One graph each way, and the second call compiles nothing; for any sizes where they are left open."""
    counter, graphs = CompileCounterWithBackend("eager"), []

    def keep(graph: torch.fx.GraphModule, _: Any) -> Any:
        graphs.append(graph)
        return make_boxed_func(graph.forward)

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        counter(graph, inputs)
        return torch._dynamo.backends.common.aot_autograd(fw_compiler=keep, bw_compiler=keep)(graph, inputs)

    torch.compiler.reset()
    compiled = torch.compile(lambda x, g: ops.norm(x, g).sin(), fullgraph=True, dynamic=dynamic, backend=backend)
    for rows in (3, 4) if dynamic else (3, 3):
        inputs = doubles((rows, 5), (5,))
        found, expected = compiled(*inputs), norm(*inputs).sin()
        torch.testing.assert_close(found, expected)
        cotangent = torch.rand_like(expected)
        ours, theirs = (torch.autograd.grad(y, inputs, cotangent) for y in (found, expected))
        torch.testing.assert_close(ours, theirs)
    assert counter.frame_count == 1
    forward, backward = graphs
    assert "savingingraphs.norm.saving" in nodes_of(forward)
    (node,) = (n for n in backward.graph.nodes if str(n.target) == "savingingraphs.norm_backward.default")
    (saved,), names = node.args[-3], node.args[-1]
    assert "s" in names and saved.meta["val"].ndim == 1


def test_nothing_is_saved_where_nothing_is_recorded(ops: tc.Module) -> None:
    """Graphs without a backward pass, and exported ones, have the operator by its stable name."""

    class Norm(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.g = torch.nn.Parameter(torch.ones(5, dtype=torch.float64))

        def forward(self, x: torch.Tensor) -> Any:
            return ops.norm(x, self.g)

    x = torch.rand(3, 5, dtype=torch.float64)
    exported = torch.export.export(Norm(), (x,))
    for program in (exported, exported.run_decompositions()):
        assert "savingingraphs.norm.default" in nodes_of(program.graph_module)
    torch.testing.assert_close(exported.module()(x), norm(x, torch.ones(5, dtype=torch.float64)))


def test_opcheck(ops: tc.Module) -> None:
    operator, (x, g) = operator_of(ops.norm), doubles((3, 5), (5,))
    saving = operator.saving_operator.overload
    torch.library.opcheck(saving, (x, g, [True, True], ["s", "Y"]))
    torch.library.opcheck(saving, (x, g.detach(), [True, False], []))
    y, s = (t.detach().requires_grad_() for t in saving(x, g, [True, True], ["s"]))
    (d,) = doubles((3, 5))
    backward = operator.backward_operator.overload
    torch.library.opcheck(backward, (x, g, y, d, [s], [True, True], ["s"]))


def test_the_derivative_of_a_derivative_goes_through_what_was_saved(ops: tc.Module) -> None:
    saving = operator_of(ops.norm).saving_operator.overload
    inputs = doubles((2, 3), (3,))

    def outputs(x: torch.Tensor, g: torch.Tensor) -> Any:
        return saving(x, g, [True, True], ["s", "Y"])

    assert torch.autograd.gradcheck(outputs, inputs)
    assert torch.autograd.gradgradcheck(lambda *given: outputs(*given)[0], inputs)


def test_what_is_passed_twice_has_two_gradients(ops: tc.Module) -> None:
    """The derivative of a backward pass knew tensors by their identity, and gave both the last one's."""
    backward = operator_of(ops.mm).backward_operator.overload
    assert torch.autograd.gradcheck(lambda a, d: backward(a, a, None, d, [], [True, True], []), doubles((2, 2), (2, 2)))
