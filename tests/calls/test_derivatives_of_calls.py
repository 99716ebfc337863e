"""What is derived of a def that calls others is derived of the text without calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tcomp as tc

CALLS = """
def f(float(L,D) Q, float(S,D) K, float(S,E) V) -> (O) {
    score(l,s) +=! Q(l,d) * K(s,d)
    O = mix(score, V)
}
def mix(float(L,S) score, float(S,E) V) -> (O) {
    W = softmax(score)
    O(l,e) +=! W(l,s) * V(s,e)
}
def softmax(float(N,M) X) -> (Y) {
    m(i) max=! X(i,j)
    e(i,j) = exp(X(i,j) - m(i))
    s(i) +=! e(i,j)
    Y(i,j) = e(i,j) / s(i)
}
"""
BY_HAND = """
def f(float(L,D) Q, float(S,D) K, float(S,E) V) -> (O) {
    score(l,s) +=! Q(l,d) * K(s,d)
    mix_softmax_m(i) max=! score(i,j)
    mix_softmax_e(i,j) = exp(score(i,j) - mix_softmax_m(i))
    mix_softmax_s(i) +=! mix_softmax_e(i,j)
    mix_W(i,j) = mix_softmax_e(i,j) / mix_softmax_s(i)
    O(l,e) +=! mix_W(l,s) * V(s,e)
}
"""


def test_texts(golden: Callable[[Path, str], None]) -> None:
    calls, by_hand = tc.define(CALLS).f, tc.define(BY_HAND).f
    assert str(calls) == str(by_hand)
    assert calls.gradient().text == by_hand.gradient().text
    assert str(calls.tangent()) == str(by_hand.tangent())
    assert str(calls.batched([0, None, 0])) == str(by_hand.batched([0, None, 0]))
    golden(Path(__file__).parent / "attention_of_calls.grad.tc", calls.gradient().text)


def test_values() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(np.float32) for shape in ((5, 4), (6, 4), (6, 3), (5, 3))]
    q, k, v, cotangent = (torch.tensor(a, requires_grad=True) for a in arrays)
    (torch.softmax(q @ k.T, 1) @ v).backward(cotangent)
    found = tc.define(CALLS).f.gradient()(*arrays)
    for mine, theirs in zip(found, (q.grad, k.grad, v.grad), strict=True):
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-4, atol=1e-5)


@pytest.mark.long
def test_in_torch() -> None:
    torch = pytest.importorskip("torch")
    operation = tc.define(CALLS).f
    q, k, v = (torch.randn(shape, requires_grad=True) for shape in ((5, 4), (6, 4), (6, 3)))
    compiled = torch.compile(lambda q, k, v: operation(q, k, v) * 2, fullgraph=True)
    expected = torch.softmax(q @ k.T, 1) @ v * 2
    torch.testing.assert_close(compiled(q, k, v), expected)
    found = torch.autograd.grad(operation(q, k, v).sum(), (q, k, v))
    for mine, theirs in zip(found, torch.autograd.grad((expected / 2).sum(), (q, k, v)), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
