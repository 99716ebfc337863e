"""Warnings of what is not what was meant: comparisons that chain, and values of sizes that wrap."""

from __future__ import annotations

import pytest

from tcomp.grammar import define
from tcomp.grammar.ranges.ranges import infer


@pytest.mark.parametrize(
    ("condition", "warns"),
    [("0 < i < 2", True), ("0 <= i <= N", True), ("(0 < i) == (i < 2)", False), ("0 < i && i < 2", False)],
)
def test_chains(condition: str, warns: bool) -> None:
    function = define(f"def f(float(N) X) -> (Y) {{ Y(i) = {condition} ? X(i) : 0.0 }}")["f"]
    told = [str(w) for w in function.warnings if "do not chain" in w.message]
    assert bool(told) == warns
    assert all("help: write `0 <" in text and "&& i <" in text for text in told)


@pytest.mark.parametrize(
    ("value", "warns"),
    [
        ("float(N*N)", True), ("float(i*N - 1)", True), ("float(int64(N)*N)", False), ("float(N) * float(N)", False),
        ("X(i*1)", False), ("(N*N > 3 ? 1.0 : 0.0)", False), ("X(i) * N", False),
    ],
)  # fmt: skip
def test_values_of_sizes_that_wrap(value: str, warns: bool) -> None:
    function = define(f"def f(float(N) X) -> (Y) {{ Y(i) = X(i) + {value} }}")["f"]
    assert not infer(function, {"N": 40_000}).warnings
    told = infer(function, {"N": 50_000}).warnings
    assert [w.severity for w in told] == ["warning"] * warns
    assert all("int32 cannot hold, so that it wraps" in w.message for w in told)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("t < N-1 ? X(t) * X(t+1) : X(t)", "0:9"), ("X(t) + (t > 1 ? X(t-2) : 1.0)", "0:9"),
        ("t == 0 ? X(0) : X(t) - X(t-1)", "0:9"), ("X(t) + (t > 0 && W(t) > 0 ? X(t-1) : 1.0)", "0:9"),
        ("t < 3 ? X(t) : 0.0", None), ("X(t) * X(t+1)", None), ("X(t) + repeat_edge(X)(t-1)", None),
        ("W(t) > 0 ? X(t-1) : X(t)", None), ("X(t) + X(t-1) + (t > 0 ? X(t-1) : 0.0)", None),
    ],
)  # fmt: skip
def test_guarded_reads_that_end_ranges(value: str, told: str | None) -> None:
    sizes = {"N": 9}
    text = "def f(float(N) X, float(N) W) -> (Y) {{ Y(t) = {value}{where} }}"
    found = infer(define(text.format(value=value, where=""))["f"], sizes).warnings
    assert [w.hint.split()[-1].strip("`") for w in found if w.hint] == ([told] if told else [])
    if told:
        given = infer(define(text.format(value=value, where=f" where t in {told}"))["f"], sizes)
        assert not given.warnings and given.boxes["Y"].extent == (9,)
