"""Arrays of the caller as kernels see them: addresses, shapes and strides, whichever library made them; no copies.

NumPy arrays and torch tensors are read directly.  Whatever else speaks DLPack, NumPy's array interface or the buffer
protocol is first viewed as a NumPy array.  Python numbers stand for 0-D arrays of the declared type.
"""

from __future__ import annotations

import functools
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcomp.errors import ShapeError
from tcomp.evaluation import numpy_dtype
from tcomp.operators import DTYPES, DType

NumpyArray = np.ndarray[Any, np.dtype[Any]]

ALIGNMENT = 64
"""Bytes; new arrays of a cache line or more start at a multiple of this."""


@dataclass(frozen=True, slots=True)
class View:
    """What a kernel is told about an array: ``strides`` in elements, ``address`` of the element with index zero."""

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int
    writable: bool


class ArrayKind(ABC):
    """A library whose arrays kernels read and write in place."""

    @abstractmethod
    def layout(self, array: Any) -> Hashable:
        """Everything about an array but its address and content: a kernel that fits one array fits all with an equal
        layout."""

    @abstractmethod
    def address(self, array: Any) -> int:
        """Where the element with index zero is."""

    @abstractmethod
    def view(self, array: Any) -> View:
        """The array as kernels see it.  Raises ArrayError if they cannot read it."""

    @abstractmethod
    def to_numpy(self, array: Any) -> NumpyArray:
        """The same memory as a NumPy array."""

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: DType) -> Any:
        """A new array in C order with any content."""

    @abstractmethod
    def from_numpy(self, array: NumpyArray) -> Any:
        """The same memory as an array of this library."""


class ArrayError(Exception):
    """An array cannot be used; says what was found, and how to mend it."""

    def __init__(self, found: str, hint: str | None = None) -> None:
        super().__init__(found)
        self.found = found
        self.hint = hint


