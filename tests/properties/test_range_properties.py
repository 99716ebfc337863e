"""Range inference against enumeration: the largest runs, accesses inside, elements written."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tcomp.errors import CompileError, ShapeError, SourceText
from tcomp.grammar import check, parse
from tcomp.grammar.ranges.ranges import Box, infer
from tcomp.grammar.tree.function import Function


def unchecked(text: str) -> Function:
    """The checked function without the structural run, which `define` adds."""
    (definition,) = parse(text)
    return check(definition, SourceText(text))


ATOMS = [
    "i",
    "i / 2",
    "i % 3",
    "2 * i + 1",
    "i / 3 + i % 3",
    "i + i / 2",
    "max(i, 2)",
    "min(i, 6)",
    "5 - i",
    "7 - i / 2",
]


WINDOW = range(-60, 61)


def python(text: str) -> str:
    """Program text as Python text; at most one conditional expression."""
    for tc, other in (("/", "//"), ("&&", " and "), ("||", " or "), ("!(", " not (")):
        text = text.replace(tc, other)
    if "?" in text:
        condition, branches = text.split("?")
        then, otherwise = branches.split(":")
        text = f"{then} if {condition} else {otherwise}"
    return text.strip()


def longest_runs(values: list[int]) -> list[list[int]]:
    """The runs of consecutive integers that share the greatest length."""
    runs = [[v for _, v in group] for _, group in itertools.groupby(enumerate(values), lambda p: p[1] - p[0])]
    longest = max((len(run) for run in runs), default=0)
    return [run for run in runs if len(run) == longest]


def solved_interval(text: str, good: list[int], **sizes: int) -> None:
    """Inference gives `i` the unique longest run of the good values, or an error where there is none."""
    runs = longest_runs(good)
    unbounded = bool(good) and (good[0] == WINDOW[0] or good[-1] == WINDOW[-1])
    try:
        low, high = infer(unchecked(text), sizes).domains[0].hull["i"]
    except ShapeError:
        assert unbounded or len(runs) != 1
    else:
        assert not unbounded
        assert [*range(low, high + 1)] in (runs or [[]])


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from(ATOMS), min_size=1, max_size=3, unique=True), st.integers(1, 12))
def test_one_variable_gets_the_largest_run_on_which_all_reads_are_inside(subscripts: list[str], extent: int) -> None:
    text = f"def f(float(N) A) -> (O) {{ O(i) = {' + '.join(f'A({s})' for s in subscripts)} }}"
    names = {"min": min, "max": max}
    good = [v for v in WINDOW if all(0 <= eval(python(s), names | {"i": v}) < extent for s in subscripts)]
    solved_interval(text, good, N=extent)


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(["i + j", "2 * i - j", "i / 2 + j", "(i + j) / 2", "(i + j) % 5 + i", "max(i, j)", "j * 3 - i"]),
    st.integers(1, 3),
    st.integers(4, 14),
)
def test_a_second_round_holds_for_all_values_of_the_first(subscript: str, inner: int, outer: int) -> None:
    text = f"def f(float(N) A, float(K) B) -> (O) {{ O(i) +=! A({subscript}) * B(j) }}"
    names = {"max": max}
    good = [
        v for v in WINDOW if all(0 <= eval(python(subscript), names | {"i": v, "j": j}) < outer for j in range(inner))
    ]
    solved_interval(text, good, N=outer, K=inner)


SUBSCRIPTS = [
    "i + j", "2 * i - j", "i * 3 + j", "(i + 2 * j) / 3", "(i - j) % 4", "min(i, 2) + j", "i % 2 * 3 + j",
    "i > j ? i : 4 - j", "3 - i + j / 2", "i / 2 * 2 + i % 2",
]  # fmt: skip


@settings(max_examples=120, deadline=None)
@given(
    st.sampled_from(SUBSCRIPTS),
    st.sampled_from(["j <= 2", "i > j", "i % 2 == 0 && j < 3", "i + j >= 2 || j == 0", "!(i == j)"]),
    st.integers(1, 13),
    st.booleans(),
)
def test_a_guarded_read_is_refused_exactly_where_it_gets_outside(
    subscript: str, guard: str, extent: int, truth: bool
) -> None:
    branches = f"A({subscript}) : 0.0" if truth else f"0.0 : A({subscript})"
    text = f"def f(float(N) A) -> (O) {{ O(i, j) = ({guard}) ? {branches} where i in 0:5, j in 0:4 }}"
    names = [{"i": i, "j": j, "min": min} for i in range(5) for j in range(4)]
    reached = [eval(python(subscript), point) for point in names if eval(python(guard), point) == truth]
    if all(0 <= value < extent for value in reached):
        infer(unchecked(text), {"N": extent})
        return
    with pytest.raises(ShapeError, match=r"A\(.*\) (reaches|starts at|goes from)"):
        infer(unchecked(text), {"N": extent})


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(SUBSCRIPTS), st.sampled_from(SUBSCRIPTS), st.booleans(), st.booleans())
def test_an_output_is_refused_exactly_where_elements_are_missing_or_written_twice(
    first: str, second: str, reduces: bool, triangular: bool
) -> None:
    assume(reduces or "j" in first + second)
    bound = "i + 1" if triangular else "4"
    text = f"def f() -> (O) {{ O({first}, {second}) {'+=!' if reduces else '='} 1.0 where i in 0:5, j in 0:{bound} }}"
    points = [(i, j) for i in range(5) for j in range(i + 1 if triangular else 4)]
    names = [{"i": i, "j": j, "min": min} for i, j in points]
    written = [tuple(eval(python(s), point) for s in (first, second)) for point in names]
    lows = [min(0, *column) for column in zip(*written, strict=True)]
    extents = tuple(max(column) - low + 1 for column, low in zip(zip(*written, strict=True), lows, strict=True))
    complete = len(set(written)) == extents[0] * extents[1]
    injective = len(set(written)) == len(written)
    if complete and (reduces or injective):
        assert infer(unchecked(text), {}).boxes["O"] == Box(tuple(lows), extents)
        return
    with pytest.raises(CompileError) as caught:
        infer(unchecked(text), {})
    assert any("more than once" in d.message for d in caught.value.diagnostics) == (not reduces and not injective)
    assert any("no statement writes" in d.message for d in caught.value.diagnostics) == (not complete)
