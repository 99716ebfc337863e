"""Sweeps in place of which several steps run at the same time, in lanes of vectors: results, plans, and what stays."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.c.target import CpuBackend
from tcomp.errors import LegalityError, PlanError
from tcomp.grammar import define
from tcomp.mapping.machines.cpu import this_machine
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.stepwise.pieces import Sweeps
from tcomp.model.stepwise.sweeps import prove_sweeps
from tcomp.model.terms.sizes import Sizes
from tcomp.stepwise import StepwiseCompilation, lower_stepwise
from tests.language import polybench
from tests.language.test_wavefronts import SEIDEL

BLOCK = """def f(double(N,M) A0, {given} const int T) -> (A) {{
  A(i,j) = A0(i,j)
  for t in 0:T {{ for i in {rows} {{ for j in {columns} {{ A(i,j) {op} {value} }} }} }}
}}"""


def made_of(text: str, sizes: dict[str, int], vector_bytes: int = 32, threads: int = 2) -> StepwiseCompilation:
    """Compiled for such vectors, however many this machine has."""
    (function,) = define(text).values()
    machine = replace(this_machine(), vector_bytes=vector_bytes, registers=16, threads=threads)
    return lower_stepwise(function, Sizes(sizes), MappingOptions(), CpuBackend(machine))


def heads(made: StepwiseCompilation) -> str:
    return "\n".join(line for line in made.stages["pack"].splitlines() if line.startswith("####"))


def rows_of_tile(plan: str, rows: int) -> str:
    """A plan with tiles of so many rows."""
    return re.sub(r"steps x \d+ rows", f"steps x {rows} rows", plan)


def check(text: str, sizes: dict[str, int], *arguments: Any, rows: int = 0, **facts: Any) -> None:
    """Compare with loops as they are written, in tiles of so many rows if they are told."""
    made = made_of(text, sizes, **facts)
    assert " in sweeps of " in heads(made)
    plan = rows_of_tile(made.stages["pack"], rows) if rows else made.stages["pack"]
    (name,) = define(text)
    operation = tc.define(text)[name]
    kernel = operation.compile(*arguments, plan=plan)
    assert "run at the same time" in "".join(kernel.compilation.source.notes)
    plain = operation.compile(*arguments, options=MappingOptions(fusion_strategy="min"))
    assert "sweeps" not in heads(plain.compilation)
    found, wanted = kernel(*arguments), plain(*arguments)
    assert found.dtype == wanted.dtype
    np.testing.assert_allclose(found, wanted, rtol=1e-5 if wanted.dtype == np.float32 else 1e-12)


@pytest.mark.parametrize(
    ("n", "steps", "facts"),
    [(34, 9, {}), (39, 3, {"rows": 2}), (41, 17, {"rows": 5}), (37, 8, {"rows": 200}), (40, 5, {"vector_bytes": 16})],
)
def test_steps_run_at_the_same_time(n: int, steps: int, facts: dict[str, int]) -> None:
    A = np.random.default_rng(n).random((n, n))
    check(SEIDEL, {"N": n, "T": steps}, A, steps, **facts)


def test_sweeps_are_those_of_numpy() -> None:
    A = np.random.default_rng(0).random((33, 33))
    np.testing.assert_allclose(tc.define(SEIDEL).seidel_2d(A, 10), polybench.seidel_2d(A, 10), rtol=1e-12)


def test_plans_tell_steps_and_rows() -> None:
    assert "in sweeps of 8 steps x 32 rows x 4 lanes" in heads(made_of(SEIDEL, {"N": 200, "T": 40}))
    assert "in sweeps of 4 steps x" in heads(made_of(SEIDEL, {"N": 200, "T": 3}))
    assert "by_wave" in made_of(SEIDEL, {"N": 200, "T": 1}).source.text
    assert " in " not in heads(made_of(SEIDEL, {"N": 20, "T": 40}))
    plan = made_of(SEIDEL, {"N": 34, "T": 9}).stages["pack"]
    A = np.zeros((34, 34))
    for wrong in (rows_of_tile(plan, 0), plan.replace("8 steps", "7 steps"), plan.replace("4 lanes", "3 lanes")):
        with pytest.raises(PlanError, match="has sizes that no sweeps have"):
            tc.define(SEIDEL).seidel_2d.compile(A, 9, plan=wrong)


@pytest.mark.parametrize("seed", range(10))
def test_random_neighbours_types_and_other_tensors(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, m, steps = (int(rng.integers(*ends)) for ends in ((38, 44), (38, 44), (4, 12)))
    dtype = ["double", "float", "int32", "int64", "uint32"][seed % 5]
    kind = np.dtype({"double": "float64", "float": "float32"}.get(dtype, dtype))
    reach = 1 + seed // 7
    away = {(int(a), int(b)) for a, b in rng.integers(-reach, reach + 1, (4, 2))} | {(0, -1), (1, 1 - seed % 3)}
    terms = [f"A(i+{a},j+{b})".replace("+-", "-") for a, b in sorted(away)]
    terms += ["F(i,j)", "F(i-1,j+2)", "G(j+1,i)", "c(i)", "d(j)", "e(2)"][: seed % 7]
    value = " + ".join(terms)
    value = f"0.1 * ({value})" if dtype == "double" else value if seed % 2 else f"max(A(i,j), {value})"
    given = f"{dtype}(N,M) F, {dtype}(M,N) G, {dtype}(N) c, {dtype}(M) d, {dtype}(3) e,"
    text = BLOCK.format(
        given=given, rows="2:N-3", columns="3:M-2", op="=" if seed % 4 else "+=", value=value
    ).replace("double(N,M) A0", f"{dtype}(N,M) A0")  # fmt: skip
    shapes = (n, m), (n, m), (m, n), n, m, 3
    given_arrays = [(rng.random(s) * 0.01 if kind.kind == "f" else rng.integers(0, 9, s)).astype(kind) for s in shapes]
    if dtype == "float":
        given_arrays = [a * np.float32(1e-6) for a in given_arrays]
    check(text, {"N": n, "M": m, "T": steps}, *given_arrays, steps, rows=int(rng.integers(3, 20)))


def test_columns_first_and_blocks_around() -> None:
    rng = np.random.default_rng(0)
    text = """def f(float(N,M) A0, const int T) -> (A) {
      A(i,j) = A0(i,j)
      for r in 0:3 {
        for t in 0:T { for j in 1:M-1 { for i in 1:N-1 {
          A(i,j) = 0.25 * (A(i-1,j) + A(i+1,j) + A(i,j-1) + A(i,j+1))
        } } }
        A(i,0) = A(i,0) + 0.5 * A(i,1) where i in 0:N
      }
    }"""
    check(text, {"N": 36, "M": 39, "T": 5}, rng.random((36, 39)).astype(np.float32), 5, rows=4)


@pytest.mark.parametrize(
    "value",
    [
        "t == 0 ? A(i,j-1) : A(i,j) + A(i,j-1)",
        "A(i,j-1) + exp(A(i,j))",
        "A(i,j-1) * A(N-1-i,j)",
        "A(i,j-1) + A(i,j-1) * t",
        "A(i,j-1) + A(2*i - i,0) * 0.1",
    ],
)
def test_other_values_stay_as_they_are(value: str) -> None:
    text = BLOCK.format(given="", rows="1:N-1", columns="1:M-1", op="=", value=value)
    made = made_of(text, {"N": 36, "M": 36, "T": 4})
    assert "sweeps" not in heads(made)


def test_a_lane_that_is_too_close_is_refused() -> None:
    made = made_of(SEIDEL, {"N": 40, "T": 9})
    (place,) = (n for n, item in enumerate(made.pieces.body) if isinstance(item, Sweeps))
    swept = made.pieces.body[place]
    assert isinstance(swept, Sweeps)
    prove_sweeps(made.cutter, made.pieces)
    for wrong in (
        replace(swept, column_lag=1), replace(swept, row_lag=0), replace(swept, rows=(1, 38)),
        replace(swept, rows_of_tile=0), replace(swept, steps=6), replace(swept, reads=swept.reads[1:]),
    ):  # fmt: skip
        body = [*made.pieces.body]
        body[place] = wrong
        with pytest.raises(LegalityError, match="depend on each other"):
            prove_sweeps(made.cutter, replace(made.pieces, body=tuple(body)))
