"""Blocks of a reduction whose steps lie apart, while rows share lines: as many as the second cache holds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tcomp as tc
from tcomp.backends.c.target import CpuBackend
from tcomp.driver import lower
from tcomp.grammar import define
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.machines.fitted.cpupanels import BLOCKS
from tcomp.mapping.machines.fitted.replacing import replace_numbers
from tcomp.model.terms.sizes import Part, Sizes

TURNED = "def f(float(K,M) A, float(K,N) W) -> (C) { C(m,n) +=! A(k,m) * W(k,n) }"


@pytest.fixture
def shipped_numbers() -> Iterator[None]:
    yield
    replace_numbers({})


@pytest.mark.usefixtures("shipped_numbers")
@pytest.mark.parametrize(("less", "blocks"), [(1, False), (16, True)])
def test_rows_that_lie_across_lines_run_in_blocks_where_they_do_not_stay_near(less: int, blocks: bool) -> None:
    """The rows of a tile read 50 KB."""
    replace_numbers({"cpupanels.BLOCKS.near_rows": BLOCKS.near_rows / less})
    machine = Machine(vector_bytes=32, registers=16, datapath_bytes=32, threads=2, middle_cache=512 << 10)
    sizes = Sizes({"K": 196, "M": 256, "N": 392}, part=Part(("W",)))
    plan = lower(define(TURNED)["f"], sizes, tc.MappingOptions(), CpuBackend(machine)).stages["nest"]
    assert ('mark: "block0"' in plan) == blocks
