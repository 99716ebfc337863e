"""Arrays of callers as kernels see them, and the errors for those that kernels cannot read."""

from __future__ import annotations

import array
import ctypes
import sys
from typing import ClassVar

import numpy as np
import pytest

from tcomp.arrays.arrays import KINDS, fetched, in_place, is_frozen, layout_of, like
from tcomp.arrays.devices import MAIN
from tcomp.arrays.kinds import NUMPY, ArrayError, View
from tcomp.arrays.pieces import ALIGNMENT
from tcomp.errors import ShapeError, SourceText, Span
from tcomp.grammar.tree.function import Tensor
from tcomp.model.evaluation import is_of_ml_dtypes
from tcomp.runtime.arguments import byte_range, constant, read_input, read_output, scalar, share_memory
from tcomp.values.operators import BOOL, DTYPES, FLOAT16, FLOAT32, FLOAT64, INT8, INT32, UINT8, DType

SOURCE = SourceText("def f(float(M,N) A) -> (B) { }")


def tensor(dtype: DType = FLOAT32, rank: int = 2, role: str = "input") -> Tensor:
    return Tensor("A", dtype, rank, None, role, Span(17, 18))


def view_of(value: object, dtype: DType = FLOAT32, rank: int = 2) -> View:
    return read_input(value, tensor(dtype, rank), SOURCE)[1]


def message_of(value: object, dtype: DType = FLOAT32, rank: int = 2) -> str:
    with pytest.raises(ShapeError) as caught:
        read_input(value, tensor(dtype, rank), SOURCE)
    assert caught.value.line == 1 and caught.value.column == 18
    return str(caught.value)


def test_strides_are_read_as_they_lie() -> None:
    a = np.zeros((6, 8), np.float32)
    cases = {
        "C order": (a, (8, 1), 0),
        "transposed": (a.T, (1, 8), 0),
        "reversed": (a[::-1, ::2], (-8, 2), 5 * 8 * 4),
        "broadcast": (np.broadcast_to(a[:1], (6, 8)), (0, 1), 0),
        "slice": (a[1:4, 3:], (8, 1), 11 * 4),
    }
    for name, (value, strides, offset) in cases.items():
        view = view_of(value)
        assert (view.shape, view.strides, view.address) == (value.shape, strides, a.ctypes.data + offset), name


@pytest.mark.parametrize("name", [name for name, t in DTYPES.items() if not is_of_ml_dtypes(t)])
def test_every_element_type(name: str) -> None:
    assert view_of(np.zeros((2, 3), name), DTYPES[name]).dtype is DTYPES[name]


@pytest.mark.parametrize("name", [name for name, t in DTYPES.items() if is_of_ml_dtypes(t)])
def test_types_of_ml_dtypes(name: str) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert view_of(np.zeros((2, 3), getattr(ml_dtypes, name)), DTYPES[name]).dtype is DTYPES[name]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.zeros((2, 2), np.int64), "expected type float32 but found int64"),
        (np.zeros((2, 2), ">f4"), "foreign byte order"),
        (np.zeros((2, 2), object), "found object"),
        (np.zeros((2, 2), np.complex64), "found complex64"),
        (np.zeros((2, 2), [("x", "f4")]), "found void32"),
        (np.zeros((2, 2), "U3"), "found str"),
        (np.zeros(3, np.float32), "expected a tensor with 2 dimensions but found a tensor with 1 dimension"),
        (np.ma.zeros((2, 2), np.float32), "masked array"),
        ([[1.0, 2.0]], "found list"),
        (None, "found NoneType"),
        ("text", "found str"),
        (b"bytes", "found bytes"),
        (3.5, "expected a tensor with 2 dimensions but found 3.5"),
    ],
)
def test_what_kernels_cannot_read(value: object, expected: str) -> None:
    assert expected in message_of(value)


