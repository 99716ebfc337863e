"""Blocks of single elements that run along wavefronts: results, which blocks they are, and proofs that can fail."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.errors import LegalityError
from tcomp.grammar import define
from tcomp.grammar.ranges.ranges import infer
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.stepwise import wavefronts
from tcomp.model.stepwise.wavefronts import Wavefronts, in_wavefronts, prove_wavefronts
from tests.language.test_recurrences import EDIT, distance

EXAMPLES = Path(__file__).parents[2] / "examples"
SEIDEL = (EXAMPLES / "polybench" / "stencils" / "seidel-2d.tc").read_text("utf-8")


@pytest.fixture(autouse=True)
def _short_fronts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wavefronts, "SHORTEST", 3)


def made_of(text: str, **sizes: int) -> Wavefronts | None:
    (function,) = define(text).values()
    return in_wavefronts(function, infer(function, sizes))


def prove(made: Wavefronts) -> None:
    prove_wavefronts(made, infer(made.after, made.ranges.sizes))


@pytest.mark.parametrize(("n", "m"), [(3, 4), (9, 5), (5, 14)])
def test_edit_distance_is_kept_by_fronts_or_written_where_it_is_a_result(n: int, m: int) -> None:
    rng = np.random.default_rng(n)
    a, b = (rng.integers(0, 3, k).astype(np.uint8) for k in (n, m))
    wanted = distance(a, b)
    np.testing.assert_array_equal(tc.define(EDIT).distance(a, b), wanted)
    last = (EXAMPLES / "recurrences" / "edit_distance.tc").read_text("utf-8")
    assert tc.define(last).edit_distance(a, b) == wanted[-1, -1]
    made, whole = made_of(last, N=n, M=m), made_of(EDIT, N=n, M=m)
    assert made is not None and made.slope == 1 and made.twins == {"D": "D_by_wave"}
    assert whole is not None and not whole.twins


@pytest.mark.parametrize(("n", "steps"), [(5, 2), (8, 3)])
def test_sweeps_lean_by_two_and_are_copied_in_the_end(n: int, steps: int) -> None:
    A = np.random.default_rng(n).random((n, n))
    f = tc.define(SEIDEL).seidel_2d
    np.testing.assert_allclose(f(A, steps), f.reference(A, steps), rtol=1e-13)
    made = made_of(SEIDEL, N=n, T=steps)
    assert made is not None and made.slope == 2 and made.twins == {"A": "A_by_wave"}
    kernel = f.compile(A, steps)
    again = f.compile(A, steps, plan=kernel.compilation.stages["pack"])
    np.testing.assert_array_equal(again(A, steps), kernel(A, steps))


@pytest.mark.parametrize("seed", range(12))
def test_random_reads_of_what_is_before(seed: int) -> None:
    rng = np.random.default_rng(seed)
    reads = []
    for _ in range(rng.integers(1, 4)):
        di, dj = int(rng.integers(0, 3)), int(rng.integers(-2, 3))
        reads.append((di, dj) if di or dj > 0 else (0, 1))
    terms = " + ".join(f"S(i-{di},j-{dj})".replace("--", "+") for di, dj in reads)
    text = f"""def f(int32(N,M) A) -> (int32(N,M) S) {{
      S(i,j) = A(i,j)
      for i in 2:N {{ for j in 2:M-2 {{ S(i,j) = {terms} - A(i,j) }} }}
    }}"""
    A = rng.integers(-9, 9, (9, 11)).astype(np.int32)
    S = A.copy()
    for i in range(2, 9):
        for j in range(2, 9):
            S[i, j] = sum(S[i - di, j - dj] for di, dj in reads) - A[i, j]
    np.testing.assert_array_equal(tc.define(text).f(A), S)


@pytest.mark.parametrize(
    "text",
    [
        # A column is needed as a whole before the next row.
        SEIDEL.replace("A(i-1,j+1)", "A(i-1,N-1-j)"),
        # What is inside has rows of its own.
        """def f(double(N,N,N) X, const int T) -> (double(N,N,N) S) {
          S(i,j,k) = X(i,j,k)
          for i in 1:N { for j in 1:N { S(i,j,k) = S(i-1,j,k) + S(i,j-1,k) where k in 0:N } }
        }""",
        # Columns depend on rows.
        """def f(double(N,N) X, const int T) -> (double(N,N) S) {
          S(i,j) = X(i,j)
          for i in 1:N { for j in 1:i { S(i,j) = S(i-1,j) + S(i,j-1) } }
        }""",
    ],
)
def test_blocks_that_stay_as_they_are(text: str) -> None:
    assert made_of(text, N=9, T=2) is None


def test_short_blocks_and_no_fusion_leave_blocks_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    A = np.random.default_rng(0).random((6, 6))
    assert "by_wave" in tc.define(SEIDEL).seidel_2d.compile(A, 2).source
    assert (
        "by_wave" not in tc.define(SEIDEL).seidel_2d.compile(A, 2, options=MappingOptions(fusion_strategy="min")).source
    )
    monkeypatch.setattr(wavefronts, "SHORTEST", 5)
    assert made_of(SEIDEL, N=6, T=2) is None


def test_gradients_run_along_wavefronts_too() -> None:
    back = tc.define(SEIDEL).seidel_2d.gradient()
    made = made_of(back.text, N=9, T=2)
    assert made is not None and made.slope == 2
    A = np.random.default_rng(0).random((9, 9))
    np.testing.assert_allclose(back(A, 2, A), back.backward.reference(2, A), rtol=1e-13)


def test_several_blocks_and_updates() -> None:
    text = """def f(int32(N,M) X) -> (A, int32(N,M) B) {
      A(i,j) = X(i,j)  B(i,j) = 0 where i in 0:N, j in 0:M
      for i in 1:N { for j in 1:M { A(i,j) += A(i-1,j) + A(i,j-1)  B(i-1,j) += A(i,j) - X(i,j) } }
      for i in 1:N { for j in 1:M { B(i,j) = B(i-1,j-1) - A(i,j) } }
    }"""
    f, X = tc.define(text).f, np.random.default_rng(1).integers(-9, 9, (7, 8)).astype(np.int32)
    assert len(f.compile(X).compilation.waves) == 2
    for own, other in zip(f(X), f.reference(X), strict=True):
        np.testing.assert_array_equal(own, other)


def test_wrong_fronts_are_refused() -> None:
    made = made_of(SEIDEL, N=7, T=2)
    assert made is not None
    prove(made)
    flat = replace(made, slope=1)
    with pytest.raises(LegalityError, match="depend on each other"):
        prove(flat)
    with pytest.raises(LegalityError, match="is not what it was"):
        prove(replace(made, slope=3))

    def changed(number: int, **fields: Any) -> Wavefronts:
        statements = list(made.after.statements)
        statements[number] = replace(statements[number], **fields)
        return replace(made, after=replace(made.after, statements=tuple(statements)))

    block = min(made.statements)
    statement = made.after.statements[block]
    with pytest.raises(LegalityError, match="is not what it was"):
        prove(changed(block, value=statement.value.lhs))  # type: ignore[union-attr]
    rows = statement.ranges[-1]
    fewer = replace(rows, upper=replace(rows.upper, lhs=replace(rows.upper.lhs, value=5)))  # type: ignore[union-attr,arg-type]
    with pytest.raises(LegalityError, match="is not what it was"):
        prove(changed(block, ranges=(*statement.ranges[:-1], fewer)))
