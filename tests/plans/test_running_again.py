"""The last register tile of a column is whole, and begins further back, where rows may run twice."""

from __future__ import annotations

import numpy as np
import pytest

import tcomp as tc
from tcomp.driver import Compilation, lower
from tcomp.grammar import define
from tcomp.loops.ir import Number, Operation, Variable
from tcomp.loops.shifting import PART, part_times
from tcomp.model.terms.sizes import Sizes
from tcomp.runtime.registry import backend_of

RELU = "def f(T(M,K) A, T(N,K) B, T(N) b) -> (C) { P(i,j) +=! A(i,k) * B(j,k)  C(i,j) = max(P(i,j) + b(j), 0) }"
IN_PLACE = "def f(T(M,K) A, T(N,K) B, T(M,N) X) -> (C) { C(i,j) = X(i,j)  C(i,j) += A(i,k) * B(j,k) }"
HALVES = "def f(T(M,K) A, T(N,K) B) -> (C) { P(i,j) +=! A(i,k) * B(j,k)  C(i/2,i%2,j) = P(i,j) where i in 0:M }"
TWICE = "def f(T(M,K) A, T(N,K) B) -> (C) { C(i,j) +=! A(i,k) * B(j,k)  C(i,j) = 2 * C(i,j) }"
MAXIMA = "def f(T(M,K) A, T(N,K) B) -> (C, m) { C(i,j) +=! A(i,k) * B(j,k)  m(i) max=! C(i,j) }"
SIZES = {"M": 196, "N": 64, "K": 40}


def compiled(text: str, sizes: dict[str, int], plan: str | None = None, target: str = "cpu:x86-64-v3") -> Compilation:
    return lower(
        define(text.replace("T(", "float("))["f"], Sizes(sizes), tc.MappingOptions(), backend_of(target), True, plan
    )


def shifts(made: Compilation) -> list[bool]:
    return [o.shifted for o in made.plan.operations.values()]


def test_the_last_tile_has_no_text_of_its_own() -> None:
    made = compiled(RELU, SIZES)
    assert shifts(made) == [True]
    assert "the last tile whole" in str(next(iter(made.plan.operations.values())))
    assert "_row = min((6 * " in made.stages["loops"] and "not all rows" not in made.source.text
    again = compiled(RELU, SIZES, made.stages["overhang"])
    assert shifts(again) == [True] and again.source.text == made.source.text


@pytest.mark.parametrize("rows", [192, 49, 5])
def test_tiles_that_fit_or_have_too_few_rows_beside_them_stay(rows: int) -> None:
    assert shifts(compiled(RELU, SIZES | {"M": rows})) == [False]


@pytest.mark.parametrize("text", [IN_PLACE, MAXIMA])
def test_rows_that_would_read_what_they_have_written_do_not_run_again(text: str) -> None:
    made = compiled(text, SIZES)
    assert not any(shifts(made))
    plan = made.stages["overhang"].replace('kind = "contract"\n', 'kind = "contract"\nshifted = 1\n')
    assert "shifted" in plan
    with pytest.raises(tc.LegalityError, match=r"runs rows of contract. again"):
        compiled(text, SIZES, plan)


@pytest.mark.parametrize("dtype", ["float", "double", "int32"])
@pytest.mark.parametrize("text", [RELU, IN_PLACE, HALVES, TWICE, MAXIMA])
def test_results_are_right(text: str, dtype: str) -> None:
    drawn = np.random.default_rng(0)
    sizes = {"M": 394, "N": 33, "K": 20}
    operation = tc.define(text.replace("T(", f"{dtype}(")).f
    numpy_type = {"float": "f4", "double": "f8", "int32": "i4"}[dtype]
    shapes = [[sizes[size.name] for size in tensor.dims] for tensor in operation.function.inputs]
    arguments = [drawn.integers(-4, 5, shape).astype(numpy_type) for shape in shapes]
    results, expected = operation(*arguments), operation.reference(*arguments)
    for result, right in zip(*(x if isinstance(x, tuple) else (x,) for x in (results, expected)), strict=True):
        assert np.array_equal(result, right)


def test_a_part_is_a_whole_number_when_it_is_multiplied() -> None:
    part = Operation(PART, (Variable("row"), Number(6)))
    assert part_times(part, 12) == (Variable("row"), 2)
    with pytest.raises(AssertionError, match="no whole number"):
        part_times(part, 4)
