"""Sweeps forward and back that run strip by strip, and what a strip keeps for itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.errors import LegalityError
from tcomp.model.stepwise.pieces import Item, Repeat, TimeTiles
from tcomp.model.stepwise.together import prove_together
from tests.language import polybench
from tests.language.test_time_tiles import tiled

pytestmark = pytest.mark.sweep(2)

ADI = (Path(__file__).parents[2] / "examples" / "polybench" / "stencils" / "adi.tc").read_text("utf-8")
START = "double(N,M) q(i,0) = A(i,0) where i in 0:N"
FORWARD = "for j in 1:M { q(i,j) = 0.5 * q(i,j-1) + A(i,j) where i in 0:N }"
BACK = "for j in 0:M-1 { u(i,M-2-j) = 0.5 * u(i,M-1-j) + q(i,M-2-j) where i in 0:N }"
SWEEPS = f"""def f(double(N,M) A) -> (u) {{
  u(i,j) = A(i,j)
  {START}
  {FORWARD}
  {BACK}
}}"""
SHAPE = {"N": 61, "M": 12}
CACHE = 3000

TOGETHER = {
    "sweeps": SWEEPS,
    "two slices copied": SWEEPS.replace(START, f"{START}  q(i,1) = A(i,1) where i in 0:N").replace(
        FORWARD, "for j in 2:M { q(i,j) = 0.5 * q(i,j-1) - 0.25 * q(i,j-2) + A(i,j) where i in 0:N }"
    ),
    "other rows": SWEEPS.replace(FORWARD, FORWARD.replace("i in 0:N", "i in 3:N-5")).replace(
        "u(i,M-1-j) + q(i,M-2-j) where i in 0:N", "u(i,M-1-j) + q(i,M-2-j) where i in 7:N-9"
    ),
    "neighbours of what is read": SWEEPS.replace("+ A(i,j) where i in 0:N", "+ A(i-1,j) + A(i+1,j) where i in 1:N-1")
    .replace("q(i,M-2-j) where i in 0:N", "q(i,M-2-j) where i in 1:N-1"),
    "along columns": """def f(double(M,N) A) -> (u) {
      u(j,i) = A(j,i)
      double(M,N) q(0,i) = A(0,i) where i in 0:N
      for j in 1:M { q(j,i) = 0.5 * q(j-1,i) + A(j,i) where i in 0:N }
      for j in 0:M-1 { u(M-2-j,i) = 0.5 * u(M-1-j,i) + q(M-2-j,i) where i in 0:N }
    }""",
    "three blocks": SWEEPS.replace(
        BACK, f"{BACK}  for j in 1:M {{ u(i,j) = u(i,j) - 0.5 * q(i,j-1) * u(i,j-1) where i in 0:N }}"
    ),
    "twice": SWEEPS.replace("A)", "A, const int T)", 1).replace(START, f"for t in 0:T {{ {START}").replace(
        BACK, f"{BACK} u(i,M-1) = u(i,0) where i in 0:N }}"
    ),
}  # fmt: skip
APART = {
    "a result": SWEEPS.replace("-> (u)", "-> (u, q)"),
    "read behind": SWEEPS.replace(BACK, f"{BACK}  u(i,M-1) = q(i,3) where i in 0:N"),
    "read in the next step": SWEEPS.replace("A)", "A, const int T)", 1).replace(
        START, "double(N,M) q(i,j) = A(i,j) where i in 0:N, j in 0:M  for t in 0:T { u(i,0) = q(i,M-2) where i in 0:N"
    ).replace(BACK, f"{BACK} }}"),
    "another row": SWEEPS.replace("q(i,M-2-j) where i in 0:N", "q(i-1,M-2-j) where i in 1:N"),
    "read before it is written": SWEEPS.replace(START, "double(N,M) q(i,j) = A(i,j) where i in 0:N, j in 0:M").replace(
        FORWARD, "for j in 1:M { q(i,j) = 0.5 * q(i,j-1) + A(i,j) * q(i,j) where i in 0:N }"
    ),
    "something between": SWEEPS.replace(BACK, f"u(i,M-1) = 2.0 * q(i,M-1) where i in 0:N  {BACK}"),
}  # fmt: skip


def run(text: str, shape: tuple[int, int], cache: int, together: bool) -> None:
    sizes = dict(zip(("N", "M"), shape, strict=True)) | ({"T": 3} if "int T" in text else {})
    made = tiled(text, sizes, cache)
    assert ("_of_strip" in made.source.text) is together
    assert any("with those before" in title for title, _, _ in made.parts) is together
    A = np.random.default_rng(0).random(shape if "double(N,M)" in text else shape[::-1])
    arrays = [A]
    if text in (SWEEPS, TOGETHER["along columns"]):
        arrays.append(np.zeros((2 * A.shape[0], 3 * A.shape[1]))[::2, ::3])
        arrays[1][...] = A
    given: Any = tc.define(text).f
    rest = (3,) if "int T" in text else ()
    for array in arrays:
        kernel = given.compile(array, *rest, plan=made.stages["pack"])
        assert [title for title, _, _ in kernel.compilation.parts] == [title for title, _, _ in made.parts]
        results = kernel(array, *rest), given.reference(array, *rest)
        for a, b in zip(*(r if isinstance(r, tuple) else (r,) for r in results), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", TOGETHER)
def test_blocks_run_together(name: str) -> None:
    run(TOGETHER[name], (61, 12), CACHE, together=True)


@pytest.mark.parametrize("name", APART)
def test_what_somebody_else_reads_is_not_kept_in_a_strip(name: str) -> None:
    run(APART[name], (61, 12), CACHE, together=False)


def test_strips_too_narrow_for_vectors_run_block_by_block() -> None:
    run(SWEEPS, (61, 200), CACHE, together=False)


@pytest.mark.parametrize("n", [4, 60])
def test_adi_of_any_size(n: int) -> None:
    u = np.random.default_rng(n).random((n, n))
    given: Any = tc.define(ADI).adi
    made = tiled(ADI, {"N": n, "T": 2}, 200 * n)
    assert ("_of_strip" in made.source.text) is (n > 32)
    kernel = given.compile(u, 2, plan=made.stages["pack"])
    np.testing.assert_allclose(kernel(u, 2), polybench.adi(u, 2), rtol=1e-11)


def _changed(body: tuple[Item, ...], **facts: Any) -> tuple[Item, ...]:
    found: list[Item] = []
    for item in body:
        if isinstance(item, TimeTiles):
            found.append(replace(item, **facts) if item.own else item)
        else:
            found.append(replace(item, body=_changed(item.body, **facts)) if isinstance(item, Repeat) else item)
    return tuple(found)


def test_what_a_strip_keeps_is_proved() -> None:
    made = tiled(SWEEPS, SHAPE, CACHE)
    prove_together(made.cutter, made.pieces)
    (own,) = next(item.own for item in made.pieces.body if isinstance(item, TimeTiles) and item.own)
    for wrong in (
        {"own": (replace(own, copied=()),)},
        {"own": (replace(own, dimension=1),)},
        {"own": (replace(own, tensor="u"),)},
        {"rows": (1, 61)},
        {"width": 7},
        {"height": 3},
    ):
        with pytest.raises(LegalityError, match="together"):
            prove_together(made.cutter, replace(made.pieces, body=_changed(made.pieces.body, **wrong)))


def test_a_plan_may_say_how_wide_strips_are() -> None:
    made = tiled(SWEEPS, SHAPE, CACHE)
    text, given = made.stages["pack"], tc.define(SWEEPS).f
    A = np.random.default_rng(1).random((61, 12))
    (width,) = {title.split(" x ")[1].split(" ")[0] for title, _, _ in made.parts if " rows" in title}
    for other in ("5", "61", "100"):
        kernel = given.compile(A, plan=text.replace(f"x {width} rows", f"x {other} rows"))
        np.testing.assert_allclose(kernel(A), given.reference(A), rtol=1e-12)
    apart = given.compile(A, plan=text.replace(" with those before", ""))
    np.testing.assert_allclose(apart(A), given.reference(A), rtol=1e-12)
    for wrong in (
        text.replace(f"x {width} rows with", "x 7 rows with"),
        text.replace("rows\n", "rows with those before\n"),
    ):
        with pytest.raises(LegalityError, match="together"):
            given.compile(A, plan=wrong)
