"""What a kernel's innermost loop is made of: instructions of its machine code, counted by name."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

import pytest

from tcomp.backends.cuda.tools import nvrtc, sass
from tcomp.backends.cuda.tools.images import compile_image
from tcomp.backends.source import Source
from tcomp.errors import TargetError

_KERNEL = re.compile(r"^\.text\.(\w+):")
_LABEL = re.compile(r"^(\.L_x_\d+):")
_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)\b(.*)")
_GOAL = re.compile(r"`\((\.L_x_\d+)\)")


@dataclass(frozen=True)
class Loop:
    """The instructions between a label and the branch back to it, by their names with all that follows a dot."""

    counts: Counter[str]

    @property
    def total(self) -> int:
        """How many instructions there are."""
        return self.counts.total()

    def count(self, *names: str) -> int:
        """How many have one of some names, or one of them and a dot behind."""
        return sum(n for name, n in self.counts.items() if any(name == w or name.startswith(f"{w}.") for w in names))

    def share(self, name: str) -> float:
        """Which part of all instructions has a name."""
        return self.count(name) / self.total


def innermost_loops(text: str) -> dict[str, list[Loop]]:
    """The loops of each kernel in a disassembly that have no loop inside, in the order of the text."""
    return {name: _loops(lines) for name, lines in _kernels(text).items()}


def busiest_loop(loops: list[Loop], instruction: str) -> Loop:
    """The loop that has most of an instruction."""
    return max(loops, key=lambda loop: loop.count(instruction))


def loops_of(source: Source, architecture: str = "sm_90") -> dict[str, list[Loop]]:
    """The innermost loops of every kernel of a source; skips the test where NVIDIA's tools are missing."""
    try:
        nvrtc.find()
        sass.find()
    except TargetError as error:
        pytest.skip(error.message)
    return innermost_loops(sass.disassemble(compile_image(source, architecture)))


def counted(source: Source, kernel: str, instruction: str, architecture: str = "sm_90") -> Loop:
    """The outermost loop of a kernel around an instruction; skips the test where NVIDIA's tools are missing."""
    try:
        nvrtc.find()
        sass.find()
    except TargetError as error:
        pytest.skip(error.message)
    lines = _kernels(sass.disassemble(compile_image(source, architecture)))[kernel]
    instructions, spans = _spans(lines)
    outer = [s for s in spans if not any(o != s and o[0] <= s[0] and s[1] <= o[1] for o in spans)]
    return busiest_loop([Loop(Counter(instructions[first:end])) for first, end in outer], instruction)


def instructions_of(source: Source, architecture: str = "sm_90") -> Loop:
    """All instructions of the only kernel of a source; skips the test where NVIDIA's tools are missing."""
    try:
        nvrtc.find()
        sass.find()
    except TargetError as error:
        pytest.skip(error.message)
    (lines,) = _kernels(sass.disassemble(compile_image(source, architecture))).values()
    return Loop(Counter(found[1] for line in lines if (found := _INSTRUCTION.match(line)) is not None))


def _kernels(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        begins = _KERNEL.match(line)
        if begins is not None:
            found[begins[1]] = []
        elif found:
            next(reversed(found.values())).append(line)
    return found


def _loops(lines: list[str]) -> list[Loop]:
    instructions, spans = _spans(lines)
    inner = [s for s in spans if not any(o != s and s[0] <= o[0] and o[1] <= s[1] for o in spans)]
    return [Loop(Counter(instructions[first:end])) for first, end in sorted(inner)]


def _spans(lines: list[str]) -> tuple[list[str], list[tuple[int, int]]]:
    """The instructions of a kernel by name, and where its loops begin and end."""
    labels: dict[str, int] = {}
    instructions: list[str] = []
    spans: list[tuple[int, int]] = []
    for line in lines:
        label, instruction = _LABEL.match(line), _INSTRUCTION.match(line)
        if label is not None:
            labels[label[1]] = len(instructions)
        elif instruction is not None:
            instructions.append(instruction[1])
            goal = _GOAL.search(instruction[2])
            # The endless loop behind the end of a kernel is its branch alone.
            if goal is not None and labels.get(goal[1], len(instructions)) < len(instructions) - 1:
                spans.append((labels[goal[1]], len(instructions)))
    return instructions, spans
