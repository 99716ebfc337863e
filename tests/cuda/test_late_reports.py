"""Subscripts that kernels find outside after their call has returned, on a module that stands for CuPy."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.arrays import late
from tcomp.backends.source import REPORT, Launch
from tests.cuda.fake_cupy import words
from tests.cuda.fake_devices import ADD, VALUES, FakeDevices

LOOKUP = "def lookup(float(V) T, int32(N) I) -> (B) { B(n) = T(I(n)) }"
MESSAGE = r"subscript I\(n\) of T in dimension 0 is 99 at n = 3, but must lie in 0..5"


@pytest.fixture
def faulty(one: FakeDevices) -> Iterator[FakeDevices]:
    """A device on which a lookup finds 99 among its subscripts wherever ``cupy.failing`` is set."""

    def lookup(grid: Any, block: Any, t: int, i: int, b: int, report: int) -> None:
        if one.cupy.failing and not words(report, 4)[2]:
            words(report, 4)[:] = 0, 99, 1, 3

    one.emit(launches=(Launch("lookup_0", (1, 1, 1), (32, 1, 1), 0, ("T", "I", "B", REPORT)),), scratch_bytes=0)
    one.cupy.bodies["lookup_0"] = lookup
    one.cupy.failing = False
    late.WATCHED.clear()
    yield one
    late.WATCHED.clear()


def test_a_call_waits_for_nothing_and_the_next_one_raises_what_it_found(faulty: FakeDevices) -> None:
    operation, cupy = tc.define(LOOKUP).lookup, faulty.cupy
    table, indices = cupy.on(VALUES), cupy.on(np.zeros(4, np.int32))
    operation(table, indices)
    cupy.events.clear()
    cupy.failing = True
    operation(table, indices)
    assert [e[0] for e in cupy.events] == ["empty", "launch"], "neither a copy nor a wait"
    with pytest.raises(tc.ShapeError, match=MESSAGE):
        operation(table, indices)
    assert cupy.events[-1] == ("device synchronize", 0) and len(cupy.names()) == 1, "the next one was not launched"
    cupy.failing = False
    for _ in range(3):
        operation(table, indices)


def test_other_kernels_and_waits_raise_it_too(faulty: FakeDevices) -> None:
    operation, cupy = tc.define(LOOKUP).lookup, faulty.cupy
    table, indices = cupy.on(VALUES), cupy.on(np.zeros(4, np.int32))
    faulty.emit(launches=(Launch("add_0", (2, 1, 1), (3, 1, 1), 0, ("A", "B", "C")),), scratch_bytes=0)
    add = tc.define(ADD).add
    add(table, table)
    faulty.emit(launches=(Launch("lookup_0", (1, 1, 1), (32, 1, 1), 0, ("T", "I", "B", REPORT)),), scratch_bytes=0)
    cupy.failing = True
    for told in (lambda: add(table, table), tc.synchronize):
        operation(table, indices)
        with pytest.raises(tc.ShapeError, match=MESSAGE):
            told()
        told()
    assert not late.WATCHED, "whoever has waited need not look at them again"


def test_a_graph_records_checks_and_its_replays_are_told(faulty: FakeDevices) -> None:
    cupy = faulty.cupy
    kernel = tc.define(LOOKUP).lookup.compile(sizes={"V": 6, "N": 4}, target="cuda:sm_90")
    captured = kernel.capture(cupy.on(VALUES), cupy.on(np.zeros(4, np.int32)))
    tc.synchronize()
    cupy.failing = True
    captured()
    with pytest.raises(tc.ShapeError, match=MESSAGE):
        captured()


def test_what_nobody_asked_for_is_printed_in_the_end(faulty: FakeDevices, capsys: pytest.CaptureFixture[str]) -> None:
    cupy = faulty.cupy
    cupy.failing = True
    tc.define(LOOKUP).lookup(cupy.on(VALUES), cupy.on(np.zeros(4, np.int32)))
    late._print_unread()
    assert "subscript I(n) of T in dimension 0 is 99" in capsys.readouterr().err


def test_what_is_launched_while_another_thread_waits_is_not_forgotten(faulty: FakeDevices) -> None:
    """A call begins before ``synchronize`` and launches behind the wait: the next one raises what it finds."""
    operation, cupy = tc.define(LOOKUP).lookup, faulty.cupy
    table, indices = cupy.on(VALUES), cupy.on(np.zeros(4, np.int32))
    operation(table, indices)
    lookup, waiting = cupy.bodies["lookup_0"], threading.Thread(target=tc.synchronize)
    cupy.failing = True

    def launched_late(grid: Any, block: Any, t: int, i: int, b: int, report: int) -> None:
        waiting.start()
        waiting.join()
        lookup(grid, block, t, i, b, report)

    cupy.bodies["lookup_0"] = launched_late
    operation(table, indices)
    cupy.bodies["lookup_0"] = lookup
    assert waiting.ident is not None
    with pytest.raises(tc.ShapeError, match=MESSAGE):
        tc.synchronize()


def test_an_error_of_the_device_itself_is_told_as_one_and_the_report_kept(
    faulty: FakeDevices, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation, cupy = tc.define(LOOKUP).lookup, faulty.cupy
    table, indices = cupy.on(VALUES), cupy.on(np.zeros(4, np.int32))
    cupy.failing = True
    operation(table, indices)
    with monkeypatch.context() as patched:
        patched.setattr(cupy, "_note", _broken)
        with pytest.raises(tc.TcompError, match=r"CUDA failed .* an illegal memory access"):
            operation(table, indices)
    with pytest.raises(tc.ShapeError, match=MESSAGE):
        tc.synchronize()


def _broken(event: str, *_: Any) -> None:
    if event == "device synchronize":
        raise RuntimeError("an illegal memory access was encountered")
