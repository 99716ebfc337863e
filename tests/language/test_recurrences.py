"""Blocks of steps: what they mean, which types and ranges they have, and reads that no step before has written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.grammar import define, parse
from tcomp.model.stepwise.cutting import in_pieces
from tcomp.model.stepwise.folding import folded, prove_folds
from tcomp.model.terms.sizes import Sizes

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


TARGETS = ["reference", "cpu", "simulator"]


def call(f: Any, target: str, *arguments: Any) -> Any:
    return f.reference(*arguments) if target == "reference" else f(*arguments, target=target)


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


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("text", [JACOBI, IN_PLACE])
@pytest.mark.parametrize(("n", "m", "steps"), [(6, 7, 3), (3, 3, 1), (2, 5, 4), (5, 4, 0)])
def test_stencils_with_and_without_a_step_subscript(text: str, n: int, m: int, steps: int, target: str) -> None:
    A = np.random.default_rng(0).random((n, m))
    np.testing.assert_allclose(call(tc.define(text).jacobi, target, A, steps), jacobi(A, steps), rtol=1e-13)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("n", [1, 2, 7])
def test_all_pairs_of_paths(n: int, target: str) -> None:
    A = np.random.default_rng(n).integers(1, 99, (n, n)).astype(np.int32)
    np.testing.assert_array_equal(call(tc.define(FLOYD_WARSHALL).paths, target, A), paths(A))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("n", [1, 2, 9])
def test_sums_over_what_earlier_steps_wrote(n: int, target: str) -> None:
    B = np.random.default_rng(n).random((n, n))
    A = B @ B.T + np.eye(n)
    np.testing.assert_allclose(call(tc.define(CHOLESKY).cholesky, target, A), np.linalg.cholesky(A), rtol=1e-10)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("n", "m"), [(0, 3), (1, 1), (6, 9)])
def test_nested_blocks(n: int, m: int, target: str) -> None:
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 3, k).astype(np.uint8) for k in (n, m))
    np.testing.assert_array_equal(call(tc.define(EDIT).distance, target, a, b), distance(a, b))


@pytest.mark.parametrize("target", TARGETS)
def test_inner_steps_depend_on_outer_ones(target: str) -> None:
    f = tc.define("""def f(double(N,N) A) -> (double(N,N) S) {
      S(i,j) = 0.0 where i in 0:N, j in 0:N
      for i in 1:N { for j in 0:i { S(i,j) = S(i-1,j) + (j == 0 ? 0.0 : S(i,j-1)) + A(i,j) } }
    }""").f
    A = np.random.default_rng(0).random((5, 5))
    S = np.zeros((5, 5))
    for i in range(1, 5):
        for j in range(i):
            S[i, j] = S[i - 1, j] + (S[i, j - 1] if j else 0) + A[i, j]
    np.testing.assert_allclose(call(f, target, A), S)


@pytest.mark.parametrize("target", TARGETS)
def test_steps_are_all_those_that_what_is_read_from_outside_allows(target: str) -> None:
    f = tc.define("""def f(float(B,T) X, float(T+2) W) -> (S) {
      for t { S(t,b) = X(b,t) * W(t+1) + (t == 0 ? 0.0 : S(t-1,b)) }
    }""").f
    X, W = np.arange(6, dtype=np.float32).reshape(2, 3), np.ones(5, np.float32)
    np.testing.assert_array_equal(call(f, target, X, W), np.cumsum(X.T, 0))


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


def test_what_has_no_steps_yet_says_so() -> None:
    f, A = tc.define(IN_PLACE).jacobi, np.ones((4, 4))
    for attempt in (
        lambda: f.bind(A=A),
        lambda: f.tune(A, 2, budget=1.0),
    ):
        with pytest.raises(tc.TcompError, match="runs step by step"):
            attempt()


LSTM = """def lstm(float(T,B,E) X, float(4,E,D) W, float(4,D,D) R, float(B,D) h0, float(B,D) c0) -> (H, c) {
  h(b,d) = h0(b,d)
  c(b,d) = c0(b,d)
  for t {
    x(g,b,d) +=! X(t,b,e) * W(g,e,d)
    r(g,b,d) +=! h(b,k) * R(g,k,d)
    z(g,b,d) = x(g,b,d) + r(g,b,d)
    c(b,d) = sigmoid(z(1,b,d)) * c(b,d) + sigmoid(z(0,b,d)) * tanh(z(2,b,d))
    h(b,d) = sigmoid(z(3,b,d)) * tanh(c(b,d))
    H(t,b,d) = h(b,d)
  }
}"""


def test_a_kernel_in_pieces_explains_itself_and_its_plans_read_back() -> None:
    f = tc.define(LSTM).lstm
    sizes = {"T": 5, "B": 3, "E": 4, "D": 6}
    kernel = f.compile(sizes=sizes)
    assert "piece 1, for each t:" in kernel.explain()
    assert {"scop", "fuse", "pack", "loops", "kernel"} <= kernel.stages.keys()
    assert "step_t" in kernel.stages["pack"]
    again = f.compile(sizes=sizes, plan=kernel.stages["pack"])
    assert again.source == kernel.source
    with pytest.raises(tc.TcompError, match="pieces"):
        f.compile(sizes=sizes, plan=kernel.stages["pack"].split("#### piece 1")[0])
    broken = kernel.stages["pack"].replace("step_t", "step_u")
    with pytest.raises(tc.TcompError):
        f.compile(sizes=sizes, plan=broken)


@pytest.mark.parametrize("options", ["", "tile=2x2", "parallel=False", "fusion=min"])
def test_pieces_with_reductions_agree_with_the_interpreter(options: str) -> None:
    rng = np.random.default_rng(0)
    X, W, R, h, c = (rng.random(s, np.float32) for s in ((5, 3, 4), (4, 4, 6), (4, 6, 6), (3, 6), (3, 6)))
    f = tc.define(LSTM).lstm
    options = options.replace("fusion=min", "fusion_strategy=min")
    for found, wanted in zip(f(X, W, R, h, c, options=options or None), f.reference(X, W, R, h, c), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)


def test_arrays_with_strides_and_with_nothing_in_them() -> None:
    f = tc.define("def f(float(N,M) A) -> (S) { for i in 0:N { S(i,j) = (i == 0 ? 0.0 : S(i-1,j)) + A(i,j) } }").f
    A = np.random.default_rng(0).random((12, 9), np.float32)
    for given in (A[::-2, 1::3], A.T[2:5], A[:0], A[:, :0], A[:1]):
        np.testing.assert_allclose(f(given), np.cumsum(given, 0), rtol=1e-5)


def test_subscripts_that_data_choose_are_checked_in_steps() -> None:
    text = "def f(int32(T) I, float(N) A) -> (S) { for t in 0:T { S(t) = (t == 0 ? 0.0 : S(t-1)) + A(I(t)) } }"
    f, A = tc.define(text).f, np.arange(4, dtype=np.float32)
    np.testing.assert_array_equal(f(np.array([3, 1, 2], np.int32), A), [3, 4, 6])
    with pytest.raises(tc.ShapeError, match="7"):
        f(np.array([3, 7, 2], np.int32), A)


def test_what_is_read_and_written_at_steps_that_may_meet_is_one_storage() -> None:
    # S(t) and S(T-1-t) are the same element in the middle.
    f = tc.define("""def f(int32(T) A) -> (S) {
      S(t) = A(t)
      for t in 0:T { S(t) = S(T-1-t) + 1 }
    }""").f
    A = np.arange(7, dtype=np.int32)
    np.testing.assert_array_equal(f(A), f.reference(A))


def test_steps_that_are_not_taken() -> None:
    f = tc.define("def f(float(N) A, const int T) -> (S) { S(i) = A(i) for t in 1:T { S(i) = S(i) * 2.0 } }").f
    A = np.ones(3, np.float32)
    for steps, wanted in ((0, 1), (1, 1), (3, 4)):
        np.testing.assert_array_equal(f(A, steps), A * wanted)
        np.testing.assert_array_equal(f.reference(A, steps), A * wanted)


TWO_BACK = """def waves(double(N) A, const int T) -> (O, P) {
  U(0,i) = A(i)
  U(1,i) = A(i)
  for t in 2:T+1 {
    U(t,i) = 2.0 * U(t-1,i) - U(t-2,i) where i in 0:N
    U(t,i) = U(t-1,i) + 0.25 * (U(t-1,i-1) + U(t-1,i+1)) - 0.5 * U(t-2,i) where i in 1:N-1
  }
  O(i) = U(T,i)
  P(i) = U(T-1,i)
}"""


@pytest.mark.parametrize(("text", "extents", "kept"), [(JACOBI, {"N": 9, "M": 8}, 2), (TWO_BACK, {"N": 9}, 3)])
def test_temporaries_keep_the_slices_that_are_still_read(text: str, extents: dict[str, int], kept: int) -> None:
    (function,) = define(text).values()
    pieces = folded(in_pieces(function, Sizes({**extents, "T": 30})))
    assert pieces.folds == {"U": (0, kept)}
    prove_folds(pieces)
    for wrong in range(1, kept):
        with pytest.raises(tc.LegalityError, match="overwritten"):
            prove_folds(replace(pieces, folds={"U": (0, wrong)}))
    A = np.random.default_rng(0).random(tuple(extents.values()))
    operation = tc.define(text)[function.name]
    kernel = operation.compile(A, 30)
    assert f"scratch memory: {-(-kept * A.nbytes // 64) * 64} bytes" in kernel.explain()
    for steps in (1, 2, 3, 30):
        found, wanted = operation(A, steps), operation.reference(A, steps)
        np.testing.assert_allclose(found, wanted, rtol=1e-12)


def test_slices_that_are_read_later_are_all_kept() -> None:
    text = (
        "def f(double(N) A) -> (O) { U(0) = A(0) for t in 1:N { U(t) = U(t-1) + A(t) } O(i) = U(N-1-i) where i in 0:N }"
    )
    (function,) = define(text).values()
    assert not folded(in_pieces(function, Sizes({"N": 20}))).folds
    edge = """def f(double(N) A, const int T) -> (O) {
      U(0,i) = A(i)
      U(t,0) = A(0) where t in 1:T+1
      for t in 1:T+1 { U(t,i) = U(t-1,i-1) where i in 1:N }
      O(i) = U(T,i)
    }"""
    (function,) = define(edge).values()
    assert not folded(in_pieces(function, Sizes({"N": 20, "T": 9}))).folds


def test_steps_of_blocks_in_blocks_read_what_the_outer_step_before_wrote() -> None:
    # gcc once took the columns of all outer steps for arrays that are apart.
    f = tc.define("""def f(float(N,M) A, const int T) -> (V) {
      V(i,j) = A(i,j)
      for t in 0:T { for c in 1:M { V(i,c) = V(i,c-1) * 0.5 + V(i,c) where i in 0:N } }
    }""").f
    for n, m, steps in ((3, 2, 2), (8, 2, 3), (16, 3, 2), (5, 4, 4)):
        A = np.random.default_rng(n).random((n, m), np.float32)
        np.testing.assert_allclose(f(A, steps), f.reference(A, steps), rtol=1e-5)


def test_slices_lie_one_behind_another_wherever_their_step_stands() -> None:
    # What keeps two slices must not be strided as if it kept all.
    text = """def f(double(N) A, const int T) -> (O) {
      U(i,0) = A(i)
      for t in 1:T { U(i,t) = 2.0 * U(i,t-1) where i in 0:N }
      O(i) = U(i,T-1)
    }"""
    (function,) = define(text).values()
    pieces = folded(in_pieces(function, Sizes({"N": 9, "T": 50})))
    assert pieces.folds == {"U": (1, 2)} or pieces.folds == {"U": (1, 1)}
    assert pieces.storages["U"].strides == (1, 9)
    assert all(storage.strides == (1,) for piece in pieces.pieces for storage in piece.scop.storages.values())
    A = np.arange(9.0)
    np.testing.assert_array_equal(tc.define(text).f(A, 50), A * 2.0**49)
