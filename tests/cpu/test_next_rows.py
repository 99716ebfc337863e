"""Statements that pass over rows one after another: rows to come are fetched, and rows stay near meanwhile."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.driver import lower
from tcomp.grammar import define
from tcomp.mapping.machines.cpu import Machine
from tcomp.model.terms.sizes import Sizes
from tests.targets import CPU

pytestmark = pytest.mark.sweep(3)

Array = np.ndarray[Any, np.dtype[Any]]

LAYER_NORM = """
def f(float(N,D) X, float(D) gamma) -> (Y) {
  mean(n) +=! X(n,d)
  mean(n)  =  mean(n) / D
  var(n)  +=! (X(n,d) - mean(n)) * (X(n,d) - mean(n))
  Y(n,d)   =  (X(n,d) - mean(n)) * rsqrt(var(n) / D + 0.00001) * gamma(d)
}"""
SOFTMAX = """
def f(float(N,D) X) -> (Y) {
  m(n) max=! X(n,d)
  e(n,d) = exp(X(n,d) - m(n))
  s(n) +=! e(n,d)
  Y(n,d) = e(n,d) / s(n)
}"""
RMS_NORM = "def f(float(N,D) X) -> (Y) { s(n) +=! X(n,d) * X(n,d)  Y(n,d) = X(n,d) * rsqrt(s(n) / D + 0.00001) }"
BATCHES = "def f(float(B,N,D) X) -> (Y) { m(b,n) max=! X(b,n,d)  Y(b,n,d) = X(b,n,d) - m(b,n) }"
ROW_SUMS = "def f(float(N,D) X) -> (Y) { Y(n) +=! X(n,d) }"
TURNED = "def f(float(D,N) X) -> (Y) { m(n) max=! X(d,n)  Y(d,n) = X(d,n) - m(n) }"

MACHINE = Machine(64, 32, 64, 1, 48 << 10, 1 << 20, 32 << 20)


def text_of(text: str, sizes: dict[str, int], machine: Machine = MACHINE) -> str:
    """A kernel's C text."""
    return lower(define(text)["f"], Sizes(sizes), tc.MappingOptions(), replace(CPU, machine=machine)).source.text


def fetched(text: str, sizes: dict[str, int], machine: Machine = MACHINE) -> set[tuple[str, int]]:
    """The tensors whose rows are fetched, and how many elements ahead."""
    found = re.findall(r"__builtin_prefetch\(&v_(\w+)\[.*\] \+ (-?\d+)L\);", text_of(text, sizes, machine))
    return {(name, int(distance)) for name, distance in found}


def test_the_last_reduction_fetches_the_rows_of_the_next_tile() -> None:
    assert fetched(LAYER_NORM, {"N": 4096, "D": 1024}) == {("X", 1024)}, "a tile is one row"
    assert fetched(LAYER_NORM, {"N": 8192, "D": 500}) == {("X", 2 * 500)}, "a tile is two"
    assert fetched(LAYER_NORM, {"N": 8192, "D": 256}) == {("X", 4 * 256)}, "rows that are folded four at a time"
    assert fetched(BATCHES, {"B": 8, "N": 512, "D": 1000}) == {("X", 1000)}


def test_rows_behind_a_temporary_are_fetched() -> None:
    assert fetched(SOFTMAX, {"N": 4096, "D": 1024}) == {("X", 1024)}, "the sum is one of exponentials"


def test_every_line_is_fetched_once() -> None:
    sizes = {"N": 4096, "D": 1024}
    assert text_of(LAYER_NORM, sizes).count("__builtin_prefetch") == 4, "four vectors of a line, in one reduction"
    narrow = replace(MACHINE, vector_bytes=32, datapath_bytes=32, registers=16)
    assert text_of(LAYER_NORM, sizes, narrow).count("__builtin_prefetch") == 2, "four vectors are two lines"


def chain(length: int) -> str:
    """Temporaries, each made of three neighbours of the one before, and the largest value of a row of the last."""
    steps = ["t0(n,d) = X(n,d) + X(n,d+1) + X(n,d+2) where d in 0:D-2"]
    for k in range(1, length):
        value = " + ".join(f"t{k - 1}(n,{d})" for d in ("d", "d+1", "d+2"))
        steps.append(f"t{k}(n,d) = {value} where d in 0:D-{2 * (k + 1)}")
    last, row = f"t{length - 1}(n,d)", f"where d in 0:D-{2 * length}"
    steps += [f"m(n) max=! {last} {row}", f"Y(n,d) = {last} - m(n) {row}"]
    return "def f(float(N,D) X) -> (Y) {\n" + "\n".join(steps) + "\n}"


