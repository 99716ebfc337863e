"""A value combined into an element of which other threads may make something meanwhile."""

from __future__ import annotations

from tcomp.backends.dialect import C_STORAGE_TYPES, C_VALUE_TYPES, combine, load, store
from tcomp.values.operators import DType


def atomic_update(reduction: str, target: str, value: str, dtype: DType) -> str:
    """The statement: it tries again until the element is still what the value was combined with.

    What orders other memory is nothing that threads of a loop need: they wait for each other behind it.
    """
    element = C_STORAGE_TYPES[dtype.name]
    next_one = store(combine(reduction, load("seen", dtype), "given", dtype), dtype)
    exchanged = "__atomic_compare_exchange(at, &seen, &next, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED)"
    return (
        f"{{ {element} *const at = &{target}; const {C_VALUE_TYPES[dtype.name]} given = {value}; {element} seen, next; "
        f"__atomic_load(at, &seen, __ATOMIC_RELAXED); do next = {next_one}; while (!{exchanged}); }}"
    )
