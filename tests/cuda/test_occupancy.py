"""Occupancy is what NVIDIA's own calculator says."""

from __future__ import annotations

import pytest

from tcomp.backends.cuda.tools.occupancy import Occupancy, occupancy
from tcomp.errors import TcompError
from tcomp.mapping.machines.gpu import GPUS


@pytest.mark.parametrize(
    ("architecture", "threads", "registers", "shared_bytes", "blocks", "limit"),
    [
        ("sm_75", 224, 33, 1025, 4, "threads"),
        ("sm_75", 224, 129, 8000, 1, "registers"),
        ("sm_75", 32, 128, 65536, 1, "shared memory"),
        ("sm_75", 32, 72, 1, 16, "blocks"),
        ("sm_80", 1024, 8, 49152, 2, "threads"),
        ("sm_80", 1024, 56, 49152, 1, "registers"),
        ("sm_80", 32, 56, 8000, 18, "shared memory"),
        ("sm_80", 1, 32, 1025, 32, "blocks"),
        ("sm_86", 224, 31, 0, 6, "threads"),
        ("sm_86", 96, 64, 1, 10, "registers"),
        ("sm_86", 96, 40, 40000, 2, "shared memory"),
        ("sm_86", 32, 80, 1, 16, "blocks"),
        ("sm_89", 1000, 0, 0, 1, "threads"),
        ("sm_89", 96, 169, 33000, 2, "registers"),
        ("sm_89", 224, 33, 40000, 2, "shared memory"),
        ("sm_89", 1, 31, 2048, 24, "blocks"),
        ("sm_90", 768, 0, 24576, 2, "threads"),
        ("sm_90", 33, 100, 8192, 8, "registers"),
        ("sm_90", 160, 40, 50000, 4, "shared memory"),
        ("sm_90", 1, 24, 1024, 32, "blocks"),
        ("sm_100", 128, 24, 0, 16, "threads"),
        ("sm_100", 320, 96, 40000, 2, "registers"),
        ("sm_100", 1, 168, 101376, 2, "shared memory"),
        ("sm_100", 1, 31, 2048, 32, "blocks"),
        ("sm_120", 1000, 8, 0, 1, "threads"),
        ("sm_120", 256, 100, 16384, 2, "registers"),
        ("sm_120", 1, 96, 20000, 4, "shared memory"),
    ],
)
def test_blocks_as_nvidia_counts_them(
    architecture: str, threads: int, registers: int, shared_bytes: int, blocks: int, limit: str
) -> None:
    """What ``cuda_occupancy.h`` of CUDA 13.0 gives, compiled and called with the limits of the device table."""
    found = occupancy(GPUS[architecture], threads, registers, shared_bytes)
    assert (found.blocks, found.limit) == (blocks, limit)


def test_fraction_is_that_of_the_warps() -> None:
    assert occupancy(GPUS["sm_90"], 256, 128, 0) == Occupancy(2, 16, 0.25, "registers")
    assert occupancy(GPUS["sm_86"], 33, 0, 0) == Occupancy(16, 32, 2 / 3, "blocks")


@pytest.mark.parametrize(
    ("threads", "registers", "shared_bytes", "limit"),
    [
        (1025, 32, 0, "threads"),
        (1024, 65, 0, "registers"),
        (32, 256, 0, "registers"),
        (32, 32, 227 * 1024 + 1, "shared memory"),
    ],
)
def test_what_cannot_be_launched(threads: int, registers: int, shared_bytes: int, limit: str) -> None:
    assert occupancy(GPUS["sm_90"], threads, registers, shared_bytes) == Occupancy(0, 0, 0.0, limit)


@pytest.mark.parametrize("architecture", list(GPUS))
def test_the_largest_shared_memory_fits_once(architecture: str) -> None:
    gpu = GPUS[architecture]
    assert occupancy(gpu, 32, 32, gpu.shared_per_block).blocks == 1
    assert occupancy(gpu, 32, 32, gpu.shared_per_block + 1).blocks == 0


@pytest.mark.parametrize("numbers", [(0, 32, 0), (32, -1, 0), (32, 32, -1)])
def test_impossible_numbers(numbers: tuple[int, int, int]) -> None:
    with pytest.raises(TcompError, match="no block has"):
        occupancy(GPUS["sm_90"], *numbers)
