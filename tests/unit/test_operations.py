"""Tile operations: what is recognised, and what one run of an operation reads and writes."""

from __future__ import annotations

import islpy as isl
import pytest

from tcomp.driver import Compilation, lower
from tcomp.grammar import define
from tcomp.mapping.memory.places import places
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.operations import operation_reads, operation_writes, recognise_contraction
from tcomp.model.build import build
from tcomp.model.terms.sizes import Sizes
from tests.targets import CPU

CONTRACTIONS = {
    "C(m,n) +=! A(m,k) * B(k,n)": "M(m) N(n) K(k)",
    "C(m,n) += A(m,k) * B(n,k)": "M(m) N(n) K(k)",
    "C(n,m) +=! A(m,k) * double(B(k,n))": "M(m) N(n) K(k)",
    "C(m) +=! A(m,k) * B(k,k)": "M(m) K(k)",
    "C(m,h) +=! A(m,h+kh) * B(m,kh)": "batch(m) M(h) K(kh)",
    "C +=! A(i,j) * B(i,j)": "K(i j)",
}
OTHERS = (
    "C(m) max=! A(m,k) * B(m,k)",
    "C(m) +=! A(m,k)",
    "C(m) +=! A(m,k) * B(m,k) * A(m,k)",
    "C(m) +=! A(m,k) + B(m,k)",
)


def _function(statement: str) -> str:
    return f"def f(float(N,N) A, float(N,N) B) -> (C) {{ {statement} }}"


@pytest.mark.parametrize("statement", CONTRACTIONS)
def test_bundles(statement: str) -> None:
    scop = build(define(_function(statement))["f"], Sizes({"N": 12}))
    (update,) = [s for s in scop.statements if s.kind == "update"]
    assert str(recognise_contraction(update)) == CONTRACTIONS[statement]


@pytest.mark.parametrize("statement", OTHERS)
def test_what_is_no_sum_of_products_of_two_reads(statement: str) -> None:
    scop = build(define(_function(statement))["f"], Sizes({"N": 12}))
    (update,) = [s for s in scop.statements if s.kind == "update"]
    assert recognise_contraction(update) is None


def _compiled(statement: str) -> Compilation:
    options = MappingOptions(tile_sizes=(8, 8), register_tile=(4, 4))
    return lower(define(_function(statement))["f"], Sizes({"N": 12}), options, CPU)


def test_footprint_of_a_register_tile() -> None:
    """One contraction of a 4x4 tile reads four rows of A, four columns of B and its accumulators."""
    plan = _compiled("C(m,n) +=! A(m,k) * B(k,n)").plan
    (operation,) = plan.operations.values()
    (place,) = [p for p in places(plan.tree) if p.mark == operation.mark]
    prefix = place.prefixes[operation.statement]
    first = isl.UnionSet.from_set(prefix.range().lexmin())
    written = isl.UnionSet.from_set(operation_writes(plan.scop, operation, prefix).range())
    read = operation_reads(plan.scop, operation, prefix).intersect_domain(first).range()
    expected = (
        "{ A[m,k] : 0 <= m < 4 and 0 <= k < 12; B[k,n] : 0 <= n < 4 and 0 <= k < 12; C_acc0[m,n] : 0 <= m,n < 4 }"
    )
    assert read.is_equal(isl.UnionSet(expected))
    assert written.is_equal(isl.UnionSet("{ C_acc0[m,n] : 0 <= m,n < 12 }"))


def test_rows_reduce_in_vectors_and_data_dependent_ones_do_not() -> None:
    compilation = lower(
        define("def f(float(M,N) A) -> (C) { C(m) +=! A(m,k) }")["f"], Sizes({"M": 8, "N": 99}), MappingOptions(), CPU
    )
    assert [o.kind for o in compilation.plan.operations.values()] == ["reduce"]
    assert "part0 = part0 + *(const tc_float32_x16 *)&v_A" in compilation.source.text
    gathered = define("def f(float(N) T, int32(M,N) I) -> (C) { C(m) +=! T(I(m,k)) }")["f"]
    text = lower(gathered, Sizes({"N": 64, "M": 8}), MappingOptions(), CPU).source.text
    assert "part0" not in text
