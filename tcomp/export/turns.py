"""The launches of a kernel that runs step by step, as loops: launches that repeat, but for numbers that grow evenly.

(0, 0, 0, 1), (0, 64, 64, 2), (0, 128, 128, 3)      becomes      3 times (0, 0, 0, 1), each moved by (0, 64, 64, 1)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tcomp.backends.source import Launch, Source, Turn

LONGEST = 16
"""Launches that repeat together, at most."""

Loop = tuple[int, tuple[tuple[Turn, Turn], ...]]
"""How often some launches run, and each of them: as it is the first time, and how it moves from time to time."""


def loops_of(source: Source) -> list[Loop]:
    """All launches that have blocks, in order, numbered as those are."""
    numbers: dict[int, int] = {}
    for number, launch in enumerate(source.launches):
        if 0 not in launch.grid:
            numbers[number] = len(numbers)
    turns = [(numbers[number], *given) for number, *given in source.order if number in numbers]
    found: list[Loop] = []
    position = 0
    while position < len(turns):
        length, count = _best(turns, position)
        first = turns[position : position + length]
        second = turns[position + length : position + 2 * length] if count > 1 else first
        moves = [tuple(b - a for a, b in zip(x, y, strict=True)) for x, y in zip(first, second, strict=True)]
        found.append((count, tuple(zip(first, moves, strict=True))))
        position += length * count
    return found


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


def launched_in_turn(source: Source, functions: Sequence[str], places: Mapping[str, str]) -> list[str]:
    """The C text that launches a kernel of CUDA which runs step by step; ``places`` are the addresses of arguments."""
    launches = [launch for launch in source.launches if 0 not in launch.grid]
    lines = []
    for count, turns in loops_of(source):
        lines.append(f"  for (long long tc_turn = 0; tc_turn < {count} && status == CUDA_SUCCESS; tc_turn++) {{")
        for (number, *first), (_, *moves) in turns:
            lines += _launch(launches[number], functions.index(launches[number].kernel), first, moves, places)
        lines.append("  }")
    return lines


def _launch(
    launch: Launch, function: int, first: Sequence[int], moves: Sequence[int], places: Mapping[str, str]
) -> list[str]:  # fmt: skip
    values = [_value(a, b) for a, b in zip(first, moves, strict=True)]
    own = [f"{places[name]} + (CUdeviceptr)({value})" for name, value in zip(launch.arguments, values, strict=False)]
    steps = values[len(own) :]
    lines = [f"      CUdeviceptr tc_at{n} = {text};" for n, text in enumerate(own)]
    lines += [f"      long long tc_step{n} = {text};" for n, text in enumerate(steps)]
    passed = ", ".join([*(f"&tc_at{n}" for n in range(len(own))), *(f"&tc_step{n}" for n in range(len(steps)))])
    extents = ", ".join(map(str, (*launch.grid, *launch.block)))
    return [
        "    if (status == CUDA_SUCCESS) {",
        *lines,
        f"      void *const passed[] = {{{passed}}};",
        f"      status = cuLaunchKernel(module->functions[{function}], {extents}, {launch.shared_bytes}, stream,",
        "                              (void **)passed, NULL);",
        "    }",
    ]


def _value(first: int, move: int) -> str:
    return f"{first}LL + tc_turn * {move}LL" if move else f"{first}LL"
