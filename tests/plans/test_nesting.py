"""Groups one behind the other that run as one nest over the loops that they share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.arena import lay_out
from tcomp.driver import Compilation, lower
from tcomp.errors import LegalityError, PlanError
from tcomp.grammar import define
from tcomp.mapping.fusion.nesting import Nests
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.proof.legality import prove
from tcomp.mapping.text.writer import plan_text
from tcomp.model.terms.sizes import Sizes
from tcomp.runtime import registry
from tcomp.runtime.registry import backend_of

MACHINE = Machine(32, 16, 32, 2, nearest_cache=32 << 10, middle_cache=1 << 20, last_cache=1 << 40)

TWICE = """def f(float(B,N,N) X, float(B,N,N) Y, float(B,N,N) Z) -> (O) {
  T(b,i,j) +=! X(b,i,k) * Y(b,k,j)
  O(b,i,j) +=! T(b,k,i) * Z(b,j,k)
}"""
ALSO_WEIGHTS = """def f(float(B,N,N) X, float(N,N) W, float(B,N,N) Z) -> (O) {
  T(b,i,j) +=! X(b,i,k) * W(k,j)
  O(b,i,j) +=! T(b,k,i) * Z(b,j,k)
}"""
BESIDE = """def f(float(B,N,N) X, float(B,N,N) Y, float(B,N,N) Z) -> (O) {
  T(b,i,j) +=! X(b,i,k) * Y(b,k,j)
  O(b,i,j) +=! T(B-1-b,k,i) * Z(b,j,k)
}"""
LONGER = """def f(float(B,N,N) X, float(B,N,N) Y) -> (P) {
  T(b,i,j) +=! X(b,i,k) * Y(b,k,j)
  U(b,i,j) +=! T(b,k,i) * Y(b,j,k)
  V(b,i,j) +=! U(b,k,i) * X(b,j,k)
  P(b,i,j) +=! V(b,k,i) * V(b,j,k)
}"""
APART = """def f(float(B,N,N) X, float(B,N,N) Y, float(B,N,N) Z) -> (O, s) {
  T(b,i,j) +=! X(b,i,k) * Y(b,k,j)
  s(j) +=! Y(b,i,j)
  O(b,i,j) +=! T(b,k,i) * Z(b,j,k)
}"""
ROWS_AND_COLUMNS = """def f(float(N,D) X, float(N,D) Y) -> (O, s, t) {
  r(n) +=! X(n,d) * Y(n,d)
  O(n,d) = X(n,d) * r(n)
  s(d) +=! X(n,d) * Y(n,d)
  t(d) +=! Y(n,d)
}"""
SIZES = {"B": 8, "N": 96}


@pytest.fixture(autouse=True)
def _two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "this_machine", lambda: MACHINE)
    monkeypatch.setenv("TCOMP_CACHE", "0")


def compiled(text: str, options: tc.MappingOptions | None = None, plan: str | None = None, **sizes: int) -> Compilation:
    function = define(text)["f"]
    return lower(function, Sizes(SIZES | sizes), options or tc.MappingOptions(), backend_of("cpu"), True, plan)


def nests(made: Compilation) -> list[int]:
    """The number of groups of each nest."""
    return [len(nest) for nest in made.plan.nests]


def integers(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).integers(-2, 3, shape).astype(np.float32)


def test_what_one_batch_hands_on_lives_as_long_as_the_batch() -> None:
    made = compiled(TWICE)
    assert nests(made) == [2]
    (handed,) = [b for b in made.plan.buffers.values() if b.mark == "nest0"]
    assert handed.shape == (1, 96, 96)
    assert made.source.text.count("omp parallel ") == 1
    X, Y, Z = integers(8, 96, 96), integers(8, 96, 96), integers(8, 96, 96)
    np.testing.assert_array_equal(tc.define(TWICE).f(X, Y, Z), (X @ Y).transpose(0, 2, 1) @ Z.transpose(0, 2, 1))


def test_chains_are_one_nest() -> None:
    made = compiled(LONGER)
    assert nests(made) == [4]
    assert made.plan.buffers["V_acc2"].space == "global"
    assert "V_acc2" in {c.storage for c in made.plan.copies}
    X, Y = integers(8, 96, 96), integers(8, 96, 96)
    U = (X @ Y).transpose(0, 2, 1) @ Y.transpose(0, 2, 1)
    V = (U.transpose(0, 2, 1) @ X.transpose(0, 2, 1)).astype(np.float64)
    expected = V.transpose(0, 2, 1) @ V.transpose(0, 2, 1)
    np.testing.assert_allclose(tc.define(LONGER).f(X, Y), expected, rtol=1e-4, atol=1e-3 * np.abs(expected).max())


def test_what_lies_between_two_groups_of_a_nest_runs_before_or_after() -> None:
    made = compiled(APART)
    assert sorted(nests(made))[-1] == 2
    assert "T_acc0" in {b.storage for b in made.plan.buffers.values() if b.mark.startswith("nest")}
    X, Y, Z = integers(8, 96, 96), integers(8, 96, 96), integers(8, 96, 96)
    product, total = tc.define(APART).f(X, Y, Z)
    np.testing.assert_array_equal(product, (X @ Y).transpose(0, 2, 1) @ Z.transpose(0, 2, 1))
    np.testing.assert_array_equal(total, Y.sum((0, 1)))


def test_a_point_may_have_several_tiles_of_a_group() -> None:
    """Rows run one by one, and the parts of sums down columns over as many at a time, where a cache keeps all."""
    made = compiled(ROWS_AND_COLUMNS, N=1300, D=768)
    assert nests(made)[0] == 3
    rows, first, second = made.plan.groups[:3]
    assert rows.together == (87,)
    assert (first.together, second.together) == ((), ())
    assert made.source.text.count("omp parallel ") == 1
    text = plan_text(made.plan, [*made.plans][-1])
    assert "together = [87]" in text
    again = compiled(ROWS_AND_COLUMNS, plan=text, N=1300, D=768)
    assert again.source == made.source
    X, Y = integers(1300, 768), integers(1300, 768)
    product, s, t = tc.define(ROWS_AND_COLUMNS).f(X, Y)
    np.testing.assert_array_equal(product, X * (X * Y).sum(1, keepdims=True))
    np.testing.assert_array_equal(s, (X * Y).sum(0))
    np.testing.assert_array_equal(t, Y.sum(0))


@pytest.mark.parametrize(
    ("after", "message"),
    [
        ("together = [0]", "how many tiles are together"),
        ("together = [87, 1]", "tells of 2 loops that it shares, not of 1"),
        ("", "must have a band of"),
    ],
)
def test_tiles_together_that_the_tree_does_not_have_are_refused(after: str, message: str) -> None:
    made = compiled(ROWS_AND_COLUMNS, N=1300, D=768)
    text = plan_text(made.plan, [*made.plans][-1])
    with pytest.raises(PlanError, match=message):
        compiled(ROWS_AND_COLUMNS, plan=text.replace("together = [87]", after, 1), N=1300, D=768)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (BESIDE, {}),
        (ALSO_WEIGHTS, {}),
        (TWICE, {"B": 6}),
        (TWICE, {"B": 7}),
        (TWICE, {"N": 512}),
    ],
    ids=["other batches", "weights", "few points", "one too many", "too large"],
)
def test_others_keep_their_nests(text: str, sizes: dict[str, int]) -> None:
    assert nests(compiled(text, **sizes)) == [1, 1]
    assert nests(compiled(TWICE, tc.MappingOptions().fuse("min"))) == [1, 1]


def test_a_nest_is_read_from_its_text() -> None:
    made = compiled(LONGER)
    stages = list(made.plans)
    text = plan_text(made.plan, stages[-1])
    assert text.count("shared = 1") == 3
    again = compiled(LONGER, plan=text)
    assert nests(again) == [4]
    assert again.source == made.source


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("shared = 1", "shared = 7", "shares 7 loops"),
        ("shared = 1\n", "", "nests for groups with 2"),
        ('mark: "nest0"', 'mark: "nest1"', "the mark nest0 must stand below"),
    ],
)
def test_a_nest_that_is_none_is_refused(before: str, after: str, message: str) -> None:
    made = compiled(TWICE)
    text = plan_text(made.plan, [*made.plans][-1])
    assert before in text
    with pytest.raises(PlanError, match=message):
        compiled(TWICE, plan=text.replace(before, after, 1))


def test_the_proof_finds_what_passes_from_point_to_point(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Nests, "_stays_inside", lambda *_: True)
    monkeypatch.setattr(Nests, "_fits", lambda *_: True)
    with pytest.raises(LegalityError, match="reverses a dependence on T_acc0"):
        compiled(BESIDE)
    behind = BESIDE.replace("B-1-b", "b-1").replace("Y(b,k,j)", "Y(b,k,j) where b in 0:B-1")
    with pytest.raises(LegalityError, match=r"lets tiles of nest0 run in parallel.*through T_acc0"):
        compiled(behind, B=9)


def test_the_proof_finds_a_buffer_that_is_too_deep_inside() -> None:
    plan = compiled(TWICE).plan
    name = next(b.storage for b in plan.buffers.values() if b.mark == "nest0")
    inner = replace(plan.buffers[name], mark="group0")
    with pytest.raises(LegalityError, match="outlives"):
        prove(replace(plan, buffers={**plan.buffers, name: inner}), "mutant")


def test_groups_of_a_nest_are_at_work_at_the_same_time() -> None:
    """Threads at different points: what one group is done with may still be in use in another thread."""
    made = compiled(LONGER)
    plan = made.plan
    buffers = {
        n: replace(b, space="global", shape=(8, 96, 96), origin=(0, 0, 0), lower=None, mark="")
        for n, b in plan.buffers.items()
        if b.mark == "nest0"
    }
    assert len(buffers) == 2
    assert plan.buffers["V_acc2"].space == "global"
    apart = replace(plan, buffers={**plan.buffers, **buffers})
    size = 8 * 96 * 96 * 4
    assert lay_out(apart).shared_bytes == 3 * size
    alone = replace(apart, groups=tuple(replace(g, shared=0) for g in plan.groups))
    assert lay_out(alone).shared_bytes == 2 * size


def test_a_program_that_runs_nothing_has_no_nests() -> None:
    assert nests(compiled(TWICE, N=0)) == []


def test_attention_is_one_group_where_a_tile_alone_reads_its_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tile multiplies its weights by all columns: that these are few says nothing, for no other tile reads them."""
    monkeypatch.setattr(registry, "this_machine", lambda: replace(MACHINE, middle_cache=512 << 10))
    text = (Path(tc.__file__).parent / "library" / "attention.tc").read_text()
    sizes = Sizes({"B": 2, "H": 4, "L": 384, "S": 384, "D": 32, "E": 32})
    made = lower(define(text)["attention"], sizes, tc.MappingOptions(), backend_of("cpu"), True)
    assert len(made.plan.groups) == 1
