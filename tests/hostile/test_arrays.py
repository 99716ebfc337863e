"""Arrays laid out, shared, guarded or described as nobody would: a right result or a clear error, nothing corrupted."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tcomp as tc

Array = np.ndarray[Any, np.dtype[Any]]

DATA = np.arange(24, dtype=np.float32).reshape(4, 6)
TEXT = """
def twice(float(N) A) -> (O) { O(i) = A(i) * 2 }
def rows(float(M,N) A) -> (O) { O(i) +=! A(i,j) * (j + 1) }
def both(float(N) A, float(N) B) -> (O, P) { O(i) = A(i) + B(i)  P(i) = A(i) - B(i) }
def swap(float(N) A) -> (float(N) O) { O(i) = O(N-1-i) + A(i) where i in 0:N }
"""


@pytest.fixture(scope="module")
def ops() -> tc.Module:
    return tc.define(TEXT)


def misaligned(values: Array) -> Array:
    memory = np.zeros(values.nbytes + 1, np.uint8)
    odd = memory[1:].view(values.dtype).reshape(values.shape)
    odd[...] = values
    return odd


def between_bytes(values: Array) -> Array:
    record = np.zeros(values.shape, [("x", "u1"), ("y", values.dtype)])
    record["y"] = values
    return np.asarray(record["y"])


def mapped(values: Array) -> Array:
    with tempfile.NamedTemporaryFile() as file:
        values.tofile(file.name)
        return np.memmap(file.name, values.dtype, "r", shape=values.shape)


def frozen(values: Array) -> Array:
    copy = values.copy()
    copy.flags.writeable = False
    return copy


LAYOUTS: dict[str, Callable[[Array], Any]] = {
    "plain": lambda a: a,
    "Fortran order": np.asfortranarray,
    "reversed": lambda a: a[::-1, ::-1].copy()[::-1, ::-1],
    "every other": lambda a: np.repeat(np.repeat(a, 2, 0), 3, 1)[::2, ::3],
    "read-only": frozen,
    "mapped read-only": mapped,
    "misaligned": misaligned,
    "between bytes": between_bytes,
    "matrix": lambda a: a.view(np.matrix),
    "subclass": lambda a: a.view(type("Named", (np.ndarray,), {})),
    "memoryview": memoryview,
}


@pytest.mark.parametrize("target", ["cpu", "simulator"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_inputs_of_any_layout(ops: tc.Module, layout: str, target: str) -> None:
    """Twice: the second call takes the fast way of known layouts."""
    given = LAYOUTS[layout](DATA)
    for _ in range(2):
        found = ops.rows(given, target=target)
        np.testing.assert_array_equal(found, DATA @ np.arange(1, 7))
        np.testing.assert_array_equal(given, DATA)


def test_broadcast_inputs(ops: tc.Module) -> None:
    one = np.float32(3)
    np.testing.assert_array_equal(ops.rows(np.broadcast_to(one, (5, 7))), np.full(5, 3 * 28))
    np.testing.assert_array_equal(ops.rows(np.broadcast_to(DATA[:1], (5, 6))), np.full(5, DATA[0] @ np.arange(1, 7)))
    windows = np.lib.stride_tricks.sliding_window_view(DATA[0], 3)
    np.testing.assert_array_equal(ops.rows(windows), windows @ np.arange(1, 4))


@pytest.mark.parametrize("steps", [(1, 1), (-1, 1), (2, -3), (-2, -1)])
def test_outputs_of_any_stride(ops: tc.Module, steps: tuple[int, int]) -> None:
    memory = np.full((8, 18), -1, np.float32)
    out = memory[:: steps[0], :: steps[1]][:4, 1]
    given = DATA[: len(out)]
    found = ops.rows(given, out=out)
    assert found is out
    np.testing.assert_array_equal(out, given @ np.arange(1, 7))
    out[...] = -1
    assert (memory == -1).all(), "written outside of the output"


def overlapping() -> Iterator[tuple[str, Callable[[tc.Module, Array], Any]]]:
    yield "alias", lambda ops, a: ops.twice(a, out=a)
    yield "view", lambda ops, a: ops.twice(a[:8], out=a[:8].view())
    yield "partial", lambda ops, a: ops.twice(a[:8], out=a[4:12])
    yield "last element", lambda ops, a: ops.twice(a[:8], out=a[7:15])
    yield "reversed", lambda ops, a: ops.twice(a[:8], out=a[:8][::-1])
    yield "crossing strides", lambda ops, a: ops.twice(a[::2], out=a[: a.size // 2])
    yield "second input", lambda ops, a: ops.both(a[:4].copy(), a[:4], out=(a[2:6], None))
    yield "outputs", lambda ops, a: ops.both(a[:4], a[:4], out=(a[8:12], a[10:14]))
    yield "one output twice", lambda ops, a: ops.both(a[:4], a[:4], out=(a[8:12], a[8:12]))
    yield "read and written", lambda ops, a: ops.swap(a[:8], out=a[:8])
    yield (
        "own elements",
        lambda ops, a: ops.twice(np.ones(8, np.float32), out=np.lib.stride_tricks.as_strided(a, (8,), (0,))),
    )


OVERLAPPING = dict(overlapping())


@pytest.mark.parametrize("call", OVERLAPPING.values(), ids=OVERLAPPING)
def test_outputs_that_share_memory(ops: tc.Module, call: Callable[[tc.Module, Array], Any]) -> None:
    array = np.arange(24, dtype=np.float32)
    for _ in range(2):
        with pytest.raises(tc.ShapeError, match="share"):
            call(ops, array)
        np.testing.assert_array_equal(array, np.arange(24))


def test_neighbours_do_not_share_memory(ops: tc.Module) -> None:
    array = np.arange(24, dtype=np.float32)
    ops.twice(array[:8], out=array[8:16])
    ops.twice(array[0:16:2].copy(), out=array[1:16:2])
    ops.twice(array[16::2], out=array[17::2])
    np.testing.assert_array_equal(array[17::2], 2 * array[16::2])


def test_outputs_that_cannot_be_written(ops: tc.Module) -> None:
    given = DATA[0].copy()
    ops.twice(given, out=np.zeros(6, np.float32))
    for out in (
        frozen(given),
        mapped(given),
        given.tobytes(),
        memoryview(given.tobytes()).cast("f"),
        3.0,
        misaligned(given),
    ):
        with pytest.raises(tc.ShapeError):
            ops.twice(given, out=out)


REFUSED: dict[str, Callable[[], Any]] = {
    "byte order": lambda: DATA[0].astype(">f4"),
    "objects": lambda: DATA[0].astype(object),
    "records": lambda: np.zeros(6, [("x", "f4"), ("y", "f4")]),
    "recarray": lambda: np.zeros(6, [("x", "f4")]).view(np.recarray),
    "strings": lambda: np.array(["a", "b"]),
    "dates": lambda: np.zeros(3, "M8[s]"),
    "masked": lambda: np.ma.array(DATA[0], mask=DATA[0] > 3),
    "no dimensions": lambda: np.array(3, np.float32),
    "two dimensions": lambda: DATA,
    "another type": lambda: DATA[0].astype(np.float64),
    "complex": lambda: DATA[0].astype(np.complex64),
    "list": lambda: [1.0, 2.0],
    "tuple": lambda: (1.0, 2.0),
    "generator": lambda: (x for x in DATA[0]),
    "None": lambda: None,
    "text": lambda: "abc",
    "bytes": lambda: b"abcd",
    "class": lambda: np.ndarray,
    "number": lambda: 3,
    "NaN": lambda: float("nan"),
    "released": lambda: _released(),
}


def _released() -> memoryview:
    view = memoryview(DATA[0])
    view.release()
    return view


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_array_of_the_declared_type(ops: tc.Module, kind: str) -> None:
    with pytest.raises(tc.ShapeError, match=r"input A: expected .* but found"):
        ops.twice(REFUSED[kind]())
    with pytest.raises(tc.ShapeError):
        ops.twice(DATA[0], out=(REFUSED[kind](),)) if REFUSED[kind]() is not None else ops.twice(None)


def test_wrong_counts(ops: tc.Module) -> None:
    for arguments in ((), (DATA[0],) * 3):
        with pytest.raises(tc.ShapeError, match="expected 2 inputs"):
            ops.both(*arguments)
    for out in ((), (None,), (None,) * 3, {"Z": None}, DATA[0]):
        with pytest.raises(tc.ShapeError, match="out="):
            ops.both(DATA[0], DATA[0], out=out)
    for sizes in (
        3,
        [3],
        "N=3",
        {"N": "3"},
        {"N": 2.5},
        {"N": None},
        {"N": True},
        {"N": -1},
        {},
        {"N": 3, "Q": 3},
        {3: 3},
    ):
        with pytest.raises(tc.ShapeError):
            ops.twice.compile(sizes=sizes)


class Foreign:
    """An array of another library, which may lie about itself or raise; ``dlpack`` and ``device`` are what it gives."""

    def __init__(self, dlpack: Callable[..., Any], device: Callable[[], Any] = lambda: (1, 0)) -> None:
        self._dlpack, self._device = dlpack, device

    def __dlpack__(self, **options: Any) -> Any:
        return self._dlpack(**options)

    def __dlpack_device__(self) -> Any:
        return self._device()


def raising(error: type[Exception]) -> Callable[..., Any]:
    def call(**options: Any) -> Any:
        raise error("from the other library")

    return call


ERRORS = (RuntimeError, BufferError, AttributeError, MemoryError, RecursionError, StopIteration, TypeError, KeyError)


def test_arrays_of_other_libraries(ops: tc.Module) -> None:
    given = DATA[0].copy()
    for values in (given, frozen(given), misaligned(given), given[::-1]):
        np.testing.assert_array_equal(ops.twice(Foreign(values.__dlpack__)), 2 * values)
    out = np.zeros(6, np.float32)
    ops.twice(given, out=Foreign(out.__dlpack__))
    np.testing.assert_array_equal(out, 2 * given)
    for refused in (frozen(out), given):
        with pytest.raises(tc.ShapeError):
            ops.twice(given, out=Foreign(refused.__dlpack__))
    np.testing.assert_array_equal(given, DATA[0])


@pytest.mark.parametrize("error", ERRORS)
def test_other_libraries_that_raise(ops: tc.Module, error: type[Exception]) -> None:
    class Raising:
        def __getattr__(self, name: str) -> Any:
            raise error(name)

    for value in (Foreign(raising(error)), Foreign(DATA[0].__dlpack__, raising(error)), Raising()):
        with pytest.raises(tc.ShapeError, match="input A: expected"):
            ops.twice(value)
        with pytest.raises(tc.ShapeError, match="output O: expected"):
            ops.twice(DATA[0], out=value)


@pytest.mark.parametrize("device", [None, (1,), ("cpu", 0), (99, 0), (1 << 70, 0), 3, (None, None)])
def test_devices_that_are_none(ops: tc.Module, device: Any) -> None:
    with pytest.raises(tc.ShapeError, match="input A"):
        ops.twice(Foreign(DATA[0].__dlpack__, lambda: device))


@pytest.mark.parametrize("capsule", [None, 3, [1], "capsule", object()])
def test_capsules_that_are_none(ops: tc.Module, capsule: Any) -> None:
    with pytest.raises(tc.ShapeError, match="input A"):
        ops.twice(Foreign(lambda **options: capsule))


@pytest.mark.parametrize(
    "changed",
    [
        None,
        {},
        "x",
        {"shape": (-3,)},
        {"shape": (1 << 62,)},
        {"data": (0, False)},
        {"typestr": "zz"},
        {"typestr": "|O"},
    ],
)
def test_array_interfaces_that_lie(ops: tc.Module, changed: Any) -> None:
    class Interface:
        pass

    value: Any = Interface()
    whole = isinstance(changed, dict) and changed
    value.__array_interface__ = DATA[0].__array_interface__ | changed if whole else changed
    with pytest.raises(tc.ShapeError, match="input A"):
        ops.twice(value)


def test_subclasses_that_lie_about_their_layout(ops: tc.Module) -> None:
    class Longer(np.ndarray):
        @property
        def shape(self) -> tuple[int, ...]:  # type: ignore[override]
            return (1 << 20,)

    class Elsewhere(np.ndarray):
        @property
        def ctypes(self) -> Any:
            raise ValueError("nowhere")

    for cls in (Longer, Elsewhere):
        np.testing.assert_array_equal(ops.twice(DATA[0].view(cls)), 2 * DATA[0])


def test_torch_tensors(ops: tc.Module) -> None:
    torch = pytest.importorskip("torch")
    t = torch.arange(8.0)
    for given in (t, torch.nn.Parameter(t, requires_grad=False), t.flip(0), t.to(torch.complex64).conj().real):
        result = ops.twice(given)
        assert isinstance(result, torch.Tensor) and not result.requires_grad and torch.equal(result, 2 * given.detach())
    odd = torch.frombuffer(bytearray(b"\0" + t.numpy().tobytes()), dtype=torch.float32, offset=1)
    for _ in range(2):
        assert torch.equal(ops.twice(odd), 2 * t) and torch.equal(ops.twice(t), 2 * t)
        assert torch.equal(ops.twice.reference(odd), 2 * t)
    with torch.inference_mode():
        assert torch.equal(ops.twice(t), 2 * t)
    for out in (t, t.view(8), t.view(2, 4).flatten(), t.numpy()):
        with pytest.raises(tc.ShapeError, match="share"):
            ops.twice(t, out=out)
    assert torch.equal(t, torch.arange(8.0))


def test_torch_tensors_without_plain_memory(ops: tc.Module) -> None:
    torch = pytest.importorskip("torch")
    t = torch.arange(8.0)
    freed = torch.ones(8)
    ops.twice(freed)
    freed.untyped_storage().resize_(0)
    refused = {
        "sparse": t.to_sparse(),
        "compressed": torch.ones(8, 1).to_sparse_csr(),
        "mkldnn": t.to_mkldnn() if torch.backends.mkldnn.is_available() else t.to_sparse(),
        "conjugated": t.to(torch.complex64).conj(),
        "negated": t.to(torch.complex64).conj().imag,
        "nested": torch.nested.nested_tensor([t, t]),
        "float8": t.to(torch.float8_e4m3fn),
        "freed": freed,
        "no dimensions": torch.tensor(3.0),
        "expanded": torch.ones(1, 1).expand(8, 1),
    }
    assert ops.twice(t.to("meta")).is_meta
    with pytest.raises(tc.ShapeError):
        ops.twice(t, out=t.to("meta"))
    for name, value in refused.items():
        with pytest.raises(tc.ShapeError):
            ops.twice(value)
        with pytest.raises(tc.ShapeError):
            ops.twice(t, out=value)
        assert torch.equal(t, torch.arange(8.0)), name
