"""Blocks in which each element needs the one before it in its row run row by row, where it pays as scans in vectors.

Rows that fill vectors run beside each other; see ``tests/language/test_rows_beside.py``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.c.target import CpuBackend
from tcomp.grammar import define
from tcomp.mapping.machines.cpu import this_machine
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.terms.sizes import Sizes
from tcomp.stepwise import lower_stepwise

Array = np.ndarray[Any, np.dtype[Any]]

TEXTS = {
    "one row": "(float(T) a, float(T) b) -> (h) { for t in 0:T { h(t) = (t == 0 ? 2.0 : a(t)*h(t-1)) + b(t) } }",
    "rows": """(float(R,T) a, float(R,T) b) -> (h) {
        for t in 0:T { h(r,t) = (t == 0 ? 0.0 : a(r,t)*h(r,t-1)) + b(r,t) } }""",
    "backwards": """(float(R,T) a, float(R,T) b) -> (h) {
        for t in 0:T { h(r,T-1-t) = (t == 0 ? 0.0 : h(r,T-t)) * a(r,t) - 2.0 * b(r,T-1-t) } }""",
    "doubles": """(double(R,T) a, double(R) b) -> (h) {
        h(r,0) = b(r)
        for t in 1:T { h(r,t) = -(b(r) - h(r,t-1)) * a(r,t) } }""",
    "begun anew": """(float(R,T) a) -> (h) {
        for t in 0:T { h(r,t) = (t % 5 == 0 ? 1.0 : -h(r,t-1)) + a(r,t) } }""",
    "conditions on sizes": """(float(R,T) a) -> (h) {
        for t in 0:T { h(r,t) = (t == 0 ? 1.0 : t < T - 1 ? -h(r,t-1) : h(r,t-1)) + (t < T/2 ? 0.0 : a(r,t)) } }""",
    "two rows": "(float(R,S,T) c) -> (h) { for t in 0:T { h(r,s,t) = (t == 0 ? 0.0 : -h(r,s,t-1)) + c(r,s,t) } }",
    "block in a block": """(float(K,R,T) d) -> (g) {
        for k in 0:K { for t in 0:T { g(k,r,t) = (t == 0 ? 0.0 : -g(k,r,t-1)) + d(k,r,t) } } }""",
}
OTHERS = {
    "extrema": "(float(R,T) a) -> (h) { for t in 0:T { h(r,t) = t == 0 ? a(r,t) : max(0.5 * h(r,t-1), a(r,t)) } }",
    "products": "(float(R,T) a) -> (h) { for t in 0:T { h(r,t) = t == 0 ? 1.0 : h(r,t-1) * (a(r,t) - h(r,t-1)) } }",
}
APART = {
    "columns": "(float(T,R) a) -> (h) { for t in 0:T { h(t,r) = (t == 0 ? 0.0 : -h(t-1,r)) + a(t,r) } }",
    "two before": """(float(R,T) a) -> (h) {
        for t in 0:T { h(r,t) = (t < 2 ? 0.0 : h(r,t-1) - h(r,t-2)) + a(r,t) } }""",
    "a neighbour's": """(float(R,T) a) -> (h) {
        for t in 0:T { h(r,t) = (t == 0 || r == 0 ? 0.0 : -h(r-1,t-1)) + a(r,t) } }""",
    "functions": "(float(R,T) a) -> (h) { for t in 0:T { h(r,t) = tanh((t == 0 ? 0.0 : h(r,t-1)) + a(r,t)) } }",
}
SCAN, IN_ORDER, BESIDE = "as a scan of affine maps", "one after another", "rows at a time run all steps"


def called(text: str, steps: int, fast: bool, rows: int | None = None) -> tuple[str, Array, Array]:
    """What is told of the kernel, and its result with the reference's: whole numbers, and so exact.

    Rows are too few for a vector if nothing else is said.
    """
    f, rng = tc.define(f"def f{text}").f, np.random.default_rng(0)
    rows = this_machine().vector_bytes // (8 if "double" in text else 4) - 1 if rows is None else rows
    sizes = {"R": rows, "T": steps, "S": 3, "K": 2}
    given = []
    for tensor, declared in zip(f.function.inputs, f.function.definition.inputs, strict=True):
        kind = np.float64 if tensor.dtype.name == "float64" else np.float32
        low, high = (-1, 2) if tensor.name == "a" else (-3, 4)
        given.append(rng.integers(low, high, [sizes[str(d)] for d in declared.dims or ()]).astype(kind))
    kernel = f.compile(*given, options=tc.MappingOptions(fast_math=fast))
    return kernel.explain(), kernel(*given), f.reference(*given)


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("name", TEXTS)
def test_affine_steps_run_along_rows(name: str, fast: bool) -> None:
    for steps in (2, 17, 90):
        told, found, expected = called(TEXTS[name], steps, fast)
        assert steps == 2 or (SCAN if fast else IN_ORDER) in told
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", OTHERS)
def test_other_steps_run_along_rows_in_order(name: str) -> None:
    told, found, expected = called(OTHERS[name], 12, fast=True)
    assert IN_ORDER in told
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("name", APART)
def test_steps_that_need_more_run_for_all_rows(name: str) -> None:
    told, found, expected = called(APART[name], 12, fast=True)
    assert "along rows" not in told
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("fast", [False, True])
def test_many_rows_are_shared_by_threads(fast: bool) -> None:
    told, found, expected = called(TEXTS["rows"], 1024, fast, rows=600)
    # Rows that lie pages apart are scans, where those may be.
    assert (SCAN if fast else BESIDE) in told
    np.testing.assert_array_equal(found, expected)


def test_rows_that_fill_vectors_run_beside_each_other() -> None:
    told, found, expected = called(TEXTS["rows"], 90, fast=True, rows=33)
    assert BESIDE in told and SCAN not in told
    np.testing.assert_array_equal(found, expected)


def test_few_long_rows_are_shared_by_threads() -> None:
    text = "def f" + TEXTS["rows"]
    for vector, rows, width in ((64, 40, 32), (32, 40, 24), (32, 5, 3)):
        machine = replace(this_machine(), vector_bytes=vector, threads=2)
        (function,) = define(text).values()
        made = lower_stepwise(function, Sizes({"R": rows, "T": 100_000}), MappingOptions(), CpuBackend(machine))
        assert f" x {width} rows" in made.stages["pack"]
