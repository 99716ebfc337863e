"""Arguments and expected results for programs of every kind; what is right passes, and what is not does not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

import numpy as np
import pytest

from tcomp import MappingOptions, grammar
from tcomp.model.tolerance import Tolerance
from tcomp.tuner.database.trials import Candidate, Outcome
from tcomp.tuner.measuring.evaluation import Bench, CompileJob
from tcomp.tuner.measuring.preparation import Limits, Preparation, Prepared, Subject, laid_out
from tcomp.tuner.measuring.sandbox import Confines, Failure, Isolate, Progress
from tcomp.tuner.measuring.verification import Expected
from tcomp.values.operators import FLOAT16, FLOAT32, FLOAT64, INT8, UINT64, DType
from tests.tuner.problems import problem

T = TypeVar("T")

PROGRAMS = {
    "a scalar input": ("def f(float(N) X, float a) -> (Y) { Y(i) = X(i) * a }", {"N": 50}),
    "a scalar output": ("def f(float(N) X) -> (y) { y +=! X(i) }", {"N": 50}),
    "no elements": ("def f(float(N) X) -> (Y) { Y(i) = X(i) * 2 }", {"N": 0}),
    "a constant": ("def f(float(N) X, const int32 k) -> (Y) { Y(i) = X(i) * k }", {"N": 50, "k": 3}),
    "several outputs": ("def f(float(N) X) -> (Y, z) { Y(i) = X(i) * 2  z max=! X(i) }", {"N": 50}),
    "half precision": ("def f(float16(N) X) -> (Y) { Y(i) = exp(X(i)) }", {"N": 50}),
    "bfloat16": ("def f(bfloat16(N) X) -> (Y) { Y(i) = exp(X(i)) }", {"N": 50}),
    "double precision": ("def f(double(N) X) -> (Y) { Y(i) = exp(X(i)) }", {"N": 50}),
    "bytes": ("def f(int8(N) X) -> (Y) { Y(i) = X(i) + X(i) }", {"N": 50}),
    "large integers": ("def f(uint64(N) X) -> (Y) { Y(i) = X(i) * X(i) }", {"N": 50}),
    "truth": ("def f(float(N) X) -> (bool(N) Y) { Y(i) = X(i) > 0 }", {"N": 50}),
    "rounded conversions": ("def f(float(N) X) -> (int32(N) Y) { Y(i) = int32(exp(X(i))) }", {"N": 50}),
    "indirect reads": ("def f(float(E,D) T, int32(B) I) -> (Y) { Y(b,d) = T(I(b),d) }", {"E": 9, "D": 4, "B": 50}),
    "NaN": ("def f(float(N) X) -> (Y) { Y(i) = log(X(i)) }", {"N": 50}),
    "infinity": ("def f(float(N) X) -> (Y) { Y(i) = 1 / X(i) }", {"N": 50}),
    "content": ("def f(float(N) X) -> (float(N) Y) { Y(i) += X(i) }", {"N": 50}),
    "a long sum": ("def f(float(N,K) X) -> (Y) { Y(i) +=! sin(X(i,k)) }", {"N": 5, "K": 3000}),
}


def at_once(function: Callable[[Progress], T], confines: Confines) -> T | Failure:
    return function(lambda what, seconds, late=Outcome.HUNG: None)


def never(function: Callable[[Progress], T], confines: Confines) -> T | Failure:
    """No time for the interpreter; the rest takes its time."""
    if confines.seconds < 1:
        return Failure(Outcome.HUNG, "it takes too long")
    return at_once(function, confines)


def prepared(name: str, isolate: Isolate = at_once) -> Prepared:
    if name == "bfloat16":
        pytest.importorskip("ml_dtypes")
    text, sizes = PROGRAMS[name]
    limits = Limits(reference=100.0 if isolate is at_once else 0.1)
    return Preparation(problem(text, **sizes), limits).prepare(isolate)


@pytest.mark.parametrize("isolate", [at_once, never])
@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_are_right(name: str, isolate: Isolate) -> None:
    ready = prepared(name, isolate)
    for options in (MappingOptions(), MappingOptions(tile_sizes=(7, 3), parallel=False)):
        subject = Subject(ready, options)
        subject.call()
        assert subject.mistake() == ""
        assert subject.seconds(3) > 0
        subject.call()
        assert subject.mistake() == ""


@pytest.mark.parametrize("isolate", [at_once, never])
@pytest.mark.parametrize("name", [name for name in PROGRAMS if name != "no elements"])
def test_outputs_that_nobody_wrote_are_wrong(name: str, isolate: Isolate) -> None:
    subject = Subject(prepared(name, isolate), MappingOptions())
    wrong = subject.mistake()
    assert "should be" in wrong or name == "truth", wrong


def test_arrays_that_are_given_are_used() -> None:
    table, places = np.arange(12, dtype=np.float32).reshape(3, 4), np.array([2, 2, 0], np.int32)
    text = "def f(float(E,D) T, int32(B) I) -> (Y) { Y(b,d) = T(I(b),d) }"
    of = replace(problem(text, E=3, D=4, B=3, strides={"T": (1, 3)}), given=(table, places))
    ready = Preparation(of, Limits()).prepare(at_once)
    np.testing.assert_array_equal(ready.values[0], table)
    assert ready.expected[0].low.tolist() == table[places].tolist()
    subject = Subject(ready, MappingOptions())
    subject.call()
    assert subject.mistake() == ""


def test_no_others_are_made_up_where_arrays_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may be tables of gigabytes; what outputs hold that are read is made up all the same."""
    text = "def f(float(N) A) -> (Y) { Y(i) += A(i) where i in 0:N }"
    of = replace(problem(text, N=5), given=(np.arange(5, dtype=np.float32),))
    monkeypatch.setattr("tcomp.tuner.measuring.preparation.random_arguments", None)
    ready = Preparation(of, Limits()).prepare(at_once)
    assert set(ready.contents) == {"Y"} and ready.contents["Y"].shape == (5,)
    np.testing.assert_array_equal(ready.expected[0].low, ready.contents["Y"] + np.arange(5))


