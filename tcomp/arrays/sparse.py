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

_IN_ROWS = ("csr", "csc", "bsr")
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


def parts_of(value: Any, dtypes: Sequence[DType | None]) -> tuple[Any, ...]:
    """The arrays of a sparse matrix: ends of rows, columns and values; of COO, rows, columns and values.

    ``dtypes`` are the types of the parameters, None for any.  Indices of other integer types are converted, which
    copies them.  Raises ArrayError for other formats, and for more elements than the type of a parameter counts.
    """
    arrays = _torch_parts(value) if hasattr(value, "layout") else _scipy_parts(value)
    converted = [_converted(a, d, value) for a, d in zip(arrays[: PARTS - 1], dtypes, strict=False)]
    return (*converted, arrays[-1])


def _scipy_parts(value: Any) -> tuple[Any, ...]:
    if value.format in _IN_ROWS:
        return value.indptr, value.indices, value.data
    if value.format == "coo" and len(value.shape) == PARTS - 1:
        return value.row, value.col, value.data
    raise ArrayError(f"a sparse matrix in the format {value.format!r}", "pass its .tocsr(), or its .toarray()")


def _torch_parts(value: Any) -> tuple[Any, ...]:
    torch: Any = sys.modules["torch"]
    if value.layout in (torch.sparse_csr, torch.sparse_bsr):
        return value.crow_indices(), value.col_indices(), value.values()
    if value.layout in (torch.sparse_csc, torch.sparse_bsc):
        return value.ccol_indices(), value.row_indices(), value.values()
    if value.layout is torch.sparse_coo and value.sparse_dim() == PARTS - 1:
        whole = value.coalesce()
        return *whole.indices(), whole.values()
    raise ArrayError(f"a tensor with the layout {value.layout}", "pass its .to_sparse_csr(), or its .to_dense()")


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
