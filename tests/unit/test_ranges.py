"""Range inference: extents, origins, domains, and every error that depends on sizes."""

from __future__ import annotations

from collections.abc import Mapping

import islpy as isl
import pytest

from tcomp.errors import CompileError, ShapeError, SourceText
from tcomp.grammar import check, define, parse
from tcomp.grammar.ranges.intervals import longest_run
from tcomp.grammar.ranges.ranges import Box, Ranges, infer
from tcomp.grammar.ranges.symbolic import symbolic_ranges
from tcomp.grammar.tree.function import Function

TensorBox = tuple[tuple[int, ...], tuple[int, ...]]


def ranges(text: str, **sizes: int) -> Ranges:
    return infer(define(text)["f"], sizes)


def box(text: str, tensor: str = "O", **sizes: int) -> TensorBox:
    found = ranges(text, **sizes).boxes[tensor]
    return found.origin, found.extent


def unchecked(text: str) -> Function:
    """The checked function without the structural run, which `define` adds."""
    (definition,) = parse(text)
    return check(definition, SourceText(text))


@pytest.mark.parametrize(
    ("body", "sizes", "expected"),
    [
        ("float(N) I) -> (O) { O(i) = I(i)", {"N": 5}, ((0,), (5,))),
        ("float(N) I) -> (O) { O(i) = I(123 * i)", {"N": 247}, ((0,), (3,))),
        ("float(N) I) -> (O) { O(i) = I(123 * i)", {"N": 246}, ((0,), (2,))),
        ("float(N) I) -> (O) { O(i) = I(i - 1)", {"N": 5}, ((1,), (5,))),
        ("float(N) I) -> (O) { O(i) = I(i + 5)", {"N": 5}, ((-5,), (5,))),
        ("float(N) I) -> (O) { O(i) = I(10 - i)", {"N": 5}, ((6,), (5,))),
        ("float(N) I) -> (O) { O(i) = I(2 * i) + I(2 * i + 1)", {"N": 7}, ((0,), (3,))),
        ("float(N) I) -> (O) { O(i) = I(i / 3)", {"N": 4}, ((0,), (12,))),
        ("float(N) I) -> (O) { O(i) = I((i + 1) / 3)", {"N": 4}, ((-1,), (12,))),
        ("float(N) I) -> (O) { O(i) = I(2 * (i / 3) + 1)", {"N": 4}, ((0,), (6,))),
        ("float(N) I) -> (O) { O(i) = I(i % 4) + I(i)", {"N": 6}, ((0,), (6,))),
        ("float(N) I) -> (O) { O(i) = I(i) + I(i % 4)", {"N": 3}, ((0,), (3,))),
        ("float(N) I) -> (O) { O(i) = I(min(i, 3)) where i in 0:9", {"N": 4}, ((0,), (9,))),
        ("float(N) I) -> (O) { O(i) = I(max(i, 2)) + I(min(i + 3, N - 1))", {"N": 8}, ((-3,), (11,))),
        ("float(N, M) I) -> (O) { O(i, j) = I(i, j) where i in 3:N-1", {"N": 9, "M": 4}, ((3, 0), (5, 4))),
        ("float(N) I, const int S) -> (O) { O(i) = I(S * i + S)", {"N": 10, "S": 3}, ((-1,), (4,))),
        ("float(N) I) -> (O) { O(i, j) = I(N - 1 - i) where j in 4:8", {"N": 3}, ((0, 4), (3, 4))),
        ("int32(K) L, float(V, D) T) -> (O) { O(k, d) = T(L(k), d)", {"K": 3, "V": 9, "D": 2}, ((0, 0), (3, 2))),
        ("float(N) I) -> (O) { O(i) = I(abs(i)) where i in -3:4", {"N": 4}, ((-3,), (7,))),
        ("float(N) I) -> (O) { O(i) = I(clamp(i - 1, 0, N - 1)) where i in 0:9", {"N": 4}, ((0,), (9,))),
        ("float(N) I) -> (O) { O(i) = select(i < N, I(i), 0.0) where i in 0:9", {"N": 4}, ((0,), (9,))),
        ("float(N) I) -> (O) { O(i) = I(i) where i in 0:(N > 6 ? 4 : 2)", {"N": 5}, ((0,), (2,))),
        ("float(N) I) -> (O) { O(i) = I(i) where i in 0:(N > 6 || N != 5 ? 4 : 2)", {"N": 7}, ((0,), (4,))),
        ("float(N) I) -> (O) { O(i) = I(i) where i in 0:(!(N > 4) ? 4 : 2)", {"N": 5}, ((0,), (2,))),
        ("float(N) I) -> (O) { O = 3.0", {"N": 3}, ((), ())),
        ("float(N) I) -> (O) { O +=! I(i)", {"N": 3}, ((), ())),
    ],
)
def test_extents(body: str, sizes: Mapping[str, int], expected: TensorBox) -> None:
    assert box(f"def f({body} }}", **sizes) == expected


