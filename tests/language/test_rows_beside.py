"""Rows that need nothing of each other run all steps of a block in vectors of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.mapping.options.options import MappingOptions
from tests.language.test_time_tiles import check, tiled

pytestmark = pytest.mark.sweep(2)

HEAD = "def f({t}({shape}) A, {t}(M) c) -> (S) {{ S({at}) = A({at})  "
BLOCKS = {
    "first order": "for j in 1:M { S(@j) = 0.5 * S(@j-1) + c(j) * A(@j) where i in 0:N }",
    "second order": "for j in 2:M { S(@j) = 0.5 * S(@j-1) - 0.25 * S(@j-2) / (c(j) + 1.5) where i in 0:N }",
    "asks": "for j in 0:M { S(@j) = A(@j) + (j > 0 ? 0.5 * S(@j-1) : 0.0) - (j > 1 ? S(@j-2) : 0.0) where i in 0:N }",
    "backwards": "for j in 1:M { S(@M-1-j) = 0.5 * S(@M-j) + c(M-1-j) * S(@M-1-j) where i in 1:N-1 }",
    "ahead": "for j in 0:M-1 { S(@j) = 0.5 * S(@j) + 0.25 * S(@j+1) where i in 0:N }",
    "both": "for j in 1:M-1 { S(@j) = 0.5 * S(@j-1) + 0.25 * S(@j+1) + max(A(@j), c(j) - 0.5) where i in 0:N }",
    "neighbours": "for j in 1:M { S(@j) = 0.5 * S(@j-1) - abs(A(^j) + A(~j-1)) where i in 1:N-1 }",
    "none": "for j in 0:M { S(@j) = c(j) * A(@j) where i in 2:N }",
}


def program(block: str, dtype: str, along: bool) -> str:
    """A program whose steps go along rows in memory, or from row to row."""
    shape, at = ("N,M", "i,j") if along else ("M,N", "j,i")
    text = BLOCKS[block]
    for mark, row in (("@", "i"), ("^", "i-1"), ("~", "i+1")):
        parts = text.split(mark)
        if not along:
            for n in range(1, len(parts)):
                step, rest = parts[n].split(")", 1)
                parts[n] = f"{step},{row}){rest}"
        text = (f"{row}," if along else "").join(parts)
    return HEAD.format(t=dtype, shape=shape, at=at) + text + "}"


@pytest.mark.parametrize("along", [True, False])
@pytest.mark.parametrize("block", BLOCKS)
def test_rows_run_all_steps_in_vectors(block: str, along: bool) -> None:
    rng = np.random.default_rng(0)
    for dtype, n, m in (("double", 61, 23), ("float", 101, 18)):
        text = program(block, dtype, along)
        A, c = rng.random((n, m) if along else (m, n)), rng.random(m)
        if dtype == "float":
            A, c = A.astype(np.float32), c.astype(np.float32)
        made = tiled(text, {"N": n, "M": m}, 500)
        assert any("rows at a time" in note for note in made.source.notes), text
        given: Any = tc.define(text).f
        kernel = given.compile(A, c, plan=made.stages["pack"])
        tolerance = 1e-12 if dtype == "double" else 1e-5
        np.testing.assert_allclose(kernel(A, c), given.reference(A, c), rtol=tolerance, atol=tolerance)
        if dtype == "float":
            continue
        # Rows that lie apart in both directions, as every other one of a larger matrix does.
        wide = np.zeros((2 * A.shape[0], 3 * A.shape[1]), A.dtype)[::2, ::3]
        wide[...] = A
        np.testing.assert_array_equal(given.compile(wide, c)(wide, c), given.compile(A, c)(A, c))


def test_few_rows_few_steps_and_none() -> None:
    rng = np.random.default_rng(1)
    for along in (True, False):
        for block in ("asks", "backwards", "both"):
            text = program(block, "double", along)
            for n, m in ((3, 4), (40, 3), (1, 1), (33, 1), (29, 2)):
                A, c = rng.random((n, m) if along else (m, n)), rng.random(m)
                given: Any = tc.define(text).f
                np.testing.assert_allclose(given(A, c), given.reference(A, c), rtol=1e-12, err_msg=f"{text} {n} {m}")


def test_values_that_are_no_numbers_stay_in_their_rows() -> None:
    text = program("first order", "double", along=True)
    A, c = np.random.default_rng(2).random((50, 30)), np.ones(30)
    A[7, 3], A[20, 0], A[49, 29] = np.nan, np.inf, -np.inf
    check(text, {"N": 50, "M": 30}, A, c, cache=500)


@pytest.mark.parametrize(
    "block",
    [
        "for j in 1:M { S(i,j) = exp(-S(i,j-1)) where i in 0:N }",
        "for j in 2:M { S(i,j) = 0.5 * S(i,j-2) + A(i,j) where i in 0:N }",
        "for j in 1:M { S(i,j) = S(i,j-1) > 0.25 ? A(i,j) : c(j) where i in 0:N }",
    ],
)
def test_what_is_of_another_form_runs_as_before(block: str) -> None:
    text = HEAD.format(t="double", shape="N,M", at="i,j") + block + "}"
    rng = np.random.default_rng(3)
    A, c = rng.random((61, 23)), rng.random(23)
    assert not any("rows at a time" in note for note in tiled(text, {"N": 61, "M": 23}, 500).source.notes)
    check(text, {"N": 61, "M": 23}, A, c, cache=500)


def test_rows_pages_apart_are_scans_where_they_may_be() -> None:
    for m, scans in ((512, True), (513, False)):
        options = MappingOptions(fast_math=True)
        A, c = np.ones((96, m)), np.zeros(m)
        kernel = tc.define(program("first order", "double", along=True)).f.compile(A, c, options=options)
        assert any("as a scan" in note for note in kernel.compilation.source.notes) is scans
        np.testing.assert_allclose(kernel(A, c)[:, -1], 0.5 ** (m - 1.0))
