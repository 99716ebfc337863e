"""Blocks that take the tiles of a product in turn, beside a warp that fetches on: results, faults, proofs, texts."""

from __future__ import annotations

import functools
from dataclasses import replace

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.simulator.report import FindingKind
from tcomp.backends.simulator.simulation import Settings
from tcomp.driver import Compilation
from tcomp.errors import LegalityError, PlanError
from tcomp.grammar import define
from tcomp.mapping.proof.legality import prove_complete
from tests.cuda.compiled import compiled, data_for, run
from tests.cuda.simulated import NEEDS_COMPILER
from tests.cuda.test_matrices import TEXTS, arrays_for
from tests.cuda.texts import Text

DEVICE = "cuda:sm_90"
FED = tc.MappingOptions(split_reduction=1, route="tensor")
TURNS = replace(FED, persistent=2, tile_sizes=(64, 64), order=2, stages=3)
SIZES = {"M": 320, "N": 64, "K": 256}
"""Five tiles of four tiles of steps, in three stages: the second of a block begins with another stage and parity."""


def _compilation(name: str = "nn", options: tc.MappingOptions = FED, **sizes: int) -> Compilation:
    return compiled(define(TEXTS[name][0])["f"], sizes, options, architecture="sm_90a")


@NEEDS_COMPILER
@pytest.mark.sweep(2)
@pytest.mark.parametrize(
    ("name", "sizes", "options"),
    [
        ("nn", (300, 264, 200), replace(TURNS, persistent=4)),
        ("batches", (130, 136, 128), replace(TURNS, persistent=5, tile_sizes=(1, 64, 64))),
        ("with what follows", (320, 64, 192), TURNS),
        ("nt", (264, 136, 128), replace(TURNS, persistent=1, stages=2, order=1)),
    ],
    ids=str,
)
def test_results_are_those_of_the_interpreter(
    name: str, sizes: tuple[int, int, int], options: tc.MappingOptions
) -> None:
    text, shapes = TEXTS[name]
    operation, arrays = tc.define(text).f, arrays_for(shapes(*sizes))
    kernel = operation.compile(*arrays, target="simulator", options=options)
    assert "// tiles in turn" in kernel.source
    assert kernel.compilation.source.launches[0].grid == (options.persistent, 1, 1)
    np.testing.assert_array_equal(operation(*arrays, target="simulator", options=options), operation.reference(*arrays))


class TestPlan:
    def test_it_is_chosen_where_there_are_more_tiles_than_multiprocessors(self) -> None:
        large, small = (_compilation(M=n, N=n, K=256) for n in (4096, 1024))
        assert (large.plan.persistent, small.plan.persistent) == ({0: 132}, {})
        assert large.source.launches[0].grid == (132, 1, 1) and large.plan.orders[0] > 1
        assert large.source.otherwise is not None and "tiles in turn" not in large.source.otherwise.text
        for options in (replace(FED, persistent=0), replace(FED, blocks=(4, 4)), replace(FED, route="async")):
            assert not _compilation(options=options, M=4096, N=4096, K=256).plan.persistent

    def test_it_is_written_read_and_proved(self) -> None:
        f = tc.define(TEXTS["nn"][0]).f
        made = f.compile(sizes=SIZES, target=DEVICE, options=TURNS)
        text = made.stages["barriers"]
        assert "[[persistent]]\ngroup = 0\nblocks = 2" in text
        assert f.compile(sizes=SIZES, target=DEVICE, options=TURNS, plan=text).source == made.source
        for old, new, words in (
            ("blocks = 2", "blocks = 0", "0 blocks cannot take the tiles of group 0 in turn"),
            ("group = 0\nblocks", "group = 1\nblocks", "there is no group 1 with tiles"),
        ):
            with pytest.raises(PlanError, match=words):
                f.compile(sizes=SIZES, target=DEVICE, plan=text.replace(old, new))

    def test_threads_that_fetch_together_take_one_tile(self) -> None:
        plan = _compilation(options=replace(TURNS, route="async"), **SIZES).plan
        prove_complete(plan, "test")
        with pytest.raises(LegalityError, match="tiles of group 0 in turn, but threads that fetch together"):
            prove_complete(replace(plan, persistent={0: 2}), "test")


_LOOP = "for (unsigned int tile = blockIdx.x; tile < 5; tile += 2) {  // tiles in turn\n"
_FETCHES, _MULTIPLIES = "int stage = 0, parity = 1;\n      ", "int stage = 0, parity = 0;\n    "
_FAULTS = [
    # Stages and parities that begin anew with each tile, of those who multiply and of the one that fetches.
    (_MULTIPLIES + _LOOP, _LOOP + _MULTIPLIES, None),
    (_FETCHES + _LOOP, _LOOP + _FETCHES, None),
    (_MULTIPLIES + _LOOP, _MULTIPLIES + _LOOP + "stage = 0;", None),
    (_MULTIPLIES + _LOOP, _MULTIPLIES + _LOOP + "parity = 0;", None),
    (_FETCHES + _LOOP, _FETCHES + _LOOP + "stage = 0;", None),
    (_FETCHES + _LOOP, _FETCHES + _LOOP + "parity = 1;", None),
    # The last stage of a tile is kept, or another one given back; sums are stored before they are there.
    ("if (thread % 32 == 0) tc_barrier_arrive(&empty[stage == 0 ? 2 : stage - 1]);", "", FindingKind.DEADLOCK),
    ("if (thread % 32 == 0) tc_barrier_arrive(&empty[stage == 0 ? 2 : stage - 1]);",
     "if (thread % 32 == 0) tc_barrier_arrive(&empty[stage]);", None),
    ("tc_wgmma_wait<0>(C_acc);", "", FindingKind.REGISTERS_IN_FLIGHT),
    # One side has fewer tiles than the other.
    (_FETCHES + _LOOP, _FETCHES + _LOOP.replace("tile < 5", "tile < 3"), FindingKind.DEADLOCK),
    (_MULTIPLIES + _LOOP, _MULTIPLIES + _LOOP.replace("tile += 2", "tile += 3"), None),
]  # fmt: skip
"""What is changed in a text, and what is found: None where something is, or results are wrong."""


@functools.cache
def _in_turn() -> Compilation:
    return _compilation(options=TURNS, **SIZES)


@NEEDS_COMPILER
@pytest.mark.sweep(5)
@pytest.mark.parametrize("number", range(len(_FAULTS)))
def test_faults_in_texts_are_found(number: int) -> None:
    old, new, kind = _FAULTS[number]
    source = _in_turn().source
    assert source.text.count(old) == 1, source.text[source.text.index("extern") :]
    data = data_for(Text(TEXTS["nn"][0], SIZES), _in_turn())
    report, results = run(replace(source, text=source.text.replace(old, new)), data, Settings(seed=1))
    found = {f.kind for f in report.findings}
    wrong = any((results[n] != e).any() for n, e in data.expected.items())
    assert kind in found if kind else found or wrong, str(report)