def test_reduction_indices_are_solved_before_what_they_shift() -> None:
    text = "def f(float(N,C,H,W) I, float(M,C,KH,KW) K) -> (O) { O(n,m,h,w) +=! I(n,c,2*h+kh,3*w+kw) * K(m,c,kh,kw) }"
    found = ranges(text, N=2, C=3, H=11, W=12, M=4, KH=3, KW=2)
    assert found.boxes["O"] == Box((0, 0, 0, 0), (2, 4, 5, 4))
    assert found.domains[0].hull == {
        "n": (0, 1), "m": (0, 3), "h": (0, 4), "w": (0, 3), "c": (0, 2), "kh": (0, 2), "kw": (0, 1),
    }  # fmt: skip


def test_where_ranges_are_taken_before_the_first_round() -> None:
    text = "def f(float(N) I, float(K) W) -> (O) { O(h) +=! I(h + k) * W(k) where h in 0:N }"
    assert ranges(text, N=8, K=3).domains[0].hull == {"h": (0, 7), "k": (0, 0)}


def test_the_last_range_of_an_index_counts() -> None:
    text = "def f(float(N) I) -> (O) { O(i) = I(i) where i in 3:N, i in 1:N-1 }"
    assert box(text, N=6) == ((1,), (4,))


def test_exists_takes_part_in_inference_only() -> None:
    text = "def f(float(N) I) -> (O) { O(i) = 1.0 where exists I(i + 2) }"
    assert box(text, N=6) == ((-2,), (6,))


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("O(i+2) = I(i)", ((2,), (6,))),
        ("O(i) = I(i-2)", ((2,), (6,))),
        ("O(3+i-N) = I(i)", ((-3,), (6,))),
        ("O(i+2) +=! I(i)", ((2,), (6,))),
        ("T(i+2) = I(i)  O(j) = T(j)", ((2,), (6,))),
    ],
)
def test_what_one_statement_writes_begins_where_it_does(body: str, expected: TensorBox) -> None:
    text = f"def f(float(N) I) -> (O) {{ {body} }}"
    assert box(text, N=6) == expected
    spans = symbolic_ranges(define(text)["f"]).boxes["O"]
    assert tuple(first.value({"N": 6}) for first, _ in spans) == expected[0]


def test_what_several_write_begins_at_0() -> None:
    with pytest.raises(CompileError, match=r"elements that no statement writes, such as O\(0\)"):
        ranges("def f(float(N) I) -> (O) { O(i+2) = I(i)  O(i+3) = I(i) }", N=6)


def test_domains_are_named_ordered_and_exact() -> None:
    found = ranges("def f(float(N, N) I) -> (O) { O(i) +=! I(i, j) where j in 0:i+1 }", N=4).domains[0]
    assert found.indices == ("i", "j")
    assert found.domain.is_equal(isl.Set("{ S0[i, j] : 0 <= i < 4 and 0 <= j <= i }"))
    assert found.lhs.is_equal(isl.Set("{ S0[i] : 0 <= i < 4 }"))
    assert found.hull == {"i": (0, 3), "j": (0, 3)}
    assert not found.rectangular


def test_a_triangular_range_restricts_the_index_that_it_mentions() -> None:
    text = "def f(float(M, K) L, float(K, M) U) -> (O) { O(a, b) +=! L(a, r) * U(r, b) where r in 0:b+1 }"
    assert box(text, M=9, K=4) == ((0, 0), (9, 4))


def test_ranges_may_mention_indices_that_are_solved_later() -> None:
    text = "def f(float(N) I) -> (O) { O(i) +=! I(j) where i in 0:6, k in j:j+2, j in i/2:i+1 }"
    hull = infer(unchecked(text), {"N": 20}).domains[0].hull
    assert hull["i"] == (0, 5)
    assert hull["j"] == (0, 5)


def test_later_statements_see_the_hull_of_writes_so_far() -> None:
    text = """def f(float(N) A) -> (O, P) {
        O(i) = A(i) where i in 0:3
        O(i) = A(i) where i in 3:N
        P(i) = O(i + 1)
    }"""
    found = ranges(text, N=7)
    assert found.boxes["O"] == Box((0,), (7,))
    assert found.boxes["P"] == Box((-1,), (7,))


