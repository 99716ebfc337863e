"""Arguments for a call of a program, made up so that every result is exact and every subscript valid."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tcomp.errors import ShapeError
from tcomp.grammar.ranges.ranges import Box, Ranges
from tcomp.grammar.tree.function import Cast, Expr, Function, Read, Tensor, walk
from tcomp.model.evaluation import numpy_dtype

Array = np.ndarray[Any, np.dtype[Any]]

_LARGEST = 4


@dataclass(frozen=True, slots=True)
class Arguments:
    """What a call needs: one value per parameter, in order, and the content of the outputs that the program reads.

    ``const`` parameters are integers, all others arrays.  ``made_up`` arrays are random numbers.
    """

    values: tuple[Array | int, ...]
    contents: Mapping[str, Array]
    made_up: bool

    def fresh_contents(self) -> dict[str, Array]:
        """Copies of the contents, for a call overwrites them."""
        return {name: array.copy() for name, array in self.contents.items()}


def random_arguments(function: Function, ranges: Ranges, seed: int) -> Arguments:
    """Small integers of either sign (0 or 1 for bool), and valid subscripts in tensors that are used as such.

    Sums and products of small integers are exact in any order, so results can be compared bit by bit.
    """
    inputs = [tensor for tensor in function.inputs if tensor.role == "input"]
    arrays = _random([*inputs, *_read_outputs(function)], function, ranges, seed)
    return arguments_of(function, arrays, ranges.sizes, made_up=True)


def random_contents(function: Function, ranges: Ranges, seed: int) -> dict[str, Array]:
    """The same for those outputs alone whose contents the program reads."""
    return _random(_read_outputs(function), function, ranges, seed)


def _read_outputs(function: Function) -> list[Tensor]:
    return [tensor for tensor in function.outputs if tensor.name in function.needs_content]


def _random(tensors: Sequence[Tensor], function: Function, ranges: Ranges, seed: int) -> dict[str, Array]:
    generator = np.random.default_rng(seed)
    subscripts = subscript_ranges(function, ranges)

    def fill(tensor: Tensor) -> Array:
        dtype = numpy_dtype(tensor.dtype)
        low, high = subscripts.get(tensor.name, _value_range(tensor))
        try:
            narrow = np.int8 if low >= -128 and high <= 127 else np.int64
            return generator.integers(low, high, size=ranges.boxes[tensor.name].extent, dtype=narrow).astype(dtype)
        except (ValueError, MemoryError) as error:
            raise ShapeError(f"cannot make an array for {tensor.name}: {error}") from None

    return {tensor.name: fill(tensor) for tensor in tensors}


def arguments_of(
    function: Function, arrays: Mapping[str, Array], sizes: Mapping[str, int], *, made_up: bool
) -> Arguments:
    """Arrays by name, and the const parameters among ``sizes``, as arguments.  Raises ShapeError if one is missing."""
    sizes = {**function.defaults, **sizes}
    missing = [tensor.name for tensor in function.inputs if tensor.role == "const" and tensor.name not in sizes]
    if missing:
        raise ShapeError(f"{function.name} needs values for const parameters: --sizes {'=...,'.join(missing)}=...")
    values = tuple(sizes[tensor.name] if tensor.role == "const" else arrays[tensor.name] for tensor in function.inputs)
    return Arguments(values, {name: arrays[name] for name in function.needs_content}, made_up)


def subscript_ranges(function: Function, ranges: Ranges) -> dict[str, tuple[int, int]]:
    """For each tensor that is used as a subscript, the half-open range of values that are valid wherever it is.

    Where a subscript computes with the value (``table(index(i) + k)``), that is the smallest one only.
    """
    found: dict[str, tuple[int, int]] = {}
    for tensor, position, subscript in _subscripts(function):
        for read in (node for node in walk(subscript) if isinstance(node, Read)):
            low, high = _valid(ranges.boxes[tensor], position, exact=_uncast(subscript) is read)
            before = found.get(read.tensor, (low, high))
            low, high = max(low, before[0]), min(high, before[1])
            found[read.tensor] = (low, max(high, low + 1))
    return found


def _subscripts(function: Function) -> Iterator[tuple[str, int, Expr]]:
    for statement in function.statements:
        for position, subscript in enumerate(statement.subscripts):
            yield statement.target, position, subscript
        for expression in statement.expressions():
            for read in (node for node in walk(expression) if isinstance(node, Read)):
                for position, subscript in enumerate(read.subscripts):
                    yield read.tensor, position, subscript


def _valid(box: Box, position: int, exact: bool) -> tuple[int, int]:
    low, extent = box.origin[position], box.extent[position]
    return (low, low + max(1, extent)) if exact else (max(0, low), max(0, low) + 1)


def _uncast(expr: Expr) -> Expr:
    return _uncast(expr.operand) if isinstance(expr, Cast) else expr


def _value_range(tensor: Tensor) -> tuple[int, int]:
    match tensor.dtype.kind:
        case "bool":
            return 0, 2
        case "uint":
            return 0, _LARGEST + 1
        case _:
            return -_LARGEST, _LARGEST + 1
