"""Calls that C makes of tensors: that they happen, that nothing wrong gets through, and that nothing is left behind."""

from __future__ import annotations

import gc
import sys
import threading

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


def quick_passes(result: torch.Tensor) -> int:
    """How many kinds of backward passes its node has learned to make directly."""
    closure = type(result.grad_fn).apply.__closure__
    (node,) = [cell.cell_contents for cell in closure]
    return len(node._quick)


def test_backward_passes_of_cotangents_that_lie_otherwise_in_memory(ops: tc.Module) -> None:
    a, b = torch.rand(4, 3, requires_grad=True), torch.rand(3, 5, requires_grad=True)
    cotangents = [
        torch.rand(4, 5), torch.rand(()).expand(4, 5), torch.rand(4, 1).expand(4, 5), torch.rand(1, 5).expand(4, 5),
        torch.rand(5, 4).t(), torch.rand(8, 10)[::2, ::2], torch._neg_view(torch.rand(4, 5)), torch.rand(4, 5).flip(0),
    ]  # fmt: skip
    for _ in range(3):
        for cotangent in cotangents:
            found = torch.autograd.grad(ops.mm(a, b), (a, b), cotangent)
            torch.testing.assert_close(found, torch.autograd.grad(a @ b, (a, b), cotangent))
            torch.testing.assert_close(torch.autograd.grad(ops.mm(a, b), b, cotangent)[0], a.t() @ cotangent)
    assert quick_passes(ops.mm(a, b)) > 1
    for _ in range(3):
        torch.testing.assert_close(torch.autograd.grad(ops.mm(a, b).sum(), a)[0], b.sum(1).expand(4, 3))


def test_arguments_are_told_apart_by_place() -> None:
    """What was the same tensor once need not be it next time."""
    f = tc.define("def f(double(N) X, double(N) Y) -> (Z) { Z(n) = X(n) * X(n) * Y(n) }").f
    x, y = (torch.rand(5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    for one, other in ((x, x), (x, x), (x, y), (y, x), (x, x)):
        expected = torch.autograd.grad((one * one * other).sum(), (x, y), allow_unused=True)
        torch.testing.assert_close(torch.autograd.grad(f(one, other).sum(), (x, y), allow_unused=True), expected)


def test_outputs_without_cotangents_take_turns() -> None:
    f = tc.define("def f(float(N) X, const int S) -> (Y, Z) { Y(n) = X(n) * X(n)  Z(n) = exp(X(n)) * S }").f
    x = torch.rand(5, requires_grad=True)
    choose = [lambda y, z: y, lambda y, z: z, lambda y, z: y + z, lambda y, z: y * z]
    for number in (3, 4):
        for pick in choose * 2:
            expected = torch.autograd.grad(pick(x * x, x.exp() * number).sum(), x)
            torch.testing.assert_close(torch.autograd.grad(pick(*f(x, number)).sum(), x), expected)


def test_saved_tensors_are_looked_after(ops: tc.Module) -> None:
    for _ in range(3):
        a, b = torch.rand(4, 3, requires_grad=True), torch.rand(3, 5)
        result = ops.mm(a, b)
        result.sum().backward(retain_graph=True)
        result.sum().backward()
        with pytest.raises(RuntimeError, match="second time"):
            result.sum().backward()
        result = ops.mm(a, b)
        b += 1
        with pytest.raises(RuntimeError, match="inplace operation"):
            result.sum().backward()
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t * 2):
            result = ops.mm(a, b)
        torch.testing.assert_close(torch.autograd.grad(result.sum(), a)[0], 2 * b.sum(1).expand(4, 3))


def test_threads_pull_back_at_once(ops: tc.Module) -> None:
    wrong: list[int] = []

    def work(seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        for n in range(60):
            a = torch.rand(4, 3, generator=generator, requires_grad=True)
            b = torch.rand(3, 5, generator=generator)
            result = ops.mm(a, b) if n % 2 else ops.mm(b.t().contiguous(), a.t()).t()
            (found,) = torch.autograd.grad(result.sum(), a)
            if not torch.allclose(found, b.sum(1).expand(4, 3)):
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
