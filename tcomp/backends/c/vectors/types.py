"""Vector types of C, and vectors of which only the first lanes are in memory."""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.backends.dialect import C_STORAGE_TYPES, called
from tcomp.values.operators import DTYPES, DType

_NAME = called(r"([a-z]+\d+)_x(\d+)\b")


def vector_type(dtype: DType, lanes: int) -> str:
    """The name of a vector type; see ``vector_declarations``."""
    return f"tc_{dtype.name}_x{lanes}"


def vector_declarations(text: str) -> str:
    """The vector types that a text mentions; they may lie at any element, and alias the elements."""
    names = sorted(set(_NAME.findall(text)))
    return "".join(_declaration(name, int(lanes)) for name, lanes in names)


def _declaration(name: str, lanes: int) -> str:
    c = C_STORAGE_TYPES[name]
    size = DTYPES[name].itemsize
    vector = f"vector_size({size * lanes}), " if lanes > 1 else ""
    attributes = f"{vector}aligned({size}), may_alias"
    return f"typedef {c} tc_{name}_x{lanes} __attribute__(({attributes}));\n"


@dataclass(frozen=True, slots=True)
class PartialVector:
    """The first ``count`` lanes of a vector in memory, more than half of them: halves that overlap."""

    dtype: DType
    count: int
    lanes: int

    def loaded(self, where: str) -> str:
        """The C text of the vector at an address; its other lanes are anything."""
        half = self.lanes // 2
        kind = vector_type(self.dtype, half)
        apart = self.count - half
        order = [*range(half), *(half + min(lane - apart, half - 1) for lane in range(half, self.lanes))]
        halves = f"*(const {kind} *)({where}), *(const {kind} *)({where} + {apart})"
        return f"__builtin_shufflevector({halves}, {', '.join(map(str, order))})"

    def stored(self, where: str, vector: str) -> str:
        """The C statements that store a vector to an address."""
        half = self.lanes // 2
        kind = vector_type(self.dtype, half)
        parts = ((0, half), (self.count - half, self.count))
        return " ".join(
            f"*({kind} *)({where} + {start}) = "
            f"__builtin_shufflevector({vector}, {vector}, {', '.join(map(str, range(start, end)))});"
            for start, end in parts
        )
