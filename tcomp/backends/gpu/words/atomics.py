"""What a kernel calls to combine a value into an element that other threads may combine values into, too."""

from __future__ import annotations

from tcomp.values.operators import DType

_NAMES = {"+": "sum", "*": "product", "min": "min", "max": "max"}


def atomic_name(reduction: str, dtype: DType) -> str:
    """The function for a reduction of elements of a type; it takes the address of the element, and the value."""
    return f"tc_atomic_{_NAMES[reduction]}_{dtype.name}"
