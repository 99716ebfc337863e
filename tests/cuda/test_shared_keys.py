"""Attention of few queries, as a step of decoding has, whose keys several blocks share."""

from __future__ import annotations

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.cuda.tools.images import compile_image
from tcomp.backends.opencl.target import OpenClBackend
from tcomp.driver import Compilation, lower
from tcomp.errors import LegalityError, PlanError, TargetError
from tcomp.grammar import define
from tcomp.mapping.machines.opencl import opencl_device
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.text.writer import plan_text
from tcomp.model.reference import interpret
from tcomp.model.terms.sizes import Sizes
from tests.cuda.compiled import BACKEND, UNSET, Data, compiled, run
from tests.cuda.machine_code import counted, loops_of
from tests.cuda.mutations import mutants
from tests.cuda.simulated import NEEDS_COMPILER
from tests.cuda.test_attention_by_warps import CAUSAL as HALF_CAUSAL
from tests.cuda.test_attention_by_warps import FLASH, GROUPED, ROUNDED, data_of, products
from tests.cuda.test_attention_by_warps import MASKED as HALF_MASKED
from tests.cuda.test_turns import ATTENTION, CAUSAL, MASKED, arrays, attention, made, refused, scores

pytestmark = pytest.mark.sweep(3)

DECODE = {"B": 32, "L": 1, "S": 4096, "D": 128, "E": 128}
"""A step of decoding with 32 heads."""


def launches(made_of: Compilation) -> list[int]:
    """How many blocks each kernel has."""
    return [int(np.prod(launch.grid)) for launch in made_of.source.launches]


def with_parts(text: str, parts: int, **sizes: int) -> Compilation:
    """The kernels with a number of parts that the user gives."""
    return compiled(define(text)["f"], sizes, tc.MappingOptions(split_reduction=parts))


def results(made_of: Compilation, data: Data) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """What the kernels find on the simulator."""
    (output,) = [a for a in made_of.source.arguments if a.role == "output"]
    unset = {output.name: np.full(output.shape, UNSET, output.dtype.name)}
    report, found = run(made_of.source, Data(data.inputs, {}, unset))
    assert not report.findings, str(report)
    return found[output.name].astype(np.float64)


@pytest.mark.parametrize("text", [ATTENTION, FLASH, GROUPED.replace("/2", "/4")], ids=["floats", "halves", "grouped"])
def test_blocks_of_a_step_of_decoding(text: str) -> None:
    """There were 32 blocks, one for each head, on 108 multiprocessors."""
    sizes = DECODE | ({"G": 8} if "/4" in text else {})
    made_of = made(text, **sizes)
    assert launches(made_of)[0] >= (8 * 32 if "/4" in text else 300)
    assert len(made_of.source.launches) == 2
    assert made_of.source.scratch_bytes < 1.1 * 32 * 4096 * 4  # what scores of floats would take
    for architecture in ("sm_80", "sm_90"):
        try:
            image = compile_image(compiled(define(text)["f"], sizes, architecture=architecture).source, architecture)
        except TargetError as error:
            pytest.skip(error.message)
        assert [(k.spill_stores, k.spill_loads) for k in image.kernels] == 2 * [(0, 0)]


@pytest.mark.parametrize(("text", "load"), [(ATTENTION, "LDG.E.128"), (FLASH, "LDG.E.64")], ids=["floats", "halves"])
def test_a_warp_reads_a_key_by_one_instruction(text: str, load: str) -> None:
    sums = [loop for loop in loops_of(made(text, **DECODE).source)["f_0"] if loop.count("SHFL")]
    assert sums
    for loop in sums:
        assert loop.count(load) == loop.count("LDG")


@NEEDS_COMPILER
@pytest.mark.parametrize(
    ("text", "sizes", "parts"),
    [
        (ATTENTION, (2, 1, 300, 32, 40), 4),
        (ATTENTION, (1, 3, 257, 9, 20), 3),
        (FLASH, (2, 1, 400, 64, 64), 5),
        (FLASH, (1, 5, 131, 24, 17), 2),
        (ROUNDED, (2, 1, 200, 16, 16), 3),
    ],
    ids=["floats", "odd floats", "halves", "odd halves", "rounded"],
)
def test_results_are_those_of_the_interpreter(text: str, sizes: tuple[int, ...], parts: int) -> None:
    made_of = with_parts(text, parts, **dict(zip("BLSDE", sizes, strict=True)))
    data = data_of(made_of)
    tolerance = {"rtol": 2e-5, "atol": 2e-6} if text is ATTENTION else {"rtol": 3e-3, "atol": 1e-3}
    np.testing.assert_allclose(results(made_of, data), data.expected["O"].astype(np.float64), **tolerance)
    if text is not ROUNDED:
        assert len(launches(made_of)) == 2
        assert made_of.plan.rescaled


