"""Calls that were made before are made quickly; what differs from them must not be taken for them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch._subclasses import FakeTensorMode

import tcomp as tc
from tcomp.arrays import matching
from tcomp.autograd import eager

TEXT = """
def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }
def scaled(float(N) X, const int S) -> (Y) { Y(n) = X(n) * S }
def norm(float(N,D) X, float eps) -> (Y) {
    s(n) +=! X(n,d) * X(n,d)
    Y(n,d) = X(n,d) * rsqrt(s(n) + eps)
}
"""


@pytest.fixture
def ops() -> tc.Module:
    return tc.define(TEXT)


def test_everything_that_may_differ(ops: tc.Module) -> None:
    a, b = torch.rand(6, 6), torch.rand(6, 6)
    for _ in range(3):
        torch.testing.assert_close(ops.mm(a, b), a @ b)
    storage = torch.rand(40)
    others = [
        a.t(), a[:, :4].contiguous(), a[::2], a.flip(0), torch.nn.Parameter(a), a.clone().requires_grad_(),
        storage[1:37].view(6, 6), torch.complex(a, a).conj().imag, torch.zeros(6, 6).expand(6, 6),
        a[:, :1].expand(6, 6),
    ]  # fmt: skip
    for other in others:
        matching = b[: other.shape[1]]
        if other.is_neg():
            with pytest.raises(tc.ShapeError, match="negates"):
                ops.mm(other, matching)
            continue
        for _ in range(2):
            torch.testing.assert_close(ops.mm(other, matching), other @ matching)
        torch.testing.assert_close(ops.mm(a, b), a @ b)
    with pytest.raises(tc.ShapeError):
        ops.mm(a.double(), b)
    with pytest.raises(tc.ShapeError):
        ops.mm(a.to_sparse(), b)
    with pytest.raises(tc.ShapeError):
        ops.mm(a, b, a)
    np.testing.assert_allclose(ops.mm(a.numpy(), b.numpy()), (a @ b).numpy(), rtol=1e-5)
    assert ops.mm(a.to("meta"), b.to("meta")).is_meta
    torch.testing.assert_close(torch.vmap(ops.mm, in_dims=(0, None))(torch.stack([a, a]), b)[1], a @ b)


def test_recording_follows_what_requires_a_gradient(ops: tc.Module) -> None:
    a, b = torch.rand(4, 3), torch.rand(3, 5)
    for needs_a, needs_b in ((True, False), (False, True), (True, True), (False, False)) * 2:
        a.requires_grad_(needs_a)
        b.requires_grad_(needs_b)
        for enabled in (True, False):
            with torch.set_grad_enabled(enabled):
                result = ops.mm(a, b)
            assert result.requires_grad == (enabled and (needs_a or needs_b))
            if result.requires_grad:
                wanted = [t for t in (a, b) if t.requires_grad]
                found = torch.autograd.grad(result.sum(), wanted)
                torch.testing.assert_close(found, torch.autograd.grad((a @ b).sum(), wanted))


def test_recorded_calls_of_a_text_that_was_defined_before_are_quick_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both operations have one operator of torch; each remembers its calls."""
    prepared: list[object] = []
    remember = eager._remember

    def counted(*given: object) -> None:
        prepared.append(given)
        remember(*given)

    monkeypatch.setattr(eager, "_remember", counted)
    a, b = torch.rand(4, 3, requires_grad=True), torch.rand(3, 5)
    for _ in range(2):
        mm = tc.define(TEXT).mm
        prepared.clear()
        for _ in range(4):
            torch.testing.assert_close(mm(a, b), a @ b)
        assert len(prepared) == 1


def test_constants_are_told_apart(ops: tc.Module) -> None:
    x = torch.rand(5, requires_grad=True)
    for factor in (2, 3, 2, 1000, 3, 1000):
        result = ops.scaled(x, factor)
        torch.testing.assert_close(result, x * factor)
        torch.testing.assert_close(torch.autograd.grad(result.sum(), x)[0], torch.full((5,), float(factor)))


def test_what_is_handed_out_for_the_backward_pass_stays_hidden(ops: tc.Module) -> None:
    x = torch.rand(5, 4, requires_grad=True)
    for _ in range(3):
        result = ops.norm(x, 0.5)
        assert isinstance(result, torch.Tensor) and result.shape == (5, 4)
        expected = x * torch.rsqrt((x * x).sum(1, keepdim=True) + 0.5)
        torch.testing.assert_close(result, expected)
        torch.testing.assert_close(
            torch.autograd.grad(result.sin().sum(), x), torch.autograd.grad(expected.sin().sum(), x)
        )


def test_second_derivatives_reach_what_was_handed_out() -> None:
    norm = tc.define(TEXT.replace("float", "double")).norm
    x = torch.rand(3, 4, dtype=torch.float64, requires_grad=True)
    eps = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    for _ in range(2):
        assert torch.autograd.gradgradcheck(norm, (x, eps))


def test_results_do_not_follow_the_default_device(ops: tc.Module) -> None:
    a, b = torch.rand(4, 3), torch.rand(3, 5)
    ops.mm(a, b)
    with torch.device("meta"):
        assert ops.mm(a, b).device.type == "cpu"
    with torch.inference_mode():
        assert ops.mm(a, b).is_inference()