def test_a_reduction_is_confined_to_what_its_target_has() -> None:
    text = "def f(float(N) A, float(M) B) -> (O) { O(i) = A(i)  O(i) +=! B(i) }"
    assert box(text, N=3, M=5) == ((0,), (3,))


@pytest.mark.parametrize(
    ("body", "sizes", "expected"),
    [
        ("float(N) A) -> (O) { O(2*i) = A(i)  O(2*i+1) = A(i)", {"N": 4}, ((0,), (8,))),
        ("float(N) A) -> (O) { O(i, 0) = A(i)  O(i, 1) = A(i)", {"N": 4}, ((0, 0), (4, 2))),
        ("float(N) A, float(M) B) -> (O) { O(i) = A(i)  O(i + N) = B(i)", {"N": 4, "M": 3}, ((0,), (7,))),
        ("float(N) A, float(M) B) -> (O) { O(i) +=! A(i)  O(i + N) +=! B(i)", {"N": 4, "M": 3}, ((0,), (7,))),
        ("float(N) A) -> (O) { O(i / 2, i % 2) = A(i)", {"N": 6}, ((0, 0), (3, 2))),
        (
            "float(N) A) -> (O) { O(i / 2, i % 4) +=! A(i)  O(i, j) = 0.0 where i in 0:N/2, j in 0:4",
            {"N": 8},
            ((0, 0), (4, 4)),
        ),
        ("float(N) I, float(K) W) -> (O) { O(2*x + k) +=! I(x) * W(k)", {"N": 4, "K": 3}, ((0,), (9,))),
        ("float(N) A) -> (O) { O(i - 2) = A(i)", {"N": 5}, ((-2,), (5,))),
        ("float(N) A) -> (O) { O(N - 1 - i) = A(i)", {"N": 5}, ((0,), (5,))),
        ("float(N) A) -> (float(2*N) O) { O(2*i) = A(i)  O(2*i + 1) = A(i)", {"N": 3}, ((0,), (6,))),
        ("float(N) A) -> (float(N) O) { O(i) = A(i - 1)", {"N": 3}, ((1,), (3,))),
        ("float(N) A) -> (O) { O(i - j) +=! A(i) where j in 0:i+1", {"N": 5}, ((0,), (5,))),
    ],
)
def test_left_hand_subscripts(body: str, sizes: Mapping[str, int], expected: TensorBox) -> None:
    assert box(f"def f({body} }}", **sizes) == expected


def test_an_annotated_output_that_the_caller_passes_has_all_its_elements() -> None:
    text = "def f(float(N) A) -> (float(N) O, P) { O(i) += A(i) where i in 1:N-1  P(i) = O(i) }"
    found = ranges(text, N=6)
    assert found.boxes["O"] == Box((0,), (6,))
    assert found.boxes["P"] == Box((0,), (6,))


@pytest.mark.parametrize("extent", [0, 1])
def test_empty_inputs(extent: int) -> None:
    assert box("def f(float(N) A) -> (O) { O(i) = A(i) }", N=extent) == ((0,), (extent,))
    assert box("def f(float(N, M) A) -> (O) { O(i) +=! A(i, k) }", N=3, M=extent) == ((0,), (3,))


def test_an_empty_kernel_gives_the_neutral_element_everywhere() -> None:
    text = "def f(float(N) I, float(K) W) -> (O) { O(h) +=! I(h + k) * W(k) }"
    found = ranges(text, N=4, K=0)
    assert found.boxes["O"] == Box((0,), (5,))
    assert found.domains[0].domain.is_empty()
    assert found.domains[0].lhs.is_equal(isl.Set("{ S0[h] : 0 <= h <= 4 }"))


def test_an_empty_reduction_range_reads_nothing() -> None:
    text = "def f(float(N) I) -> (O) { O(i) +=! I(i + k) where i in 0:9, k in 5:2 }"
    found = ranges(text, N=4)
    assert found.domains[0].domain.is_empty()
    assert found.boxes["O"] == Box((0,), (9,))


def test_an_inferred_reduction_range_that_is_empty_is_told() -> None:
    text = "def f(float(N) A, float(K) W) -> (S) { S +=! A(i) * W(i+3) }"
    (warning,) = ranges(text, N=4, K=3).warnings
    assert str(warning) == (
        "<string>:1:48: warning: no value of i has A(i), W(i+3) in bounds, so S stays what it starts from (N=4, K=3)\n"
        "  def f(float(N) A, float(K) W) -> (S) { S +=! A(i) * W(i+3) }\n"
        "                                                 ^"
    )
    assert not ranges(text, N=4, K=4).warnings
    assert not ranges(text, N=0, K=3).warnings
    assert not ranges("def f(float(N) A) -> (S) { S +=! A(i) where i in 2:2 }", N=4).warnings


