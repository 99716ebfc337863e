"""Reductions into elements that data choose, on the CPU and the simulator, as the interpreter and NumPy have them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.grammar.ranges.sizes import extents
from tests.agreement import assert_agrees
from tests.cuda.simulated import NEEDS_COMPILER

Array = np.ndarray[Any, np.dtype[Any]]

pytestmark = pytest.mark.sweep(3)

TARGETS = ["cpu", pytest.param("simulator", marks=NEEDS_COMPILER)]

PROGRAMS = {
    "rows": "def f(float(N,D) V, int32(N) I) -> (float(7,D) O) { O(I(i),d) OP! V(i,d) }",
    "into what is there": """def f(float(N,D) V, int32(N) I) -> (O) {
        T(e,d) = 1.0 where e in 0:7, d in 0:D
        T(I(i),d) OP V(i,d)
        O(e,d) = T(e,d) }""",
    "columns": "def f(float(N,D) V, int32(D) J) -> (float(7,N) O) { O(J(d),i) OP! V(i,d) }",
    "of each row": "def f(float(N,D) V, int32(N,D) I) -> (float(N,7) O) { O(i,I(i,d)) OP! V(i,d) }",
    "two places": "def f(float(N,D) V, int32(N) I, int32(D) J) -> (float(7,7) O) { O(I(i),J(d)) OP! V(i,d) }",
    "sums of rows": "def f(float(N,D) V, int32(N) I) -> (float(7) O) { O(I(i)) OP! V(i,d) }",
    "backwards": "def f(float(N,D) V, int32(N) I) -> (float(7,D) O) { O(I(i),D-1-d) OP! V(i,d) where d in 0:D }",
    "half of the columns": """def f(float(N,D) V, int32(N) I) -> (O) {
        T(e,d) = 2.0 where e in 0:7, d in 0:2*D
        T(I(i),2*d+1) OP V(i,d)
        O(e,d) = T(e,d) }""",
    "a triangle": "def f(float(N,D) V, int32(N) I) -> (float(7,D) O) { O(I(i),d) OP! V(i,d) where i in d:N }",
    "through two tensors": "def f(float(N,D) V, int32(N) I, int32(7) J) -> (float(7,D) O) { O(J(I(i)),d) OP! V(i,d) }",
    "computed": """def f(float(N,D) V, int32(N) I) -> (float(7,D) O) {
        P(i) = (I(i) + 1) % 7
        O(P(i),d) OP! V(i,d) + P(i) }""",
    "read before": """def f(float(N,D) V, int32(N) I) -> (float(7,D) O) {
        O(I(i),d) OP! V(i,d)
        O(I(i),d) OP! O(I(i),d) + V(i,d) }""",
    "written after": """def f(float(N,D) V, int32(N) I) -> (float(7,D) O) {
        O(I(i),d) OP! V(i,d)
        O(3,d) = V(0,d) }""",
    "from values": "def f(float(N,D) V) -> (float(D,7) O) { O(d, clamp(int32(V(i,d)), 0, 6)) OP! V(i,d) }",
    "twice": """def f(float(N,D) V, int32(N) I, int32(N) J) -> (float(7,D) O) {
        O(I(i),d) OP! V(i,d)
        O(J(i),d) OP V(i,d) }""",
}


def arrays(program: tc.Operation, n: int, d: int, most: int = 3) -> tuple[Array, ...]:
    """Arguments of small integers; places are below 7."""
    generator = np.random.default_rng(most)
    found = []
    for tensor in program.function.inputs:
        shape = extents(program.function, tensor, {"N": n, "D": d})
        low, high = (0, 7) if tensor.name in "IJ" else (-most, most + 1)
        found.append(generator.integers(low, high, shape).astype(np.int32 if tensor.name in "IJ" else np.float32))
    return tuple(found)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("reduction", ["+=", "max=", "min=", "*="])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_those_of_the_interpreter(name: str, reduction: str, target: str) -> None:
    f = tc.define(PROGRAMS[name].replace("OP", reduction)).f
    for n, d in ((13, 5), (40, 70)):
        given = arrays(f, n, d, 1 if reduction == "*=" else 3)
        names = [t.name for t in f.function.inputs]
        assert_agrees(f.function, dict(zip(names, given, strict=True)), {"O": f(*given, target=target)})


@pytest.mark.parametrize("target", TARGETS)
def test_a_place_outside_is_an_error_and_writes_nothing(target: str) -> None:
    f = tc.define("def f(float(N,D) V, int32(N) I) -> (float(7,D) O) { O(I(i),d) +=! V(i,d) }").f
    v, places = arrays(f, 12, 3)
    for wrong in (7, -1, 1 << 30):
        bad = places.copy()
        bad[5] = wrong
        message = rf"indirect subscript I\(i\) of O in dimension 0 is {wrong} at d = 0, i = 5, but must lie in 0..6"
        with pytest.raises(tc.ShapeError, match=message):
            f(v, bad, target=target)
        with pytest.raises(tc.ShapeError, match=f"subscript {wrong} of dimension 0 of 'O' is outside 0:7"):
            f.reference(v, bad)
    np.testing.assert_array_equal(f(v, places, target=target, unchecked=True), f.reference(v, places))


@pytest.mark.parametrize("target", TARGETS)
def test_where_nothing_names_an_element_it_is_neutral(target: str) -> None:
    f = tc.define("def f(float(N,D) V, int32(N) I) -> (float(7,D) O) { O(I(i),d) +=! V(i,d) }").f
    assert (f(*arrays(f, 0, 3), target=target) == np.zeros((7, 3))).all()
    assert f(*arrays(f, 5, 0), target=target).shape == (7, 0)


def test_an_output_without_elements_has_none_to_choose() -> None:
    f = tc.define("def f(float(N) V, int32(N) I, const int E) -> (float(E) O) { O(I(i)) +=! V(i) }").f
    with pytest.raises(tc.ShapeError, match="data choose elements of O, but its dimension 0 has none"):
        f(np.ones(3, np.float32), np.zeros(3, np.int32), 0)


@pytest.mark.parametrize("dtype", ["half", "bfloat16"])
def test_sums_of_16_bits_are_rounded_once(dtype: str) -> None:
    f = tc.define(f"def f({dtype}(N) V, int32(N) I) -> ({dtype}(2) O) {{ O(I(i)) +=! V(i) }}").f
    v = np.ones(5000).astype(f.reference(np.ones(1, np.float16).astype(dtypes(dtype)), np.zeros(1, np.int32)).dtype)
    assert [float(x) for x in f(v, np.zeros(5000, np.int32))] == [5000 if dtype == "half" else 4992, 0]


def dtypes(name: str) -> Any:
    return np.float16 if name == "half" else pytest.importorskip("ml_dtypes").bfloat16


def test_what_was_there_is_kept_and_added_to() -> None:
    f = tc.define("def f(float(N,D) V, int32(N) I) -> (float(7,D) O) { O(I(i),d) += V(i,d) }").f
    v, places = arrays(f, 20, 3)
    before = np.arange(21, dtype=np.float32).reshape(7, 3)
    expected = before.copy()
    np.add.at(expected, places, v)
    f(v, places, out=before)
    np.testing.assert_array_equal(before, expected)


MADE_FOR_IT = "def f(float(N,D) V, int32(N) I) -> (O) { O(i,d) = 2 * V(i,d)  O(i,I(i)) += V(i,0) }"
READ_AGAIN = MADE_FOR_IT.replace("V(i,0)", "O(i,0)")
IN_PART = "def f(float(N,D) V, int32(N) I) -> (O) { O(i,d) = V(i,d)  O(i,0) = V(i,1)  O(i,I(i)) += V(i,0) }"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("text", [MADE_FOR_IT, READ_AGAIN, IN_PART], ids=["made for it", "read again", "in part"])
def test_what_is_added_to_rows_just_made(text: str, target: str) -> None:
    """They are made where they lie; what another statement reads of them is what was there before."""
    f = tc.define(text).f
    given = [np.random.default_rng(0).integers(-4, 4, (9, 7)).astype(np.float32), np.arange(9, dtype=np.int32) % 7]
    np.testing.assert_array_equal(f(*given, target=target), f.reference(*given))
    if text == MADE_FOR_IT:
        assert "buffer" not in f.compile(*given, target=target).explain()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("reduction", ["+=!", "max=!", "*=!"])
@pytest.mark.parametrize("where", ["", " where i in 3:N"])
def test_few_elements_are_reduced_in_shares(where: str, reduction: str, target: str) -> None:
    f = tc.define(f"def f(int32(N) V, int32(N) I) -> (int32(7) O) {{ O(I(i)) {reduction} V(i) + i{where} }}").f
    n = 40_001
    v, places = np.random.default_rng(0).integers(-9, 9, (2, n)).astype(np.int32)
    places = abs(places) % 7
    kernel = f.compile(v, places, target=target)
    assert "S0s" in kernel.compilation.scop.by_name
    np.testing.assert_array_equal(kernel(v, places), f.reference(v, places))
    places[n - 2] = 7
    with pytest.raises(tc.ShapeError, match=rf"of O in dimension 0 is 7 at i = {n - 2}, but must lie in 0..6"):
        f(v, places, target=target)


def test_shares_of_rows_and_of_what_is_there() -> None:
    f = tc.define("""def f(float(N,D) V, int32(N) I) -> (float(3,D) O) {
        O(e,d) = V(e,d) where e in 0:3
        O(I(i),d) += V(i,d) }""").f
    v, places = arrays(f, 20_000, 5)
    kernel = f.compile(v, places % 3)
    assert "S1s" in kernel.compilation.scop.by_name
    np.testing.assert_array_equal(kernel(v, places % 3), f.reference(v, places % 3))


@NEEDS_COMPILER
def test_another_thread_computes_where_a_value_goes() -> None:
    ops = tc.define("""
def xor_convolution(float(N) a, float(N) b) -> (float(N) c) {
    p(i,j) = i ^ j where i in 0:N, j in 0:N
    c(p(i,j)) +=! a(i) * b(j)
}
def spread(float(N,D) X) -> (float(N,D) Y) {
    m(n) max=! X(n,d)
    k(n) argmax=! X(n,d)
    Y(n,d) = 0.0 where n in 0:N, d in 0:D
    Y(n,k(n)) += m(n)
}""")
    a, b = np.random.default_rng(0).integers(-4, 5, (2, 8)).astype(np.float32)
    expected = [sum(a[i] * b[i ^ k] for i in range(8)) for k in range(8)]
    np.testing.assert_array_equal(ops.xor_convolution(a, b, target="simulator"), expected)
    x = np.random.default_rng(1).integers(0, 9, (5, 12)).astype(np.float32)
    first = np.arange(12) == x.argmax(1)[:, None]
    np.testing.assert_array_equal(ops.spread(x, target="simulator"), np.where(first, x.max(1)[:, None], 0))
