"""Gradients of strided convolutions are sums by phases."""

from __future__ import annotations

import numpy as np
import pytest

import tcomp as tc

CONVOLUTION = """def f(double(N,C,H,W) I, double(F,C,{k},{k}) K) -> (O) {{
    O(n,f,h,w) +=! I(n,c,{s}*h+kh,{s}*w+kw) * K(f,c,kh,kw)
}}"""
PADDED = """def f(double(N,H) I, double(KH) K) -> (O) {
    O(n,h) +=! constant_exterior(I, 0)(n,2*h+kh-1) * K(kh) where n in 0:N, h in 0:(H+1)/2
}"""


def by_hand(k: int, s: int, K: np.ndarray, d: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    result = np.zeros(shape)
    rows, columns = d.shape[2:]
    for h in range(k):
        for w in range(k):
            part = np.einsum("nfhw,fc->nchw", d, K[:, :, h, w])
            result[:, :, h : h + s * rows : s, w : w + s * columns : s] += part
    return result


@pytest.mark.parametrize(
    ("k", "s", "by_phases"), [(3, 2, True), (5, 3, True), (1, 2, True), (2, 2, False), (3, 3, False), (3, 1, False)]
)
def test_each_phase_has_the_steps_that_it_reads(k: int, s: int, by_phases: bool) -> None:
    gradient = tc.define(CONVOLUTION.format(k=k, s=s)).f.gradient(wrt=("I",))
    assert ("d_I_phases" in gradient.text) == by_phases
    if by_phases and k > s:
        assert "constant_exterior(K" not in gradient.text
    random = np.random.default_rng(k)
    rows = (13 - k) // s + 1
    image, K, d = random.random((2, 3, 13, 13)), random.random((4, 3, k, k)), random.random((2, 4, rows, rows))
    assert np.allclose(gradient(image, K, d), by_hand(k, s, K, d, image.shape), rtol=1e-12)


def test_a_padded_one_counts_from_its_border() -> None:
    gradient = tc.define(PADDED).f.gradient(wrt=("I",))
    assert "(h + 1) / 2" in gradient.text and "d_I_phases" in gradient.text
    random = np.random.default_rng(0)
    for size, k in ((11, 3), (12, 4), (7, 5)):
        image, K, d = random.random((2, size)), random.random(k), random.random((2, (size + 1) // 2))
        wanted = np.zeros((2, size + k + 2))
        for h in range(d.shape[1]):
            wanted[:, 2 * h : 2 * h + k] += d[:, h : h + 1] * K
        assert np.allclose(gradient(image, K, d), wanted[:, 1 : 1 + size], rtol=1e-12)


def test_it_is_differentiated_again() -> None:
    """The gradient is linear in what comes in and in the kernel: its own gradient is a strided convolution."""
    second = tc.define(CONVOLUTION.format(k=3, s=2)).f.gradient(wrt=("I",)).gradient()
    random = np.random.default_rng(1)
    image, K, d = random.random((1, 2, 9, 9)), random.random((3, 2, 3, 3)), random.random((1, 3, 4, 4))
    found = dict(zip(second.wrt, second(K, 9, 9, d, image), strict=True))
    windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
    assert np.allclose(found["d_O"], np.einsum("nchwyx,fcyx->nfhw", windows, K), rtol=1e-12)
    assert np.allclose(found["K"], np.einsum("nchwyx,nfhw->fcyx", windows, d), rtol=1e-12)


def test_what_may_lie_outside_elsewhere_stays_guarded() -> None:
    """The image has more channels than the kernel, so steps of a phase are not all that may be outside."""
    text = """def f(double(N,D,H) I, double(F,C,3) K) -> (O) {
        O(n,g,h) +=! I(n,c,2*h+k) * K(g,c,k) where c in 0:C, k in 0:3
    }"""
    gradient = tc.define(text).f.gradient(wrt=("I",))
    random = np.random.default_rng(2)
    image, K, d = random.random((2, 5, 9)), random.random((4, 3, 3)), random.random((2, 4, 4))
    wanted = np.zeros(image.shape)
    for k in range(3):
        wanted[:, :3, k : k + 8 : 2] += np.einsum("ngh,gc->nch", d, K[:, :, k])
    assert np.allclose(gradient(image, K, d), wanted, rtol=1e-12)
