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


DILATED = """def f(double(N,C,H,W) I, double(F,C,KH,KW) K, const int S, const int D, const int P = 0) -> (O) {
    O(n,f,h,w) +=! constant_exterior(I, 0)(n,c,S*h+D*kh-P,S*w+D*kw-P) * K(f,c,kh,kw)
        where n in 0:N, c in 0:C, h in 0:(H+2*P-D*(KH-1)-1)/S+1, w in 0:(W+2*P-D*(KW-1)-1)/S+1
}"""


def dilated_by_hand(
    K: np.ndarray, d: np.ndarray, shape: tuple[int, ...], s: int, dilation: int, pad: int
) -> np.ndarray:
    rows, columns = d.shape[2:]
    wide = np.zeros((*shape[:2], shape[2] + 2 * pad, shape[3] + 2 * pad))
    for h in range(K.shape[2]):
        for w in range(K.shape[3]):
            part = np.einsum("nfhw,fc->nchw", d, K[:, :, h, w])
            y, x = dilation * h, dilation * w
            wide[:, :, y : y + s * rows : s, x : x + s * columns : s][:, :, :rows, :columns] += part
    return wide[:, :, pad : pad + shape[2], pad : pad + shape[3]]


@pytest.mark.parametrize(("s", "dilation", "pad"), [(1, 2, 1), (2, 3, 1), (2, 2, 2), (4, 6, 3), (3, 2, 0)])
def test_a_dilated_one_is_gathered_by_the_numbers_of_a_call(s: int, dilation: int, pad: int) -> None:
    """Strides and dilations are constants of the def; whatever they share, no step of a sum is in vain."""
    gradient = tc.define(DILATED).f.gradient("I")
    assert gradient.derivative.strides == ("S", "D") and "% S == 0" in gradient.text
    random = np.random.default_rng(s)
    image, K = random.random((1, 2, 9, 8)), random.random((3, 2, 3, 2))
    rows, columns = ((n + 2 * pad - dilation * (k - 1) - 1) // s + 1 for n, k in ((9, 3), (8, 2)))
    d = random.random((1, 3, rows, columns))
    wanted = dilated_by_hand(K, d, image.shape, s, dilation, pad)
    operation = gradient.backward
    named = {"I": image, "K": K, "S": s, "D": dilation, "P": pad, "d_O": d, "H": 9, "W": 8}
    open_ones = operation.reference(*(named[t.name] for t in operation.function.inputs))
    assert np.allclose(open_ones, wanted, rtol=1e-12)
    at = gradient.at_strides(named)
    by_numbers = at.backward.reference(*(named[t.name] for t in at.backward.function.inputs))
    assert np.allclose(by_numbers, wanted, rtol=1e-12)
    assert ("d_I_phases" in at.text) == (s > 1) and "* kh) %" not in at.text


def test_calls_choose_the_text_for_their_strides() -> None:
    gradient = tc.define(DILATED).f.gradient("I")
    random = np.random.default_rng(5)
    image, K, d = random.random((1, 2, 9, 9)), random.random((3, 2, 2, 2)), random.random((1, 3, 3, 3))
    for s, dilation in ((4, 6), (3, 2)):
        found = gradient(image, K, d_O=d[:, :, : (8 - dilation) // s + 1, : (8 - dilation) // s + 1], S=s, D=dilation)
        cut = d[:, :, : (8 - dilation) // s + 1, : (8 - dilation) // s + 1]
        assert np.allclose(found, dilated_by_hand(K, cut, image.shape, s, dilation, 0), rtol=1e-12)


def test_numbers_may_be_given_for_the_text() -> None:
    gradient = tc.define(DILATED).f.gradient("I", sizes={"S": 2, "D": 3})
    assert "d_I_phases" in gradient.text and "h_rest + 2 * u" in gradient.text
    image, K, d = np.ones((1, 2, 9, 9)), np.ones((3, 2, 2, 2)), np.ones((1, 3, 3, 3))
    with pytest.raises(tc.TcompError, match="was derived for S=2 alone, not for 3"):
        gradient(image, K, 3, 3, 0, d)


GUARDED = """def f(double(C,H,W) X, double(K,C,R,R) F, double(Q) G, const int P) -> (Y) {{
    Y(k,p,q) +=! {condition} ? X(c,3*p+i,3*q+j) * {read}constant_exterior(F, 0)(k,c,i,j) : 0.0
        where p in 0:P, q in 0:P, i in 0:3, j in 0:3, k in 0:K
}}"""


@pytest.mark.parametrize(
    ("condition", "read"),
    [("p >= q", ""), ("i + j > 1", ""), ("p + j > 1", ""), ("p >= 1", "G(p-1) * "), ("3*p + i >= 5", "G(p-1) * ")],
)
def test_conditions_of_the_def_stay_around_what_they_guard(condition: str, read: str) -> None:
    """Whether they are of one index or of two, in phases or not; without those at ``p`` there is no ``G(p-1)``."""
    gradient = tc.define(GUARDED.format(condition=condition, read=read)).f.gradient("X")
    assert ("p_step" in gradient.text) == (condition != "3*p + i >= 5") and "q_step" in gradient.text
    random = np.random.default_rng(3)
    X, F, G, d = random.random((2, 9, 9)), random.random((2, 2, 2, 2)), random.random(2), random.random((2, 3, 3))
    wanted = np.zeros(X.shape)
    for p, q, i, j in np.ndindex(3, 3, 2, 2):
        if eval(condition, {"p": p, "q": q, "i": i, "j": j}):
            part = np.einsum("k,kc->c", d[:, p, q], F[:, :, i, j])
            wanted[:, 3 * p + i, 3 * q + j] += part * (G[p - 1] if read else 1.0)
    named = {"F": F, "G": G, "P": 3, "H": 9, "W": 9, "d_Y": d}
    assert gradient.suits({"C": 2, "H": 9, "W": 9, "K": 2, "R": 2, "Q": 2, "P": 3})
    found = gradient.backward.reference(*(named[t.name] for t in gradient.backward.function.inputs))
    assert np.allclose(found, wanted, rtol=1e-12)
