"""The libraries whose arrays kernels read and write in place: NumPy, torch and CuPy."""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from operator import methodcaller
from typing import Any

import numpy as np

from tcomp.arrays.addresses import data_address
from tcomp.arrays.devices import MAIN, Memory, Place, cupy_module
from tcomp.arrays.matching import Matcher, TensorSigns, device_matcher, tensor_matcher, tensor_signs
from tcomp.arrays.pieces import NumpyPieces, TorchPieces
from tcomp.errors import ShapeError
from tcomp.model.evaluation import is_of_ml_dtypes, numpy_dtype
from tcomp.values.operators import DTYPES, DType

NumpyArray = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True)
class View:
    """What a kernel is told about an array: ``strides`` in elements, ``address`` of the element with index zero."""

    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int
    writable: bool
    place: Place = MAIN


class ArrayError(Exception):
    """An array cannot be used; says what was found, how to mend it, and what was expected if not another type."""

    def __init__(self, found: str, hint: str | None = None, expected: str | None = None) -> None:
        super().__init__(found)
        self.found = found
        self.hint = hint
        self.expected = expected


class MisalignedError(ArrayError):
    """An array has elements at addresses that are no multiples of their size; a copy of it has not."""


class NoMemoryOfItsOwnError(ShapeError):
    """An array stands for others, as inside ``torch.vmap``."""


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
        """The array as kernels see it.  Raises ArrayError if they cannot read it, MisalignedError if only a copy."""

    @abstractmethod
    def copy(self, array: Any) -> Any:
        """The same content in new memory."""

    @abstractmethod
    def to_numpy(self, array: Any) -> NumpyArray:
        """The content as a NumPy array: of the same memory where that is main memory."""

    @abstractmethod
    def assign(self, array: Any, values: NumpyArray) -> None:
        """Overwrite an array with values of its shape and type."""

    @abstractmethod
    def maker(self, shape: tuple[int, ...], dtype: DType, place: Place) -> Callable[[], Any]:
        """What makes new arrays in C order with any content; it raises as the library does when no memory is left."""

    def empty(self, shape: tuple[int, ...], dtype: DType, place: Place = MAIN) -> Any:
        """A new array in C order with any content."""
        return self.maker(shape, dtype, place)()

    @abstractmethod
    def from_numpy(self, array: NumpyArray, place: Place = MAIN) -> Any:
        """The same content as an array of this library: of the same memory where ``place`` is main memory."""

    def records(self, array: Any) -> bool:
        """Whether the library records what is computed from an array, to find gradients of it."""
        return False

    def matcher(self, arguments: Sequence[Any], masks: Sequence[int], *, recorded: bool | None) -> Matcher | None:
        """A fast test whether arguments are like these, where there is one; see ``tensor_matcher``."""
        return None

    def signs(self, arrays: Sequence[Any], *, recorded: bool | None) -> TensorSigns | None:
        """The same as facts for code that is not Python."""
        return None

    @property
    def address_of_new(self) -> Callable[[Any], int]:
        """What gives the address of an array that this library has just made, which needs no tests."""
        return self.address

    note_change: Callable[[Any], None] | None = None
    """Tells the library that an array was written, if it wants to know."""

    def stream_at(self, place: Place) -> Callable[[], int]:
        """What gives what orders this library's work on a device: the number of its current CUDA stream, 0 for the
        default."""
        return int

    @abstractmethod
    def conversion(self, dtype: DType) -> str:
        """The method call that converts an array to an element type."""

    @abstractmethod
    def transfer(self, name: str, place: Place) -> str:
        """The expression that copies the array ``name`` to another place."""


class NumpyKind(ArrayKind):
    """NumPy arrays and their subclasses, but for masked arrays."""

    def __init__(self) -> None:
        self._pieces = NumpyPieces()

    def layout(self, array: NumpyArray) -> Hashable:
        return array.dtype, array.shape, array.strides

    def address(self, array: NumpyArray) -> int:
        return data_address(array)

    def view(self, array: NumpyArray) -> View:
        dtype, address = _dtype_of(array.dtype), data_address(array)
        strides = _element_strides(array, address, "array.copy()")
        return View(dtype, array.shape, strides, address, array.flags.writeable)

    def copy(self, array: NumpyArray) -> NumpyArray:
        return array.copy()

    def to_numpy(self, array: NumpyArray) -> NumpyArray:
        return array.view(np.ndarray)

    def assign(self, array: NumpyArray, values: NumpyArray) -> None:
        array.view(np.ndarray)[...] = values

    def maker(self, shape: tuple[int, ...], dtype: DType, place: Place) -> Callable[[], NumpyArray]:
        return self._pieces.maker(shape, numpy_dtype(dtype))

    def from_numpy(self, array: NumpyArray, place: Place = MAIN) -> NumpyArray:
        return array

    def conversion(self, dtype: DType) -> str:
        return _conversion(dtype)

    def transfer(self, name: str, place: Place) -> str:
        return f"cupy.asarray({name})"


