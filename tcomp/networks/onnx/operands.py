"""What the rules for ONNX work with: operands that may be known, nodes with several results, a builder for both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from tcomp.networks.importing import Array, Builder, Node
from tcomp.networks.network import Definition, Number, Value, retyped
from tcomp.networks.texts.general import conversion

FLOATS = ("float32", "float64", "float16")
INTEGERS = tuple(f"{sign}int{width}" for sign in ("", "u") for width in (8, 16, 32, 64))


@dataclass(frozen=True, eq=False)
class Constant:
    """An operand that depends on no input."""

    name: str
    array: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.array.shape)

    @property
    def dtype(self) -> str:
        return self.array.dtype.name


Operand = Value | Constant


def empty(node: Node) -> Constant:
    """A result without elements, of which all is known."""
    return Constant(node.name, np.zeros(node.shape, node.dtype))


@dataclass(frozen=True)
class OnnxNode(Node):
    """A node whose ``results`` are nodes of one result each; those that nobody wants have no name."""

    results: tuple[Node, ...] = ()
    opset: int = 0

    @property
    def several(self) -> bool:
        """Whether more than the first result is wanted."""
        return any(result.name for result in self.results[1:])

    def known(self, operand: Operand | None, what: str) -> Array | None:
        """The array of an operand that must be known, if there is one.  Raises NetworkError."""
        if operand is None:
            return None
        if isinstance(operand, Value):
            raise self.refuse(f"reads {what} from an input", "they must be known when the network is read")
        return operand.array

    def integers(self, operand: Operand | Sequence[int] | None, what: str) -> tuple[int, ...] | None:
        """Numbers that older opsets have as an attribute and newer ones as an operand."""
        if operand is None or isinstance(operand, (list, tuple)):
            return None if operand is None else tuple(operand)
        found = self.known(operand, what)  # type: ignore[arg-type]
        return None if found is None else tuple(int(k) for k in np.ravel(found))

    def axis(self, axis: int, rank: int) -> int:
        """A dimension counted from the front.  Raises NetworkError."""
        if not -rank <= axis < max(rank, 1):
            raise self.refuse(f"has axis {axis} of {rank}")
        return axis % rank if rank else 0


class OnnxBuilder(Builder):
    """A builder that takes operands that are known: they become weights where a call reads them."""

    arguments = (*FLOATS, *INTEGERS, "bool")
    results = arguments

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._weight_of: dict[int, tuple[Constant, Value]] = {}

    def value(self, operand: Operand) -> Value:
        """The operand as a value."""
        if isinstance(operand, Value):
            return operand
        kept = self._weight_of.get(id(operand))
        if kept is None:
            self._weight_of[id(operand)] = kept = (operand, self.weight(operand.name, operand.array))
        return kept[1]

    def call(
        self, node: Node, definition: Definition, arguments: Sequence[Operand | None], **constants: Number
    ) -> Value:
        """Call a def; see ``Builder.call``."""
        return self.several([node], definition, arguments, **constants)[0]

    def several(
        self, nodes: Sequence[Node], definition: Definition, arguments: Sequence[Operand | None], **constants: Number
    ) -> list[Value]:
        """Call a def; see ``Builder.several``."""
        for node in nodes:
            if min(node.shape, default=0) < 0:
                raise node.refuse("has a shape that depends on an input", "sizes must be fixed")
            if 0 in node.shape:
                raise node.refuse(f"gives a tensor without elements, of {node.shape}")
        given = [None if operand is None else self.value(operand) for operand in arguments]
        return super().several(nodes, definition, given, **constants)

    def make(
        self,
        node: Node,
        definition: Definition,
        arguments: Sequence[Operand | None],
        shape: Sequence[int],
        name: str = "inner",
        **constants: Number,
    ) -> Value:
        """Call a def for something on the way to a node's result."""
        inner = replace(node, name=f"{node.name}_{name}", shape=tuple(shape))
        return self.call(inner, definition, arguments, **constants)

    def numbers(
        self, node: Node, definition: Definition, arguments: Sequence[Operand | None], **constants: Number
    ) -> Value:
        """Call a def that is written for float32 with floats, or with int32."""
        if node.dtype == "int32":
            return self.call(node, retyped(definition, "int32"), arguments, **constants)
        return self.floats(node, definition, arguments, **constants)

    def floats(
        self, node: Node, definition: Definition, arguments: Sequence[Operand | None], **constants: Number
    ) -> Value:
        """Call a def that is written for float32 with floats of any width; those of 16 bits are converted."""
        types = {operand.dtype for operand in arguments if operand is not None and operand.dtype in FLOATS}
        if node.dtype not in FLOATS or types != {node.dtype}:
            raise node.refuse(f"takes {', '.join(sorted(types)) or 'no floats'} and gives {node.dtype}")
        if node.dtype != "float16":
            return self.call(node, retyped(definition, node.dtype), arguments, **constants)
        wide = [self._wide(node, operand) for operand in arguments]
        inner = replace(node, name=f"{node.name}_wide", dtype="float32")
        return self.call(
            node, conversion(len(node.shape), "float32", "float16"), [self.call(inner, definition, wide, **constants)]
        )

    def _wide(self, node: Node, operand: Operand | None) -> Operand | None:
        if operand is None or operand.dtype != "float16":
            return operand
        if isinstance(operand, Constant):
            return Constant(operand.name, operand.array.astype(np.float32))
        inner = replace(node, name=f"{operand.name}_wide", shape=operand.shape, dtype="float32")
        return self.call(inner, conversion(len(operand.shape), "float16", "float32"), [operand])
