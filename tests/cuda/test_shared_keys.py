"""Attention of few queries, as a step of decoding has, whose keys several blocks share."""

from __future__ import annotations

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.cuda.tools.images import compile_image
from tcomp.backends.opencl.target import OpenClBackend
from tcomp.driver import Compilation, lower
from tcomp.errors import LegalityError, TargetError
from tcomp.grammar import define
from tcomp.mapping.machines.opencl import opencl_device
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.text.writer import plan_text
from tcomp.model.terms.sizes import Sizes
from tests.cuda.compiled import BACKEND, UNSET, Data, compiled, run
from tests.cuda.machine_code import loops_of
from tests.cuda.mutations import mutants
from tests.cuda.simulated import NEEDS_COMPILER
from tests.cuda.test_attention_by_warps import FLASH, GROUPED, ROUNDED, data_of
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
    assert launches(made_of)[0] > 300
    assert len(made_of.source.launches) == 2
    assert made_of.source.scratch_bytes < 32 * 4096 * 4
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
def test_heads_may_share_keys() -> None:
    made_of = with_parts(GROUPED, 3, B=4, G=2, L=1, S=200, D=16, E=32)
    data = data_of(made_of)
    assert len(launches(made_of)) == 2
    np.testing.assert_allclose(results(made_of, data), data.expected["O"].astype(np.float64), rtol=3e-3, atol=1e-3)


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
