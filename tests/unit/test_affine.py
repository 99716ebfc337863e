"""isl functions and sets made from expressions agree with Python's own floor arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

import islpy as isl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tcomp.grammar import define
from tcomp.grammar.ranges.affine import to_pw_aff, to_set, where_may_hold
from tcomp.grammar.tree.forms import interval, is_exact, to_form
from tcomp.grammar.tree.function import Expr, Function, Read, Select, walk

SIZES = {"N": 7, "S": 3}
SPACE = isl.Set("{ S0[i, j] }").get_space()
POINTS = [(i, j) for i in range(-4, 9, 3) for j in range(-3, 6)]


def function(value: str) -> Function:
    text = f"def f(float(N, N) A, int32(N) T, const int S) -> (O) {{ O(i, j) = {value} where i in -4:9, j in -3:6 }}"
    return define(text)["f"]


def subscript(text: str) -> Expr:
    reads = [node for node in walk(function(f"A({text}, 0)").statements[0].value) if isinstance(node, Read)]
    return reads[0].subscripts[0]


def condition(text: str) -> Expr:
    found = next(n for n in walk(function(f"({text}) ? 1.0 : 0.0").statements[0].value) if isinstance(n, Select))
    return found.condition


def value_at(function: isl.PwAff, point: tuple[int, int]) -> int:
    at = isl.Set(f"{{ S0[{point[0]}, {point[1]}] }}")
    return int(str(function.intersect_domain(at).max_val()))


def holds_at(points: isl.Set, point: tuple[int, int]) -> bool:
    return not points.intersect(isl.Set(f"{{ S0[{point[0]}, {point[1]}] }}")).is_empty()


@dataclass(frozen=True)
class Pair:
    """One expression as tcomp text and as Python text."""

    tc: str
    python: str


LEAVES = st.sampled_from([Pair(t, t) for t in ("i", "j", "i", "j", "N", "S", "2", "5")])


def combined(inner: st.SearchStrategy[Pair]) -> st.SearchStrategy[Pair]:
    arithmetic = st.builds(
        lambda op, a, b: Pair(f"({a.tc} {op} {b.tc})", f"({a.python} {op} {b.python})"),
        st.sampled_from("+-"),
        inner,
        inner,
    )
    scaled = st.builds(
        lambda a, k: Pair(f"({a.tc} * {k})", f"({a.python} * {k})"), inner, st.sampled_from(["2", "3", "S", "N"])
    )
    divided = st.builds(
        lambda a, op, k: Pair(f"({a.tc} {op} {k})", f"({a.python} {'//' if op == '/' else op} {k})"),
        inner,
        st.sampled_from("/%"),
        st.sampled_from(["2", "3", "5", "S"]),
    )
    extreme = st.builds(
        lambda op, a, b: Pair(f"{op}({a.tc}, {b.tc})", f"{op}({a.python}, {b.python})"),
        st.sampled_from(["min", "max"]),
        inner,
        inner,
    )
    negated = st.builds(lambda a: Pair(f"(-{a.tc})", f"(-{a.python})"), inner)
    chosen = st.builds(
        lambda a, b, c: Pair(
            f"({a.tc} <= {b.tc} ? {b.tc} : {c.tc})", f"({b.python} if {a.python} <= {b.python} else {c.python})"
        ),
        inner,
        inner,
        inner,
    )
    return st.one_of(arithmetic, scaled, divided, extreme, negated, chosen)


EXPRESSIONS = st.recursive(LEAVES, combined, max_leaves=6)


@settings(max_examples=150, deadline=None)
@given(EXPRESSIONS)
def test_functions_agree_with_python(pair: Pair) -> None:
    result = to_pw_aff(subscript(pair.tc), SPACE, SIZES)
    assert result is not None
    for i, j in POINTS:
        assert value_at(result, (i, j)) == eval(pair.python, {"i": i, "j": j, **SIZES, "min": min, "max": max})


@settings(max_examples=150, deadline=None)
@given(EXPRESSIONS)
def test_intervals_enclose_and_exact_ones_are_tight(pair: Pair) -> None:
    form = to_form(subscript(pair.tc), SIZES)
    assert form is not None
    hull = {"i": (-4, 8), "j": (-3, 5)}
    values = [
        eval(pair.python, {"i": i, "j": j, **SIZES, "min": min, "max": max}) for i in range(-4, 9) for j in range(-3, 6)
    ]
    low, high = interval(form, hull)
    assert low <= min(values)
    assert max(values) <= high
    if is_exact(form):
        assert (low, high) == (min(values), max(values))


@pytest.mark.parametrize(
    ("tc", "python"),
    [
        ("i < j", "i < j"),
        ("i <= j", "i <= j"),
        ("i > j + 1", "i > j + 1"),
        ("i >= 2 * j", "i >= 2 * j"),
        ("i == j", "i == j"),
        ("i != j", "i != j"),
        ("!(i < j)", "not i < j"),
        ("i % 3 == 1 && j > 0", "i % 3 == 1 and j > 0"),
        ("i < 0 || j / 2 == 1", "i < 0 or j // 2 == 1"),
        ("i - S >= 0", "i - 3 >= 0"),
        ("min(i, j) > 0 && !(i == N || j == 2)", "min(i, j) > 0 and not (i == 7 or j == 2)"),
    ],
)
def test_conditions_agree_with_python(tc: str, python: str) -> None:
    points = to_set(condition(tc), SPACE, SIZES)
    assert points is not None
    for i, j in POINTS:
        assert holds_at(points, (i, j)) == eval(python, {"i": i, "j": j, "min": min})


@pytest.mark.parametrize("text", ["i * j", "T(i)", "i / j", "i + T(j)", "int32(float(i))", "uint8(i)"])
def test_what_is_not_affine(text: str) -> None:
    assert to_pw_aff(subscript(text), SPACE, SIZES) is None


@pytest.mark.parametrize("text", ["T(i) > 0", "i < 0.5", "i * j > 2", "i > 0 && T(i) > 0"])
def test_conditions_that_are_not_affine(text: str) -> None:
    assert to_set(condition(text), SPACE, SIZES) is None


def test_an_index_that_the_space_does_not_name() -> None:
    assert to_pw_aff(subscript("i + j"), isl.Set("{ S0[i] }").get_space(), SIZES) is None


def test_signed_casts_are_the_identity() -> None:
    result = to_pw_aff(subscript("int64(i) - int32(2)"), SPACE, SIZES)
    assert result is not None
    assert value_at(result, (5, 0)) == 3


def test_coefficients_beyond_64_bits() -> None:
    huge = {"N": 1 << 61, "S": 1 << 61}
    result = to_pw_aff(subscript("N * S * i + N"), SPACE, huge)
    assert result is not None
    assert value_at(result, (2, 0)) == (1 << 123) + (1 << 61)


@pytest.mark.parametrize(
    ("text", "truth", "expected"),
    [
        ("i > 0 && T(i) > 0", True, "{ S0[i, j] : i > 0 }"),
        ("i > 0 && T(i) > 0", False, "{ S0[i, j] }"),
        ("i > 0 || T(i) > 0", False, "{ S0[i, j] : i <= 0 }"),
        ("i > 0 || T(i) > 0", True, "{ S0[i, j] }"),
        ("!(i > 0 || T(i) > 0)", True, "{ S0[i, j] : i <= 0 }"),
        ("i > j", False, "{ S0[i, j] : i <= j }"),
        ("T(i) > 0", True, "{ S0[i, j] }"),
    ],
)
def test_where_a_condition_may_hold(text: str, truth: bool, expected: str) -> None:
    assert where_may_hold(condition(text), truth, SPACE, SIZES).is_equal(isl.Set(expected))
