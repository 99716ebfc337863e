"""The kernels of PolyBench 4.2 in NumPy, loops as they stand there, and arguments for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Arrays = tuple[Any, ...]


def correlation(data: Any) -> Any:
    deviation = data.std(0)
    deviation[deviation <= 0.1] = 1.0
    x = (data - data.mean(0)) / (np.sqrt(len(data)) * deviation)
    corr = x.T @ x
    np.fill_diagonal(corr, 1.0)
    return corr


def covariance(data: Any) -> Any:
    x = data - data.mean(0)
    return x.T @ x / (len(data) - 1.0)


def gemm(alpha: Any, beta: Any, C: Any, A: Any, B: Any) -> Any:
    return alpha * (A @ B) + beta * C


def gemver(alpha: Any, beta: Any, A: Any, u1: Any, v1: Any, u2: Any, v2: Any, y: Any, z: Any) -> Any:
    B = A + np.outer(u1, v1) + np.outer(u2, v2)
    x = beta * (B.T @ y) + z
    return B, x, alpha * (B @ x)


def gesummv(alpha: Any, beta: Any, A: Any, B: Any, x: Any) -> Any:
    return alpha * (A @ x) + beta * (B @ x)


def symm(alpha: Any, beta: Any, C: Any, A: Any, B: Any) -> Any:
    return alpha * ((np.tril(A) + np.tril(A, -1).T) @ B) + beta * C


def syr2k(alpha: Any, beta: Any, C: Any, A: Any, B: Any) -> Any:
    whole = alpha * (A @ B.T + B @ A.T) + beta * C
    return np.where(np.tri(len(C), dtype=bool), whole, C)


def syrk(alpha: Any, beta: Any, C: Any, A: Any) -> Any:
    return np.where(np.tri(len(C), dtype=bool), alpha * (A @ A.T) + beta * C, C)


def trmm(alpha: Any, A: Any, B: Any) -> Any:
    return alpha * (B + np.tril(A, -1).T @ B)


def mm2(alpha: Any, beta: Any, A: Any, B: Any, C: Any, D: Any) -> Any:
    return alpha * (A @ B @ C) + beta * D


def mm3(A: Any, B: Any, C: Any, D: Any) -> Any:
    return (A @ B) @ (C @ D)


def atax(A: Any, x: Any) -> Any:
    return A.T @ (A @ x)


def bicg(A: Any, p: Any, r: Any) -> Any:
    return A.T @ r, A @ p


def doitgen(A: Any, C4: Any) -> Any:
    return A @ C4


def mvt(x1: Any, x2: Any, y1: Any, y2: Any, A: Any) -> Any:
    return x1 + A @ y1, x2 + A.T @ y2


def cholesky(A: Any) -> Any:
    return np.linalg.cholesky(A)


def durbin(r: Any) -> Any:
    n = len(r)
    y = np.zeros(n)
    y[0] = alpha = -r[0]
    beta = 1.0
    for k in range(1, n):
        beta = (1 - alpha * alpha) * beta
        alpha = -(r[k] + sum(r[k - i - 1] * y[i] for i in range(k))) / beta
        y[:k] = [y[i] + alpha * y[k - i - 1] for i in range(k)]
        y[k] = alpha
    return y


def gramschmidt(A: Any) -> Any:
    A, n = A.copy(), A.shape[1]
    Q, R = np.zeros(A.shape), np.zeros((n, n))
    for k in range(n):
        R[k, k] = np.sqrt((A[:, k] ** 2).sum())
        Q[:, k] = A[:, k] / R[k, k]
        for j in range(k + 1, n):
            R[k, j] = Q[:, k] @ A[:, j]
            A[:, j] -= Q[:, k] * R[k, j]
    return Q, R


def lu(A: Any) -> Any:
    A, n = A.copy(), len(A)
    for i in range(n):
        for j in range(i):
            A[i, j] = (A[i, j] - A[i, :j] @ A[:j, j]) / A[j, j]
        for j in range(i, n):
            A[i, j] -= A[i, :i] @ A[:i, j]
    return A


def ludcmp(A: Any, b: Any) -> Any:
    return np.linalg.solve(A, b)


def trisolv(L: Any, b: Any) -> Any:
    return np.linalg.solve(np.tril(L), b)


def deriche(alpha: Any, x: Any) -> Any:
    f = np.float64
    alpha, x = f(alpha), x.astype(f)
    e = np.exp(-alpha)
    k = (1 - e) ** 2 / (1 + 2 * alpha * e - np.exp(2 * alpha))
    a = [k, k * e * (alpha - 1), k * e * (alpha + 1), -k * np.exp(-2 * alpha)]
    b1, b2 = 2**-alpha, -np.exp(-2 * alpha)

    def along(x: Any) -> Any:
        y, z, n = np.zeros(x.shape), np.zeros(x.shape), x.shape[1]
        zero = np.zeros(len(x))
        for j in range(n):
            xm = x[:, j - 1] if j else zero
            y[:, j] = a[0] * x[:, j] + a[1] * xm + b1 * (y[:, j - 1] if j else 0) + b2 * (y[:, j - 2] if j > 1 else 0)
        for j in range(n - 1, -1, -1):
            one, two = j + 1 < n, j + 2 < n
            z[:, j] = (a[2] * x[:, j + 1] if one else 0) + (a[3] * x[:, j + 2] if two else 0)
            z[:, j] += (b1 * z[:, j + 1] if one else 0) + (b2 * z[:, j + 2] if two else 0)
        return y + z

    return along(along(x).T).T


def floyd_warshall(paths: Any) -> Any:
    D = paths.copy()
    for k in range(len(D)):
        D = np.minimum(D, D[:, k : k + 1] + D[k : k + 1])
    return D


def nussinov(base: Any) -> Any:
    n = len(base)
    T = np.zeros((n, n), np.int32)
    for i in range(n - 1, -1, -1):
        for j in range(i + 1, n):
            T[i, j] = max(T[i, j], T[i, j - 1])
            if i + 1 < n:
                T[i, j] = max(T[i, j], T[i + 1, j])
                pair = int(base[i] + base[j] == 3) if i < j - 1 else 0
                T[i, j] = max(T[i, j], T[i + 1, j - 1] + pair)
            for k in range(i + 1, j):
                T[i, j] = max(T[i, j], T[i, k] + T[k + 1, j])
    return T


def adi(u: Any, steps: int) -> Any:
    u, n = u.copy(), len(u)
    dx, dt = 1 / n, 1 / steps
    a = -2 * dt / dx**2 / 2
    d = -dt / dx**2 / 2
    b, e, c, f = 1 - 2 * a, 1 - 2 * d, a, d
    v, p, q = np.zeros((n, n)), np.zeros((n, n)), np.zeros((n, n))
    for _ in range(steps):
        for i in range(1, n - 1):
            v[0, i], p[i, 0], q[i, 0] = 1, 0, 1
            for j in range(1, n - 1):
                p[i, j] = -c / (a * p[i, j - 1] + b)
                q[i, j] = -d * u[j, i - 1] + (1 + 2 * d) * u[j, i] - f * u[j, i + 1] - a * q[i, j - 1]
                q[i, j] /= a * p[i, j - 1] + b
            v[n - 1, i] = 1
            for j in range(n - 2, 0, -1):
                v[j, i] = p[i, j] * v[j + 1, i] + q[i, j]
        for i in range(1, n - 1):
            u[i, 0], p[i, 0], q[i, 0] = 1, 0, 1
            for j in range(1, n - 1):
                p[i, j] = -f / (d * p[i, j - 1] + e)
                q[i, j] = -a * v[i - 1, j] + (1 + 2 * a) * v[i, j] - c * v[i + 1, j] - d * q[i, j - 1]
                q[i, j] /= d * p[i, j - 1] + e
            u[i, n - 1] = 1
            for j in range(n - 2, 0, -1):
                u[i, j] = p[i, j] * u[i, j + 1] + q[i, j]
    return u


def fdtd_2d(ex: Any, ey: Any, hz: Any, source: Any) -> Any:
    ex, ey, hz = ex.copy(), ey.copy(), hz.copy()
    for value in source:
        ey[0] = value
        ey[1:] -= 0.5 * (hz[1:] - hz[:-1])
        ex[:, 1:] -= 0.5 * (hz[:, 1:] - hz[:, :-1])
        hz[:-1, :-1] -= 0.7 * (ex[:-1, 1:] - ex[:-1, :-1] + ey[1:, :-1] - ey[:-1, :-1])
    return ex, ey, hz


def _halves(A: Any, B: Any, steps: int, mean: Callable[[Any], Any]) -> Any:
    A, B = A.copy(), B.copy()
    inside = (slice(1, -1),) * A.ndim
    for _ in range(steps):
        B[inside] = mean(A)
        A[inside] = mean(B)
    return A, B


def heat_3d(A: Any, B: Any, steps: int) -> Any:
    def mean(x: Any) -> Any:
        c = x[1:-1, 1:-1, 1:-1]
        pairs = (x[2:, 1:-1, 1:-1], x[:-2, 1:-1, 1:-1]), (x[1:-1, 2:, 1:-1], x[1:-1, :-2, 1:-1])
        pairs = (*pairs, (x[1:-1, 1:-1, 2:], x[1:-1, 1:-1, :-2]))
        return sum(0.125 * (p - 2 * c + m) for p, m in pairs) + c

    return _halves(A, B, steps, mean)


def jacobi_1d(A: Any, B: Any, steps: int) -> Any:
    return _halves(A, B, steps, lambda x: 0.33333 * (x[:-2] + x[1:-1] + x[2:]))


def jacobi_2d(A: Any, B: Any, steps: int) -> Any:
    def mean(x: Any) -> Any:
        return 0.2 * (x[1:-1, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:] + x[2:, 1:-1] + x[:-2, 1:-1])

    return _halves(A, B, steps, mean)


def seidel_2d(A: Any, steps: int) -> Any:
    A, n = A.copy(), len(A)
    for _ in range(steps):
        for i in range(1, n - 1):
            for j in range(1, n - 1):
                A[i, j] = A[i - 1 : i + 2, j - 1 : j + 2].sum() / 9.0
    return A


def arguments(name: str, n: int, m: int, steps: int, rng: np.random.Generator) -> Arrays:
    """Arguments of a kernel, with ``n`` and ``m`` elements along a dimension."""

    def of(*shape: int) -> Any:
        return rng.random(shape)

    k, dominant = n + m, of(n, n) + n * np.eye(n)
    one, two = of(), of()
    return {
        "correlation": lambda: (of(n, m),),
        "covariance": lambda: (of(n, m),),
        "gemm": lambda: (one, two, of(n, m), of(n, k), of(k, m)),
        "gemver": lambda: (one, two, of(n, n), *(of(n) for _ in range(6))),
        "gesummv": lambda: (one, two, of(n, n), of(n, n), of(n)),
        "symm": lambda: (one, two, of(n, m), of(n, n), of(n, m)),
        "syr2k": lambda: (one, two, of(n, n), of(n, m), of(n, m)),
        "syrk": lambda: (one, two, of(n, n), of(n, m)),
        "trmm": lambda: (one, of(n, n), of(n, m)),
        "mm2": lambda: (one, two, of(n, k), of(k, m), of(m, n), of(n, n)),
        "mm3": lambda: (of(n, k), of(k, m), of(m, k), of(k, n)),
        "atax": lambda: (of(n, m), of(m)),
        "bicg": lambda: (of(n, m), of(m), of(n)),
        "doitgen": lambda: (of(n, m, k), of(k, k)),
        "mvt": lambda: (of(n), of(n), of(n), of(n), of(n, n)),
        "cholesky": lambda: (dominant @ dominant.T,),
        "durbin": lambda: (of(n) / (2 * n),),
        "gramschmidt": lambda: (of(n + m, n),),
        "lu": lambda: (dominant,),
        "ludcmp": lambda: (dominant, of(n)),
        "trisolv": lambda: (dominant, of(n)),
        "deriche": lambda: (np.float32(0.25), of(n, m).astype(np.float32)),
        "floyd_warshall": lambda: (rng.integers(1, 99, (n, n)).astype(np.int32),),
        "nussinov": lambda: (rng.integers(0, 4, n).astype(np.int32),),
        "adi": lambda: (of(n, n), max(1, steps)),
        "fdtd_2d": lambda: (of(n, m), of(n, m), of(n, m), of(steps)),
        "heat_3d": lambda: (of(n, n, n), of(n, n, n), steps),
        "jacobi_1d": lambda: (of(n), of(n), steps),
        "jacobi_2d": lambda: (of(n, n), of(n, n), steps),
        "seidel_2d": lambda: (of(n, n), steps),
    }[name]()
