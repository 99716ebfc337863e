"""Ranges that data give are shared by lanes of a warp, whose number follows from their mean length."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.simulator.simulation import Settings
from tcomp.driver import Compilation
from tcomp.grammar import define
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.reference import interpret
from tests.cuda.compiled import Data, compiled, run
from tests.cuda.machine_code import instructions_of
from tests.cuda.simulated import NEEDS_COMPILER

Array = np.ndarray[Any, np.dtype[Any]]

ROWS, ENTRIES = 60, 720
WHERE = "where e in row(i):row(i+1)"
PRODUCT = f"def f(int32(R1) row, int32(E) col, float(E) V, float(N) X) -> (Y) {{ Y(i) +=! V(e) * X(col(e)) {WHERE} }}"
EXTREMA = f"""def f(int32(R1) row, float(E) V) -> (A, B, C) {{
  A(i) max=! V(e) {WHERE}
  B(i) min=! V(e) {WHERE}
  C(i) *=! V(e) > 2.0 ? 2.0 : 1.0 {WHERE}
}}"""
BLOCKS = f"def f(int32(R1) row, float(E,C) V) -> (Y) {{ Y(i) +=! V(e,c) {WHERE} }}"
OF_COLUMNS = f"def f(int32(R1) row, float(E,C) V, float(C) w) -> (Y) {{ Y(i) +=! V(e,c) * w(c) {WHERE} }}"
DENSE = (
    f"def f(int32(R1) row, int32(E) col, float(E) V, float(N,D) X) -> (Y) {{ Y(i,d) +=! V(e) * X(col(e),d) {WHERE} }}"
)
AWAY = """def f(int32(R1) row, int32(E) col, float(N) x) -> (Y) {
  Y(i) +=! x(col(f)) where e in row(i):row(i+1), f in row(col(e)):row(col(e)+1)
}"""
OVERLAPPING = "def f(int32(R) first, int32(R) last, float(E) V) -> (Y) { Y(i) +=! V(e) where e in first(i)-1:last(i) }"


def ends_of(kind: str, rows: int = ROWS, entries: int = ENTRIES) -> Array:
    """Where rows begin, and the last one ends."""
    rng = np.random.default_rng(0)
    match kind:
        case "uniform":
            lengths = np.full(rows, entries // rows)
        case "power law":
            lengths = np.minimum(rng.zipf(1.5, rows), entries)
            lengths = lengths * (entries // 2) // lengths.sum()
            lengths[rng.integers(rows)] += entries - lengths.sum()
        case "one":
            lengths = np.where(np.arange(rows) == 17, entries, 0)
        case _:
            lengths = np.diff([0, *np.sort(rng.integers(0, entries + 1, rows - 1)), entries])
    return np.array([0, *np.cumsum(lengths)], np.int32)


@functools.cache
def made(text: str, shared: bool = True, **sizes: int) -> Compilation:
    known = {"R1": ROWS + 1, "R": ROWS, "E": ENTRIES, "N": ROWS, "C": 5, "D": 40} | sizes
    function = define(text)["f"]
    used = {str(d) for t in function.definition.inputs for d in t.dims or ()}
    return compiled(function, {n: s for n, s in known.items() if n in used}, MappingOptions(match_reductions=shared))


def data_of(compilation: Compilation, ends: Array) -> Data:
    rng = np.random.default_rng(1)
    inputs: dict[str, Array] = {}
    for argument in (a for a in compilation.source.arguments if a.role == "input"):
        match argument.name:
            case "row":
                inputs["row"] = ends
            case "first":
                inputs["first"] = np.maximum(ends[:-1], 1)
            case "last":
                inputs["last"] = np.maximum(ends[1:], inputs["first"] - 1)
            case "col":
                inputs["col"] = rng.integers(0, ROWS, argument.shape).astype(np.int32)
            case name:
                inputs[name] = rng.integers(-3, 4, argument.shape).astype(np.float32)
    return Data(inputs, {}, interpret(compilation.function, inputs))


@NEEDS_COMPILER
@pytest.mark.parametrize("kind", ["uniform", "power law", "one", "some empty"])
@pytest.mark.parametrize(
    "text",
    [PRODUCT, EXTREMA, BLOCKS, AWAY, OVERLAPPING],
    ids=["product", "extrema", "blocks", "two ranges", "overlapping"],
)
def test_lanes_find_what_the_interpreter_finds(text: str, kind: str) -> None:
    """In any order of threads, which never race."""
    compilation = made(text)
    assert any(d.form == "shared" for d in compilation.plan.dealt.values())
    data = data_of(compilation, ends_of(kind))
    for settings in (Settings(order="reverse"), Settings(order="random", seed=3)):
        report, found = run(compilation.source, data, settings)
        assert not report.findings, str(report)
        for name, expected in data.expected.items():
            np.testing.assert_array_equal(found[name], expected, name)


@pytest.mark.parametrize(
    ("entries", "block"),
    [(2 * ROWS, (60, 1)), (4 * ROWS, (2, 60)), (12 * ROWS, (8, 32)), (90 * ROWS, (32, 8)), (3000 * ROWS, (256, 1))],
)
def test_a_range_has_as_many_lanes_as_its_mean_length_asks_for(entries: int, block: tuple[int, int]) -> None:
    (launch,) = made(PRODUCT, E=entries).source.launches
    assert launch.block[:2] == block


def test_lanes_run_along_what_lies_together() -> None:
    """Along the columns of an element, or along the terms of an entry, where there are many of them."""
    (along_columns,) = made(DENSE).plan.dealt.values()
    assert along_columns.form == "serial"
    (along_terms,) = made(OF_COLUMNS, C=64).plan.dealt.values()
    assert [(s.position, s.threads) for s in along_terms.shares] == [(2, 32)]


def test_lanes_take_single_entries() -> None:
    """Also where several could be loaded at a time: data cut the loop over rounds."""
    for dealt in made(OVERLAPPING).plan.dealt.values():
        assert [s.vector for s in dealt.shares] == [1]


@NEEDS_COMPILER
def test_a_block_shares_long_ranges() -> None:
    compilation = made(PRODUCT, R1=4, E=6600)
    data = data_of(compilation, np.array([0, 1, 6000, 6600], np.int32))
    report, found = run(compilation.source, data)
    assert not report.findings, str(report)
    np.testing.assert_array_equal(found["Y"], data.expected["Y"])


@NEEDS_COMPILER
@pytest.mark.parametrize("kind", ["uniform", "power law"])
def test_lanes_touch_half_of_the_sectors(kind: str) -> None:
    sectors = []
    for shared in (False, True):
        compilation = made(PRODUCT, shared)
        report, _ = run(compilation.source, data_of(compilation, ends_of(kind)), Settings(counting=True))
        sectors.append(sum(a.sectors for a in report.kernels[0].select("global") if a.buffer in ("V", "col")))
    assert sectors[1] < 0.5 * sectors[0]


@NEEDS_COMPILER
@pytest.mark.parametrize(
    ("place", "end", "message"),
    [(3, ENTRIES + 5, r"the range (starts|ends) at row\(i.*must lie in 0..720"), (3, 0, "ends .* before it starts")],
)
def test_lanes_check_their_range(place: int, end: int, message: str) -> None:
    compilation, f = made(PRODUCT), tc.define(PRODUCT).f
    data = data_of(compilation, ends_of("uniform"))
    data.inputs["row"][place] = end
    with pytest.raises(tc.ShapeError, match=message):
        f(*data.inputs.values(), target="simulator")


def test_machine_code_combines_by_shuffles() -> None:
    """And keeps nothing in local memory."""
    code = instructions_of(made(PRODUCT).source, "sm_80")
    assert code.count("SHFL") >= 3
    assert code.count("LDL", "STL", "BAR") == 0
