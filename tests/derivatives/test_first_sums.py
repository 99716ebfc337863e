"""What each place adds is summed before it is gathered, where no factor is the same at several places."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tcomp as tc

LOCAL = """
def local(double(N,C,W) I, double(V,F,C,K) w) -> (O) { O(n,f,x) +=! I(n,c,STRIDE*x+k) * w(x,f,c,k) where x in 0:V }
"""


def test_a_locally_connected_layer_multiplies_matrices_first() -> None:
    lines = tc.define(LOCAL.replace("STRIDE*", "")).local.gradient("I").text.splitlines()
    assert any("    each_d_I(x, n, c, k) +=! d_O(n, f, x) * w(x, f, c, k)" in line for line in lines)
    assert "    d_I(n, c, x) +=! constant_exterior(each_d_I, 0.0)(x - k, n, c, k)" in lines


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_its_gradients_are_those_of_torch(stride: int) -> None:
    rng = np.random.default_rng(stride)
    places, taps = 5, 4
    image = torch.tensor(rng.standard_normal((2, 3, (places - 1) * stride + taps)), requires_grad=True)
    weights = torch.tensor(rng.standard_normal((places, 6, 3, taps)), requires_grad=True)
    expected = torch.einsum("ncxk,xfck->nfx", image.unfold(2, taps, stride), weights)
    cotangent = torch.tensor(rng.standard_normal(expected.shape))
    gradient = tc.define(LOCAL.replace("STRIDE", str(stride))).local.gradient()
    found = gradient(image.detach().numpy(), weights.detach().numpy(), cotangent.numpy())
    for got, right in zip(found, torch.autograd.grad(expected, (image, weights), cotangent), strict=True):
        np.testing.assert_allclose(got, right.numpy(), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "statement",
    [
        "O(n,f,x) +=! I(n,c,x+k) * w(f,c,k)",
        "O(n,f,x) +=! I(n,c,x+k) * w(x,f,c,k) * scale(1,c)",
        "O(n,c,x) +=! I(n,c,x+k) * w(x,c,c,k)",
    ],
)
def test_nothing_is_summed_first_where_a_factor_stays_or_nothing_is_left_to_sum(statement: str) -> None:
    rank = "F,C,K" if "w(f" in statement else "V,F,C,K"
    inputs = f"float(N,C,W) I, float({rank}) w" + (", float(2,C) scale" if "scale" in statement else "")
    text = tc.define(f"def f({inputs}) -> (O) {{ {statement} }}").f.gradient("I").text
    assert "each_d_I" not in text


def test_sums_in_sixteen_bits_are_not_stored_on_the_way() -> None:
    text = "def f(half(N,C,W) I, half(V,F,C,K) w) -> (O) { O(n,f,x) +=! I(n,c,x+k) * w(x,f,c,k) }"
    assert "each_d_I" not in tc.define(text).f.gradient("I").text