def test_guarded_reads_are_proved_under_their_guard() -> None:
    text = "def f(float(N) I) -> (O) { O(i) = (i >= 2 && i - 2 < N) ? I(i - 2) : 0.0 where i in 0:N+2 }"
    assert box(text, N=4) == ((0,), (6,))
    narrow = "def f(float(N) I) -> (O) { O(i) = (i >= 1) ? I(i - 2) : 0.0 where i in 0:N+2 }"
    with pytest.raises(ShapeError, match=r"I\(i - 2\) starts at -1 but dimension 0 of I has 4 elements, 1 too early"):
        ranges(narrow, N=4)


def test_guards_count_in_either_branch_and_with_parts_that_are_not_affine() -> None:
    text = """def f(float(N) I) -> (O) {
        O(i) = (i < 1) ? 0.0 : ((i <= N && I(0) > 0.0) ? I(i - 1) : 1.0) where i in 0:N+5
    }"""
    assert box(text, N=4) == ((0,), (9,))


def test_inference_counts_guarded_reads() -> None:
    assert box("def f(float(N) I) -> (O) { O(i) = (i >= 2) ? I(i - 2) : 0.0 }", N=4) == ((2,), (4,))


def test_boundary_reads_constrain_nothing() -> None:
    text = "def f(float(N) I) -> (O) { O(i) = constant_exterior(I, 0.0)(i - 3) + repeat_edge(I)(2 * i) where i in 0:9 }"
    assert box(text, N=4) == ((0,), (9,))
    with pytest.raises(CompileError, match="Free variable i is unconstrained"):
        define("def f(float(N) I) -> (O) { O(i) = repeat_edge(I)(i) }")


def test_edges_of_an_empty_tensor_cannot_be_repeated() -> None:
    text = "def f(float(N) I) -> (O) { O(i) = repeat_edge(I)(i) where i in 0:3 }"
    with pytest.raises(ShapeError, match="which has no elements"):
        ranges(text, N=0)
    constant = "def f(float(N) I) -> (O) { O(i) = constant_exterior(I, 1.0)(i) where i in 0:3 }"
    assert box(constant, N=0) == ((0,), (3,))


def test_products_of_indices_are_proved_by_interval_arithmetic() -> None:
    text = "def f(float(N) A) -> (O) { O(i, j) = A(i * j + 1) where i in 0:4, j in 0:3 }"
    assert box(text, N=8) == ((0, 0), (4, 3))
    with pytest.raises(ShapeError, match=r"not affine: it may lie anywhere from 1 to 7 but dimension 0 of A has 7"):
        ranges(text, N=7)


def test_recurrences_read_earlier_statements() -> None:
    text = "def f(float(N) A) -> (O) { O(i) = A(i)  O(i) = O(i - 1) + A(i) where i in 1:N }"
    assert box(text, N=5) == ((0,), (5,))


@pytest.mark.parametrize(
    ("points", "expected"),
    [
        ("{ [i] : 3 <= i <= 8 }", (3, 8)),
        ("{ [i] : 0 <= i <= 8 and i mod 4 <= 2 and i != 1 }", (4, 6)),
        ("{ [i] : 0 <= i <= 10 and i mod 4 <= 2 }", "ambiguous"),
        ("{ [i] : i = 2 or i = 5 }", "ambiguous"),
        ("{ [i] : i = 7 }", (7, 7)),
        ("{ [i] : 0 <= i <= 1000000 and i mod 1000 != 1 or i = 2001 }", (1002, 3000)),
    ],
)
def test_longest_run(points: str, expected: object) -> None:
    assert longest_run(isl.Set(points)) == expected


def test_reads_are_bounded_where_a_condition_is_an_equation() -> None:
    """isl knew ``p`` as ``(i + j) / 2``, and looked for no extrema of that."""
    text = "def f(float(N) X) -> (O) { O(i) +=! (i + j == 2*p ? X(p) : 0.0) where i in 0:N, j in 0:N, p in 0:2*N }"
    assert box(text, N=9) == ((0,), (9,))
    with pytest.raises(ShapeError, match=r"X\(p\) reaches 8 but dimension 0 of X has 7 elements, 2 too far"):
        ranges(text.replace("float(N) X", "float(N) Z, float(N-2) X"), N=9)
