"""Products, convolutions and norms against their bounds: default and random mapping options, on the CPU with long
reductions and on the simulator with short ones.  For the operator library, ``tests/cpu/test_library.py`` does."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tcomp
from tcomp import grammar
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.tolerance import Model, error_bounds
from tests.numerics.exactly import RANDOM, Array

pytestmark = pytest.mark.sweep(5)

NEEDS_SIMULATOR = pytest.mark.skipif(shutil.which("g++") is None, reason="the simulator needs g++")

MATMUL = "def matmul({t}(M,K) A, {t}(K,N) B) -> (C) {{ C(m,n) +=! A(m,k) * B(k,n) }}"
CONVOLUTION = """def convolution({t}(N,C,H,W) I, {t}(F,C,KH,KW) K) -> (O) {{
    O(n,f,h,w) +=! I(n,c,h+kh,w+kw) * K(f,c,kh,kw) }}"""
MOMENTS = """def moments({t}(N,D) X) -> (M, V) {{
    M(n) +=! X(n,d) / D  V(n) +=! (X(n,d) - M(n)) * (X(n,d) - M(n)) / D }}"""
SOFTMAX = """def softmax({t}(N,D) X) -> (Y) {{
    m(n) max=! X(n,d)  e(n,d) = exp(X(n,d) - m(n))  s(n) +=! e(n,d)  Y(n,d) = e(n,d) / s(n) }}"""
LAYER_NORM = """def layer_norm({t}(N,D) X) -> (Y) {{
    m(n) +=! X(n,d) / D  v(n) +=! (X(n,d) - m(n)) * (X(n,d) - m(n)) / D
    Y(n,d) = (X(n,d) - m(n)) * rsqrt(v(n) + 0.00000762939453125) }}"""


def _matmul(a: Array, b: Array) -> tuple[Array, ...]:
    return (a @ b,)


def _convolution(i: Array, k: Array) -> tuple[Array, ...]:
    windows = np.lib.stride_tricks.sliding_window_view(i, k.shape[2:], axis=(2, 3))
    return (np.einsum("nchwij,fcij->nfhw", windows, k),)


def _moments(x: Array) -> tuple[Array, ...]:
    return x.mean(1), ((x - x.mean(1, keepdims=True)) ** 2).mean(1)


def _softmax(x: Array) -> tuple[Array, ...]:
    e = np.exp(x - x.max(1, keepdims=True))
    return (e / e.sum(1, keepdims=True),)


def _layer_norm(x: Array) -> tuple[Array, ...]:
    mean, variance = (v[:, None] for v in _moments(x))
    return ((x - mean) / np.sqrt(variance + 2.0**-17),)


PROGRAMS: dict[str, tuple[str, tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...], Callable[..., Any]]] = {
    "matmul": (MATMUL, ((13, 20011), (20011, 17)), ((13, 211), (211, 17)), _matmul),
    "convolution": (CONVOLUTION, ((1, 61, 11, 12), (7, 61, 5, 3)), ((1, 7, 6, 7), (3, 7, 3, 3)), _convolution),
    "moments": (MOMENTS, ((5, 100_003),), ((5, 307),), _moments),
    "softmax": (SOFTMAX, ((5, 100_003),), ((5, 307),), _softmax),
    "layer norm": (LAYER_NORM, ((5, 100_003),), ((5, 307),), _layer_norm),
}
"""Text, shapes on the CPU, shapes on the simulator, and the formula in long double."""

TYPES = {"float16": np.float16, "bfloat16": None, "float": np.float32, "double": np.float64}


def check(name: str, dtype: str, kind: str, target: str, options: MappingOptions | None) -> None:
    """Outputs are within their bounds of the reference and of a formula in long double, for each model."""
    text, long, short, formula = PROGRAMS[name]
    typed = text.format(t=dtype)
    storage: Any = TYPES[dtype] or pytest.importorskip("ml_dtypes").bfloat16
    rng = np.random.default_rng(len(name))
    shapes = long if target == "cpu" else short
    arrays = [RANDOM[kind](rng, int(np.prod(shape))).reshape(shape).astype(storage) for shape in shapes]
    (function,) = grammar.define(typed).values()
    found = getattr(tcomp.define(typed), function.name)(*arrays, target=target, options=options)
    exact = formula(*(a.astype(np.longdouble) for a in arrays))
    inputs = dict(zip((t.name for t in function.inputs), arrays, strict=True))
    for model in Model:
        bounds = error_bounds(function, inputs, None, model).values()
        for array, wanted, tolerance in zip(
            found if isinstance(found, tuple) else (found,), exact, bounds, strict=True
        ):
            assert (tolerance.shares(array) <= 1).all(), f"{model.value}: {tolerance.shares(array).max()}"
            with np.errstate(over="ignore"):
                rounding = np.abs(wanted.astype(array.dtype).astype(np.longdouble) - wanted)
            apart = np.abs(array.astype(np.longdouble) - wanted)
            assert (apart <= tolerance.bound + rounding + 2.0**-52 * np.abs(wanted)).all(), model.value


@pytest.mark.parametrize("kind", ["random signs", "one sign", "cancelling"])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, dtype: str, kind: str) -> None:
    check(name, dtype, kind, "cpu", None)


def cpu_options(rng: np.random.Generator) -> MappingOptions:
    """Any tiles, fusion, register tile and threads."""
    sizes = [int(rng.choice([0, 1, 3, 8, 32, 100, 4096])) for _ in range(int(rng.integers(1, 5)))]
    return MappingOptions(
        tile_sizes=None if rng.random() < 0.3 else tuple(sizes),
        fusion_strategy=str(rng.choice(["max", "preserve3coincident", "min"])),
        register_tile=None if rng.random() < 0.5 else (int(rng.integers(1, 9)), int(rng.choice([1, 4, 16, 48]))),
        recompute_limit=float(rng.choice([1.0, 1.5, 4.0])),
        parallel=bool(rng.integers(2)),
    )


def gpu_options(rng: np.random.Generator) -> MappingOptions:
    """Any threads, tiles, memories, and ways to share a reduction."""
    return MappingOptions(
        tile_sizes=None if rng.random() < 0.5 else tuple(int(rng.choice([1, 4, 16, 33])) for _ in range(2)),
        threads=None if rng.random() < 0.3 else (int(rng.choice([1, 16, 32, 64])), int(rng.choice([1, 2, 4]))),
        reduction_tile=None if rng.random() < 0.5 else int(rng.choice([1, 7, 32])),
        split_reduction=None if rng.random() < 0.5 else int(rng.choice([1, 2, 5])),
        match_reductions=bool(rng.integers(2)),
        use_shared_memory=bool(rng.integers(2)),
        use_private_memory=bool(rng.integers(2)),
        distribution=str(rng.choice(["cyclic", "blocked"])),
        unroll=int(rng.choice([1, 8, 128])),
    )


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("name", PROGRAMS)
def test_random_options_on_the_cpu(name: str, seed: int) -> None:
    options = cpu_options(np.random.default_rng([seed, 1]))
    check(name, ("float", "double", "float16")[seed % 3], ("random signs", "mixed")[seed % 2], "cpu", options)


@NEEDS_SIMULATOR
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", PROGRAMS)
def test_random_options_on_the_simulator(name: str, seed: int) -> None:
    options = gpu_options(np.random.default_rng([seed, 2])) if seed else None
    check(name, ("float", "double", "float16")[seed % 3], "random signs", "simulator", options)
