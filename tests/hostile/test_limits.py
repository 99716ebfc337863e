"""Programs, sizes and options at and beyond every limit: a result or a clear error, in bounded time and memory."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import islpy as isl
import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.host import toolchain
from tcomp.driver import lower
from tcomp.grammar import define
from tcomp.grammar.ranges.ranges import infer
from tcomp.mapping.plan.schedule import MAX_CLUSTER
from tcomp.model import islbounds
from tcomp.model.islbounds import TooComplexError
from tcomp.model.madeup import random_arguments
from tcomp.model.terms.sizes import Sizes
from tcomp.runtime.registry import backend_of
from tcomp.storage.forks import ISL
from tests.cpu.test_library import OPERATORS
from tests.hostile.subprocesses import run

pytestmark = pytest.mark.sweep(4)

TARGETS = ("cpu", "simulator")
GPU = "cuda:sm_90"

SIMPLE = "def f(float(N) A) -> (O) { O(i) = A(i) + 1 }"
TWICE = "def f(float(N) A) -> (o) { T(i) = A(i)  T(i) = T(N-1-i) where i in 0:N  o +=! T(i) }"
SQUARE = "def f(float(N) A) -> (O) { O(i) = 1.0 where i in 0:N*N }"


def chain(count: int) -> str:
    body = " ".join(f"T{k}(i) = T{k - 1}(i) + 1" for k in range(1, count))
    return f"def f(float(N) A) -> (O) {{ T0(i) = A(i) {body} O(i) = T{count - 1}(i) }}"


def stencils(count: int) -> str:
    body = " ".join(f"T{k}(i,j) = T{k - 1}(i,j) + T{k - 1}(i+1,j) + T{k - 1}(i,j+1)" for k in range(1, count))
    return f"def f(float(N,N) A) -> (O) {{ T0(i,j) = A(i,j) {body} O(i,j) = T{count - 1}(i,j) }}"


def outputs(count: int) -> str:
    body = " ".join(f"O{k}(i) = A(i) * {k}" for k in range(count))
    return f"def f(float(N) A) -> ({', '.join(f'O{k}' for k in range(count))}) {{ {body} }}"


def triangle(depth: int) -> str:
    ranges = "".join(f", x{k} in x{k - 1}:N" for k in range(1, depth))
    product = "*".join(f"A(x{k})" for k in range(depth))
    return f"def f(float(N) A) -> (o) {{ o +=! {product} where x0 in 0:N{ranges} }}"


def dense(rank: int) -> str:
    indices = ",".join(f"i{k}" for k in range(rank))
    return (
        f"def f(float({indices.replace('i', 'N')}) A) -> (O, s) {{ O({indices}) = A({indices})  s +=! A({indices}) }}"
    )


def many_sizes(count: int) -> str:
    inputs = ", ".join(f"float(N{k}) A{k}" for k in range(count))
    terms = " + ".join(["A0(i)", *(f"A{k}(0)" for k in range(1, 200))])
    return f"def f({inputs}) -> (o) {{ o +=! {terms} }}"


SIX_DEEP = "((((((i*5%97)*7%89)*3%83)*11%79)*2%73)*13%71)"
MODULO = f"def f(float(N) A) -> (O) {{ O(i) = A({SIX_DEEP}) where i in 0:N }}"
DIVISIONS = """def f(float(N,N,N,N,N,N,N,N) A) -> (O) {
  O((a*7/3)%5+b/2, (b*7/3)%5+c/2, (c*7/3)%5+d/2, (d*7/3)%5+e/2, (e*7/3)%5+g/2, (g*7/3)%5+h/2, (h*7/3)%5+k/2) +=!
    A(a,b,c,d,e,g,h,k) }"""


@pytest.fixture
def few_operations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(islbounds, "MOST_OPERATIONS", 3_000)


@pytest.mark.parametrize("target", ["cpu", GPU])
def test_the_bound_on_isl_ends_work_and_leaves_isl_usable(target: str, few_operations: None) -> None:
    function = define(stencils(6))["f"]
    for _ in range(2):
        with pytest.raises(TooComplexError, match=r"f is too complex: isl gave up \(3000 operations in one") as caught:
            lower(function, Sizes({"N": 100}), tc.MappingOptions(), backend_of(target))
        assert caught.value.line == 1
        assert isl.DEFAULT_CONTEXT.get_max_operations() == 0
        assert not isl.Set("{ [i] : 0 <= i < 10 }").is_empty()


def test_a_step_is_tried_with_more_operations_while_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is that of a try that was long enough; without time the first try is the last."""
    function, work = define(SIMPLE)["f"], isl.Set("{ [i, j, k] : 0 <= i < 100 and i <= 3j < 2k and 5k < 7i }")
    tries: list[int] = []

    def step() -> int:
        tries.append(isl.DEFAULT_CONTEXT.get_max_operations())
        return sum(work.intersect(isl.Set(f"{{ [i, j, k] : j = {n} }}")).count_val().to_python() for n in range(60))

    with islbounds.bounded(function) as bounds:
        expected = bounds(step)
    monkeypatch.setattr(islbounds, "FIRST_OPERATIONS", 100)
    tries.clear()
    with islbounds.bounded(function) as bounds:
        assert bounds(step) == expected
    assert len(tries) > 2 and all(later == 4 * earlier for earlier, later in pairwise(tries))
    tries.clear()
    monkeypatch.setattr(islbounds, "SECONDS", 1e-5)
    with pytest.raises(TooComplexError, match="100 operations in one step"), islbounds.bounded(function) as bounds:
        bounds(step)
    assert len(tries) <= 1
    assert isl.DEFAULT_CONTEXT.get_max_operations() == 0


