"""The place of an extremum is sought in blocks that end where it is found."""

from __future__ import annotations

import numpy as np
import pytest

import tcomp as tc


@pytest.mark.parametrize("dtype", ["float", "double"])
def test_the_first_place_is_found_wherever_it_is(dtype: str) -> None:
    f = tc.define(f"def f({dtype}(N,D) X) -> (P) {{ P(n) argmax=! X(n,d) }}").f
    steps = 150
    x = np.zeros((4 * steps, steps), np.float32 if dtype == "float" else np.float64)
    for place in range(steps):
        x[place, place] = 1
        x[steps + place, place:] = 1
        x[2 * steps + place, [place, -1]] = np.nan
        x[3 * steps + place] = -np.inf
    kernel = f.compile(x)
    assert "if (found) break;" in kernel.source
    np.testing.assert_array_equal(kernel(x), x.argmax(1))


def test_rows_that_are_short_or_checked_are_not_cut_off() -> None:
    ops = tc.define("""
    def short(float(N,D) X) -> (P) { P(n) argmin=! X(n,d) }
    def checked(float(N,D) X, int32(D) at) -> (P) { P(n) min=! X(n,at(d)) == 1.0 ? d : 2147483647 }""")
    assert "if (found) break;" not in ops.short.compile(sizes={"N": 40, "D": 100}).source
    x, at = np.ones((3, 200), np.float32), np.arange(200, dtype=np.int32)
    assert (ops.checked(x, at) == 0).all()
    at[199] = 200
    with pytest.raises(tc.ShapeError, match="is 200"):
        ops.checked(x, at)


def test_a_row_is_sought_through_while_it_is_near() -> None:
    f = tc.define("def f(float(N,D) X) -> (P) { P(n) argmax=! X(n,d) }").f
    assert "loops: p0 ((S0i ; d S0) ; (S1i ; d S1 ; S1f))" in f.compile(sizes={"N": 300, "D": 5000}).explain()
