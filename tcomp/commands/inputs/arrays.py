"""Arrays for a run, read from .npy files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from tokenize import TokenError
from typing import Any
from zipfile import BadZipFile

import numpy as np

from tcomp.errors import ShapeError, TcompError
from tcomp.grammar.ranges.ranges import bind_sizes
from tcomp.grammar.tree.function import Function, Tensor
from tcomp.model.evaluation import is_of_ml_dtypes, numpy_dtype
from tcomp.model.madeup import Arguments, Array, arguments_of

_DAMAGED = (ValueError, TypeError, OverflowError, MemoryError, RecursionError, SyntaxError, TokenError, BadZipFile)
"""What NumPy raises for the header of a file that it did not write."""


def load_arguments(function: Function, files: Sequence[str], sizes: Mapping[str, int]) -> Arguments:
    """One .npy file per array parameter, in order, then one per output whose content the program reads.

    ``sizes`` holds the const parameters; other sizes in it must be those of the arrays.  Raises TcompError.
    """
    names = [tensor.name for tensor in function.inputs if tensor.role != "const"]
    expected = (*names, *function.needs_content)
    if len(files) != len(expected):
        wanted = ", ".join(expected) or "none"
        raise ShapeError(f"{function.name} takes {len(expected)} arrays ({wanted}), but --inputs names {len(files)}")
    arrays = {name: _load(file, function.tensors[name]) for name, file in zip(expected, files, strict=True)}
    arguments = arguments_of(function, arrays, sizes, made_up=False)
    constants = {tensor.name: sizes[tensor.name] for tensor in function.inputs if tensor.role == "const"}
    found = bind_sizes(function, {name: arrays[name].shape for name in names}, constants)
    wrong = [
        f"{name} is {found[name]} in the arrays, but {value} in --sizes"
        for name, value in sizes.items()
        if found[name] != value
    ]
    if wrong:
        raise ShapeError(*wrong)
    return arguments


def _load(file: str, tensor: Tensor) -> Array:
    array = _opened(file)
    if not isinstance(array, np.ndarray):
        raise TcompError(f"{file} holds an archive of arrays; save one array with numpy.save")
    if is_of_ml_dtypes(tensor.dtype) and array.dtype == np.dtype(f"V{tensor.dtype.itemsize}"):
        return array.view(numpy_dtype(tensor.dtype))  # the format has no name for it, so numpy.save writes raw bytes
    return array


def load_archive(file: str) -> dict[str, Array]:
    """The arrays of a .npz file by their names.  Raises TcompError."""
    archive = _opened(file)
    if isinstance(archive, np.ndarray):
        raise TcompError(f"{file} holds one array without a name; save arrays by their names with numpy.savez")
    try:
        with archive:
            return dict(archive)
    except (OSError, EOFError, *_DAMAGED) as error:
        raise _unreadable(file, error) from None


def _opened(file: str) -> Any:
    """What NumPy finds in a file.  Raises TcompError."""
    try:
        return np.load(Path(file), allow_pickle=False)
    except (OSError, EOFError, *_DAMAGED) as error:
        raise _unreadable(file, error) from None


def _unreadable(file: str, error: Exception) -> TcompError:
    reason = str(getattr(error, "strerror", None) or error)
    if "pickle" in reason:  # what NumPy takes all files for that it does not know, with advice to trust them
        reason = "NumPy wrote no plain arrays into it"
    return TcompError(f"cannot read {file}: {reason}")
