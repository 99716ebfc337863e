"""Square blocks of elements, a row in each vector, transposed in registers."""

from __future__ import annotations

from collections.abc import Sequence

_PIECE_BYTES = 16
"""What instructions of x86 move elements within; those that move them across take longer, or are several."""

Pattern = tuple[Sequence[int], Sequence[int]]
"""Which elements of two vectors, those of the second counted on, are those of the first result, and of the second."""


def transposed_rows(vector: str, lanes: int, itemsize: int) -> tuple[list[str], list[str]]:
    """The lines that transpose the vectors ``r0_0``, ``r0_1`` and so on, as many as they have lanes, and the results.

    Elements are interleaved within pieces of 16 bytes, at first single ones, then pairs, and so on; pieces as a whole
    change places between vectors last.  So each line is one instruction.
    """
    inside = min(lanes, _PIECE_BYTES // itemsize)
    pieces = lanes // inside
    turning = _Turning(vector, f"tc_uint64_x{lanes // 2}" if itemsize == 4 else None)
    blocks = [
        turning.split([f"r0_{piece * inside + row}" for row in range(inside)], _interleaved(lanes, inside))
        for piece in range(pieces)
    ]
    found = [""] * lanes
    every_other = _every_other(lanes, inside)
    stages = pieces.bit_length() - 1
    for column in range(inside):
        whole = turning.split([block[column] for block in blocks], [every_other] * stages)
        for place, name in enumerate(whole):
            # The first stage tells even pieces from odd ones, so that it is the last digit of which piece it is.
            piece = sum(1 << digit for digit in range(stages) if place >> (stages - 1 - digit) & 1)
            found[piece * inside + column] = name
    return turning.lines, found


class _Turning:
    """The lines so far, each of which makes a vector of two others."""

    def __init__(self, vector: str, wide: str | None) -> None:
        """``wide`` is the type of vectors of pairs of elements: gcc 12 sees by it that pairs stay together."""
        self.vector = vector
        self.wide = wide
        self.lines: list[str] = []

    def split(self, names: list[str], stages: Sequence[Pattern]) -> list[str]:
        """Neighbouring vectors combined by each of the ``stages``: all first results, then all second ones."""
        if not stages:
            return names
        halves = [
            [self._shuffled(a, b, order) for a, b in zip(names[::2], names[1::2], strict=True)] for order in stages[0]
        ]
        return [name for half in halves for name in self.split(half, stages[1:])]

    def _shuffled(self, a: str, b: str, order: Sequence[int]) -> str:
        name = f"t{len(self.lines)}"
        elements, value = order, "__builtin_shufflevector({}, {}, {})"
        if self.wide is not None and [*order[1::2]] == [n + 1 for n in order[::2]]:
            a, b, elements = f"({self.wide}){a}", f"({self.wide}){b}", [n // 2 for n in order[::2]]
            value = f"({self.vector}){value}"
        self.lines.append(f"{self.vector} {name} = {value.format(a, b, ', '.join(map(str, elements)))};")
        return name


def _interleaved(lanes: int, inside: int) -> list[Pattern]:
    """Stages that interleave groups of 1, 2 and so on elements of the halves of each piece."""
    return [
        (_alternating(lanes, inside, group, 0), _alternating(lanes, inside, group, inside // 2))
        for group in (1 << stage for stage in range(inside.bit_length() - 1))
    ]


def _alternating(lanes: int, inside: int, group: int, first: int) -> list[int]:
    starts = [piece + first + start for piece in range(0, lanes, inside) for start in range(0, inside // 2, group)]
    return [vector + start + n for start in starts for vector in (0, lanes) for n in range(group)]


def _every_other(lanes: int, inside: int) -> Pattern:
    """Even pieces of both vectors, and odd ones."""
    even, odd = (
        [piece + n for piece in range(first, 2 * lanes, 2 * inside) for n in range(inside)] for first in (0, inside)
    )
    return even, odd
