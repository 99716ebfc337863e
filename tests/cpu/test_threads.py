"""How many threads run a kernel: as many as the user grants, and not more than there are."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import tcomp as tc
from tcomp.driver import lower
from tcomp.errors import TcompError
from tcomp.grammar import define
from tcomp.model.terms.sizes import Sizes
from tests.targets import CPU

MATMUL = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
SIZES = {"M": 300, "N": 200, "K": 100}


def threads_of(options: tc.MappingOptions, cores: int = 8) -> int:
    """The threads that a kernel asks OpenMP for on a processor of some cores; 1 where it asks for none."""
    backend = replace(CPU, machine=replace(CPU.machine, threads=cores))
    text = lower(define(MATMUL)["f"], Sizes(SIZES), options, backend).source.text
    found = re.findall(r"#pragma omp parallel num_threads\(tc_min\(omp_get_max_threads\(\), (\d+)\)\)", text)
    return int(found[0]) if found else 1


def test_a_kernel_takes_the_threads_that_are_granted() -> None:
    assert threads_of(tc.MappingOptions()) == 8
    assert threads_of(tc.MappingOptions(threads=(3,))) == 3
    assert threads_of(tc.MappingOptions().map_to_threads(2)) == 2
    assert tc.MappingOptions.from_json('{"threads": 4}') == tc.MappingOptions(threads=(4,)), "a number is one in a list"
    assert threads_of(tc.MappingOptions.from_text("threads=5")) == 5
    assert threads_of(tc.MappingOptions(threads=(1,))) == 1
    assert threads_of(tc.MappingOptions(threads=(64,))) == 8, "there are no more cores"
    assert threads_of(tc.MappingOptions(threads=(4,), parallel=False)) == 1
    assert threads_of(tc.MappingOptions(threads=(32, 8))) == 8, "the threads of a block are many"


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_results_do_not_depend_on_the_threads(threads: int) -> None:
    rng = np.random.default_rng(threads)
    A, B = (rng.standard_normal(shape, dtype=np.float32) for shape in ((300, 100), (100, 200)))
    f = tc.define(MATMUL)["f"]
    np.testing.assert_array_equal(f(A, B, options=tc.MappingOptions(threads=(threads,))), f(A, B))


@pytest.mark.parametrize("threads", [0, -1, True, 2.0, "2", (), (0,)])
def test_what_is_no_number_of_threads_is_told(threads: object) -> None:
    with pytest.raises(TcompError, match="threads is"):
        tc.MappingOptions(threads=threads)  # type: ignore[arg-type]