@pytest.mark.parametrize(
    "value",
    [
        np.frombuffer(b"\0" + np.arange(4, dtype=np.float32).tobytes(), np.uint8)[1:].view("f4").reshape(2, 2),
        np.array([(0, 0), (0, 1), (0, 2), (0, 3)], [("x", "u1"), ("y", "f4")])["y"].reshape(2, 2),
    ],
)
def test_misaligned_inputs_are_copied_and_misaligned_outputs_refused(value: np.ndarray) -> None:
    array, view = read_input(value, tensor(), SOURCE)
    assert array.tolist() == [[0, 1], [2, 3]] and view.address == array.ctypes.data and view.address % 4 == 0
    with pytest.raises(ShapeError, match="not aligned"):
        read_output(value, tensor(role="output"), SOURCE)


def test_type_error_says_how_to_convert() -> None:
    assert "help: convert it: A.astype('float32')" in message_of(np.zeros((2, 2)))
    assert "help: convert it: A.astype(ml_dtypes.bfloat16)" in message_of(np.zeros((2, 2)), DTYPES["bfloat16"])
    with pytest.raises(ShapeError, match="help: allocate A as an array of float32") as caught:
        read_output(np.zeros((2, 2)), tensor(role="output"), SOURCE)
    assert "convert it" not in str(caught.value)


def test_strides_of_dimensions_without_steps_do_not_matter() -> None:
    odd = np.lib.stride_tricks.as_strided(np.zeros(8, np.float32), (1, 4), (7, 4))
    assert view_of(odd).shape == (1, 4)
    assert view_of(np.zeros((0, 4), np.float32)).shape == (0, 4)


class WithInterface:
    def __init__(self, values: np.ndarray) -> None:
        self.__array_interface__ = values.__array_interface__
        self._values = values


class WithDlpack:
    """As small as a DLPack exporter can be: no other way to its memory."""

    def __init__(self, values: np.ndarray, device: tuple[int, int] = (1, 0)) -> None:
        self._values = values
        self._device = device

    def __dlpack__(self, **options: object) -> object:
        return self._values.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device


class Broken(WithDlpack):
    def __dlpack__(self, **options: object) -> object:
        raise ZeroDivisionError("broken")


def test_foreign_arrays_are_viewed_without_a_copy() -> None:
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    for foreign in (WithInterface(a), WithDlpack(a), memoryview(a)):
        assert view_of(foreign).address == a.ctypes.data, type(foreign)
    assert view_of(array.array("f", [1, 2]), rank=1).shape == (2,)
    assert view_of((ctypes.c_float * 3)(), rank=1).shape == (3,)


def test_dlpack_errors_are_shape_errors() -> None:
    a = np.zeros((2, 2), np.float32)
    assert "device cuda:1" in message_of(WithDlpack(a, (2, 1)))
    assert "device DLPack device 99:0" in message_of(WithDlpack(a, (99, 0)))
    assert "Broken (broken)" in message_of(Broken(a))


def test_results_take_the_kind_of_the_example() -> None:
    a = np.zeros(3, np.float32)
    assert like(a, a, MAIN) is a
    assert like(None, a, MAIN) is a
    assert like(WithDlpack(a), a, MAIN) is a
    torch = pytest.importorskip("torch")
    result = like(torch.zeros(1), a, MAIN)
    assert isinstance(result, torch.Tensor) and result.data_ptr() == a.ctypes.data


def test_contents_are_overwritten_in_place() -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    a = np.zeros((4, 3), np.float32)
    NUMPY.assign(a[::-2], values)
    assert a[3].tolist() == [0, 1, 2] and a[1].tolist() == [3, 4, 5] and not a[::2].any()
    torch = pytest.importorskip("torch")
    kind = KINDS[torch.Tensor]
    assert kind is not None
    t = torch.zeros((3, 4), requires_grad=True)
    kind.assign(t.T[::2], values)
    assert t[:, 0].tolist() == [0, 1, 2] and t[:, 2].tolist() == [3, 4, 5] and fetched(t)[0, 2] == 3


