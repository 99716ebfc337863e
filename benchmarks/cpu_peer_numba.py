"""numba as people write it: plain loops, ``parallel`` and ``fastmath``."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba import prange

from benchmarks.cpu_case import Array, Case, Convolution, Einsum
from benchmarks.cpu_peer import Implementation


def mm(A: Array, B: Array, C: Array) -> None:
    for m in prange(C.shape[0]):
        C[m, :] = 0
        for k in range(A.shape[1]):
            for n in range(C.shape[1]):
                C[m, n] += A[m, k] * B[k, n]


def mm_int8(A: Array, B: Array, C: Array) -> None:
    for m in prange(C.shape[0]):
        C[m, :] = 0
        for k in range(A.shape[1]):
            for n in range(C.shape[1]):
                C[m, n] += np.int32(A[m, k]) * np.int32(B[k, n])


def tmm(A: Array, B: Array, C: Array) -> None:
    for m in prange(C.shape[0]):
        for n in range(C.shape[1]):
            total = np.float32(0)
            for k in range(A.shape[1]):
                total += A[m, k] * B[n, k]
            C[m, n] = total


def bmm(X: Array, Y: Array, Z: Array) -> None:
    for b in prange(Z.shape[0]):
        for n in range(Z.shape[1]):
            Z[b, n, :] = 0
            for k in range(X.shape[2]):
                for m in range(Z.shape[2]):
                    Z[b, n, m] += X[b, n, k] * Y[b, k, m]


def reordered(A: Array, B: Array, C: Array) -> None:
    for a in prange(C.shape[0]):
        for b in range(C.shape[1]):
            for c in range(C.shape[2]):
                for d in range(C.shape[3]):
                    total = np.float32(0)
                    for e in range(A.shape[1]):
                        for f in range(A.shape[3]):
                            total += A[a, e, b, f] * B[d, f, c, e]
                    C[a, b, c, d] = total


def conv2d(X: Array, K: Array, Y: Array) -> None:
    for f in prange(Y.shape[1]):
        for n in range(Y.shape[0]):
            Y[n, f] = 0
            for c in range(X.shape[1]):
                for kh in range(K.shape[2]):
                    for kw in range(K.shape[3]):
                        for h in range(Y.shape[2]):
                            for w in range(Y.shape[3]):
                                Y[n, f, h, w] += X[n, c, h + kh, w + kw] * K[f, c, kh, kw]


def grouped(X: Array, K: Array, B: Array, Y: Array) -> None:
    for n in prange(Y.shape[0]):
        for g in range(Y.shape[1]):
            for f in range(Y.shape[2]):
                Y[n, g, f] = B[g, f]
                for c in range(X.shape[2]):
                    for kh in range(K.shape[3]):
                        for kw in range(K.shape[4]):
                            for h in range(Y.shape[3]):
                                for w in range(Y.shape[4]):
                                    Y[n, g, f, h, w] += X[n, g, c, h + kh, w + kw] * K[g, f, c, kh, kw]


def depthwise(X: Array, K: Array, Y: Array) -> None:
    for c in prange(Y.shape[1]):
        for n in range(Y.shape[0]):
            for h in range(Y.shape[2]):
                for w in range(Y.shape[3]):
                    total = np.float32(0)
                    for kh in range(K.shape[1]):
                        for kw in range(K.shape[2]):
                            total += X[n, c, h + kh, w + kw] * K[c, kh, kw]
                    Y[n, c, h, w] = total


def layer(X: Array, W: Array, B: Array, Y: Array) -> None:
    for m in prange(Y.shape[0]):
        Y[m, :] = B
        for k in range(X.shape[1]):
            for n in range(Y.shape[1]):
                Y[m, n] += X[m, k] * W[k, n]
        for n in range(Y.shape[1]):
            Y[m, n] = max(Y[m, n], np.float32(0))


def mlp3(X: Array, W2: Array, B2: Array, W3: Array, B3: Array, W4: Array, B4: Array, O4: Array) -> None:
    for b in prange(X.shape[0]):
        O2 = np.empty(W2.shape[0], np.float32)
        O3 = np.empty(W3.shape[0], np.float32)
        for o in range(W2.shape[0]):
            total = B2[o]
            for n in range(X.shape[1]):
                total += X[b, n] * W2[o, n]
            O2[o] = max(total, np.float32(0))
        for p in range(W3.shape[0]):
            total = B3[p]
            for o in range(W2.shape[0]):
                total += O2[o] * W3[p, o]
            O3[p] = max(total, np.float32(0))
        for q in range(W4.shape[0]):
            total = B4[q]
            for p in range(W3.shape[0]):
                total += O3[p] * W4[q, p]
            O4[b, q] = max(total, np.float32(0))


def softmax(X: Array, Y: Array) -> None:
    for n in prange(X.shape[0]):
        largest = X[n, 0]
        for d in range(X.shape[1]):
            largest = max(largest, X[n, d])
        total = np.float32(0)
        for d in range(X.shape[1]):
            Y[n, d] = math.exp(X[n, d] - largest)
            total += Y[n, d]
        for d in range(X.shape[1]):
            Y[n, d] /= total


def layer_norm(X: Array, gamma: Array, beta: Array, Y: Array) -> None:
    for n in prange(X.shape[0]):
        mean = np.float32(0)
        for d in range(X.shape[1]):
            mean += X[n, d]
        mean /= np.float32(X.shape[1])
        spread = np.float32(0)
        for d in range(X.shape[1]):
            spread += (X[n, d] - mean) * (X[n, d] - mean)
        scale = np.float32(1) / math.sqrt(spread / np.float32(X.shape[1]) + np.float32(1e-5))
        for d in range(X.shape[1]):
            Y[n, d] = (X[n, d] - mean) * scale * gamma[d] + beta[d]


def blur(X: Array, Y: Array) -> None:
    third = np.float32(1 / 3)
    for h in prange(Y.shape[0]):
        for w in range(Y.shape[1]):
            total = np.float32(0)
            for k in range(3):
                total += (X[h + k, w] + X[h + k, w + 1] + X[h + k, w + 2]) * third
            Y[h, w] = total * third


def lut(table: Array, index: Array, Y: Array) -> None:
    for b in prange(Y.shape[0]):
        Y[b, :] = 0
        for row in range(index.shape[1]):
            for d in range(Y.shape[1]):
                Y[b, d] += table[index[b, row], d]


def relu_tanh(A: Array, B: Array, C: Array, D: Array, Y: Array) -> None:
    for n in prange(Y.shape[0]):
        Y[n] = max(A[n] * B[n] + C[n], np.float32(0)) * math.tanh(D[n])


def attention(Q: Array, K: Array, V: Array, Y: Array) -> None:
    for task in prange(Q.shape[0] * Q.shape[1]):
        b, row = task // Q.shape[1], task % Q.shape[1]
        scores = np.empty(K.shape[1], np.float32)
        largest = np.float32(-np.inf)
        for s in range(K.shape[1]):
            total = np.float32(0)
            for d in range(Q.shape[2]):
                total += Q[b, row, d] * K[b, s, d]
            scores[s] = total * np.float32(0.125)
            largest = max(largest, scores[s])
        total = np.float32(0)
        for s in range(K.shape[1]):
            scores[s] = math.exp(scores[s] - largest)
            total += scores[s]
        Y[b, row, :] = 0
        for s in range(K.shape[1]):
            weight = scores[s] / total
            for e in range(V.shape[2]):
                Y[b, row, e] += weight * V[b, s, e]


_NAMED: dict[str, Callable[..., None]] = {
    "mk,kn->mn": mm,
    "mk,nk->mn": tmm,
    "bnk,bkm->bnm": bmm,
    "aebf,dfce->abcd": reordered,
    "layer": layer,
    "mlp3": mlp3,
    "softmax": softmax,
    "layer_norm": layer_norm,
    "blur": blur,
    "lut": lut,
    "relu_tanh": relu_tanh,
    "attention": attention,
}


def _loops(case: Case) -> Callable[..., None] | None:
    match case.formula:
        case Einsum("mk,kn->mn") if case.output_dtype == "int32":
            return mm_int8
        case Einsum(name) | str(name):
            return _NAMED.get(name)
        case Convolution(stride=1, dilation=1) as how if len(case.output) >= 4:
            return grouped if how.group_axis else depthwise if how.depthwise else conv2d
    return None


class Numba:
    """Loops into an array that is there."""

    version = numba.__version__

    def __init__(self) -> None:
        numba.njit(relu_tanh, parallel=True, fastmath=True)(*(np.zeros(4, np.float32),) * 5)

    def build(self, case: Case, inputs: list[Array]) -> Implementation | None:
        """Compiled by the first call."""
        loops = _loops(case)
        if loops is None:
            return None
        function: Any = numba.njit(loops, parallel=True, fastmath=True)
        output = np.empty(case.output, case.output_dtype)
        return Implementation(lambda: function(*inputs, output), lambda: output)


def peer() -> Numba:
    """This process's numba."""
    return Numba()
