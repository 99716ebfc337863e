"""The benchmark of what is around kernels verifies what it times, and counts callers against one after another."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import latency
from benchmarks.cpu_case import contraction

SMALL = contraction("mm", "product", "mk,kn->mn", (("m", 8), ("k", 6), ("n", 4)))


def test_what_is_timed_was_compared_with_numpy_first(monkeypatch: pytest.MonkeyPatch) -> None:
    latency.made_ready("numpy", SMALL)()
    monkeypatch.setattr(latency, "reference", lambda case: np.ones(case.output))
    with pytest.raises(SystemExit, match="numpy is wrong"):
        latency.made_ready("numpy", SMALL)


def test_callers_at_once_make_as_many_calls_as_one_after_another() -> None:
    calls: list[int] = []
    assert latency.at_once(lambda: calls.append(1)) > 0
    assert len(calls) == 3 * 2 * latency.CALLERS * latency.CALLS_EACH
