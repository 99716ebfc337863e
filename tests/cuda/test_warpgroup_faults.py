"""Products of warpgroups on the simulator: correct kernels are right and not accused, every planted fault is seen."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from tcomp.backends.simulator.report import FindingKind
from tcomp.backends.simulator.simulation import Order, Settings
from tests.cuda.simulated import NEEDS_COMPILER, Example
from tests.cuda.warpgroups import IN_STAGES, STORED

pytestmark = [NEEDS_COMPILER, pytest.mark.sweep(3)]

ORDERS: tuple[Order, ...] = ("forward", "reverse", "random")

WRONG = None
"""No misuse of memory or registers: the results are other ones."""


@dataclass(frozen=True)
class Fault:
    """A change to a kernel, and what is found in it."""

    name: str
    example: Example
    old: str
    new: str
    kinds: tuple[FindingKind, ...] | None

    def __str__(self) -> str:
        return f"{self.example.name}: {self.name}"


_RACES = (FindingKind.RACE, FindingKind.UNINITIALISED)

FAULTS = (
    Fault("no fence of registers", STORED, "tc_wgmma_fence();", "", (FindingKind.UNFENCED_REGISTERS,)),
    Fault("no fence of registers", IN_STAGES, "tc_wgmma_fence();", "", (FindingKind.UNFENCED_REGISTERS,)),
    Fault("a fence before the sums begin", IN_STAGES, "  for (int i = 0; i < 16; ++i) low[i] = high[i] = 0.0f;",
          "  tc_wgmma_fence();\n  for (int i = 0; i < 16; ++i) low[i] = high[i] = 0.0f;", ()),
    Fault("sums touched behind the fence", IN_STAGES, "    tc_wgmma_fence();\n",
          "    tc_wgmma_fence();\n    low[3] += 0.0f;\n",
          (FindingKind.UNFENCED_REGISTERS, FindingKind.REGISTERS_IN_FLIGHT)),
    Fault("products not waited for", STORED, "tc_wgmma_wait<0>();", "",
          (FindingKind.RACE, FindingKind.REGISTERS_IN_FLIGHT)),
    Fault("the last products not waited for", IN_STAGES, "  tc_wgmma_wait<0>();\n", "",
          (FindingKind.REGISTERS_IN_FLIGHT,)),
    Fault("products not closed", STORED, "tc_wgmma_commit();", "",
          (FindingKind.RACE, FindingKind.REGISTERS_IN_FLIGHT)),
    Fault("one product too many under way", IN_STAGES, "tc_wgmma_wait<1>();\n  }", "tc_wgmma_wait<2>();\n  }",
          (FindingKind.RACE,)),
    Fault("copies one stage too far", IN_STAGES, "const int next = tile + 2, stage = next % 4;",
          "const int next = tile + 2, stage = (next + 1) % 4;", _RACES),
    Fault("one stage too few", IN_STAGES, "stage = next % 4", "stage = next % 3", _RACES),
    Fault("no fence of the proxy", STORED, "tc_proxy_fence();", "", (FindingKind.UNFENCED_MEMORY,)),
    Fault("no fence of the proxy", IN_STAGES, "tc_proxy_fence();", "", (FindingKind.UNFENCED_MEMORY,)),
    Fault("the fence of the proxy before the copies arrive", IN_STAGES,
          "tc_copy_async_wait<1>();\n    tc_proxy_fence();", "tc_proxy_fence();\n    tc_copy_async_wait<1>();",
          (FindingKind.UNFENCED_MEMORY,)),
    Fault("the fence of the proxy behind the barrier", STORED,
          "tc_proxy_fence();\n    __syncthreads();  // operands are there",
          "__syncthreads();  // operands are there\n    tc_proxy_fence();", (FindingKind.UNFENCED_MEMORY,)),
    Fault("half of the threads fence their proxy", STORED, "tc_proxy_fence();", "if (thread < 64) tc_proxy_fence();",
          (FindingKind.UNFENCED_MEMORY,)),
    Fault("no barrier", STORED, "__syncthreads();  // operands are there", "", _RACES),
    Fault("no barrier behind", STORED, "__syncthreads();  // operands are used", "", _RACES),
    Fault("a copy too few waited for", IN_STAGES, "tc_copy_async_wait<1>();", "tc_copy_async_wait<2>();", _RACES),
    Fault("chunks not swizzled", STORED, "A_tile[swizzled(2 * e) / 2]", "A_tile[e]", WRONG),
    Fault("another swizzle", IN_STAGES, "(place >> 7 & 7) << 4", "(place >> 8 & 3) << 4", WRONG),
    Fault("layout without swizzle", STORED, "1ull << 62", "0", (FindingKind.BAD_DESCRIPTOR,)),
    Fault("layout of another swizzle", STORED, "1ull << 62", "2ull << 62", (FindingKind.BAD_DESCRIPTOR,)),
    Fault("a stride of half the rows", STORED, "descriptor(tc_dynamic + 32 * step, 16, 1024)",
          "descriptor(tc_dynamic + 32 * step, 16, 512)", WRONG),
    Fault("steps too far apart", IN_STAGES, "B_tile + tile % 4 * 8192 + 2048 * step",
          "B_tile + tile % 4 * 8192 + 32 * step", WRONG),
    Fault("operands turned", STORED, "tc_wgmma_f16_n128<0, 0>", "tc_wgmma_f16_n128<0, 1>", WRONG),
    Fault("another group's rows", IN_STAGES, "+ group * 8192", "+ (1 - group) * 8192", WRONG),
    Fault("an operand beyond shared memory", STORED, "tc_dynamic + 8192 + 32 * step, 16, 1024)",
          "tc_dynamic + 16384 + 32 * step, 16, 1024)", (FindingKind.OUT_OF_BOUNDS,)),
    Fault("sums swapped", STORED, "tc_wgmma_f16_n128<0, 0>(low, high", "tc_wgmma_f16_n128<0, 0>(high, low", WRONG),
    Fault("one warp stays away", STORED, "    for (int step = 0;", "    if (thread < 96) for (int step = 0;",
          (FindingKind.DIVERGENT_WARP,)),
    Fault("one warp brings another operand", STORED, "descriptor(tc_dynamic + 32 * step, 16",
          "descriptor(tc_dynamic + 32 * (thread < 96 ? step : 0), 16", (FindingKind.BAD_DESCRIPTOR,)),
)  # fmt: skip
"""Kinds that may be found for a change, none for one that is no fault, ``WRONG`` where results are what differs."""


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("example", [IN_STAGES, STORED], ids=lambda e: e.name)
def test_correct_kernels_are_right_and_not_accused(example: Example, order: Order) -> None:
    for counting in (False, True):
        report, results, expected = example.run(Settings(order, seed=2, counting=counting))
        assert not report.findings, str(report)
        for result, right in zip(results, expected, strict=True):
            np.testing.assert_array_equal(result, right)


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_planted_faults_are_found(fault: Fault) -> None:
    example = fault.example.but(fault.old, fault.new)
    for order in ORDERS:
        report, results, expected = example.run(Settings(order, seed=1))
        found = {f.kind for f in report.findings}
        same = all(np.array_equal(r, e) for r, e in zip(results, expected, strict=True))
        if fault.kinds is WRONG:
            assert not same, order
        elif fault.kinds:
            assert found & set(fault.kinds), f"{order}: {report}"
        else:
            assert same and not found, f"{order}: {report}"
