"""Operations recorded by autograd, transformed by torch.func, and what they refuse."""

from __future__ import annotations

import copy
import gc
import pickle
import threading
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint

import tcomp as tc
from tcomp.autograd.backward import Given
from tcomp.autograd.once import Once
from tcomp.errors import ArgumentError

TEXT = """
def mm(double(M,K) A, double(K,N) B) -> (C) { C(m,n) +=! A(m,kk) * B(kk,n) }
def mmf(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,kk) * B(kk,n) }
def softmax(double(N,D) X) -> (Y) {
    m(n) max=! X(n,d)
    E(n,d) = exp(X(n,d) - m(n))
    s(n) +=! E(n,d)
    Y(n,d) = E(n,d) / s(n)
}
def conv(double(N,C,H,W) I, double(F,C,KH,KW) K, const int S) -> (O) {
    O(n,f,h,w) +=! I(n,c,S*h+kh,S*w+kw) * K(f,c,kh,kw)
}
def several(double(N) X, int(N) I, double a) -> (Y, J, Z) {
    Y(i) = X(i) * a
    J(i) = 2 * I(i)
    Z(i) = sin(X(i)) * I(i)
}
def after(float(N) X) -> (Y) { Y(i) = nextafter(X(i), 2.0) }
"""


@pytest.fixture(scope="module")
def ops() -> tc.Module:
    return tc.define(TEXT)


def doubles(*shapes: tuple[int, ...], seed: int = 0) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(s, dtype=torch.float64, generator=generator).requires_grad_() for s in shapes]


def cases(ops: tc.Module) -> dict[str, tuple[Any, list[torch.Tensor]]]:
    indices = torch.arange(1, 6, dtype=torch.int32)
    return {
        "mm": (ops.mm, doubles((4, 3), (3, 5))),
        "softmax": (ops.softmax, doubles((3, 4))),
        "conv": (lambda i, k: ops.conv(i, k, 2), doubles((1, 2, 7, 7), (2, 2, 3, 3))),
        "several": (lambda x, a: ops.several(x, indices, a)[::2], doubles((5,), ())),
    }


