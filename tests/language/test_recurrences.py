"""Blocks of steps: what they mean, which types and ranges they have, and reads that no step before has written."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.grammar import parse

JACOBI = """def jacobi(double(N,M) A, const int T) -> (O) {
  U(0,i,j) = A(i,j)
  for t in 1:T+1 {
    U(t,i,j) = U(t-1,i,j) where i in 0:N, j in 0:M
    U(t,i,j) = 0.2 * (U(t-1,i,j) + U(t-1,i-1,j) + U(t-1,i+1,j) + U(t-1,i,j-1) + U(t-1,i,j+1))
      where i in 1:N-1, j in 1:M-1
  }
  O(i,j) = U(T,i,j)
}"""
IN_PLACE = """def jacobi(double(N,M) A, const int T) -> (O) {
  O(i,j) = A(i,j)
  for t in 0:T {
    O(i,j) = 0.2 * (O(i,j) + O(i-1,j) + O(i+1,j) + O(i,j-1) + O(i,j+1)) where i in 1:N-1, j in 1:M-1
  }
}"""
FLOYD_WARSHALL = """def paths(int32(N,N) A) -> (D) {
  D(i,j) = A(i,j)
  for k in 0:N { D(i,j) = min(D(i,j), D(i,k) + D(k,j)) }
}"""
CHOLESKY = """def cholesky(double(N,N) A) -> (double(N,N) L) {
  L(i,j) = 0.0 where i in 0:N, j in 0:N
  for j in 0:N {
    s(i) +=! L(i,p) * L(j,p) where i in j:N, p in 0:j
    L(j,j) = sqrt(A(j,j) - s(j))
    L(i,j) = (A(i,j) - s(i)) / L(j,j) where i in j+1:N
  }
}"""
EDIT = """def distance(uint8(N) a, uint8(M) b) -> (int32(N+1,M+1) D) {
  D(i,0) = i where i in 0:N+1
  D(0,j) = j where j in 0:M+1
  for i in 1:N+1 { for j in 1:M+1 {
    D(i,j) = min(D(i-1,j-1) + (a(i-1) == b(j-1) ? 0 : 1), min(D(i-1,j), D(i,j-1)) + 1)
  } }
}"""


def jacobi(A: Any, T: int) -> Any:
    for _ in range(T):
        B = A.copy()
        B[1:-1, 1:-1] = 0.2 * (A[1:-1, 1:-1] + A[:-2, 1:-1] + A[2:, 1:-1] + A[1:-1, :-2] + A[1:-1, 2:])
        A = B
    return A


def paths(A: Any) -> Any:
    D = A.copy()
    for k in range(len(A)):
        D = np.minimum(D, D[:, k : k + 1] + D[k : k + 1, :])
    return D


def distance(a: Any, b: Any) -> Any:
    D = np.zeros((len(a) + 1, len(b) + 1), np.int32)
    D[:, 0], D[0, :] = np.arange(len(a) + 1), np.arange(len(b) + 1)
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            D[i, j] = min(D[i - 1, j - 1] + (a[i - 1] != b[j - 1]), D[i - 1, j] + 1, D[i, j - 1] + 1)
    return D


@pytest.mark.parametrize("text", [JACOBI, IN_PLACE])
@pytest.mark.parametrize(("n", "m", "steps"), [(6, 7, 3), (3, 3, 1), (2, 5, 4), (5, 4, 0)])
def test_stencils_with_and_without_a_step_subscript(text: str, n: int, m: int, steps: int) -> None:
    A = np.random.default_rng(0).random((n, m))
    np.testing.assert_allclose(tc.define(text).jacobi.reference(A, steps), jacobi(A, steps), rtol=1e-14)


@pytest.mark.parametrize("n", [1, 2, 7])
def test_all_pairs_of_paths(n: int) -> None:
    A = np.random.default_rng(n).integers(1, 99, (n, n)).astype(np.int32)
    np.testing.assert_array_equal(tc.define(FLOYD_WARSHALL).paths.reference(A), paths(A))


@pytest.mark.parametrize("n", [1, 2, 9])
def test_sums_over_what_earlier_steps_wrote(n: int) -> None:
    B = np.random.default_rng(n).random((n, n))
    A = B @ B.T + np.eye(n)
    np.testing.assert_allclose(tc.define(CHOLESKY).cholesky.reference(A), np.linalg.cholesky(A), rtol=1e-10)


@pytest.mark.parametrize(("n", "m"), [(0, 3), (1, 1), (6, 9)])
def test_nested_blocks(n: int, m: int) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 3, k).astype(np.uint8) for k in (n, m))
    np.testing.assert_array_equal(tc.define(EDIT).distance.reference(a, b), distance(a, b))


def test_inner_steps_depend_on_outer_ones() -> None:
    f = tc.define("""def f(double(N,N) A) -> (double(N,N) S) {
      S(i,j) = 0.0 where i in 0:N, j in 0:N
      for i in 1:N { for j in 0:i { S(i,j) = S(i-1,j) + (j == 0 ? 0.0 : S(i,j-1)) + A(i,j) } }
    }""").f
    A = np.random.default_rng(0).random((5, 5))
    S = np.zeros((5, 5))
    for i in range(1, 5):
        for j in range(i):
            S[i, j] = S[i - 1, j] + (S[i, j - 1] if j else 0) + A[i, j]
    np.testing.assert_allclose(f.reference(A), S)


def test_steps_are_all_those_that_what_is_read_from_outside_allows() -> None:
    f = tc.define("""def f(float(B,T) X, float(T+2) W) -> (S) {
      for t { S(t,b) = X(b,t) * W(t+1) + (t == 0 ? 0.0 : S(t-1,b)) }
    }""").f
    X, W = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(5, np.float32)
    np.testing.assert_array_equal(f.reference(X, W), np.cumsum(X.T, 0))


@pytest.mark.parametrize(
    ("value", "wanted"),
    [("S(t-1) + B(t)", "int32"), ("S(t-1) || B(t) > 0", "bool"), ("S(t-1) * 0.5 + B(t)", "float32"),
     ("(S(t-1) >> 1) ^ B(t)", "int32"), ("sqrt(S(t-1)) + D(t)", "float64")],
)  # fmt: skip
def test_types_follow_from_themselves(value: str, wanted: str) -> None:
    # S has its first value from P, which a later statement writes.
    text = f"""def f(int32(N) B, double(N) D) -> (S) {{
      for t in 0:N {{ S(t) = t == 0 ? P(0) : P(t-1)  P(t) = {value.replace("S(t-1)", "S(t)")} }} }}"""
    # At step 0 nothing has written P(0); only types matter here.
    assert tc.define(text).f.function.tensors["S"].dtype.name == wanted


def refused(text: str, **sizes: int) -> str:
    f = tc.define(text).f
    arguments = [np.ones(tuple(sizes.values()), np.float32) for _ in f.function.inputs]
    with pytest.raises(tc.TcompError) as failure:
        f.reference(*arguments)
    return str(failure.value)


def test_reads_of_later_steps_are_refused_with_an_example() -> None:
    text = refused("""def f(float(N) A) -> (S) {
      S(0) = A(0)
      for t in 1:N { S(t) = S(t-1) + S(t+1) where exists A(t) }
    }""", N=4)  # fmt: skip
    assert "S(t+1) reads" in text or "starts" in text or "reaches" in text
    text = refused("""def f(float(N) A) -> (S) {
      S(0) = A(0)
      for t in 1:N { S(t) = A(t) + S(N-t) }
    }""", N=5)  # fmt: skip
    assert "S(N-t) reads elements of S that are not yet written, such as S(4) at t=1" in text


def test_reads_of_a_later_statement_of_the_same_step_are_refused() -> None:
    text = refused("""def f(float(N) A) -> (S) {
      for t in 0:N { S(t) = A(t) + P(t)  P(t) = S(t) * 2.0 }
    }""", N=3)  # fmt: skip
    assert "such as P(0) at t=0" in text


def test_a_step_reads_what_the_one_before_wrote_but_not_the_first_one() -> None:
    good = "def f(float(N) A) -> (S) { for t in 0:N { S(t) = A(t) + (t > 0 ? P(t-1) : 0.0)  P(t) = S(t) * 2.0 } }"
    A = np.ones(4, np.float32)
    np.testing.assert_array_equal(tc.define(good).f.reference(A), [1, 3, 7, 15])
    assert "such as P(-1) at t=0" in refused(good.replace("t > 0", "t >= 0"), N=3) or "starts at -1" in refused(
        good.replace("t > 0", "t >= 0"), N=3
    )


def test_what_a_block_leaves_unwritten_is_not_handed_out() -> None:
    text = refused("def f(float(N) A) -> (float(N) S) { for t in 1:N { S(t) = A(t) } }", N=3)
    assert "S(0)" in text


def test_blocks_print_as_they_are_read() -> None:
    for text in (JACOBI, EDIT, "def f(float(N) A) -> (S) {\n    for t {\n        S(t) = A(t)\n    }\n}"):
        (definition,) = parse(text)
        assert parse(str(definition)) == (definition,)
    assert str(definition) == text


def test_derivatives_and_batches_refuse_steps() -> None:
    f = tc.define(IN_PLACE).jacobi
    with pytest.raises(tc.TcompError, match="runs step by step"):
        f.gradient()
    with pytest.raises(tc.TcompError, match="runs step by step"):
        f.batched((0, None))


def test_kernels_refuse_steps() -> None:
    with pytest.raises(tc.TcompError, match="runs step by step"):
        tc.define(IN_PLACE).jacobi(np.ones((4, 4)), 2)
