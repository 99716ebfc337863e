"""Calls that go from NumPy arrays to the kernel at once: that they happen, and that nothing wrong gets through."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.host import directcalls
from tcomp.runtime.binding import QuickCalls

Array = np.ndarray[Any, np.dtype[Any]]
SUM = "def f(float(N,M) A, float(N,M) B) -> (C) { C(n,m) = A(n,m) + B(n,m) }"
N, M = 6, 9


def filled(value: float) -> Array:
    return np.full((N, M), value, np.float32)


@pytest.fixture
def warm() -> tc.Operation:
    """An operation with a direct call for arrays in C order."""
    operation = tc.define(SUM)["f"]
    for _ in range(2):
        operation(filled(1), filled(2), out=filled(0))
    assert operation._quick.recent
    return operation


@pytest.fixture
def direct(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each of the calls that follow ran directly."""
    ran: list[bool] = []
    real = QuickCalls.recent.__get__

    def watched(calls: QuickCalls) -> Any:
        def watch(call: Any) -> Any:
            def run(arguments: Any, out: Any) -> Any:
                result = call(arguments, out)
                ran.append(result is not None)
                return result

            return run

        return tuple((chosen, watch(call)) for chosen, call in real(calls))

    monkeypatch.setattr(QuickCalls, "recent", property(watched, lambda calls, found: None))
    return ran


def test_a_call_of_the_same_layout(warm: tc.Operation, direct: list[bool]) -> None:
    C = filled(0)
    assert warm(filled(3), filled(4), out=C) is C
    assert (C == 7).all() and direct == [True]
    assert (warm(filled(3), filled(5)) == 8).all() and direct == [True, True]


def test_a_kernel_is_called_directly_too() -> None:
    kernel = tc.define(SUM)["f"].compile(sizes={"N": N, "M": M})
    C = filled(0)
    for n in range(4):
        assert kernel(filled(n), filled(1), out=C) is C
        assert (C - n == 1).all()
    assert kernel._quick.recent