class NumpyKind(ArrayKind):
    """NumPy arrays and their subclasses, but for masked arrays."""

    def layout(self, array: NumpyArray) -> Hashable:
        return array.dtype, array.shape, array.strides

    def address(self, array: NumpyArray) -> int:
        return array.ctypes.data

    def view(self, array: NumpyArray) -> View:
        dtype, size = _dtype_of(array.dtype), array.itemsize
        steps = [stride for stride, extent in zip(array.strides, array.shape, strict=True) if extent > 1]
        if array.ctypes.data % size or any(step % size for step in steps):
            raise ArrayError("an array whose elements are not aligned to their size", "pass a copy: array.copy()")
        strides = tuple(stride // size for stride in array.strides)
        return View(dtype, array.shape, strides, array.ctypes.data, array.flags.writeable)

    def to_numpy(self, array: NumpyArray) -> NumpyArray:
        return array.view(np.ndarray)

    def empty(self, shape: tuple[int, ...], dtype: DType) -> NumpyArray:
        element = numpy_dtype(dtype)
        count = math.prod(shape) * element.itemsize
        if count < ALIGNMENT:
            return np.empty(shape, element)
        memory = np.empty(count + ALIGNMENT, np.uint8)
        start = -memory.ctypes.data % ALIGNMENT
        return memory[start : start + count].view(element).reshape(shape)

    def from_numpy(self, array: NumpyArray) -> NumpyArray:
        return array


class TorchKind(ArrayKind):
    """torch tensors on the CPU.  Gradients are not recorded: a tensor that requires one is read like any other."""

    def __init__(self) -> None:
        import torch  # noqa: PLC0415  (loaded only once a tensor was passed in)

        self._torch = torch
        self._dtypes: dict[DType, Any] = {
            t: getattr(torch, name) for name, t in DTYPES.items() if isinstance(getattr(torch, name, None), torch.dtype)
        }
        self._names = {known: t for t, known in self._dtypes.items()}

    def layout(self, array: Any) -> Hashable:
        if array.layout is not self._torch.strided:
            return None
        return array.dtype, array.shape, array.stride(), array.device, array.is_neg()

    def address(self, array: Any) -> int:
        try:
            address: int = array.data_ptr()
        except RuntimeError:
            raise ShapeError("a tensor has no memory of its own, as inside torch.vmap; pass it from outside") from None
        return address

    def view(self, array: Any) -> View:
        if array.device.type != "cpu":
            raise ArrayError(f"a tensor on device {array.device}", "move it with .cpu(), or choose another target")
        if array.layout is not self._torch.strided:
            raise ArrayError(f"a tensor with layout {array.layout}", "pass its .to_dense()")
        if array.is_neg():
            raise ArrayError("a tensor that torch negates when it is read", "pass its .resolve_neg()")
        if array.dtype not in self._names:
            raise ArrayError(str(array.dtype).removeprefix("torch."))
        dtype, address = self._names[array.dtype], self.address(array)
        if address % dtype.itemsize:
            raise ArrayError("a tensor whose elements are not aligned to their size", "pass its .clone()")
        return View(dtype, tuple(array.shape), tuple(array.stride()), address, True)

    def to_numpy(self, array: Any) -> NumpyArray:
        detached = array.detach()
        if detached.dtype is self._torch.bfloat16:
            bits: NumpyArray = detached.view(self._torch.int16).numpy()
            return bits.view(numpy_dtype(DTYPES["bfloat16"]))
        plain: NumpyArray = detached.numpy()
        return plain

    def empty(self, shape: tuple[int, ...], dtype: DType) -> Any:
        return self._torch.empty(shape, dtype=self._dtypes[dtype])

    def from_numpy(self, array: NumpyArray) -> Any:
        if array.dtype.name == "bfloat16":
            return self._torch.from_numpy(array.view(np.int16)).view(self._torch.bfloat16)
        return self._torch.from_numpy(array)


NUMPY = NumpyKind()


class _Kinds(dict[type, ArrayKind | None]):
    """How to read instances of a class in place; None where they must first be viewed as NumPy arrays."""

    def __missing__(self, cls: type) -> ArrayKind | None:
        kind: ArrayKind | None = None
        if issubclass(cls, np.ndarray):
            kind = None if hasattr(cls, "mask") else NUMPY
        elif _is_tensor(cls) and not _forwards(cls):
            kind = _torch_kind()
        self[cls] = kind
        return kind


def _is_tensor(cls: type) -> bool:
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    return isinstance(tensor, type) and issubclass(cls, tensor)


def _forwards(cls: type) -> bool:
    """Whether tensors of a class only record or forward what is done to them, and have no memory of their own."""
    plain: Any = sys.modules["torch"]
    return getattr(cls, "__torch_dispatch__", None) is not plain.Tensor.__torch_dispatch__


@functools.cache
def _torch_kind() -> TorchKind:
    return TorchKind()


KINDS = _Kinds()


def layout_of(value: Any) -> Hashable:
    """The layout of an array that kernels read in place, an integer itself, None for everything else."""
    kind = KINDS[type(value)]
    if kind is not None:
        return kind.layout(value)
    return value if type(value) is int else None


def in_place(value: Any) -> Any:
    """An array that kernels can read: the argument itself, or a NumPy view of it.  Raises ArrayError."""
    if KINDS[type(value)] is not None:
        return value
    if isinstance(value, np.ndarray):
        raise ArrayError("a masked array", "pass its .filled(), or its .data")
    if _is_tensor(type(value)):
        raise ArrayError(f"a {type(value).__name__}, which may have no memory of its own", "pass a torch.Tensor")
    if isinstance(value, np.generic):
        return np.asarray(value)
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return _from_dlpack(value)
    if hasattr(value, "__array_interface__"):
        return _viewed(np.asarray, value)
    if isinstance(value, (bytes, str)) or value is None:
        raise ArrayError(type(value).__name__)
    return _viewed(_from_buffer, value)


_NOT_AN_ARRAY = "pass a NumPy array, a torch tensor or anything with DLPack; numpy.asarray makes one of a list"


def _from_buffer(value: Any) -> NumpyArray:
    return np.asarray(memoryview(value))


def _viewed(view: Any, value: Any) -> NumpyArray:
    """Foreign code runs here and may raise anything."""
    try:
        array: NumpyArray = view(value)
    except Exception as error:  # noqa: BLE001
        reason = "" if isinstance(error, TypeError) else f" ({error})"
        raise ArrayError(f"{type(value).__name__}{reason}", _NOT_AN_ARRAY) from None
    return array


_CPU_DEVICES = (1, 3)
"""DLPack's numbers for main memory, and for main memory that CUDA has pinned."""

_DEVICE_NAMES = {2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 13: "cuda (managed)", 14: "oneapi"}


def _from_dlpack(value: Any) -> NumpyArray:
    try:
        device, number = value.__dlpack_device__()
    except Exception as error:  # noqa: BLE001  (foreign code)
        raise ArrayError(f"{type(value).__name__} ({error})", _NOT_AN_ARRAY) from None
    if int(device) not in _CPU_DEVICES:
        name = _DEVICE_NAMES.get(int(device), f"DLPack device {int(device)}")
        raise ArrayError(f"an array on device {name}:{number}", "copy it to main memory, or choose another target")
    return _viewed(np.from_dlpack, value)


def like(example: Any, array: NumpyArray) -> Any:
    """A NumPy array as the kind of array that ``example`` is, without a copy; NumPy where that library takes none."""
    kind = KINDS[type(example)]
    if kind is not None:
        return kind.from_numpy(array)
    library = None
    if hasattr(example, "__dlpack__"):
        if hasattr(example, "__array_namespace__"):
            library = example.__array_namespace__()
        else:
            library = sys.modules.get(type(example).__module__.partition(".")[0])
    if not hasattr(library, "from_dlpack"):
        return array
    return _viewed(library.from_dlpack, array)  # type: ignore[union-attr]


def _dtype_of(dtype: np.dtype[Any]) -> DType:
    known = DTYPES.get(dtype.name)
    if known is None:
        raise ArrayError(dtype.name, "tcomp has no such element type")
    if not dtype.isnative:
        raise ArrayError(f"{dtype.name} in foreign byte order", "pass array.astype(array.dtype.newbyteorder('='))")
    return known
