"""Blocks whose steps run several at a time on tiles: results, plans as text, and tiles that are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.c.target import CpuBackend
from tcomp.errors import LegalityError
from tcomp.grammar import define
from tcomp.mapping.machines.cpu import this_machine
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.terms.sizes import Sizes
from tcomp.stepwise import StepwiseCompilation, lower_stepwise
from tests.language import polybench
from tests.language.test_recurrences import IN_PLACE, JACOBI, TWO_BACK

pytestmark = pytest.mark.sweep(2)

FOLDER = Path(__file__).parents[2] / "examples" / "polybench" / "stencils"
STENCILS = {
    name: (FOLDER / f"{name}.tc").read_text("utf-8") for name in ("jacobi-1d", "jacobi-2d", "fdtd-2d", "heat-3d")
}


def tiled(text: str, sizes: dict[str, int], cache: int = 4000) -> StepwiseCompilation:
    """Compiled for a processor with so small a second cache that the block is tiled."""
    (function,) = define(text).values()
    machine = replace(this_machine(), nearest_cache=8192, middle_cache=2 * cache, threads=1)
    return lower_stepwise(function, Sizes(sizes), MappingOptions(), CpuBackend(machine))


def head(compilation: StepwiseCompilation) -> str:
    """The size of the tiles, as the plan says it."""
    titles = [title for title, _, _ in compilation.parts if "tiles of" in title]
    return titles[0].split(" in ")[1].rstrip(":") if titles else ""


def check(text: str, sizes: dict[str, int], *arguments: Any, cache: int = 4000, size: str = "") -> None:
    made = tiled(text, sizes, cache)
    assert size in head(made) if size else head(made)
    (name,) = define(text)
    operation = tc.define(text)[name]
    kernel = operation.compile(*arguments, plan=made.stages["pack"])
    found, wanted = kernel(*arguments), operation.reference(*arguments)
    for a, b in zip(*(r if isinstance(r, tuple) else (r,) for r in (found, wanted)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    assert head(kernel.compilation) == head(made)


@pytest.mark.parametrize(("n", "steps"), [(40, 13), (23, 2), (31, 8)])
def test_stencils_in_two_dimensions(n: int, steps: int) -> None:
    rng = np.random.default_rng(n)
    A, B = rng.random((2, n, n))
    check(STENCILS["jacobi-2d"], {"N": n, "T": steps}, A, B, steps, cache=160 * n)
    fields = rng.random((3, n, n + 3))
    sizes = {"NX": n, "NY": n + 3, "T": steps}
    check(STENCILS["fdtd-2d"], sizes, *fields, rng.random(steps), cache=160 * n)
    check(JACOBI, {"N": n, "M": n, "T": steps}, A, steps, cache=160 * n)


def test_stencils_in_one_dimension_and_in_three() -> None:
    rng = np.random.default_rng(0)
    A, B = rng.random((2, 900))
    check(STENCILS["jacobi-1d"], {"N": 900, "T": 30}, A, B, 30)
    check(TWO_BACK, {"N": 900, "T": 30}, A, 30)
    A, B = rng.random((2, 13, 13, 13))
    check(STENCILS["heat-3d"], {"N": 13, "T": 7}, A, B, 7, cache=12000, size="columns")


def test_long_rows_are_cut_into_columns_and_four_rows_at_once_share_what_they_load() -> None:
    rng = np.random.default_rng(1)
    text = STENCILS["jacobi-2d"]
    A, B = rng.random((2, 61, 61))
    check(text, {"N": 61, "T": 5}, A, B, 5, cache=8000, size="columns")
    source = tiled(text, {"N": 61, "T": 5}, 8000).source.text
    assert "tc_shared3" in source
    assert "tc_shared4" not in source
    halves = text.replace("double", "float")
    A, B = rng.random((2, 61, 61)).astype(np.float32)
    kernel = tc.define(halves).jacobi_2d.compile(A, B, 5, plan=tiled(halves, {"N": 61, "T": 5}, 4000).stages["pack"])
    np.testing.assert_allclose(kernel(A, B, 5)[0], polybench.jacobi_2d(A, B, 5)[0], rtol=1e-5)


def test_rows_that_read_what_they_write_store_no_element_twice() -> None:
    text = """def f(double(N,N) A, const int T) -> (U, V) {
      U(i,j) = A(i,j)
      V(i,j) = A(i,j)
      for t in 0:T {
        V(i,j) = U(i,j) + 0.25 * (U(i-1,j) + U(i+1,j)) where i in 1:N-1, j in 0:N
        U(i,j) = 0.5 * U(i,j) + 0.125 * (V(i-1,j) + V(i,j) + V(i+1,j)) where i in 2:N-2, j in 0:N
      }
    }"""
    check(text, {"N": 41, "T": 6}, np.random.default_rng(2).random((41, 41)), 6, cache=9000)
    assert "tc_shared" in tiled(text, {"N": 41, "T": 6}, 9000).source.text


def test_boundaries_that_change_are_part_of_the_tiles() -> None:
    text = """def f(double(N,M) A, double(T) left, double(T) right) -> (U) {
      U(i,j) = A(i,j)
      for t in 0:T {
        V(i,j) = U(i,j) + 0.1 * (U(i+1,j) - 2.0 * U(i,j) + U(i-1,j)) where i in 1:N-1, j in 0:M
        V(0,j) = left(t) where j in 0:M
        V(N-1,j) = right(t) where j in 0:M
        U(i,j) = V(i,j) where i in 0:N, j in 0:M
      }
    }"""
    rng = np.random.default_rng(1)
    arguments = rng.random((40, 6)), rng.random(9), rng.random(9)
    # Where nothing else reads V, a step could have it for itself; for tiles it is kept.
    for outputs in ("-> (U)", "-> (U, V)"):
        check(text.replace("-> (U)", outputs), {"N": 40, "M": 6, "T": 9}, *arguments, cache=1000)


@pytest.mark.parametrize("n", [40, 35])
def test_what_is_written_in_place_gets_a_tensor_between(n: int) -> None:
    A = np.random.default_rng(n).random((n, n))
    check(IN_PLACE, {"N": n, "M": n, "T": 7}, A, 7, cache=138 * n)
    both = IN_PLACE.replace("where", "+ (i < j ? 0.0 : 0.125 * O(i,j)) where")
    check(both, {"N": n, "M": n, "T": 3}, A, 3, cache=138 * n)


@pytest.mark.parametrize(
    "text",
    [
        # What is far away is needed at once.
        JACOBI.replace("U(t-1,i,j) where", "U(t-1,N-1-i,j) where"),
        # All rows need the sum of all.
        """def f(double(N,M) A, const int T) -> (O) {
          O(i,j) = A(i,j)
          for t in 0:T { s(j) +=! O(i,j)  O(i,j) = O(i,j) - s(j) }
        }""",
    ],
)
def test_blocks_that_are_not_tiled(text: str) -> None:
    assert not head(tiled(text, {"N": 40, "M": 30, "T": 9}, 500))


def test_small_blocks_and_options_that_ask_for_no_fusion_leave_blocks_as_they_are() -> None:
    (function,) = define(JACOBI).values()
    sizes, backend = Sizes({"N": 40, "M": 40, "T": 9}), CpuBackend(replace(this_machine(), middle_cache=1 << 20))
    assert not head(lower_stepwise(function, sizes, MappingOptions(), backend))
    small = CpuBackend(replace(this_machine(), middle_cache=12000))
    assert head(lower_stepwise(function, sizes, MappingOptions(), small))
    assert not head(lower_stepwise(function, sizes, MappingOptions(fusion_strategy="min"), small))


def test_tiles_of_a_plan_may_be_changed_if_they_stay_independent() -> None:
    made = tiled(JACOBI, {"N": 40, "M": 40, "T": 9}, 6000)
    size, operation = head(made), tc.define(JACOBI).jacobi
    text = made.stages["pack"]
    A = np.random.default_rng(2).random((40, 40))
    for other in ("tiles of 3 steps x 17 rows", "tiles of 1 steps x 2 rows", "tiles of 4 steps x 200 rows"):
        kernel = operation.compile(A, 9, plan=text.replace(size, other))
        np.testing.assert_allclose(kernel(A, 9), polybench_jacobi(A, 9), rtol=1e-12)
    for wrong in ("tiles of 5 steps x 6 rows", "tiles of 9 steps x 15 rows"):
        with pytest.raises(LegalityError, match="depend on each other"):
            operation.compile(A, 9, plan=text.replace(size, wrong))
    for wrong in ("tiles of 0 steps x 6 rows", "tiles of 2 steps x 0 rows", "tiles of 2 steps x 99999999 rows"):
        with pytest.raises(tc.TcompError):
            operation.compile(A, 9, plan=text.replace(size, wrong))


def polybench_jacobi(A: Any, steps: int) -> Any:
    for _ in range(steps):
        A = polybench.jacobi_2d(A, A, 1)[1]
    return A


ALONG_ROWS = """def f(double(N,M) A) -> (S) {
  for j in 0:M { S(i,j) = 0.5 * (j > 0 ? S(i,j-1) : 0.0) + A(i,j) }
}"""


def test_rows_that_need_nothing_of_each_other_run_all_their_steps_in_strips() -> None:
    A = np.random.default_rng(3).random((70, 9))
    check(ALONG_ROWS, {"N": 70, "M": 9}, A, cache=1000, size="tiles of 9 steps x 24 rows")
    text = tiled(ALONG_ROWS, {"N": 70, "M": 9}, 1000).source.text
    assert text.count("for (long strip") == 1, "there is nothing between straight edges"


ACROSS = """def f(double(M,M) A, const int N) -> (U) {
  U(i,j) = A(i,j)
  for k in 0:N { U(i,j) = U(i,j) - 0.01 * U(i,k) * U(k,j) where i in k+1:N, j in N:M }
}"""
DOWN = """def f(double(M,M) A, const int N) -> (L) {
  L(i,j) = A(i,j)
  for k in 0:N { L(i,k) = L(i,k) / (2.0 + L(k,k)) where i in N:M
                 L(i,j) = L(i,j) - 0.01 * L(i,k) * L(k,j) where i in N:M, j in k+1:N }
}"""


@pytest.mark.parametrize(("m", "columns"), [(90, 40), (101, 48)])
def test_columns_run_in_strips_where_rows_need_each_other(m: int, columns: int) -> None:
    """As many as the nearest cache has room for with all rows, whole lines of them: 8192 bytes by 15 rows."""
    A = np.random.default_rng(m).random((m, m))
    check(ACROSS, {"M": m, "N": 16}, A, 16, cache=1000, size=f"tiles of 16 steps x {columns} rows")
    more = ACROSS.replace("U(i,k) *", "(i + j < 60 ? U(i,k) : U(k,i)) *")
    check(more, {"M": m, "N": 16}, A, 16, cache=1000, size=f"tiles of 16 steps x {columns} rows")


def test_columns_that_need_each_other_run_in_no_strips() -> None:
    assert not head(tiled(ACROSS.replace("U(k,j) where", "U(k,j-1) where"), {"M": 90, "N": 16}, 1000))
    assert not head(tiled(ACROSS.replace("U(i,k) *", "U(i,M-1) *"), {"M": 90, "N": 16}, 1000))


@pytest.mark.parametrize(("n", "rows"), [(2, 50), (12, 30)])
def test_rows_of_several_lines_run_in_narrower_strips(n: int, rows: int) -> None:
    A = np.random.default_rng(n).random((102, 102))
    check(DOWN, {"M": 102, "N": n}, A, n, cache=1000, size=f"tiles of {n} steps x {rows} rows")


def test_blocks_in_blocks_are_tiled() -> None:
    adi = (FOLDER / "adi.tc").read_text("utf-8")
    check(adi, {"N": 40, "T": 3}, np.random.default_rng(4).random((40, 40)), 3, cache=1000, size="tiles of 38 steps")
    text = """def f(double(N,M) A, const int T) -> (U, V) {
      U(i,j) = A(i,j)
      V(i,j) = A(i,j)
      for t in 0:T {
        for j in 1:M-1 { U(i,j) = 0.25 * (U(i,j-1) + 2.0 * U(i,j) + U(i,j+1)) where i in 0:N }
        for s in 0:4 { V(i,j) = 0.5 * U(i,j) + 0.25 * (U(i-1,j) + U(i+1,j)) where i in 1:N-1, j in 0:M
                       U(i,j) = V(i,j) where i in 1:N-1, j in 0:M }
      }
    }"""
    made = tiled(text, {"N": 70, "M": 8, "T": 3}, 2000)
    assert sum("tiles of" in title for title, _, _ in made.parts) == 3
    check(text, {"N": 70, "M": 8, "T": 3}, np.random.default_rng(5).random((70, 8)), 3, cache=2000)


def test_edges_must_lean_in_blocks_in_blocks_too() -> None:
    text = """def f(double(N,M) A, const int T, const int S) -> (U) {
      U(i,j) = A(i,j)
      for s in 0:S { for t in 0:T { V(i,j) = U(i,j) where i in 0:N, j in 0:M
                                    U(i,j) = V(i-1,j) where i in 1:N, j in 0:M } }
    }"""
    made = tiled(text, {"N": 40, "M": 5, "T": 9, "S": 2}, 500)
    plan, size = made.stages["pack"], head(made)
    A = np.random.default_rng(7).random((40, 5))
    with pytest.raises(LegalityError, match="depend on each other"):
        tc.define(text).f.compile(A, 9, 2, plan=plan.replace(size, "tiles of 9 steps x 5 rows"))


def test_loads_and_stores_of_rows_are_distances_from_one_pointer() -> None:
    body = tiled(STENCILS["heat-3d"], {"N": 13, "T": 7}, 12000).source.text
    assert "tc_near0 - 13)" in body or "tc_near0 + 13)" in body
    assert "(tc_to + 39)" in body
    assert "tc_near1" not in body
