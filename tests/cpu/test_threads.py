"""How many threads run a kernel: as many as the user grants, and not more than there are."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.c.parallel import tile_loops
from tcomp.driver import lower
from tcomp.errors import TcompError
from tcomp.grammar import define
from tcomp.loops.ir import Execute, For, If, Number, Variable
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


TRIANGLE = For("c0", Number(0), Number(4), 1, For("c1", Variable("c0"), Number(9), 1, Execute("S", (Variable("c1"),))))


@pytest.mark.parametrize("rows", [4, 40])
def test_a_few_rows_of_tiles_are_shared_out_tile_by_tile(rows: int) -> None:
    whole = replace(TRIANGLE, upper=Number(rows))
    loops, tile = tile_loops(whole, 2)
    if rows == 40:
        assert [loop.iterator for loop in loops] == ["c0"], "these are enough"
        return
    assert [(loop.lower, loop.upper) for loop in loops] == [(Number(0), Number(4)), (Number(0), Number(9))]
    assert isinstance(tile, If)
    assert str(tile.condition) == "((c0 <= c1) && (c1 < 9))"
    assert tile_loops(whole, 1)[1] == whole.body, "one thread runs them as they are"


def test_no_tile_of_a_triangle_is_left_out_or_run_twice() -> None:
    ranges = "where i in 0:M, j in 0:M  C(i,j) += A(i,j) where i in 0:M, j in i:M"
    text = f"def f(float(M,M) A) -> (float(M,M) C) {{ C(i,j) = -1 {ranges} }}"
    options = tc.MappingOptions(tile_sizes=(100, 30))
    made = lower(define(text)["f"], Sizes({"M": 500}), options, CPU).source.text
    assert "count = 5L * 17L;" in made
    assert re.search(r"if \(\(\(.* <= c1\) && \(c1 < .*\)\)\) {", made)
    given = np.random.default_rng(0).integers(-9, 9, (500, 500)).astype(np.float32)
    f = tc.define(text).f
    np.testing.assert_array_equal(f(given, options=options), f.reference(given))