@NEEDS_COMPILER
def test_heads_of_floats_that_share_keys_are_in_one_block() -> None:
    """Each head had a block for each part of its keys."""
    text = ATTENTION.replace("float(B,S", "float(G,S").replace("K(b,", "K(b/3,").replace("V(b,", "V(b/3,")
    made_of = with_parts(text, 3, B=6, G=2, L=2, S=300, D=24, E=20)
    data = data_of(made_of)
    assert launches(made_of)[0] == 2 * 3
    assert {c.storage: c.shape[0] for c in made_of.plan.copies if c.storage in "QKV"} == dict.fromkeys("QKV", 1)
    np.testing.assert_allclose(results(made_of, data), data.expected["O"], rtol=2e-5, atol=2e-6)


@NEEDS_COMPILER
@pytest.mark.parametrize(
    ("text", "parts", "sizes", "blocks"),
    [
        (GROUPED, 2, {"B": 4, "G": 2, "L": 1, "S": 250, "D": 16, "E": 32}, 4),
        (GROUPED.replace("/2", "/6"), 2, {"B": 12, "G": 2, "L": 4, "S": 300, "D": 40, "E": 24}, 4),
        (GROUPED, 3, {"B": 4, "G": 2, "L": 1, "S": 200, "D": 16, "E": 32}, 6),
        (GROUPED, 1, {"B": 4, "G": 2, "L": 3, "S": 131, "D": 20, "E": 16}, 2),
        (HALF_CAUSAL, 2, {"B": 2, "L": 5, "S": 250, "D": 16, "E": 16}, 4),
        (HALF_MASKED, 2, {"B": 1, "L": 7, "S": 128, "D": 16, "E": 16}, 2),
    ],
    ids=["one query", "queries and heads", "turns that parts do not divide", "one part", "condition", "mask"],
)
def test_queries_that_share_keys_are_rows_of_matrices(
    text: str, parts: int, sizes: dict[str, int], blocks: int
) -> None:
    made_of = with_parts(text, parts, **sizes)
    data = data_of(made_of)
    assert launches(made_of)[0] == blocks
    assert len(products(made_of.plan)) == (0 if parts == 3 else 2)
    np.testing.assert_allclose(results(made_of, data), data.expected["O"].astype(np.float64), rtol=3e-3, atol=1e-3)


@NEEDS_COMPILER
def test_masks_may_hide_whole_shares() -> None:
    made_of = with_parts(HALF_MASKED, 2, B=1, L=4, S=256, D=16, E=16)
    data = data_of(made_of)
    mask = data.inputs["M"]
    mask[1, :130] = mask[2, 120:] = mask[3] = -np.inf
    expected = interpret(made_of.function, data.inputs)["O"].astype(np.float64)
    assert np.isnan(expected[0, 3]).all() and not np.isnan(expected[0, :3]).any()
    np.testing.assert_allclose(results(made_of, data), expected, rtol=3e-3, atol=1e-3)


def test_keys_are_read_once_for_all_heads_that_share_them() -> None:
    """There were 416 blocks, 13 for each of 32 heads, that read the keys of 8 heads four times."""
    made_of = made(GROUPED.replace("/2", "/4"), **DECODE, G=8)
    (done,) = made_of.plan.rescaled
    turns = launches(made_of)[0] * done.shared // done.steps
    fetched = {c.storage: int(np.prod(c.shape)) for c in made_of.plan.copies if c.storage in "KV"}
    assert turns * fetched["K"] == turns * fetched["V"] == 8 * 4096 * 128
    counts = counted(made_of.source, "f_0", "HMMA")
    assert (counts.count("HMMA"), counts.count("LDG"), counts.count("LDL", "STL")) == (128, 0, 0)
    assert counts.count("LDSM") == 72