@pytest.mark.parametrize("name", ["mm", "softmax", "conv", "several"])
def test_gradcheck(ops: tc.Module, name: str) -> None:
    f, inputs = cases(ops)[name]
    assert torch.autograd.gradcheck(f, inputs, check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(f, inputs)


def test_func_transforms(ops: tc.Module) -> None:
    (x,) = (t.detach() for t in doubles((3, 4)))

    def ours(x: torch.Tensor) -> torch.Tensor:
        return ops.softmax(x).pow(2).sum()

    def theirs(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, 1).pow(2).sum()

    for transform in (torch.func.grad, torch.func.hessian, torch.func.jacrev, torch.func.jacfwd):
        torch.testing.assert_close(transform(ours)(x), transform(theirs)(x))
    moved, tangent = torch.func.jvp(ours, (x,), (torch.ones_like(x),))
    expected = torch.func.jvp(theirs, (x,), (torch.ones_like(x),))
    torch.testing.assert_close((moved, tangent), expected)
    _, pullback = torch.func.vjp(ours, x)
    torch.testing.assert_close(pullback(torch.tensor(2.0, dtype=torch.float64))[0], 2 * torch.func.grad(theirs)(x))


def test_vmap_is_one_kernel(ops: tc.Module) -> None:
    a, b = (t.detach() for t in doubles((6, 4, 3), (3, 5)))
    torch.testing.assert_close(torch.vmap(ops.mm, in_dims=(0, None))(a, b), a @ b)
    torch.testing.assert_close(torch.vmap(ops.mm, in_dims=(1, None))(a.transpose(0, 1), b), a @ b)
    torch.testing.assert_close(torch.vmap(ops.mm, in_dims=(0, None), out_dims=2)(a, b), (a @ b).movedim(0, 2))
    nested = torch.vmap(torch.vmap(ops.mm, in_dims=(None, 0)), in_dims=(0, None))(a, b.expand(2, 3, 5))
    torch.testing.assert_close(nested, (a @ b)[:, None].expand(6, 2, 4, 5))
    per_sample = torch.vmap(torch.func.grad(lambda a: ops.mm(a, b).pow(2).sum()))(a)
    torch.testing.assert_close(per_sample, 2 * (a @ b) @ b.T)


def test_frozen_inputs_cost_nothing(ops: tc.Module) -> None:
    """Only what needs a gradient is derived, and only what that reads is kept."""
    a, b = doubles((4, 3), (3, 5))
    result = ops.mm(a, b.detach())
    assert isinstance(result.grad_fn, torch.autograd.graph.Node)
    assert [t.shape for t in result.grad_fn.saved_tensors] == [b.shape]  # type: ignore[attr-defined]
    result.sum().backward()
    torch.testing.assert_close(a.grad, b.sum(1).expand(4, 3).detach())


def test_a_parameter_trains(ops: tc.Module) -> None:
    torch.manual_seed(0)
    weight, x = torch.nn.Parameter(torch.rand(3, 5)), torch.rand(4, 3)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = ops.mmf(x, weight).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


def test_contexts_without_a_record(ops: tc.Module) -> None:
    a, b = doubles((4, 3), (3, 5))
    with torch.no_grad():
        assert not ops.mm(a, b).requires_grad
    with torch.inference_mode():
        assert ops.mm(a, b).is_inference()
        inside = ops.mm(a.detach() * 1, b.detach() * 1)
    torch.testing.assert_close(inside, (a @ b).detach())


def test_graphs_that_are_used_again(ops: tc.Module) -> None:
    a, b = doubles((4, 3), (3, 5))
    seen: list[torch.Tensor] = []
    a.register_hook(seen.append)
    result = ops.mm(a, b)
    result.sum().backward(retain_graph=True)
    result.sum().backward()
    torch.testing.assert_close(a.grad, 2 * b.detach().sum(1).expand(4, 3))
    assert len(seen) == 2
    with pytest.raises(RuntimeError, match="second time"):
        result.sum().backward()


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing(ops: tc.Module, reentrant: bool) -> None:
    a, b = doubles((4, 3), (3, 5))
    # Of two kinds of backward passes, of which the second has to find out that it is not the first.
    torch.autograd.grad(ops.mm(a, b), (a, b), torch.rand(ops.mm(a, b).shape, dtype=a.dtype))
    checkpoint(ops.mm, a, b, use_reentrant=reentrant).sum().backward()
    torch.testing.assert_close(a.grad, b.detach().sum(1).expand(4, 3))


@pytest.mark.parametrize("change", [lambda t: t.t().contiguous().t(), lambda t: t.flip(0), lambda t: t[::2, ::2]])
def test_views_and_strides(ops: tc.Module, change: Any) -> None:
    a, b = doubles((6, 6), (6, 6))
    x, y = change(a), change(b)
    cotangent = torch.rand(y.shape, dtype=torch.float64)
    found = torch.autograd.grad(ops.mm(x, y), (a, b), cotangent)
    torch.testing.assert_close(found, torch.autograd.grad(x @ y, (a, b), cotangent))


def test_channels_last(ops: tc.Module) -> None:
    image, kernel = doubles((2, 2, 7, 7), (2, 2, 3, 3))
    last = image.detach().to(memory_format=torch.channels_last).requires_grad_()
    ops.conv(last, kernel, 1).pow(2).sum().backward()
    torch.nn.functional.conv2d(image, kernel).pow(2).sum().backward()
    torch.testing.assert_close(last.grad, image.grad)


def test_numbers_and_numpy_beside_tensors(ops: tc.Module) -> None:
    (x,) = doubles((5,))
    indices = np.arange(5, dtype=np.int32)
    y, j, z = ops.several(x, indices, 2.0)
    assert not j.requires_grad and y.requires_grad and z.requires_grad
    (y.sum() + z.sum()).backward()
    torch.testing.assert_close(x.grad, 2 + x.detach().cos() * torch.from_numpy(indices))


def test_one_output_without_a_cotangent(ops: tc.Module) -> None:
    x, a = doubles((5,), ())
    ops.several(x, torch.arange(5, dtype=torch.int32), a)[0].sum().backward()
    torch.testing.assert_close(x.grad, a.detach().expand(5))
    for _ in range(2):  # the second call is quick
        x.grad = None
        y, _, z = ops.several(x, torch.arange(5, dtype=torch.int32), a)
        (found,) = torch.autograd.grad(z.sum(), x, retain_graph=True)
        torch.testing.assert_close(found, x.detach().cos() * torch.arange(5))
        found = torch.autograd.grad((y + z).sum(), (x, a))
        torch.testing.assert_close(found, (a.detach() + x.detach().cos() * torch.arange(5), x.detach().sum()))


def test_threads_that_begin_together() -> None:
    """Forward and backward from a cold start: nothing is registered twice."""
    operation = tc.define(TEXT.replace("softmax", "cold")).cold
    found: list[torch.Tensor | BaseException] = [torch.zeros(0)] * 8
    start = threading.Barrier(8)

    def work(number: int) -> None:
        (x,) = doubles((3, 4))
        start.wait()
        try:
            (found[number],) = torch.autograd.grad(operation(x).pow(2).sum(), x)
        except BaseException as error:  # noqa: BLE001
            found[number] = error

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (x,) = doubles((3, 4))
    expected = torch.autograd.grad(torch.softmax(x, 1).pow(2).sum(), x)[0]
    for result in found:
        assert isinstance(result, torch.Tensor), result
        torch.testing.assert_close(result, expected)


def test_a_tensor_that_was_saved_and_written(ops: tc.Module) -> None:
    a, b = doubles((4, 3), (3, 5))
    kept = b.detach().clone()
    result = ops.mm(a, kept)
    ops.mm(torch.rand(3, 3, dtype=torch.float64), torch.rand(3, 5, dtype=torch.float64), out=kept)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()


def test_out_goes_with_no_gradient(ops: tc.Module) -> None:
    a, b = doubles((4, 3), (3, 5))
    with pytest.raises(tc.ShapeError, match="input A requires a gradient, which does not go with out="):
        ops.mm(a, b.detach(), out=torch.zeros(4, 5, dtype=torch.float64))
    with pytest.raises(tc.ShapeError, match="output 0 requires a gradient"):
        ops.mm(a.detach(), b.detach(), out=torch.zeros(4, 5, dtype=torch.float64, requires_grad=True))
    with torch.no_grad():
        ops.mm(a, b, out=torch.zeros(4, 5, dtype=torch.float64))


def test_without_a_derivative_it_says_so_before_it_computes(ops: tc.Module) -> None:
    x = torch.ones(4)
    ops.after(x)
    with torch.no_grad():
        ops.after(x.requires_grad_())
    with pytest.raises(tc.DerivativeError, match="nextafter has no derivative"):
        ops.after(x)


def test_subclasses_stay_what_they_are(ops: tc.Module) -> None:
    class Marked(torch.Tensor):
        pass

    a, b = (t.detach() for t in doubles((4, 3), (3, 5)))
    assert type(ops.mm(a.as_subclass(Marked), b)) is Marked


def test_meta_tensors_give_shapes(ops: tc.Module) -> None:
    a, b = (torch.empty(s, dtype=torch.float64, device="meta") for s in ((4, 3), (3, 5)))
    result = ops.mm(a, b)
    assert result.is_meta and result.shape == (4, 5) and result.dtype is torch.float64
    with pytest.raises(tc.ShapeError, match="Mismatched sizes for dimension K"):
        ops.mm(a, a)


@pytest.mark.parametrize("make", [torch.Tensor.to_sparse, lambda t: torch.nested.nested_tensor([t, t])])
def test_tensors_without_rows_in_memory_are_refused(ops: tc.Module, make: Any) -> None:
    a, b = doubles((4, 3), (3, 5))
    with pytest.raises(tc.ShapeError, match=r"is given a sparse matrix|nested tensor"):
        ops.mm(make(a), b)


@pytest.mark.parametrize("cotangent", [torch.ones(5, 4, dtype=torch.float64), torch.ones(4, 5)])
def test_cotangents_that_do_not_fit(ops: tc.Module, cotangent: torch.Tensor) -> None:
    a, b = doubles((4, 3), (3, 5))
    with pytest.raises(tc.ShapeError):
        ops.mm.gradient()(a.detach(), b.detach(), cotangent)


def test_sparse_cotangents_are_refused(ops: tc.Module) -> None:
    (x,) = doubles((3, 4))
    scale, indices = doubles(())[0], torch.arange(5, dtype=torch.int32)
    for result in (ops.softmax(x), ops.several(doubles((5,))[0], indices, scale)[0]):
        with pytest.raises(tc.ShapeError, match=r"a cotangent is a torch\.sparse_coo tensor"):
            result.backward(torch.ones(result.shape, dtype=torch.float64).to_sparse())


def test_tensors_that_nobody_else_holds(ops: tc.Module) -> None:
    """What the backward pass reads lives on when all names of it are gone, and others take memory."""
    a, b = doubles((40, 30), (30, 50))
    expected = a.detach().sum(0)[:, None].expand(30, 50).clone()
    result = ops.mm(a.detach().clone(), b)
    gc.collect()
    others = [torch.rand(40, 30, dtype=torch.float64) for _ in range(16)]
    result.sum().backward()
    torch.testing.assert_close(b.grad, expected)
    assert len(others) == 16


def test_wrong_inputs_are_named(ops: tc.Module) -> None:
    a, b = doubles((4, 3), (3, 5))
    with pytest.raises(tc.ShapeError, match="Mismatched sizes for dimension K"):
        ops.mm(a, a)
    with pytest.raises(tc.ShapeError, match="expected type float64 but found float32"):
        ops.mm(a, b.float())
    with pytest.raises(ArgumentError, match="expected 2 inputs but found 1"):
        ops.mm(a)
    for dtype, number, found in (
        ("float", 1e300, "1e.300 of type float"),
        ("float", 10**400, "a whole number of 1329 bits"),
        ("int32", 10**5000, "a whole number of 16610 bits"),
        ("int32", 2**40, "1099511627776 of type int"),
    ):
        scale = tc.define(f"def scale({dtype} a, {dtype}(N) X) -> (Y) {{ Y(n) = a * X(n) }}").scale
        x = torch.ones(3, dtype=torch.int32 if dtype == "int32" else torch.float32)
        for given in (x, x.numpy()):
            with pytest.raises(tc.ShapeError, match=f"input a: expected type {dtype}.* but found {found}"):
                scale(number, given)


def test_copies_and_pickles(ops: tc.Module) -> None:
    a, b = doubles((4, 3), (3, 5))
    for copied in (copy.deepcopy(ops.mm), pickle.loads(pickle.dumps(ops.mm))):
        torch.testing.assert_close(torch.autograd.grad(copied(a, b).sum(), a)[0], b.detach().sum(1).expand(4, 3))


def test_jacobians_of_blocks() -> None:
    """They are batches of gradients."""
    f = tc.define("def f(double(T,N) X) -> (h) { h(n) = X(0,n) for t in 1:T { h(n) = sin(h(n)) * X(t,n) } }").f

    def theirs(x: torch.Tensor) -> torch.Tensor:
        h = x[0]
        for row in x[1:]:
            h = h.sin() * row
        return h

    x = torch.rand(3, 2, dtype=torch.float64)
    torch.testing.assert_close(torch.func.jacrev(f)(x), torch.func.jacrev(theirs)(x))
    torch.testing.assert_close(torch.vmap(f)(x[None].repeat(2, 1, 1)), theirs(x)[None].repeat(2, 1))


def test_a_stride_of_zero_is_refused_as_without_a_record() -> None:
    """What calls save is decided by extents, which are no numbers then."""
    f = tc.define("def f(float(H) I, float(R) K, const int S) -> (O) { O(h) +=! I(S*h+r) * K(r) }").f
    image, K = torch.ones(5), torch.ones(2)
    for own in (image, image.clone().requires_grad_()):
        with pytest.raises(tc.TcompError, match="h is unconstrained"):
            f(own, K, 0)


def test_backward_passes_are_kept_by_strides_and_not_by_other_constants() -> None:
    f = tc.define("""def kept_by_strides(double(N) x, double(N) z, double(K) w, const int S, const int A) -> (y) {
        y(i) +=! double(A) * x(S*i+k) * z(S*i+k) * w(k) where i in 0:(N-K)/S+1
    }""")["kept_by_strides"]
    x, z = torch.ones(6, dtype=torch.float64), torch.arange(6, dtype=torch.float64)
    w = torch.tensor([2.0, 3.0], dtype=torch.float64)
    f(x.clone().requires_grad_(), z, w, 2, 1)
    (operator,) = f.operators.values()
    for stride, factor in ((2, 3), (2, 4), (3, 4)):
        d = torch.ones(4 // stride + 1, dtype=torch.float64)
        given = Given([x, z, w, stride, factor, d], (), [d], ("x",), ())
        wanted = torch.zeros(6, dtype=torch.float64)
        wanted[:5:stride], wanted[1::stride] = 2 * factor, 3 * factor
        assert torch.equal(operator.backward_operator.gradients(given)[0], wanted * z)
    assert {tuple(n for n in key if type(n) is int) for key in operator.backward_operator._known} == {(2,), (3,)}


def test_of_what_is_made_for_numbers_the_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tcomp.autograd.once.MOST_KEPT", 2)
    once, made = Once(), []
    for numbers in ((1,), (2,), (1,), (3,), (1,)):
        once.get("key", lambda numbers=numbers: made.append(numbers) or numbers, numbers)
    assert made == [(1,), (2,), (3,), (1,)]