def test_arrays_do_not_travel_to_the_compiler() -> None:
    of = replace(problem(), given=(np.ones((16, 16), np.float32), np.ones((16, 16), np.float32)))
    job = CompileJob(Bench("nowhere"), of, Candidate(MappingOptions(), "default"))
    assert job.problem.given is None
    assert job.problem == of


def expected(dtype: DType, reference: list[float], bound: list[float]) -> Expected:
    (function,) = grammar.define(f"def f({dtype}(N) X) -> (Y) {{ Y(i) = X(i) }}").values()
    values = np.array(reference, dtype.name)
    made = Expected.room(function.outputs[0], values.shape)
    made.allow(Tolerance(values, np.array(bound)))
    return made


@pytest.mark.parametrize("dtype", [FLOAT16, FLOAT32, FLOAT64])
def test_what_lies_within_the_bound_is_right(dtype: DType) -> None:
    one = expected(dtype, [1.0, 1.0, 0.0], [0.0, 0.25, 0.5])
    right = np.array([1.0, 1.25, -0.5], dtype.name)
    assert one.mistake(right) == ""
    for place, value in ((0, 1.01), (1, 1.26), (1, 0.74), (2, 0.51), (2, np.nan), (0, np.inf)):
        wrong = right.copy()
        wrong[place] = value
        assert one.mistake(wrong).startswith(f"Y({place}) is "), value


def test_what_nobody_knows_may_be_anything_and_nan_must_be_nan() -> None:
    one = expected(FLOAT32, [np.nan, 5.0, np.inf], [0.0, np.inf, 0.0])
    for value in (np.nan, np.inf, -3.0):
        assert one.mistake(np.array([np.nan, value, np.inf], np.float32)) == ""
    assert one.mistake(np.array([0.0, 5.0, np.inf], np.float32)).startswith("Y(0) is 0.0 and should be nan; 1 of 3")
    assert one.mistake(np.array([np.nan, 5.0, 1.0], np.float32)).startswith("Y(2) is 1.0 and should be inf")


def test_bounds_of_integers_stay_within_their_type() -> None:
    small = expected(INT8, [127, -128, 5], [2.0, 1.5, np.inf])
    assert small.mistake(np.array([125, -127, -128], np.int8)) == ""
    assert small.mistake(np.array([124, -128, 127], np.int8)).startswith("Y(0)")
    large = expected(UINT64, [2**64 - 1, 2**63 + 1, 0], [0.0, 1.0, 0.0])
    assert large.mistake(np.array([2**64 - 1, 2**63, 0], np.uint64)) == ""
    assert large.mistake(np.array([2**64 - 2, 2**63, 0], np.uint64)).startswith("Y(0)")


def test_one_wrong_element_among_many_is_found() -> None:
    (function,) = grammar.define("def f(float(N) X) -> (Y) { Y(i) = X(i) }").values()
    one = Expected.room(function.outputs[0], (300, 1000))
    values = np.arange(300_000, dtype=np.float32).reshape(300, 1000)
    one.allow(Tolerance(values, np.zeros(values.shape)))
    assert one.mistake(values) == ""
    values[299, 999] += 1
    assert one.mistake(values).startswith("Y(299, 999)")
    assert one.mistake(values).endswith("1 of 300000 elements are wrong")


@pytest.mark.parametrize("strides", [None, (4, 1), (1, 3), (8, 2), (-4, 1), (4, -1), (0, 1)])
def test_arrays_get_the_strides_that_are_asked_for(strides: tuple[int, ...] | None) -> None:
    array = np.arange(12, dtype=np.int32).reshape(3, 4)
    made = laid_out(array, strides)
    assert tuple(step // 4 for step in made.strides) == (strides or (4, 1))
    if strides != (0, 1):
        np.testing.assert_array_equal(made, array)


def test_a_scalar_has_no_strides() -> None:
    assert laid_out(np.float32(3).reshape(()), None).shape == ()
