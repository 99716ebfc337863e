"""Calls between defs: the text that they become, what it computes, and what has to fit."""

from __future__ import annotations

import numpy as np
import pytest

import tcomp as tc
from tcomp import grammar
from tcomp.errors import CompileError, ShapeError
from tcomp.grammar.calls import expansion
from tcomp.grammar.parsing.parser import parse

SOFTMAX = """
def softmax(float(N,M) X) -> (Y) {
    m(i) max=! X(i,j)
    e(i,j) = exp(X(i,j) - m(i))
    s(i) +=! e(i,j)
    Y(i,j) = e(i,j) / s(i)
}
"""
MATMUL = "def matmul(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }\n"
SPLIT = """
def split(float(2*N,M) X, float(N) w, const int S) -> (A, B) {
    A(i,j) = S * w(i) * X(i,j)
    B(i,j) = X(i+N,j) where i in 0:N
}
"""
CONV = """
def conv(float(C,H,W) I, float(F,C,KH,KW) K, const int S, const int P) -> (O) {
    O(f,h,w) +=! constant_exterior(I, 0)(c,S*h+kh-P,S*w+kw-P) * K(f,c,kh,kw)
        where h in 0:(H+2*P-KH)/S+1, w in 0:(W+2*P-KW)/S+1
}
"""


def f4(*shape: int) -> np.ndarray:
    """Small integers: sums of their products are exact."""
    return np.random.default_rng(sum(shape)).integers(-3, 4, shape).astype(np.float32)


def inlined(text: str, name: str = "f") -> str:
    return str(grammar.define(text)[name])


def written(text: str) -> str:
    return str(parse(text)[0])


