"""Sparse matrices among the arguments of a call: each stands for three parameters, its parts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from tcomp.arrays.kinds import ArrayError
from tcomp.arrays.sparse import PARTS, is_sparse, parts_of
from tcomp.errors import Diagnostic, ShapeError
from tcomp.grammar.tree.function import Expr, Function, Read, Tensor, Within, children, walk

_AS_PARTS = "`int32(R1) row, int32(E) col, float(E) V`"


def has_sparse(arguments: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
    """Whether a sparse matrix is among the arguments."""
    return any(map(is_sparse, arguments)) or any(map(is_sparse, named.values()))


def with_parts(
    function: Function, arguments: tuple[Any, ...], named: Mapping[str, Any], free: Collection[str] = ()
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments with the parts of each sparse matrix in its place.

    Indices are converted to the type of their parameter, unless that is ``free`` to have any.  Parts go to the
    parameter where the matrix stands, or whose name it has, and to the two behind that.  Raises ShapeError where it
    is not laid out as the text reads it, or there are too few parameters.
    """
    order = [tensor.name for tensor in function.inputs]
    given: list[Any] = []
    for value in arguments:
        if not is_sparse(value):
            given.append(value)
        elif len(given) < len(order):
            given += _parts(function, value, order[len(given)], free)
        else:
            given += [value]  # too many arguments, as the check of their number says
    found: dict[str, Any] = {}
    for name, value in named.items():
        if is_sparse(value) and name in order:
            first = order.index(name)
            found |= dict(zip(order[first : first + PARTS], _parts(function, value, name, free), strict=True))
        else:
            found[name] = value
    return tuple(given), found


def _parts(function: Function, value: Any, name: str, free: Collection[str]) -> tuple[Any, ...]:
    names = [tensor.name for tensor in function.inputs]
    first = names.index(name)
    tensors = function.inputs[first : first + PARTS]
    span = tensors[0].span
    if tensors[0].rank != 1:
        message = f"{name} is given a sparse matrix, but has {tensors[0].rank} dimensions, as one that is dense"
        hint = f"pass a dense array (`.toarray()`), or declare the parts: {_AS_PARTS}"
        raise ShapeError(Diagnostic(message, function.source, span, hint))
    if len(tensors) < PARTS:
        message = f"{name} is given a sparse matrix, which stands for {PARTS} parameters, but {len(tensors)} are left"
        raise ShapeError(Diagnostic(message, function.source, span, f"as in {_AS_PARTS}"))
    try:
        dtypes = [None if tensor.name in free else tensor.dtype for tensor in tensors]
        return parts_of(value, dtypes, by_entry=_is_by_entry(function, *tensors[:2]))
    except ArrayError as error:
        raise ShapeError(Diagnostic(f"{name} is given {error.found}", function.source, span, error.hint)) from None


def _is_by_entry(function: Function, first: Tensor, second: Tensor) -> bool:
    """Whether a parameter has the row of each entry, as it is as long as the columns: if not, it has ends of rows."""
    return first.dims == second.dims and not any(
        isinstance(node, Within) and first.name in (*_read_at(node.lower), *_read_at(node.upper))
        for statement in function.statements
        for expression in statement.expressions()
        for node in walk(expression)
    )


def _read_at(end: Expr) -> Iterator[str]:
    """The tensors whose elements the end of a range is computed of, those in subscripts left out."""
    if isinstance(end, Read):
        yield end.tensor
        return
    for child in children(end):
        yield from _read_at(child)