class TorchKind(ArrayKind):
    """torch tensors in main memory and on CUDA devices."""

    def __init__(self) -> None:
        import torch  # noqa: PLC0415  (loaded only once a tensor was passed in)

        self._torch = torch
        self._dtypes: dict[DType, Any] = {
            t: getattr(torch, name) for name, t in DTYPES.items() if isinstance(getattr(torch, name, None), torch.dtype)
        }
        self._names = {known: t for t, known in self._dtypes.items()}
        self._raw_stream = _torch_stream(torch)
        self._classes = {torch.Tensor, torch.nn.Parameter}
        self._pieces: TorchPieces | None = None
        with suppress(AttributeError):
            # A third of the time of torch.empty, and no default device changes it.
            self._pieces = TorchPieces(torch)
        self._is_transformed = torch._C._are_functorch_transforms_active
        self._modes = torch._C._len_torch_dispatch_stack
        self._tracing = torch._C._get_tracing_state
        self._forward_mode: Any = torch.autograd.forward_ad

    def layout(self, array: Any) -> Hashable:
        if type(array) not in self._classes or array.layout is not self._torch.strided or array.is_nested:
            return None
        if self.records(array) or self._is_transformed() or self._forward_mode._current_level >= 0:
            return None
        if self._modes() or self._tracing() is not None:
            return None
        return array.dtype, array.shape, array.stride(), array.device, array.is_neg()

    @property
    def address_of_new(self) -> Callable[[Any], int]:
        return methodcaller("data_ptr")

    def address(self, array: Any) -> int:
        try:
            address: int = array.data_ptr()
        except RuntimeError:
            raise NoMemoryOfItsOwnError(
                "a tensor has no memory of its own, as inside torch.vmap; pass it from outside"
            ) from None
        if not address and array.numel():
            raise ShapeError("the memory of a tensor has been given back, say by untyped_storage().resize_(0)")
        return address

    def view(self, array: Any) -> View:
        if array.device.type not in ("cpu", "cuda"):
            raise ArrayError(f"a tensor on device {array.device}", "move it with .cpu() or .cuda()")
        if array.layout is not self._torch.strided:
            raise ArrayError(f"a tensor with layout {array.layout}", "pass its .to_dense()")
        if array.is_nested:
            raise ArrayError("a nested tensor", "pass the tensors in it one by one, or its .to_padded_tensor(0.0)")
        if array.is_neg():
            raise ArrayError("a tensor that torch negates when it is read", "pass its .resolve_neg()")
        if array.dtype not in self._names:
            raise ArrayError(str(array.dtype).removeprefix("torch."))
        dtype, address = self._names[array.dtype], self.address(array)
        if address % dtype.itemsize:
            raise MisalignedError("a tensor whose elements are not aligned to their size", "pass its .clone()")
        place = MAIN if array.device.type == "cpu" else Place(Memory.CUDA, array.device.index)
        return View(dtype, tuple(array.shape), tuple(array.stride()), address, True, place)

    def copy(self, array: Any) -> Any:
        return array.detach().clone()

    def to_numpy(self, array: Any) -> NumpyArray:
        detached = array.detach().cpu()
        dtype = self._names.get(detached.dtype)
        if dtype is not None and is_of_ml_dtypes(dtype):
            bits: NumpyArray = detached.view(getattr(self._torch, f"int{dtype.bits}")).numpy()
            return bits.view(numpy_dtype(dtype))
        plain: NumpyArray = detached.numpy()
        return plain

    def assign(self, array: Any, values: NumpyArray) -> None:
        array.detach().copy_(self.from_numpy(values))

    def maker(self, shape: tuple[int, ...], dtype: DType, place: Place) -> Callable[[], Any]:
        if place.memory is Memory.MAIN and self._pieces is not None:
            return self._pieces.maker(shape, self._dtypes[dtype])
        device = self._torch.device("cpu" if place.memory is Memory.MAIN else str(place))
        return functools.partial(self._torch.empty, shape, dtype=self._dtypes[dtype], device=device)

    def from_numpy(self, array: NumpyArray, place: Place = MAIN) -> Any:
        dtype = DTYPES.get(array.dtype.name)
        if dtype is not None and is_of_ml_dtypes(dtype):
            tensor = self._torch.from_numpy(array.view(f"int{dtype.bits}")).view(self._dtypes[dtype])
        else:
            tensor = self._torch.from_numpy(array)
        return tensor if place.memory is Memory.MAIN else tensor.to(str(place))

    def records(self, array: Any) -> bool:
        return bool(array.requires_grad) and self._torch.is_grad_enabled()

    def matcher(self, arguments: Sequence[Any], masks: Sequence[int], *, recorded: bool | None) -> Matcher | None:
        return tensor_matcher(self._torch, arguments, masks, recorded=recorded)

    def signs(self, arrays: Sequence[Any], *, recorded: bool | None) -> TensorSigns | None:
        return tensor_signs(self._torch, arrays, recorded=recorded)

    def note_change(self, array: Any) -> None:
        """So that a backward pass that has saved the tensor notices."""
        if not array.is_inference():
            self._torch.autograd.graph.increment_version(array)

    def stream_at(self, place: Place) -> Callable[[], int]:
        return functools.partial(self._raw_stream, place.device)

    def conversion(self, dtype: DType) -> str:
        return f"to(torch.{dtype})"

    def transfer(self, name: str, place: Place) -> str:
        return f"{name}.cpu()" if place.memory is Memory.MAIN else f"{name}.to({str(place)!r})"


