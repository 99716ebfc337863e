"""How often the nodes of a loop nest run."""

from __future__ import annotations

import pytest

import tcomp as tc
from tcomp.loops.counting import placed, runs
from tcomp.loops.ir import Block, Execute, For, If, LoopNode, Number, Operation, Variable


def _loop(name: str, lower: int, upper: int, body: LoopNode) -> For:
    return For(name, Number(lower), Number(upper), 1, body)


def test_a_triangle_is_counted_exactly_where_it_is_small_and_nearly_where_not() -> None:
    for size in (5, 9, 400):
        call = Execute("S", (Variable("i"), Variable("j")))
        inner = For("j", Variable("i"), Number(size), 1, call)
        count = runs(_loop("i", 0, size, inner))[0, 0]
        assert count == pytest.approx(size * (size + 1) / 2, rel=0 if size < 10 else 0.02)


def test_a_condition_that_holds_once_counts_once() -> None:
    often, once = Execute("S", ()), Execute("S", ())
    test = Operation("<=", (Operation("+", (Operation("*", (Variable("i"), Number(8))), Number(8))), Number(797)))
    counts = runs(_loop("i", 0, 100, If(test, often, once)))
    assert (counts[0, 0], counts[0, 1]) == (pytest.approx(99), pytest.approx(1))


def test_what_no_iterator_says_counts_as_one_and_as_true() -> None:
    call, other = Execute("S", ()), Execute("T", ())
    nest = Block((For("e", Number(0), Variable("end"), 1, call), If(Variable("known"), other, None)))
    counts = runs(nest)
    assert (counts[0, 0], counts[1, 0]) == (1, 1)


PROGRAMS = (
    ("def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }", {"M": 130, "K": 70, "N": 33}),
    ("def f(float(H,W) I) -> (O) { O(y,x) = I(y,x) + I(y+1,x+1) where y in 0:H-1, x in 0:W-1 }", {"H": 70, "W": 301}),
    (
        "def f(float(M,M) A, float(M,M) D) -> (C) { C(m,n) = D(m,n)\n C(m,n) += A(m,k) * A(n,k) where n in 0:m+1 }",
        {"M": 400},
    ),
)


@pytest.mark.parametrize(("text", "sizes"), PROGRAMS)
def test_counts_of_compiled_loops_are_those_of_the_domains(text: str, sizes: dict[str, int]) -> None:
    compilation = tc.define(text).f.compile(sizes=sizes, target="cpu").compilation
    counts, places = runs(compilation.loops), list(placed(compilation.loops))
    for statement in compilation.plan.scop.statements:
        points = statement.domain.count_val().to_python()
        calls = [path for path, node in places if isinstance(node, Execute) and node.statement == statement.name]
        counted = sum(counts.get(path, 0) for path in calls)
        # Tiles on a diagonal are computed whole.
        assert 0.95 * points <= counted <= (1.25 if "m+1" in text else 1.05) * points