@pytest.mark.parametrize("length", [1, 2, 6])
def test_neighbours_are_fetched_once(length: int) -> None:
    """However many ways lead to them: with four vectors at a time, and with one in the loop over those left."""
    assert text_of(chain(length), {"N": 4096, "D": 1024}).count("__builtin_prefetch") == 5
    shifted = """def f(float(N,D) X) -> (Y) {
      m(n) max=! fmax(X(n,d), X(n,d+1)) where d in 0:D-1
      Y(n,d) = X(n,d) - m(n)
    }"""
    assert text_of(shifted, {"N": 4096, "D": 1025}).count("__builtin_prefetch") == 4


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (LAYER_NORM, {"N": 200, "D": 1024}),
        (LAYER_NORM, {"N": 200, "D": 10000}),
        (LAYER_NORM, {"N": 50000, "D": 100}),
        (ROW_SUMS, {"N": 4096, "D": 1024}),
        (TURNED, {"N": 4096, "D": 1024}),
    ],
    ids=["stays in the caches", "long rows", "short rows", "one pass", "no rows"],
)
def test_where_it_does_not_pay_nothing_is_fetched(text: str, sizes: dict[str, int]) -> None:
    assert fetched(text, sizes) == set()


def test_rows_of_a_sum_of_squares_stay_near() -> None:
    """It is a sum of products, but reads nothing for several rows, so its tiles need not be high."""
    assert fetched(RMS_NORM, {"N": 4096, "D": 1024}) == {("X", 1024)}, "a tile is one row"


@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("shape", [(9, 129), (7, 200), (5, 333), (2, 1031)])
def test_results_are_right(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int], width: int) -> None:
    machine = replace(MACHINE, vector_bytes=width, middle_cache=0)
    monkeypatch.setattr("tcomp.runtime.registry.this_machine", lambda: machine)
    monkeypatch.setenv("TCOMP_CACHE", "0")
    n, d = shape
    X = np.random.default_rng([n, d]).integers(-8, 9, shape).astype(np.float32) / 4
    gamma = np.arange(d, dtype=np.float32) % 7
    exact = X.astype(np.float64)
    centred = exact - exact.mean(1, keepdims=True)
    norm = centred / np.sqrt(centred.var(1, keepdims=True) + 1e-5) * gamma
    assert fetched(LAYER_NORM, {"N": n, "D": d}, machine) != set()
    np.testing.assert_allclose(tc.define(LAYER_NORM)["f"](X, gamma), norm, rtol=1e-4, atol=1e-4)
    e = np.exp(exact - exact.max(1, keepdims=True))
    np.testing.assert_allclose(tc.define(SOFTMAX)["f"](X), e / e.sum(1, keepdims=True), rtol=1e-5)
    root = np.sqrt((exact * exact).mean(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(tc.define(RMS_NORM)["f"](X), exact / root, rtol=1e-5)


EXPONENTIALS = "def f(float(N,D) X, float(N) m) -> (Y) { Y(n,d) = exp(X(n,d) - m(n)) }"
SAVED = "def f(float(N,D) X, float(N) m, int64(N) at) -> (Y) { Y(n,d) = exp(X(n,d) - m(n))  Y(n,at(n)) += -1.0 }"
HALF_OF_ROWS = "def f(float(N,D) X, float(N) m) -> (Y) { Y(n,d) = exp(X(n,2*d) - m(n)) where d in 0:D/2 }"


@pytest.mark.parametrize("text", [EXPONENTIALS, SAVED], ids=["streamed", "added to"])
def test_rows_of_functions_fetch_what_they_read(text: str) -> None:
    assert fetched(text, {"N": 4096, "D": 1000}) == {("X", 1024)}
    assert fetched(text, {"N": 16, "D": 1000}) == set(), "all of it stays in the caches"


def test_rows_fetch_nothing_in_vain() -> None:
    plain = EXPONENTIALS.replace("exp(X(n,d) - m(n))", "X(n,d) - exp(m(n))")
    assert fetched(plain, {"N": 4096, "D": 1000}) == set(), "nothing keeps the processor from looking far"
    assert fetched(HALF_OF_ROWS, {"N": 4096, "D": 1000}) == set(), "no neighbours"


@pytest.mark.parametrize("sizes", [(600, 1000), (70, 10_007), (4096, 130)])
def test_rows_that_fetch_are_right_to_the_end(sizes: tuple[int, int], machine: Callable[..., None]) -> None:
    machine(last_cache=1 << 16, middle_cache=1 << 12)
    rows, columns = sizes
    X = np.random.default_rng(0).standard_normal((rows, columns)).astype("f4")
    m, at = X.max(1), np.arange(rows) * 7 % columns
    for text, arrays in ((EXPONENTIALS, (X, m)), (SAVED, (X, m, at))):
        f = tc.define(text).f
        assert "__builtin_prefetch" in f.compile(*arrays).source
        expected = np.exp(X.astype("f8") - m[:, None])
        if text == SAVED:
            expected[np.arange(rows), at] -= 1
        np.testing.assert_allclose(f(*arrays), expected, rtol=3e-6, atol=1e-6)
