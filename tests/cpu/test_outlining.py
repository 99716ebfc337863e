"""Long functions of a kernel are cut into parts, and compute the same."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.c.outlining import outlined

NESTS = """\
  const float *v_b = (const float *)(scratch + 64L);
  const long n = 3, m = 4;
  float last = 0;
  { /* group0 */
    float v_t[4] __attribute__((aligned(64)));
    const long at = 1;
    for (long i = 0; i < 4; i++) {
      v_t[i] = v_b[i + at];
    }
    if (v_t[0] < 0) {
      v_t[0] = 0;
    }
    else
    {
      v_t[0] = 1;
    }
    for (long i = 0; i < 4; i++) {
      last = v_t[i];
    }
    for (long i = 0; i < m; i++) {
      v_t[i] = 0;
    }
    for (long i = 0; i < 4; i++) {
      v_A[i] = v_t[i];
    }
  }""".splitlines()


def cut_at(monkeypatch: pytest.MonkeyPatch, longest: int, part: int) -> None:
    monkeypatch.setattr("tcomp.backends.c.outlining.FUNCTIONS", SimpleNamespace(longest=longest, part=part))


def test_nests_are_functions_that_take_what_they_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """What assigns to a variable around it, or uses one that no parameter stands for, stays."""
    parameters = ["float *restrict v_A", "char *restrict scratch"]
    assert outlined(NESTS, parameters, "f").functions == []
    cut_at(monkeypatch, 0, 4)
    found = outlined(NESTS, parameters, "f")
    copied, chosen, last, reset, result = NESTS[6:9], NESTS[9:16], NESTS[16:19], NESTS[19:22], NESTS[22:25]
    assert [line.strip() for line in found.lines] == [
        line.strip() for line in [*NESTS[:6], "f_part0(v_b, v_t, at);", *last, *reset, "f_part1(v_A, v_t);", NESTS[25]]
    ]
    assert [line.strip() for line in found.functions] == [
        "static __attribute__((noinline)) void f_part0(const float *v_b, float *restrict v_t, const long at)",
        *(line.strip() for line in ["{", *copied, *chosen, "}"]),
        "static __attribute__((noinline)) void f_part1(float *restrict v_A, float *restrict v_t)",
        *(line.strip() for line in ["{", *result, "}"]),
    ]


@pytest.mark.parametrize("parallel", [False, True])
def test_a_program_in_parts_computes_what_the_whole_does(parallel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where data choose what is read, and a read outside is an error."""
    cut_at(monkeypatch, 60, 20)
    text = """def f(float(N,N) A, float(N,M) X, int32(N) p) -> (Y, s) {
      u(i,j) +=! A(i,k) * X(k,j)
      v(i,j) +=! A(i,k) * u(k,j)
      w(i,j) = v(p(i),j) + u(i,j)
      Y(i,j) +=! A(i,k) * w(k,j)
      s(j) max=! Y(i,j)
    }"""
    generator = np.random.default_rng(5)
    A = generator.standard_normal((40, 40)).astype(np.float32)
    X = generator.standard_normal((40, 23)).astype(np.float32)
    p = generator.permutation(40).astype(np.int32)
    f = tc.define(text).f
    kernel = f.compile(A, X, p, options=tc.MappingOptions(parallel=parallel))
    assert "_part1(" in kernel.source
    for found, expected in zip(kernel(A, X, p), f.reference(A, X, p), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-2)
    p[7] = 40
    with pytest.raises(tc.ShapeError, match="40"):
        kernel(A, X, p)