def _torch_stream(torch: Any) -> Callable[[int], int]:
    """What gives the number of torch's current stream on a device.

    What torch's own compiler calls takes a tenth of the time of ``torch.cuda.current_stream``, which is the documented
    way and serves where that is missing.
    """
    fast: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    return fast or (lambda device: int(torch.cuda.current_stream(device).cuda_stream))


class CupyKind(ArrayKind):
    """CuPy arrays and their subclasses."""

    def __init__(self) -> None:
        self._cupy = cupy_module()

    def layout(self, array: Any) -> Hashable:
        return array.dtype, array.shape, array.strides, array.data.device_id

    def address(self, array: Any) -> int:
        address: int = array.data.ptr
        return address

    def view(self, array: Any) -> View:
        dtype = _dtype_of(array.dtype)
        strides = _element_strides(array, array.data.ptr, "array.copy()")
        return View(dtype, array.shape, strides, array.data.ptr, True, Place(Memory.CUDA, array.data.device_id))

    def copy(self, array: Any) -> Any:
        """Byte by byte: where there are gaps CuPy copies element by element, which ends in a fault if misaligned."""
        ndarray = self._cupy.ndarray
        with self._cupy.cuda.Device(array.data.device_id):
            octets = ndarray((*array.shape, array.itemsize), np.uint8, array.data, (*array.strides, 1))
            return ndarray(array.shape, array.dtype, octets.copy().data)

    def to_numpy(self, array: Any) -> NumpyArray:
        with self._cupy.cuda.Device(array.data.device_id):
            values: NumpyArray = self._cupy.asnumpy(array)
        return values

    def assign(self, array: Any, values: NumpyArray) -> None:
        with self._cupy.cuda.Device(array.data.device_id):
            array[...] = self._cupy.asarray(values)

    def maker(self, shape: tuple[int, ...], dtype: DType, place: Place) -> Callable[[], Any]:
        cupy, number, element = self._cupy, place.device, numpy_dtype(dtype)
        current_device = cupy.cuda.runtime.getDevice

        def make() -> Any:
            if current_device() == number:
                return cupy.empty(shape, element)
            with cupy.cuda.Device(number):
                return cupy.empty(shape, element)

        return make

    def from_numpy(self, array: NumpyArray, place: Place = MAIN) -> Any:
        with self._cupy.cuda.Device(place.device):
            return self._cupy.asarray(array)

    def stream_at(self, place: Place) -> Callable[[], int]:
        current, device = self._cupy.cuda.get_current_stream, place.device
        return lambda: current(device).ptr

    def matcher(self, arguments: Sequence[Any], masks: Sequence[int], *, recorded: bool | None) -> Matcher | None:
        return None if recorded else device_matcher(self._cupy.ndarray, arguments, masks)

    def conversion(self, dtype: DType) -> str:
        return _conversion(dtype)

    def transfer(self, name: str, place: Place) -> str:
        if place.memory is Memory.MAIN:
            return f"cupy.asnumpy({name})"
        return f"cupy.asarray({name}) under `with cupy.cuda.Device({place.device})`"


NUMPY = NumpyKind()


def _conversion(dtype: DType) -> str:
    """How NumPy's kind of array is converted; NumPy has no names for some types."""
    return f"astype({f'ml_dtypes.{dtype}' if is_of_ml_dtypes(dtype) else repr(dtype.name)})"


def _dtype_of(dtype: np.dtype[Any]) -> DType:
    known = DTYPES.get(dtype.name)
    if known is None:
        raise ArrayError(dtype.name, "tcomp has no such element type")
    if not dtype.isnative:
        raise ArrayError(f"{dtype.name} in foreign byte order", "pass array.astype(array.dtype.newbyteorder('='))")
    return known


def _element_strides(array: Any, address: int, copy: str) -> tuple[int, ...]:
    """The strides of an array, which gives them in bytes, in elements.

    Raises MisalignedError if they, or the address, are no multiples of the size of an element.
    """
    size = array.itemsize
    steps = [stride for stride, extent in zip(array.strides, array.shape, strict=True) if extent > 1]
    if address % size or any(step % size for step in steps):
        raise MisalignedError("an array whose elements are not aligned to their size", f"pass a copy: {copy}")
    return tuple(stride // size for stride in array.strides)
