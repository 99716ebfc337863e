"""Reductions shared between blocks: right on the simulator, in two kernels, and proved."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp import grammar
from tcomp.backends.simulator.compiler import why_not
from tcomp.errors import LegalityError
from tcomp.grammar.tree.function import Function
from tcomp.mapping.gpu.parts import split_reductions
from tcomp.mapping.machines.gpu import gpu_of
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.schedule import schedule
from tcomp.mapping.tiles import splitting
from tcomp.model.build import build
from tcomp.model.terms.sizes import Sizes

PROGRAMS = """
def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,kk) * B(kk,n) }
def total(float(N) A) -> (s) { s +=! A(i) }
def largest(float(N,M) A) -> (s) { s(i) max=! A(i,j) }
def triangle(float(N,N) A) -> (s) { s(i) +=! A(i,j) where j in 0:i+1 }
def rows(half(N,M) A) -> (s) { s(i) +=! A(i,j) }
def into(float(M,K) A, float(K,N) B) -> (C) { C(m,n) += A(m,kk) * B(kk,n) }
def variance(float(N,M) I) -> (v) { mean(n) +=! I(n,m) v(n) +=! (I(n,m) - mean(n)) * (I(n,m) - mean(n)) }
def shifted(float(N) A) -> (s) { s(i) +=! A(j) where i in 0:3, j in 5:40 }
"""

pytestmark = [
    pytest.mark.sweep(3),
    pytest.mark.skipif(why_not() is not None, reason="kernels cannot be simulated here"),
    pytest.mark.filterwarnings("ignore::tcomp.ProgramWarning"),
]


def _data(*shape: int, dtype: Any = np.float32) -> Any:
    return np.random.default_rng(len(shape)).integers(-3, 4, shape).astype(dtype)


CASES: dict[str, tuple[tuple[Any, ...], Any]] = {
    "mm": ((_data(20, 300), _data(300, 17)), None),
    "total": ((_data(1201),), None),
    "largest": ((_data(13, 200),), None),
    "triangle": ((_data(50, 50),), None),
    "rows": ((_data(5, 300, dtype=np.float16),), None),
    "into": ((_data(8, 100), _data(100, 9)), _data(8, 9)),
    "variance": ((_data(6, 70),), None),
    "shifted": ((_data(60),), None),
}


@pytest.fixture(scope="module")
def ops() -> tc.Module:
    return tc.define(PROGRAMS)


@pytest.mark.parametrize("parts", [1, 2, 7, 300])
@pytest.mark.parametrize("name", CASES)
def test_parts_add_up(ops: tc.Module, name: str, parts: int) -> None:
    arguments, content = CASES[name]
    options = tc.MappingOptions(split_reduction=parts)
    found = ops[name](*arguments, out=None if content is None else content.copy(), target="simulator", options=options)
    expected = ops[name].reference(*arguments, out=None if content is None else content.copy())
    np.testing.assert_array_equal(found, expected)


def test_each_part_has_a_block_of_its_own(ops: tc.Module) -> None:
    kernel = ops.total.compile(sizes={"N": 1200}, target="cuda:sm_90", options=tc.MappingOptions(split_reduction=4))
    launches = kernel.compilation.source.launches
    assert [launch.grid for launch in launches] == [(4, 1, 1), (1, 1, 1)]


def test_the_model_splits_what_would_leave_the_device_idle(ops: tc.Module) -> None:
    long = ops.total.compile(sizes={"N": 10_000_000}, target="cuda:sm_90").compilation
    assert 100 <= long.source.launches[0].grid[0] <= 132
    narrow = ops.mm.compile(sizes={"M": 64, "N": 64, "K": 100_000}, target="cuda:sm_90").compilation
    assert len(narrow.source.launches) == 2 and np.prod(narrow.source.launches[0].grid) >= 100
    wide = ops.mm.compile(sizes={"M": 2048, "N": 2048, "K": 4096}, target="cuda:sm_90").compilation
    assert len(wide.source.launches) == 1
    small = ops.total.compile(sizes={"N": 1000}, target="cuda:sm_90").compilation
    assert len(small.source.launches) == 1


def _function(name: str) -> Function:
    return grammar.define(PROGRAMS)[name]


def test_a_part_that_is_left_out_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = schedule(build(_function("total"), Sizes({"N": 100})))
    honest = splitting._update

    def lazy(own: Any, parts: Any) -> Any:
        found = honest(own, parts)
        domain = found.domain.subtract(found.domain.lexmax())
        return replace(found, domain=domain, write=found.write.intersect_domain(domain))

    monkeypatch.setattr(splitting, "_update", lazy)
    with pytest.raises(LegalityError, match="every step of S0 once"):
        split_reductions(gpu_of("sm_90"), plan, MappingOptions(split_reduction=2))


def test_threads_whose_part_a_loop_around_decides_take_turns() -> None:
    """A thread coordinate may be a function of the loops above the phase: then one thread along it works at a time."""
    text = """def grad(float(N,M,H,W) G, float(N,C,H,W) I) -> (K) {
      K(m,c,kh,kw) +=! G(n,m,h-kh,w-kw) * I(n,c,h,w) where kh in 0:1, kw in 0:1 }"""
    g, i = _data(11, 11, 5, 6), _data(11, 4, 5, 6)
    options = tc.MappingOptions(
        tile_sizes=(16, 0, 1, 1, 64), threads=(64, 4), reduction_tile=16, match_reductions=False, split_reduction=8
    )
    operator = tc.define(text).grad
    np.testing.assert_array_equal(operator(g, i, target="simulator", options=options), operator.reference(g, i))


def test_long_cumulative_sums_run_in_parts() -> None:
    f = tc.define("def f(float(N) A) -> (s) { s(i) +=! A(j) where i in 0:N, j in 0:i+1 }").f
    A = _data(600)
    kernel = f.compile(A, target="simulator")
    assert [(p.statement, p.steps) for p in kernel.compilation.plan.parted] == [("S0", 32)]
    np.testing.assert_array_equal(kernel(A), A.cumsum())


def test_what_long_sums_are_made_of_is_not_split_again() -> None:
    """Nor is one in parts whose first steps are none."""
    text = "def f(float(N) X) -> (S) { S(i) +=! X(j) where i in FIRST:N, j in RANGE }"
    for first, steps, n, parts in (("2", "i:N", 7, 3), ("0", "0:i", 2, 2)):
        f = tc.define(text.replace("FIRST", first).replace("RANGE", steps)).f
        x = _data(n)
        found = f(x, target="simulator", options=tc.MappingOptions(split_reduction=parts))
        np.testing.assert_array_equal(found, f.reference(x))
