"""Faults to plant in CUDA text that the compiler made: each changes one place and keeps the numbers of all lines."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from tcomp.backends.source import REPORT, Source

BARRIER = "__syncthreads();"

_SHARED = re.compile(r"__shared__ (?:__align__\(\d+\) )?[\w ]+? (\w+)((?:\[\d+\])*);")
_SIGNATURE = re.compile(r'extern "C" __global__ .*?\n(\w+)\((.*?)\)\n\{', re.DOTALL)
_PARAMETER = re.compile(r"(\w+)$")


class FaultKind(StrEnum):
    """What is wrong with the text."""

    BARRIER_REMOVED = "barrier removed"
    BARRIER_SWAPPED = "barrier swapped"
    OFF_BY_ONE = "index off by one"
    GUARD_REMOVED = "guard removed"
    WRITE_REMOVED = "shared write removed"
    ARRAY_SHRUNK = "shared array shrunk"
    WAIT_REMOVED = "wait for copies removed"
    WAIT_SHORT = "wait for too few copies"
    STAGE_IN_USE = "copy into the stage in use"


@dataclass(frozen=True)
class Fault:
    """A faulty text, the kernel with the fault, and the buffers of which one must be reported; none for any."""

    kind: FaultKind
    kernel: str
    buffers: frozenset[str]
    line: int
    text: str
    change: str

    def __str__(self) -> str:
        return f"{self.kind} in {self.kernel}, line {self.line}: {self.change}"


@dataclass(frozen=True)
class Kernel:
    """One kernel of a text: its lines from the opening to the closing brace, and what it reads and writes.

    ``shared`` has the extents of the arrays in shared memory, ``tensors`` the names of tensors by that of parameters.
    """

    name: str
    first: int
    last: int
    shared: dict[str, tuple[int, ...]]
    tensors: dict[str, str]

    def buffer(self, name: str) -> str:
        """What the simulator calls the memory that a name stands for."""
        return self.tensors.get(name, name)


def kernels_of(source: Source) -> list[Kernel]:
    """The kernels of a source, in order."""
    lines = source.text.split("\n")
    launches = {launch.kernel: launch for launch in source.launches}
    found = []
    for match in _SIGNATURE.finditer(source.text):
        first = source.text.count("\n", 0, match.end())
        last = next(n for n in range(first, len(lines)) if lines[n] == "}")
        body = "\n".join(lines[first:last])
        shared = {m[1]: tuple(int(e) for e in re.findall(r"\d+", m[2])) for m in _SHARED.finditer(body)}
        parameters = [_last_word(p) for p in match[2].split(",")]
        arguments = launches[match[1]].arguments
        tensors = {p: a for p, a in zip(parameters, arguments, strict=True) if a != REPORT}
        found.append(Kernel(match[1], first, last, shared, tensors))
    return found


def _last_word(parameter: str) -> str:
    match = _PARAMETER.search(parameter.strip())
    assert match is not None
    return match[1]


@dataclass(frozen=True)
class Access:
    """An access ``name[...]...[...]`` of memory that threads share, at columns of a line; ``written`` if assigned.

    What is shared may be a scalar, too, without subscripts.
    """

    name: str
    start: int
    end: int
    written: bool
    subscripts: tuple[tuple[int, int], ...]


def accesses(kernel: Kernel, line: str) -> list[Access]:
    """The accesses on a line, from left to right."""
    found = []
    if "__shared__" in line or line.lstrip().startswith("//"):
        return []
    code = line.partition("//")[0]
    for name in {*kernel.shared, *kernel.tensors}:
        end_of_name = r"(?!\w)" if kernel.shared.get(name) == () else r"(?=\[)"
        for match in re.finditer(rf"(?<![\w.]){name}{end_of_name}", code):
            end, subscripts = match.end(), []
            while end < len(code) and code[end] == "[":
                close = _closing(code, end)
                subscripts.append((end + 1, close))
                end = close + 1
            written = bool(re.match(r" (?:=|\+=) ", code[end:]))
            found.append(Access(name, match.start(), end, written, tuple(subscripts)))
    return sorted(found, key=lambda a: a.start)


def _closing(code: str, opening: int) -> int:
    pair = {"[": "]", "(": ")", "{": "}"}[code[opening]]
    depth = 0
    for n in range(opening, len(code)):
        depth += (code[n] == code[opening]) - (code[n] == pair)
        if depth == 0:
            return n
    raise AssertionError(f"{code!r} has no {pair}")


def faults(source: Source) -> Iterator[Fault]:
    """Every fault that can be planted in a source, kind by kind."""
    lines = source.text.split("\n")
    for kernel in kernels_of(source):
        planter = _Planter(kernel, lines)
        yield from planter.barriers()
        yield from planter.indices()
        yield from planter.guards()
        yield from planter.writes()
        yield from planter.arrays()
        yield from planter.pipelines()


class _Planter:
    def __init__(self, kernel: Kernel, lines: list[str]) -> None:
        self.kernel = kernel
        self.lines = lines
        self.body = range(kernel.first + 1, kernel.last)

    def fault(
        self, kind: FaultKind, number: int, changes: dict[int, str], change: str, buffers: set[str] | None = None
    ) -> Fault:
        """The fault that some lines make, by number from 0."""
        lines = [changes.get(n, line) for n, line in enumerate(self.lines)]
        names = frozenset(self.kernel.buffer(b) for b in buffers or ())
        return Fault(kind, self.kernel.name, names, number + 1, "\n".join(lines), change)

    def barriers(self) -> Iterator[Fault]:
        """Each barrier taken away, or swapped with the copy that follows or precedes it."""
        for n in self.body:
            if self.lines[n].strip() != BARRIER:
                continue
            memory = {*self.kernel.shared, *self.kernel.tensors}
            yield self.fault(FaultKind.BARRIER_REMOVED, n, {n: ""}, BARRIER, memory)
            for loop in self._copies_next_to(n):
                span = self.lines[loop.start : loop.stop]
                moved = [self.lines[n], *span] if loop.start < n else [*span, self.lines[n]]
                start = min(loop.start, n)
                changes = {start + k: text for k, text in enumerate(moved)}
                yield self.fault(
                    FaultKind.BARRIER_SWAPPED, n, changes, f"with lines {loop.start + 1} to {loop.stop}", memory
                )

    def _copies_next_to(self, barrier: int) -> Iterator[range]:
        """The fetching loops just before and just behind a barrier."""
        for n in self.body:
            if re.match(r"\s*for \(.*// fetch ", self.lines[n]):
                first = n - 1 if self.lines[n - 1].strip().startswith("#pragma") else n
                close = self._end_of_block(n)
                if barrier in (close + 1, first - 1):
                    yield range(first, close + 1)

    def _end_of_block(self, opening: int) -> int:
        indent = re.match(r" *", self.lines[opening])
        assert indent is not None
        return next(n for n in range(opening + 1, self.kernel.last) if self.lines[n] == f"{indent[0]}}}")

    def pipelines(self) -> Iterator[Fault]:
        """Waits for asynchronous copies taken away or too short, and copies that go where threads still read."""
        for n in self.body:
            line = self.lines[n]
            shared = set(self.kernel.shared)
            wait = re.search(r"tc_copy_async_wait<(\d+)>\(\);", line)
            if wait:
                yield self.fault(FaultKind.WAIT_REMOVED, n, {n: ""}, wait[0], shared)
                longer = line.replace(f"<{wait[1]}>", f"<{int(wait[1]) + 1}>")
                yield self.fault(FaultKind.WAIT_SHORT, n, {n: longer}, longer.strip(), shared)
            asked = re.search(r"tc_ask\d+\(&(\w+)\[next_stage\]", line)
            if asked:
                changed = line.replace("[next_stage]", "[stage]")
                yield self.fault(FaultKind.STAGE_IN_USE, n, {n: changed}, changed.strip(), {asked[1]})

    def indices(self) -> Iterator[Fault]:
        """Each subscript of each access one too large."""
        for n in self.body:
            for access in accesses(self.kernel, self.lines[n]):
                for start, end in access.subscripts:
                    line = self.lines[n]
                    changed = f"{line[:start]}({line[start:end]}) + 1{line[end:]}"
                    yield self.fault(
                        FaultKind.OFF_BY_ONE,
                        n,
                        {n: changed},
                        changed[access.start : access.end + 6],
                        {access.name},
                    )

    def guards(self) -> Iterator[Fault]:
        """Each condition under which memory that threads share is accessed taken as true."""
        for n in self.body:
            line = self.lines[n]
            match = re.match(r"\s*if \(", line)
            if match is None:
                continue
            close = _closing(line, match.end() - 1)
            touched = {a.name for k in self._guarded(n) for a in accesses(self.kernel, self.lines[k])}
            if touched:
                changed = f"{line[: match.end()]}true{line[close:]}"
                yield self.fault(FaultKind.GUARD_REMOVED, n, {n: changed}, line.strip())

    def _guarded(self, number: int) -> range:
        if not self.lines[number].rstrip().endswith("{"):
            return range(number, number + 1)
        return range(number + 1, self._end_of_branch(number))

    def _end_of_branch(self, opening: int) -> int:
        indent = re.match(r" *", self.lines[opening])
        assert indent is not None
        return next(n for n in range(opening + 1, self.kernel.last + 1) if self.lines[n].startswith(f"{indent[0]}}}"))

    def writes(self) -> Iterator[Fault]:
        """Each assignment to shared memory left out."""
        for n in self.body:
            line = self.lines[n]
            for access in accesses(self.kernel, line):
                if access.name in self.kernel.shared and access.written and line[access.end :].startswith(" = "):
                    start = re.match(r"\s*(?:(?:for|if) \()?", line)
                    assert start is not None
                    changed = f"{line[: access.start]};"
                    yield self.fault(FaultKind.WRITE_REMOVED, n, {n: changed}, line.strip(), {access.name})

    def arrays(self) -> Iterator[Fault]:
        """Each extent of each shared array halved."""
        for n in self.body:
            match = _SHARED.search(self.lines[n])
            if match is None:
                continue
            extents = self.kernel.shared[match[1]]
            for d, extent in enumerate(extents):
                if extent > 1:
                    halved = "".join(f"[{-(-e // 2) if k == d else e}]" for k, e in enumerate(extents))
                    changed = self.lines[n].replace(f"{match[1]}{match[2]}", f"{match[1]}{halved}")
                    yield self.fault(FaultKind.ARRAY_SHRUNK, n, {n: changed}, changed.strip(), {match[1]})