def test_cuda_arrays_need_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    class WithCudaInterface:
        __cuda_array_interface__: ClassVar = {"data": (64, True), "shape": (2, 2), "typestr": "<f4", "version": 3}

    monkeypatch.setitem(sys.modules, "cupy", None)
    message = message_of(WithCudaInterface())
    assert "an array in the memory of a CUDA device" in message and "the target cuda needs CuPy" in message
    assert is_frozen(WithCudaInterface()) and not is_frozen(np.zeros(3))


def test_a_library_with_the_array_api_gets_its_own_arrays_back() -> None:
    class Library:
        @staticmethod
        def from_dlpack(values: np.ndarray) -> str:
            return f"own array of shape {values.shape}"

    class Own(WithDlpack):
        def __array_namespace__(self) -> type[Library]:
            return Library

    assert like(Own(np.zeros(1)), np.zeros((2, 3)), MAIN) == "own array of shape (2, 3)"


def test_new_arrays_are_aligned() -> None:
    for shape in [(), (3,), (16,), (5, 7, 11), (0, 4)]:
        made = NUMPY.empty(shape, FLOAT32)
        assert made.shape == shape and made.dtype == np.float32 and made.flags.c_contiguous and made.flags.writeable
        if made.nbytes >= ALIGNMENT:
            assert made.ctypes.data % ALIGNMENT == 0


def test_layouts_tell_apart_what_kernels_tell_apart() -> None:
    a = np.zeros((4, 4), np.float32)
    same = [a, np.ones((4, 4), np.float32), a.view(np.matrix)]
    assert len({layout_of(x) for x in same}) == 1
    different = [a, a.T, a[::-1], a[:2], a.astype(np.float64), a.astype(">f4"), a.reshape(2, 8), 4]
    assert len({layout_of(x) for x in different}) == len(different)
    assert all(layout_of(x) is None for x in (1.5, True, None, [1], np.float32(1), np.ma.zeros(3)))


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch")
    t = torch.zeros((4, 6))
    assert view_of(t.T[1:]).address == t.data_ptr() + 4
    assert view_of(t.T[1:]).strides == (1, 6)
    assert view_of(torch.nn.Parameter(t)).address == t.data_ptr()
    assert view_of(t.to(torch.bfloat16), DTYPES["bfloat16"]).dtype.name == "bfloat16"
    assert view_of(torch.ones(2, 2, dtype=torch.bool), BOOL).dtype is BOOL
    assert "found float64" in message_of(t.double())
    assert "help: convert it: A.to(torch.float32)" in message_of(t.double())
    assert "device meta" in message_of(torch.zeros((2, 2), device="meta"))
    assert "sparse" in message_of(t.to_sparse())
    assert "found complex64" in message_of(torch.zeros((2, 2), dtype=torch.complex64))
    negated = torch.zeros((2, 2), dtype=torch.complex64).conj().imag
    assert negated.is_neg() and "resolve_neg" in message_of(negated)
    assert layout_of(t) != layout_of(t.T) and layout_of(t) == layout_of(torch.ones((4, 6)))
    assert layout_of(t) != layout_of(np.zeros((4, 6), np.float32))


def test_torch_bfloat16_goes_through_numpy() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("ml_dtypes")
    t = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    kind = KINDS[torch.Tensor]
    assert kind is not None
    values = kind.to_numpy(t)
    assert values.dtype.name == "bfloat16" and values.tolist() == [1.5, -2.0] and values.ctypes.data == t.data_ptr()
    assert kind.from_numpy(values).data_ptr() == t.data_ptr()


def test_tensors_that_are_not_in_memory_are_refused() -> None:
    torch = pytest.importorskip("torch")
    fake = pytest.importorskip("torch._subclasses.fake_tensor")
    with fake.FakeTensorMode():
        value = torch.zeros((2, 2))
    assert KINDS[type(value)] is None
    assert "FakeTensor, which may have no memory" in message_of(value)
    with pytest.raises(ShapeError, match="no memory of its own"):
        torch.vmap(lambda x: read_input(x, tensor(rank=1), SOURCE))(torch.zeros((2, 2)))


