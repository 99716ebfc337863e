"""Arrays in the memory of CUDA devices, as callers pass and get them; a module stands for CuPy."""

from __future__ import annotations

import re
import sys
import types
from typing import Any, NamedTuple

import numpy as np
import pytest

import tcomp as tc
from tcomp.arrays.arrays import KINDS, fetched, moved
from tcomp.arrays.devices import Memory, Place, wait
from tcomp.arrays.kinds import TorchKind
from tcomp.backends.cuda import runtime as cuda_runtime
from tcomp.backends.source import Launch
from tests.cuda.fake_cupy import Stream, floats, ndarray
from tests.cuda.fake_devices import ADD, ONE_LAUNCH, VALUES, FakeDevices, N, WithDlpack, WithInterface

SCALE = "def scale(float(N) A, float s) -> (B) { B(i) = s * A(i) }"


IOTA = "def iota(const int N) -> (B) { B(i) = float(i) where i in 0:N }"


def test_strides_are_read_as_they_lie(one: FakeDevices) -> None:
    a = one.cupy.on(np.zeros((4, N), np.float32))
    kind = KINDS[ndarray]
    assert kind is not None
    cases = {"transposed": (a.T, (1, N), 0), "reversed": (a[::-1, ::2], (-N, 2), 4 * 3 * N)}
    for name, (array, strides, offset) in cases.items():
        view = kind.view(array)
        assert (view.strides, view.address) == (strides, a.data.ptr + offset), name
        assert view.place == Place(Memory.CUDA, 0)
    assert kind.layout(a) != kind.layout(a.T)


def test_arrays_elsewhere_are_refused(two: FakeDevices) -> None:
    operation = tc.define(ADD).add
    here, there = two.cupy.on(VALUES), two.cupy.on(VALUES, 1)
    cases: list[tuple[tuple[Any, Any], str | None, str]] = [
        ((here, there), None, "input B: expected an array on cuda:0 like the others but found one on cuda:1"),
        ((here, VALUES), None, "input B: expected an array in the memory of a CUDA device but found one in main"),
        ((VALUES, here), None, "input B: expected an array in main memory but found one in the memory of a CUDA"),
        ((VALUES, here), "cuda", "input A: expected an array in the memory of a CUDA device"),
        ((here, here), "cpu", "input A: expected an array in main memory"),
        ((VALUES, VALUES), "cuda", "help: move it: cupy.asarray(A); or choose target='cpu'"),
        ((here, here), "cpu", "help: move it: cupy.asnumpy(A); or choose target='cuda'"),
        ((here, there), "cuda", "help: move it: cupy.asarray(B) under `with cupy.cuda.Device(0)`"),
    ]
    for arguments, target, expected in cases:
        with pytest.raises(tc.ShapeError, match=re.escape(expected)):
            operation(*arguments, target=target)
    with pytest.raises(tc.ShapeError, match=r"output C: expected an array on cuda:0"):
        operation(here, here, out=there)
    assert two.cupy.names() == []


def test_compiling_looks_at_shapes_only(two: FakeDevices) -> None:
    operation = tc.define(ADD).add
    assert operation.compile(VALUES, VALUES, target="cuda:sm_80").specialisation.target == "cuda:sm_80"
    assert operation.compile(VALUES, VALUES, target="cuda").specialisation.target == "cuda:sm_90"
    assert operation.compile(sizes={"N": N}, target="cuda").specialisation.target == "cuda:sm_90"
    assert operation.compile(*[two.cupy.on(VALUES, 1)] * 2).specialisation.target == "cuda:sm_86"
    assert operation.compile(VALUES, VALUES).specialisation.target == "cpu"
    with pytest.raises(tc.TargetError, match="no GPU architecture 'sm_1'"):
        operation.compile(VALUES, VALUES, target="cuda:sm_1")


def test_misaligned_arrays_are_read_from_a_copy(one: FakeDevices) -> None:
    octets = one.cupy.asarray(np.zeros(8 * N + 1, np.uint8))
    for strides in (4,), (8,), (5,):
        odd = ndarray((N,), np.float32, octets.data + 1, strides)
        odd.host[...] = VALUES
        result = tc.define(ADD).add(odd, odd)
        assert result.host.tolist() == (2 * VALUES).tolist()


