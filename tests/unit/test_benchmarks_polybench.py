"""PolyBench's benchmark has all thirty kernels, and what it compares with computes what NumPy does."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from benchmarks import polybench
from benchmarks.polybench_cases import SIZES, arguments
from tests.language import polybench as in_numpy

TINY = {
    "mm2": (3, 4, 5, 6), "mm3": (3, 4, 5, 6, 7), "gemm": (3, 4, 5), "doitgen": (3, 4, 5), "fdtd_2d": (5, 6, 3),
    **dict.fromkeys(("adi", "heat_3d", "jacobi_1d", "jacobi_2d", "seidel_2d"), (6, 3)),
    **dict.fromkeys(("cholesky", "durbin", "floyd_warshall", "lu", "ludcmp", "nussinov", "trisolv"), (7,)),
    **dict.fromkeys(("gemver", "gesummv", "mvt"), (7,)),
}  # fmt: skip


def test_every_kernel_has_a_size() -> None:
    programs = Path(polybench.ROOT / "examples" / "polybench").glob("*/*.tc")
    assert {len(next(iter(sizes.values()))) > 0 for sizes in SIZES.values()} == {True}
    assert len(SIZES) == len(list(programs)) == 30


@pytest.mark.skipif(shutil.which("gcc") is None, reason="the loops in C are compiled by gcc")
def test_the_loops_in_c_agree_with_numpy() -> None:
    libraries = polybench.build(("-O1",))
    for name in SIZES:
        size = TINY.get(name, (7, 5))
        given = arguments(name, size)
        wanted = getattr(in_numpy, name)(*(a.copy() if isinstance(a, np.ndarray) else a for a in given))
        _, found = polybench.in_c(libraries, name, given, size)()
        assert polybench.agree(name, found, wanted if isinstance(wanted, tuple) else (wanted,)), name
