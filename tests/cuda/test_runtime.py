"""Running kernels through CuPy, without a GPU: a module that stands for CuPy notes what is asked of the driver."""

from __future__ import annotations

import gc
import re
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import tcomp as tc
from tcomp.arrays.devices import MAIN, CudaDevice, Memory, Place, runs_on
from tcomp.backends.cuda.runtime import architecture_at
from tcomp.backends.source import REPORT, Launch, Temporary
from tcomp.values.operators import FLOAT32
from tests.cuda.fake_cupy import CudaError, OutOfMemoryError, Stream, floats, ndarray
from tests.cuda.fake_devices import ADD, VALUES, FakeDevices, N, WithDlpack


def test_arrays_on_a_device_run_there_and_give_such_arrays(one: FakeDevices) -> None:
    operation = tc.define(ADD).add
    a, b = one.cupy.on(VALUES), one.cupy.on(VALUES[::-1])
    result = operation(a, b)
    assert type(result) is ndarray and result.host.tolist() == [5] * N
    assert one.compiled == [("tcomp_add", "sm_90", 13)]
    assert one.cupy.events == [
        ("load", 0, b"image for sm_90"),
        ("empty", 0, 4 * N),
        ("launch", "add_0", (2, 1, 1), (3, 1, 1), 0, 0, 0),
    ]
    one.cupy.events.clear()
    operation(b, a, out=result)
    operation(b, a, target="cuda")
    operation(b, a, target="cuda:sm_90")
    assert [e[0] for e in one.cupy.events] == ["launch", "empty", "launch", "empty", "launch"]
    assert len(one.compiled) == 1


def test_kernels_run_on_the_current_stream_of_the_device(two: FakeDevices) -> None:
    operation = tc.define(ADD).add
    a = two.cupy.on(VALUES, 1)
    streams = []
    for number in (7, 8):
        two.cupy.streams = {0: Stream(5), 1: Stream(number)}
        operation(a, a)
        streams.append(two.cupy.events[-2][5])
    assert streams == [7, 8]


def test_kernels_run_on_the_device_of_the_arrays(two: FakeDevices) -> None:
    operation = tc.define(ADD).add
    for device, architecture in ((0, "sm_90"), (1, "sm_86"), (0, "sm_90")):
        a = two.cupy.on(VALUES, device)
        result = operation(a, a)
        assert result.data.device_id == device and result.host.tolist() == (2 * VALUES).tolist()
        assert two.compiled[-1][1] == architecture or device == 0
        assert two.cupy.cuda.runtime.getDevice() == 0
    assert [e[1] for e in two.cupy.events if e[0] == "load"] == [0, 1]
    assert [e[1] for e in two.cupy.events if e[0] == "device"] == [1, 0]


def test_one_kernel_is_loaded_on_every_device_that_it_fits(machine: Callable[..., FakeDevices]) -> None:
    setup = machine("86", "89", "80")
    kernel = tc.define(ADD).add.compile(sizes={"N": N}, target="cuda:sm_86")
    for device in (0, 1, 1):
        kernel(*[setup.cupy.on(VALUES, device)] * 2)
    assert [e for e in setup.cupy.events if e[0] == "load"] == [
        ("load", 0, b"image for sm_86"),
        ("load", 1, b"image for sm_86"),
    ]
    with pytest.raises(tc.TargetError, match=r"compiled for sm_86, which does not run on cuda:2 \(Fake GPU 2, sm_80\)"):
        kernel(*[setup.cupy.on(VALUES, 2)] * 2)


def test_a_sequence_shares_scratch_memory(one: FakeDevices) -> None:
    def first(grid: Any, block: Any, a: int, t: int, report: int) -> None:
        assert report == 0
        floats(t, N)[:] = 10 * floats(a, N)

    def second(grid: Any, block: Any, t: int, b: int, u: int, c: int) -> None:
        assert u == t + 64
        floats(c, N)[:] = floats(t, N) + floats(b, N)

    one.cupy.bodies |= {"first": first, "second": second, "never": second}
    one.emit(
        scratch_bytes=128,
        temporaries=(Temporary("t", FLOAT32, (N,), 0), Temporary("u", FLOAT32, (N,), 64)),
        launches=(
            Launch("first", (1, 1, 1), (N, 1, 1), 0, ("A", "t", REPORT)),
            Launch("never", (3, 0, 1), (N, 1, 1), 0, ("t", "B", "u", "C")),
            Launch("second", (1, 2, 3), (4, 5, 6), 0, ("t", "B", "u", "C")),
        ),
    )
    result = tc.define(ADD).add(one.cupy.on(VALUES), one.cupy.on(VALUES))
    assert result.host.tolist() == (11 * VALUES).tolist()
    assert one.cupy.names() == ["first", "second"]
    assert ("empty", 0, 128) in one.cupy.events
    assert one.cupy.events[-1] == ("launch", "second", (1, 2, 3), (4, 5, 6), 0, 0, 0)


