"""Calls recorded as CUDA graphs, on a module that stands for CuPy: no device has run one."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.source import Launch, Temporary
from tcomp.values.operators import FLOAT32
from tests.cuda.fake_cupy import CudaError, floats
from tests.cuda.fake_devices import ADD, VALUES, FakeDevices, N, WithDlpack


def sequence(one: FakeDevices) -> tc.Kernel:
    """A kernel of two launches that hand a temporary on."""

    def first(grid: Any, block: Any, a: int, t: int) -> None:
        floats(t, N)[:] = 10 * floats(a, N)

    def second(grid: Any, block: Any, t: int, b: int, c: int) -> None:
        floats(c, N)[:] = floats(t, N) + floats(b, N)

    one.cupy.bodies |= {"first": first, "second": second}
    one.emit(
        scratch_bytes=64,
        temporaries=(Temporary("t", FLOAT32, (N,), 0),),
        launches=(
            Launch("first", (1, 1, 1), (N, 1, 1), 0, ("A", "t")),
            Launch("second", (1, 1, 1), (N, 1, 1), 0, ("t", "B", "C")),
        ),
    )
    return tc.define(ADD).add.compile(sizes={"N": N}, target="cuda:sm_90")


def test_a_graph_has_all_launches_and_runs_on_what_arrays_hold_by_then(one: FakeDevices) -> None:
    kernel, a, b = sequence(one), one.cupy.on(VALUES), one.cupy.on(VALUES)
    captured = kernel.capture(a, b)
    assert repr(captured) == "<CUDA graph of 2 kernels on cuda:0>" and captured.launches == 2
    assert captured.outputs.host.tolist() == (11 * VALUES).tolist()
    one.cupy.events.clear()
    a.host[:] = 1
    assert captured() is captured.outputs
    assert captured.outputs.host.tolist() == (10 + VALUES).tolist()
    assert one.cupy.events == [("graph", 2, 0)], "one launch, on the current stream"


def test_outputs_may_be_given_and_arguments_named(one: FakeDevices) -> None:
    kernel, a, b = sequence(one), one.cupy.on(VALUES), one.cupy.on(VALUES)
    c = one.cupy.on(np.zeros(N, np.float32))
    captured = kernel.capture(a, B=b, out=c)
    b.host[:] = 2
    c.host[:] = 0
    assert captured() is c and c.host.tolist() == (10 * VALUES + 2).tolist()


def test_what_runs_while_a_call_is_recorded_computes_nothing(one: FakeDevices) -> None:
    kernel, a, b = sequence(one), one.cupy.on(VALUES), one.cupy.on(VALUES)
    kernel.capture(a, b)
    kinds = [e[0] for e in one.cupy.events if e[0] in ("launch", "device synchronize", "begin capture", "graph")]
    assert kinds == ["launch", "launch", "device synchronize", "begin capture", "launch", "launch"]
    (stream,) = {e[5] for e in one.cupy.events[-2:]}
    assert stream >= 500 and one.cupy.streams == {} and one.cupy.capturing == set()


def test_only_calls_on_a_device_are_recorded(one: FakeDevices) -> None:
    kernel, a = sequence(one), one.cupy.on(VALUES)
    with pytest.raises(tc.TargetError, match=r"(?s)with CuPy arrays can be recorded.*torch\.cuda\.graph"):
        kernel.capture(WithDlpack(VALUES, 0), a)
    host = tc.define(ADD).add.compile(sizes={"N": N}, target="cpu")
    with pytest.raises(tc.TargetError, match="only calls with arrays on a CUDA device"):
        host.capture(VALUES, VALUES)


def test_errors_of_cuda_are_told(one: FakeDevices) -> None:
    kernel, a, b = sequence(one), one.cupy.on(VALUES), one.cupy.on(VALUES)
    captured = kernel.capture(a, b)
    one.cupy.failures["graph"] = CudaError("cudaErrorLaunchFailure: unspecified launch failure")
    with pytest.raises(tc.TcompError, match="failed to launch a graph of 2 kernels: cudaErrorLaunchFailure"):
        captured()
    one.cupy.failures["begin capture"] = CudaError("cudaErrorStreamCaptureUnsupported: operation not permitted")
    with pytest.raises(tc.TcompError, match="cannot record the call on cuda:0"):
        kernel.capture(a, b)


@pytest.mark.parametrize(
    ("name", "arguments"), [("Stream.begin_capture", 1), ("Stream.end_capture", 0), ("Graph.launch", 1)]
)
def test_an_installed_cupy_takes_what_is_passed(name: str, arguments: int) -> None:
    found = pytest.importorskip("cupy").cuda
    for part in name.split("."):
        found = getattr(found, part)
    signature = re.match(r"[\w.]+\(self(?:, )?(.*?)\)", found.__doc__ or "")
    assert signature is not None
    assert len([part for part in signature[1].split(",") if part]) == arguments
