"""Reductions down columns run row by row where rows are long, and in strips where they are not."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.mapping.machines.cpu import this_machine

pytestmark = pytest.mark.sweep(4)

Array = np.ndarray[Any, np.dtype[Any]]

BLOCK = r"floor\(\(i\d\)/8\)"
"""A block of rows in the text of a schedule."""

BY_ROWS: dict[str, tuple[str, tuple[int, ...], Callable[[Array], Array]]] = {
    "sums": ("Y(d) +=! X(n,d)", (100, 2100), lambda X: X.sum(0)),
    "extrema": ("Y(d) max=! X(n,d)", (65, 1031), lambda X: X.max(0)),
    "squares": ("Y(d) +=! X(n,d) * X(n,d) - X(n,d)", (70, 1300), lambda X: (X * X - X).sum(0)),
    "sums in the middle": ("Y(a,c) +=! X(a,b,c)", (3, 67, 530), lambda X: X.sum(1)),
    "products of two": ("Y(d) +=! X(n,d) * X(n,d)", (70, 1300), lambda X: (X * X).sum(0)),
    "all that there are": ("Y(d) +=! X(n,d)", (100, 97), lambda X: X.sum(0)),
    "what all steps read": ("m(d) = X(0,d)  Y(d) +=! X(n,d) - m(d)", (90, 300), lambda X: (X - X[0]).sum(0)),
    "two reductions": ("Y(c) +=! X(a,b,c)", (9, 11, 1100), lambda X: X.sum((0, 1))),
    "a triangle": (
        "Y(d) +=! X(n,d) where d in 0:D, n in 0:min(d+1,N)",
        (80, 1200),
        lambda X: np.tril(X.T, 0).sum(1) if X.shape[0] > X.shape[1] else np.triu(X).sum(0),
    ),
}


@pytest.fixture(autouse=True)
def two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes kernels for two threads, as many as there are processors."""
    other = replace(this_machine(), threads=2)
    monkeypatch.setattr("tcomp.runtime.registry.this_machine", lambda: other)