def test_what_a_graph_has_recorded_stays(one: FakeDevices, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph uses kernels and scratch memory again long after the call that it has recorded."""
    made: list[weakref.ref[ndarray]] = []

    def empty(shape: tuple[int, ...], dtype: Any, original: Any = one.cupy.empty) -> ndarray:
        array: ndarray = original(shape, dtype)
        made.append(weakref.ref(array))
        return array

    monkeypatch.setattr(one.cupy, "empty", empty)
    one.emit(scratch_bytes=128, launches=(Launch("add_0", (1, 1, 1), (N, 1, 1), 0, ("A", "B", "C")),))
    add, a, kept = tc.define(ADD).add, one.cupy.on(VALUES), []
    one.cupy.capturing = {7}
    for stream in (0, 6, 7):
        one.cupy.streams = {0: Stream(stream)}
        add(a, a)
        gc.collect()
        output, scratch = made[-2:]
        assert output() is None
        kept.append(scratch() is not None)
    assert kept == [False, False, True]
    function = weakref.ref(one.cupy.functions.pop(1000))
    del add
    gc.collect()
    assert function() is not None


def test_dynamic_shared_memory_is_opted_in(one: FakeDevices) -> None:
    launches = tuple(Launch("add_0", (1, 1, 1), (32, 1, 1), count, ("A", "B", "C")) for count in (1000, 65536, 0))
    one.emit(launches=launches)
    a = one.cupy.on(VALUES)
    tc.define(ADD).add(a, a)
    assert [e for e in one.cupy.events if e[0] == "attribute"] == [("attribute", "add_0", 65536)]
    assert [e[4] for e in one.cupy.events if e[0] == "launch"] == [1000, 65536, 0]
    one.cupy.failures["attribute"] = CudaError("CUDA_ERROR_INVALID_VALUE: invalid argument")
    with pytest.raises(
        tc.TargetError, match=r"kernel add_0 of add.* needs 65536 bytes of dynamic shared memory, which cuda:0"
    ):
        tc.define(ADD).add(a, a)


ADD_TEXT = "add(A float32[6], B float32[6]) -> (C float32[6])"

FAILURES = {
    "launch configuration": (
        "launch",
        CudaError("CUDA_ERROR_INVALID_VALUE: invalid argument"),
        f"cuda:0 at kernel add_0 of {ADD_TEXT}, grid (2, 1, 1), block (3, 1, 1), 0 bytes of dynamic shared memory: ",
    ),
    "earlier kernel": (
        "launch",
        CudaError("CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access was encountered"),
        "an illegal memory access was encountered\n  help: a kernel that ran before may have caused this",
    ),
    "earlier kernel, seen first by the allocator": (
        "empty",
        CudaError("cudaErrorLaunchFailure: unspecified launch failure"),
        f"CUDA failed on cuda:0 at {ADD_TEXT}: cudaErrorLaunchFailure: unspecified launch failure\n  help: a kernel",
    ),
    "out of memory": (
        "empty",
        OutOfMemoryError("Out of memory allocating 24 bytes"),
        f"there is no room on cuda:0 for the outputs and 0 bytes of scratch memory of {ADD_TEXT}: Out of memory",
    ),
    "no machine code": (
        "load",
        CudaError("CUDA_ERROR_NO_BINARY_FOR_GPU: no kernel image"),
        f"{ADD_TEXT} cannot be loaded on cuda:0 (Fake GPU 0, sm_90): CUDA_ERROR_NO_BINARY_FOR_GPU",
    ),
}


@pytest.mark.parametrize("name", FAILURES)
def test_errors_name_kernel_and_sizes(one: FakeDevices, name: str) -> None:
    what, error, expected = FAILURES[name]
    operation = tc.define(ADD).add
    a = one.cupy.on(VALUES)
    if what != "load":
        operation(a, a)
    one.cupy.failures[what] = error
    with pytest.raises(tc.TcompError, match=re.escape(expected)):
        operation(a, a)
    one.cupy.failures.clear()
    assert operation(a, a).host.tolist() == (2 * VALUES).tolist()


def test_every_thread_opens_its_context_and_has_its_own_arguments(two: FakeDevices) -> None:
    operation = tc.define(ADD).add
    operation(*[two.cupy.on(VALUES, 1)] * 2)
    wrong: list[Any] = []

    def work(number: int) -> None:
        try:
            a = two.cupy.on(VALUES + number, 1)
            for _ in range(50):
                result = operation(a, a)
                if result.host.tolist() != (2 * (VALUES + number)).tolist():
                    wrong.append(number)
        except Exception as error:  # noqa: BLE001  (a thread must not hide it)
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


CALLED = {
    "driver.launchKernel": 11,
    "driver.funcSetAttribute": 3,
    "runtime.streamIsCapturing": 1,
    "runtime.getDevice": 0,
    "runtime.setDevice": 1,
    "runtime.memGetInfo": 0,
    "runtime.getDeviceCount": 0,
    "runtime.driverGetVersion": 0,
    "runtime.getDeviceProperties": 1,
    "runtime.pointerGetAttributes": 1,
    "get_current_stream": 1,
    "alloc_pinned_memory": 1,
}


@pytest.mark.parametrize("name", CALLED)
def test_an_installed_cupy_takes_what_is_passed(name: str) -> None:
    found = pytest.importorskip("cupy").cuda
    for part in name.split("."):
        found = getattr(found, part)
    signature = re.match(r"\w+\((.*?)\)", found.__doc__ or "")
    assert signature is not None
    assert len([part for part in signature[1].split(",") if part]) == CALLED[name]


def test_the_target_says_what_it_runs_on(two: FakeDevices) -> None:
    state = tc.targets()["cuda"]
    assert state
    assert state.detail == "cuda:0 (Fake GPU 0, sm_90), cuda:1 (Fake GPU 1, sm_86); driver for CUDA 13.0, CuPy 14.2.0"
    two.cupy.failures["getDeviceCount"] = CudaError("cudaErrorInsufficientDriver: CUDA driver version is insufficient")
    state = tc.targets()["cuda"]
    assert not state and "no CUDA device: cudaErrorInsufficientDriver" in state.detail and "cuda:sm_90" in state.detail
    with pytest.raises(tc.TargetError, match="no CUDA device"):
        tc.define(ADD).add.compile(sizes={"N": N}, target="cuda")
    tc.define(ADD).add.compile(sizes={"N": N}, target="cuda:sm_80")


def test_without_cupy_kernels_still_compile(one: FakeDevices, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    assert "the target cuda needs CuPy; `pip install cupy-cuda13x`" in tc.targets()["cuda"].detail
    kernel = tc.define(ADD).add.compile(VALUES, VALUES, target="cuda:sm_90")
    assert one.compiled == [("tcomp_add", "sm_90", None)]
    with pytest.raises(tc.ShapeError, match="copy it to main memory; the target cuda needs CuPy"):
        kernel(WithDlpack(VALUES, 0), WithDlpack(VALUES, 0))
    with pytest.raises(tc.TargetError, match="needs CuPy"):
        kernel(VALUES, VALUES)


@pytest.mark.parametrize(
    ("architecture", "capability", "runs"),
    [
        ("sm_90", (9, 0), True),
        ("sm_80", (8, 6), True),
        ("sm_86", (8, 0), False),
        ("sm_80", (9, 0), False),
        ("sm_90a", (9, 0), True),
        ("sm_100a", (10, 3), False),
        ("sm_100f", (10, 3), True),
        ("sm_120", (12, 1), True),
        ("sm_100", (12, 0), False),
    ],
)
def test_machine_code_runs_within_a_major_version(architecture: str, capability: tuple[int, int], runs: bool) -> None:
    assert runs_on(architecture, CudaDevice(0, "some GPU", capability)) is runs


@pytest.mark.parametrize(("capability", "architecture"), [("103", "sm_100"), ("87", "sm_86"), ("121", "sm_120")])
def test_a_device_gets_the_newest_code_that_it_runs(
    machine: Callable[..., FakeDevices], capability: str, architecture: str
) -> None:
    machine(capability)
    assert architecture_at(Place(Memory.CUDA)) == architecture_at(MAIN) == architecture
    machine("35")
    with pytest.raises(tc.TargetError, match=r"does not know cuda:0 .Fake GPU 0, sm_35.\n.*architectures: sm_75"):
        architecture_at(MAIN)
