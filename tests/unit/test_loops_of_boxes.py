"""Loops that are made without isl are those that isl makes."""

from __future__ import annotations

from dataclasses import replace

import islpy as isl
import pytest

from tcomp.driver import lower
from tcomp.grammar import define
from tcomp.loops.boxes import loops_of_boxes
from tcomp.loops.codegen import loops_of_isl, told_marks
from tcomp.loops.ir import LoopNode, render
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.tree import Band, Mark, Sequence, plant, rows
from tcomp.mapping.plan.values import Plan
from tcomp.model.terms.sizes import Sizes
from tests.targets import CPU

MM = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n)  C(m,n) = relu(C(m,n)) }"
CONV = """def f(float(N,H,W,C) I, float(KH,KW,C,F) K) -> (O) {
  O(n,h,w,f) +=! I(n,h+kh,w+kw,c) * K(kh,kw,c,f) where kh in 0:KH, kw in 0:KW
}"""
SOFTMAX = """def f(float(N,D) I) -> (O) {
  m(n) max=! I(n,d)  e(n,d) = exp(I(n,d) - m(n))  s(n) +=! e(n,d)  O(n,d) = e(n,d) / s(n)
}"""
MLP = """def f(float(B,N) I, float(O,N) V, float(P,O) W) -> (R) {
  H(b,o) +=! I(b,n) * V(o,n)  H(b,o) = relu(H(b,o))  R(b,p) +=! H(b,o) * W(p,o)
}"""
BLUR = "def f(float(H,W) I) -> (O) { T(h,w) = I(h,w) + I(h,w+1)  O(h,w) = T(h,w) + T(h+1,w) }"


def plan_of(text: str, sizes: dict[str, int]) -> Plan:
    return lower(define(text)["f"], Sizes(sizes), MappingOptions(), CPU).plan


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (MM, {"M": 128, "K": 96, "N": 64}),
        (MM, {"M": 301, "K": 1023, "N": 517}),
        (MM, {"M": 1, "K": 7, "N": 1}),
        (CONV, {"N": 1, "H": 30, "W": 30, "C": 16, "KH": 3, "KW": 3, "F": 48}),
        (CONV, {"N": 3, "H": 17, "W": 9, "C": 3, "KH": 1, "KW": 2, "F": 5}),
        (SOFTMAX, {"N": 100, "D": 200}),
        (MLP, {"B": 128, "N": 128, "O": 32, "P": 2}),
    ],
)
def test_they_are_those_of_isl(text: str, sizes: dict[str, int]) -> None:
    plan = plan_of(text, sizes)
    loops = loops_of_boxes(plan.tree, told_marks(plan))
    assert loops is not None and loops == loops_of_isl(plan), render(loops_of_isl(plan))


def test_what_is_no_box_in_tiles_is_left_to_isl() -> None:
    plan = plan_of(BLUR, {"H": 100, "W": 200})
    assert loops_of_boxes(plan.tree, told_marks(plan)) is None


def planted(sizes: tuple[int, ...], low: int = 0, high: int = 99, halves: bool = False) -> LoopNode | None:
    """The loops of one statement in tiles of some sizes, one in the other, and as isl has them."""
    plan = plan_of("def f(float(N) A) -> (O) { O(i) = A(i) }", {"N": 100})
    (statement,) = plan.scop.statements
    domain = isl.Set(f"{{ {statement.name}[i] : {low} <= i <= {high} }}")
    tree = Band(rows([(statement, [f"floor(i0/{size})" for size in (*sizes, 1)])]), 0)
    part = isl.UnionSet.from_set(domain.intersect(isl.Set(f"{{ {statement.name}[i] : i <= {high // 2} }}")))
    inside = Sequence(((part, Mark("one", tree)), (isl.UnionSet.from_set(domain).subtract(part), Mark("other", tree))))
    plan = replace(plan, tree=plant(isl.UnionSet.from_set(domain), inside if halves else Mark("group0", tree)))
    loops = loops_of_boxes(plan.tree, told_marks(plan))
    assert loops is None or loops == loops_of_isl(plan), render(loops_of_isl(plan))
    return loops


@pytest.mark.parametrize(
    "sizes", [(), (8,), (30, 10), (64, 16, 4), (100, 7), (100, 100), (128, 1, 200), (16, 16), (99,)]
)
def test_tiles_in_tiles(sizes: tuple[int, ...]) -> None:
    assert planted(sizes) is not None


def test_tiles_that_do_not_divide_others_are_left_to_isl() -> None:
    assert planted((30, 8)) is None and planted((8, 30)) is None


def test_parts_of_domains_are_left_to_isl() -> None:
    assert planted((8,), halves=True) is None


def test_domains_that_begin_elsewhere() -> None:
    assert planted((8,), low=16) is not None and planted((50, 10), low=-100, high=-1) is not None
    # The first tile is not full: its loop has two lower bounds.
    assert planted((8,), low=3) is None
