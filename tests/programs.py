"""Programs that between them use the whole language, each with what it computes written by hand in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def integers(*shape: int, seed: int = 0, low: int = -4, high: int = 5, dtype: type = np.float32) -> Array:
    return np.random.default_rng(seed).integers(low, high, shape).astype(dtype)


A, B, C = integers(6, 5, seed=1), integers(5, 7, seed=2), integers(7, seed=3)
IMAGE, WEIGHTS = integers(2, 3, 9, 8, seed=4), integers(4, 3, 3, 3, seed=5)
CONV = "def f(float(N,C,H,W) I, float(F,C,KH,KW) K) -> (O) { O(n,f,h,w) %s I(n,c,2*h+kh,w+kw) %s K(f,c,kh,kw) }"


def windows(image: Array, height: int, width: int) -> Array:
    return np.lib.stride_tricks.sliding_window_view(image, (height, width), axis=(2, 3))


PROGRAMS: dict[str, tuple[str, tuple[Array, ...], Callable[..., Any]]] = {
    "matmul": (
        "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }",
        (A, B),
        lambda a, b: a @ b,
    ),
    "three factors": (
        "def f(float(M,K) A, float(K,N) B, float(N) C) -> (O) { O(m) +=! A(m,k) * B(k,n) * C(n) }",
        (A, B, C),
        lambda a, b, c: a @ b @ c,
    ),
    "sum with a constant term": (
        "def f(float(M,K) A) -> (O) { O(m) +=! 2 * A(m,k) + 1 }",
        (A,),
        lambda a: (2 * a + 1).sum(1),
    ),
    "factor without an index": (
        "def f(float(M) A) -> (O) { O(m,n) +=! 2 * A(m) where n in 0:3, r in 0:5 }",
        (C,),
        lambda a: np.repeat(10 * a[:, None], 3, axis=1),
    ),
    "tensors named like functions": (
        "def f(float(M) y1, float(M) expf) -> (O) { sqrt(i) = y1(i) + abs(expf(i))  O(i) = sqrt(i) * abs(y1(i)) }",
        (C, C + 1),
        lambda y1, expf: (y1 + np.abs(expf)) * np.abs(y1),
    ),
    "convolution": (
        CONV % ("+=!", "*"),
        (IMAGE, WEIGHTS),
        lambda i, k: np.einsum("nchwij,fcij->nfhw", windows(i, 3, 3)[:, :, ::2], k),
    ),
    "tropical convolution": (
        CONV % ("max=!", "+"),
        (IMAGE, WEIGHTS),
        lambda i, k: (windows(i, 3, 3)[:, None, :, ::2] + k[None, :, :, None, None]).max(axis=(2, 5, 6)),
    ),
    "max pool": (
        "def f(float(N,C,H,W) I) -> (O) { O(n,c,h,w) max=! I(n,c,2*h+kh,2*w+kw) where kh in 0:2, kw in 0:2 }",
        (IMAGE,),
        lambda i: windows(i, 2, 2)[:, :, ::2, ::2].max(axis=(4, 5)),
    ),
    "softmax": (
        """def f(float(N,D) I) -> (O) {
            m(n) max=! I(n,d)
            s(n) +=! exp(I(n,d) - m(n))
            O(n,d) = exp(I(n,d) - m(n)) / s(n) }""",
        (A,),
        lambda i: np.exp(i.astype(np.float64)) / np.exp(i.astype(np.float64)).sum(1, keepdims=True),
    ),
    "layer norm": (
        """def f(float(N,D) I) -> (O) {
            m(n) +=! I(n,d) / D
            v(n) +=! (I(n,d) - m(n)) * (I(n,d) - m(n)) / D
            O(n,d) = (I(n,d) - m(n)) * rsqrt(v(n) + 1e-5) }""",
        (A,),
        lambda i: (i - i.mean(1, keepdims=True)) / np.sqrt(i.var(1, keepdims=True) + 1e-5),
    ),
    "transpose": ("def f(float(M,N) A) -> (O) { O(j,i) = A(i,j) }", (A,), np.transpose),
    "product": ("def f(float(M,N) A) -> (O) { O(i) *=! A(i,j) }", (A,), lambda a: a.prod(1)),
    "minimum of two statements": (
        "def f(float(M,N) A) -> (O) { O(i) max=! A(i,j)  O(i) min= 2 * A(i,j) + 1 }",
        (A,),
        lambda a: np.minimum(a.max(1), (2 * a + 1).min(1)),
    ),
    "0-D": ("def f(float(M,N) A) -> (o) { o +=! A(i,j) }", (A,), lambda a: a.sum()),
    "reversal in place": (
        "def f(float(N) A) -> (O) { O(i) = A(i)  O(i) = O(N-1-i) where i in 0:N }",
        (C,),
        lambda a: a[::-1],
    ),
    "prefix products of old values": (
        "def f(float(N) A) -> (O) { O(i) = A(i)  O(i) = O(i-1) + O(i) where i in 1:N }",
        (C,),
        lambda a: np.concatenate([a[:1], a[:-1] + a[1:]]),
    ),
    "shifted origin": ("def f(float(N) A) -> (O) { O(i) = A(i-2) }", (C,), lambda a: a),
    "shifted origin, read again": (
        "def f(float(N) A) -> (O) { T(i) = A(i-2)  O(i) = T(i+1) }",
        (C,),
        lambda a: a,
    ),
    "interleave": (
        "def f(float(N) A, float(N) B) -> (O) { O(2*i) = A(i)  O(2*i+1) = B(i) }",
        (C, C + 100),
        lambda a, b: np.stack([a, b], 1).ravel(),
    ),
    "stack": (
        "def f(float(N) A, float(N) B) -> (O) { O(i,0) = A(i)  O(i,1) = B(i) }",
        (C, C + 100),
        lambda a, b: np.stack([a, b], 1),
    ),
    "pack": (
        "def f(float(8) A) -> (O) { O(i/2, i%2) = A(i) }",
        (integers(8, seed=9),),
        lambda a: a.reshape(4, 2),
    ),
    "diagonal": (
        "def f(float(N) A) -> (float(N,N) O) { O(i,j) = 0.0 where i in 0:N, j in 0:N  O(i,i) = A(i) }",
        (C,),
        np.diag,
    ),
    "transposed convolution": (
        "def f(float(X) I, float(3) W) -> (O) { O(2*x+kx) +=! I(x) * W(kx) }",
        (C, integers(3, seed=8)),
        lambda i, w: np.convolve(np.insert(i, np.arange(1, i.size), 0), w).astype(np.float32),
    ),
    "triangular sum": (
        "def f(float(N,N) A) -> (O) { O(i) +=! A(i,j) where j in 0:i }",
        (integers(5, 5),),
        lambda a: np.tril(a, -1).sum(1),
    ),
    "triangular maximum of nothing": (
        "def f(float(N,N) A) -> (O) { O(i) max=! A(i,j) where j in 0:i }",
        (integers(4, 4),),
        lambda a: np.array([-np.inf] + [a[i, :i].max() for i in range(1, 4)]),
    ),
    "triangular assignment": (
        """def f(float(N,N) A) -> (O) {
            O(i,j) = 0.0 where i in 0:N, j in 0:N
            O(i,j) = A(i,j) where j in 0:i+1 }""",
        (integers(5, 5),),
        np.tril,
    ),
    "triangle over two indices": (
        "def f(float(N) A) -> (o) { o +=! A(i) * A(j) * A(k) where i in 0:N, j in i:N, k in i:j }",
        (C,),
        lambda a: sum(a[i] * a[j] * a[k] for i in range(7) for j in range(i, 7) for k in range(i, j)),
    ),
    "guarded read": (
        "def f(float(N) A) -> (O) { O(i) = i >= 2 ? A(i-2) : -1.0 where i in 0:N }",
        (C,),
        lambda a: np.concatenate([[-1, -1], a[:-2]]),
    ),
    "gather": (
        "def f(float(E,D) T, int32(B,L) I) -> (O) { O(b,d) +=! T(I(b,l),d) }",
        (A, integers(4, 3, low=0, high=6, dtype=np.int32)),
        lambda t, i: t[i].sum(1),
    ),
    "gather with an offset": (
        "def f(float(E) T, int32(B) I) -> (O) { O(b) = T(I(b) + 1) }",
        (C, integers(4, low=0, high=6, dtype=np.int32)),
        lambda t, i: t[i + 1],
    ),
    "let": ("def f(float(N) A) -> (O) { O(i) = x * x where x = A(i) + 1 }", (C,), lambda a: (a + 1) ** 2),
    "exists": ("def f(float(N) A) -> (O) { O(i) = 4.0 where exists A(i) }", (C,), lambda a: np.full(7, 4.0)),
    "modulo subscript": (
        "def f(float(N) A) -> (O) { O(i) +=! A(i % 3 + j) where i in 0:9, j in 0:2 }",
        (C,),
        lambda a: np.array([a[i % 3] + a[i % 3 + 1] for i in range(9)]),
    ),
    "concatenation by choice": (
        "def f(float(M,N) A, float(M,N) B) -> (O) { O(n,i,m) = i == 0 ? A(m,n) : B(m,n) where i in 0:2 }",
        (A, A + 10),
        lambda a, b: np.stack([a.T, b.T], 1),
    ),
    "select and clamp": (
        "def f(float(N) A) -> (O) { O(i) = select(A(i) > 2.0, 9.0, clamp(A(i), -1.0, 1.0)) }",
        (C,),
        lambda a: np.where(a > 2, 9, np.clip(a, -1, 1)),
    ),
    "intrinsics of integers": (
        "def f(int32(N) A) -> (O) { O(i) = relu(A(i)) + 10 * abs(A(i)) + 100 * sign(A(i)) }",
        (C.astype(np.int32),),
        lambda a: np.maximum(a, 0) + 10 * np.abs(a) + 100 * np.sign(a),
    ),
}
"""Text, inputs, and the formula for the output."""
INEXACT = {"softmax", "layer norm"}
"""Programs whose results are not integers."""
MATMUL = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