@pytest.mark.parametrize("of_kernel", [False, True])
def test_copies_that_a_graph_reads_stay(one: FakeDevices, monkeypatch: pytest.MonkeyPatch, of_kernel: bool) -> None:
    octets = one.cupy.asarray(np.zeros(4 * N + 1, np.uint8))
    odd = ndarray((N,), np.float32, octets.data + 1, (4,))
    odd.host[...] = VALUES
    operation, recorded = tc.define(ADD).add, list[Any]()
    call = operation.compile(odd, odd) if of_kernel else operation
    monkeypatch.setattr(cuda_runtime, "_RECORDED", recorded)
    one.cupy.streams, one.cupy.capturing = {0: Stream(7)}, set()
    assert call(odd, odd).host.tolist() == (2 * VALUES).tolist() and not recorded
    one.cupy.capturing = {7}
    call(odd, odd)
    copies = [a for a in recorded[-1] if isinstance(a, ndarray)]
    assert len(copies) == 2 and all(a is not odd and a.host.tolist() == VALUES.tolist() for a in copies)
    even = one.cupy.on(VALUES)
    before = len(recorded)
    call(even, even)
    assert all(not isinstance(a, ndarray) for kept in recorded[before:] for a in kept)


def test_a_graph_records_no_numbers(one: FakeDevices) -> None:
    """Their copies come from main memory, where something else lies when the graph runs."""

    def scale(grid: Any, block: Any, a: int, s: int, b: int) -> None:
        floats(b, N)[:] = floats(a, N) * floats(s, 1)[0]

    one.emit(launches=(Launch("scale_0", (1, 1, 1), (32, 1, 1), 0, ("A", "s", "B")),))
    one.cupy.bodies["scale_0"] = scale
    operation, a = tc.define(SCALE).scale, one.cupy.on(VALUES)
    one.cupy.streams, one.cupy.capturing = {0: Stream(7)}, {7}
    with pytest.raises(tc.TcompError, match="cannot record the number that was passed for s"):
        operation(a, 2.5)
    factor = one.cupy.on(np.float32(2.5))
    assert operation(a, factor).host.tolist() == (VALUES * 2.5).tolist()
    one.cupy.capturing = set()
    assert operation(a, 2.5).host.tolist() == (VALUES * 2.5).tolist()


def test_numbers_are_copied_to_the_device(two: FakeDevices) -> None:
    def scale(grid: Any, block: Any, a: int, s: int, b: int) -> None:
        floats(b, N)[:] = floats(a, N) * floats(s, 1)[0]

    two.emit(launches=(Launch("scale_0", (1, 1, 1), (32, 1, 1), 0, ("A", "s", "B")),))
    two.cupy.bodies["scale_0"] = scale
    result = tc.define(SCALE).scale(two.cupy.on(VALUES, 1), 2.5)
    assert result.host.tolist() == (VALUES * 2.5).tolist()
    assert ("upload", 1, 4) in two.cupy.events


def test_a_program_without_arrays_runs_on_the_current_device(two: FakeDevices) -> None:
    def iota(grid: Any, block: Any, b: int) -> None:
        floats(b, N)[:] = VALUES

    two.emit(launches=(Launch("iota_0", (1, 1, 1), (32, 1, 1), 0, ("B",)),))
    two.cupy.bodies["iota_0"] = iota
    two.cupy.cuda.runtime.setDevice(1)
    result = tc.define(IOTA).iota(N, target="cuda")
    assert result.data.device_id == 1 and result.host.tolist() == VALUES.tolist()
    assert type(tc.define(IOTA).iota(N)) is np.ndarray


def test_outputs_must_not_overlap_inputs(one: FakeDevices) -> None:
    operation = tc.define(ADD).add
    memory = one.cupy.on(np.zeros(2 * N, np.float32))
    for _ in range(2):
        operation(memory[:N], memory[:N], out=memory[N:])
        with pytest.raises(tc.ShapeError, match=r"output \w+ shares memory with input \w+"):
            operation(memory[:N], memory[1 : N + 1], out=memory[N:])


def test_other_libraries_arrays_are_read_without_a_copy(two: FakeDevices) -> None:
    operation = tc.define(ADD).add
    values = VALUES.copy()
    two.cupy.owners[values.ctypes.data] = 1
    result = operation(WithInterface(values, 1), WithDlpack(values, 1))
    assert type(result) is ndarray and result.data.device_id == 1 and result.host.tolist() == (2 * VALUES).tolist()
    name, result = operation(WithDlpack(values, 1), WithInterface(values, 1))
    assert name == "own" and result.host.tolist() == (2 * VALUES).tolist()
    out = WithInterface(np.zeros(N, np.float32), 1)
    two.cupy.owners[out.host.ctypes.data] = 1
    assert operation(WithDlpack(values, 1), WithDlpack(values, 1), out=out) is out
    assert out.host.tolist() == (2 * VALUES).tolist()
    out.read_only = True
    with pytest.raises(tc.ShapeError, match=r"output C: .* found a read-only array"):
        operation(WithDlpack(values, 1), WithDlpack(values, 1), out=out)


