"""Functions that are made without isl's reader are those that it reads."""

from __future__ import annotations

import islpy as isl
import pytest

from tcomp.model.terms.functions import plain_function
from tcomp.model.terms.unions import map_from_text


@pytest.mark.parametrize(
    "text",
    [
        "{ S[i0, i1, i2] -> [i2, i0] }",
        "{ S0_v[i0] -> T[i0] }",
        "{ [i0, i1] -> [floor(i1/24), floor(i0/1)] }",
        "{ S[i0, i1, i2] -> S[32 * i0 + i1, i2] }",
        "{ S[i0] -> [7 * i0 + i0] }",
        "{ S[] -> [] }",
        "{ S[i0] -> T[] }",
    ],
)
def test_a_plain_function_is_the_relation_that_isl_reads(text: str) -> None:
    function = plain_function(text)
    assert function is not None
    made, read = isl.Map.from_multi_aff(function), isl.Map(text)
    assert str(made) == str(read) and made.plain_is_equal(read)
    assert map_from_text(text).plain_is_equal(read)


@pytest.mark.parametrize(
    "text",
    [
        "{ S[i0, i1] -> [i0 + i1] }",
        "{ S[i0] -> [floor((i0 + 1)/4)] }",
        "{ S[i0] -> [-i0] }",
        "{ S[i0] -> [o] : o <= i0 }",
        "{ S[i1, i0] -> [i0] }",
        "{ S[a] -> [a] }",
        "[n] -> { S[i0] -> [n] }",
        "{ S[i0] -> [3] }",
        "{ S[i0] -> [i1] }",
        "{ S[i0] -> [i00] }",
    ],
)
def test_any_other_text_is_left_to_isl(text: str) -> None:
    assert plain_function(text) is None
    assert map_from_text(text).is_equal(isl.Map(text))
