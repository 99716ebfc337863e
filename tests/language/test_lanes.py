"""Blocks over rows of single elements, whose tiles run in the lanes of vectors: results, plans, and what does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.c.target import CpuBackend
from tcomp.errors import LegalityError
from tcomp.grammar import define
from tcomp.mapping.machines.cpu import this_machine
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.terms.sizes import Sizes
from tcomp.stepwise import StepwiseCompilation, lower_stepwise
from tests.language.test_time_tiles import STENCILS, head


def tiled(text: str, sizes: dict[str, int], threads: int = 1, nearest: int = 8 << 10) -> StepwiseCompilation:
    """Compiled for vectors of four doubles, and no more of a first cache than told."""
    (function,) = define(text).values()
    machine = replace(this_machine(), vector_bytes=32, registers=16, threads=threads, nearest_cache=nearest)
    return lower_stepwise(function, Sizes(sizes), MappingOptions(), CpuBackend(machine))


def check(text: str, sizes: dict[str, int], *arguments: Any, size: str = "lanes", **facts: Any) -> None:
    """Compare with the interpreter, and see that tiles are as told."""
    made = tiled(text, sizes, **facts)
    assert size in head(made)
    (name,) = define(text)
    operation = tc.define(text)[name]
    kernel = operation.compile(*arguments, plan=made.stages["pack"])
    assert head(kernel.compilation) == head(made)
    found, wanted = kernel(*arguments), operation.reference(*arguments)
    for a, b in zip(*(r if isinstance(r, tuple) else (r,) for r in (found, wanted)), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("n", "steps", "facts", "size"),
    [
        (803, 61, {"nearest": 32 << 10}, "tiles of 31 steps x 201 rows x 4 lanes"),
        (2000, 50, {"nearest": 32 << 10, "threads": 2}, "tiles of 50 steps x 250 rows x 4 lanes"),
        (4001, 9, {"nearest": 4096}, "tiles of 9 steps x 167 rows x 4 lanes"),
    ],
)
def test_tiles_have_a_lane_each(n: int, steps: int, facts: dict[str, int], size: str) -> None:
    A, B = np.random.default_rng(n).random((2, n))
    check(STENCILS["jacobi-1d"], {"N": n, "T": steps}, A, B, steps, size=size, **facts)


def test_statements_over_other_rows_of_other_types_and_with_values_of_each_step() -> None:
    text = """def f(double(N) A, double(N) c, double(T) left) -> (U, V) {
      U(i) = A(i)
      V(i) = A(i)
      for t in 0:T {
        V(i) = max(U(i), c(i+3) * (U(i-2) - 2.0 * U(i) + abs(U(i+1)))) where i in 2:N-40
        V(0) = left(t) + 0.5 * U(1)
        V(N-1) = -left(t)
        U(i) = 0.5 * (V(i) - U(i)) - left(t) * V(i-1) where i in 5:N
        U(i) = 2.5 where i in 7:9
      }
    }"""
    rng = np.random.default_rng(1)
    arguments = rng.random(611), rng.random(611), rng.random(23)
    check(text, {"N": 611, "T": 23}, *arguments)
    whole = "def f(int64(N) A, int64(N) c, int64(T) left)" + text[text.index(") ->") + 1 :].replace("0.5 *", "3 *")
    whole = whole.replace("2.0", "2").replace("2.5", "2").replace("abs(U(i+1))", "U(i+1)")
    check(whole, {"N": 611, "T": 23}, *(rng.integers(-9, 9, a.size) for a in arguments))


def test_a_value_of_the_step_before_is_asked_for_only_where_there_is_one() -> None:
    text = """def f(double(N) A, float16(T) s, bfloat16 c) -> (U) {
      U(i) = A(i)
      for t in 0:T {
        V(i) = (t == 0 ? 0.25 : s(t-1)) * (U(i-1) + U(i+1)) where i in 1:N-1
        V(0) = c * (t < 3 ? U(0) : s(t-3))
        U(i) = V(i) + c where i in 0:N-1
      }
    }"""
    rng = np.random.default_rng(5)
    check(text, {"N": 500, "T": 23}, rng.random(500), rng.random(23).astype(np.float16), np.float32(0.75))


def test_slices_of_steps_that_share_places() -> None:
    text = """def f(double(N) A, const int T) -> (O) {
      U(0,i) = A(i)
      U(1,i) = 0.5 * A(i)
      for t in 2:T {
        U(t,i) = 0.25 * (U(t-1,i-1) + U(t-1,i+2)) - 0.5 * U(t-2,i) where i in 1:N-2
        U(t,0) = U(t-1,0)
        U(t,i) = U(t-2,i) where i in N-2:N
      }
      O(i) = U(T-1,i) where i in 0:N
    }"""
    for steps in (28, 29):
        check(text, {"N": 700, "T": steps}, np.random.default_rng(2).random(700), steps)


def test_arrays_may_lie_with_strides_and_sweeps_in_place_get_a_tensor_between() -> None:
    text = """def f(double(N) A, double(N) c, const int T) -> (U) {
      U(i) = A(i)
      for t in 0:T { U(i) = c(i) * (U(i-1) + U(i+1)) where i in 1:N-1 }
    }"""
    A, c = np.random.default_rng(3).random((2, 1400))
    check(text, {"N": 1400, "T": 30}, A, c, 30)
    operation = tc.define(text).f
    plan = tiled(text, {"N": 700, "T": 30}).stages["pack"]
    with_strides = A[::2], c[::-2]
    kernel = operation.compile(*with_strides, 30, plan=plan)
    np.testing.assert_allclose(kernel(*with_strides, 30), operation.reference(*with_strides, 30), rtol=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        STENCILS["jacobi-1d"].replace("A(i + 1)", "A(i + 1) * (i < 9 ? 1.0 : 2.0)"),
        STENCILS["jacobi-1d"].replace("A(i + 1)", "sin(A(i + 1))"),
        STENCILS["jacobi-1d"].replace("A(i + 1)", "A(N - 1 - i)"),
        STENCILS["jacobi-1d"].replace("i - 1", "i").replace("i + 1", "i"),
    ],
)
def test_what_does_not_run_in_lanes(text: str) -> None:
    assert "lanes" not in head(tiled(text, {"N": 900, "T": 40}))


def test_few_rows_and_few_steps_do_not() -> None:
    for n, steps in ((390, 40), (900, 3)):
        assert not head(tiled(STENCILS["jacobi-1d"], {"N": n, "T": steps}))


def test_rows_go_to_lanes_where_these_compute_enough_of_them() -> None:
    wide = STENCILS["jacobi-1d"].replace("i - 1", "i - 6").replace("i + 1", "i + 6")
    single = STENCILS["jacobi-1d"].replace("double", "float")
    for text, n, steps, together in (
        (STENCILS["jacobi-1d"], 1600, 16, False),
        (STENCILS["jacobi-1d"], 1600, 30, True),
        (STENCILS["jacobi-1d"], 8000, 6, False),
        (STENCILS["jacobi-1d"], 8000, 12, True),
        (single, 1600, 30, False),
        (single, 1600, 400, True),
        (wide, 1600, 40, False),
    ):
        found = head(tiled(text, {"N": n, "T": steps}, nearest=32 << 10))
        assert ("lanes" in found) == together, (n, steps, found)


def test_tiles_of_a_plan_may_be_changed_if_they_stay_independent_and_have_what_they_read() -> None:
    text = STENCILS["jacobi-1d"]
    made = tiled(text, {"N": 500, "T": 24})
    size, operation = head(made), tc.define(text).jacobi_1d
    A, B = np.random.default_rng(4).random((2, 500))
    wanted = operation.reference(A, B, 24)
    for other in (
        "3 steps x 17 rows x 4 lanes",
        "20 steps x 900 rows x 2 lanes",
        "6 steps x 50 rows x 8 lanes",
        "4 steps x 50 rows",
    ):
        kernel = operation.compile(A, B, 24, plan=made.stages["pack"].replace(size, f"tiles of {other}"))
        np.testing.assert_allclose(kernel(A, B, 24), wanted, rtol=1e-12)
    with pytest.raises(LegalityError, match="depend on each other"):
        operation.compile(A, B, 24, plan=made.stages["pack"].replace(size, "tiles of 20 steps x 50 rows x 4 lanes"))
    for wrong in ("5 steps x 60 rows x 3 lanes", "5 steps x 600000 rows x 4 lanes"):
        with pytest.raises(tc.TcompError):
            operation.compile(A, B, 24, plan=made.stages["pack"].replace(size, f"tiles of {wrong}"))