@pytest.mark.parametrize(
    ("value", "dtype", "stored"),
    [
        (3, INT8, 3),
        (-128, INT8, -128),
        (0.1, FLOAT32, np.float32(0.1)),
        (2, FLOAT32, 2.0),
        (1 << 24, FLOAT32, float(1 << 24)),
        (float("inf"), FLOAT16, float("inf")),
        (True, BOOL, True),
        (255, UINT8, 255),
    ],
)
def test_numbers_that_fit(value: float, dtype: DType, stored: float) -> None:
    made = scalar(value, dtype)
    assert made.shape == () and made.dtype.name == dtype.name and made[()] == stored
    assert view_of(value, dtype, rank=0).shape == ()


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (128, INT8), (-1, UINT8), ((1 << 24) + 1, FLOAT32), (1 << 2000, FLOAT64), (1.0, INT32), (1e300, FLOAT32),
        (True, INT32), (1, BOOL), (70000, FLOAT16), (1e6, FLOAT16),
    ],
)  # fmt: skip
def test_numbers_that_do_not_fit(value: float, dtype: DType) -> None:
    with pytest.raises(ArrayError):
        scalar(value, dtype)
    assert f"expected type {dtype}" in message_of(value, dtype, rank=0)


def test_numpy_scalars_are_numbers_and_arrays_have_their_own_type() -> None:
    assert view_of(np.float32(2), FLOAT32, rank=0).dtype is FLOAT32
    assert view_of(np.float64(2), FLOAT32, rank=0).dtype is FLOAT32
    assert "found float64" in message_of(np.asarray(2.0), FLOAT32, rank=0)


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3), np.asarray(3)])
def test_constants(value: object) -> None:
    found = constant(value, tensor(INT32, 0, "const"), SOURCE)
    assert found == 3 and type(found) is int


@pytest.mark.parametrize("value", [3.0, True, "3", None, np.float32(3), np.zeros(1, int), 1 << 31, np.True_])
def test_what_is_no_constant(value: object) -> None:
    with pytest.raises(ShapeError):
        constant(value, tensor(INT32, 0, "const"), SOURCE)


def test_outputs_must_be_writable_and_of_their_own_memory() -> None:
    a = np.zeros((4, 4), np.float32)
    read_output(a[::-1, ::2], tensor(role="output"), SOURCE)
    frozen = a.copy()
    frozen.flags.writeable = False
    bad = {
        "read-only": frozen,
        "share memory": np.broadcast_to(a[:1], (4, 4)).copy(order="K"),
        "number 3.0": 3.0,
    }
    bad["share memory"] = np.lib.stride_tricks.as_strided(a, (4, 4), (4, 4))
    for text, value in bad.items():
        with pytest.raises(ShapeError, match=text):
            read_output(value, tensor(role="output"), SOURCE)


def test_overlap_is_decided_by_bytes() -> None:
    a = np.zeros((8, 8), np.float32)
    pairs = [
        (a, a, True),
        (a[:4], a[4:], False),
        (a[:5], a[4:], True),
        (a[:, ::2], a[:, 1::2], False),
        (a[::-1], a[:1], True),
        (a[:, :4], a[:, 4:], False),
        (a[:0], a[:0], False),
        (a.T, a[3:4], True),
    ]
    for one, other, shared in pairs:
        assert share_memory(view_of(one), view_of(other)) is shared
        assert share_memory(view_of(other), view_of(one)) is shared


def test_byte_range_covers_reversed_arrays() -> None:
    a = np.zeros((4, 8), np.float32)
    whole = (a.ctypes.data, a.ctypes.data + a.nbytes)
    assert byte_range(view_of(a)) == whole
    assert byte_range(view_of(a[::-1, ::-1])) == whole
    low, high = byte_range(view_of(a[:0]))
    assert low == high


def test_in_place_returns_native_arrays_themselves() -> None:
    a = np.zeros(3)
    assert in_place(a) is a
