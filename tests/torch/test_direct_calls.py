"""Calls that C makes of tensors: that they happen, that nothing wrong gets through, and that nothing is left behind."""

from __future__ import annotations

import gc
import sys

import pytest
import torch

import tcomp as tc

TEXT = """
def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }
def two(float(N) X, const int S) -> (Y, Z) { Y(n) = X(n) * S  Z(n) = X(n) + S }
def rows(float(E,D) T, int32(N) I) -> (O) { O(n,d) = T(I(n),d) }
"""
MANY = 12


@pytest.fixture
def ops() -> tc.Module:
    return tc.define(TEXT)


def is_direct(operation: tc.Operation) -> bool:
    return any(type(call).__name__ == "builtin_function_or_method" for _, call in operation._quick.recent)


def test_results_that_are_made_and_given(ops: tc.Module) -> None:
    x, number = torch.rand(5), 100_000
    y, z = torch.empty(5), torch.empty(5)
    for _ in range(4):
        first, second = ops.two(x, number)
        assert torch.equal(first, x * number) and torch.equal(second, x + number)
        before = y._version
        assert ops.two(x, number, out=(y, z)) == (y, z)
        assert torch.equal(y, first) and torch.equal(z, second) and y._version == before + 1
    assert is_direct(ops.two)
    with pytest.raises(tc.ShapeError, match="shares memory"):
        ops.two(x, number, out=(x, z))
    with pytest.raises(tc.ShapeError):
        ops.two(x, number, out=y)
    a, b = torch.rand(4, 3), torch.rand(3, 5)
    c = torch.empty(4, 5)
    for _ in range(4):
        assert ops.mm(a, b, out=c) is c and torch.allclose(c, a @ b)
    with pytest.raises(tc.ShapeError):
        ops.mm(a, b, out=torch.empty(4, 6))


def test_a_failed_check_is_reported(ops: tc.Module) -> None:
    table, good, bad = torch.rand(4, 3, requires_grad=True), torch.tensor([0, 3]).int(), torch.tensor([0, 4]).int()
    for enabled in (False, True):
        with torch.set_grad_enabled(enabled):
            for _ in range(3):
                assert torch.equal(ops.rows(table, good), table[good])
            for _ in range(2):
                with pytest.raises(tc.ShapeError, match="is 4 at n = 1"):
                    ops.rows(table, bad)
            assert torch.equal(ops.rows(table, good), table[good])
    assert is_direct(ops.rows)


def test_the_interpreter_can_be_asked_for_at_any_call(ops: tc.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(tc.Operation, "reference", lambda *arguments, out: asked.append(True))
    a, b = torch.rand(4, 3), torch.rand(3, 5)
    for _ in range(3):
        ops.mm(a, b)
    assert not asked
    monkeypatch.setenv("TCOMP_INTERPRET", "1")
    ops.mm(a, b)
    assert asked == [True]


def test_many_arrays() -> None:
    names = [f"A{n}" for n in range(MANY)]
    text = (
        f"def f({', '.join(f'float(N) {a}' for a in names)}) -> (S) {{ S(n) = {' + '.join(f'{a}(n)' for a in names)} }}"
    )
    f = tc.define(text).f
    tensors = [torch.full((3,), float(n)) for n in range(MANY)]
    for _ in range(3):
        assert f(*tensors).tolist() == [sum(range(MANY))] * 3
    assert is_direct(f)


def test_empty_tensors(ops: tc.Module) -> None:
    for _ in range(3):
        assert ops.mm(torch.rand(4, 0), torch.rand(0, 5)).tolist() == torch.zeros(4, 5).tolist()
        assert ops.mm(torch.rand(0, 3), torch.rand(3, 5)).shape == (0, 5)


def test_nothing_is_left_behind(ops: tc.Module) -> None:
    """References that C forgets to give back would keep tensors, and their memory, for ever."""
    x, number, table = torch.rand(5), 100_000, torch.rand(4, 3, requires_grad=True)
    good, bad = torch.tensor([0, 3]).int(), torch.tensor([0, 4]).int()
    out = (torch.empty(5), torch.empty(5))
    watched = [x, number, *out, out, table, good, bad, torch.float32, tuple]

    def work() -> None:
        ops.two(x, number)
        ops.two(x, number, out=out)
        ops.two(x[:4], number)
        with torch.no_grad():
            ops.rows(table, good)
        ops.rows(table, good).sum().backward()
        with pytest.raises(tc.ShapeError):
            ops.rows(table, bad)

    def counts() -> list[int]:
        gc.collect()
        return [*map(sys.getrefcount, watched), len([o for o in gc.get_objects() if type(o) is torch.Tensor])]

    for _ in range(4):
        work()
    before = counts()
    for _ in range(50):
        work()
    assert max(after - was for after, was in zip(counts(), before, strict=True)) < 10
