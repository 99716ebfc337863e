"""Arrays of the caller as kernels see them: addresses, shapes and strides, whichever library made them; no copies.

NumPy arrays, torch tensors and CuPy arrays are read directly.  Whatever else speaks DLPack, NumPy's or CUDA's array
interface or the buffer protocol is first viewed as a NumPy or CuPy array; arrays of pyopencl are mapped.  Python
numbers stand for 0-D arrays of the declared type.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from tcomp.arrays.devices import Memory, Place, cupy_module, current_place
from tcomp.arrays.kinds import NUMPY, ArrayError, ArrayKind, CupyKind, NumpyArray, TorchKind, View
from tcomp.arrays.late import raise_found
from tcomp.errors import TargetError


class _Kinds(dict[type, ArrayKind | None]):
    """How to read instances of a class in place; None where they must first be viewed as arrays of another."""

    def __missing__(self, cls: type) -> ArrayKind | None:
        kind: ArrayKind | None = None
        if issubclass(cls, np.ndarray):
            kind = NUMPY if _is_plain(cls) else None
        elif _is_tensor(cls):
            kind = None if _forwards(cls) else _torch_kind()
        elif _derives(cls, "cupy", "ndarray"):
            kind = _cupy_kind()
        self[cls] = kind
        return kind


_FACTS = ("dtype", "shape", "strides", "ctypes", "itemsize", "flags")


def _is_plain(cls: type) -> bool:
    """Whether a subclass of ``numpy.ndarray`` leaves alone what says where elements lie, and has no mask."""
    return not hasattr(cls, "mask") and all(getattr(cls, fact) is getattr(np.ndarray, fact) for fact in _FACTS)


def _derives(cls: type, module: str, name: str) -> bool:
    """Whether a class derives from one of a module that need not have been loaded."""
    base = getattr(sys.modules.get(module), name, None)
    return isinstance(base, type) and issubclass(cls, base)


def _is_tensor(cls: type) -> bool:
    return _derives(cls, "torch", "Tensor")


def _forwards(cls: type) -> bool:
    """Whether tensors of a class only record or forward what is done to them, and have no memory of their own."""
    plain: Any = sys.modules["torch"]
    return getattr(cls, "__torch_dispatch__", None) is not plain.Tensor.__torch_dispatch__


@functools.cache
def _torch_kind() -> TorchKind:
    return TorchKind()


@functools.cache
def _cupy_kind() -> CupyKind:
    return CupyKind()


KINDS = _Kinds()


def kind_of(array: Any) -> ArrayKind:
    """The library of an array that kernels read in place."""
    kind = KINDS[type(array)]
    assert kind is not None
    return kind


def view_of(array: Any) -> View:
    """An array that kernels read in place, as they see it.  Raises ArrayError."""
    return kind_of(array).view(array)


def default_kind(place: Place) -> ArrayKind:
    """The library of arrays that are made where a caller has passed none.  Raises TargetError."""
    return NUMPY if place.memory is Memory.MAIN else _cupy_kind()


def layout_of(value: Any) -> Hashable:
    """The layout of an array that kernels read in place, an integer itself, None for everything else."""
    kind = KINDS[type(value)]
    if kind is not None:
        return kind.layout(value)
    return value if type(value) is int else None


def in_place(value: Any) -> Any:
    """An array that kernels can read: the argument itself, or a NumPy or CuPy view of it.  Raises ArrayError."""
    if KINDS[type(value)] is not None:
        return value
    if isinstance(value, np.ndarray):
        if hasattr(type(value), "mask"):
            raise ArrayError("a masked array", "pass its .filled(), or its .data")
        return np.ndarray.view(value, np.ndarray)
    if _is_tensor(type(value)):
        raise ArrayError(f"a {type(value).__name__}, which may have no memory of its own", "pass a torch.Tensor")
    if isinstance(value, np.generic):
        return np.asarray(value)
    if isinstance(value, (bytes, str)) or value is None:
        raise ArrayError(type(value).__name__)
    return _viewed(_from_protocol, value)


def is_frozen(value: Any) -> bool:
    """Whether an array that is not read in place says that it is read-only, in CUDA's array interface."""
    if KINDS[type(value)] is not None or not hasattr(value, "__cuda_array_interface__"):
        return False
    return bool(value.__cuda_array_interface__["data"][1])


