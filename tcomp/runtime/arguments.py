"""Arguments checked against the tensors that a program declares: type, rank, and who shares memory with whom."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tcomp.arrays.arrays import in_place, is_frozen, kind_of
from tcomp.arrays.devices import Memory, Place
from tcomp.arrays.kinds import ArrayError, MisalignedError, NumpyArray, View
from tcomp.errors import Diagnostic, ShapeError, SourceText
from tcomp.grammar.tree.function import Function, Tensor
from tcomp.model.evaluation import numpy_dtype
from tcomp.values.operators import DType


def is_scalar(value: Any) -> bool:
    """Whether a value stands for a 0-D array only: a Python number, or a NumPy scalar."""
    return isinstance(value, (bool, int, float, np.generic))


def scalar(value: bool | float, dtype: DType) -> NumpyArray:
    """A Python number as a 0-D array of the declared type.  Raises ArrayError if it does not fit.

    Integers must be in range and, where the type is a float, exactly representable; floats go to float types only, and
    are rounded to nearest even as NumPy does; booleans go to ``bool`` only.
    """
    if type(value) is float and dtype.is_float and dtype.itemsize == 8:
        return np.array(value)
    if dtype.kind == "bool" or isinstance(value, bool):
        fits = dtype.kind == "bool" and isinstance(value, bool)
    elif isinstance(value, int):
        if dtype.is_float:
            with np.errstate(over="ignore"):
                try:
                    fits = float(np.asarray(float(value)).astype(numpy_dtype(dtype))) == value
                except OverflowError:
                    fits = False
        else:
            fits = dtype.lowest <= value <= dtype.highest
    else:
        fits = dtype.is_float
    if not fits:
        raise ArrayError(described(value), "pass a number that the type can hold")
    with np.errstate(over="ignore"):
        result = np.asarray(value).astype(numpy_dtype(dtype))
    if isinstance(value, float) and math.isfinite(value) and not np.isfinite(result):
        raise ArrayError(described(value), "pass a number that the type can hold")
    return result


def numbers_as_arrays(function: Function, arguments: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """The arguments with a NumPy array in place of every number that stands for one.

    None if there is none, one does not fit, or the other arrays are not NumPy's: then the checks of a call see to them.
    """
    if len(arguments) != len(function.inputs):
        return None
    given = list(arguments)
    for place, (tensor, value) in enumerate(zip(function.inputs, arguments, strict=True)):
        if tensor.role == "const" or type(value) is np.ndarray:
            continue
        if tensor.rank or not is_scalar(value):
            return None
        try:
            number = value.item() if isinstance(value, (np.bool_, np.integer, np.floating)) else value
            given[place] = scalar(number, tensor.dtype)
        except ArrayError:
            return None
    same = all(a is b for a, b in zip(given, arguments, strict=True))
    return None if same or all(is_scalar(a) for a in arguments) else tuple(given)


def described(value: float) -> str:
    """A number and its type as a message shows them; whole ones may have more digits than Python writes."""
    if isinstance(value, int) and value.bit_length() > 128:
        return f"a whole number of {value.bit_length()} bits"
    return f"{value!r} of type {type(value).__name__}"


def read_input(value: Any, tensor: Tensor, source: SourceText) -> tuple[Any, View]:
    """An argument for an input tensor: the array to read in place, or a copy if it is misaligned, and how kernels see
    it.

    Raises ShapeError, with the place of the parameter, if it is no array, or of the wrong type or rank.
    """
    try:
        if isinstance(value, (np.bool_, np.integer, np.floating)):
            value = value.item()
        if isinstance(value, (bool, int, float)):
            if tensor.rank:
                raise ArrayError(f"{value!r}, which has no dimensions")
            array: Any = scalar(value, tensor.dtype)
        else:
            array = in_place(value)
        try:
            return array, _checked_view(array, tensor)
        except MisalignedError:
            copy = kind_of(array).copy(array)
            return copy, _checked_view(copy, tensor)
    except ArrayError as error:
        raise shape_error(f"input {tensor.name}", tensor, source, error) from None


def read_output(value: Any, tensor: Tensor, source: SourceText) -> tuple[Any, View]:
    """An array of ``out=`` for an output tensor.  Raises ShapeError as ``read_input`` does, and if it cannot be
    written or its elements share memory with each other."""
    try:
        if is_scalar(value):
            raise ArrayError(f"the number {value!r}", "pass an array that can be written")
        array = in_place(value)
        view = _checked_view(array, tensor)
        if not view.writable or is_frozen(value):
            raise ArrayError("a read-only array", expected="an array that can be written")
        if _may_overlap_itself(view):
            found, hint = "an array whose elements share memory", "pass an array of its own, say a .copy()"
            raise ArrayError(found, hint, "an array that can be written")
    except ArrayError as error:
        raise shape_error(f"output {tensor.name}", tensor, source, error) from None
    return array, view


def misplaced(array: Any, view: View, tensor: Tensor, place: Place, source: SourceText) -> Diagnostic:
    """That an array lies elsewhere than the kernel, or the other arrays of the call, for which ``place`` stands."""
    what = f"{'output' if tensor.role == 'output' else 'input'} {tensor.name}"
    message = f"{what}: expected an array in {place.memory.value} but found one in {view.place.memory.value}"
    if view.place.memory is place.memory:
        message = f"{what}: expected an array on {place} like the others but found one on {view.place}"
    hint = f"move it: {kind_of(array).transfer(tensor.name, place)}"
    if view.place.memory is not place.memory:
        hint += f"; or choose target={'cuda' if view.place.memory is Memory.CUDA else 'cpu'!r}"
    return Diagnostic(message, source, tensor.span, hint)


def constant(value: Any, tensor: Tensor, source: SourceText) -> int:
    """The value of a ``const`` parameter: a Python or NumPy integer that its type can hold.  Raises ShapeError."""
    if isinstance(value, np.ndarray) and value.shape == () and value.dtype.kind in "iu":
        value = value[()]
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        found = value if isinstance(value, (bool, float, np.generic)) else type(value).__name__
        message = f"{tensor.name} is a compile-time constant: expected an integer but found {found}"
    elif not tensor.dtype.lowest <= value <= tensor.dtype.highest:
        message = f"{tensor.name} is {described(int(value))}, which type {tensor.dtype} cannot hold"
    else:
        return int(value)
    raise ShapeError(Diagnostic(message, source, tensor.span))


def _checked_view(array: Any, tensor: Tensor) -> View:
    kind = kind_of(array)
    view = kind.view(array)
    check_declaration(view.dtype, len(view.shape), tensor, kind.conversion(tensor.dtype))
    return view


def check_declaration(dtype: DType, rank: int, tensor: Tensor, conversion: str) -> None:
    """Raises ArrayError unless an array has the type and rank of a tensor; ``conversion`` is how one is converted."""
    if dtype != tensor.dtype:
        hint = f"convert it: {tensor.name}.{conversion}"
        if tensor.role == "output":
            hint = f"allocate {tensor.name} as an array of {tensor.dtype}; results do not come back from a copy"
        raise ArrayError(dtype.name, hint)
    if rank != tensor.rank:
        raise ArrayError(f"a tensor with {_dimensions(rank)}")


def shape_error(what: str, tensor: Tensor, source: SourceText, error: ArrayError) -> ShapeError:
    """That an array does not fit a tensor, for the caller who passed it as ``what``."""
    expected = error.expected or (
        f"a tensor with {_dimensions(tensor.rank)}" if "dimension" in error.found else f"type {tensor.dtype}"
    )
    return ShapeError(
        Diagnostic(f"{what}: expected {expected} but found {error.found}", source, tensor.span, error.hint)
    )


def _dimensions(rank: int) -> str:
    return f"{rank or 'no'} dimension{'s' * (rank != 1)}"


def _may_overlap_itself(view: View) -> bool:
    """Whether two elements may have one address; exact for arrays that slicing and transposing give."""
    if 0 in view.shape:
        return False
    steps = sorted((abs(s), n) for s, n in zip(view.strides, view.shape, strict=True) if n > 1)
    reach = 0
    for step, extent in steps:
        if step <= reach:
            return True
        reach += step * (extent - 1)
    return False


def byte_range(view: View) -> tuple[int, int]:
    """The first address of an array's memory and the one behind its last; both equal for an array without elements."""
    if 0 in view.shape:
        return view.address, view.address
    reaches = [s * (n - 1) * view.dtype.itemsize for s, n in zip(view.strides, view.shape, strict=True)]
    low = view.address + sum(min(reach, 0) for reach in reaches)
    return low, view.address + sum(max(reach, 0) for reach in reaches) + view.dtype.itemsize


_OVERLAP_WORK = 100_000


def share_memory(one: View, other: View) -> bool:
    """Whether two arrays have a byte in common; said to be so too where finding out would take long."""
    (low, high), (other_low, other_high) = byte_range(one), byte_range(other)
    if high <= other_low or other_high <= low or low == high or other_low == other_high:
        return False
    try:
        return bool(np.shares_memory(_bytes_of(one), _bytes_of(other), max_work=_OVERLAP_WORK))  # type: ignore[arg-type]
    except (np.exceptions.TooHardError, OverflowError):
        return True


class _Memory:
    """Hands an address to NumPy through the array interface."""

    def __init__(self, view: View) -> None:
        self.__array_interface__ = {
            "version": 3,
            "typestr": f"|V{view.dtype.itemsize}",
            "shape": view.shape,
            "strides": tuple(s * view.dtype.itemsize for s in view.strides),
            "data": (view.address, True),
        }


def _bytes_of(view: View) -> NumpyArray:
    return np.asarray(_Memory(view))
