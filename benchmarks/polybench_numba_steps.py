"""PolyBench's kernels that run step by step in numba: parallel where rows are independent, with fastmath."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit, prange

compiled: Any = njit(parallel=True, fastmath=True)


@compiled
def jacobi_1d(A0: Any, B0: Any, steps: int) -> Any:
    A, B, n = A0.copy(), B0.copy(), len(A0)
    for _ in range(steps):
        for i in range(1, n - 1):
            B[i] = 0.33333 * (A[i - 1] + A[i] + A[i + 1])
        for i in range(1, n - 1):
            A[i] = 0.33333 * (B[i - 1] + B[i] + B[i + 1])
    return A, B


@compiled
def jacobi_2d(A0: Any, B0: Any, steps: int) -> Any:
    A, B, n = A0.copy(), B0.copy(), len(A0)
    for _ in range(steps):
        for i in prange(1, n - 1):
            for j in range(1, n - 1):
                B[i, j] = 0.2 * (A[i, j] + A[i, j - 1] + A[i, j + 1] + A[i + 1, j] + A[i - 1, j])
        for i in prange(1, n - 1):
            for j in range(1, n - 1):
                A[i, j] = 0.2 * (B[i, j] + B[i, j - 1] + B[i, j + 1] + B[i + 1, j] + B[i - 1, j])
    return A, B


@njit(inline="always", fastmath=True)
def _heat(X: Any, i: int, j: int, k: int) -> Any:
    c = X[i, j, k]
    total = X[i + 1, j, k] + X[i - 1, j, k] + X[i, j + 1, k] + X[i, j - 1, k] + X[i, j, k + 1] + X[i, j, k - 1]
    return 0.125 * (total - 6.0 * c) + c


@compiled
def heat_3d(A0: Any, B0: Any, steps: int) -> Any:
    A, B, n = A0.copy(), B0.copy(), len(A0)
    for _ in range(steps):
        for i in prange(1, n - 1):
            for j in range(1, n - 1):
                for k in range(1, n - 1):
                    B[i, j, k] = _heat(A, i, j, k)
        for i in prange(1, n - 1):
            for j in range(1, n - 1):
                for k in range(1, n - 1):
                    A[i, j, k] = _heat(B, i, j, k)
    return A, B


@compiled
def seidel_2d(A0: Any, steps: int) -> Any:
    A, n = A0.copy(), len(A0)
    for _ in range(steps):
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                above = A[i - 1, j - 1] + A[i - 1, j] + A[i - 1, j + 1]
                below = A[i + 1, j - 1] + A[i + 1, j] + A[i + 1, j + 1]
                A[i, j] = (above + A[i, j - 1] + A[i, j] + A[i, j + 1] + below) / 9.0
    return A


@compiled
def fdtd_2d(ex0: Any, ey0: Any, hz0: Any, source: Any) -> Any:
    ex, ey, hz = ex0.copy(), ey0.copy(), hz0.copy()
    nx, ny = ex.shape
    for t in range(len(source)):
        for j in range(ny):
            ey[0, j] = source[t]
        for i in prange(1, nx):
            for j in range(ny):
                ey[i, j] -= 0.5 * (hz[i, j] - hz[i - 1, j])
        for i in prange(nx):
            for j in range(1, ny):
                ex[i, j] -= 0.5 * (hz[i, j] - hz[i, j - 1])
        for i in prange(nx - 1):
            for j in range(ny - 1):
                hz[i, j] -= 0.7 * (ex[i, j + 1] - ex[i, j] + ey[i + 1, j] - ey[i, j])
    return ex, ey, hz


@compiled
def adi(u0: Any, steps: int) -> Any:
    u, n = u0.copy(), len(u0)
    v, p, q = np.zeros((n, n)), np.zeros((n, n)), np.zeros((n, n))
    dx, dt = 1.0 / n, 1.0 / steps
    a = -dt / (dx * dx)
    d = a / 2.0
    b, e = 1.0 - 2.0 * a, 1.0 - 2.0 * d
    for _ in range(steps):
        for i in prange(1, n - 1):
            v[0, i], p[i, 0], q[i, 0] = 1.0, 0.0, 1.0
            for j in range(1, n - 1):
                p[i, j] = -a / (a * p[i, j - 1] + b)
                w = -d * u[j, i - 1] + (1.0 + 2.0 * d) * u[j, i] - d * u[j, i + 1]
                q[i, j] = (w - a * q[i, j - 1]) / (a * p[i, j - 1] + b)
            v[n - 1, i] = 1.0
            for j in range(n - 2, 0, -1):
                v[j, i] = p[i, j] * v[j + 1, i] + q[i, j]
        for i in prange(1, n - 1):
            u[i, 0], p[i, 0], q[i, 0] = 1.0, 0.0, 1.0
            for j in range(1, n - 1):
                p[i, j] = -d / (d * p[i, j - 1] + e)
                w = -a * v[i - 1, j] + (1.0 + 2.0 * a) * v[i, j] - a * v[i + 1, j]
                q[i, j] = (w - d * q[i, j - 1]) / (d * p[i, j - 1] + e)
            u[i, n - 1] = 1.0
            for j in range(n - 2, 0, -1):
                u[i, j] = p[i, j] * u[i, j + 1] + q[i, j]
    return u


@compiled
def floyd_warshall(paths: Any) -> Any:
    D, n = paths.copy(), len(paths)
    for k in range(n):
        for i in prange(n):
            for j in range(n):
                D[i, j] = min(D[i, j], D[i, k] + D[k, j])
    return D


@compiled
def nussinov(base: Any) -> Any:
    n = len(base)
    T = np.zeros((n, n), np.int32)
    for d in range(1, n):
        for i in prange(n - d):
            j = i + d
            best = max(T[i, j - 1], T[i + 1, j])
            pair = 1 if d > 1 and base[i] + base[j] == 3 else 0
            best = max(best, T[i + 1, j - 1] + pair)
            for k in range(i + 1, j):
                best = max(best, T[i, k] + T[k + 1, j])
            T[i, j] = best
    return T


@njit(fastmath=True)
def _filter(x: Any, out: Any, y: Any, z: Any, low: int, high: int, k: Any, a: Any, b1: Any, b2: Any) -> None:
    """Both directions along the first dimension, for the columns from ``low`` to ``high``."""
    n = len(x)
    for i in range(n):
        for j in range(low, high):
            y[i, j] = k * x[i, j]
            if i > 0:
                y[i, j] += a[0] * x[i - 1, j] + b1 * y[i - 1, j]
            if i > 1:
                y[i, j] += b2 * y[i - 2, j]
    for i in range(n - 1, -1, -1):
        for j in range(low, high):
            z[i, j] = 0
            if i + 1 < n:
                z[i, j] += a[1] * x[i + 1, j] + b1 * z[i + 1, j]
            if i + 2 < n:
                z[i, j] += a[2] * x[i + 2, j] + b2 * z[i + 2, j]
    for i in range(n):
        for j in range(low, high):
            out[i, j] = y[i, j] + z[i, j]


@compiled
def deriche(alpha: Any, x: Any) -> Any:
    w, h = x.shape
    e = np.float32(math.exp(-alpha))
    k = (1 - e) * (1 - e) / (1 + 2 * alpha * e - np.float32(math.exp(2 * alpha)))
    a = (k * e * (alpha - 1), k * e * (alpha + 1), -k * e * e)
    b1, b2 = np.float32(2.0**-alpha), -e * e
    y, z, out = np.zeros_like(x), np.zeros_like(x), np.zeros_like(x)
    for i in prange(w):
        _filter(x.T, out.T, y.T, z.T, i, i + 1, k, a, b1, b2)
    for part in prange((h + 63) // 64):
        _filter(out, out, y, z, 64 * part, min(h, 64 * part + 64), k, a, b1, b2)
    return out


@compiled
def cholesky(A0: Any) -> Any:
    A, n = A0.copy(), len(A0)
    for j in range(n):
        for p in range(j):
            A[j, j] -= A[j, p] * A[j, p]
        A[j, j] = math.sqrt(A[j, j])
        for i in prange(j + 1, n):
            total = A[i, j]
            for p in range(j):
                total -= A[i, p] * A[j, p]
            A[i, j] = total / A[j, j]
    return A


@compiled
def durbin(r: Any) -> Any:
    n = len(r)
    y, z = np.zeros(n), np.zeros(n)
    y[0] = alpha = -r[0]
    beta = 1.0
    for k in range(1, n):
        beta = (1.0 - alpha * alpha) * beta
        total = 0.0
        for i in range(k):
            total += r[k - i - 1] * y[i]
        alpha = -(r[k] + total) / beta
        for i in range(k):
            z[i] = y[i] + alpha * y[k - i - 1]
        for i in range(k):
            y[i] = z[i]
        y[k] = alpha
    return y


@compiled
def gramschmidt(A0: Any) -> Any:
    A = A0.copy()
    m, n = A.shape
    Q, R = np.zeros((m, n)), np.zeros((n, n))
    for k in range(n):
        square = 0.0
        for i in range(m):
            square += A[i, k] * A[i, k]
        R[k, k] = math.sqrt(square)
        for i in range(m):
            Q[i, k] = A[i, k] / R[k, k]
        for i in range(m):
            for j in range(k + 1, n):
                R[k, j] += Q[i, k] * A[i, j]
        for i in prange(m):
            for j in range(k + 1, n):
                A[i, j] -= Q[i, k] * R[k, j]
    return Q, R


@compiled
def lu(A0: Any) -> Any:
    A, n = A0.copy(), len(A0)
    for k in range(n):
        for i in prange(k + 1, n):
            A[i, k] /= A[k, k]
            for j in range(k + 1, n):
                A[i, j] -= A[i, k] * A[k, j]
    return A


@compiled
def ludcmp(A0: Any, b: Any) -> Any:
    A, n = lu(A0), len(A0)
    x, y = np.zeros(n), np.zeros(n)
    for i in range(n):
        total = b[i]
        for j in range(i):
            total -= A[i, j] * y[j]
        y[i] = total
    for i in range(n - 1, -1, -1):
        total = y[i]
        for j in range(i + 1, n):
            total -= A[i, j] * x[j]
        x[i] = total / A[i, i]
    return x


@compiled
def trisolv(L: Any, b: Any) -> Any:
    n = len(b)
    x = np.zeros(n)
    for i in range(n):
        total = b[i]
        for j in range(i):
            total -= L[i, j] * x[j]
        x[i] = total / L[i, i]
    return x
