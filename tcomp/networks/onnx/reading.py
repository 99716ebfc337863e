"""Opening models: files and their weights, hostile ones included."""

from __future__ import annotations

import importlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tcomp.errors import Diagnostic, MissingPackageError, NetworkError

Sizes = Mapping[str, int | Sequence[int]]
OLDEST = 13
"""The first opset in which rules are written."""

_MOST_BYTES = 1 << 40
_MOST_AXES = 8


def package() -> Any:
    """The package ``onnx``.  Raises MissingPackageError."""
    try:
        return importlib.import_module("onnx")
    except ImportError:
        raise MissingPackageError("networks of ONNX are read by its package: pip install 'tcomp[onnx]'") from None


def is_model(given: Any) -> bool:
    """Whether this is a ``ModelProto``, found out without importing onnx."""
    return type(given).__name__ == "ModelProto" and hasattr(given, "graph")


def opened(source: Any) -> Any:
    """The model that a path names, with the weights that lie beside it; local functions are inlined.

    Raises:
        NetworkError: it is no model, too old, or weights are missing or outside its folder.
        MissingPackageError: onnx is not installed.
    """
    onnx = package()
    model = source
    if not is_model(source):
        path = Path(source)
        try:
            model = onnx.load(str(path))
        except Exception as error:
            raise NetworkError(f"{path} cannot be read as a model of ONNX: {_short(error)}") from error
    if any(not isinstance(name, str) for name in _names(model)):
        raise NetworkError("the model has names that are no text")
    opset = opset_of(model)
    if not opset:
        raise NetworkError("this is no model of ONNX: it does not say which version of the operators it has")
    newest = onnx.defs.onnx_opset_version()
    if not OLDEST <= opset <= newest:
        hint = f"onnx.version_converter.convert_version(model, {OLDEST}) makes another of it"
        raise NetworkError(Diagnostic(f"the model has opset {opset}, known are {OLDEST} to {newest}", hint=hint))
    if model.functions:
        inliner = importlib.import_module("onnx.inliner")
        try:
            model = inliner.inline_local_functions(model)
        except Exception as error:
            raise NetworkError(f"the model's own functions cannot be inlined: {_short(error)}") from error
    return model


def _names(model: Any) -> Iterator[Any]:
    """What a damaged model may have bytes in place of: names, of which there are some at every node."""
    graph = model.graph
    for info in (*graph.input, *graph.output):
        yield info.name
        yield from (dim.dim_param for dim in info.type.tensor_type.shape.dim)
    yield from (tensor.name for tensor in graph.initializer)
    yield from (entry.domain for entry in model.opset_import)
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)


def opset_of(model: Any) -> int:
    """The version of the operators of ONNX itself."""
    return max((int(entry.version) for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0)


def array_of(onnx: Any, tensor: Any) -> Any:
    """The elements of a weight.  Raises NetworkError."""
    checked_shape(tensor.name, tensor.dims, 1)
    try:
        return onnx.numpy_helper.to_array(tensor)
    except Exception as error:
        raise NetworkError(f"the weight {tensor.name} cannot be read: {_short(error)}") from error


def checked_shape(name: str, shape: Iterable[int], width: int) -> tuple[int, ...]:
    """Extents that memory may have.  Raises NetworkError."""
    extents = tuple(int(extent) for extent in shape)
    if any(extent < 0 for extent in extents) or math.prod(extents) * width > _MOST_BYTES:
        raise NetworkError(f"{name} has the extents {'x'.join(map(str, extents))}")
    if len(extents) > _MOST_AXES:
        raise NetworkError(f"{name} has {len(extents)} axes, at most {_MOST_AXES} are known")
    return extents


def input_shape(onnx: Any, info: Any, sizes: Sizes) -> tuple[str, tuple[int, ...]]:
    """Element type and shape of an input; ``sizes`` has what the model leaves open.  Raises NetworkError."""
    name = info.name
    if info.type.WhichOneof("value") != "tensor_type":
        raise NetworkError(f"the input {name} is no tensor")
    kind = info.type.tensor_type
    dtype = dtype_of(onnx, kind.elem_type, name)
    given = sizes.get(name)
    if given is not None:
        shape = tuple(given) if isinstance(given, Sequence) else (given,)
        return dtype, checked_shape(name, shape, 1)
    if not kind.HasField("shape"):
        raise NetworkError(Diagnostic(f"the input {name} has no shape", hint=_size_hint(name, "N,...")))
    extents = []
    for position, dim in enumerate(kind.shape.dim):
        if dim.HasField("dim_value"):
            extents.append(dim.dim_value)
            continue
        extent = sizes.get(dim.dim_param)
        if not isinstance(extent, int):
            told = dim.dim_param or f"number {position}"
            hint = _size_hint(dim.dim_param, "1") if dim.dim_param else _size_hint(name, "N,...")
            raise NetworkError(Diagnostic(f"dimension {told} of the input {name} has no size", hint=hint))
        extents.append(extent)
    return dtype, checked_shape(name, extents, 1)


def _size_hint(name: str, value: str) -> str:
    """How Python and the command line give a size, or the shape of an input."""
    python = f"({value})" if "," in value else value
    return f"sizes={{{name!r}: {python}}} gives it, on the command line --size {name}={value}"


def dtype_of(onnx: Any, elem_type: int, name: str) -> str:
    """NumPy's name of an element type.  Raises NetworkError."""
    try:
        return str(onnx.helper.tensor_dtype_to_np_dtype(elem_type).name)
    except Exception as error:
        raise NetworkError(f"{name} has an element type that is not known ({elem_type})") from error


def _short(error: Exception) -> str:
    """The first line of what a package says."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
