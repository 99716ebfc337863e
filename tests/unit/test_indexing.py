"""Integer expressions under known ranges: simplified ones have the same values, and bounds hold."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tcomp.loops.indexing import Ranges, Sum
from tcomp.loops.ir import LoopExpr, Number, Operation, Variable

KNOWN = {"b": (0, 3), "t": (0, 15), "c": (-2, 1), "one": (5, 5)}


def evaluate(expr: LoopExpr, values: dict[str, int]) -> int:
    match expr:
        case Number(value=value):
            return value
        case Variable(name=name):
            return values[name]
        case Operation(operator=operator, operands=operands):
            v = [evaluate(o, values) for o in operands]
            match operator:
                case "?:":
                    return v[1] if v[0] else v[2]
                case "+":
                    return v[0] + v[1]
                case "-":
                    return v[0] - v[1]
                case "*":
                    return v[0] * v[1]
                case "floordiv":
                    return v[0] // v[1]
                case "mod":
                    return v[0] % v[1]
                case "min":
                    return min(v)
                case "max":
                    return max(v)
                case "&&":
                    return int(bool(v[0]) and bool(v[1]))
                case "||":
                    return int(bool(v[0]) or bool(v[1]))
                case _:
                    return int({"==": v[0] == v[1], "<": v[0] < v[1], "<=": v[0] <= v[1],
                                ">": v[0] > v[1], ">=": v[0] >= v[1]}[operator])  # fmt: skip
    raise AssertionError(expr)


def points() -> list[dict[str, int]]:
    ranges = [range(low, high + 1) for low, high in KNOWN.values()]
    return [dict(zip(KNOWN, p, strict=True)) for p in itertools.product(*ranges)]


POINTS = points()

leaves = st.one_of(st.integers(-40, 40).map(Number), st.sampled_from(list(KNOWN)).map(Variable))


def _grown(inner: st.SearchStrategy[LoopExpr]) -> st.SearchStrategy[LoopExpr]:
    return st.one_of(
        st.builds(lambda o, a, b: Operation(o, (a, b)), st.sampled_from(["+", "-", "min", "max"]), inner, inner),
        st.builds(lambda n, a: Operation("*", (Number(n), a)), st.integers(-9, 64), inner),
        st.builds(
            lambda o, a, n: Operation(o, (a, Number(n))),
            st.sampled_from(["floordiv", "mod"]),
            inner,
            st.integers(1, 70),
        ),
    )


expressions = st.recursive(leaves, _grown, max_leaves=8)
conditions = st.recursive(
    st.builds(
        lambda o, a, b: Operation(o, (a, b)), st.sampled_from(["==", "<", "<=", ">", ">="]), expressions, expressions
    ),
    lambda inner: st.builds(lambda o, a, b: Operation(o, (a, b)), st.sampled_from(["&&", "||"]), inner, inner),
    max_leaves=3,
)


@settings(max_examples=300, deadline=None)
@given(expressions)
def test_simplified_expressions_have_the_same_values_within_their_bounds(expr: LoopExpr) -> None:
    ranges = Ranges(KNOWN)
    simple, bounds = ranges.simplify(expr), ranges.bounds(expr)
    assert bounds is not None
    for values in POINTS[::7]:
        value = evaluate(expr, values)
        assert evaluate(simple, values) == value
        assert bounds[0] <= value <= bounds[1]


@settings(max_examples=300, deadline=None)
@given(conditions)
def test_conditions_lose_only_what_always_holds(condition: LoopExpr) -> None:
    ranges = Ranges(KNOWN)
    simple, decided = ranges.condition(condition), ranges.decide(condition)
    for values in POINTS[::7]:
        value = evaluate(condition, values)
        assert evaluate(simple, values) == value
        assert decided is None or value == decided


def _place(tile: int) -> LoopExpr:
    """The coordinate of thread ``t`` in tile ``b``."""
    return Operation("+", (Operation("*", (Number(tile), Variable("b"))), Variable("t")))


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (Operation("mod", (_place(128), Number(64))), "t"),
        (Operation("floordiv", (_place(16), Number(16))), "b"),
        (Operation("-", (Variable("one"), Number(5))), "0"),
        (Operation("min", (Variable("t"), Number(15))), "t"),
        (Operation("-", (Number(7), Variable("t"))), "(7 - t)"),
    ],
)
def test_what_tiling_and_dealing_leave_is_undone(expr: LoopExpr, text: str) -> None:
    assert str(Ranges(KNOWN).simplify(expr)) == text


def test_unknown_iterators_have_no_bounds() -> None:
    assert Ranges({}).bounds(Variable("n")) is None
    assert Ranges({}).decide(Operation("<", (Variable("n"), Number(3)))) is None
    assert Ranges({}).bounds(Operation("mod", (Variable("n"), Number(4)))) == (0, 3)


def test_sums_have_one_coefficient_for_each_variable() -> None:
    tile = Variable("tile")
    difference = Operation("-", (Operation("*", (Number(3), tile)), Operation("+", (tile, Number(5)))))
    assert Ranges({}).sum_of(difference) == Sum({tile: 2}, -5)
    rest = Operation("mod", (tile, Number(2)))
    assert Ranges({}).sum_of(rest) == Sum({rest: 1}, 0)
