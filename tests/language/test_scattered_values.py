"""`=` into elements that data choose: values, duplicates, what is not named, texts, gradients; on every target."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.fuzzing import gradients
from tcomp.grammar import parse
from tests.cuda.simulated import NEEDS_COMPILER
from tests.opencl.here import NEEDS_DEVICE

Array = np.ndarray[Any, np.dtype[Any]]

TARGETS = [
    "cpu",
    pytest.param("simulator", marks=NEEDS_COMPILER),
    pytest.param("opencl", marks=NEEDS_DEVICE),
]

ROWS = "def f(float(N,D) V, int32(N) k, const int E) -> (float(E,D) O) { O(k(i), d) = V(i,d) ORDER }"
RNG = np.random.default_rng(5)


def rows(order: str = "") -> Any:
    return tc.define(ROWS.replace("ORDER", order)).f


@pytest.mark.parametrize("target", TARGETS)
def test_a_permutation(target: str) -> None:
    v, k = RNG.random((50, 3)).astype(np.float32), RNG.permutation(80)[:50].astype(np.int32)
    expected = np.zeros((80, 3), np.float32)
    expected[k] = v
    np.testing.assert_array_equal(rows()(v, k, 80, target=target), expected)
    np.testing.assert_array_equal(rows().reference(v, k, 80), expected)


@pytest.mark.parametrize("target", TARGETS)
def test_duplicates_are_an_error_that_shows_the_element(target: str) -> None:
    v, k = np.ones((6, 2), np.float32), np.array([3, 1, 4, 7, 4, 4], np.int32)
    message = r"`O\(k\(i\), d\) = ...` writes 3 values to the element at 4: data name it more than once; `where last`"
    with pytest.raises(tc.ShapeError, match=message):
        rows()(v, k, 8, target=target)
    with pytest.raises(tc.ShapeError, match=message):
        rows().reference(v, k, 8)
    with pytest.raises(tc.ShapeError, match=r"subscript k\(i\) of O_i in dimension 0 is 7 at i = 3"):
        rows()(v, k, 5, target=target)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("order", ["last", "first"])
def test_one_of_several_counts(order: str, target: str) -> None:
    v, k = RNG.random((300, 4)).astype(np.float32), RNG.integers(0, 40, 300).astype(np.int32)
    expected = np.zeros((50, 4), np.float32)
    for i in range(300) if order == "last" else reversed(range(300)):
        expected[k[i]] = v[i]
    f = rows(f"where {order} i")
    np.testing.assert_array_equal(f(v, k, 50, target=target), expected)
    np.testing.assert_array_equal(f.reference(v, k, 50), expected)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("orders", list(itertools.product(["last", "first"], ["last", "first"], ["ik", "ki"])))
def test_several_indices_count_in_the_order_in_which_they_stand(orders: tuple[str, str, str]) -> None:
    v, k = RNG.random((7, 9)).astype(np.float32), RNG.integers(0, 12, (7, 9)).astype(np.int32)
    rule = {"i": orders[0], "k": orders[1]}
    said = ", ".join(f"{rule[index]} {index}" for index in orders[2])
    f = tc.define(f"def f(float(A,B) V, int32(A,B) p) -> (float(12) O) {{ O(p(i,k)) = V(i,k) where {said} }}").f
    values = {"i": [*range(7)], "k": [*range(9)]}
    ways = [values[index] if rule[index] == "last" else values[index][::-1] for index in orders[2]]
    expected = np.zeros(12, np.float32)
    for place in itertools.product(*ways):
        at = dict(zip(orders[2], place, strict=True))
        expected[k[at["i"], at["k"]]] = v[at["i"], at["k"]]
    np.testing.assert_array_equal(f(v, k), expected)


PROGRAMS = {
    "what is there stays": """def f(float(N,D) V, int32(N) k) -> (O) {
        O(e,d) = -1.0 where e in 0:9, d in 0:2*D
        O(k(i), 2*d+1) = V(i,d) + i where last i }""",
    "of each row": """def f(float(N,D) V, int32(N,D) k) -> (float(N,9) O) {
        O(i, k(i,t)) = x + t where x = V(i,t), last t }""",
    "hot": "def f(float(N,D) V, int32(N) k) -> (int8(N,9) O) { O(i, k(i)) = int8(1) }",
    "two places": """def f(float(N,D) V, int32(N) k, int32(D) m) -> (double(9,9) O) {
        O(k(i), m(d)) = V(i,d) where last i, first d }""",
    "into a temporary": """def f(float(N,D) V, int32(N) k) -> (O) {
        float(9) T(k(i)) = V(i,0) where first i
        O(e) = 2 * T(e) }""",
    "in steps": """def f(float(N,D) V, int32(N,D) k) -> (O) {
        O(e) = 0.0 where e in 0:9
        for t in 0:N { O(k(t,d)) = V(t,d) + O(k(t,d)) where last d } }""",
    "part of the rows": """def f(float(N,D) V, int32(N) k) -> (float(9,D) O) {
        O(k(i), d) = V(i,d) where i in 2:N-1, last i }""",
}


@pytest.mark.sweep(4)
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_loops(name: str, target: str) -> None:
    if name == "in steps" and target != "cpu":
        pytest.skip("steps run on CPUs")
    f = tc.define(PROGRAMS[name]).f
    v = RNG.integers(-5, 6, (11, 6)).astype(np.float32)
    shape = (11, 6) if "int32(N,D) k" in PROGRAMS[name] else (11,)
    k, m = RNG.integers(0, 9, shape).astype(np.int32), RNG.integers(0, 9, 6).astype(np.int32)
    arguments = (v, k, m) if "m(d)" in PROGRAMS[name] else (v, k)
    found = f(*arguments, target=target)
    np.testing.assert_array_equal(found, f.reference(*arguments))
    np.testing.assert_array_equal(found, by_hand(name, v, k, m).astype(found.dtype))


def by_hand(name: str, v: Array, k: Array, m: Array) -> Array:
    n, d = v.shape
    match name:
        case "what is there stays":
            o = np.full((9, 2 * d), -1.0)
            for i in range(n):
                o[k[i], 1::2] = v[i] + i
        case "of each row":
            o = np.zeros((n, 9))
            for i, t in np.ndindex(n, d):
                o[i, k[i, t]] = v[i, t] + t
        case "hot":
            o = np.eye(9)[k]
        case "two places":
            o = np.zeros((9, 9))
            for i, j in itertools.product(range(n), reversed(range(d))):
                o[k[i], m[j]] = v[i, j]
        case "into a temporary":
            o = np.zeros(9)
            for i in reversed(range(n)):
                o[k[i]] = 2 * v[i, 0]
        case "in steps":
            o = np.zeros(9)
            for t in range(n):
                old = o.copy()
                for j in range(d):
                    o[k[t, j]] = v[t, j] + old[k[t, j]]
        case _:
            o = np.zeros((9, d))
            for i in range(2, n - 1):
                o[k[i]] = v[i]
    return o


def test_nothing_is_named() -> None:
    f = rows()
    for n, d, e in ((0, 3, 5), (4, 0, 5), (0, 2, 0)):
        k = np.arange(n, dtype=np.int32)
        assert (f(np.ones((n, d), np.float32), k, e) == np.zeros((e, d))).all()


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_text_reads_back(name: str) -> None:
    f = tc.define(PROGRAMS[name]).f
    assert str(tc.define(str(f)).f) == str(f)
    (written,) = parse(PROGRAMS[name])
    assert parse(str(written)) == (written,)


def test_gradients_are_the_differences() -> None:
    text = "def f(double(N,D) V, int32(N) k) -> (double(7,D) O) { O(k(i), d) = V(i,d) * V(i,d) where last i }"
    verdict = gradients.check(tc.define(text).f, {"N": 6, "D": 4}, 0)
    assert verdict.kind == "passed", verdict.detail


def test_first_and_last_are_names_elsewhere() -> None:
    f = tc.define(
        "def f(float(N) last) -> (first, O) { first(i) = last(i) where i in 0:N  O(i) = x where x = last(i) }"
    ).f
    assert f(np.ones(3, np.float32))[1].tolist() == [1, 1, 1]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("operator", ["+=", "max=", "="])
def test_places_in_a_tensor_of_one_element_are_checked(operator: str, target: str) -> None:
    """The subscript moves nothing there, in memory and in registers."""
    text = f"def f(float(N) V, int32(N) k, float(E) T) -> (O) {{ O(e) = T(e) O(k(i)) {operator} V(i) }}"
    kernel = tc.define(text).f.compile(sizes={"N": 1, "E": 1}, target=target)
    V, T = np.ones(1, np.float32), np.zeros(1, np.float32)
    assert kernel(V, np.array([0], np.int32), T) == 1
    with pytest.raises(tc.TcompError, match=r"is 100 at i = 0, but must lie in 0\.\.0"):
        kernel(V, np.array([100], np.int32), T)


def test_numbers_that_data_give_choose_elements_by_their_names() -> None:
    """`p + i` was refused as something that several instances may write, and `p() + i` was not."""
    v = np.array([3, 1, 4], np.float32)
    moved = tc.define("def f(float(N) V, int32 p) -> (float(9) O) { O(p + i) = V(i) }").f
    np.testing.assert_array_equal(moved(v, np.int32(2)), [0, 0, 3, 1, 4, 0, 0, 0, 0])
    swapped = tc.define("""def f(float(N) V, const int T) -> (O) {
      O(i) = V(i)
      for t in 0:T { p argmax=! O(i)  O(p + 0) = -O(p) }
    }""").f
    np.testing.assert_array_equal(swapped(v, 2), [-3, 1, -4])
    with pytest.raises(tc.TcompError, match="Free variable p") as caught:
        tc.define("def f(float(N) V, int32 p) -> (O) { O(i) = V(i)  O(p) = 1.0 }")
    assert "write `p()` for the number that it holds" in str(caught.value)
