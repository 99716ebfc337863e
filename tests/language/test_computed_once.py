"""Temporaries that are the same along a dimension lose it, where that is proved and changes no value."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tcomp as tc
from tcomp.errors import LegalityError
from tcomp.grammar import define
from tcomp.grammar.ranges.ranges import infer
from tcomp.model.stepwise.once import Once, computed_once, prove_once

HEAD = "def f(int32(N,M) A, int32(M) K) -> (O)"
ROWS = "where i in 0:N"
START = f"int32(N,M) p(i,0) = K(0) {ROWS}"
STEP = "p(i,j) = p(i,j-1) * K(j) + 3"
LAST = "O(i,j) = p(i,j) + q(i,j)"
ONCE = {
    "with what reads it in one block": f"""{HEAD} {{ {START}  int32(N,M) q(i,0) = A(i,0) {ROWS}
        for j in 1:M {{ {STEP} {ROWS}  q(i,j) = q(i,j-1) + A(i,j) * p(i,j-1) {ROWS} }} {LAST} }}""",
    "made again": f"""{HEAD} {{ O(i,j) = A(i,j)  for t in 0:3 {{ {START}  for j in 1:M {{ {STEP} {ROWS} }}
        O(i,j) = O(i,j) + p(i,j)  for j in 1:M {{ p(i,j) = p(i,j-1) + t {ROWS} }} O(i,j) = O(i,j) * p(i,j) }} }}""",
    "read at a number": f"{HEAD} {{ {START}  for j in 1:M {{ {STEP} {ROWS} }} O(i,j) = A(i,j) * p(2,M-1-j) }}",
    "along the last dimension": f"""{HEAD} {{ int32(M,N) p(0,i) = 1 where i in 0:N
        for j in 1:M {{ p(j,i) = p(j-1,i) + K(j) {ROWS} }}
        O(i,j) = A(i,j) + p(j,i) }}""",
    "along two": f"""{HEAD} {{ int32(N,N,M) p(h,i,0) = 1 where h in 0:N, i in 0:N
        for j in 1:M {{ p(h,i,j) = p(h,i,j-1) + K(j) where h in 0:N, i in 0:N }}
        O(i,j) = A(i,j) + p(i,N-1-i,j) }}""",
    "of some rows": f"""{HEAD} {{ int32(N,M) p(i,0) = K(0) where i in 1:N-1
        for j in 1:M {{ {STEP} where i in 1:N-1 }}
        O(i,j) = A(i,j) where i in 0:N, j in 0:M  O(i,j) = p(i,j) where i in 1:N-1, j in 0:M }}""",
}  # fmt: skip
NOT_ONCE = {
    "its index is a value": f"""{HEAD} {{ {START}  for j in 1:M {{ p(i,j) = p(i,j-1) + i {ROWS} }}
        O(i,j) = A(i,j) + p(i,j) }}""",
    "rows of its own": f"{HEAD} {{ {START}  for j in 1:M {{ p(i,j) = p(i,j-1) + A(i,j) {ROWS} }} O(i,j) = p(i,j) }}",
    "the rows differ": f"""{HEAD} {{ {START}  for j in 1:M {{ {STEP} {ROWS} }} p(i,0) = 7 where i in 0:2
        O(i,j) = A(i,j) + p(i,j) }}""",
    "a triangle": f"""{HEAD} {{ p(i,j) = K(j) where i in 0:N, j in 0:M
        for t in 1:M {{ p(i,t) = 2 * K(t) where i in 0:min(t,N) }}
        O(i,j) = A(i,j) + p(i,j) }}""",
    "another row": f"""{HEAD} {{ {START}  for j in 1:M {{ p(i,j) = p(N-1-i,j-1) + K(j) {ROWS} }}
        O(i,j) = A(i,j) + p(i,j) }}""",
    "written by a step before": f"""{HEAD} {{ int32(N) p(i) = 1 {ROWS}  int32(N,M) q(i,0) = A(i,0) {ROWS}
        for j in 1:M {{ p(i) = p(i) + K(j) {ROWS}  q(i,j) = q(i,j-1) + p(i) {ROWS} }} O(i,j) = q(i,j) }}""",
    "overwritten later": f"""{HEAD} {{ int32(N,2) p(i,j) = 1 where i in 0:N, j in 0:2
        int32(N,M) q(i,0) = A(i,0) {ROWS}
        for j in 1:M {{ p(i,0) = p(i,1) + K(j) {ROWS}  p(i,1) = p(i,0) {ROWS}
        q(i,j) = q(i,j-1) + p(i,0) {ROWS} }} O(i,j) = q(i,j) }}""",
    "read between": f"""{HEAD} {{ {START}  int32(M) r(j) = 0 where j in 0:M
        for j in 1:M {{ p(i,j) = p(i,j-1) + r(j-1) {ROWS}  r(j) = p(0,j) * K(j) }}
        O(i,j) = A(i,j) + p(i,j) }}""",
    "at what data say": f"{HEAD} {{ {START}  for j in 1:M {{ {STEP} {ROWS} }} O(i,j) = A(i,j) + p(K(j),j) }}",
}  # fmt: skip

FEWER_ROWS = {
    "another tensor has more": f"""{HEAD} {{ int32(N-2,M) p(i,0) = K(0) where i in 0:N-2
        for j in 1:M {{ {STEP} where i in 0:N-2 }} O(i,j) = A(i,j) * p(i,j) }}""",
    "the next": f"{HEAD} {{ {START}  for j in 1:M {{ {STEP} {ROWS} }} O(i,j) = A(i,j) * p(i+1,j) - p(i,j) }}",
    "a sum": f"{HEAD} {{ {START}  for j in 1:M {{ {STEP} {ROWS} }} O(j) +=! A(i,j) * p(i+2,j) }}",
    "no other tensor": f"{HEAD} {{ {START}  for j in 1:M {{ {STEP} {ROWS} }} O(i,j) = p(i,j) + A(0,0) }}",
}  # fmt: skip
"""Programs in which an index has its range from the rows."""


def made_of(text: str) -> Once | None:
    function = define(text)["f"]
    return computed_once(function, infer(function, {"N": 5, "M": 37}))


@pytest.mark.parametrize(
    "text", [*ONCE.values(), *NOT_ONCE.values(), *FEWER_ROWS.values()], ids=[*ONCE, *NOT_ONCE, *FEWER_ROWS]
)
def test_values_are_those_of_the_text(text: str) -> None:
    f = tc.define(text).f
    rng = np.random.default_rng(0)
    A, K = rng.integers(-9, 9, (5, 37), np.int32), rng.integers(0, 5, 37, np.int32)
    kernel = f.compile(A, K)
    np.testing.assert_array_equal(kernel(A, K), f.reference(A, K))
    assert f.compile(A, K, plan=kernel.compilation.stages["pack"]).source == kernel.source


@pytest.mark.parametrize("name", ONCE)
def test_what_is_the_same_along_a_dimension_loses_it(name: str) -> None:
    made = made_of(ONCE[name])
    assert made is not None and made.tensor == "p"
    assert made.after.tensors["p"].rank == made.before.tensors["p"].rank - 1
    prove_once(made, infer(made.after, made.ranges.sizes))


@pytest.mark.parametrize("name", NOT_ONCE)
def test_what_may_differ_keeps_it(name: str) -> None:
    assert made_of(NOT_ONCE[name]) is None


def test_a_block_is_split_so_that_what_is_left_may_be_tiled() -> None:
    made = made_of(ONCE["with what reads it in one block"])
    assert made is not None
    first, second = (s.steps[0].number for s in made.after.statements if s.steps)
    assert first != second


def test_other_rows_or_elements_are_refused() -> None:
    made = made_of(ONCE["with what reads it in one block"])
    assert made is not None
    after = infer(made.after, made.ranges.sizes)
    fewer = infer(made.after, {"N": 5, "M": 36})
    for wrong, ranges in ((replace(made, dimension=1), after), (made, fewer)):
        with pytest.raises(LegalityError, match="is not the same along"):
            prove_once(wrong, ranges)
