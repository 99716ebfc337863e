"""Reductions into elements that data choose by atomic operations: the values, who may have them, and the proof."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.arrays.devices import Memory
from tcomp.backends.c.target import CpuBackend
from tcomp.backends.host import native
from tcomp.backends.host.runtime import HostRuntime
from tcomp.driver import lower
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.text.writer import plan_text
from tcomp.model.terms.sizes import Sizes
from tcomp.runtime.binding import Binding
from tcomp.runtime.calls import check_call
from tcomp.runtime.given import sizes_of
from tests.cpu.test_scatter import PROGRAMS, arrays
from tests.cuda.simulated import NEEDS_COMPILER

ATOMICS = tc.MappingOptions(atomics=True)
WIDE = Machine(vector_bytes=32, registers=16, datapath_bytes=32, threads=64)
SUMS = "def f(int32(N) I, TYPE(N) V) -> (TYPE(50) O) { O(I(i)) OP! V(i) }"


@NEEDS_COMPILER
@pytest.mark.parametrize(
    ("name", "reduction"),
    [("rows", "max="), ("into what is there", "+="), ("two places", "*="), ("a triangle", "+="), ("read before", "+=")],
)
def test_results_on_a_gpu(name: str, reduction: str) -> None:
    f = tc.define(PROGRAMS[name].replace("OP", reduction)).f
    given = arrays(f, 37, 5, 1 if reduction == "*=" else 3)
    kernel = f.compile(*given, target="simulator", options=ATOMICS)
    assert "tc_atomic_" in kernel.source
    np.testing.assert_array_equal(kernel(*given), f.reference(*given))


@pytest.mark.parametrize("target", ["cpu", pytest.param("simulator", marks=NEEDS_COMPILER)])
@pytest.mark.parametrize("dtype", ["double", "int64", "half"])
def test_types_and_reductions(dtype: str, target: str) -> None:
    text = "\n".join(
        SUMS.replace("TYPE", dtype).replace("OP", operator).replace(" f(", f" f{n}(")
        for n, operator in enumerate(("+=", "max=", "*=")[: 1 if (dtype, target) == ("half", "simulator") else 3])
    )
    generator = np.random.default_rng(0)
    places = generator.integers(0, 50, 800).astype(np.int32)
    values = generator.integers(1, 3, 800).astype(np.float16 if dtype == "half" else dtype)
    ops = tc.define(text)
    for name in ops:
        f = ops[name]
        given = values if name != "f2" else np.where(np.arange(800) % 90, 1, values).astype(values.dtype)
        if target == "cpu":
            source, found = run_on_many_threads(f, places, given)
        else:
            kernel = f.compile(places, given, target=target, options=ATOMICS)
            source, found = kernel.source, kernel(places, given)
        assert re.search(r"__atomic_compare_exchange|tc_atomic_", source)
        np.testing.assert_array_equal(found, f.reference(places, given))


def run_on_many_threads(f: tc.Operation, *given: Any) -> tuple[str, Any]:
    """The text of a kernel for a processor that has more threads than this one, and what it computes here."""
    call = check_call(f.function, given, None, memory=Memory.MAIN)
    source = lower(f.function, sizes_of(call), ATOMICS, CpuBackend(WIDE)).source
    found = Binding(source, HostRuntime(native.load).load(source), call).run(call.arrays, call.outputs)
    return source.text, call.finish(tuple(found))


def test_few_threads_do_not_meet() -> None:
    f = tc.define(SUMS.replace("TYPE", "float").replace("OP", "+=")).f
    few = CpuBackend(replace(WIDE, threads=4))
    assert "__atomic_compare" not in lower(f.function, Sizes({"N": 800}), ATOMICS, few).source.text


def test_a_gpu_has_none_of_short_elements() -> None:
    f = tc.define(SUMS.replace("TYPE", "int16").replace("OP", "max=")).f
    with pytest.raises(tc.TargetError, match=r"no atomic `max=` of int16 here, only of elements of 4 or 8 bytes"):
        f.compile(sizes={"N": 40}, target="simulator", options=ATOMICS)


def test_elements_with_indices_of_their_own_stay_as_they_were() -> None:
    f = tc.define("def f(float(N,D) V, int32(N) I) -> (float(7,D) O) { O(I(i),d) +=! V(i,d) }").f
    text = lower(f.function, Sizes({"N": 40, "D": 64}), ATOMICS, CpuBackend(WIDE)).source.text
    assert text == lower(f.function, Sizes({"N": 40, "D": 64}), tc.MappingOptions(), CpuBackend(WIDE)).source.text


@NEEDS_COMPILER
def test_a_plan_keeps_them_and_is_refused_without() -> None:
    f = tc.define(SUMS.replace("TYPE", "float").replace("OP", "+=")).f
    kernel = f.compile(sizes={"N": 90}, target="simulator", options=ATOMICS)
    plan = plan_text(kernel.compilation.plan, [*kernel.compilation.plans][-1])
    assert '[[atomic]]\nstatement = "S0"' in plan
    places, values = np.arange(90, dtype=np.int32) % 50, np.ones(90, np.float32)
    again = f.compile(sizes={"N": 90}, target="simulator", plan=plan)
    np.testing.assert_array_equal(again(places, values), f.reference(places, values))
    with pytest.raises(tc.LegalityError, match=r"several threads reduce one element|run in parallel, but"):
        f.compile(sizes={"N": 90}, target="simulator", plan=plan.replace('[[atomic]]\nstatement = "S0"\n', ""))
    with pytest.raises(tc.PlanError, match="S0i is no reduction whose elements data choose"):
        f.compile(sizes={"N": 90}, target="simulator", plan=plan.replace('statement = "S0"', 'statement = "S0i"'))
    row = '[[atomic]]\nstatement = "S0"\n'
    with pytest.raises(tc.PlanError, match="S0 is atomic already"):
        f.compile(sizes={"N": 90}, target="simulator", plan=plan.replace(row, f"{row}\n{row}"))
    with pytest.raises(tc.PlanError, match="atomic"):
        f.compile(sizes={"N": 90}, target="opencl", plan=plan)
