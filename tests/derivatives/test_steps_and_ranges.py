"""Derivatives of blocks in which indices or steps bound the ranges of others."""

from __future__ import annotations

import pytest

import tcomp as tc
from tcomp.fuzzing.gradients import check

STEPS = {
    "a sum that gets shorter": "for k in 0:N { L(j,l) += A(i,1) * L(j,l) where i in k:N }",
    "a triangle of a triangle": "for k in 0:N { L(j,l) += A(i,j) * L(l,j) where i in k:N, j in k:i+1, l in j:i+1 }",
}
SUMS = {
    "sums": "L(j,k) += L(i,j) * L(i,k) * L(j,k) where i in k+1:N, j in k+1:i+1",
    "minima": "L(k,j) min= L(i,j) * A(j,i) where i in 0:k, j in 0:i+1",
    "sums that begin": "s(j) +=! L(i,j) * A(i,k) where i in 0:N, j in i:N L(k,j) = s(j) * L(k,j) where j in 0:N",
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_bounds_a_range(name: str) -> None:
    f = tc.define(f"def f(double(N,N) A) -> (L) {{ L(i,j) = A(i,j) {STEPS[name]} }}").f
    verdict = check(f, {"N": 3}, 1, depth=1)
    assert (verdict.kind, verdict.detail) == ("passed", "")


@pytest.mark.parametrize("name", SUMS)
def test_what_is_summed_up_bounds_what_is_written(name: str) -> None:
    f = tc.define(f"def f(double(N,N) A) -> (L) {{ L(i,j) = A(i,j) for k in 0:N {{ {SUMS[name]} }} }}").f
    verdict = check(f, {"N": 3}, 1, depth=1)
    assert (verdict.kind, verdict.detail) == ("passed", "")


def test_a_decomposition_twice() -> None:
    torch = pytest.importorskip("torch")
    f = tc.define(
        """def f(double(N,N) A) -> (L) {
            L(i,j) = A(i,j)
            for k in 0:N {
                L(i,k) = L(i,k) / L(k,k) where i in k+1:N
                L(i,j) = L(i,j) - L(i,k) * L(j,k) where i in k+1:N, j in k+1:i+1
            }
        }"""
    ).f
    a = (torch.arange(9.0, dtype=torch.float64).reshape(3, 3) / 9 + 2 * torch.eye(3)).requires_grad_()
    assert torch.autograd.gradgradcheck(f, [a])
