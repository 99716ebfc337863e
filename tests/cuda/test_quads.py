"""Results of 16 and 8 bits that four lanes exchange, so that each stores 16 bytes and no sector is stored in part."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

import tcomp as tc
from tcomp.backends.cuda.tools import sass
from tcomp.backends.cuda.tools.images import compile_image
from tcomp.backends.simulator.simulation import Settings
from tcomp.driver import Compilation
from tcomp.grammar import define
from tests.cuda.compiled import compiled, data_for, run
from tests.cuda.machine_code import loops_of
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


def of_bytes(operands: str, results: str) -> str:
    """A product with results of a byte each."""
    sums = "int32" if operands == "int8" else "float"
    value = f"{results}(clamp(P(m,n) / 16 + 60, 0, 100))" if "int" in results else f"{results}(P(m,n) * 0.25)"
    return f"""def f({operands}(M,K) A, {operands}(N,K) B) -> ({results}(M,N) D) {{
        P(m,n) +=! {sums}(A(m,k)) * {sums}(B(n,k))
        D(m,n) = {value} }}"""


@NEEDS_COMPILER
@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("operands", "results", "architecture", "rows", "columns", "most"),
    [
        ("int8", "int8", "sm_80", 64, 64, 1.0),
        ("int8", "uint8", "sm_90", 70, 128, 1.0),
        ("int8", "int8", "sm_80", 32, 112, 1.5),
        ("float8_e4m3fn", "float8_e5m2", "sm_90", 128, 64, 1.0),
        ("float16", "float8_e4m3fn", "sm_90", 64, 128, 1.0),
    ],
)
def test_sectors_of_bytes_are_whole(
    operands: str, results: str, architecture: str, rows: int, columns: int, most: float
) -> None:
    text, sizes = of_bytes(operands, results), {"M": rows, "N": columns, "K": 128}
    made = _compilation(text, architecture, "split_reduction=1", **sizes)
    data = data_for(Text(text, sizes), made)
    report, found = run(made.source, data, Settings(counting=True))
    assert not report.findings, str(report)
    assert all((found[n] == e).all() for n, e in data.expected.items())
    (stored,) = (a for kernel in report.kernels for a in kernel.select("global", "write"))
    assert stored.bytes_per_lane == 16 and stored.sectors <= most * stored.ideal_sectors
    assert stored.bytes == rows * columns


@pytest.mark.parametrize(
    ("text", "stores", "shuffles"),
    [(of_bytes("int8", "int8"), 8, 32), (of_bytes("float8_e4m3fn", "float8_e4m3fn"), 4, 16)],
    ids=["bytes", "floats of 8 bits"],
)
def test_machine_code_of_bytes(text: str, stores: int, shuffles: int) -> None:
    """128 results of a thread leave in 8 stores, 64 in 4; in pairs they would take 64 and 32."""
    source = _compilation(text, "sm_90", M=4096, N=4096, K=4096).source
    loops_of(source, "sm_90")
    image = compile_image(source, "sm_90")
    code = sass.disassemble(image)
    assert code.count("STG.E") == code.count("STG.E.128") == stores and code.count("SHFL.BFLY") == shuffles
    assert image.kernels[0].spill_stores == 0 and "C75" not in image.log


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
        (of_bytes("int8", "int8"), {"N": 72}),  # rows of 72 bytes
        (BIASED.replace("D(m,n)", "D(n,m)").replace("(M,N) D", "(N,M) D"), {"N": 64}),
    ],
    ids=["floats", "rows that begin between vectors", "rows of bytes that do", "columns"],
)
def test_others_are_stored_as_they_are(text: str, sizes: dict[str, int]) -> None:
    assert not re.search(r"tc_turn_quad\w*\(D", _compilation(text, "sm_80", **sizes, M=64, K=64).source.text)
