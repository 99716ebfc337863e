"""What is kept of steps counts from where their parts begin."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import tcomp as tc
from tcomp.derivatives.steps.relative import begins

LU = Path(__file__).parents[2] / "examples" / "polybench" / "solvers" / "lu.tc"

PARTS = """def f(float(N,M) X) -> (Y) {
  Y(i,j) = X(i,j)
  for b in 0:N/4 {
    for k in RANGE {
      Y(k,j) = Y(k,j) * Y(k,j) where j in COLUMNS
    }
  }
}"""


def parts(steps: str, columns: str = "0:M") -> dict[str, str]:
    """What is counted from elsewhere than 0, and from where."""
    text = PARTS.replace("RANGE", steps).replace("COLUMNS", columns)
    statement = tc.define(text).f.function.statements[1]
    found = begins(statement, ("j",))
    lower = {s.index: s.lower for s in statement.steps} | {r.index: r.lower for r in statement.ranges}
    return {index: next(other for other, low in lower.items() if low is begin) for index, begin in found.items()}


@pytest.mark.parametrize(
    ("steps", "columns", "wanted"),
    [
        ("4*b:4*b+4", "0:M", {"k": "k"}),
        ("4*b:min(4*b+4, N)", "k+1:min(4*b+4, M)", {"k": "k", "j": "k"}),
        ("4*b+1:4*b+4", "4*b:4*b+4", {"k": "k", "j": "j"}),
        ("4*b:N", "k:M", {}),
        ("0:4", "k:k+2", {"j": "j"}),
        ("4*b:4*b+4", "k-1:4*b+4", {"k": "k"}),
    ],
)
def test_what_lies_in_a_part_of_the_same_length_in_each_step(steps: str, columns: str, wanted: dict[str, str]) -> None:
    assert parts(steps, columns) == wanted


def test_what_a_decomposition_keeps_has_no_place_for_other_blocks() -> None:
    plain = "LU(i,j) = LU(i,j) - LU(i,k) * LU(k,j) where i in min((b+1)*B, N):N, j in k+1"
    lu = tc.define(LU.read_text().replace(plain, plain.replace("LU(i,j) -", "LU(i,j) + 0.01 * sin(LU(i,j)) -"))).lu
    text = lu.gradient().text
    kept = dict(re.findall(r"double (was_LU_*)(\([^)]*\)) =", text))
    assert [*kept.values()] == ["(b, k - b * B, i)", "(b, k - b * B, i, j - b * B)"]
    rng = np.random.default_rng(1)
    A, d = rng.standard_normal((11, 11)) + 11 * np.eye(11), rng.standard_normal((11, 11))
    found = lu.gradient().backward.reference(A, 4, d)
    for i, j in ((0, 0), (9, 2), (2, 9), (5, 6), (10, 10)):
        step = np.zeros_like(A)
        step[i, j] = 1e-6
        change = lu.reference(A + step, 4) - lu.reference(A - step, 4)
        np.testing.assert_allclose(found[i, j], (change * d).sum() / 2e-6, rtol=1e-5, atol=1e-7)
