"""Results of 16 bits that four lanes exchange, so that each stores 16 bytes and no sector is stored in part."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tcomp as tc
from tcomp.backends.simulator.simulation import Settings
from tcomp.driver import Compilation
from tcomp.grammar import define
from tests.cuda.compiled import compiled, data_for, run
from tests.cuda.simulated import NEEDS_COMPILER
from tests.cuda.texts import Text

BIASED = """def f(float16(M,K) A, float16(K,N) B, float16(N) c) -> (float16(M,N) D) {
    P(m,n) +=! A(m,k) * B(k,n)
    D(m,n) = float16(float(P(m,n)) + float(c(n))) }"""


def _compilation(text: str, architecture: str, options: str = "", **sizes: int) -> Compilation:
    return compiled(define(text)["f"], sizes, tc.MappingOptions.from_text(options), architecture=architecture)


@NEEDS_COMPILER
@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("architecture", "rows", "columns", "most"),
    [
        ("sm_80", 32, 32, 1.0),  # whole tiles
        ("sm_90", 70, 128, 1.0),  # rows that do not exist: lanes of a warp, but not of a row, go different ways
        ("sm_80", 32, 104, 1.5),  # columns that do not exist; rows that begin within sectors
    ],
)
def test_sectors_are_whole(architecture: str, rows: int, columns: int, most: float) -> None:
    sizes = {"M": rows, "N": columns, "K": 64}
    made = _compilation(BIASED, architecture, "split_reduction=1", **sizes)
    data = data_for(Text(BIASED, sizes), made)
    report, results = run(made.source, data, Settings(counting=True))
    assert not report.findings, str(report)
    assert all((results[n] == e).all() for n, e in data.expected.items())
    (stored,) = (a for kernel in report.kernels for a in kernel.select("global", "write"))
    assert stored.bytes_per_lane == 16 and stored.sectors <= most * stored.ideal_sectors
    assert stored.bytes == 2 * rows * columns


@NEEDS_COMPILER
def test_lanes_that_exchange_other_columns_store_wrong_results() -> None:
    sizes = {"M": 32, "N": 32, "K": 32}
    made = _compilation(BIASED, "sm_80", **sizes)
    data = data_for(Text(BIASED, sizes), made)
    for old, new in (("D_side_by_side, thread,", "D_side_by_side, thread / 2,"), ("0xffffffffu);", "0xfu);")):
        assert made.source.text.count(old) == 1
        report, results = run(replace(made.source, text=made.source.text.replace(old, new)), data)
        assert report.findings or any((results[n] != e).any() for n, e in data.expected.items())


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (BIASED.replace("float16(M,N) D", "float(M,N) D").replace("float16(float", "float(float"), {"N": 64}),
        (BIASED, {"N": 100}),  # rows of 200 bytes
        (BIASED.replace("D(m,n)", "D(n,m)").replace("(M,N) D", "(N,M) D"), {"N": 64}),
    ],
    ids=["floats", "rows that begin between vectors", "columns"],
)
def test_others_are_stored_as_they_are(text: str, sizes: dict[str, int]) -> None:
    assert "tc_turn_quad(" not in _compilation(text, "sm_80", **sizes, M=64, K=64).source.text
