"""Names in torch.ops, layers, patterns."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from typing import Any

import pytest
import torch
from torch.nn.utils import prune
from torch.nn.utils.parametrizations import weight_norm

import tcomp as tc
import tcomp.torch as tct

LINEAR = """
def linear(float(N,D) X, float(C,D) W, float(C) b) -> (Y) { Y(n,c) +=! X(n,d) * W(c,d)  Y(n,c) = Y(n,c) + b(c) }
def relu_(float(N,D) X) -> (Y) { Y(n,d) = relu(X(n,d)) }
def own(float(N) X) -> (Y) { Y(n) = X(n) * X(n) }
def own_grad(float(N) X, float(N) d_Y) -> (d_X) { d_X(n) = 3.0 * d_Y(n) * X(n) }
"""


def test_a_name_in_torch_ops() -> None:
    ops = tct.define(LINEAR, namespace="tct_names")
    x = torch.rand(4, 3)
    torch.testing.assert_close(torch.ops.tct_names.relu_(x), torch.relu(x))
    assert tct.define(LINEAR, namespace="tct_names") is not ops  # the same text is no error
    with pytest.raises(tc.TcompError, match="another operator tct_names::relu_"):
        tct.define(LINEAR.replace("relu(X(n,d))", "X(n,d)"), namespace="tct_names")
    with pytest.raises(tc.TcompError, match="must be a name"):
        tct.define(LINEAR, namespace="a.b")


def test_a_backward_of_ones_own() -> None:
    """A wrong one, so that it shows; gradcheck tells."""
    ops = tct.define(LINEAR, backward={"own": "own_grad"})
    x = torch.rand(5, requires_grad=True)
    ops.own(x).sum().backward()
    torch.testing.assert_close(x.grad, 3 * x.detach())
    compiled = torch.compile(ops.own, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(torch.autograd.grad(compiled(x).sum(), x)[0], 3 * x.detach())
    doubles = tct.define(LINEAR.replace("float", "double"), backward={"own": "own_grad"})
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):
        torch.autograd.gradcheck(doubles.own, torch.rand(5, dtype=torch.float64, requires_grad=True))


def test_another_backward_of_the_same_def_is_another_operator() -> None:
    """The first one served all: an operator had the name of its backward def only."""
    text = (
        "def twice(float(N) X) -> (Y) {{ Y(n) = 2 * X(n) }} def back(float(N) d_Y) -> (d_X) {{ d_X(n) = {} * d_Y(n) }}"
    )
    x = torch.ones(2, requires_grad=True)
    for factor in (3.0, 5.0):
        ops = tct.define(text.format(factor), backward={"twice": "back"})
        (gradient,) = torch.autograd.grad(ops.twice(x).sum(), x)
        assert gradient.tolist() == [factor, factor]


def test_backward_defs_take_and_give_what_has_a_meaning() -> None:
    forward = "def scaled(float(N) X, float s) -> (Y) { Y(n) = s * X(n) } "
    for back, found in (
        ("float(N) d_Z) -> (d_X) { d_X(n) = d_Z(n) }", "d_Z is no input, no output and no cotangent of scaled"),
        ("float(N) d_Y) -> (g) { g(n) = d_Y(n) }", "g is no gradient of scaled"),
        ("float(N) d_Y) -> (d_X) { d_X(n,m) = d_Y(n) * d_Y(m) }", "d_X has 2 dimensions, but X has 1"),
    ):
        with pytest.raises(tc.TcompError, match=found):
            tct.define(f"{forward} def back({back}", backward={"scaled": "back"})
    ops = tct.define(
        f"{forward} def back(float s, float(N) d_Y) -> (d_X) {{ d_X(n) = s * d_Y(n) }}", backward={"scaled": "back"}
    )
    x, s = torch.ones(2, requires_grad=True), torch.tensor(3.0, requires_grad=True)
    assert torch.autograd.grad(ops.scaled(x, s.detach()).sum(), x)[0].tolist() == [3, 3]
    with pytest.raises(tc.DerivativeError, match="back gives no gradient of scaled by s"):
        ops.scaled(x, s)


def test_a_backward_function() -> None:
    def backward(inputs: Any, outputs: Any, cotangents: Any) -> Any:
        return (cotangents[0] * 2 * outputs[0] / inputs[0],)

    ops = tct.define(LINEAR, backward={"own": backward})
    x = torch.rand(5, requires_grad=True)
    ops.own(x).sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach())


def test_backward_functions_give_what_has_the_shape_of_an_input() -> None:
    """Torch adds up what has more dimensions."""
    ops = tct.define(LINEAR, backward={"own": lambda *_: (torch.ones(5, 5),)})
    with pytest.raises(tc.TcompError, match=r"gave a gradient of \(5, 5\) for X, which is \(5,\)"):
        ops.own(torch.rand(5, requires_grad=True)).sum().backward()
    with pytest.raises(tc.TcompError, match="backward= for own is a def of the text, or a function, not 3"):
        tct.define(LINEAR, backward={"own": 3})  # type: ignore[dict-item]


def test_defs_that_are_not_differentiable() -> None:
    ops = tct.define(LINEAR, differentiable=False)
    with pytest.raises(tc.DerivativeError, match="not differentiable"):
        ops.relu_(torch.rand(3, 3, requires_grad=True))


def test_unknown_backwards() -> None:
    with pytest.raises(tc.TcompError, match="no def nothing"):
        tct.define(LINEAR, backward={"own": "nothing"})
    with pytest.raises(tc.TcompError, match="no def nothing"):
        tct.define(LINEAR, backward={"nothing": "own"})


def test_a_layer() -> None:
    torch.manual_seed(0)
    layer = tct.Layer(tct.define(LINEAR).linear, W=(5, 3), b=(5,))
    assert {n: tuple(p.shape) for n, p in layer.named_parameters()} == {"W": (5, 3), "b": (5,)}
    assert layer.b.abs().sum().item() == 0 < layer.W.abs().sum().item()
    x = torch.rand(4, 3)
    expected = torch.nn.functional.linear(x, layer.W, layer.b)
    torch.testing.assert_close(layer(x), expected)
    torch.testing.assert_close(layer(X=x), expected)
    layer(x).sum().backward()
    torch.testing.assert_close(layer.b.grad, torch.full((5,), 4.0))
    for copied in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        torch.testing.assert_close(copied(x), expected)
    model = torch.nn.Sequential(layer, torch.nn.ReLU())
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x), torch.relu(expected))
    assert set(model.state_dict()) == {"0.W", "0.b"}


def test_layers_whose_parameters_torch_replaces() -> None:
    layer, x = tct.Layer(tct.define(LINEAR).linear, W=(5, 3), b=(5,)), torch.rand(4, 3)
    swapped = {"W": torch.rand(5, 3), "b": torch.rand(5)}
    found = torch.func.functional_call(layer, swapped, (x,))
    torch.testing.assert_close(found, torch.nn.functional.linear(x, *swapped.values()))
    prune.random_unstructured(layer, "W", 0.5)
    torch.testing.assert_close(layer(x), torch.nn.functional.linear(x, layer.W, layer.b))
    layer = tct.Layer(layer.operation, W=(5, 3), b=(5,))
    weight_norm(layer, "W")
    torch.testing.assert_close(layer(x), torch.nn.functional.linear(x, layer.W, layer.b))
    assert len(list(layer.parameters())) == 3


def test_layers_that_do_not_fit() -> None:
    linear = tct.define(LINEAR).linear
    with pytest.raises(tc.TcompError, match="no input w"):
        tct.Layer(linear, w=(5, 3))
    with pytest.raises(tc.ShapeError, match="expected a tensor with 2 dimensions"):
        tct.Layer(linear, W=(5,))
    wrong = (("nonsense", "init= must be a function"), ({"b": 0}, "init= for b must be"), ({"w": max}, "init= names w"))
    for init, message in wrong:
        with pytest.raises(tc.TcompError, match=message):
            tct.Layer(linear, b=(5,), init=init)
    with pytest.raises(tc.ShapeError, match="expected type float32 but found float64"):
        tct.Layer(linear, W=torch.rand(5, 3, dtype=torch.float64))
    with pytest.raises(tc.ShapeError, match="the layer takes X, but got 2"):
        tct.Layer(linear, W=(5, 3), b=(5,))(torch.rand(4, 3), torch.rand(4, 3))


def test_constants_buffers_and_shared_parameters() -> None:
    text = "def f(float(N) X, float(N) W, int(N) I, const int S) -> (Y) { Y(n) = X(n) * W(n) + I(n) * S }"
    shared = torch.nn.Parameter(torch.rand(4))
    layer = tct.Layer(tct.define(text).f, W=shared, I=torch.arange(4, dtype=torch.int32), S=3)
    assert layer.W is shared and set(dict(layer.named_buffers())) == {"I"}
    x = torch.rand(4)
    torch.testing.assert_close(layer(x), x * shared + 3 * torch.arange(4))


@pytest.mark.parametrize("by", ["sum", "max", "min", "prod", "mean"])
def test_reduce(by: str) -> None:
    x = torch.rand(4, 3, 5, requires_grad=True)
    expected = getattr(torch, {"max": "amax", "min": "amin"}.get(by, by))(x, 1)
    found = tct.reduce("batch row column -> batch column", x, by)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found.sum(), x), torch.autograd.grad(expected.sum(), x))


def test_reductions_as_programs_write_them() -> None:
    x = torch.rand(4, 3)
    for by, expected in (("max=!", x.amax(1)), ("min=!", x.amin(1)), ("+=!", x.sum(1)), ("*=!", x.prod(1))):
        torch.testing.assert_close(tct.reduce("n d -> n", x, by), expected)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int32])
def test_integers_are_counted_as_torch_does(dtype: torch.dtype) -> None:
    x = torch.full((2, 3), 127).to(dtype)
    for by in ("sum", "prod"):
        expected = getattr(x << 24 if dtype is torch.int32 else x, by)(1)
        found = tct.reduce("n d -> n", x << 24 if dtype is torch.int32 else x, by)
        assert found.dtype == torch.int64
        assert torch.equal(found, expected)
    assert torch.equal(tct.einsum("nd->n", x), torch.einsum("nd->n", x))
    assert tct.reduce("n d -> n", x, "max").dtype == dtype


def test_functions_for_torch_func() -> None:
    f = tct.function(tct.define(LINEAR.replace("float", "double")).own)
    x = torch.rand(4, dtype=torch.float64)
    torch.testing.assert_close(torch.func.jacrev(f)(x), torch.diag(2 * x))
    torch.testing.assert_close(torch.func.jacrev(pickle.loads(pickle.dumps(f)))(x), torch.diag(2 * x))
    assert "d_X" in tct.gradient(tct.define(LINEAR).own).text


def test_autocast_on_request() -> None:
    text = "def half_mm(bfloat16(M,K) A, bfloat16(K,N) B) -> (float(M,N) C) { C(m,n) +=! A(m,k) * B(k,n) }"
    ops = tct.define(text, namespace="tct_autocast", autocast=torch.bfloat16)
    a, b = torch.rand(4, 3), torch.rand(3, 5)
    with pytest.raises(tc.ShapeError, match="expected type bfloat16"):
        ops.half_mm(a, b)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = ops.half_mm(a, b)
    torch.testing.assert_close(found, a.bfloat16().float() @ b.bfloat16().float())
    mm = tct.define("def mm<T>(T(M,K) A, T(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }", autocast=torch.bfloat16).mm
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = mm(a, b.requires_grad_())
        torch.testing.assert_close(found, torch.mm(a, b))
        assert torch.equal(torch.compile(lambda a, b: mm(a, b), backend="eager", fullgraph=True)(a, b), found)
    found.sum().backward()
    assert b.grad is not None
    assert b.grad.dtype == torch.float32
    assert mm(a, b).dtype == torch.float32


def test_what_a_def_was_told_holds_for_all_its_types() -> None:
    largest = "def largest<T>(T(N) X) -> (Y) { Y max=! X(i) }"
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    (first,) = torch.autograd.grad(tct.define(largest, ties="first").largest(x), x)
    assert first.tolist() == [1, 0, 0]
    with pytest.raises(tc.DerivativeError):
        tct.define(largest, differentiable=False).largest(x)
    own = {"largest": lambda inputs, outputs, cotangents: (7 * torch.ones_like(inputs[0]),)}
    (given,) = torch.autograd.grad(tct.define(largest, backward=own).largest(x), x)
    assert given.tolist() == [7, 7, 7]


def test_import_without_torch() -> None:
    """Neither importing nor defining loads torch."""
    script = (
        "import sys, tcomp; tcomp.define('def f(float(N) X) -> (Y) { Y(i) = X(i) }'); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
