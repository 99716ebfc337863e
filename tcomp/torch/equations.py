"""Patterns such as ``"b i k, k j -> b i j"`` as lists of indices: what each tensor has, and the result."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tcomp.errors import TcompError

ELLIPSIS = "..."
"""As an index of a pattern: the dimensions of a tensor that have no names.  They begin so as indices of tensors."""

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Equation:
    """The indices of each tensor and of the result, which is None where the pattern leaves it to the rule."""

    pattern: str
    operands: tuple[tuple[str, ...], ...]
    result: tuple[str, ...] | None

    def spread(self, ranks: Sequence[int]) -> Equation:
        """The same for tensors of known ranks: an index for each dimension that an ellipsis stands for.

        Dimensions of an ellipsis are counted from its end, as those that NumPy broadcasts.
        Raises TcompError where tensors have other ranks than the pattern says.
        """
        operands = tuple(self._spread_operand(n, rank) for n, rank in enumerate(ranks))
        counts = [rank - len(own) + 1 for own, rank in zip(self.operands, ranks, strict=True) if ELLIPSIS in own]
        unnamed = _unnamed(max(counts, default=0))
        if self.result is not None:
            return replace(self, operands=operands, result=_replaced(self.result, unnamed))
        found = [index for operand in self.operands for index in operand]
        once = sorted(index for index in set(found) if index != ELLIPSIS and found.count(index) == 1)
        return replace(self, operands=operands, result=(*unnamed, *once))

    def _spread_operand(self, number: int, rank: int) -> tuple[str, ...]:
        operand = self.operands[number]
        named = [index for index in operand if index != ELLIPSIS]
        has_rest = len(named) < len(operand)
        if rank < len(named) or (rank > len(named) and not has_rest):
            least = "at least " if has_rest else ""
            raise TcompError(
                f"the pattern {self.pattern!r} has {least}{len(named)} indices for tensor {number}, which has {rank} "
                f"dimensions{'' if has_rest else ' and no ellipsis'}"
            )
        return _replaced(operand, _unnamed(rank - len(named)))


def parsed(pattern: str) -> Equation:
    """Raises TcompError for a pattern that is none."""
    left, arrow, right = pattern.partition("->")
    lists = [part.replace(ELLIPSIS, f" {ELLIPSIS} ").strip() for part in (*left.split(","), right)]
    # Names are apart only where two of them are: ``"... ij"`` has two letters behind its ellipsis.
    spaced = any(re.search(r"\w\s+\w", part) for part in lists)
    *operands, result = (_indices(part, spaced, pattern) for part in lists)
    found = {index for operand in operands for index in operand}
    for index in result:
        if index not in found and index != ELLIPSIS:
            raise TcompError(f"the result of the pattern {pattern!r} has {index}, which no tensor has")
        if result.count(index) > 1:
            raise TcompError(f"the result of the pattern {pattern!r} has {index} twice")
    for number, operand in enumerate(operands):
        if operand.count(ELLIPSIS) > 1:
            raise TcompError(f"the pattern {pattern!r} has two ellipses for tensor {number}")
    return Equation(pattern, tuple(operands), result if arrow else None)


def pattern_of(lists: Sequence[Sequence[object]], result: Sequence[object] | None) -> str:
    """The pattern that lists of integers and ``...`` stand for.  Raises TcompError for other entries."""
    left = ",".join("".join(map(_letter, own)) for own in lists)
    return left if result is None else f"{left}->{''.join(map(_letter, result))}"


def _letter(entry: object) -> str:
    if entry is Ellipsis:
        return ELLIPSIS
    if not isinstance(entry, int) or not 0 <= entry < len(_LETTERS):
        raise TcompError(f"indices in lists are integers from 0 to {len(_LETTERS) - 1} or ..., not {entry!r}")
    return _LETTERS[entry]


def _indices(part: str, spaced: bool, pattern: str) -> tuple[str, ...]:
    words = part.split()
    found = tuple(i for word in words for i in ((word,) if spaced or word == ELLIPSIS else word))
    for index in found:
        if index != ELLIPSIS and not index.isidentifier():
            raise TcompError(f"{index!r} in the pattern {pattern!r} is no name of an index")
    return found


def _replaced(indices: Sequence[str], unnamed: Sequence[str]) -> tuple[str, ...]:
    return tuple(own for index in indices for own in (unnamed if index == ELLIPSIS else (index,)))


def _unnamed(count: int) -> tuple[str, ...]:
    return tuple(f"{ELLIPSIS}{place}" for place in range(count, 0, -1))
