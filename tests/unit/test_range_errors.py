"""What range inference refuses: accesses outside, elements unwritten or written twice, variables unsolved."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tcomp.errors import CompileError, ShapeError, SourceText
from tcomp.grammar import check, define, parse
from tcomp.grammar.ranges.ranges import Ranges, infer, solvable
from tcomp.grammar.tree.function import Function


def ranges(text: str, **sizes: int) -> Ranges:
    return infer(define(text)["f"], sizes)


def unchecked(text: str) -> Function:
    """The checked function without the structural run, which `define` adds."""
    (definition,) = parse(text)
    return check(definition, SourceText(text))


@pytest.mark.parametrize(
    ("text", "sizes", "message"),
    [
        (
            "def f(float(N) I) -> (O) { O(i) = I(i + 3) where i in 0:N }",
            {"N": 10},
            "I(i + 3) reaches 12 but dimension 0 of I has 10 elements, 3 too far (N=10)",
        ),
        (
            "def f(float(N) I) -> (O) { O(i) = I(i - 1) where i in 0:3 }",
            {"N": 10},
            "I(i - 1) starts at -1 but dimension 0 of I has 10 elements, 1 too early (N=10)",
        ),
        (
            "def f(float(N) I) -> (O) { O(i) = I(2 * i) where i in -1:3 }",
            {"N": 3},
            "I(2 * i) goes from -2 to 4 but dimension 0 of I has 3 elements (N=3)",
        ),
        (
            "def f(float(N, M) I) -> (O) { O(i, j) = I(i, i + j) + I(j, j) }",
            {"N": 3, "M": 4},
            "I(i, i + j) reaches 4 but dimension 1 of I has 4 elements, 1 too far (N=3, M=4)",
        ),
        (
            "def f(float(N) I) -> (O) { t(i) = I(i) where i in 2:5  O(i) = t(i) where i in 2:6 }",
            {"N": 9},
            "t(i) reaches 5 but dimension 0 of t has elements 2 to 4, 1 too far (N=9)",
        ),
        (
            "def f(float(H) I, float(K) W) -> (O) { O(h) +=! I(h+k) * W(k) }",
            {"H": 2, "K": 5},
            "Inferred an empty range for variable h. Derived condition: 0 <= h <= -3, from I(h+k) in bounds (H=2, K=5)",
        ),
        (
            "def f() -> (O) { O(i, j) = 3 where i in 8:4, j in 3:20 }",
            {},
            "the range of i, 8:4, ends before it starts: extent -4",
        ),
        (
            "def f(float(N) A) -> (float(N) O) { O(i) = A(i) where i in 1:N+2 }",
            {"N": 4},
            "dimension 0 of O is declared with 4 elements but the program writes 5 (1 to 5)",
        ),
        (
            "def f(float(N) A) -> (O) { O(i, j) = A(0) where i in 0:N*N, j in 0:N*N }",
            {"N": 1 << 16},
            "O is too large: 4294967296 x 4294967296 elements",
        ),
        ("def f(float(N, N - 3) A) -> (O) { O(i) = A(i, 0) }", {"N": 2}, "dimension 1 of A, N - 3, is negative: -1"),
        (
            "def f(float(N, 8 / N) A) -> (O) { O(i) = A(i, 0) }",
            {"N": 0},
            "dimension 1 of A, 8 / N, has no value for these sizes",
        ),
        ("def f(float(N) A) -> (O) { O(i) = A(i) }", {}, "the size N is not given"),
        ("def f(float(N) A) -> (O) { O(i) = A(i) }", {"N": -1}, "N is negative: -1"),
        ("def f(float(N) A) -> (O) { O(i) = A(i) }", {"N": 1 << 62}, f"N is too large: {1 << 62}"),
        (
            "def f(float(N) A, const int64 c) -> (O) { O(i) = A(i) * float(c) }",
            {"N": 2, "c": -(1 << 62)},
            f"c is too small: {-(1 << 62)}",
        ),
        ("def f(float(N) A, const int S) -> (O) { O(i) = A(i * S) }", {"N": 3}, "the const parameter S is not given"),
        (
            "def f(float(N) A, const int S) -> (O) { O(i) = A(i * S) }",
            {"N": 3, "S": 0},
            "Free variable i is unconstrained. Use a 'where' clause to set its range.",
        ),
    ],
)
def test_shape_errors(text: str, sizes: Mapping[str, int], message: str) -> None:
    with pytest.raises(ShapeError) as caught:
        infer(define(text)["f"], sizes)
    assert [d.message for d in caught.value.diagnostics] == [message]


def test_all_shape_errors_are_reported_at_their_places() -> None:
    statements = "O(i) = A(i + 1) where i in 0:N\n  P(i) = B(i - 1) where i in 0:N"
    text = f"def f(float(N) A, float(N) B) -> (O, P) {{\n  {statements}\n}}"
    with pytest.raises(ShapeError) as caught:
        ranges(text, N=3)
    assert [d.span and text[d.span.start : d.span.end] for d in caught.value.diagnostics] == ["A(i + 1)", "B(i - 1)"]
    assert (caught.value.line, caught.value.column) == (2, 10)


@pytest.mark.parametrize(
    ("text", "sizes", "fragments"),
    [
        (
            "def f(float(N) A) -> (O) { O(2*i) = A(i) }",
            {"N": 3},
            ["O is handed out with elements that no statement writes, such as O(1)", "line 1: `O(2*i) = A(i)`"],
        ),
        (
            "def f(float(N, N) A) -> (O) { O(i, j) = A(i, j) where j in 0:i+1 }",
            {"N": 3},
            ["such as O(0, 1)"],
        ),
        (
            "def f(float(N) A) -> (O) { O(i) = A(i) where i in 0:2\nO(i) = A(i) where i in 3:N }",
            {"N": 5},
            ["such as O(2)", "line 1: `O(i) = A(i) where i in 0:2`; line 2: `O(i) = A(i) where i in 3:N`"],
        ),
        (
            "def f(float(N) A) -> (O) { t(2*i) = A(i)  O(i) = t(i) }",
            {"N": 3},
            ["t(i) reads elements of t that are not yet written, such as t(1)", "only by line 1: `t(2*i) = A(i)`"],
        ),
        (
            "def f(float(N) A) -> (O) { O(i) = A(i) where i in 0:3  O(i) += 1.0 where i in 0:N  O(i) = A(i) }",
            {"N": 5},
            ["`+=` accumulates into elements of O that are not yet written, such as O(3)"],
        ),
        ("def f(float(N) A) -> (O) { O(i / 2) = A(i) }", {"N": 4}, ["`=` writes elements of O more than once"]),
        (
            "def f(float(N) A) -> (O) { O(i + j) = A(i) + A(j) }",
            {"N": 4},
            ["`=` writes elements of O more than once"],
        ),
        (
            "def f(float(N) A) -> (float(N) O) { O(i) = A(i) where i in 1:N }",
            {"N": 4},
            ["no statement writes, such as O(0)"],
        ),
    ],
)
def test_mistakes_of_the_text(text: str, sizes: Mapping[str, int], fragments: list[str]) -> None:
    with pytest.raises(CompileError) as caught:
        infer(define(text)["f"], sizes)
    for fragment in fragments:
        assert fragment in caught.value.message


def test_an_indirect_read_needs_everything_that_it_may_reach() -> None:
    text = "def f(float(N) A, int32(M) L) -> (O) { t(2*i) = A(i)  O(m) = t(L(m)) }"
    with pytest.raises(CompileError, match=r"t\(L\(m\)\) reads elements of t that are not yet written, such as t\(1\)"):
        ranges(text, N=3, M=2)


@pytest.mark.parametrize(
    ("text", "messages"),
    [
        (
            "def f(float(N) I) -> (O) { O(h) +=! I(h + k) }",
            [
                "Unsolved variable: h, k. Inferred constraint: I(h + k) in bounds. Could not infer ranges",
            ],
        ),
        (
            "def f(float(N) I) -> (O) { O(i, j) = 3 }",
            [
                "Free variable i is unconstrained. Use a 'where' clause to set its range.",
                "Free variable j is unconstrained. Use a 'where' clause to set its range.",
            ],
        ),
        ("def f(float(N, M, N) I) -> (O) { O(i) +=! I(i, i + j, j) }", []),
        ("def f(float(N) I) -> (O) { O(h) +=! I(h + k) where k in 0:3 }", []),
        ("def f(float(N) I) -> (O) { O(i) = I(i % 4) }", ["Unsolved variable: i"]),
        ("def f(float(N) I) -> (O) { O(i) = I(i) + I(i % N) + I(N / (i + 1)) }", []),
        ("def f(float(N) I) -> (O) { O(i, j) = I(i) where i in 0:j, j in 0:i }", ["the ranges of i, j depend"]),
        ("def f(float(N) I) -> (O) { t(i) = 1.0  O(i) = t(i) }", ["Free variable i is unconstrained."]),
    ],
)
def test_what_no_sizes_can_solve(text: str, messages: list[str]) -> None:
    found = solvable(unchecked(text))
    assert len(found) == len(messages)
    assert all(d.message.startswith(m) for d, m in zip(found, messages, strict=True))


def test_the_hint_names_a_reduction_index() -> None:
    (found,) = solvable(unchecked("def f(float(N) I) -> (O) { O(h) +=! I(h + kh) }"))
    assert found.hint == "add a range, such as `where kh in 0:3`"


def test_hints_offer_a_size_and_each_index_once() -> None:
    statements = "O(h) +=! I(h + kh)  P(kh, x) = 1  P(kh, x) += 2"
    found = solvable(unchecked(f"def f(float(N) I, float(M,KH) J) -> (O, P) {{ {statements} }}"))
    assert len(found) > 2
    assert [d.hint for d in found if d.hint] == ["add `where kh in 0:KH`", "add a range, such as `where x in 0:KH`"]


def test_a_size_where_an_index_was_meant() -> None:
    text = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,K) * B(K,n) }"
    with pytest.raises(ShapeError) as caught:
        ranges(text, M=2, K=3, N=4)
    assert "`K` is a size here, not an index; did you mean `k`?" in str(caught.value)


def test_index_expressions_that_are_too_complex_end_in_an_error() -> None:
    subscript = "i"
    for k in range(14):
        subscript = f"({subscript} * {k + 2} % {k + 3} + (i * 3) % {k + 4})"
    function = define(f"def f(float(N) A) -> (O) {{ O(i) = A({subscript}) where i in 0:3 }}")["f"]
    with pytest.raises(ShapeError, match=r"too complex to analyse|too far"):
        infer(function, {"N": 7})
    assert infer(define("def f(float(N) A) -> (O) { O(i) = A(2*i) }")["f"], {"N": 7}).boxes["O"].extent == (4,)


@pytest.mark.parametrize("subscript", ["int8(i)", "sign(i)"])
def test_a_subscript_without_bounds_divides_nothing(subscript: str) -> None:
    text = f"def f(float(N) A) -> (B) {{ B(i) = A({subscript}) where i in 0:N }}"
    with pytest.raises(ShapeError, match="is not affine: it may have any value but dimension 0 of A has 9 elements"):
        infer(unchecked(text), {"N": 9})


def test_more_statements_are_analysed_for_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    statements = " ".join(f"O{k}(i) = A(i / 7 % {k + 3} + i % 5) where i in 0:N" for k in range(9))
    text = f"def f(float(N) A) -> ({', '.join(f'O{k}' for k in range(9))}) {{ {statements} }}"
    function = define(text)["f"]
    monkeypatch.setattr("tcomp.grammar.ranges.ranges._OPERATIONS", 1)
    assert len(infer(function, {"N": 40}).domains) == 9
    monkeypatch.setattr("tcomp.grammar.ranges.ranges._EACH", 0)
    with pytest.raises(ShapeError, match="too complex to analyse"):
        infer(function, {"N": 41})
