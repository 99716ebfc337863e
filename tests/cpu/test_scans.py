"""Cumulative reductions: each step runs once, and nothing that only looks like one is taken for one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import islpy as isl
import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.c.loops.blockscans import BlockedValue, running_value
from tcomp.backends.c.loops.scans import scan_below
from tcomp.errors import LegalityError
from tcomp.grammar import define
from tcomp.loops.ir import Block, Execute, For, Variable, walk
from tcomp.mapping.machines.fitted.cpusharing import SHARING
from tcomp.mapping.tiles.scanparts import in_parts, long_scan, prove_parts
from tcomp.mapping.tiles.scans import is_independent
from tcomp.model.build import build
from tcomp.model.scop import ScopStatement
from tcomp.model.terms.sizes import Sizes

pytestmark = pytest.mark.sweep(2)

Array = np.ndarray[Any, np.dtype[Any]]

SERIAL = tc.MappingOptions(parallel=False)


def integers(*shape: int, dtype: Any = np.float32) -> Array:
    return np.random.default_rng(shape).integers(-3, 4, shape).astype(dtype)


def scans(kernel: Any) -> bool:
    assert ("tc_running" in kernel.source) == any(o.kind == "scan" for o in kernel.compilation.plan.operations.values())
    return "tc_running" in kernel.source


def backwards(X: Array) -> Array:
    """The sums from each element of a row on."""
    return X[:, ::-1].cumsum(1)[:, ::-1]


SCANS: dict[str, tuple[str, Any]] = {
    "sums": ("Y(n,i) +=! X(n,j) where i in 0:D, j in 0:i+1", lambda X: X.cumsum(1)),
    "sums of those before": ("Y(n,i) +=! X(n,j) where i in 0:D, j in 0:i", lambda X: X.cumsum(1) - X),
    "sums of squares": ("Y(n,i) +=! X(n,j) * X(n,j) where i in 0:D, j in 0:i+1", lambda X: (X * X).cumsum(1)),
    "extrema": ("Y(n,i) max=! X(n,j) where i in 0:D, j in 0:i+1", lambda X: np.maximum.accumulate(X, 1)),
    "every other step": ("Y(n,i) +=! X(n,j) where i in 0:D/2, j in 0:2*i+1", lambda X: X.cumsum(1)[:, ::2]),
    "down the columns": ("Y(i,d) +=! X(j,d) where i in 0:N, j in 0:i+1", lambda X: X.cumsum(0)),
    "from a step on": ("Y(n,i) +=! X(n,j) where i in 5:D, j in 3:i-1", lambda X: X[:, 3:-2].cumsum(1)),
    "a limit": (
        "Y(n,i) +=! X(n,j) where i in 0:D, j in 0:min(i+1,9)",
        lambda X: np.concatenate([X[:, :9].cumsum(1), np.repeat(X[:, :9].sum(1)[:, None], X.shape[1] - 9, 1)], 1),
    ),
    "sums of those behind": ("Y(n,i) +=! X(n,j) where i in 0:D, j in i:D", backwards),
    "extrema of those behind some": (
        "Y(n,i) max=! X(n,j) where i in 0:D-3, j in i+3:D",
        lambda X: np.maximum.accumulate(X[:, ::-1], 1)[:, ::-1][:, 3:],
    ),
    "fewer from the first on": (
        "Y(n,i) +=! X(n,j) where i in 0:D, j in 0:D-i",
        lambda X: X.cumsum(1)[:, ::-1],
    ),
    "more from the last on": (
        "Y(n,i) +=! X(n,j) where i in 0:D, j in D-1-i:D",
        lambda X: X[:, ::-1].cumsum(1),
    ),
    "up the columns": ("Y(i,d) +=! X(j,d) where i in 0:N, j in i:N", lambda X: X[::-1].cumsum(0)[::-1]),
    "sums of what is made beside them": (
        "P(n,i) = X(n,i) * 2  Y(n,i) +=! P(n,j) where i in 0:D, j in 0:i+1",
        lambda X: (2 * X).cumsum(1),
    ),
    "means of those behind": (
        "S(n,i) +=! X(n,j) where i in 0:D, j in i:D  Y(n,i) = S(n,i) / (D - i)",
        lambda X: (backwards(X) / np.arange(X.shape[1], 0, -1)).astype(np.float32),
    ),
    "means": (
        "S(n,i) +=! X(n,j) where i in 0:D, j in 0:i+1  Y(n,i) = S(n,i) / (i + 1)",
        lambda X: (X.cumsum(1) / np.arange(1, X.shape[1] + 1)).astype(np.float32),
    ),
}


@pytest.mark.parametrize("name", SCANS)
def test_each_step_of_a_cumulative_reduction_runs_once(name: str) -> None:
    statement, expected = SCANS[name]
    f = tc.define(f"def f(float(N,D) X) -> (Y) {{ {statement} }}")["f"]
    X = integers(11, 70)
    kernel = f.compile(X)
    assert scans(kernel)
    np.testing.assert_array_equal(kernel(X), expected(X))
    assert f.compile(X, plan=kernel.stages["place"]).source == kernel.source
    tiled = f.compile(X, options=tc.MappingOptions(tile_sizes=(4, 13), parallel=False))
    np.testing.assert_array_equal(tiled(X), expected(X))


DOWN: dict[str, tuple[str, Any]] = {
    "sums": ("Y(b,i,d) +=! X(b,j,d) where i in 0:N, j in 0:i+1", lambda X: X.cumsum(1)),
    "sums of those before": ("Y(b,i,d) +=! X(b,j,d) where i in 0:N, j in 0:i", lambda X: X.cumsum(1) - X),
    "sums of those behind": ("Y(b,i,d) +=! X(b,j,d) where i in 0:N, j in i:N", lambda X: X[:, ::-1].cumsum(1)[:, ::-1]),
    "extrema": ("Y(b,i,d) max=! X(b,j,d) where i in 0:N, j in 0:i+1", lambda X: np.maximum.accumulate(X, 1)),
    "squares, of every other": (
        "Y(b,i,d) +=! X(b,j,d) * X(b,j,d) where i in 0:N/2, j in 0:2*i+1", lambda X: (X * X).cumsum(1)[:, ::2]),
    "means": (
        "S(b,i,d) +=! X(b,j,d) where i in 0:N, j in 0:i+1  Y(b,i,d) = S(b,i,d) / (i + 1)",
        lambda X: X.cumsum(1) / np.arange(1, X.shape[1] + 1, dtype="f4")[:, None]),
    "of every other column": (
        "Y(b,i,d) +=! X(b,j,d) where i in 0:N, j in 0:i+1, d in 0:D/2", lambda X: X.cumsum(1)[:, :, : X.shape[2] // 2]),
}  # fmt: skip


@pytest.mark.parametrize("name", DOWN)
def test_sums_down_columns_run_along_rows(name: str) -> None:
    statement, expected = DOWN[name]
    f = tc.define(f"def f(float(B,N,D) X) -> (Y) {{ {statement} }}")["f"]
    X = integers(2, 12, 2100)
    kernel = f.compile(X)
    assert "tc_running[" in kernel.source
    np.testing.assert_array_equal(kernel(X), expected(X))
    tiled = f.compile(X, options=tc.MappingOptions(tile_sizes=(2, 5, 70), parallel=False))
    np.testing.assert_array_equal(tiled(X), expected(X))


def test_tiles_of_many_columns_do_not_fill_the_stack() -> None:
    f = tc.define("def f(double(N,D) X) -> (Y) { Y(i,d) +=! X(j,d) where i in 0:N, j in 0:i+1 }")["f"]
    X = integers(2, 5000).astype(np.float64)
    kernel = f.compile(X, options=tc.MappingOptions(tile_sizes=(0, 0), parallel=False))
    assert "tc_running[" not in kernel.source
    np.testing.assert_array_equal(kernel(X), X.cumsum(0))


def test_few_columns_run_one_by_one() -> None:
    f = tc.define("def f(float(N,D) X) -> (Y) { Y(i,d) +=! X(j,d) where i in 0:N, j in 0:i+1 }")["f"]
    kernel = f.compile(integers(90, 7))
    assert scans(kernel)
    assert "tc_running[" not in kernel.source


def test_data_may_choose_what_is_summed_down_columns() -> None:
    f = tc.define(
        "def f(float(N,D) X, int32(N) p) -> (Y) { Y(i,d) +=! X(p(j),d) where i in 0:N, j in 0:i+1, d in 0:D }"
    )["f"]
    X, p = integers(12, 70), np.random.default_rng(0).permutation(12).astype(np.int32)
    kernel = f.compile(X, p)
    assert "tc_running[" in kernel.source
    np.testing.assert_array_equal(kernel(X, p), X[p].cumsum(0))
    p[5] = 12
    with pytest.raises(tc.TcompError, match="i = 5"):
        kernel(X, p)


def test_a_dimension_of_one_element_beside_a_scan() -> None:
    """Its loop is around what starts and what finishes an element, too, and so is the mark of the scan."""
    f = tc.define("def f(float(N,M) X) -> (Y) { Y(i,k) +=! X(j,k) where i in 0:N, j in 0:i+1 }")["f"]
    X = integers(9, 1)
    kernel = f.compile(X, options=SERIAL)
    assert scans(kernel)
    np.testing.assert_array_equal(kernel(X), X.cumsum(0))


@pytest.mark.parametrize("dtype", ["float16", "double", "int8", "uint32", "int64"])
def test_scans_of_all_types(dtype: str) -> None:
    f = tc.define(
        f"""def f({dtype}(N,D) X) -> (s, low) {{
          s(n,i)    +=! X(n,j) where i in 0:D, j in 0:i+1
          low(n,i) min=! X(n,j) where i in 0:D, j in 0:i+1
        }}"""
    )["f"]
    X = integers(3, 530, dtype={"float16": "f2", "double": "f8"}.get(dtype, dtype))
    kernel = f.compile(X, options=SERIAL)
    assert scans(kernel)
    s, low = kernel(X)
    np.testing.assert_array_equal(s, X.cumsum(1, dtype=s.dtype))
    np.testing.assert_array_equal(low, np.minimum.accumulate(X, 1))


def test_values_of_a_block_are_combined_in_vectors_only_where_all_terms_are_there() -> None:
    """Not where some elements have no new step, nor for few elements, nor where the loop makes terms as it goes."""
    texts = {
        "Y(n,i) +=! X(n,j) where i in 0:D, j in 0:i+1": True,
        "Y(n,i) max=! X(n,j) where i in 0:D, j in i:D": True,
        "Y(n,i) +=! X(n,j) where i in 0:D, j in 0:min(i+1,9)": False,
        "Y(n,i) +=! X(n,j) where i in 0:3, j in 0:i+1": False,
    }
    for text, expected in texts.items():
        kernel = tc.define(f"def f(float(N,D) X) -> (Y) {{ {text} }}")["f"].compile(sizes={"N": 4, "D": 80})
        assert scans(kernel) and ("tc_block" in kernel.source) is expected, text
    text = "def f(float(N,D) X) -> (P, Y) { P(n,i) = exp(X(n,i))  Y(n,i) +=! P(n,j) where i in 0:D, j in 0:i+1 }"
    plan = (made := tc.define(text)["f"].compile(sizes={"N": 4, "D": 80}).compilation).plan
    loop = next(n for n in walk(made.loops) if isinstance(n, For) and scan_below(n, plan))
    scan = scan_below(loop, plan)
    assert scan is not None
    beside = Execute("S0", (Variable("c0"), Variable(loop.iterator)))
    for body, expected in ((loop.body, True), (Block((beside, loop.body)), False)):
        value = running_value(scan, replace(loop, body=body), plan, lambda _: pytest.fail("not spelled"), 64)
        assert isinstance(value, BlockedValue) is expected


@pytest.mark.parametrize(
    "statement",
    [
        "Y(n,i) +=! X(n,j) where i in 0:D-4, j in i:i+5",
        "Y(n,i) +=! X(n,j) + i where i in 0:D, j in 0:i+1",
        "Y(n,i) +=! X(n,i-j) where i in 0:D, j in 0:i+1",
        "Y(n,i) +=! X(n,j) where i in 0:D, j in 0:D",
        "Y(n,i) +=! X(n,j) where i in 0:D, j in 0:(i%9)+1",
    ],
)
def test_what_is_no_cumulative_reduction_runs_every_step(statement: str) -> None:
    f = tc.define(f"def f(float(N,D) X) -> (Y) {{ {statement} }}")["f"]
    X = integers(5, 40)
    kernel = f.compile(X, options=SERIAL)
    assert not scans(kernel)
    np.testing.assert_array_equal(kernel(X), f.reference(X))


def test_a_plan_cannot_call_any_reduction_a_scan() -> None:
    f = tc.define("def f(float(N,D) X) -> (Y) { Y(n) +=! X(n,d) }")["f"]
    text = f.compile(sizes={"N": 4, "D": 9}).stages["place"]
    assert "reduce" in text
    with pytest.raises(tc.TcompError, match="is not of the kind 'scan'"):
        f.compile(sizes={"N": 4, "D": 9}, plan=text.replace('kind = "reduce"', 'kind = "scan"'))


@pytest.mark.parametrize(("other", "expected"), [("i", True), ("i+1", False)])
def test_a_loop_runs_backwards_only_where_its_elements_need_no_others(other: str, expected: bool) -> None:
    text = f"""def f(float(N,D) X) -> (A, Y) {{
      A(n,i) +=! X(n,j) where i in 0:D, j in i:D
      Y(n,i) = A(n,{other}) * 2 where i in 0:D-1
    }}"""
    f = tc.define(text)["f"]
    X = integers(5, 40)
    kernel = f.compile(X, options=SERIAL)
    scop = kernel.compilation.scop
    assert is_independent(scop, {s.name: s.indices.index("i") for s in scop.statements}) is expected
    for got, wanted in zip(kernel(X), f.reference(X), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_a_loop_that_goes_from_row_to_row_is_no_scan() -> None:
    """A plan may run the elements of a diagonal one after another: each belongs to another row."""
    f = tc.define("def f(float(N,D) X) -> (Y) { Y(n,i) +=! X(n,j) where i in 0:D, j in 0:i+1 }")["f"]
    X = integers(5, 40)
    options = tc.MappingOptions(tile_sizes=(8, 8))
    text = f.compile(X, options=options).stages["nest"]
    rows = "{ S0i[i0, i1] -> [(i0)]; S0f[i0, i1] -> [(i0)]; S0[i0, i1, i2] -> [(i0)] }, { S0i[i0, i1] -> [(i1)]"
    assert rows in text
    skewed = f.compile(X, options=options, plan=text.replace(rows, rows.replace("(i0)", "(i0 + i1)")))
    assert "tc_running" not in skewed.source
    np.testing.assert_array_equal(skewed(X), X.cumsum(1))


LONG = """
def f(float(N,D) X) -> (sums, before, behind, low) {
  sums(n,i)   +=! X(n,j) where i in 0:D, j in 0:i+1
  before(n,i) +=! X(n,j) where i in 0:D, j in 0:i
  behind(n,i) +=! X(n,j) * 2 where i in 3:D, j in i:D
  low(n,i)   min=! X(n,j) where i in 0:D-1, j in i+1:D
}
"""


def test_rows_that_are_few_and_long_are_shared_in_parts() -> None:
    f = tc.define(LONG)["f"]
    X = integers(2, 140_001)
    kernel = f.compile(X)
    plan = kernel.compilation.plan
    assert [(p.statement, p.steps) for p in plan.parted] == [(f"S{n}", SHARING.scan_part) for n in range(4)]
    sums, before, behind, low = kernel(X)
    np.testing.assert_array_equal(sums, X.cumsum(1))
    np.testing.assert_array_equal(before, X.cumsum(1) - X)
    np.testing.assert_array_equal(behind, 2 * backwards(X)[:, 3:])
    np.testing.assert_array_equal(low, np.minimum.accumulate(X[:, :0:-1], 1)[:, ::-1])
    text = kernel.stages["place"]
    assert f.compile(X, plan=text).source == kernel.source
    with pytest.raises(tc.TcompError, match="S0 is no cumulative reduction that has several parts of 140001 steps"):
        f.compile(X, plan=text.replace(f"steps = {SHARING.scan_part}", "steps = 140001", 1))


def without(statement: ScopStatement, instance: isl.Point) -> ScopStatement:
    domain = statement.domain.subtract(isl.Set.from_point(instance))
    reads = tuple(read.intersect_domain(domain) for read in statement.reads)
    return replace(statement, domain=domain, write=statement.write.intersect_domain(domain), reads=reads)


@pytest.mark.parametrize("ranges", ["i in 0:D, j in 0:i+1", "i in 0:D-1, j in i+1:D", "i in 5:D, j in 3:i-1"])
@pytest.mark.parametrize("steps", [1, 4])
def test_parts_are_proved_to_have_each_step_and_each_element_once(ranges: str, steps: int) -> None:
    text = f"def f(float(N,D) X) -> (Y) {{ Y(n,i) +=! X(n,j) where n in 0:N, {ranges} }}"
    scop = build(define(text)["f"], Sizes({"N": 2, "D": 13}))
    update = scop.by_name["S0"]
    scan = long_scan(scop, update)
    assert scan is not None
    made = in_parts(scop, scan, steps)[0].statements
    step = made[1].value.subscripts[-1]
    prove_parts(scop, update, scop.by_name["S0f"], made, step)
    for number, statement in enumerate(made):
        wrong = [*made]
        wrong[number] = without(statement, statement.domain.sample_point())
        with pytest.raises(LegalityError, match="parts of S0 do not reduce every step of an element once"):
            prove_parts(scop, update, scop.by_name["S0f"], wrong, step)


@pytest.mark.parametrize("ranges", ["i in 0:D, j in 0:min(i+1,9)", "i in 0:D/2, j in 0:2*i+1", "i in 0:D, j in 0:D-i"])
def test_only_what_has_one_new_step_an_element_runs_in_parts(ranges: str) -> None:
    scop = build(
        define(f"def f(float(N,D) X) -> (Y) {{ Y(n,i) +=! X(n,j) where {ranges} }}")["f"], Sizes({"N": 2, "D": 13})
    )
    assert long_scan(scop, scop.by_name["S0"]) is None
