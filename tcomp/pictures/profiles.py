"""The loops of a kernel's C text with the share of the time that each takes, as measured."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tcomp.backends.host.runtime import workspace
from tcomp.backends.host.sampling import sample_lines
from tcomp.backends.source import Source
from tcomp.driver import Compilation
from tcomp.errors import TcompError
from tcomp.grammar.ranges.ranges import infer
from tcomp.grammar.tree.function import Function
from tcomp.model.evaluation import numpy_dtype
from tcomp.model.madeup import Array, random_arguments
from tcomp.model.terms.sizes import Sizes
from tcomp.pictures.canvas import Picture
from tcomp.pictures.loopnames import LoopNames
from tcomp.pictures.rates import draw_shares

_SHOWN, _SHOWN_ALONE, _FEWEST = 0.005, 0.02, 100
_SECONDS = 2.0
_LOOP = re.compile(r"\s*for \(")


@dataclass(frozen=True, slots=True)
class ProfiledLine:
    """A line of a kernel's text, counted from 1: a loop with the share of the time that it takes with all that is in
    it, or a line outside of the innermost loops with its own.  ``depth`` counts the loops around it.

    ``name`` is what a loop is in the program: ``k of C``, ``tiles of m of C``; empty where that is not known.
    """

    number: int
    depth: int
    text: str
    share: float
    name: str = ""


@dataclass(frozen=True, slots=True)
class Profile:
    """Where the time of a kernel goes: the loops of its text that take half a percent of it or more, and what
    takes two beside them, in order."""

    lines: tuple[ProfiledLine, ...]
    samples: int
    """How often the kernel was asked where it is: the error of a share p is some sqrt(p (1 - p) / samples)."""

    def draw(self) -> Picture:
        """The loops, and beside each line its share."""
        return draw_shares([(line.depth, _named(line), line.share) for line in self.lines], "share of the time")

    def __str__(self) -> str:
        return "".join(f"{100 * line.share:5.1f} %  {'  ' * line.depth}{_named(line)}\n" for line in self.lines)


def _named(line: ProfiledLine) -> str:
    return f"{line.name}: {line.text}" if line.name else line.text


def profile(
    source: Source, function: Function, sizes: Sizes, seconds: float = _SECONDS, names: LoopNames | None = None
) -> Profile:
    """Where the time of a kernel for a processor goes, as its calling thread has it.

    It runs on random arguments, for two seconds at most.  Raises TcompError for other targets, for a kernel that is too
    short, and where the system cannot tell.  ``names`` knows what loops are in the program.
    """
    if source.launches:
        raise TcompError('lines are timed on a processor; "banks" has what accesses cost on a GPU')
    arrays = made_up_arrays(source, function, sizes)
    scratch, kept, _, report = workspace(source.scratch_bytes)
    counts = sample_lines(source, (*(a.ctypes.data for a in arrays), scratch, report), seconds)
    del kept
    if sum(counts.values()) < _FEWEST:
        raise TcompError("the kernel is too short: Python around it takes nearly all of the time")
    return Profile(profiled(source.text, counts, names), sum(counts.values()))


def names_of(compilation: object) -> LoopNames | None:
    """What names the loops of a compilation; None for a program in pieces."""
    return LoopNames(compilation) if isinstance(compilation, Compilation) else None


def made_up_arrays(source: Source, function: Function, sizes: Sizes) -> list[Array]:
    """An array for each argument of a kernel, with random values where it is read."""
    arguments = random_arguments(function, infer(function, sizes.values), 0)
    given = dict(zip((t.name for t in function.inputs), arguments.values, strict=True)) | arguments.fresh_contents()
    found = []
    for argument in source.arguments:
        value = given.get(argument.name)
        empty = np.zeros(argument.shape, numpy_dtype(argument.dtype))
        found.append(np.ascontiguousarray(value) if isinstance(value, np.ndarray) else empty)
    return found


def profiled(text: str, counts: Counter[int], names: LoopNames | None = None) -> tuple[ProfiledLine, ...]:
    """The lines worth a look, given how often each was met."""
    lines, total = text.splitlines(), max(1, sum(counts.values()))
    found = []
    for number, end, depth in _blocks(lines):
        share = sum(counts[place] for place in range(number, end + 1)) / total
        if share >= (_SHOWN if end > number else _SHOWN_ALONE):
            name = names.of(lines[number - 1 : end]) if names is not None else ""
            found.append(ProfiledLine(number, depth, lines[number - 1].strip().removesuffix(" {"), share, name))
    return tuple(found)


def _blocks(lines: Sequence[str]) -> Iterator[tuple[int, int, int]]:
    """Loops, and lines outside of innermost loops: the first line, the last, and how many loops are around."""
    found: list[tuple[int, int, int]] = []
    around: list[tuple[int, int]] = []
    level = 0
    for number, line in enumerate(lines, 1):
        if _LOOP.match(line):
            around.append((len(found), level))
        if line.strip(" {}"):
            found.append((number, number, len(around) - bool(_LOOP.match(line))))
        level += line.count("{") - line.count("}")
        while around and level <= around[-1][1]:
            place, _ = around.pop()
            first, _, depth = found[place]
            found[place] = (first, number, depth)
            if not any(_LOOP.match(lines[below - 1]) for below, _, _ in found[place + 1 :]):
                del found[place + 1 :]
    yield from found
