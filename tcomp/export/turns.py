"""The launches of a kernel that runs step by step, as loops: launches that repeat, but for numbers that grow evenly.

(0, 0, 0, 1), (0, 64, 64, 2), (0, 128, 128, 3)      becomes      3 times (0, 0, 0, 1), each moved by (0, 64, 64, 1)
"""

from __future__ import annotations

from collections.abc import Sequence

from tcomp.backends.source import Launch, Source, Turn

LONGEST = 16
"""Launches that repeat together, at most."""

Values = tuple[tuple[int, int], ...]
"""What is added to each pointer that a launch takes, and its steps: the first time, and how much more each time."""

Turns = list[tuple[int, tuple[tuple[Launch, Values], ...]]]
"""How often some launches run one after another, and each of them with its values."""


def turns_of(source: Source) -> Turns:
    """All launches that have blocks, in order; those that do not repeat stand together."""
    turns = [turn for turn in source.order if 0 not in source.launches[turn[0]].grid]
    found: Turns = []
    position = 0
    while position < len(turns):
        length, count = _best(turns, position)
        first = turns[position : position + length]
        second = turns[position + length : position + 2 * length] if count > 1 else first
        body = tuple(_valued(source, a, b) for a, b in zip(first, second, strict=True))
        if count == 1 and found and found[-1][0] == 1:
            found[-1] = 1, (*found[-1][1], *body)
        else:
            found.append((count, body))
        position += length * count
    return found


def _valued(source: Source, first: Turn, second: Turn) -> tuple[Launch, Values]:
    values = zip(first[1:], second[1:], strict=True)
    return source.launches[first[0]], tuple((a, b - a) for a, b in values)


def _best(turns: Sequence[Turn], position: int) -> tuple[int, int]:
    """How many launches repeat from a position on, and how often; the shortest that reach farthest."""
    best = 1, 1
    for length in range(1, min(LONGEST, (len(turns) - position) // 2) + 1):
        count = 1 + _repeated(turns, position, length)
        if count > 1 and length * count > best[0] * best[1]:
            best = length, count
        if length * count == len(turns) - position:
            break
    return best


def _repeated(turns: Sequence[Turn], position: int, length: int) -> int:
    """How often ``length`` launches come again, each moved by as much as the first time."""
    count = 0
    for at in range(position + length, len(turns) - length + 1, length):
        for n in range(at, at + length):
            before, own = turns[n - length], turns[n]
            if len(before) != len(own) or before[0] != own[0]:
                return count
            if count and any(c - b != b - a for a, b, c in zip(turns[n - 2 * length], before, own, strict=True)):
                return count
        count += 1
    return count


def c_value(first: int, move: int) -> str:
    """What a value is in C, in the loop over ``tc_turn``."""
    return f"{first}LL + tc_turn * {move}LL" if move else f"{first}LL"