def test_the_reference_takes_and_gives_device_arrays(two: FakeDevices) -> None:
    operation = tc.define(ADD).add
    a, out = two.cupy.on(VALUES, 1), two.cupy.on(np.zeros(N, np.float32), 1)
    result = operation.reference(a, a)
    assert type(result) is ndarray and result.data.device_id == 1 and result.host.tolist() == (2 * VALUES).tolist()
    assert operation.reference(a, a, out=out) is out and out.host.tolist() == (2 * VALUES).tolist()
    assert two.cupy.names() == []


def test_numpy_arrays_can_be_moved_and_fetched(two: FakeDevices) -> None:
    two.cupy.cuda.runtime.setDevice(1)
    there = moved(VALUES, Memory.CUDA)
    assert type(there) is ndarray and there.data.device_id == 1
    two.cupy.cuda.runtime.setDevice(0)
    assert fetched(there).tolist() == VALUES.tolist()
    assert moved(VALUES, Memory.MAIN) is VALUES and moved(3, Memory.CUDA) == 3
    wait(Memory.MAIN)
    assert ("device synchronize", 0) not in two.cupy.events
    wait(Memory.CUDA)
    assert two.cupy.events[-1] == ("device synchronize", 0)


class TorchDevice(NamedTuple):
    """Stands for torch.device."""

    type: str
    index: int


class FakeTorch(types.ModuleType):
    """What tcomp calls of torch for CUDA tensors; memory is main memory."""

    class dtype(str):  # noqa: N801
        pass

    class Tensor:
        __torch_dispatch__ = None
        layout = "strided"
        is_nested = False
        requires_grad = False
        is_cpu, is_cuda = False, True

        def __init__(self, host: np.ndarray, device: int) -> None:
            self.host, self.shape, self.dtype = host, host.shape, FakeTorch.dtype(host.dtype.name)
            self.device = TorchDevice("cuda", device)

        def stride(self) -> tuple[int, ...]:
            return tuple(s // self.host.itemsize for s in self.host.strides)

        def is_neg(self) -> bool:
            return False

        def data_ptr(self) -> int:
            return self.host.ctypes.data

        def numel(self) -> int:
            return self.host.size

    def __init__(self) -> None:
        super().__init__("torch")
        self.float32, self.uint8, self.strided = self.dtype("float32"), self.dtype("uint8"), "strided"
        self._C = types.SimpleNamespace(
            _are_functorch_transforms_active=lambda: False,
            _len_torch_dispatch_stack=lambda: 0,
            _get_tracing_state=lambda: None,
        )
        self.is_grad_enabled = lambda: True
        self.nn = types.SimpleNamespace(Parameter=self.Tensor)
        self.autograd = types.SimpleNamespace(forward_ad=types.SimpleNamespace(_current_level=-1))
        self.cuda = types.SimpleNamespace(current_stream=lambda device: types.SimpleNamespace(cuda_stream=300 + device))

    def device(self, name: str) -> str:
        return name

    def empty(self, shape: tuple[int, ...], dtype: str, device: str) -> Tensor:
        assert device.startswith("cuda:")
        return self.Tensor(np.empty(shape, dtype), int(device.removeprefix("cuda:")))


def test_torch_tensors_use_the_stream_and_the_memory_of_torch(
    two: FakeDevices, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = FakeTorch()
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr("tcomp.operation._recorded_call", lambda *_: NotImplemented)
    monkeypatch.setitem(KINDS, torch.Tensor, TorchKind())
    two.emit(launches=ONE_LAUNCH, scratch_bytes=100)
    two.cupy.streams = {1: Stream(5)}
    operation = tc.define(ADD).add
    a = torch.Tensor(VALUES.copy(), 1)
    result = operation(a, a)
    assert type(result) is torch.Tensor and result.device.index == 1
    assert result.host.tolist() == (2 * VALUES).tolist()
    assert [e for e in two.cupy.events if e[0] == "launch"] == [("launch", "add_0", (2, 1, 1), (3, 1, 1), 0, 301, 1)]
    assert not [e for e in two.cupy.events if e[0] == "empty"]
    torch._C._cuda_getCurrentRawStream = lambda device: 400 + device
    monkeypatch.setitem(KINDS, torch.Tensor, TorchKind())
    tc.define(ADD).add(a, a)
    assert two.cupy.events[-2][5] == 401
    with pytest.raises(tc.ShapeError, match=re.escape("help: move it: A.cpu(); or choose target='cuda'")):
        operation(a, a, target="cpu")