INLINED = {
    "one def": (
        "def f(float(A,B) Z) -> (Y) { Y = softmax(Z) }",
        """def f(float(A,B) Z) -> (Y) {
            softmax_m(i) max=! Z(i,j)
            softmax_e(i,j) = exp(Z(i,j) - softmax_m(i))
            softmax_s(i) +=! softmax_e(i,j)
            Y(i,j) = softmax_e(i,j) / softmax_s(i)
        }""",
    ),
    "nested calls, inner first": (
        "def f(float(A,B) Z, float(B,A) W) -> (Y) { Y = matmul(matmul(Z, W), Z) }",
        """def f(float(A,B) Z, float(B,A) W) -> (Y) {
            matmul_C(m,n) +=! Z(m,k) * W(k,n)
            Y(m,n) +=! matmul_C(m,k) * Z(k,n)
        }""",
    ),
    "two calls of one def": (
        "def f(float(A,A) Z) -> (Y) { T = softmax(Z) U = softmax(T) Y = matmul(T, U) }",
        """def f(float(A,A) Z) -> (Y) {
            softmax_m(i) max=! Z(i,j)
            softmax_e(i,j) = exp(Z(i,j) - softmax_m(i))
            softmax_s(i) +=! softmax_e(i,j)
            T(i,j) = softmax_e(i,j) / softmax_s(i)
            softmax_m_2(i) max=! T(i,j)
            softmax_e_2(i,j) = exp(T(i,j) - softmax_m_2(i))
            softmax_s_2(i) +=! softmax_e_2(i,j)
            U(i,j) = softmax_e_2(i,j) / softmax_s_2(i)
            Y(m,n) +=! T(m,k) * U(k,n)
        }""",
    ),
    "several results and a constant of the caller": (
        "def f(float(2*Q,R) Z, float(Q) w, const int T) -> (Y, U) { Y, U = split(Z, w, T + 1) }",
        """def f(float(2*Q,R) Z, float(Q) w, const int T) -> (Y, U) {
            Y(i,j) = (T + 1) * w(i) * Z(i,j)
            U(i,j) = Z(i+Q,j) where i in 0:Q
        }""",
    ),
    "a size as a constant, by name, and a result that nobody needs": (
        "def f(float(2*Q,R) Z, float(Q) w) -> (Y) { Y, _ = split(Z, S = R, w = w) }",
        "def f(float(2*Q,R) Z, float(Q) w) -> (Y) { Y(i,j) = R * w(i) * Z(i,j) }",
    ),
    "extents that follow from statements": (
        """def f(float(C,A,A) I, float(F,C,3,3) K, float(G,F,2,2) L) -> (Y) {
            T = conv(I, K, 2, P = 1)
            Y = conv(T, L, 1, 0)
        }""",
        """def f(float(C,A,A) I, float(F,C,3,3) K, float(G,F,2,2) L) -> (Y) {
            T(f,h,w) +=! constant_exterior(I, 0)(c,2*h+kh-1,2*w+kw-1) * K(f,c,kh,kw)
                where h in 0:(A+2-3)/2+1, w in 0:(A+2-3)/2+1
            Y(f,h,w) +=! constant_exterior(T, 0)(c,h+kh,w+kw) * L(f,c,kh,kw)
                where h in 0:(A-1)/2+1-2+1, w in 0:(A-1)/2+1-2+1
        }""",
    ),
    "an index that is a tensor of the caller": (
        "def f(float(A,B) i, float(B,j) m) -> (Y) { Y = matmul(i, m) }",
        "def f(float(A,B) i, float(B,j) m) -> (Y) { Y(m_,n) +=! i(m_,k) * m(k,n) }",
    ),
    "a name that is taken": (
        "def f(float(A,B) Z) -> (Y) { T = softmax(Z) Y(softmax_m,j) = T(softmax_m,j) }",
        """def f(float(A,B) Z) -> (Y) {
            softmax_m_2(i) max=! Z(i,j)
            softmax_e(i,j) = exp(Z(i,j) - softmax_m_2(i))
            softmax_s(i) +=! softmax_e(i,j)
            T(i,j) = softmax_e(i,j) / softmax_s(i)
            Y(softmax_m,j) = T(softmax_m,j)
        }""",
    ),
    "a tensor that is assigned again": (
        "def f(float(A,A) Z) -> (Y) { Y = matmul(Z, Z) Y = matmul(Y, Z) }",
        """def f(float(A,A) Z) -> (Y) {
            Y(m,n) +=! Z(m,k) * Z(k,n)
            matmul_C(m,n) +=! Y(m,k) * Z(k,n)
            Y(i,j) = matmul_C(i,j)
        }""",
    ),
    "numbers for scalars": (
        """def f(float(A) v, float t) -> (Y) { T = scale(v, 2) U = scale(T, t) Y = scale(U, 1.0/A) }
        def scale(float(N) X, float s) -> (Z) { Z(i) = s * X(i) }""",
        "def f(float(A) v, float t) -> (Y) { T(i) = float(2) * v(i) U(i) = t * T(i) Y(i) = 1.0/A * U(i) }",
    ),
    "a constant on the left": (
        """def f(float(A) v) -> (Y) { T = put(v, 1, A) Y(i) = T(0,i) + T(1,i) }
        def put(float(N) X, const int K, const int L) -> (Z) { Z(0,i) = X(i) Z(K,i) = L * X(i) }""",
        "def f(float(A) v) -> (Y) { T(0,i) = v(i) T(1,i) = A * v(i) Y(i) = T(0,i) + T(1,i) }",
    ),
    "constants that leave nothing, but in values, whose types they decide": (
        """def f(int8(A) v) -> (Y) { Y = g(v, 0, 1) }
        def g(int8(N) X, const int P, const int S) -> (Z) { Z(S*i+P) = X(S*i+P) * S + P where i in 0:N }""",
        "def f(int8(A) v) -> (Y) { Y(i) = v(i) * 1 + 0 where i in 0:A }",
    ),
    "an argument that does not start at 0": (
        """def f(float(A) v) -> (Y) { T(i) = v(i+2) Y = double_of(T) }
        def double_of(float(N) X) -> (Z) { Z(i) = 2 * X(i) }""",
        "def f(float(A) v) -> (Y) { T(i) = v(i+2) Y(i) = 2 * T(i-2) }",
    ),
    "a result that does not start at 0": (
        """def f(float(A) v) -> (Y) { T = later(v) Y(i) = i * T(i) }
        def later(float(N) X) -> (Z) { Z(i) = X(i-2) }""",
        "def f(float(A) v) -> (Y) { later_Z(i) = v(i-2) T(i) = later_Z(i+2) Y(i) = i * T(i) }",
    ),
    "a result with a type and extents of its own": (
        """def f(half(A,B) Z) -> (Y) { T = product(Z) Y(i) = T(i,i) }
        def product(half(N,M) X) -> (float(N,N) Z) { Z(i,j) +=! X(i,k) * X(j,k) }""",
        "def f(half(A,B) Z) -> (Y) { float(A,A) T(i,j) +=! Z(i,k) * Z(j,k) Y(i) = T(i,i) }",
    ),
    "a result of another type than the output": (
        "def f(float(A,A) Z) -> (double(A,A) Y) { Y = matmul(Z, Z) }",
        "def f(float(A,A) Z) -> (double(A,A) Y) { matmul_C(m,n) +=! Z(m,k) * Z(k,n) Y(i,j) = matmul_C(i,j) }",
    ),
}


