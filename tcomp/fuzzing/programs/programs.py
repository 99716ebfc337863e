"""A program fixed to sizes, and the arrays on which it is run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from tcomp.grammar import define
from tcomp.grammar.ranges.ranges import infer
from tcomp.grammar.tree.function import Function
from tcomp.grammar.tree.syntax import Definition
from tcomp.model.evaluation import numpy_dtype
from tcomp.values.operators import DType

Array = np.ndarray[Any, np.dtype[Any]]

_LOW, _HIGH = -3, 3
"""Elements of the made-up arrays; floats and signed integers."""

_UNSIGNED_HIGH = 7

GARBAGE = 77
"""What outputs hold whose content does not matter."""

_MOST_CHECKED = 64
"""Checked programs that are kept: the cases of one, its variants, and what a reduction tries meanwhile."""


def largest_element(dtype: DType) -> int:
    """The largest magnitude in a made-up array of a type."""
    return _UNSIGNED_HIGH if dtype.kind == "uint" else _HIGH


@dataclass(frozen=True, slots=True)
class Data:
    """The arguments of a call in order, and what it gives as ``out=``, by name."""

    arguments: tuple[Array | int, ...]
    contents: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Program:
    """A def with a value for every size symbol and ``const`` parameter, and the seed of its data.

    Floats among the data are multiples of ``2**-bits``.
    """

    definition: Definition
    sizes: Mapping[str, int]
    seed: int = 0
    bits: int = 0

    @property
    def text(self) -> str:
        """The program text."""
        return f"{self.definition}\n"

    @property
    def function(self) -> Function:
        """The checked program.  Raises CompileError."""
        return _checked(self.text)[self.definition.name.name]

    def data(self) -> Data:
        """Arrays of small numbers; each depends on the seed and its position only.  Raises TcompError."""
        function = self.function
        boxes = infer(function, self.sizes).boxes
        arguments: list[Array | int] = []
        for position, tensor in enumerate(function.inputs):
            if tensor.role == "const":
                arguments.append(self.sizes[tensor.name])
            else:
                arguments.append(self._numbers(position, tensor.dtype, boxes[tensor.name].extent))
        contents = {
            t.name: self._numbers(1000 + position, t.dtype, boxes[t.name].extent)
            for position, t in enumerate(function.outputs)
            if t.name in function.needs_content
        }
        return Data(tuple(arguments), contents)

    def _numbers(self, position: int, dtype: DType, extent: tuple[int, ...]) -> Array:
        rng = np.random.default_rng([self.seed, position])
        low = 0 if dtype.kind in ("bool", "uint") else _LOW
        high = 1 if dtype.kind == "bool" else largest_element(dtype)
        parts = 1 << self.bits if dtype.is_float else 1
        numbers = np.asarray(rng.integers(low * parts, high * parts + 1, extent))
        return np.asarray(numbers if parts == 1 else numbers / parts).astype(numpy_dtype(dtype))

    def __repr__(self) -> str:
        return f"{self.text}sizes: {dict(self.sizes)}, seed: {self.seed}, bits: {self.bits}"


@lru_cache(_MOST_CHECKED)
def _checked(text: str) -> Mapping[str, Function]:
    """The checked defs of a text: each case of a program asks for them several times."""
    return define(text)
