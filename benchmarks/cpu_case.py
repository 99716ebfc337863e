"""What a row of the CPU benchmark is: a program, its inputs, and the same in the words that peers understand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]
Shape = tuple[int, ...]

ElementType = Literal["float32", "int8", "int32"]
Bound = Literal["fp32", "int8", "memory"]


@dataclass(frozen=True, slots=True)
class Input:
    """An array that a case reads.

    Floats are standard normal, ``int32`` are subscripts below ``below``, ``int8`` are anything.  ``order`` lists the
    axes as they lie in memory, outermost first; empty stands for C order.
    """

    shape: Shape
    dtype: ElementType = "float32"
    below: int = 0
    order: tuple[int, ...] = ()

    def make(self, rng: np.random.Generator) -> Array:
        """The array; the same generator state gives the same values."""
        if self.dtype == "int32":
            return rng.integers(0, self.below, self.shape, dtype=np.int32)
        if self.dtype == "int8":
            return rng.integers(-128, 128, self.shape, dtype=np.int8)
        order = self.order or tuple(range(len(self.shape)))
        stored = rng.standard_normal([self.shape[axis] for axis in order], dtype=np.float32)
        return stored.transpose([order.index(axis) for axis in range(len(order))])


@dataclass(frozen=True, slots=True)
class Einsum:
    """A contraction; ``subscripts`` are those of ``numpy.einsum``."""

    subscripts: str


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution of ``(N,C,H,W)`` or ``(N,C,W)`` without padding; a third input is a bias of the channels.

    With an ``axis``, groups are an axis of their own, after the first: ``(N,G,C,H,W)``, ``(G,F,C,KH,KW)`` and
    ``(G,F)``.  If ``depthwise``, each channel has its own filter ``(C,KH,KW)``.
    """

    stride: int = 1
    dilation: int = 1
    group_axis: bool = False
    depthwise: bool = False


Formula = Einsum | Convolution | str
"""A name stands for a function of ``cpu_formulas``."""


@dataclass(frozen=True, slots=True)
class Case:
    """A program on inputs of given shapes.

    ``flops`` are the definition's operations, ``least_bytes`` the inputs read and the outputs written once; ``bound``
    says which of the machine's limits a share is given of.  ``constants`` are the values of ``const`` parameters, which
    come last.
    """

    key: str
    title: str
    text: str
    formula: Formula
    inputs: tuple[Input, ...]
    output: Shape
    flops: int
    bound: Bound = "fp32"
    constants: tuple[int, ...] = ()
    read_bytes: int = 0
    """Bytes that must be read, where that is not every input once."""

    @property
    def output_dtype(self) -> ElementType:
        """Sums of int8 are int32; everything else is float32."""
        return "int32" if self.inputs[0].dtype == "int8" else "float32"

    @property
    def least_bytes(self) -> int:
        """Bytes that no implementation can avoid to move."""
        read = sum(math.prod(i.shape) * np.dtype(i.dtype).itemsize for i in self.inputs)
        return (self.read_bytes or read) + 4 * math.prod(self.output)

    def make_inputs(self) -> list[Array]:
        """The arrays, the same in every process."""
        rng = np.random.default_rng(0)
        return [i.make(rng) for i in self.inputs]


def letters_of(subscripts: str) -> tuple[list[str], str]:
    """The indices of the factors and those of the result."""
    factors, _, result = subscripts.partition("->")
    return factors.split(","), result


def contraction_text(subscripts: str) -> str:
    """A contraction as a program."""
    factors, result = letters_of(subscripts)
    names = [chr(ord("A") + n) for n in range(len(factors))]
    parameters = ", ".join(f"float({','.join(f.upper())}) T{n}" for n, f in zip(names, factors, strict=True))
    reads = " * ".join(f"T{n}({','.join(f)})" for n, f in zip(names, factors, strict=True))
    return f"def contraction({parameters}) -> (O) {{ O({','.join(result)}) +=! {reads} }}"


def contraction(key: str, title: str, subscripts: str, extents: Sequence[tuple[str, int]], text: str = "") -> Case:
    """A case that is a contraction; ``extents`` gives the size of each index."""
    size = dict(extents)
    factors, result = letters_of(subscripts)
    return Case(
        key, title, text or contraction_text(subscripts), Einsum(subscripts),
        tuple(Input(tuple(size[letter] for letter in factor)) for factor in factors),
        tuple(size[letter] for letter in result), len(factors) * math.prod(size.values()),
    )  # fmt: skip
