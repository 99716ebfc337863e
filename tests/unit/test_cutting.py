"""Texts of kernels that are cut in two: what becomes a function, what it takes, and what is left whole."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from tcomp.backends.c import cutting
from tcomp.backends.c.cutting import in_halves

_ROW = "for (long i = 0; i < 8; i++)"


@pytest.fixture(autouse=True)
def _every_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cutting, "HALVES", dataclasses.replace(cutting.HALVES, least_weight=0.0, most_uneven=0.8))


def kernel(*body: str) -> list[str]:
    head = "int tcomp_f(const float *restrict v_A, float *restrict v_B, char *restrict scratch, const long N)"
    return [head, "{", *(f"  {line}" for line in body), "  return 0;", "}"]


def loop(statement: str) -> list[str]:
    return [f"{_ROW} {{", f"  {statement}", "}"]


def head(lines: Sequence[str]) -> str | None:
    """The head of the function that was made, without what precedes the name."""
    return next((line.partition("tcomp_f_part")[2] for line in lines if line.startswith("TC_PART")), None)


def test_a_part_takes_what_it_uses() -> None:
    body = [
        "const long low = 3, high = N;",
        "float row[8] __attribute__((aligned(64)));",
        "float *restrict v_C = (float *)(scratch + 64L);",
        *loop("row[i] = v_A[i + low];"),
        *loop("v_C[i] = row[i] * v_A[i + high];"),
    ]
    cut = in_halves(kernel(*body, *loop("v_B[i] = v_C[i];"), *loop("v_B[i] += v_A[i];")), "tcomp_f_part")
    assert head(cut) == (
        "(const float *restrict v_A, const long low, const long high, float *restrict row, float *restrict v_C);"
    )
    assert cut.count("  tcomp_f_part(v_A, low, high, row, v_C);") == 1
    assert sum("v_C[i] = row[i]" in line for line in cut) == 1


def test_a_part_takes_counters_of_loops_around_it() -> None:
    around = ["for (long begin = 0, end; begin < N; begin = end) {", "  end = begin + 3;"]
    both = [f"  {line}" for line in (*loop("v_B[i] = v_A[end - begin];"), *loop("v_B[i] += v_A[end - begin];"))]
    cut = in_halves(kernel(*around, *both, "}"), "tcomp_f_part")
    assert head(cut) == "(const float *restrict v_A, float *restrict v_B, long begin, long end);"


@pytest.mark.parametrize(
    ("declared", "statement"),
    [
        ("long last = 0;", "v_B[i] = last++;"),
        ("long last = 0;", "last = v_A[i];"),
        ("float sum[2][4];", "sum[i / 4][i % 4] = v_A[i];"),
        ("const float *const first = &v_A[3];", "v_B[i] = first[i];"),
        ("long most = 0;", "if (v_A[i] > most) break;"),
    ],
)
def test_what_would_mean_something_else_stays(declared: str, statement: str) -> None:
    lines = kernel(declared, *loop(statement), *loop(statement))
    assert in_halves(lines, "tcomp_f_part") == lines


def test_what_is_used_behind_a_part_is_not_declared_in_it() -> None:
    before, after = loop("v_B[i] = v_A[i];"), loop("v_B[i] += k;")
    lines = kernel(*before, "const long k = N + 1;", *loop("v_B[i] += v_A[i + k];"), *after)
    cut = in_halves(lines, "tcomp_f_part")
    part = cut[cut.index(next(line for line in cut if line.endswith("!= 2"))) : cut.index("#endif")]
    assert head(cut) is not None
    assert "    const long k = N + 1;" not in part


def test_loops_over_register_tiles_stay_together() -> None:
    tile = ["for (long c0 = 0; c0 < N; c0++) {", "  for (long c1 = 0; c1 < N; c1++) {"]
    inner = [f"    {line}" for line in (*loop("v_B[c1] = v_A[i];"), *loop("v_B[c0] = v_A[i];"))]
    lines = kernel(*tile, *inner, "  }", "}")
    assert in_halves(lines, "tcomp_f_part") == lines


def test_short_texts_are_left_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = kernel(*loop("v_B[i] = v_A[i];"), *loop("v_B[i] += v_A[i];"))
    assert in_halves(lines, "tcomp_f_part") != lines
    monkeypatch.setattr(cutting, "HALVES", dataclasses.replace(cutting.HALVES, least_weight=1000.0))
    assert in_halves(lines, "tcomp_f_part") == lines


def test_other_functions_go_where_less_is() -> None:
    lines, other = kernel(*loop("v_B[i] = v_A[i];"), *loop("v_B[i] += v_A[i];")), ["void g(void)", "{", "}"]
    cut = in_halves(lines, "tcomp_f_part", other)
    assert sum(line == "void g(void)" for line in cut) == 1
    assert in_halves(kernel(), "tcomp_f_part", other) == [*other, *kernel()]
