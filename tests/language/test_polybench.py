"""PolyBench 4.2 in TC: all thirty kernels equal NumPy, in the interpreter and on the CPU, at sizes of all sorts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.grammar import define
from tests.language import polybench

FOLDER = Path(__file__).parents[2] / "examples" / "polybench"
PROGRAMS = sorted(FOLDER.glob("*/*.tc"))
NAMES = [path.stem for path in PROGRAMS]
SMALLEST = {"covariance": 2, "adi": 3, "heat_3d": 2, "jacobi_1d": 2, "jacobi_2d": 2, "seidel_2d": 2}
"""Below these there is nothing to compute: a covariance of one row, or no element inside."""


def run(program: Path, target: str, n: int, m: int, steps: int) -> None:
    text = program.read_text(encoding="utf-8")
    (name,) = define(text, program.name)
    operation = tc.define(text, program.name)[name]
    n = max(n, SMALLEST.get(name, 1))
    given = polybench.arguments(name, n, m, steps, np.random.default_rng(n))
    found = operation.reference(*given) if target == "reference" else operation(*given, target=target)
    wanted = getattr(polybench, name)(*given)
    tolerance = 2e-4 if name == "deriche" else 1e-9
    for a, b in zip(_tuple(found), _tuple(wanted), strict=True):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


def _tuple(results: Any) -> tuple[Any, ...]:
    return results if isinstance(results, tuple) else (results,)


def test_there_are_thirty() -> None:
    assert len(PROGRAMS) == 30


@pytest.mark.parametrize("program", PROGRAMS, ids=NAMES)
def test_the_interpreter_agrees_with_numpy(program: Path) -> None:
    for n, m, steps in ((1, 2, 1), (2, 1, 0), (5, 6, 3)):
        run(program, "reference", n, m, steps)


@pytest.mark.parametrize("program", PROGRAMS, ids=NAMES)
def test_kernels_agree_with_numpy(program: Path) -> None:
    run(program, "cpu", 7, 5, 3)


@pytest.mark.long
@pytest.mark.parametrize("program", PROGRAMS, ids=NAMES)
def test_kernels_agree_with_numpy_at_other_sizes(program: Path) -> None:
    for n, m, steps in ((1, 1, 1), (2, 3, 0), (3, 2, 2), (24, 37, 4)):
        run(program, "cpu", n, m, steps)


@pytest.mark.parametrize("name", ["trisolv"])
def test_what_runs_in_blocks_has_several(name: str) -> None:
    run(next(p for p in PROGRAMS if p.stem == name), "cpu", 270, 1, 1)
