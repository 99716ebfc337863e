"""Random ranges whose ends data give, and words for which of several values counts in an element that data choose."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tcomp.fuzzing.programs.choices import Choices
from tcomp.fuzzing.programs.subscripts import Known, Span, plain_read, shifted

MOST_IN_ROW = 3
"""Entries of a row, but for the last one."""


def integer_tensors(tensors: Mapping[str, Known]) -> list[Known]:
    """Those that can give the ends of ranges."""
    return [t for t in tensors.values() if t.dtype.is_integer and 0 not in t.box.extent]


def data_range(choices: Choices, span: Span, others: Sequence[Span], tensors: Sequence[Known]) -> str:
    """A range inside of those of an index, whose ends depend on elements of integer tensors and on other indices."""
    count = span.high - span.low + 1

    def element() -> str:
        return plain_read(choices, choices.pick(tensors), others, ())

    match choices.pick("lbu"):
        case "l":
            return f"{span.name} in {span.lower}:{shifted(f'{element()} % {count + 1}', span.low)}"
        case "b":
            first = choices.integer(0, count)
            lower = shifted(f"{element()} % {first + 1}", span.low)
            return f"{span.name} in {lower}:{lower} + {element()} % {count - first + 1}"
        case _:
            return f"{span.name} in {shifted(f'{element()} % {count + 1}', span.low)}:{span.upper}"


def rows_of(choices: Choices, name: str, rows: int, tensors: Sequence[Known]) -> tuple[str, int]:
    """A statement that writes where so many rows begin, one after another, and the most entries that they have."""
    most = choices.integer(1, MOST_IN_ROW)
    step = Span("r0", 0, rows - 1, "0", str(rows))
    length = f"{plain_read(choices, choices.pick(tensors), (step,), ())} % {most + 1}"
    return f"{name}(i0) +=! int32({length}) where i0 in 0:{rows + 1}, r0 in 0:i0", rows * most


def all_entries(name: str, starts: str, rows: int, entries: int) -> str:
    """A statement that writes where rows begin so that the last one ends with the last of so many entries."""
    return f"{name}(i0) = (i0 < {rows} ? min({starts}(i0), {entries}) : {entries}) where i0 in 0:{rows + 1}"


def orders(choices: Choices, subscripts: Sequence[str], spans: Sequence[Span]) -> list[str]:
    """Which instance counts in an element that data choose: ``last`` or ``first`` of each index that only they need."""
    data = [s for s in subscripts if "(" in s and "%" in s]
    plain = " ".join(s for s in subscripts if s not in data)
    names = [s.name for s in spans if any(_has(d, s.name) for d in data) and not _has(plain, s.name)]
    ordered = []
    while names:
        ordered.append(f"{choices.pick(('last', 'first'))} {names.pop(choices.integer(0, len(names) - 1))}")
    return ordered


def _has(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None
