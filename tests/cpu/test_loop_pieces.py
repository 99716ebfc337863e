"""Innermost loops are cut where a condition on their iterator changes."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tcomp as tc

HALVES = """def rotate(float(L,D) X, float(L,D) C) -> (Y) {
    Y(l,d) = d < D/2 ? X(l,d) * C(l,d) - X(l,d + D/2) : X(l,d) * C(l,d) + X(l,d - D/2)
    where d in 0:D }"""
EDGES = "def edges(float(L,D) X) -> (Y) { Y(l,d) = d > 0 && d + 1 < D ? X(l,d-1) + X(l,d+1) : X(l,d) where d in 0:D }"
MANY = "def steps(float(L,D) X) -> (Y) { Y(l,d) = X(l,d) * (d < 5 ? 1 : d >= 9 ? (d != 20 ? 2 : 3) : d == 7 ? 4 : 5) }"
OTHER = "def triangle(float(L,D) X) -> (Y) { Y(l,d) = d <= l ? X(l,d) : 0.0 }"
BORDER = "def border(float(L,D) X) -> (Y) { Y(l,d) = constant_exterior(X, 7)(l,2*d-3) * X(l,d) where d in 0:D }"


def begins(source: str) -> set[int]:
    """Where the loops begin that no other loop is in."""
    loops = re.findall(r"for \(long c\d+ = ([\d()+ -]+); [^{]*\{\n(?! *(?:for|#))", source)
    return {sum(int(n) for n in re.findall(r"[+-]?\d+", begin.replace(" ", ""))) for begin in loops}


@pytest.mark.parametrize(
    ("text", "expected"),
    [(HALVES, {0, 32}), (EDGES, {0, 1, 63}), (MANY, {0, 21}), (OTHER, {0}), (BORDER, {0, 2, 34})],
    ids=["halves", "edges", "longest", "another index", "border"],
)
def test_cuts(text: str, expected: set[int]) -> None:
    operation = tc.define(text)[text.split("(")[0].removeprefix("def ")]
    kernel = operation.compile(sizes={"L": 5, "D": 64}, options=tc.MappingOptions(parallel=False))
    assert expected <= begins(kernel.source), kernel.source
    most = 2 * len(expected) if len(expected) > 1 else 1
    assert len(begins(kernel.source)) <= most, "each piece has whole vectors, and a last one that overlaps them"


@pytest.mark.parametrize("text", [HALVES, EDGES, MANY, OTHER, BORDER])
@pytest.mark.parametrize("width", [22, 64, 70, 130])
def test_pieces_agree(text: str, width: int) -> None:
    operation = tc.define(text)[text.split("(")[0].removeprefix("def ")]
    names = [t.name for t in operation.function.inputs]
    values = np.random.default_rng(width).integers(-8, 8, (len(names), 5, width)).astype(np.float32)
    assert np.array_equal(operation(*values), operation.reference(*values))
