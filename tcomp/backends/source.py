"""What a backend's ``emit`` gives: program text and everything a caller must know to run it."""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.operators import DType


@dataclass(frozen=True, slots=True)
class Argument:
    """One tensor pointer of the entry point.

    ``shape`` and ``strides`` (in elements) describe the array handed in or out; the pointer addresses the element
    whose index is all zeros.  ``role`` is "input", "output" or "inout" (an output whose content is read).
    """

    name: str
    dtype: DType
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    role: str


@dataclass(frozen=True, slots=True)
class IndexCheck:
    """A data-dependent subscript: it must lie in ``[origin, origin + extent)`` of a dimension of ``tensor``.

    ``subscript`` is its text, which stands at ``[start, end)`` of the program; ``indices`` names the indices whose
    values the kernel reports when the check fails.
    """

    tensor: str
    dimension: int
    extent: int
    origin: int
    subscript: str
    start: int
    end: int
    indices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Source:
    """Text of a kernel.

    A CPU kernel is ``int32_t entry(inputs..., outputs..., char *scratch, int64_t *report)``: inputs in parameter order,
    outputs in order, ``scratch`` 64-byte aligned and ``scratch_bytes`` long (null where that is 0).  It returns 0, or
    1 after an indirect subscript was outside its tensor; then ``report[0]`` is the position in ``checks``,
    ``report[1]`` the subscript's value, and from ``report[3]`` on stand the values of the check's indices.
    """

    text: str
    entry: str
    arguments: tuple[Argument, ...]
    scratch_bytes: int
    checks: tuple[IndexCheck, ...]
    flags: tuple[str, ...]
