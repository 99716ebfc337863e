"""What kernels ask of memory, counted by the simulator, is what theory says."""

from __future__ import annotations

import functools
import re
from dataclasses import replace

import pytest

from tcomp.backends.simulator.report import AccessCounts, KernelCounts
from tcomp.backends.simulator.simulation import Settings
from tcomp.mapping.options.options import MappingOptions
from tests.agreement import assert_agrees
from tests.cuda.compiled import compiled_text, data_for, run
from tests.cuda.simulated import NEEDS_COMPILER
from tests.cuda.texts import EXAMPLES, Text

pytestmark = [NEEDS_COMPILER, pytest.mark.sweep(2)]

FLOAT = 4
TILES = MappingOptions(tile_sizes=(64, 64), threads=(8, 8))
"""Every thread computes 8 by 8 elements."""


THROUGH_REGISTERS = MappingOptions(tile_sizes=(64, 64), threads=(8, 8), stages=1)
"""The same, with the next operands in registers while threads work."""


@functools.cache
def counts(name: str, sizes: tuple[tuple[str, int], ...], options: MappingOptions | None = None) -> list[KernelCounts]:
    """What the kernels of an example do at these sizes; their results are right."""
    text = Text(EXAMPLES[name].text, dict(sizes))
    compilation = compiled_text(text, options)
    data = data_for(text, compilation)
    report, found = run(compilation.source, data, Settings(counting=True))
    assert not report.findings, str(report)
    assert_agrees(compilation.function, data.inputs, found)
    return list(report.kernels)


def only(kernels: list[KernelCounts]) -> KernelCounts:
    """The kernel of a program that is one."""
    (kernel,) = kernels
    return kernel


def read(kernel: KernelCounts, tensor: str) -> int:
    """Bytes of a tensor that threads ask for."""
    return sum(a.bytes for a in kernel.select("global", "read", tensor))


def coalesced(kernel: KernelCounts) -> list[AccessCounts]:
    """The accesses to global memory, after asserting that none touches more sectors than it must."""
    accesses = list(kernel.select("global"))
    assert [str(a) for a in accesses if a.sectors != a.ideal_sectors] == []
    return accesses


def meet_only_on_arrival(kernel: KernelCounts) -> bool:
    """Whether lanes meet in banks at most two by two, and only where elements arrive that are copied one by one."""
    accesses = list(kernel.select("shared"))
    arriving = [a for a in accesses if "tc_ask4" in a.text]
    others = [a for a in accesses if "tc_ask4" not in a.text]
    return all(a.wavefronts == a.ideal_wavefronts for a in others) and all(
        a.wavefronts <= 2 * a.ideal_wavefronts for a in arriving
    )


@pytest.mark.parametrize("options", [TILES, THROUGH_REGISTERS], ids=["ahead", "through registers"])
def test_matmul_of_256_in_tiles_of_64(options: MappingOptions) -> None:
    """Each block reads a band of A and one of B: 2 * 256^3 / 64 elements in all."""
    kernel = only(counts("matmul", (("M", 256), ("N", 256), ("K", 256)), options))
    assert kernel.grid == (4, 4, 1)
    assert kernel.block == (8, 8, 1)
    assert kernel.global_bytes_read == pytest.approx(2 * 256**3 * FLOAT / 64, rel=0.05)
    assert kernel.global_bytes_written == 256**2 * FLOAT
    coalesced(kernel)
    if options is TILES:
        assert meet_only_on_arrival(kernel)
        assert kernel.barriers == 256 / 16
    else:
        assert all(a.bytes_per_lane * a.lanes >= 32 * FLOAT * a.requests for a in coalesced(kernel))
        assert kernel.conflicts == 0
        assert kernel.barriers == 2 * 256 / 16


def test_matmul_at_default_options() -> None:
    kernel = only(counts("matmul", (("M", 256), ("N", 256), ("K", 256))))
    columns, rows = 256 // kernel.grid[0], 256 // kernel.grid[1]
    assert kernel.global_bytes_read == kernel.grid[0] * kernel.grid[1] * (rows + columns) * 256 * FLOAT
    assert coalesced(kernel)
    assert meet_only_on_arrival(kernel)
    assert kernel.barriers <= 256 / 16


