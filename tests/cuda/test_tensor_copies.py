"""Barriers that count arrivals and bytes, and tensor copies, in the simulator: planted faults, none missed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tcomp.backends.simulator.report import FindingKind
from tcomp.backends.simulator.simulation import Order, Settings
from tests.cuda.simulated import NEEDS_COMPILER
from tests.cuda.tensorcopies import PRODUCED

pytestmark = NEEDS_COMPILER

ORDERS: tuple[Order, ...] = ("forward", "reverse", "random")
WRONG = None
"""Of faults that show in results alone."""


@dataclass(frozen=True)
class Fault:
    what: str
    old: str
    new: str
    kinds: tuple[FindingKind, ...] | None

    def __str__(self) -> str:
        return self.what


_RACE, _EARLY, _DEADLOCK = FindingKind.RACE, FindingKind.UNINITIALISED, FindingKind.DEADLOCK

FAULTS = (
    Fault("consumers do not wait", "        tc_barrier_wait(&full[stage], parity);\n", "", (_EARLY,)),
    Fault("consumers wait with the other parity", "int stage = 0, parity = 0;", "int stage = 0, parity = 1;",
          (_EARLY, _DEADLOCK)),
    Fault("consumers wait at another stage", "tc_barrier_wait(&full[stage], parity)",
          "tc_barrier_wait(&full[stage == 2 ? 0 : stage + 1], parity)", (_EARLY, _DEADLOCK)),
    Fault("one warp does not wait", "tc_barrier_wait(&full[stage], parity)",
          "if (thread >= 32) tc_barrier_wait(&full[stage], parity)", (_EARLY,)),
    Fault("the fetching warp does not wait", "          tc_barrier_wait(&empty[stage], parity);\n", "",
          (_RACE, _EARLY, _DEADLOCK)),
    Fault("the fetching warp begins with the other parity", "int stage = 0, parity = 1;", "int stage = 0, parity = 0;",
          (_DEADLOCK,)),
    Fault("fewer bytes expected", "tc_barrier_expect(&full[stage], 24576)", "tc_barrier_expect(&full[stage], 16384)",
          (_EARLY, _DEADLOCK)),
    Fault("more bytes expected", "tc_barrier_expect(&full[stage], 24576)", "tc_barrier_expect(&full[stage], 24592)",
          (_DEADLOCK,)),
    Fault("one arrival too many expected", "tc_barrier_init(&empty[stage], 8)", "tc_barrier_init(&empty[stage], 9)",
          (_DEADLOCK,)),
    Fault("one arrival of a stage expected", "tc_barrier_init(&empty[stage], 8)", "tc_barrier_init(&empty[stage], 1)",
          (_RACE, _DEADLOCK)),
    Fault("two arrivals expected of the fetching thread", "tc_barrier_init(&full[stage], 1)",
          "tc_barrier_init(&full[stage], 2)", (_DEADLOCK,)),
    Fault("one warp does not give back", "if (tile > 0 && thread % 32 == 0)", "if (tile > 0 && thread % 64 == 0)",
          (_DEADLOCK,)),
    Fault("given back before products are made", "empty[stage == 0 ? 2 : stage - 1]);\n        stage",
          "empty[stage]);\n        stage", (_RACE, _DEADLOCK)),
    Fault("given back with two tiles under way", "tc_wgmma_wait<1>();", "tc_wgmma_wait<2>();", (_RACE,)),
    Fault("the last tile not given back",
          "      if (thread % 32 == 0) tc_barrier_arrive(&empty[stage == 0 ? 2 : stage - 1]);  // the last tile\n", "",
          (_DEADLOCK,)),
    Fault("a stage too many", "A_tile + stage * 16384, A_map", "A_tile + (stage + 1) % 3 * 16384, A_map",
          (_RACE, _EARLY)),
    Fault("copies report to another stage", "A_map, &full[stage]", "A_map, &full[stage == 2 ? 0 : stage + 1]",
          (_EARLY, _DEADLOCK)),
    Fault("barriers not visible", "    tc_barriers_visible();\n", "", (FindingKind.UNFENCED_MEMORY,)),
    Fault("no meeting behind the barriers' beginning", "  __syncthreads();\n", "", (_RACE, _EARLY)),
    Fault("one copy too many", "tile < 6; ++tile) {\n          tc", "tile < 7; ++tile) {\n          tc",
          (FindingKind.COPY_LEFT, _DEADLOCK, _EARLY)),
    Fault("one tile too many", "tile < 6; ++tile) {\n        tc", "tile < 7; ++tile) {\n        tc", (_DEADLOCK,)),
    Fault("a box beside the stage", "B_tile + stage * 8192, B_map", "B_tile + stage * 8192 + 64, B_map",
          (FindingKind.MISALIGNED,)),
    Fault("a box beyond shared memory", "B_tile + stage * 8192, B_map", "B_tile + stage * 16384, B_map",
          (FindingKind.OUT_OF_BOUNDS,)),
    Fault("coordinates exchanged", "64 * block, 64 * tile", "64 * tile, 64 * block", WRONG),
    Fault("rows of another tile", "64 * tile, 0)", "64 * tile, 8)", WRONG),
    Fault("maps exchanged", "B_tile + stage * 8192, B_map", "B_tile + stage * 8192, A_map",
          (FindingKind.OUT_OF_BOUNDS, _RACE, _DEADLOCK, _EARLY)),
    Fault("registers of a product not fenced", "        tc_wgmma_fence();\n", "", (FindingKind.UNFENCED_REGISTERS,)),
)  # fmt: skip


@pytest.mark.parametrize("order", ORDERS)
def test_a_correct_kernel_is_right_and_not_accused(order: Order) -> None:
    for seed, counting in ((1, False), (2, True), (3, False)):
        report, results, expected = PRODUCED.run(Settings(order, seed=seed, counting=counting))
        assert not report.findings, str(report)
        np.testing.assert_array_equal(results[0], expected[0])


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_planted_faults_are_found(fault: Fault) -> None:
    example = PRODUCED.but(fault.old, fault.new)
    for order in ORDERS:
        report, results, expected = example.run(Settings(order, seed=1))
        found = {f.kind for f in report.findings}
        if fault.kinds is WRONG:
            assert not np.array_equal(results[0], expected[0]), order
        else:
            assert found & set(fault.kinds), f"{order}: {report}"


def test_a_deadlock_names_its_barrier_and_what_is_missing() -> None:
    example = PRODUCED.but("tc_barrier_expect(&full[stage], 24576)", "tc_barrier_expect(&full[stage], 24592)")
    finding = example.only_finding()
    assert "byte 73728 of tc_dynamic" in str(finding) and "0 arrivals and 16 bytes are missing" in str(finding)
