"""Producers that run in the tiles of some consumers, while others read what they computed from memory."""

from __future__ import annotations

import numpy as np
import pytest

import tcomp as tc
from tcomp.driver import Compilation, lower
from tcomp.errors import LegalityError
from tcomp.grammar import define
from tcomp.mapping.fusion import fusion
from tcomp.mapping.machines.cpu import Machine
from tcomp.model.terms.sizes import Sizes
from tcomp.runtime import registry
from tcomp.runtime.registry import backend_of

MACHINE = Machine(32, 16, 32, 2, nearest_cache=32 << 10, middle_cache=1 << 20, last_cache=1 << 40)

CROSS_ENTROPY = """def f(float(N,C) X, int64(N) label) -> (L) {
  m(n) max=! X(n,c)
  z(n) +=! fmax(X(n,c) - m(n), -3)
  L +=! z(n) + m(n) - X(n,label(n))
}"""
BETWEEN = """def f(float(N,D) X) -> (Y) {
  a(n) +=! X(n,d)
  t +=! a(n)
  Y(n,d) = X(n,d) - a(n) + t
}"""
SIZES = {"N": 512, "C": 3000, "D": 300}


@pytest.fixture(autouse=True)
def _two_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "this_machine", lambda: MACHINE)
    monkeypatch.setenv("TCOMP_CACHE", "0")


def compiled(text: str, options: tc.MappingOptions | None = None, **sizes: int) -> Compilation:
    return lower(define(text)["f"], Sizes(SIZES | sizes), options or tc.MappingOptions(), backend_of("cpu"))


def together(made: Compilation) -> list[set[str]]:
    """The statements that are no parts of reductions, by group."""
    plan = made.plan
    return [{s for c in g.clusters for s in plan.clusters[c].statements if len(s) == 2} for g in plan.groups]


def integers(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).integers(-9, 9, shape).astype(np.float32)


def test_rows_of_cross_entropy_are_read_from_memory_once() -> None:
    made = compiled(CROSS_ENTROPY)
    assert together(made) == [{"S0", "S1"}, {"S2"}]
    assert made.plan.buffers["m_acc0"].space == "global"
    X, label = integers(512, 3000), np.arange(512, dtype=np.int64)
    m = X.max(1)
    z = np.maximum(X - m[:, None], -3).sum(1)
    assert tc.define(CROSS_ENTROPY).f(X, label) == (z + m - X[label, label]).sum()


def test_so_many_rows_make_a_tile_as_a_cache_keeps() -> None:
    (rows,) = compiled(CROSS_ENTROPY).plan.groups[0].sizes
    assert 4 * 3000 * rows <= MACHINE.middle_cache // 2 < 4 * 3000 * 2 * rows
    (few,) = compiled(CROSS_ENTROPY, C=30000).plan.groups[0].sizes
    assert few == 4
    assert compiled(CROSS_ENTROPY, tc.MappingOptions().tile(32)).plan.groups[0].sizes == (32,)


def test_what_a_group_needs_of_others_does_not_become_part_of_it() -> None:
    """The sum of all rows is needed for each row, and made of what rows sum up."""
    assert together(compiled(BETWEEN)) == [{"S0"}, {"S1"}, {"S2"}]
    X = integers(512, 300)
    a = X.sum(1)
    np.testing.assert_array_equal(tc.define(BETWEEN).f(X), X - a[:, None] + a.sum())


@pytest.mark.parametrize("last", ["T(n,d) + T(n+1,d)", "T(2*n,d) where n in 0:N/2"])
def test_every_element_is_computed_in_one_tile(last: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In those of the last statement neighbours would compute some elements twice, or none would compute all."""
    text = f"def f(float(N,D) X) -> (u, Y) {{ T(n,d) = exp(sqrt(X(n,d)))  u(n) +=! T(n,d)  Y(n,d) = {last} }}"
    assert together(compiled(text, N=4000)) == [{"S0", "S1"}, {"S2"}]
    if "2*n" in last:
        monkeypatch.setattr(fusion.Fuser, "_keeps_outputs", lambda *_: True)
        with pytest.raises(LegalityError, match="lets S1 read other values of S0"):
            compiled(text, N=4000)


def test_a_contraction_keeps_the_tiles_that_were_made_for_it() -> None:
    text = """def f(float(N,K) A, float(K,D) B) -> (Y, w) {
      T(n,d) +=! A(n,k) * B(k,d)
      w(d) +=! T(n,d)
      Y(n,d) = T(n,d) * w(d)
    }"""
    assert together(compiled(text, K=200))[0] == {"S0"}


def test_groups_that_wait_for_each_other_are_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fusion, "leads_into", lambda *_: False)
    with pytest.raises(AssertionError):
        compiled(BETWEEN)
