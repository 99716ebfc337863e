"""Derivatives of blocks of steps: they run backwards."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import tcomp as tc
from tcomp.fuzzing.gradients import check, in_doubles

pytestmark = pytest.mark.sweep(3)

EXAMPLES = Path(__file__).parents[2] / "examples" / "recurrences"

SIZES: Mapping[str, Mapping[str, int]] = {
    "lstm": {"T": 4, "B": 2, "E": 3, "D": 2},
    "gru": {"T": 4, "B": 2, "E": 3, "D": 2},
    "state_space": {"B": 2, "L": 4, "D": 3, "N": 2},
    "cumulative_product": {"N": 3, "M": 5},
    "cumulative_maximum": {"N": 3, "M": 5},
}

PROGRAMS: Mapping[str, tuple[str, Mapping[str, int]]] = {
    "smoothing": (
        (
            "def f(double(N,T) X, double a) -> (S) {"
            " for t in 0:T { S(n,t) = t == 0 ? X(n,t) : a * X(n,t) + (1.0 - a) * S(n,t-1) where n in 0:N } }"
        ),
        {"N": 3, "T": 5},
    ),
    "a first element, and a state of two steps before": (
        (
            "def f(double(T) X, double u, double v) -> (F) { F(0) = u  F(1) = u * v"
            " for t in 2:T { F(t) = X(t) * F(t-1) + F(t-2) * F(t-1) } }"
        ),
        {"T": 6},
    ),
    "a part of a state": (
        (
            "def f(double(N) A, const int T) -> (U) { U(i) = A(i)"
            " for t in 0:T { U(i) = 0.3 * (U(i-1) * U(i) + U(i+1)) where i in 1:N-1 } }"
        ),
        {"N": 6, "T": 4},
    ),
    "extrema of elements that two indices tell": (
        (
            "def f(double(N) A, double(M,K) B) -> (T) { T(i) = A(i) for t in 0:2 {"
            " T(2*i+k) max= A(i+k) * B(i,k) * T(i) where i in 0:3, k in 0:3  T(i) = T(i) * A(i) } }"
        ),
        {"N": 7, "M": 3, "K": 3},
    ),
    "products of elements that two indices tell": (
        (
            "def f(double(N) A, double(M,K) B) -> (T, U) { T(i) = A(i)  U(2*i+k) *=! B(i,k) for t in 0:2 {"
            " T(2*i+k) *= A(i+k) * B(i,k) where i in 0:3, k in 0:3  U(2*i+k) min= 0.7 where i in 0:3, k in 0:3 } }"
        ),
        {"N": 7, "M": 3, "K": 3},
    ),
    "extrema of elements that a quotient and a remainder tell": (
        (
            "def f(double(N,K) A) -> (double(2,2) T) { T(i/2,i%2) max=! A(i,k) where i in 0:4 for t in 0:2 {"
            " T(i/2,i%2) max= A(i,t) * T(i/2,1) where i in 0:4  T(i,j) = T(i,j) * T(j,i) } }"
        ),
        {"N": 4, "K": 3},
    ),
    "sums and maxima that go on": (
        (
            "def f(double(T,N) X) -> (s, m) { s(n) = 0.1 * X(0,n)  m(n) = X(0,n)"
            " for t in 0:T { s(n) += X(t,n) * s(n)  m(n) max= X(t,n) * s(n) } }"
        ),
        {"T": 4, "N": 3},
    ),
    "two states that see each other, and a value behind": (
        (
            "def f(double(T,N) X, double(N) p) -> (loss) { a(n) = p(n)  b(n) = 0.5 * p(n)"
            " for t in 0:T { a(n) = a(n) + 0.1 * b(n) * X(t,n)  b(n) = b(n) - 0.1 * sin(a(n))  a(n) = a(n) * b(n) }"
            " loss +=! a(n) * a(n) * b(n) }"
        ),
        {"T": 3, "N": 3},
    ),
    "two blocks, and sums between": (
        (
            "def f(double(T,N) X) -> (y) { h(n) = X(0,n) for t in 1:T { h(n) = sin(h(n)) * X(t,n) }"
            " g(n) = h(n) * h(n) for t in 0:T { r +=! g(n) * X(t,n)  g(n) = g(n) * 0.5 + r * h(n) }"
            " y(n) = g(n) * h(n) }"
        ),
        {"T": 3, "N": 3},
    ),
    "blocks in blocks, and elements of the same step": (
        (
            "def f(double(N,M) C) -> (D) { double(N+1,M+1) R(i,j) = 5.0 where i in 0:N+1, j in 0:M+1  R(0,0) = 0.0"
            " for i in 1:N+1 { for j in 1:M+1 {"
            " R(i,j) = C(i-1,j-1) - log(exp(-R(i-1,j-1)) + exp(-R(i-1,j)) + exp(-R(i,j-1))) } } D = R(N,M) }"
        ),
        {"N": 3, "M": 2},
    ),
    "a triangle, overwritten": (
        (
            "def f(double(N) X) -> (S) { S(i) = X(i)"
            " for i in 0:N { for j in 0:i { S(i) = S(i) + 0.5 * S(j) * X(i-j) } S(i) *= S(0) } }"
        ),
        {"N": 4},
    ),
    "a row and a column of the step": (
        ("def f(double(N,N) A) -> (D) { D(i,j) = A(i,j) for k in 0:N { D(i,j) = min(D(i,j), D(i,k) + D(k,j)) } }"),
        {"N": 3},
    ),
    "places that formulas of the step tell": (
        (
            "def f(double(N) X) -> (D, S) { D(N-1) = X(0)  S(0) = X(0)"
            " for t in 1:N { D(N-1-t) = X(t) * D(N-t)  S(t) = X(t) * S(max(t-2,0)) * D(N-1-t) } }"
        ),
        {"N": 5},
    ),
    "an element several times in a step, and boundaries": (
        (
            "def f(double(T,N) X) -> (S) { u(n) = X(0,n) for t in 0:T { S(t,n) = X(t,n) * (t == 0 ? 1.0 : S(t-1,n))"
            " u(n) = S(t,n) * repeat_edge(u)(n-1) * mirror_image(u)(n+1) where n in 0:N  S(t,n) += u(n) } }"
        ),
        {"T": 3, "N": 2},
    ),
    "maxima and products in blocks in blocks": (
        (
            "def f(double(N,M) X) -> (m) { m = 1.0 * X(0,0) for i in 0:N { for k in 0:2 {"
            " m *= X(i,j) + k  p *=! X(i,j)  q max=! X(i,j) * m  m = m + p * q  m max= X(i,j) } } }"
        ),
        {"N": 2, "M": 2},
    ),
    "what data choose": (
        (
            "def f(double(N) X, int32(N) c) -> (double(N) D, double(N) S) { D(i) = X(i)  S(i) = X(i) for t in 0:2 {"
            " D(c(i)) += X(i) * X(i) * (1 + t)  S(i) max= X(j) * S(i) * (t + 1) where i in 0:N, j in c(i):N } }"
        ),
        {"N": 3},
    ),
    "what data choose of what is read": (
        (
            "def f(double(N) X, int32(N) c) -> (h) { h(i) = X(i) for t in 0:2 { for q in 0:2 {"
            " h(c(i)) += X(i) * h(c(i)) * h(t)  h(q) = h(q) * X(t) } } }"
        ),
        {"N": 3},
    ),
    "maxima, products and beginnings that data choose": (
        (
            "def f(double(N) X, int32(N) c) -> (double(N) D, double(N) S) { D(i) = X(i) for t in 0:2 {"
            " D(c(i)) max= X(i) * D(i)  D(c(i)) *= X(j) * D(i) where j in 0:N"
            "  double(N) E(c(i)) +=! X(i) * D(i)  S(i) = E(i) * D(c(i))  E(c(i)) *=! X(i) * D(i)  D(i) += E(i) } }"
        ),
        {"N": 3},
    ),
    "indices that are called like sizes": (
        "def f(double(N) X) -> (D) { D(N) = X(N) for t in 0:2 { D(N) = D(N) * D(N-1) * z where z = X(N), N in 1:3 } }",
        {"N": 3},
    ),
    "an element that an input says": (
        (
            "def f(double(N) X, int32 k) -> (S) { S(i) = X(i)"
            " for t in 0:2 { for q in 0:2 { S(i) = S(i) * X(k) where i in 0:N } } }"
        ),
        {"N": 3},
    ),
    "an element of the same step that an input says": (
        (
            "def f(double(T,N) X, int32 k) -> (S) {"
            " for t in 0:T { h(i) = X(t,i) * X(t,i)  S(t,i) = h(k+t-t) * X(t,i) } }"
        ),
        {"N": 3, "T": 3},
    ),
    "an element of the step before that a size says": (
        (
            "def f(double(N+1) X, double(N) Z) -> (S) { S(i) = X(i) where i in 0:N+1"
            " for t in 0:2 { S(i) = S(i) * S(N) * Z(i) where i in 0:N } }"
        ),
        {"N": 2},
    ),
    "elements as they were before the block": (
        (
            "def f(double(N) X) -> (S, R) { S(i) = X(i)"
            " for t in 0:N { S(t) = S(t) * S((t+1) % N) * X(t/2)  R(t) = S(t) * X(N-1-t) } }"
        ),
        {"N": 4},
    ),
    "elements of later steps, as they were": (
        "def f(double(N) X) -> (S) { S(i) = X(i) for t in 1:N-1 { S(t) = S(t) * S(t+1) * X(t) + S(t-1) } }",
        {"N": 5},
    ),
    "a part of a row of the step": (
        (
            "def f(double(N,M) X) -> (S) { S(i,j) = X(i,j)"
            " for t in 1:N { S(t,j) = S(t-1,j+1) * S(t,j+1) * X(t,j) where j in 0:M-1 } }"
        ),
        {"N": 3, "M": 3},
    ),
    "an element more, behind the block": (
        (
            "def f(double(N+1) X, double(N) Y) -> (S) {"
            " for t in 0:N { S(t) = X(t) * (t == 0 ? Y(0) : S(t-1)) } S(N+0) = X(N) }"
        ),
        {"N": 3},
    ),
    "sweeps of two states, and what is between them": (
        (
            "def f(double(N,M) C, double(N,M) P) -> (D, E) { D(i,j) = P(i,j)  E(i,j) = C(i,j) * P(i,j)"
            " for t in 0:2 { for i in 1:N { for j in 1:M {"
            " D(i,j) = D(i-1,j) * E(i,j-1) + C(i,j) * D(i,j) + E(i,j)"
            "  E(i,j) = D(i,j) * E(i-1,j-1) + sin(D(i,j-1)) + cos(D(i,j-1)) * D(i,j-1) } }"
            " D(i,j) = D(i,j) * P(i,j) } }"
        ),
        {"N": 4, "M": 3},
    ),
    "a sweep over columns, and what it reads on all sides": (
        (
            "def f(double(N,M) C) -> (D) { D(j,i) = C(i,j) for i in 1:N-1 { for j in 1:M-2 {"
            " D(j,i) = D(j-1,i-1) * D(j+1,i) + D(j+2,i-1) * D(j,i+1) - D(j,i) * C(i,j) } } }"
        ),
        {"N": 4, "M": 6},
    ),
    "a sweep with choices": (
        (
            "def f(double(N,M) C) -> (S) { for i in 0:N { for j in 0:M {"
            " S(i,j) = C(i,j) + 0.5 * (i == 0 ? C(0,0) : S(i-1,j)) * (j == 0 ? 1.0 : S(i,j-1))"
            " + (i > 1 && j > 0 ? S(i-2,j-1) * S(i-2,j-1) : 0.0) } } }"
        ),
        {"N": 3, "M": 3},
    ),
    "names that are read many times, in a sweep": (
        (
            "def f(double(N,M) C) -> (L) { double(N+1,M+1) R(i,j) = 9.0 where i in 0:N+1, j in 0:M+1  R(0,0) = 0.0"
            " for i in 1:N+1 { for j in 1:M+1 {"
            " R(i,j) = C(i-1,j-1) + m - log(exp(m - R(i-1,j-1)) + exp(m - R(i-1,j)) + exp(m - R(i,j-1)))"
            " where m = min(R(i-1,j-1), min(R(i-1,j), R(i,j-1))) } } L = R(N,M) }"
        ),
        {"N": 2, "M": 3},
    ),
    "steps from 1 on, over an input that is read before": (
        (
            "def f(double(N,K) E, double(K,K) T) -> (L) { a(k) = E(0,k)"
            " for t in 1:N { s(k) +=! a(j) * T(j,k)  a(k) = s(k) + E(t,k) } L +=! a(k) * a(k) }"
        ),
        {"N": 3, "K": 2},
    ),
    "an element that is sought": (
        (
            "def f(double(N) X) -> (S) { S(i) = X(i)"
            " for t in 0:2 { for q in 0:2 { p argmax=! S(i)  S(i) = S(i) * X(p) where i in 0:N } } }"
        ),
        {"N": 3},
    ),
    "an element that a size says": (
        (
            "def f(double(N+1) X, double(N) Z) -> (S) { S(i) = X(i) where i in 0:N+1"
            " for t in 0:2 { for q in 0:2 { S(i) = S(i) * S(N) * Z(i) where i in 0:N } } }"
        ),
        {"N": 2},
    ),
    "steps without a range, of which later statements tell an end each": (
        (
            "def f(double(T,D) X, double(T,D) Y, double(D,D) R) -> (H) { H(0,d) = X(0,d) for t {"
            " r(d) +=! H(t-1,k) * R(k,d) where k in 0:D  H(t,d) = tanh(X(t+1,d) + Y(t-1,d) * r(d)) } }"
        ),
        {"T": 5, "D": 2},
    ),
    "places that are no sums, and floats beside doubles": (
        (
            "def f(double(N) X, float(N) Z) -> (S, float(N) F) { S(t) = X(t)  F(t) = Z(t)"
            " for t in 1:N { for q in 0:2 {"
            " S(t) = S(t-1) + X(t*q % 3) * S(t*q/3)  F(t) = float(F(t) * X(t)) + Z(t-1) } } }"
        ),
        {"N": 3},
    ),
}


@pytest.mark.parametrize("name", SIZES)
def test_examples(name: str) -> None:
    text = (EXAMPLES / f"{'cumulative' if name.startswith('cumulative') else name}.tc").read_text()
    f = tc.define(in_doubles(text).replace("= 0.0 where", "= double(0.0) where"))[name]
    verdict = check(f, SIZES[name], 1, depth=1)
    assert (verdict.kind, verdict.detail) == ("passed", "")


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    text, sizes = PROGRAMS[name]
    verdict = check(tc.define(text).f, sizes, 0)
    assert (verdict.kind, verdict.detail) == ("passed", "")


def test_the_text_is_the_textbooks_sweep_backwards() -> None:
    f = tc.define("def f(float(T) X, float a) -> (S) { for t in 0:T { S(t) = X(t) + (t == 0 ? 0.0 : a * S(t-1)) } }").f
    assert "all_d_S(T - 1 - t) = d_S(T - 1 - t) + (0 < t ? all_d_S(T - t) * a : 0.0)" in f.gradient().text


@pytest.mark.parametrize(("n", "steps"), [(0, 1), (1, 1), (2, 2), (3, 0)])
def test_sweeps_over_nothing(n: int, steps: int) -> None:
    text = """def f(double(N,N) X, const int T) -> (A) { A(i,j) = X(i,j)
        for t in 0:T { for i in 1:N-1 { for j in 1:N-2 { A(i,j) = A(i-1,j) * A(i,j) + A(i,j+1) * X(i,j) } } } }"""
    f = tc.define(text).f
    assert "given_all_d_A" in f.gradient().text
    assert check(f, {"N": n, "T": steps}, 1).kind == "passed"


def test_names_that_are_read_many_times_are_gone_through_once() -> None:
    """Alignments of a text with blanks, as a loss: the text of its gradient was too much for isl."""
    torch = pytest.importorskip("torch")
    text = """def ctc(double(N,C) P, int32(L) label) -> (loss) {
        int32(2*L+1) e(s) = s % 2 == 0 ? 0 : label(s/2) where s in 0:2*L+1
        A(s) = s < 2 ? P(0,e(s)) : -1e30 where s in 0:2*L+1
        for t in 1:N {
            A(s) = m + log(exp(A(s)-m) + exp(x-m) + exp(y-m)) + P(t,e(s))
                where s in 0:2*L+1, x = (s > 0 ? A(s-1) : -1e30),
                      y = (s > 1 && s % 2 == 1 ? (e(s) != e(s-2) ? A(s-2) : -1e30) : -1e30), m = max(A(s), max(x, y))
        }
        loss = -(m + log(exp(A(2*L)-m) + exp(A(2*L-1)-m))) where m = max(A(2*L), A(2*L-1))
    }"""
    f, rng = tc.define(text).ctc, np.random.default_rng(0)
    P, label = torch.tensor(rng.random((5, 4)), requires_grad=True), np.array([2, 3], np.int32)
    lengths = torch.tensor([5]), torch.tensor([2])
    loss = torch.nn.functional.ctc_loss(P.log_softmax(1)[:, None], torch.tensor(label)[None], *lengths, reduction="sum")
    (expected,) = torch.autograd.grad(loss, P)
    scores = P.log_softmax(1)
    d_scores = f.gradient(save=()).backward.reference(scores.detach().numpy(), label, 1.0)
    (found,) = torch.autograd.grad(scores, P, torch.tensor(d_scores))
    torch.testing.assert_close(found, expected)


def test_kernels_beside_torch() -> None:
    torch = pytest.importorskip("torch")
    f = tc.define((EXAMPLES / "lstm.tc").read_text()).lstm
    t, b, e, d = 5, 3, 4, 6
    layer = torch.nn.LSTM(e, d)
    weights = [layer.weight_ih_l0.view(4, d, e), layer.weight_hh_l0.view(4, d, d)]
    bias = (layer.bias_ih_l0 + layer.bias_hh_l0).view(4, d)
    x, h0, c0 = (torch.rand(*shape, requires_grad=True) for shape in ((t, b, e), (b, d), (b, d)))
    inputs = [x, *weights, bias, h0, c0]
    ours, cell = f(*inputs)
    theirs, (_, last) = layer(x, (h0[None], c0[None]))
    assert torch.allclose(ours, theirs, atol=1e-6)
    leaves = [x, layer.weight_ih_l0, layer.weight_hh_l0, layer.bias_ih_l0, h0, c0]
    expected = torch.autograd.grad((theirs * theirs).sum() + last.sin().sum(), leaves)
    found = torch.autograd.grad((ours * ours).sum() + cell.sin().sum(), leaves)
    for own, other in zip(found, expected, strict=True):
        assert torch.allclose(own, other, atol=1e-5)


def test_no_steps_at_all() -> None:
    f = tc.define(PROGRAMS["a part of a state"][0]).f
    d_a = f.gradient()(np.ones(4), 0, np.arange(4.0))
    assert d_a.tolist() == [0, 1, 2, 3]


def test_content_that_the_caller_passes_goes_through_all_steps() -> None:
    f = tc.define("def f(double(T) X) -> (double s) { for t in 0:T { s += X(t) * s } }").f
    d_x, d_s = f.gradient()(np.array([1.0, 2.0]), 5.0, 1.0)
    assert d_x.tolist() == [15.0, 10.0]
    assert d_s == 6


def test_a_program_that_torch_records() -> None:
    torch = pytest.importorskip("torch")
    f = tc.define(
        "def f(double(T,C) X) -> (S) { for t in 0:T { for c in 0:C {"
        " S(t,c) = (c == 0 ? 1.0 : S(t,c-1)) * (t == 0 ? 1.0 : S(t-1,c)) + X(t,c) } } }"
    ).f
    x = torch.rand(3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(f, [x])


def test_refusals() -> None:
    text = "def f(float(N) X, int32(N) I) -> (float(N) D) { D(i) = X(i) for t in 0:2 { D(I(i)) max= X(i) * D(i) } }"
    with pytest.raises(tc.DerivativeError, match="ties='first' is for reductions outside of such blocks"):
        tc.define(text).f.gradient(ties="first")


KEPT: Mapping[str, tuple[str, str, int]] = {
    "an element that another statement has overwritten before, and the last of two contents": (
        (
            "S(i) = X(i) for t in 0:2 { for q in 0:2 {"
            " u(i) = X(i) * S(i)  S(i) = S(i) * u(i)  u(i) = 2 * S(i)  S(i) = S(i) + u(i) } }"
        ),
        "was_u",
        1,
    ),
    "a result is read in place of what it was made of": (
        "S(i) = X(i) for t in 0:2 { for q in 0:2 { u(i) = 0.5 * S(i)  S(i) = exp(u(i)) } }",
        "was_u",
        0,
    ),
    "a row above": (
        "S(i) = X(i) for b in 0:2 { for k in 2*b:2*b+2 { S(j) = S(j) * S(k) where j in k+1:N } }",
        "was_S",
        1,
    ),
    "a row that is not written again": (
        "S(i) = X(i) for b in 0:2 { for k in 2*b:2*b+2 { S(j) = S(j) + S(k) * S(k) where j in k+1:N } }",
        "was_S",
        0,
    ),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_is_kept(name: str) -> None:
    body, kept, count = KEPT[name]
    f = tc.define(f"def f(double(N) X) -> (S) {{ {body} }}").f
    text = f.gradient(save=()).text
    assert text.count(f"{kept}(") + text.count(f"{kept}_(") == 2 * count
    assert check(f, {"N": 4}, 1, depth=1).kind == "passed"


@pytest.mark.parametrize("name", ["lu", "ludcmp", "cholesky"])
@pytest.mark.parametrize(("n", "block"), [(5, 2), (4, 2)])
def test_factors_in_blocks_of_columns(name: str, n: int, block: int) -> None:
    """Their inner blocks end at ``min((b+1)*B, N)``, which no subscript of the sweep backwards may have in it."""
    torch = pytest.importorskip("torch")
    text = (EXAMPLES.parent / "polybench" / "solvers" / f"{name}.tc").read_text()
    rng = np.random.default_rng(n)
    half = rng.standard_normal((n, n))
    a = torch.tensor(half @ half.T / n + n * np.eye(n), requires_grad=True)  # no rows to exchange
    b = torch.tensor(rng.standard_normal(n), requires_grad=True)
    d = rng.standard_normal(n) if name == "ludcmp" else np.tril(rng.standard_normal((n, n)))
    whole = {
        "lu": lambda: torch.linalg.lu_factor(a)[0],
        "ludcmp": lambda: torch.linalg.solve(a, b),
        "cholesky": lambda: torch.linalg.cholesky(a),
    }[name]()
    inputs = [a, b] if name == "ludcmp" else [a]
    expected = torch.autograd.grad(whole, inputs, torch.tensor(d))
    f = tc.define(text)[name]
    g, arrays = f.gradient(), [*(t.detach().numpy() for t in inputs), block]
    assert "was_" not in g.text, "all values that it reads are there at the end"
    output = f.function.outputs[0].name
    given = dict(zip([*(t.name for t in f.function.inputs)], arrays, strict=True))
    taken = g.arguments(given | {output: f.reference(*arrays)}, {"N": n}, [d])
    found = g.backward.reference(*taken)
    for own, other in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        if name == "cholesky":  # torch shares what is symmetric
            own = (np.tril(own) + np.tril(own).T) / 2
        np.testing.assert_allclose(own, other.numpy(), rtol=1e-9, atol=1e-9)