def test_queries_that_share_keys_stay_together_in_text() -> None:
    sizes = {"B": 4, "G": 2, "L": 3, "S": 256, "D": 16, "E": 16}
    made_of = with_parts(GROUPED, 2, **sizes)
    text, options = plan_text(made_of.plan, "barriers"), tc.MappingOptions(split_reduction=2)

    def again(changed: str) -> Compilation:
        return lower(define(GROUPED)["f"], Sizes(sizes), options, BACKEND, True, changed)

    assert again(text).source == made_of.source
    for old, new in (("number = 2", "number = 3"), ("shared = 128", "shared = 96"), ("shared = 128", "shared = 32")):
        assert old in text
        with pytest.raises((LegalityError, PlanError)):
            again(text.replace(old, new))


@pytest.mark.parametrize("half", range(2))
def test_mutants_of_turns_that_blocks_share_are_refused(half: int) -> None:
    plan = with_parts(GROUPED, 2, B=4, G=2, L=1, S=256, D=16, E=16).plan
    chosen = {m.kind: m for m in mutants(plan)}
    assert len(chosen) >= 10
    for mutant in list(chosen.values())[half::2]:
        assert refused(mutant.plan), str(mutant)


@NEEDS_COMPILER
def test_masks_may_hide_whole_parts_and_whole_rows() -> None:
    made_of = with_parts(MASKED, 3, B=1, L=8, S=192, D=8, E=8)
    assert launches(made_of)[0] == 3
    inputs = arrays(Q=(1, 8, 8), K=(1, 192, 8), V=(1, 192, 8), M=(8, 192))
    mask = inputs["M"]
    mask[3, :70] = mask[4, 60:] = mask[5, :191] = mask[7] = -np.inf
    mask[1, 40], mask[2, 70], mask[6, 100] = np.nan, np.inf, 3e38
    expected = attention(scores(inputs) + mask, inputs["V"])
    assert np.isnan(expected[0, [1, 2, 7]]).all()
    found = results(made_of, Data(inputs, {}, {}))
    np.testing.assert_allclose(found, expected, rtol=5e-5, atol=5e-6)


@NEEDS_COMPILER
def test_weights_may_be_zero_under_a_condition() -> None:
    made_of = with_parts(CAUSAL, 4, B=1, L=5, S=200, D=8, E=8)
    assert len(launches(made_of)) == 2
    data = data_of(made_of)
    np.testing.assert_allclose(results(made_of, data), data.expected["O"], rtol=5e-5, atol=5e-6)


def small() -> Plan:
    return with_parts(ATTENTION, 2, B=2, L=1, S=128, D=16, E=32).plan


def test_a_plan_says_that_blocks_share_keys() -> None:
    first = with_parts(ATTENTION, 2, B=2, L=1, S=128, D=16, E=32)
    text, sizes = plan_text(first.plan, "barriers"), Sizes({"B": 2, "L": 1, "S": 128, "D": 16, "E": 32})
    options = tc.MappingOptions(split_reduction=2)
    assert lower(define(ATTENTION)["f"], sizes, options, BACKEND, True, text).source == first.source
    assert "steps = 64" in text
    with pytest.raises((LegalityError, tc.TcompError)):
        lower(define(ATTENTION)["f"], sizes, options, BACKEND, True, text.replace("steps = 64", "steps = 96"))


def test_mutants_are_refused() -> None:
    chosen = {m.kind: m for m in mutants(small())}
    assert len(chosen) >= 6
    for mutant in chosen.values():
        assert refused(mutant.plan), str(mutant)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (ATTENTION, DECODE | {"B": 1000}),
        (ATTENTION, DECODE | {"S": 160}),
        (ATTENTION.replace("-> (O)", "-> (O, s)"), DECODE),
        (ATTENTION.replace("-> (O)", "-> (O, m)"), DECODE),
        (ATTENTION.replace("rsqrt(float(D))", "(0 - 0.5)"), DECODE),
    ],
    ids=["many heads", "few keys", "scores", "the maximum", "negative"],
)
def test_whose_keys_are_not_shared(text: str, sizes: dict[str, int]) -> None:
    assert not made(text, **sizes).plan.rescaled


def test_devices_without_shuffles_share_no_keys() -> None:
    backend = OpenClBackend(opencl_device("gpu"))
    assert not lower(define(ATTENTION)["f"], Sizes(DECODE), tc.MappingOptions(), backend).plan.rescaled
