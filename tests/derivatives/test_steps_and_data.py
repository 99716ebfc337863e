"""Derivatives of blocks where data choose what a step reads, or which step is read."""

from __future__ import annotations

import numpy as np
import pytest

import tcomp as tc

CHOSEN = {
    "one step": ("int32 n", "y(n)"),
    "a step for each element": ("int32(K) n", "k: y(n(k)) * X(n(k))"),
    "the last step of each length": ("int32(K) n", "+: log(2.0 + y(n(k)-1)) where k in 0:K"),
}


@pytest.mark.parametrize("name", CHOSEN)
def test_data_choose_which_step_is_read(name: str) -> None:
    parameter, read = CHOSEN[name]
    kind, _, value = read.rpartition(": ")
    target = {"": "L =", "k": "L(k) =", "+": "L +=!"}[kind]
    f = tc.define(
        f"""def f(double(T) X, {parameter}) -> (L) {{
            for t {{ y(t) = X(t) * X(t) + (t == 0 ? 0.0 : 0.5 * X(t) * y(t-1)) }}
            {target} {value}
        }}"""
    ).f
    x, n = np.array([0.3, 0.7, 0.2, 0.9]), 2 if name == "one step" else np.array([3, 1, 1], np.int32)
    d = np.array([0.5, 2.0, 1.0]) if kind == "k" else 1.5
    found = f.gradient()(x, n, d)
    moved = [x + 1e-6 * e for e in np.eye(4)], [x - 1e-6 * e for e in np.eye(4)]
    up, down = ([np.sum(np.multiply(d, f(own, n))) for own in some] for some in moved)
    np.testing.assert_allclose(found, (np.array(up) - down) / 2e-6, rtol=1e-6, atol=1e-8)


TWICE = {
    "a gather in steps": "int(T) p) -> (y) { for t { double(T) y(t) = X(p(t)) * (t == 0 ? 1.0 : y(t-1)) } }",
    "a gather of a gather": (
        "int(T) p) -> (y) { for t { double(T) y(t) = (p(t) > 0 ? X(p(p(t)-1)) : 0.5) * (t == 0 ? 1.0 : y(t-1)) } }"
    ),
    "one element for fewer places": (
        "int(K) p) -> (L, y) { for t { y(t) = X(t) * X(t) + (t == 0 ? 0.0 : 0.5 * X(t) * y(t-1)) }"
        " L(k) = y(p(k)) * X(k) }"
    ),
}


@pytest.mark.parametrize("name", TWICE)
@pytest.mark.parametrize("t", [1, 3])
def test_conditions_hold_for_what_a_subscript_reads(name: str, t: int) -> None:
    torch = pytest.importorskip("torch")
    f = tc.define(f"def f(double(T) X, {TWICE[name]}").f
    x = torch.linspace(0.3, 0.9, t, dtype=torch.float64, requires_grad=True)
    p = torch.tensor([0, 2, 2][:t] if name != "one element for fewer places" else [t - 1], dtype=torch.int32)
    assert torch.autograd.gradgradcheck(lambda x: f(x, p), [x])
