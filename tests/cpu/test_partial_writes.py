"""Tensors written in parts and fused with overlap: a tile may have its own copy only if it has all of its writers."""

from __future__ import annotations

import numpy as np
import pytest

import tcomp
from tcomp.driver import lower
from tcomp.errors import LegalityError
from tcomp.grammar import define
from tcomp.mapping.fusion.fusion import Fuser
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.terms.sizes import Sizes
from tests.targets import CPU

UPDATED = "def f(float(N) A) -> (O) { T(i) = A(i)*3  T(i) = T(i)*2 where i in 5:N-10  O(i) = T(i)+T(i+1)+T(i+2) }"
PROGRAMS = {
    "updated in place": UPDATED,
    "accumulated in place": """def f(float(N) A) -> (O) {
      T(i) = A(i)*3  T(i) += A(i+k) where i in 5:N-10, k in 0:3  O(i) = T(i)+T(i+1)+T(i+2) }""",
    "interleaved": """def f(float(N) A) -> (O) {
      T(2*i) = A(i)  T(2*i+1) = A(i)*2 where i in 0:N  O(i) = T(i)+T(i+1)+T(i+2) }""",
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("tile", [None, (8,), (16,), (1000,)])
def test_equals_the_reference(name: str, tile: tuple[int, ...] | None) -> None:
    array = np.random.default_rng(0).integers(-3, 4, 2003).astype(np.float32)
    program = tcomp.define(PROGRAMS[name]).f
    options = MappingOptions(tile_sizes=tile, recompute_limit=3)
    np.testing.assert_array_equal(program(array, options=options), program.reference(array))


def test_the_proof_refuses_a_copy_that_lacks_a_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fuser, "_fellow_writers", lambda self, number: set())
    with pytest.raises(LegalityError, match="S1 read other values of S0"):
        lower(define(UPDATED)["f"], Sizes({"N": 2003}), MappingOptions(tile_sizes=(16,)), CPU)
