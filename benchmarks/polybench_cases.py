"""PolyBench's kernels, their sizes and arguments, and how functions of the same loops in C take these."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

SIZES: dict[str, dict[str, tuple[int, ...]]] = {
    "correlation": {"large": (1400, 1200), "medium": (260, 240), "small": (100, 80)},
    "covariance": {"large": (1400, 1200), "medium": (260, 240), "small": (100, 80)},
    "gemm": {"large": (1000, 1100, 1200), "medium": (200, 220, 240), "small": (60, 70, 80)},
    "gemver": {"large": (2000,), "medium": (400,), "small": (120,)},
    "gesummv": {"large": (1300,), "medium": (250,), "small": (90,)},
    "symm": {"large": (1000, 1200), "medium": (200, 240), "small": (60, 80)},
    "syr2k": {"large": (1200, 1000), "medium": (240, 200), "small": (80, 60)},
    "syrk": {"large": (1200, 1000), "medium": (240, 200), "small": (80, 60)},
    "trmm": {"large": (1000, 1200), "medium": (200, 240), "small": (60, 80)},
    "mm2": {"large": (800, 900, 1100, 1200), "medium": (180, 190, 210, 220), "small": (40, 50, 70, 80)},
    "mm3": {"large": (800, 900, 1000, 1100, 1200), "medium": (180, 190, 200, 210, 220), "small": (40, 50, 60, 70, 80)},
    "atax": {"large": (1900, 2100), "medium": (390, 410), "small": (116, 124)},
    "bicg": {"large": (2100, 1900), "medium": (410, 390), "small": (124, 116)},
    "doitgen": {"large": (150, 140, 160), "medium": (50, 40, 60), "small": (25, 20, 30)},
    "mvt": {"large": (2000,), "medium": (400,), "small": (120,)},
    "adi": {"large": (1000, 500), "medium": (200, 100), "small": (60, 40)},
    "cholesky": {"large": (2000,), "medium": (400,), "small": (120,)},
    "deriche": {"large": (4096, 2160), "medium": (720, 480), "small": (192, 128)},
    "durbin": {"large": (2000,), "medium": (400,), "small": (120,)},
    "fdtd_2d": {"large": (1000, 1200, 500), "medium": (200, 240, 100), "small": (60, 80, 40)},
    "floyd_warshall": {"large": (2800,), "medium": (500,), "small": (180,)},
    "gramschmidt": {"large": (1200, 1000), "medium": (240, 200), "small": (80, 60)},
    "heat_3d": {"large": (120, 500), "medium": (40, 100), "small": (20, 40)},
    "jacobi_1d": {"large": (2000, 500), "medium": (400, 100), "small": (120, 40)},
    "jacobi_2d": {"large": (1300, 500), "medium": (250, 100), "small": (90, 40)},
    "lu": {"large": (2000,), "medium": (400,), "small": (120,)},
    "ludcmp": {"large": (2000,), "medium": (400,), "small": (120,)},
    "nussinov": {"large": (2500,), "medium": (500,), "small": (180,)},
    "seidel_2d": {"large": (2000, 500), "medium": (400, 100), "small": (120, 40)},
    "trisolv": {"large": (2000,), "medium": (400,), "small": (120,)},
}

PRODUCTS = frozenset(list(SIZES)[:15])
"""Kernels that need no steps."""


def arguments(name: str, size: tuple[int, ...]) -> tuple[Any, ...]:
    """What a kernel takes; matrices are far from singular."""
    rng = np.random.default_rng(0)
    n = size[0]
    if name in PRODUCTS:
        return _of_products(name, size, rng)
    if name in ("lu", "ludcmp", "trisolv"):
        matrix = rng.random((n, n)) + n * np.eye(n)
        return (matrix,) if name == "lu" else (matrix, rng.random(n))
    if name == "cholesky":
        half = rng.random((n, n))
        return (half @ half.T + n * np.eye(n),)
    if name == "gramschmidt":
        return (rng.random(size) + np.eye(*size),)
    if name == "deriche":
        return np.float32(0.25), rng.random(size, np.float32)
    if name == "fdtd_2d":
        return (*(rng.random(size[:2]) for _ in range(3)), np.arange(size[2], dtype=float))
    if name == "floyd_warshall":
        return (rng.integers(1, 999, (n, n)).astype(np.int32),)
    if name == "nussinov":
        return (rng.integers(0, 4, n).astype(np.int32),)
    if name == "durbin":
        return (rng.random(n) / (2 * n),)
    ranks = {"adi": 2, "seidel_2d": 2, "jacobi_1d": 1, "jacobi_2d": 2, "heat_3d": 3}
    arrays = 1 if name in ("adi", "seidel_2d") else 2
    return (*(rng.random((n,) * ranks[name]) for _ in range(arrays)), size[1])


def _of_products(name: str, size: tuple[int, ...], rng: np.random.Generator) -> tuple[Any, ...]:
    def of(*shape: int) -> Any:
        return rng.random(shape)

    n, m, k, columns, p = (*size, *(5 - len(size)) * (0,))
    made: dict[str, Callable[[], tuple[Any, ...]]] = {
        "gemm": lambda: (1.5, 1.2, of(n, m), of(n, k), of(k, m)),
        "gemver": lambda: (1.5, 1.2, of(n, n), *(of(n) for _ in range(6))),
        "gesummv": lambda: (1.5, 1.2, of(n, n), of(n, n), of(n)),
        "symm": lambda: (1.5, 1.2, of(n, m), of(n, n), of(n, m)),
        "syr2k": lambda: (1.5, 1.2, of(n, n), of(n, m), of(n, m)),
        "syrk": lambda: (1.5, 1.2, of(n, n), of(n, m)),
        "trmm": lambda: (1.5, of(n, n), of(n, m)),
        "mm2": lambda: (1.5, 1.2, of(n, k), of(k, m), of(m, columns), of(n, columns)),
        "mm3": lambda: (of(n, k), of(k, m), of(m, p), of(p, columns)),
        "atax": lambda: (of(n, m), of(m)),
        "bicg": lambda: (of(n, m), of(m), of(n)),
        "doitgen": lambda: (of(n, m, k), of(k, k)),
        "mvt": lambda: (*(of(n) for _ in range(4)), of(n, n)),
    }
    return made[name]() if name in made else (of(n, m),)


def layout(name: str, given: list[Any], size: tuple[int, ...]) -> tuple[list[Any], tuple[Any, ...]]:
    """The arguments of a function in C, and the arrays that hold its results."""
    if name in PRODUCTS:
        return _layout_of_products(name, given, size)
    n = size[0]
    match name:
        case "jacobi_1d" | "jacobi_2d" | "heat_3d":
            A, B, steps = given
            return [n, steps, A, B], (A, B)
        case "seidel_2d":
            return [n, given[1], given[0]], (given[0],)
        case "fdtd_2d":
            return [*size, *given], tuple(given[:3])
        case "adi":
            return [n, given[1], given[0], *(np.zeros((n, n)) for _ in range(3))], (given[0],)
        case "floyd_warshall" | "lu":
            return [n, given[0]], (given[0],)
        case "cholesky":
            return [n, given[0]], (given[0],)
        case "nussinov":
            table = np.zeros((n, n), np.int32)
            return [n, given[0], table], (table,)
        case "deriche":
            out, y1, y2 = (np.zeros(size, np.float32) for _ in range(3))
            return [*size, *given, out, y1, y2], (out,)
        case "durbin":
            y = np.zeros(n)
            return [n, given[0], y, np.zeros(n)], (y,)
        case "gramschmidt":
            Q, R = np.zeros(size), np.zeros((size[1], size[1]))
            return [*size, given[0], R, Q], (Q, R)
        case "ludcmp":
            x = np.zeros(n)
            return [n, given[0], given[1], x, np.zeros(n)], (x,)
        case _:
            x = np.zeros(n)
            return [n, given[0], x, given[1]], (x,)


def _layout_of_products(name: str, given: list[Any], size: tuple[int, ...]) -> tuple[list[Any], tuple[Any, ...]]:
    n = size[0]
    match name:
        case "correlation" | "covariance":
            found = np.zeros((size[1], size[1]))
            beside = (np.zeros(size[1]) for _ in range(2 if name == "correlation" else 1))
            return [size[1], n, given[0], found, *beside], (found,)
        case "gemm" | "symm" | "syr2k" | "syrk":
            return [*size, *given], (given[2],)
        case "gemver":
            x, w = np.zeros(n), np.zeros(n)
            return [n, *given, x, w], (given[2], x, w)
        case "gesummv":
            y = np.zeros(n)
            return [n, *given, np.zeros(n), y], (y,)
        case "trmm":
            return [*size, *given], (given[2],)
        case "mm2":
            return [*size, *given, np.zeros(size[:2])], (given[5],)
        case "mm3":
            E, F, G = (np.zeros((size[i], size[j])) for i, j in ((0, 1), (1, 3), (0, 3)))
            return [*size, *given, E, F, G], (G,)
        case "atax":
            y = np.zeros(size[1])
            return [*size, *given, y, np.zeros(n)], (y,)
        case "bicg":
            s, q = np.zeros(size[1]), np.zeros(n)
            return [size[1], n, *given, s, q], (s, q)
        case "doitgen":
            return [*size, *given, np.zeros(size[2])], (given[0],)
        case _:
            return [n, *given], (given[0], given[1])
