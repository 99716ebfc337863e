"""Random programs on a CUDA device, where ``tcomp fuzz --target cuda`` tries as many as one likes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tcomp.fuzzing.cases import Case
from tcomp.fuzzing.deviceruns import placed
from tcomp.fuzzing.draws import Draw, Drawn
from tcomp.fuzzing.execution import Verdict
from tcomp.fuzzing.programs.programs import Program
from tcomp.fuzzing.relations import LAYOUTS, laid_out
from tcomp.fuzzing.workers import Worker
from tcomp.grammar import parse
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.evaluation import numpy_dtype
from tcomp.values.operators import DTYPES

NUMBERS = np.arange(105).reshape(3, 5, 7) % 11


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_get_there_and_back(dtype: str, cupy: Any) -> None:
    whole = NUMBERS.astype(numpy_dtype(DTYPES[dtype]))
    arrays = [laid_out(whole, layout) for layout in range(LAYOUTS)]
    arrays += [np.broadcast_to(whole[0, 0], (4, 7)), whole[2:2, ::-1], whole[1, 2, 3, ...]]
    for array in arrays:
        found = placed(array)
        assert (found.array.shape, found.array.dtype, found.array.strides) == (array.shape, array.dtype, array.strides)
        assert found.array.data.ptr == found.memory.data.ptr + found.offset
        np.testing.assert_array_equal(found.content(), array)
        found.check()


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_type_runs(dtype: str, cupy: Any) -> None:
    text = f"def f({dtype}(N,M) A) -> (B, C) {{ B(i,j) = A(i,j)  C(i) max=! A(i,j) }}"
    with Worker(300.0) as worker:
        for relation in ("same", "strided"):
            case = Case(Program(parse(text)[0], {"N": 7, "M": 40}), "cuda", MappingOptions(), relation, 3)
            outcome = worker.run(case).outcome
            assert outcome.verdict is Verdict.PASSED, outcome


def test_a_few_programs(cupy: Any) -> None:
    with Worker(300.0) as worker:
        for number in range(4):
            for event in worker.draw(Draw(1, number, ("cuda",))):
                assert isinstance(event, Drawn) or event.outcome.verdict is Verdict.PASSED, event
