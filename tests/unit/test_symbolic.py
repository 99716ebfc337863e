"""Ranges for all sizes: golden formulas, and agreement with inference for given sizes on many programs."""

from __future__ import annotations

import random

import pytest

from tcomp.errors import CompileError, ShapeError
from tcomp.grammar import define
from tcomp.grammar.ranges.polynomials import Polynomial, greatest, least
from tcomp.grammar.ranges.ranges import infer
from tcomp.grammar.ranges.symbolic import symbolic_ranges
from tcomp.grammar.tree.function import Function
from tests import corpus

N, M, S = Polynomial.of("N"), Polynomial.of("M"), Polynomial.of("S")


def function_of(text: str) -> Function:
    (function,) = define(text).values()
    return function


@pytest.mark.parametrize(
    "subscript", ["i ^ 1", "i - i % 2", "3*i - i % 2", "i - i / 2", "i - 2*(i % 3)", "i - 2*(i / 2)", "i | 1", "i ^ 3"]
)
def test_what_terms_of_one_index_reach_together(subscript: str) -> None:
    function = function_of(f"def f(float(N) A) -> (C) {{ C(i) = A(i)  T({subscript}) +=! A(i) }}")
    found = symbolic_ranges(function)
    assert "T" in found.boxes
    assert all(found.agrees(infer(function, {"N": extent})) for extent in range(1, 9))


class TestPolynomials:
    @pytest.mark.parametrize(
        ("polynomial", "text"),
        [
            (N - M + 1, "N - M + 1"),
            (-N, "-N"),
            (N - N, "0"),
            ((N * S + M) // S, "M / S + N"),
            ((N * 4 + 6) // Polynomial.of(2), "2 * N + 3"),
            ((N * 4 + 7) // Polynomial.of(2), "2 * N + 3"),
            ((S - 1) // S, "0"),
            (N // Polynomial.of(3) * 2, "N / 3 * 2"),
            (least([N, M]) + 1, "min(M + 1, N + 1)"),
            (least([N, N - 1]), "N - 1"),
            (greatest([N, N + M]), "M + N"),
            (greatest([N // Polynomial.of(2) - 1, (N - 1) // Polynomial.of(2)]), "(N - 1) / 2"),
        ],
    )
    def test_normal_form(self, polynomial: Polynomial, text: str) -> None:
        assert str(polynomial) == text

    def test_arithmetic_agrees_with_integers(self) -> None:
        rng = random.Random(0)
        for _ in range(300):
            sizes = {"N": rng.randrange(20), "M": rng.randrange(20), "S": rng.randrange(1, 5)}
            made, value = N, sizes["N"]
            for _ in range(rng.randrange(1, 6)):
                other = rng.choice([N, M, S, Polynomial.of(rng.randrange(-4, 5))])
                number = other.value(sizes)
                match rng.choice("+-*/<>"):
                    case "+":
                        made, value = made + other, value + number
                    case "-":
                        made, value = made - other, value - number
                    case "*":
                        made, value = made * other, value * number
                    case "/":
                        made, value = made // S, value // sizes["S"]
                    case "<":
                        made, value = least([made, other]), min(value, number)
                    case _:
                        made, value = greatest([made, other]), max(value, number)
            assert made.value(sizes) == value, str(made)


@pytest.mark.parametrize(
    ("text", "extents"),
    [
        ("def f(float(M,K) A, float(K,N) B) -> (O) { O(m,n) +=! A(m,kk) * B(kk,n) }", "M, N"),
        ("def f(float(H,W) I, float(KH,KW) K) -> (O) { O(h,w) +=! I(h+kh,w+kw) * K(kh,kw) }", "H - KH + 1, W - KW + 1"),
        ("def f(float(W) I, float(K) F, const int S) -> (O) { O(w) +=! I(S*w+k) * F(k) }", "(W - K) / S + 1"),
        ("def f(float(N) A) -> (O) { O(i) = A(2*i) + A(2*i+1) }", "N / 2"),
        ("def f(float(N) A) -> (O) { O(i) = A(i/3) }", "3 * N"),
        ("def f(float(N) A) -> (O) { O(i) +=! A(j) where i in 0:N, j in 0:i+1 }", "N"),
        ("def f(float(N) A) -> (O) { T(i) = A(i-2)  O(i) = T(i) + T(i+1) }", "N - 1"),
        ("def f(float(N) A, float(N) B) -> (O) { O(2*i) = A(i)  O(2*i+1) = B(i) }", "2 * N"),
        ("def f(float(N) A, float(M) B) -> (O) { O(i) = A(i) * B(i) }", "min(M, N)"),
        ("def f(float(N) A) -> (O) { O(i) = A(N-1-i) }", "N"),
        ("def f(float(N) A) -> (O) { O(i,j) = repeat_edge(A)(i+j) where i in -1:N, j in 0:4 }", "N + 1, 4"),
    ],
)
def test_extents(text: str, extents: str) -> None:
    found = symbolic_ranges(function_of(text))
    assert ", ".join(map(str, found.extents("O"))) == extents


def test_what_no_formula_says_is_left_out() -> None:
    found = symbolic_ranges(function_of("def f(float(N) A) -> (O) { O(i) = A(i % 3 + i / 3) }"))
    assert (found.ranges, "O" in found.boxes) == (({},), False)


def test_agreement_with_inference_for_given_sizes() -> None:
    """Nine tenths of the catalogue's programs are solved for all sizes, and none otherwise than for given ones."""
    solved = tried = 0
    seen: set[int] = set()
    for program in corpus.programs():
        if program.family in seen:
            continue
        seen.add(program.family)
        try:
            functions = define(program.text).values()
        except CompileError:
            continue
        for function in functions:
            found = symbolic_ranges(function)
            try:
                ranges = corpus.small_ranges(program, function)
            except (ShapeError, CompileError):
                continue
            assert found.agrees(ranges), f"{program}: {function}"
            tried += 1
            solved += found.boxes.keys() == ranges.boxes.keys()
    if not tried:
        pytest.skip("the catalogue of tensor comprehensions is not here")
    assert solved > 0.9 * tried, f"{solved} of {tried}"


@pytest.mark.parametrize("seed", range(5))
def test_agreement_for_other_sizes(seed: int) -> None:
    rng = random.Random(seed)
    text = """def f(float(N,C,H,W) I, float(F,C,KH,KW) K, const int S) -> (O, P) {
        O(n,f,h,w) +=! I(n,c,S*h+kh,S*w+2*kw) * K(f,c,kh,kw)
        P(n,f,h,w) max=! O(n,f,2*h+a,2*w+b) where a in 0:2, b in 0:2 }"""
    function = function_of(text)
    sizes = {"N": 2, "C": 3, "F": 4} | {name: rng.randrange(1, 4) for name in ("KH", "KW", "S")}
    sizes |= {"H": rng.randrange(20, 30), "W": rng.randrange(20, 30)}
    assert symbolic_ranges(function).agrees(infer(function, sizes))