@pytest.mark.parametrize("options", [THROUGH_REGISTERS, None], ids=["tiles of 64", "default"])
def test_tmm_reads_both_operands_along_rows(options: MappingOptions | None) -> None:
    """B is read as it lies, transposed on its way into shared memory, and read there without conflicts.

    Where rows of many steps are fetched, four lanes meet when they store vectors into columns, once for many reads.
    """
    kernel = only(counts("tmm", (("M", 128), ("N", 128), ("K", 128)), options))
    blocks = kernel.grid[0] * kernel.grid[1]
    rows = 128 // kernel.grid[1] + 128 // kernel.grid[0]
    assert kernel.global_bytes_read == blocks * rows * 128 * FLOAT
    assert coalesced(kernel)
    stored = ("tc_store_column", "tc_ask4")
    others = [a for a in kernel.select("shared") if not any(word in a.text for word in stored)]
    assert all(a.wavefronts == a.ideal_wavefronts for a in others)
    assert kernel.conflicts <= (
        0 if options is THROUGH_REGISTERS else 0.1 * sum(a.wavefronts for a in kernel.select("shared"))
    )
    assert kernel.barriers <= 2 * 128 / 16


@pytest.mark.parametrize("steps", [8, 16])
def test_lanes_that_store_columns_meet_in_no_bank(steps: int) -> None:
    """Rows of 2 and 4 vectors are turned on their way; threads read four neighbours at a time."""
    options = replace(THROUGH_REGISTERS, reduction_tile=steps)
    kernel = only(counts("tmm", (("M", 64), ("N", 64), ("K", 128)), options))
    assert kernel.conflicts == 0
    assert coalesced(kernel)


def test_softmax_reads_its_input_once_and_writes_once() -> None:
    kernel = only(counts("softmax", (("N", 64), ("D", 1024))))
    assert read(kernel, "I") == kernel.global_bytes_read == 64 * 1024 * FLOAT
    assert kernel.global_bytes_written == 64 * 1024 * FLOAT
    assert coalesced(kernel)
    assert kernel.conflicts == 0
    assert kernel.barriers == 2


def test_softmax_keeps_its_exponentials_in_registers() -> None:
    text = compiled_text(Text(EXAMPLES["softmax"].text, {"N": 64, "D": 5000})).source.text
    assert "tc_dynamic" not in text and re.search(r"float e_1_?\[\d+\];", text)
    many = compiled_text(Text(EXAMPLES["softmax"].text, {"N": 64, "D": 40_000})).source.text
    assert not re.search(r"float e_1_?\[\d+\];", many), "too many for the registers of a thread"


def test_layer_norm_reads_its_input_once() -> None:
    kernel = only(counts("layer_norm", (("N", 64), ("D", 1024))))
    assert read(kernel, "I") == 64 * 1024 * FLOAT
    assert kernel.global_bytes_written == 64 * 1024 * FLOAT
    assert coalesced(kernel)
    assert kernel.conflicts == 0
    assert kernel.barriers <= 4


def test_sums_read_everything_once() -> None:
    kernel = only(counts("sum over two axes", (("N", 4), ("H", 32), ("W", 64))))
    assert kernel.global_bytes_read == 4 * 32 * 64 * FLOAT
    assert kernel.global_bytes_written == 4 * FLOAT
    assert coalesced(kernel)
    assert kernel.barriers <= 1


def test_fused_blur_keeps_its_intermediate_on_chip() -> None:
    """Blocks of 8 by 32 read 10 by 34 elements three times, of which the caches keep two; they write 8 by 32."""
    options = MappingOptions(tile_sizes=(8, 32), threads=(32, 8), recompute_limit=4.0)
    kernel = only(counts("blur", (("H", 66), ("W", 130)), options))
    assert kernel.global_bytes_read == 3 * 64 // 8 * 10 * 128 * FLOAT
    assert kernel.global_bytes_written == 64 * 128 * FLOAT
    assert {a.buffer for a in kernel.select("global")} == {"I", "O"}
    assert kernel.conflicts == 0
    assert kernel.barriers == 1


def test_convolution_reads_each_window_once_per_block() -> None:
    sizes = {"N": 2, "C": 4, "H": 18, "W": 34, "F": 8, "KH": 3, "KW": 3}
    kernel = only(
        counts("convolution", tuple(sizes.items()), MappingOptions(tile_sizes=(1, 8, 2, 32), threads=(32, 8)))
    )
    blocks = 2 * 16 // 2
    assert read(kernel, "I") == blocks * 4 * (2 + 2) * 34 * FLOAT
    assert read(kernel, "K") == blocks * 8 * 4 * 9 * FLOAT
    assert kernel.conflicts == 0


def test_transposition_is_coalesced_on_both_sides() -> None:
    kernel = only(counts("transpose", (("M", 128), ("N", 128))))
    assert kernel.global_bytes_read == kernel.global_bytes_written == 128 * 128 * FLOAT
    assert coalesced(kernel)
    assert kernel.conflicts == 0
    assert kernel.barriers == 1