def test_no_step_begins_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(islbounds, "SECONDS", 0.0)
    with pytest.raises(TooComplexError, match="0 s in all"):
        lower(define(SIMPLE)["f"], Sizes({"N": 10}), tc.MappingOptions(), backend_of("cpu"))


@pytest.mark.parametrize("error", [ValueError, isl.Error])
def test_other_errors_of_a_step_are_its_own(error: type[Exception]) -> None:
    def step() -> None:
        raise error("what")

    with pytest.raises(error, match="what"), islbounds.bounded(define(SIMPLE)["f"]) as bounds:
        bounds(step)


def test_what_is_too_complex_with_fusion_is_compiled_without(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the limit grows, there is first no kernel, then one without fusion, then one with."""
    function, sizes, backend = define(stencils(12))["f"], Sizes({"N": 300}), backend_of(GPU)
    outcomes: list[str] = []
    limit = 10_000.0
    while not outcomes or outcomes[-1] != "fused":
        monkeypatch.setattr(islbounds, "MOST_OPERATIONS", int(limit))
        try:
            plan = lower(function, sizes, tc.MappingOptions(), backend).plan
        except TooComplexError:
            outcomes.append("refused")
        else:
            gave_up = any("isl gave up" in note for note in plan.notes)
            outcomes.append("unfused" if gave_up else "fused")
            assert not gave_up or len(plan.groups) == len(plan.clusters)
        limit *= 1.2
    assert sorted(set(outcomes), key=outcomes.index) == ["refused", "unfused", "fused"]


HARD = {
    "six modulos": (MODULO, {"N": 100}),
    "divisions in every subscript": (DIVISIONS, {"N": 9}),
    "triangle over twelve indices": (triangle(12), {"N": 20}),
    "stencils": (stencils(60), {"N": 1000}),
    "a long chain": (chain(400), {"N": 100}),
    "many outputs": (outputs(200), {"N": 100}),
    "64 dimensions": (dense(64), {f"N{k}": 2 if k < 8 else 1 for k in range(64)}),
    "65 dimensions": (dense(65), {f"N{k}": 1 for k in range(65)}),
    "300 sizes": (
        many_sizes(300),
        {f"N{k}": k + 1 for k in range(300)},
    ),
}


REFUSED = {
    "divisions in every subscript": "too complex to analyse",
    "65 dimensions": "at most 64 dimensions",
}


@pytest.mark.timeout(240)
@pytest.mark.parametrize("target", ["cpu", GPU])
@pytest.mark.parametrize("name", HARD)
def test_programs_that_are_hard_on_isl(name: str, target: str) -> None:
    """A plan or an error; isl works afterwards."""
    text, sizes = HARD[name]
    if name in REFUSED:
        with pytest.raises((tc.CompileError, tc.ShapeError), match=REFUSED[name]):
            lower(define(text)["f"], Sizes(sizes), tc.MappingOptions(), backend_of(target))
    else:
        assert lower(define(text)["f"], Sizes(sizes), tc.MappingOptions(), backend_of(target)).source.text
    lower(define(SIMPLE)["f"], Sizes({"N": 10}), tc.MappingOptions(), backend_of(target))


@pytest.mark.long
def test_a_thousand_statements() -> None:
    """In a chain, whose clusters the scheduler sees by ``MAX_CLUSTER`` at a time, they fuse and compute the same."""
    operation, given = tc.define(chain(1000)).f, np.arange(5, dtype=np.float32)
    kernel = operation.compile(given)
    plan = kernel.compilation.plan
    assert max(len(c.statements) for c in plan.clusters) <= MAX_CLUSTER
    assert len(plan.groups) == 1
    np.testing.assert_array_equal(kernel(given), given + 999)


OPTIONS = {
    "huge tiles": tc.MappingOptions(tile_sizes=(1 << 40, 1 << 40)),
    "tiles of one": tc.MappingOptions(tile_sizes=(1, 1, 1)),
    "huge register tile": tc.MappingOptions(register_tile=(1 << 20, 1 << 20)),
    "huge unrolling": tc.MappingOptions(unroll=1 << 40, tile_sizes=(64, 64)),
    "no shared memory": tc.MappingOptions(max_shared_memory=0),
    "one thread": tc.MappingOptions(threads=(1,), blocks=(1,)),
    "all threads": tc.MappingOptions(threads=(32, 32), blocks=(1 << 20, 1 << 15, 1 << 15)),
    "huge reduction tile": tc.MappingOptions(reduction_tile=1 << 40),
    "split into more than there is": tc.MappingOptions(split_reduction=1 << 20),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", OPTIONS)
def test_options_beyond_all_measure(name: str, target: str) -> None:
    operation = tc.define("def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }").mm
    a, b = np.ones((70, 33), np.float32), np.ones((33, 65), np.float32)
    found = operation(a, b, target=target, options=OPTIONS[name])
    np.testing.assert_array_equal(found, np.full((70, 65), 33))


@pytest.mark.parametrize("target", TARGETS)
def test_a_compiler_that_takes_too_long_is_stopped(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no time at all, any kernel takes too long; with time again, the same one compiles."""
    given = np.arange(7, dtype=np.float32)
    operation = tc.define("def f(float(N) A) -> (O) { O(i) = A(i) * 3 + 12345 }").f
    monkeypatch.setenv("TCOMP_CACHE", "0")
    operation(given + 1, target=target, options=tc.MappingOptions(tile_sizes=(3,)))
    with monkeypatch.context() as patch:
        patch.setattr(toolchain, "COMPILE_SECONDS", 0.0)
        patch.setattr("tcomp.backends.simulator.compiler._COMPILE_SECONDS", 0.0)
        with pytest.raises(tc.TargetError, match="did not finish within 0 seconds"):
            operation(given, target=target)
    np.testing.assert_array_equal(operation(given, target=target), given * 3 + 12345)


HANGING = """
import threading
import time
from pathlib import Path
from tcomp.backends.cuda.tools import nvrtc
from tcomp.errors import TargetError
nvrtc.COMPILE_SECONDS, nvrtc._GRACE_SECONDS = 0.1, 0.2
nvrtc.Nvrtc._compile = lambda *_: threading.Event().wait()
compiler = nvrtc.Nvrtc(Path("libnvrtc.so"), (13,), "")
for _ in range(3):
    try: compiler.compile("text", "kernel", "sm_90", ())
    except TargetError as error: print(error.message)
"""


def test_nvrtc_that_hangs_neither_hangs_the_call_nor_the_end_of_the_process() -> None:
    lines = run(HANGING, {}, seconds=100).splitlines()
    assert lines == ["NVRTC hangs on kernel: it was left alone after 0 seconds"] * 3


@pytest.mark.parametrize("size", [1 << 31, 1 << 40, 1 << 61])
def test_huge_extents_compile_and_ask_for_memory_before_they_run(size: int) -> None:
    for text in (SIMPLE, TWICE):
        for target in TARGETS:
            assert tc.define(text).f.compile(sizes={"N": size}, target=target).source
    huge = np.broadcast_to(np.float32(1), (1 << 45,))
    for text in (SIMPLE, TWICE):
        operation = tc.define(text).f
        for call in (operation, operation.reference, lambda a, f=operation: f(a, target="simulator")):
            with pytest.raises(tc.ShapeError, match="no room"):
                call(huge)


@pytest.mark.parametrize("size", [1 << 62, (1 << 63) - 1, 1 << 63, 1 << 64, -1, -(1 << 63)])
@pytest.mark.parametrize("target", TARGETS)
def test_sizes_beyond_64_bit_indices(size: int, target: str) -> None:
    with pytest.raises(tc.ShapeError, match=r"N is (too large|negative)"):
        tc.define(SIMPLE).f.compile(sizes={"N": size}, target=target)


@pytest.mark.parametrize(
    ("text", "sizes", "message"),
    [
        (SQUARE, {"N": 1 << 31}, "O is too large"),
        (SQUARE, {"N": 1 << 40}, "O is too large"),
        ("def f(float(N,M) A, float(N*M) B) -> (O) { O(i) = B(i) }", {"N": 1 << 30, "M": 1 << 40}, "A is too large|B"),
        ("def f(float(N) A) -> (O) { O(i+9223372036854775807) = A(i) }", {"N": 4}, "O is too large"),
        ("def f(float(N) A) -> (O) { O(i) = A(i-9223372036854775807) }", {"N": 4}, "index i goes from .* too far"),
        ("def f(float(N) A) -> (O) { O(i) = A(i-9223372036854775803) }", {"N": 4}, "index i goes from .* too far"),
        (
            "def f(float(N) A) -> (O) { O(i) = A((i*4611686018427387904*2 + i) / 9223372036854775807) where i in 0:N }",
            {"N": 5},
            "computed in 64 bits",
        ),
        (
            "def f(float(N) A) -> (O) { O(i) = (i*9223372036854775807 > i) ? A(i) : 0 where i in 0:N }",
            {"N": 5},
            r"i\*9223372036854775807 goes from 0 to 36893488147419103228, but indices are computed in 64 bits",
        ),
        (
            "def f(float(N) A) -> (O) { O((i*4294967296*4294967296+i)%N) = A(i) }",
            {"N": 5},
            "computed in 64 bits",
        ),
    ],
)
def test_index_arithmetic_that_leaves_64_bits(text: str, sizes: dict[str, int], message: str) -> None:
    operation = tc.define(text).f
    for target in TARGETS:
        with pytest.raises(tc.ShapeError, match=message):
            operation.compile(sizes=sizes, target=target)


@pytest.fixture(scope="module")
def large() -> Iterator[Any]:
    """Two GiB and a little, of which only a few pages exist: the bytes around 2^31 are 1 to 24."""
    with tempfile.NamedTemporaryFile() as file:
        file.truncate((1 << 31) + 16)
        array = np.memmap(file.name, np.int8, "r+", shape=((1 << 31) + 16,))
        array[(1 << 31) - 8 :] = np.arange(1, 25)
        array[:4] = 9, 8, 7, 6
        yield array


BEYOND = {
    "offset": "O(i) = A(i+2147483640) where i in 0:16",
    "range": "O(i) = A(i) where i in 2147483640:2147483656",
    "product": "O(i) = A((i*4294967296) % N) where i in 0:16",
    "edge": "O(i) = repeat_edge(A)(i + N - 4) where i in 0:16",
    "mirror": "O(i) = mirror_image(A)(i*1073741824) where i in 0:9",
    "reduction": "O(j) +=! A(2*i+j) where i in 1073741820:1073741828, j in 0:2",
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", BEYOND)
def test_offsets_beyond_32_bits(name: str, target: str, large: Any) -> None:
    operation = tc.define(f"def f(int8(N) A) -> (O) {{ {BEYOND[name]} }}").f
    for array in (large, large[::-1], np.broadcast_to(large[-5], large.shape))[: 3 if target == "cpu" else 1]:
        found = operation(array, target=target)
        np.testing.assert_array_equal(found, _expected(name, array))


def _expected(name: str, array: Any) -> Any:
    n = len(array)
    match name:
        case "offset" | "range":
            return array[2147483640:2147483656]
        case "product":
            return array[(np.arange(16) << 32) % n]
        case "edge":
            return array[np.minimum(np.arange(16) + n - 4, n - 1)]
        case "mirror":
            places = (np.arange(9) << 30) % (2 * n)
            return array[np.minimum(places, 2 * n - 1 - places)]
    places = 2 * np.arange(1073741820, 1073741828)[:, None] + np.arange(2)
    return array[places].astype(np.int32).sum(0)


PLACES = (-1, -(1 << 63), 1 << 31, 1 << 32, (1 << 63) - 1)


@pytest.mark.parametrize(("place", "target"), [*((p, "cpu") for p in PLACES), (1 << 32, "simulator")])
def test_data_dependent_subscripts_far_outside(place: int, target: str, large: Any) -> None:
    text = "def f(int8(N) A, int64(M) I) -> (O) { O(i) = A(I(i)) }"
    operation = tc.define(text).f
    array = large[: 1 << 31]
    found = operation(array, np.array([0, (1 << 31) - 1, 3]), target=target)
    assert found.tolist() == [9, 8, 6]
    with pytest.raises(tc.ShapeError, match=rf"is {place} at i = 1, but must lie in 0..2147483647"):
        operation(array, np.array([0, place, 3]), target=target)


@pytest.mark.long
def test_operators_at_sizes_0_and_1() -> None:
    """Every second operator of the library with all sizes 0, and with all sizes 1, against the interpreter."""
    tried = sum(_small(name, size, "cpu") for name in list(OPERATORS)[::2] for size in (0, 1))
    assert tried > len(OPERATORS) // 2


@pytest.mark.long
def test_operators_at_sizes_0_and_1_on_the_simulator() -> None:
    tried = sum(_small(name, size, "simulator") for name in list(OPERATORS)[::6] for size in (0, 1))
    assert tried > 10


def _small(name: str, size: int, target: str) -> bool:
    """Whether an operator takes these sizes; then it gives what the interpreter gives."""
    operation = OPERATORS[name]
    function = operation.function
    sizes = dict.fromkeys(function.sizes, size) | {t.name: 1 for t in function.inputs if t.role == "const"}
    try:
        with ISL.value:
            ranges = infer(function, sizes)
    except tc.ShapeError:
        with pytest.raises(tc.ShapeError):
            operation.compile(sizes=sizes, target=target)
        return False
    arguments = random_arguments(function, ranges, 1)
    try:
        found = operation(*arguments.values, out=arguments.fresh_contents() or None, target=target)
    except tc.ShapeError:  # an entry that is in no row
        with pytest.raises(tc.ShapeError):
            operation.reference(*arguments.values, out=arguments.fresh_contents() or None)
        return False
    expected = operation.reference(*arguments.values, out=arguments.fresh_contents() or None)
    for result, right in zip(*(r if isinstance(r, tuple) else (r,) for r in (found, expected)), strict=True):
        assert result.shape == right.shape, name
        np.testing.assert_allclose(result, right, rtol=1e-5, atol=1e-6, err_msg=name)
    return True