@pytest.mark.parametrize("vector", [16, 32, 64])
@pytest.mark.parametrize("name", BY_ROWS)
def test_sums_down_long_columns(name: str, vector: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever vectors a share of them should be whole for."""
    other = replace(this_machine(), threads=2, vector_bytes=vector)
    monkeypatch.setattr("tcomp.runtime.registry.this_machine", lambda: other)
    statement, shape, expected = BY_ROWS[name]
    sizes = "N,D" if len(shape) == 2 else "A,B,C"
    f = tc.define(f"def f{vector}(float({sizes}) X) -> (Y) {{ {statement} }}")[f"f{vector}"]
    X = np.random.default_rng(shape).integers(-3, 4, shape).astype(np.float32)
    kernel = f.compile(X)
    assert re.search(BLOCK, kernel.stages["nest"])
    np.testing.assert_array_equal(kernel(X), expected(X))
    assert f.compile(X, plan=kernel.stages["place"]).source == kernel.source


@pytest.mark.parametrize("rows", [64, 100, 3001])
@pytest.mark.parametrize("operator", ["+", "max", "*"])
def test_columns_that_are_left_over(operator: str, rows: int) -> None:
    """Whatever register tiles leave, vectors that overlap take where it is as long as one."""
    f = tc.define(f"def f(float(N,D) X) -> (Y) {{ Y(d) {operator}=! X(n,d) }}")["f"]
    reduction = {"+": np.add, "max": np.maximum, "*": np.multiply}[operator]
    for columns in (1, 3, 4, 9, 15, 17, 29, 33, 47, 63, 70, 100, 260, 261, 300):
        X = np.random.default_rng(columns).integers(1, 3, (rows, columns)).astype(np.float32)
        if operator == "*":
            X[1:-20] = 1
        np.testing.assert_array_equal(f(X), reduction.reduce(X, 0), str(columns))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("X(n,d) > 0 ? X(n,d) : 2", lambda X: np.where(X > 0, X, 2)),
        ("exp(X(n,d) - X(n,d)) * X(n,d)", lambda X: X),
        ("float(int32(X(n,d)))", lambda X: X),
    ],
    ids=["choices", "functions", "conversions"],
)
def test_what_register_tiles_do_not_spell_runs_side_by_side(value: str, expected: Callable[[Array], Array]) -> None:
    f = tc.define(f"def f(float(N,D) X) -> (Y) {{ Y(d) +=! {value} }}")["f"]
    for shape in ((4097, 300), (100, 77)):
        X = np.random.default_rng(shape).integers(-3, 4, shape).astype(np.float32)
        kernel = f.compile(X)
        assert re.search(r"#pragma omp simd\n *for .*\n.* = \(v_Y_acc\w*\[", kernel.source), kernel.source
        np.testing.assert_array_equal(kernel(X), expected(X).sum(0))


def test_columns_that_are_left_over_run_in_vectors() -> None:
    f = tc.define("def f(float(N,D) X) -> (Y) { Y(d) +=! X(n,d) }")["f"]
    kernel = f.compile(sizes={"N": 100, "D": 300})
    assert re.search(r"if \(tc_min\(300, .*\) == \d+\) \{\n *tc_float32_x", kernel.source)


@pytest.mark.parametrize(("shape", "parts"), [((3000, 1000), True), ((60, 1000), False), ((3000, 20), False)])
def test_threads_share_the_rows_of_long_columns(shape: tuple[int, int], parts: bool) -> None:
    f = tc.define("def f(float(N,D) X) -> (Y) { Y(d) +=! X(n,d) }")["f"]
    kernel = f.compile(sizes=dict(zip("ND", shape, strict=True)))
    assert ("S0p" in kernel.stages["share"]) == parts
    X = np.random.default_rng(shape).integers(-3, 4, shape).astype(np.float32)
    np.testing.assert_array_equal(kernel(X), X.sum(0))


def test_parts_of_a_sum_keep_tiles_of_their_own() -> None:
    """What all of them read is computed before, and not once in a tile that runs all parts."""
    f = tc.define("""def f(float(N,D) X) -> (V) {
      M(d) +=! X(n,d)
      m(d) = M(d) / N
      V(d) +=! (X(n,d) - m(d)) * (X(n,d) - m(d))
    }""")["f"]
    kernel = f.compile(sizes={"N": 4096, "D": 500})
    assert "the parts of a reduction would run in one tile" in kernel.stages["fuse"]
    X = np.random.default_rng(0).integers(-3, 4, (4096, 500)).astype(np.float32)
    np.testing.assert_allclose(kernel(X), ((X - X.mean(0)) ** 2).sum(0), rtol=1e-4)


@pytest.mark.parametrize(("cache", "together"), [(1 << 26, True), (1 << 19, False)])
def test_strips_that_no_cache_holds_are_not_shared(cache: int, together: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(this_machine(), threads=2, middle_cache=cache)
    monkeypatch.setattr("tcomp.runtime.registry.this_machine", lambda: other)
    f = tc.define("def f(float(N,D) X) -> (Y) { s(d) max=! X(n,d)  Y(n,d) = X(n,d) - s(d) }")["f"]
    kernel = f.compile(sizes={"N": 800, "D": 5000})
    assert ("no cache holds what their tiles would share" not in kernel.stages["fuse"]) == together
    X = np.random.default_rng(0).integers(-3, 4, (800, 5000)).astype(np.float32)
    np.testing.assert_array_equal(kernel(X), X - X.max(0))


@pytest.mark.parametrize("shape", [(63, 300), (30, 4000), (100, 16)])
def test_short_rows_and_few_steps_run_in_strips(shape: tuple[int, int]) -> None:
    f = tc.define("def f(float(N,D) X) -> (Y) { Y(d) +=! X(n,d) }")["f"]
    X = np.random.default_rng(shape).integers(-3, 4, shape).astype(np.float32)
    kernel = f.compile(X)
    assert not re.search(BLOCK, kernel.stages["nest"])
    np.testing.assert_array_equal(kernel(X), X.sum(0))
