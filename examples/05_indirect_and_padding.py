"""Lesson 5: subscripts from data, reads outside a tensor, and what mistakes look like.

An index may be read from a tensor; it is checked while the kernel runs.  On the left, it says where a reduction goes.
A read that may fall outside says what to find there; it limits no index, so ``where`` gives the range.  ``const``
parameters are fixed when a kernel is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from pictures import picture

import tcomp as tc

PROGRAM = """
def bag(float(V,D) table, int32(B,L) word) -> (sum) {
  sum(b,d) +=! table(word(b,l), d)
}
def frequency(int32(B,L) word, const int V) -> (int32(V) count) {
  count(word(b,l)) +=! 1
}
def smooth(float(N) x, const int R) -> (y) {
  y(i) +=! repeat_edge(x)(i+r) / (2*R+1) where i in 0:N, r in -R:R+1
}
def ahead(float(N) x, const int R) -> (y) {
  y(i) = x(i+R) where i in 0:N-2
}
def convolve(float(N,C,H,W) I, float(F,C,KH,KW) K, const int S, const int P) -> (O) {
  O(n,f,h,w) +=! constant_exterior(I, 0)(n, c, S*h+kh-P, S*w+kw-P) * K(f,c,kh,kw)
    where n in 0:N, h in 0:(H+2*P-KH)/S+1, w in 0:(W+2*P-KW)/S+1
}
"""

MISTAKES = """
def misspelt(float(M,K) A, float(K,N) B) -> (C) {
  C(m,n) +=! A(m,k) * b(k,n)
}
def forgotten(float(M,N) A) -> (S) {
  S(m) = A(m,n)
}
def unbounded(float(H) I) -> (O) {
  O(h) max=! I(2*h+kh)
}
"""


def show(what: str, action: Callable[[], Any]) -> None:
    """Print the error that an action ends in."""
    try:
        action()
    except tc.TcompError as error:
        print(f"\n{what}: {type(error).__name__}\n{error}")
    else:
        raise AssertionError(f"{what}: there should be an error")


def main() -> None:
    ops = tc.define(PROGRAM, "lesson5.tc")
    rng = np.random.default_rng(0)

    table = rng.standard_normal((1000, 16), np.float32)
    word = rng.integers(0, 1000, (32, 5), np.int32)
    assert np.allclose(ops.bag(table, word), table[word].sum(axis=1), atol=1e-5)
    print(f"bag: {word.shape} indices into {table.shape} -> {(32, 16)}")

    assert (ops.frequency(word, 1000) == np.bincount(word.reshape(-1), minlength=1000)).all()
    gradient = ops.bag.gradient()
    print(f"frequency: {word.shape} indices -> (1000,); the gradient of bag goes where it read:\n{gradient}")
    cotangent = rng.standard_normal((32, 16), np.float32)
    expected_table = np.zeros_like(table)
    np.add.at(expected_table, word, cotangent[:, None])
    assert np.allclose(gradient(table, word, cotangent), expected_table, atol=1e-5)

    x = rng.standard_normal(100, np.float32)
    padded = np.pad(x, 3, mode="edge")
    expected = np.convolve(padded, np.full(7, 1 / 7, np.float32), mode="valid")
    assert np.allclose(ops.smooth(x, 3), expected, atol=1e-6)
    print(f"smooth: {x.shape} with radius 3 -> {expected.shape}")

    image, kernel = rng.standard_normal((2, 3, 28, 28), np.float32), rng.standard_normal((8, 3, 3, 3), np.float32)
    for stride, padding in ((1, 0), (1, 1), (2, 1)):
        result = ops.convolve(image, kernel, stride, padding)
        windows = np.lib.stride_tricks.sliding_window_view(
            np.pad(image, ((0, 0), (0, 0), (padding, padding), (padding, padding))), (3, 3), (2, 3)
        )[:, :, ::stride, ::stride]
        assert np.allclose(result, np.einsum("nchwij,fcij->nfhw", windows, kernel), atol=1e-4)
        print(f"convolve: stride {stride}, padding {padding}: {image.shape} -> {result.shape}")

    # Rows of the image that one tile needs: every second one and its neighbours.
    picture("convolve_footprint", ops.convolve.compile(image, kernel, 2, 1).draw, "footprint")

    # All mistakes of a text are reported at once, each where it is.
    show("mistakes in a program", lambda: tc.define(MISTAKES, "mistakes.tc"))

    # These depend on the arrays; sizes are known before anything runs, so every access is proved inside its tensor.
    show("a type that does not fit", lambda: ops.bag(table, word.astype(np.float32)))
    show("channels that do not fit", lambda: ops.convolve(image[:, :2], kernel, 1, 0))
    show("a read outside, for these sizes", lambda: ops.ahead(x, 3))
    word[3, 1] = 1000
    show("an index outside the table", lambda: ops.bag(table, word))
    show("a place outside the result", lambda: ops.frequency(word, 1000))


if __name__ == "__main__":
    main()
