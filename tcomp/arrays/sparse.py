"""Sparse matrices of SciPy, CuPy and torch as the arrays that they are made of."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from tcomp.arrays.kinds import ArrayError
from tcomp.model.evaluation import numpy_dtype
from tcomp.values.operators import DType

PARTS = 3
"""Arrays of which every matrix here is made: two of indices, and the values."""

_IN_ROWS = ("csr", "bsr")
_IN_COLUMNS = ("csc", "bsc")
_LIBRARIES = ("scipy", "cupyx")


def is_sparse(value: Any) -> bool:
    """Whether a value is a sparse matrix, or a tensor that is no plain block of memory."""
    if isinstance(value, np.ndarray | int | float):
        return False
    torch: Any = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return bool(value.layout is not torch.strided)
    if type(value).__module__.partition(".")[0] in _LIBRARIES:
        return hasattr(value, "format") and hasattr(value, "nnz")
    return False


def parts_of(value: Any, dtypes: Sequence[DType | None], by_entry: bool) -> tuple[Any, ...]:
    """The arrays of a sparse matrix: ends of rows, columns and values; ``by_entry``, rows, columns and values.

    ``dtypes`` are the types of the parameters, None for any.  Indices of other integer types are converted, which
    copies them.  Raises ArrayError for other formats, and for more elements than the type of a parameter counts.
    """
    is_torch = hasattr(value, "layout")
    found = str(value.layout).removeprefix("torch.sparse_") if is_torch else value.format
    if found not in (("coo",) if by_entry else _IN_ROWS):
        what = f"a tensor with the layout {value.layout}" if is_torch else f"a sparse matrix in the format {found!r}"
        raise ArrayError(what, _instead(found, is_torch, by_entry))
    arrays = _torch_parts(value, by_entry) if is_torch else _scipy_parts(value, by_entry)
    converted = [_converted(a, d, value) for a, d in zip(arrays[: PARTS - 1], dtypes, strict=False)]
    return (*converted, arrays[-1])


def _instead(found: str, is_torch: bool, by_entry: bool) -> str:
    """What to pass for a matrix that is laid out otherwise than the text reads it."""
    if by_entry:
        other = ".to_sparse_coo()" if is_torch else ".tocoo()"
        return f"the text reads the row of each entry: pass its {other}"
    hint = f"the text reads the ends of rows: pass its {'.to_sparse_csr()' if is_torch else '.tocsr()'}"
    if found not in _IN_COLUMNS:
        return hint
    parts = ".ccol_indices(), .row_indices() and .values()" if is_torch else ".indptr, .indices and .data"
    return f"{hint}; if it goes by columns, pass {parts}"


def _scipy_parts(value: Any, by_entry: bool) -> tuple[Any, ...]:
    if not by_entry:
        return value.indptr, value.indices, value.data
    if len(value.shape) == PARTS - 1:
        return value.row, value.col, value.data
    raise ArrayError(f"a sparse array of {len(value.shape)} dimensions", "a matrix has two")


def _torch_parts(value: Any, by_entry: bool) -> tuple[Any, ...]:
    if not by_entry:
        return value.crow_indices(), value.col_indices(), value.values()
    if value.sparse_dim() == PARTS - 1:
        whole = value.coalesce()
        return *whole.indices(), whole.values()
    raise ArrayError(f"a sparse tensor of {value.sparse_dim()} sparse dimensions", "a matrix has two")


def _converted(array: Any, dtype: DType | None, whole: Any) -> Any:
    """Indices in the type of a parameter."""
    if dtype is None or not dtype.is_integer or str(array.dtype).removeprefix("torch.") == dtype.name:
        return array
    nonzero = whole.values().shape[0] if hasattr(whole, "layout") else whole.nnz
    most = max(*whole.shape, nonzero)
    if most > dtype.highest:
        raise ArrayError(f"a sparse matrix whose indices go up to {most}", f"declare them wider than {dtype}")
    if hasattr(whole, "layout"):
        return array.to(getattr(sys.modules["torch"], dtype.name))
    return array.astype(numpy_dtype(dtype))
