"""Programs of every kind can be tuned: each is compiled, measured and reported on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tcomp as tc
from tcomp.tuner.database.trials import Outcome

pytestmark = pytest.mark.sweep(5)

PROGRAMS = {
    "a scalar": ("def f(float(N) A) -> (s) { s +=! A(n) }", {"N": 1000}),
    "a number": ("def f(float a, float(N) A) -> (B) { B(n) = A(n) * a }", {"N": 1000}),
    "nothing to do": ("def f(float(N) A) -> (B) { B(n) = A(n) * 2 }", {"N": 0}),
    "no input": ("def f(const int32 N) -> (B) { B(i) = i where i in 0:N }", {"N": 100}),
    "two outputs": ("def f(double(N) A) -> (B, s) { B(n) = A(n) + 1\n s max=! A(n) }", {"N": 100}),
    "indices": ("def f(float(V,D) T, int32(N) I) -> (O) { O(n,d) = T(I(n),d) }", {"V": 50, "D": 8, "N": 20}),
    "bits and bytes": (
        "def f(uint8(M,K) A, int8(K,N) B, bool(M) c) -> (C) { C(m,n) +=! c(m) ? int32(A(m,k)) * B(k,n) : 0 }",
        {"M": 8, "K": 8, "N": 8},
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_can_be_tuned(name: str, tmp_path: Path) -> None:
    text, sizes = PROGRAMS[name]
    result = tc.define(text).f.tune(sizes=sizes, budget=0.01)
    assert [t.outcome for t in result.history] == [Outcome.MEASURED]
    assert result.best == tc.MappingOptions()
    assert result.seconds > 0
    result.report(tmp_path / "page.html")
    assert "<svg" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_an_output_that_is_read_and_strides() -> None:
    with pytest.warns(tc.ProgramWarning):
        ops = tc.define("def f(float(M,N) A) -> (float(M,N) B) { B(m,n) += A(m,n) }")
    A = np.asfortranarray(np.ones((20, 30), np.float32))
    B = np.ones((20, 60), np.float32)[:, ::2]
    result = ops.f.tune(A, out=B, budget=0.01)
    assert [t.outcome for t in result.history] == [Outcome.MEASURED]
    assert set(result.problem.specialisation.sizes.strides) == {"A", "B"}
    assert np.array_equal(B, np.ones((20, 30))), "what the caller gave is not written to"