@pytest.fixture(params=["torch's guards", "comparisons"])
def either_matcher(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What torch guards its graphs with is not documented, and may be missing one day."""
    if request.param == "comparisons":
        monkeypatch.setattr(matching, "_guard", lambda torch, tensors: None)


def others(a: torch.Tensor, needs: bool) -> list[object]:
    """What must not be taken for a tensor, of 4x3 floats."""
    plain = a.detach()
    storage = torch.rand(13).numpy().tobytes()
    given_back = torch.rand(4, 3)
    given_back.untyped_storage().resize_(0)
    return [
        plain.double(), plain[:3], plain.t().contiguous().t(), torch.nn.Parameter(plain), plain.to("meta"),
        torch._neg_view(plain), plain.to_sparse(), plain.as_subclass(type("Sub", (torch.Tensor,), {})), plain.numpy(),
        torch.nested.nested_tensor([plain]), plain.clone().requires_grad_(not needs), None, 3,
        torch.frombuffer(bytearray(storage), dtype=torch.float32, offset=4)[:12].view(4, 3).requires_grad_(not needs),
        given_back.requires_grad_(needs), torch.quantize_per_tensor(plain, 0.1, 0, torch.qint8), plain.to_sparse_csr(),
        plain.to_mkldnn(), torch.nested.nested_tensor([plain], layout=torch.jagged), torch._to_functional_tensor(plain),
    ]  # fmt: skip


@pytest.mark.usefixtures("either_matcher")
@pytest.mark.parametrize("needs", [False, True])
def test_a_matcher_takes_nothing_that_differs(needs: bool) -> None:
    def fresh() -> torch.Tensor:
        return torch.rand(4, 3).requires_grad_(needs)

    a, number = fresh(), 1000
    match = matching.tensor_matcher(torch, (a, number), (3,), recorded=needs)
    assert match is not None
    assert match((a, number)) == (a.data_ptr(),) and match((b := fresh(), number)) == (b.data_ptr(),)
    for other in others(a, needs):
        assert match((other, number)) is None
    assert match((a, int("1000"))) is None and match((a,)) is None and match((a, number, a)) is None
    with torch.autograd.forward_ad.dual_level():
        assert match((torch.autograd.forward_ad.make_dual(a, a), number)) is None
    with FakeTensorMode():
        assert match((a, number)) is None
    if needs:
        with torch.no_grad():
            assert match((a, number)) is None
    seen: list[object] = []
    torch.vmap(lambda x: (seen.append(match((x, number))), x)[1])(torch.rand(2, 4, 3))
    torch.func.grad(lambda x: (seen.append(match((x, number))), x.sum())[1])(a.detach())
    assert seen == [None, None]


@pytest.mark.parametrize("needs", [False, True])
def test_a_direct_call_takes_nothing_that_differs(needs: bool) -> None:
    """The same of what C asks."""
    f = tc.define("def f(float(N,D) X, const int S) -> (Y) { Y(n,d) = X(n,d) * S }").f
    a, number = torch.rand(4, 3).requires_grad_(needs), 1000
    for _ in range(3):
        f(a, number)
    ((_, call),) = f._quick.recent
    assert type(call).__name__ == "builtin_function_or_method"
    assert torch.equal(call((a, number), None), a * 1000)
    for other in others(a, needs):
        assert call((other, number), None) is None
    for arguments, out in (((a, int("1000")), None), ((a,), None), ((a, number, a), None), ((a, number), a)):
        assert call(arguments, out) is None
    with torch.autograd.forward_ad.dual_level():
        assert call((a, number), None) is None
    with FakeTensorMode():
        assert call((a, number), None) is None
    if needs:
        with torch.no_grad():
            assert call((a, number), None) is None
    seen: list[object] = []
    torch.vmap(lambda x: (seen.append(call((x, number), None)), x)[1])(torch.rand(2, 4, 3))
    torch.func.grad(lambda x: (seen.append(call((x, number), None)), x.sum())[1])(a.detach())
    assert seen == [None, None]


def test_memory_that_was_given_back_is_not_read(ops: tc.Module) -> None:
    """Whether the call, its record or the backward pass meets it, the first time or later."""
    for quick in (False, True):
        for needs in (False, True):
            a, b = torch.rand(4, 3, requires_grad=needs), torch.rand(3, 5)
            if quick:
                ops.mm(a, b), ops.mm(a, b)
            b.untyped_storage().resize_(0)
            with pytest.raises(tc.ShapeError, match="given back"):
                ops.mm(a, b)
        a, b = torch.rand(4, 3, requires_grad=True), torch.rand(3, 5)
        result = ops.mm(a, b)
        b.untyped_storage().resize_(0)
        with pytest.raises(tc.ShapeError, match="given back"):
            result.sum().backward()


def test_cotangents_that_torch_negates(ops: tc.Module) -> None:
    for _ in range(2):
        a, b, cotangent = torch.rand(4, 3, requires_grad=True), torch.rand(3, 5), torch.rand(4, 5)
        ops.mm(a, b).backward(torch._neg_view(cotangent))
        torch.testing.assert_close(a.grad, -cotangent @ b.T)
