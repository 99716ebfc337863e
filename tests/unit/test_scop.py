"""What passes ask of isl again and again is computed once."""

from __future__ import annotations

import islpy as isl

from tcomp.build import build
from tcomp.grammar import define
from tcomp.scop import Sizes, map_from_text


def test_a_text_is_read_once_and_what_it_says_stays() -> None:
    text = "{ S[i0, i1] -> [i1, floor(i0/4)] }"
    read = map_from_text(text)
    read.intersect_domain(isl.Set("{ S[i0, i1] : 0 <= i0 < 9 }")).apply_range(isl.Map("{ [a, b] -> [b] }")).coalesce()
    read.reverse().set_tuple_name(isl.dim_type.in_, "T").project_out(isl.dim_type.in_, 0, 1)
    assert map_from_text(text) is read
    assert read.is_equal(isl.Map(text))
    assert read.get_tuple_name(isl.dim_type.in_) == "S"


def test_extents_count_values_of_indices() -> None:
    function = define("def f(float(N,M) A) -> (S) { S(i) +=! A(i,j) where i in 2:N, j in 0:i }")["f"]
    scop = build(function, Sizes({"N": 7, "M": 9}))
    extents = {s.kind: s.extents for s in scop.statements}
    assert extents["init"] == (5,)
    assert extents["update"] == (5, 6)
