"""Register tiles are whole on diagonals where what they compute too much is lost."""

from __future__ import annotations

import numpy as np
import pytest

import tcomp as tc
from tcomp.driver import Compilation, lower
from tcomp.grammar import define
from tcomp.model.terms.sizes import Sizes
from tcomp.runtime.registry import backend_of

LOWER = """def f(T(N,M) A) -> (C) {
    P(i,j) +=! A(i,k) * A(j,k) where i in 0:N, j in 0:i + 1
    C(i,j) = 0 * A(i,0) where i in 0:N, j in 0:N
    C(i,j) = P(i,j) where i in 0:N, j in 0:i + 1
}"""
BELOW = "def f(T(M,M) A, T(M,N) B) -> (C) { P(i,j) +=! A(k,i) * B(k,j) where i in 0:M, k in i:M  C(i,j) = 2 * P(i,j) }"
BAND = """def f(T(N,M) A) -> (C) {
    P(i,j) +=! A(i,k) * A(j,k) where i in 0:N, j in max(0, i - 30):min(N, i + 9)
    C(i,j) = 0 * A(i,0) where i in 0:N, j in 0:N
    C(i,j) = P(i,j) where i in 0:N, j in max(0, i - 30):min(N, i + 9)
}"""


def compiled(text: str, sizes: dict[str, int], plan: str | None = None) -> Compilation:
    return lower(define(text)["f"], Sizes(sizes), tc.MappingOptions(), backend_of("cpu"), True, plan)


def overhangs(made: Compilation) -> list[bool]:
    return [o.overhang for o in made.plan.operations.values()]


@pytest.mark.parametrize("dtype", ["float", "double", "int32"])
@pytest.mark.parametrize(("n", "m"), [(96, 40), (97, 33), (61, 7), (200, 130)])
def test_a_lower_triangle_is_right_at_every_size(dtype: str, n: int, m: int) -> None:
    text = LOWER.replace("T(", f"{dtype}(")
    assert overhangs(compiled(text, {"N": n, "M": m})) == [True]
    drawn = np.random.default_rng(n).integers(-4, 5, (n, m))
    A = drawn.astype({"float": "f4", "double": "f8", "int32": "i4"}[dtype])
    assert np.array_equal(tc.define(text).f(A), np.tril(A @ A.T))


def test_a_band_is_right() -> None:
    text = BAND.replace("T(", "double(")
    A = np.random.default_rng(0).integers(-4, 5, (150, 20)).astype("f8")
    i, j = np.mgrid[:150, :150]
    assert np.array_equal(tc.define(text).f(A), np.where((j >= i - 30) & (j < i + 9), A @ A.T, 0))


def test_what_is_not_finite_stays_outside() -> None:
    """The last row takes part in no element but its own."""
    A = np.ones((97, 33))
    A[-1] = np.nan
    result = tc.define(LOWER.replace("T(", "double(")).f(A)
    assert np.isfinite(result[:-1]).all() and np.isnan(result[-1]).all()


def test_steps_that_depend_on_the_row_are_not_run_for_others() -> None:
    made = compiled(BELOW.replace("T(", "double("), {"M": 97, "N": 45})
    assert overhangs(made) == [False]
    text = made.stages["overhang"].replace('kind = "contract"\n', 'kind = "contract"\noverhang = 1\n')
    with pytest.raises(tc.LegalityError, match="runs instances of S0 in contract0 that the program lacks"):
        compiled(BELOW.replace("T(", "double("), {"M": 97, "N": 45}, text)


def test_sums_that_others_share_are_left_alone() -> None:
    text = """def f(double(N,M) A) -> (C) {
        P(i,j) = 7 + 0 * A(i,0) where i in 0:N, j in 0:N
        P(i,j) += A(i,k) * A(j,k) where i in 0:N, j in 0:i + 1
        C(i,j) = P(i,j) where i in 0:N, j in 0:N
    }"""
    A = np.random.default_rng(1).integers(-4, 5, (97, 33)).astype("f8")
    assert np.array_equal(tc.define(text).f(A), np.tril(A @ A.T) + 7)


def test_the_plan_says_so() -> None:
    made = compiled(LOWER.replace("T(", "float("), {"N": 96, "M": 40})
    assert "overhang = 1" in made.stages["overhang"]
    assert "whole on diagonals" in str(next(iter(made.plan.operations.values())))
    assert overhangs(compiled(LOWER.replace("T(", "float("), {"N": 96, "M": 40}, made.stages["overhang"])) == [True]


def test_sums_beside_which_others_write_are_whole_where_these_do_not() -> None:
    """Phases of a strided, dilated read: of four remainders taps have three, and steps end with the remainder."""
    text = (
        "def f(float(N,F,9) d, float(F,C,3) K) -> (O) {"
        " P(n,c,r,q) +=! constant_exterior(d, 0.0)(n,f,q-3*u) * K(f,c,r+4*u)"
        "     where n in 0:N, r in 0:4, q in 0:11, u in 0:(2-r)/4+1"
        " O(n,c,h) = constant_exterior(P, 0.0)(n,c,3*h%4,(h-3*(3*h%4))/4) where n in 0:N, c in 0:C, h in 0:41 }"
    )
    assert overhangs(compiled(text, {"N": 4, "F": 64, "C": 64})) == [True]
    generator = np.random.default_rng(0)
    d, K = generator.integers(-4, 5, (4, 64, 9)).astype("f4"), generator.integers(-4, 5, (64, 64, 3)).astype("f4")
    expected = np.zeros((4, 64, 41), "f4")
    for tap in range(3):
        expected[:, :, 3 * tap : 3 * tap + 33 : 4] += np.einsum("nfq,fc->ncq", d, K[:, :, tap])
    assert np.array_equal(tc.define(text).f(d, K), expected)


def test_rows_with_further_steps_in_other_runs_are_not_given_those() -> None:
    """Row i has 512 * (i+1) steps, and each run of a tile 512 of them: all of a run has the same, but not all rows."""
    text = (
        "def f(double(N,K) A, double(K,M) B) -> (C) {"
        " P(i,j) +=! A(i,k) * B(k,j) where i in 0:N, k in 0:512*(i+1)  C(i,j) = 2 * P(i,j) }"
    )
    for target in ("cpu:x86-64-v2", "cpu:x86-64-v3", "cpu:x86-64-v4"):
        sizes = Sizes({"N": 12, "K": 6144, "M": 48})
        made = lower(define(text)["f"], sizes, tc.MappingOptions(), backend_of(target), True, None)
        assert not any(overhangs(made))
    generator = np.random.default_rng(2)
    A, B = (generator.integers(-4, 5, shape).astype("f8") for shape in ((12, 6144), (6144, 48)))
    inside = np.arange(6144) < 512 * (np.arange(12)[:, None] + 1)
    assert np.array_equal(tc.define(text).f(A, B), 2 * (A * inside) @ B)