@pytest.mark.parametrize("case", INLINED)
def test_text_without_calls(case: str) -> None:
    text, expected = INLINED[case]
    found = inlined(text + SOFTMAX + MATMUL + SPLIT + CONV)
    assert found == written(expected)
    # What is printed is a program, and the same one.
    assert inlined(found) == found


@pytest.mark.parametrize(
    "text",
    [
        "def f(float(N) X) -> (Y) { A, B = g(X, S = 2, T = N - 1) Y, _, C = h(A, B) }",
        "def f(float(N) X) -> (Y) { float(N, 2 * N) T(i, j) = X(i) half s = 2 double U(i) = T(i, i) Y = g(T, h(U)) }",
    ],
)
def test_printing_and_parsing(text: str) -> None:
    (definition,) = parse(text)
    assert parse(str(definition)) == (definition,)


def test_values() -> None:
    ops = tc.define(
        """def attention(float(L,D) Q, float(S,D) K, float(S,E) V) -> (O) {
            score(l,s) +=! Q(l,d) * K(s,d)
            O = matmul(softmax(score), V)
        }"""
        + SOFTMAX
        + MATMUL
    )
    q, k, v = f4(5, 4), f4(6, 4), f4(6, 3)
    e = np.exp(q @ k.T - (q @ k.T).max(1, keepdims=True))
    expected = e / e.sum(1, keepdims=True) @ v
    np.testing.assert_allclose(ops.attention(q, k, v), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(ops.attention.reference(q, k, v), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(ops.matmul(q, k.T), q @ k.T)


def test_calls_mean_what_their_defs_mean() -> None:
    """A chain of calls gives what calls from Python give, whatever the sizes."""
    ops = tc.define(
        """def f(float(C,A,B) I, float(F,C,3,3) K, float(G,F,2,3) L, const int S, const int P) -> (Y) {
            T = conv(I, K, S, P)
            T(f,h,w) = relu(T(f,h,w))
            Y = conv(T, L, 1, 0)
        }"""
        + CONV
    )
    for a, b, stride, padding in [(9, 8, 2, 0), (7, 9, 1, 1), (12, 11, 3, 2)]:
        i, k, m = f4(2, a, b), f4(3, 2, 3, 3), f4(4, 3, 2, 3)
        middle = np.maximum(ops.conv(i, k, stride, padding), 0)
        np.testing.assert_array_equal(ops.f(i, k, m, stride, padding), ops.conv(middle, m, 1, 0))


def test_sizes_that_only_arrays_tell() -> None:
    ops = tc.define("def f(float(A,B) X, float(C,D) Z) -> (Y) {\n  Y = matmul(X, Z)\n}\n" + MATMUL, "here.tc")
    np.testing.assert_array_equal(ops.f(f4(2, 3), f4(3, 4)), f4(2, 3) @ f4(3, 4))
    expected = """here.tc:2:17: error: Mismatched sizes for dimension `K` of `matmul`: 3 by dimension 1 of X for A, \
5 by dimension 0 of Z for B
    Y = matmul(X, Z)
                  ^
here.tc:4:24: note: the parameter is here
  def matmul(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }
                         ^"""
    with pytest.raises(ShapeError) as found:
        ops.f(f4(2, 3), f4(5, 4))
    assert [line.strip(" ^") for line in str(found.value).split("\n")] == [
        line.strip(" ^") for line in expected.replace(":4:24:", ":4:26:").split("\n")
    ]
    with pytest.raises(ShapeError, match="Mismatched sizes for dimension `K`"):
        ops.f.compile(sizes={"A": 2, "B": 3, "C": 5, "D": 4})


def test_agreement_in_a_def_that_is_called() -> None:
    """What a call needs holds for the calls of its def, too, in the sizes of the last caller."""
    ops = tc.define(
        "def g(float(A,B) X) -> (Y) { T(i,j) = X(2*i,j) Y = f(T, X) }"
        "def f(float(A,B) X, float(C,D) Z) -> (Y) { Y = matmul(X, Z) }" + MATMUL
    )
    x = f4(3, 3)
    np.testing.assert_array_equal(ops.g(x), x[::2] @ x)
    with pytest.raises(ShapeError, match="4 by dimension 1 of X for A, 3 by dimension 0 of Z for B"):
        ops.g(f4(3, 4))


def test_extents_are_confirmed_for_each_size() -> None:
    """Formulas of extents hold for const parameters that are not negative; else inference has the last word."""
    ops = tc.define(
        "def f(float(N) X, const int P) -> (Y) { T(i) = X(P*i) Y = g(T) }def g(float(N) X) -> (Y) { Y(i) = X(N-1-i) }"
    )
    np.testing.assert_array_equal(ops.f(f4(7), 3), f4(7)[::3][::-1])
    with pytest.raises(ShapeError, match="the call takes T to be written at 0:"):
        ops.f(f4(7), -2)


def test_errors_behind_calls_name_them() -> None:
    ops = tc.define(
        "def g(float(N) X, const int P) -> (Y) { Y(i) = X(i + P) where i in 0:N }\n"
        "def f(float(N) X) -> (Y) {\n  T = g(X, 0)\n  Y = g(T, 1)\n}\n"
    )
    with pytest.raises(ShapeError) as found:
        ops.f(f4(4))
    text = str(found.value)
    assert "<string>:1:" in text
    assert "<string>:4:7: note: g is called here\n    Y = g(T, 1)\n        ^" in text


def test_built_in_functions_come_first() -> None:
    """A def may have the name of a built-in function, which scalars go to."""
    ops = tc.define(
        "def f(float(N) X, float c) -> (Y, Z) { Y = sqrt(X) Z = sqrt(c) }"
        "def sqrt(float(N) X) -> (Y) { Y(i) = 2 * X(i) }"
    )
    y, z = ops.f(np.array([4, 9], np.float32), np.float32(16))
    assert y.tolist() == [8, 18]
    assert z == 4


def test_what_is_not_needed_is_not_computed() -> None:
    function = grammar.define("def f(float(2*N,M) X, float(N) w) -> (Y) { _, Y = split(X, w, 2) }" + SPLIT)["f"]
    assert [s.target for s in function.statements] == ["Y"]
    assert function.warnings == ()
    (warning,) = grammar.define("def f(float(2*N,M) X, float(N) w) -> (Y) { Z, Y = split(X, w, 2) }" + SPLIT)[
        "f"
    ].warnings
    assert "temporary Z is written but never read" in warning.message


def test_a_wrong_def_is_reported_once() -> None:
    text = "def g(float(N) X) -> (Y) { Y(i) = Q(i) } def f(float(N) X) -> (Y) { T = g(X) Y = g(T) }"
    with pytest.raises(CompileError) as found:
        grammar.define(text)
    assert [d.message for d in found.value.diagnostics] == ["undefined variable Q used here"]


def test_warnings_are_given_once() -> None:
    text = "def g(float(N) X) -> (Y) { T(i) = X(i) Y(i) = 1/2 * X(i) } def f(float(N) X) -> (Y) { Y = g(X) }"
    functions = grammar.define(text)
    assert len(functions["g"].warnings) == 2
    assert functions["f"].warnings == ()


def test_explosions_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expansion, "MOST_STATEMENTS", 500)
    defs = ["def f0(float(N) X) -> (Y) { Y(i) = 2 * X(i) }"]
    defs += [f"def f{k}(float(N) X) -> (Y) {{ T = f{k - 1}(X) Y = f{k - 1}(T) }}" for k in range(1, 30)]
    with pytest.raises(CompileError, match="more than 500 statements"):
        grammar.define("\n".join(defs))
    defs = [f"def f{k}(float(N) X) -> (Y) {{ Y = f{k + 1}(X) }}" for k in range(100)]
    with pytest.raises(CompileError, match="calls nest more than 40 deep"):
        grammar.define("\n".join([*defs, "def f100(float(N) X) -> (Y) { Y(i) = X(i) }"]))
    nested = "g(" * 100 + "X" + ")" * 100
    with pytest.raises(CompileError, match="calls nest more than 40 deep"):
        grammar.define(f"def f(float(N) X) -> (Y) {{ Y = {nested} }} def g(float(N) X) -> (Y) {{ Y(i) = X(i) }}")


def test_a_chain_of_many_calls_is_quick_to_check() -> None:
    """Checking takes time in proportion to the calls: 400 of them take seconds, not minutes."""
    calls = " ".join(f"T{k + 1} = g(T{k})" for k in range(400))
    text = f"def f(float(N) T0) -> (T400) {{ {calls} }} def g(float(N) X) -> (Y) {{ Y(i) = X(i) + 1 }}"
    assert len(grammar.define(text)["f"].statements) == 400


def test_declared_temporaries() -> None:
    ops = tc.define(
        """def f(half(M,K) A, half(K,N) B) -> (C) {
            float(M,N) T(m,n) +=! A(m,k) * B(k,n)
            double s +=! T(m,n)
            C(m,n) = T(m,n) + s
        }"""
    )
    a, b = f4(3, 4).astype(np.float16), f4(4, 5).astype(np.float16)
    result = ops.f(a, b)
    assert result.dtype == np.float64
    product = a.astype(float) @ b.astype(float)
    np.testing.assert_array_equal(result, product + product.sum())
    np.testing.assert_array_equal(ops.f.batched([0, None])(a[None], b)[0], result)
    with pytest.raises(ShapeError, match="dimension 0 of T is declared with 3 elements but the program writes 4"):
        tc.define("def f(float(N) X) -> (Y) { float(N-1) T(i) = X(i) Y(i) = T(i) }").f(f4(4))


SUMS = """
def sums(float(N,M) A) -> (S, last) {
  h(j) = 0.0 where j in 0:M
  for t in 0:N {
    h(j) = h(j) + A(t,j)
    S(t,j) = h(j)
  }
  last(j) = h(j)
}"""


def test_defs_with_blocks_of_steps_are_called() -> None:
    """Their indices may mean something else to the caller, whose own blocks go on."""
    ops = tc.define(
        """def f(float(N,M) X, float t) -> (Y) {
          T(i,j) = X(i+1,j) where i in 0:N-1
          for k in 1:N { T(0,j) = T(0,j) + t }
          S, h = sums(T)
          for k in 0:N-1 { Y(k,j) = S(k,j) * h(j) }
        }"""
        + SUMS
    )
    x = f4(5, 3)
    moved = x[1:].copy()
    moved[0] += np.float32(0.5) * 4
    sums = np.cumsum(moved, 0)
    for target in (ops.f, ops.f.reference):
        np.testing.assert_allclose(target(x, np.float32(0.5)), sums * sums[-1], rtol=1e-5)


def test_what_is_not_needed_of_a_block_is_not_computed() -> None:
    text = "def f(float(N,M) X) -> (Y) { _, Y = sums(X) }" + SUMS
    function = grammar.define(text)["f"]
    assert [s.target for s in function.statements] == ["sums_h", "sums_h", "Y"]
    assert function.warnings == ()
    assert grammar.define(str(function))["f"].statements == function.statements


CONTINUED = """
def add(float(N,M) X) -> (float(N) Y, Z) { Y(i) += X(i,j)  Z(i) = 2 * Y(i) }
def onto_itself(float(N,M) X) -> (Y) { Y(i) = X(i,0)  Y, Z = add(X, Y=Y)  Y(i) = Y(i) + Z(i) }
def onto_another(float(N,M) X, float(K) T) -> (Z) { _, Z = add(X, Y=T) }
def twice(float(N,M) X, float(N) T) -> (Y, Z) { U, _ = add(X, Y=T)  Y, Z = add(X, Y=U) }
def of_out(float(N,M) X) -> (float(N) Y) { Y, _ = add(X, Y=Y) }
"""


@pytest.mark.filterwarnings("ignore::tcomp.ProgramWarning")
def test_a_def_goes_on_from_a_tensor_that_its_call_names() -> None:
    ops = tc.define(CONTINUED)
    x, t = f4(4, 6), f4(4)
    both = t + x.sum(1)
    np.testing.assert_array_equal(ops.onto_itself(x), 3 * (x[:, 0] + x.sum(1)))
    np.testing.assert_array_equal(ops.onto_another(x, t), 2 * both)
    with pytest.raises(ShapeError, match="4 by the arguments, 3 by dimension 0 of T for Y"):
        ops.onto_another(x, t[:3])
    for found, expected in zip(ops.twice(x, t), (both + x.sum(1), 2 * (both + x.sum(1))), strict=True):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(ops.of_out(x, out=t.copy()), both)