_NOT_AN_ARRAY = "pass a NumPy array, a torch tensor or anything with DLPack; numpy.asarray makes one of a list"


def _from_protocol(value: Any) -> Any:
    """A view of another library's array, through the first protocol that it speaks."""
    if _derives(type(value), "pyopencl.array", "Array"):
        return value.map_to_host()  # in main memory while somebody holds it, and on the device again afterwards
    if hasattr(value, "__dlpack__") and hasattr(value, "__dlpack_device__"):
        return _from_dlpack(value)
    if hasattr(value, "__array_interface__"):
        return np.asarray(value)
    if hasattr(value, "__cuda_array_interface__"):
        return _on_device(_from_cuda_interface, value, "in the memory of a CUDA device")
    return np.asarray(memoryview(value))


def _viewed(view: Callable[[Any], Any], value: Any) -> Any:
    """Foreign code runs here and may raise anything."""
    try:
        return view(value)
    except ArrayError:
        raise
    except Exception as error:  # noqa: BLE001
        reason = "" if isinstance(error, TypeError) else f" ({error})"
        raise ArrayError(f"{type(value).__name__}{reason}", _NOT_AN_ARRAY) from None


_MAIN_DEVICES = (1, 3)
"""DLPack's numbers for main memory, and for main memory that CUDA has pinned."""

_CUDA_DEVICES = (2, 13)
"""DLPack's numbers for CUDA devices, and for memory that they share with the processor."""

_DEVICE_NAMES = {2: "cuda", 4: "opencl", 7: "vulkan", 8: "metal", 10: "rocm", 13: "cuda", 14: "oneapi"}


def _from_dlpack(value: Any) -> Any:
    device, number = value.__dlpack_device__()
    if int(device) in _MAIN_DEVICES:
        return np.from_dlpack(value)
    name = f"on device {_DEVICE_NAMES.get(int(device), f'DLPack device {int(device)}')}:{number}"
    if int(device) in _CUDA_DEVICES:
        return _on_device(lambda array: cupy_module().from_dlpack(array), value, name)
    raise ArrayError(f"an array {name}", "copy it to main memory, or choose another target")


def _on_device(view: Callable[[Any], Any], value: Any, where: str) -> Any:
    """A CuPy view of another library's array in device memory, ready on CuPy's current stream there."""
    try:
        cupy_module()
    except TargetError as error:
        raise ArrayError(f"an array {where}", f"copy it to main memory; {error.message}") from None
    try:
        return _viewed(view, value)
    except ArrayError as error:
        raise ArrayError(f"an array {where}: {error.found}", "pass a CuPy array or a torch tensor") from None


def _from_cuda_interface(value: Any) -> Any:
    """What ``cupy.asarray`` gives on the device that owns the memory; on another it would copy."""
    cupy = cupy_module()
    address = value.__cuda_array_interface__["data"][0]
    if not address:
        return cupy.asarray(value)
    with cupy.cuda.Device(cupy.cuda.runtime.pointerGetAttributes(address).device):
        return cupy.asarray(value)


def like(example: Any, array: Any, place: Place) -> Any:
    """An array as the kind of array that ``example`` is; as it is where the example's library takes none.

    Nothing is copied but a NumPy array to the ``place`` of an example that lies on a device.
    """
    kind, made = KINDS[type(example)], KINDS[type(array)]
    if kind is not None:
        if kind is made:
            return array
        return kind.from_numpy(array, place)
    library = None
    if hasattr(example, "__dlpack__"):
        if hasattr(example, "__array_namespace__"):
            library = example.__array_namespace__()
        else:
            library = sys.modules.get(type(example).__module__.partition(".")[0])
    if not hasattr(library, "from_dlpack"):
        return array
    return _viewed(library.from_dlpack, array)  # type: ignore[union-attr]


def moved(value: Any, memory: Memory | None) -> Any:
    """What a target whose kernels read ``memory`` takes for a NumPy array: for CUDA, a copy on the current device.

    Everything else is returned as it is.  Raises TargetError where there is no device.
    """
    if memory is not Memory.CUDA or not isinstance(value, np.ndarray):
        return value
    place = current_place()
    return default_kind(place).from_numpy(value, place)


def fetched(array: Any) -> NumpyArray:
    """The content of an array that kernels have written, once they have, as a NumPy array.

    Raises what checks of kernels have found.
    """
    content = kind_of(array).to_numpy(array)
    raise_found()
    return content
