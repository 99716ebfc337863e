"""PolyBench's kernels that need no steps in numba: rows in parallel, columns innermost, with fastmath."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, prange

compiled: Any = njit(parallel=True, fastmath=True)


@compiled
def _product(A: Any, B: Any) -> Any:
    C = np.zeros((A.shape[0], B.shape[1]))
    for i in prange(A.shape[0]):
        for k in range(A.shape[1]):
            for j in range(B.shape[1]):
                C[i, j] += A[i, k] * B[k, j]
    return C


@compiled
def _by_rows(A: Any, x: Any) -> Any:
    """A x"""
    y = np.zeros(A.shape[0])
    for i in prange(A.shape[0]):
        total = 0.0
        for j in range(A.shape[1]):
            total += A[i, j] * x[j]
        y[i] = total
    return y


@compiled
def _by_columns(A: Any, x: Any) -> Any:
    """A' x"""
    n, m = A.shape
    y, width = np.zeros(m), 256
    for part in prange((m + width - 1) // width):
        for i in range(n):
            for j in range(part * width, min(m, part * width + width)):
                y[j] += A[i, j] * x[i]
    return y


@compiled
def _squares(x: Any) -> Any:
    """x' x, its upper triangle computed."""
    n, m = x.shape
    C = np.zeros((m, m))
    for i in prange(m):
        for k in range(n):
            for j in range(i, m):
                C[i, j] += x[k, i] * x[k, j]
    for i in prange(m):
        for j in range(i):
            C[i, j] = C[j, i]
    return C


@compiled
def correlation(data: Any) -> Any:
    n, m = data.shape
    mean, deviation = np.zeros(m), np.zeros(m)
    for i in range(n):
        for j in range(m):
            mean[j] += data[i, j] / n
    for i in range(n):
        for j in range(m):
            deviation[j] += (data[i, j] - mean[j]) ** 2 / n
    for j in range(m):
        deviation[j] = math.sqrt(deviation[j])
        if deviation[j] <= 0.1:
            deviation[j] = 1.0
    x = np.empty((n, m))
    for i in prange(n):
        for j in range(m):
            x[i, j] = (data[i, j] - mean[j]) / (math.sqrt(n) * deviation[j])
    C = _squares(x)
    for i in range(m):
        C[i, i] = 1.0
    return C


@compiled
def covariance(data: Any) -> Any:
    n, m = data.shape
    mean = np.zeros(m)
    for i in range(n):
        for j in range(m):
            mean[j] += data[i, j] / n
    x = np.empty((n, m))
    for i in prange(n):
        for j in range(m):
            x[i, j] = data[i, j] - mean[j]
    return _squares(x) / (n - 1.0)


@compiled
def gemm(alpha: Any, beta: Any, C0: Any, A: Any, B: Any) -> Any:
    C = C0.copy()
    for i in prange(C.shape[0]):
        for j in range(C.shape[1]):
            C[i, j] *= beta
        for k in range(A.shape[1]):
            for j in range(C.shape[1]):
                C[i, j] += alpha * A[i, k] * B[k, j]
    return C


@compiled
def gemver(alpha: Any, beta: Any, A: Any, u1: Any, v1: Any, u2: Any, v2: Any, y: Any, z: Any) -> Any:
    n = len(A)
    B = np.empty((n, n))
    for i in prange(n):
        for j in range(n):
            B[i, j] = A[i, j] + u1[i] * v1[j] + u2[i] * v2[j]
    x = beta * _by_columns(B, y) + z
    return B, x, alpha * _by_rows(B, x)


@compiled
def gesummv(alpha: Any, beta: Any, A: Any, B: Any, x: Any) -> Any:
    n = len(A)
    y = np.zeros(n)
    for i in prange(n):
        a, b = 0.0, 0.0
        for j in range(n):
            a += A[i, j] * x[j]
            b += B[i, j] * x[j]
        y[i] = alpha * a + beta * b
    return y


@compiled
def symm(alpha: Any, beta: Any, C0: Any, A: Any, B: Any) -> Any:
    C = C0.copy()
    m, n = C.shape
    for i in prange(m):
        for j in range(n):
            C[i, j] *= beta
        for k in range(m):
            factor = alpha * (A[i, k] if k <= i else A[k, i])
            for j in range(n):
                C[i, j] += factor * B[k, j]
    return C


@compiled
def syr2k(alpha: Any, beta: Any, C0: Any, A: Any, B: Any) -> Any:
    C = C0.copy()
    for i in prange(len(C)):
        for j in range(i + 1):
            total = 0.0
            for k in range(A.shape[1]):
                total += A[j, k] * B[i, k] + B[j, k] * A[i, k]
            C[i, j] = beta * C[i, j] + alpha * total
    return C


@compiled
def syrk(alpha: Any, beta: Any, C0: Any, A: Any) -> Any:
    C = C0.copy()
    for i in prange(len(C)):
        for j in range(i + 1):
            total = 0.0
            for k in range(A.shape[1]):
                total += A[i, k] * A[j, k]
            C[i, j] = beta * C[i, j] + alpha * total
    return C


@compiled
def trmm(alpha: Any, A: Any, B: Any) -> Any:
    m, n = B.shape
    D = np.empty((m, n))
    for i in prange(m):
        for j in range(n):
            D[i, j] = alpha * B[i, j]
        for k in range(i + 1, m):
            for j in range(n):
                D[i, j] += alpha * A[k, i] * B[k, j]
    return D


@compiled
def mm2(alpha: Any, beta: Any, A: Any, B: Any, C: Any, D: Any) -> Any:
    return alpha * _product(_product(A, B), C) + beta * D


@compiled
def mm3(A: Any, B: Any, C: Any, D: Any) -> Any:
    return _product(_product(A, B), _product(C, D))


@compiled
def atax(A: Any, x: Any) -> Any:
    return _by_columns(A, _by_rows(A, x))


@compiled
def bicg(A: Any, p: Any, r: Any) -> Any:
    return _by_columns(A, r), _by_rows(A, p)


@compiled
def doitgen(A: Any, C4: Any) -> Any:
    B = np.zeros_like(A)
    for r in prange(A.shape[0]):
        for q in range(A.shape[1]):
            for s in range(A.shape[2]):
                for p in range(A.shape[2]):
                    B[r, q, p] += A[r, q, s] * C4[s, p]
    return B


@compiled
def mvt(x1: Any, x2: Any, y1: Any, y2: Any, A: Any) -> Any:
    return x1 + _by_rows(A, y1), x2 + _by_columns(A, y2)