OTHERS = {
    "strides": lambda: np.asfortranarray(filled(3)),
    "a view": lambda: np.full((2 * N, 2 * M), 3, np.float32)[::2, ::2],
    "reversed": lambda: filled(3)[::-1],
    "a subclass": lambda: filled(3).view(np.matrix),
    "a list's protocol": lambda: memoryview(filled(3)),
    "misaligned": lambda: np.frombuffer(b"\0" + filled(3).tobytes(), np.uint8)[1:].view(np.float32).reshape(N, M),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_layouts_take_the_long_way(name: str, warm: tc.Operation, direct: list[bool]) -> None:
    C = filled(0)
    for _ in range(3):
        warm(OTHERS[name](), filled(4), out=C)
        assert (C == 7).all()
    assert not any(direct)


@pytest.mark.parametrize("wrong", ["dtype", "shape", "rank", "count", "none", "swapped bytes"])
def test_what_is_wrong_is_reported(wrong: str, warm: tc.Operation) -> None:
    others: dict[str, tuple[Any, ...]] = {
        "dtype": (filled(1).astype(np.float64), filled(1)),
        "shape": (filled(1)[:3], filled(1)),
        "rank": (filled(1)[0], filled(1)),
        "count": (filled(1),),
        "none": (None, filled(1)),
        "swapped bytes": (filled(1).astype(">f4"), filled(1)),
    }
    with pytest.raises(tc.TcompError):
        warm(*others[wrong], out=filled(0))


def test_outputs_that_cannot_be_written_are_reported(warm: tc.Operation) -> None:
    fixed, memory = filled(0), np.zeros(2 * N * M, np.float32)
    fixed.setflags(write=False)
    with pytest.raises(tc.ShapeError, match="read-only"):
        warm(filled(1), filled(2), out=fixed)
    assert (fixed == 0).all()
    A, C = memory[: N * M].reshape(N, M), memory[3 : N * M + 3].reshape(N, M)
    with pytest.raises(tc.ShapeError, match="shares memory"):
        warm(A, filled(2), out=C)
    assert (memory == 0).all()


def test_several_outputs_and_constants() -> None:
    text = "def f(float(N) A, const int S) -> (B, C) { B(n) = A(n) * S  C(n) = A(n) + S }"
    f = tc.define(text)["f"]
    A, one, two = np.arange(5, dtype=np.float32), np.zeros(5, np.float32), np.zeros(5, np.float32)
    for scale in (2, 2, 2, 3, 3, 2, 100_000, 100_000):
        assert f(A, scale, out=(one, two)) == (one, two)
        assert (one == A * scale).all() and (two == A + scale).all()
    assert f._quick.recent
    first, second = f(A, 2)
    assert (first == A * 2).all() and (second == A + 2).all()
    f(A, 2, out=(None, two))
    f(A, 2, out={"B": one})
    with pytest.raises(tc.ShapeError):
        f(A, 2, out=one)


def test_a_failed_check_is_reported() -> None:
    f = tc.define("def f(float(E,D) T, int32(N) I) -> (O) { O(n,d) = T(I(n),d) }")["f"]
    T, good = np.ones((4, 3), np.float32), np.array([0, 3], np.int32)
    rows = np.zeros((2, 3), np.float32)
    for _ in range(3):
        f(T, good, out=rows)
    assert f._quick.recent
    for _ in range(2):
        with pytest.raises(tc.ShapeError, match="is 4 at n = 1"):
            f(T, np.array([0, 4], np.int32), out=rows)
    f(T, good, out=rows)


def test_the_interpreter_can_be_asked_for_at_any_call(warm: tc.Operation, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bool] = []
    monkeypatch.setattr(tc.Operation, "reference", lambda *arguments, out: asked.append(True))
    warm(filled(1), filled(2), out=filled(0))
    assert not asked
    monkeypatch.setenv("TCOMP_INTERPRET", "1")
    warm(filled(1), filled(2), out=filled(0))
    assert asked == [True]


def test_what_is_chosen_beside_the_arguments_counts(warm: tc.Operation) -> None:
    with pytest.raises(tc.TargetError):
        warm(filled(1), filled(2), out=filled(0), target="abacus")
    options = tc.MappingOptions(parallel=False)
    for _ in range(3):
        assert (warm(filled(1), filled(2), out=filled(0), options=options) == 3).all()


def test_layouts_take_turns() -> None:
    f = tc.define(SUM)["f"]
    for n in (*range(1, 8), *range(1, 8), *range(1, 8)):
        A = np.full((n, 3), n, np.float32)
        assert (f(A, A, out=np.empty_like(A)) == 2 * n).all()
    assert 1 < len(f._quick.recent) < 7


def test_threads_have_scratch_memory_of_their_own() -> None:
    f = tc.define("def f(float(N,K) A, float(M,K) B) -> (C) { C(n,m) +=! A(n,k) * B(m,k) }")["f"]
    wrong: list[int] = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        A, B = (rng.integers(-3, 4, (48, 40)).astype(np.float32) for _ in range(2))
        C, expected = np.empty((48, 48), np.float32), A @ B.T
        for _ in range(200):
            if not (f(A, B, out=C) == expected).all():
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_arrays_of_another_make_have_no_direct_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = list(directcalls._Fields._fields_)
    fields[2], fields[1] = fields[1], fields[2]
    moved = type("Moved", (directcalls.ctypes.Structure,), {"_fields_": fields})
    monkeypatch.setattr(directcalls, "_Fields", moved)
    assert not directcalls._fields_are_known()
    monkeypatch.setattr(directcalls, "entry", lambda: None)
    monkeypatch.setattr("tcomp.backends.host.runtime.entry", lambda: None)
    f = tc.define(SUM)["f"]
    for _ in range(3):
        assert (f(filled(1), filled(2), out=filled(0)) == 3).all()
    assert not f._quick.recent


def test_further_calls_with_numbers_are_not_checked_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    scaled = tc.define("def f(double a, double(N) x) -> (y) { y(i) = a * x(i) }")["f"]
    x = np.arange(4.0)
    scaled(2.0, x), scaled(2.0, x, out=np.empty(4))

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("checked anew")

    monkeypatch.setattr("tcomp.operation.check_call", fail)
    for number in (3.0, 5, np.float64(0.5)):
        assert (scaled(number, x) == number * x).all()
        assert (scaled(number, x, out=np.empty(4)) == number * x).all()
    with pytest.raises(AssertionError, match="checked anew"):
        scaled(2**53 + 1, x)
