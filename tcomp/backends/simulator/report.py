"""What a simulation found and counted, as values and as a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal

from tcomp.backends.source import Launch
from tcomp.errors import Diagnostic, TcompError

Space = Literal["global", "shared"]
AccessName = Literal["read", "write", "atomic"]
Extent = tuple[int, int, int]


class FindingKind(StrEnum):
    """What may be wrong with a kernel."""

    OUT_OF_BOUNDS = "access out of bounds"
    MISALIGNED = "misaligned access"
    UNINITIALISED = "read of uninitialised memory"
    RACE = "data race in a block"
    BLOCK_RACE = "data race between blocks"
    WRITE_TO_INPUT = "write to an input"
    DIVERGENT_BARRIER = "barrier under divergent control"
    DIVERGENT_WARP = "warp operation under divergent control"
    DIVISION_BY_ZERO = "integer division by zero"
    UNWRITTEN_OUTPUT = "output element never written"
    UNFENCED_REGISTERS = "product of a warpgroup without a fence of its registers"
    REGISTERS_IN_FLIGHT = "access to registers of a product under way"
    UNFENCED_MEMORY = "read of shared memory without a fence of its proxy"
    BAD_DESCRIPTOR = "descriptor of no operand"
    DEADLOCK = "wait at a barrier that never ends"
    COPY_LEFT = "tensor copy under way at the end of a block"


@dataclass(frozen=True, slots=True)
class Party:
    """A thread at a line of the text, counted from 1; None once it has returned, or where no trace is left of it."""

    block: Extent
    thread: Extent
    line: int | None
    statement: str | None

    def __str__(self) -> str:
        place = "" if self.line is None else f" at line {self.line}"
        return f"thread {self.thread} of block {self.block}{place}{f' ({self.statement})' if self.statement else ''}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault: where it was first seen, and how often it was seen at that line and buffer.

    ``buffer`` is an argument, a temporary or a shared variable, empty where none is touched; ``element`` spells the
    place in it.  ``party`` is the thread, None where none is to blame; ``other`` the one that a race is with, that
    did not come to a barrier, or that copied what was never written.
    """

    kind: FindingKind
    kernel: str
    buffer: str
    element: str
    access: AccessName | None
    party: Party | None
    text: str
    detail: str
    other: Party | None
    count: int

    @property
    def line(self) -> int | None:
        """The line of the text, counted from 1."""
        return None if self.party is None else self.party.line

    @property
    def statement(self) -> str | None:
        """The statement of the program that the line executes."""
        return None if self.party is None else self.party.statement

    def __str__(self) -> str:
        what = f"{self.access} of {self.element}" if self.access and self.element else self.element
        facts = ", ".join(part for part in (what, self.detail) if part)
        lines = [f"{self.kind}: {facts}" if facts else str(self.kind)]
        lines.append(f"  in {self.kernel}" + ("" if self.party is None else f", {self.party}"))
        if self.text:
            lines.append(f"    {self.text}")
        if self.other is not None:
            lines.append(f"  against {self.other}")
        if self.count > 1:
            lines.append(f"  seen {self.count} times")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class AccessCounts:
    """What the accesses of one width at one line to one buffer cost, over the whole grid.

    A request is what one instruction of a warp asks for; ``lanes`` sums the threads that took part and ``bytes`` what
    they asked for.  Sectors are the 32-byte pieces of global memory that requests touch, ideal ones the fewest that
    could hold their distinct bytes.  Wavefronts are passes over the 32 banks of shared memory, where ideal ones have no
    conflicts.
    """

    line: int | None
    statement: str | None
    text: str
    buffer: str
    space: Space
    access: AccessName
    bytes_per_lane: int
    requests: int
    lanes: int
    sectors: int
    ideal_sectors: int
    wavefronts: int
    ideal_wavefronts: int

    @property
    def bytes(self) -> int:
        """Bytes that threads asked for."""
        return self.lanes * self.bytes_per_lane

    @property
    def sectors_per_request(self) -> float:
        """Sectors that a request touches; 4 where 32 lanes read 4 bytes each, side by side and aligned."""
        return self.sectors / self.requests if self.requests else 0.0

    @property
    def conflicts(self) -> int:
        """Wavefronts beyond the ideal ones."""
        return self.wavefronts - self.ideal_wavefronts


@dataclass(frozen=True, slots=True)
class KernelCounts:
    """What one kernel of the launch sequence did, over the whole grid, and in all of its launches.

    ``counted_blocks`` blocks were watched; numbers are scaled from them to all.  ``barriers`` is per block, in
    all launches together.
    ``flops`` is None unless the flops of statements were given to ``load``.
    """

    kernel: str
    grid: Extent
    block: Extent
    counted_blocks: int
    barriers: float
    collectives: int
    flops: int | None
    accesses: tuple[AccessCounts, ...]

    def select(
        self, space: Space | None = None, access: AccessName | None = None, buffer: str | None = None
    ) -> Iterator[AccessCounts]:
        """The accesses to a kind of memory, of a kind, or to a buffer."""
        for a in self.accesses:
            if space in (None, a.space) and access in (None, a.access) and buffer in (None, a.buffer):
                yield a

    @property
    def global_bytes_read(self) -> int:
        """Bytes that threads asked global memory for."""
        return sum(a.bytes for a in self.select("global", "read"))

    @property
    def global_bytes_written(self) -> int:
        """Bytes that threads wrote to global memory."""
        return sum(a.bytes for a in self.select("global", "write"))

    @property
    def global_sectors(self) -> int:
        """Sectors of global memory touched, atomics included."""
        return sum(a.sectors for a in self.select("global"))

    @property
    def ideal_sectors(self) -> int:
        """The fewest sectors that could have held what each request asked for."""
        return sum(a.ideal_sectors for a in self.select("global"))

    @property
    def conflicts(self) -> int:
        """Shared memory wavefronts beyond the ideal ones."""
        return sum(a.conflicts for a in self.select("shared"))

    def __str__(self) -> str:
        blocks = self.grid[0] * self.grid[1] * self.grid[2]
        watched = "" if self.counted_blocks == blocks else f", counted in {self.counted_blocks}"
        flops = "" if self.flops is None else f", flops {self.flops}"
        sectors = f"{self.global_sectors} sectors (ideal {self.ideal_sectors})"
        head = f"""{self.kernel}: {blocks} blocks of {"x".join(map(str, self.block))} threads{watched}
  barriers per block {self.barriers:g}, warp operations {self.collectives}, bank conflicts {self.conflicts}{flops}
  global memory: {self.global_bytes_read} bytes read, {self.global_bytes_written} written, {sectors}"""
        rows = [_TITLES, *(_row(a) for a in self.accesses)]
        widths = [max(len(row[n]) for row in rows) for n in range(len(_TITLES))]
        return "\n".join([head, *(_aligned(row, widths) for row in rows)])


_TITLES = ("line", "statement", "buffer", "access", "requests", "bytes", "sectors/request", "ideal", "conflicts")
_TEXT_COLUMNS = (1, 2, 3)


def _aligned(row: tuple[str, ...], widths: list[int]) -> str:
    cells = [
        cell.ljust(width) if n in _TEXT_COLUMNS else cell.rjust(width)
        for n, (cell, width) in enumerate(zip(row, widths, strict=True))
    ]
    return ("  " + "  ".join(cells)).rstrip()


def _row(a: AccessCounts) -> tuple[str, ...]:
    shared = a.space == "shared"
    return (
        "?" if a.line is None else str(a.line),
        a.statement or "",
        a.buffer,
        f"{a.space} {a.access} {a.bytes_per_lane}",
        str(a.requests),
        str(a.bytes),
        "" if shared else f"{a.sectors_per_request:.2f}",
        "" if shared or not a.requests else f"{a.ideal_sectors / a.requests:.2f}",
        str(a.conflicts) if shared else "",
    )


def in_all(launch: Launch, counts: Sequence[KernelCounts]) -> KernelCounts:
    """What a kernel did in all of its launches."""
    summed: dict[tuple[Any, ...], AccessCounts] = {}
    for a in (a for count in counts for a in count.accesses):
        key = (a.line, a.statement, a.buffer, a.space, a.access, a.bytes_per_lane)
        before = summed.get(key)
        summed[key] = a if before is None else replace(
            a, **{name: getattr(a, name) + getattr(before, name) for name in _SUMMED}
        )  # fmt: skip
    known = [count.flops for count in counts if count.flops is not None]
    return KernelCounts(
        launch.kernel, launch.grid, launch.block, sum(c.counted_blocks for c in counts),
        sum(c.barriers for c in counts), sum(c.collectives for c in counts), sum(known) if known else None,
        tuple(summed.values()),
    )  # fmt: skip


_SUMMED = ("requests", "lanes", "sectors", "ideal_sectors", "wavefronts", "ideal_wavefronts")


@dataclass(frozen=True, slots=True)
class Report:
    """The outcome of one run.

    ``status`` is 1 if a data-dependent subscript was outside its tensor, else 0.  ``findings`` are those of the first
    kernel that has any: those after it did not run.  ``total`` counts repetitions too.  ``kernels`` is empty unless
    the run counted.  ``complete`` says that no block was left out on request.
    """

    status: int
    findings: tuple[Finding, ...]
    total: int
    kernels: tuple[KernelCounts, ...]
    complete: bool = True

    def __str__(self) -> str:
        parts = [str(f) for f in self.findings] or ["no findings"]
        if len(self.findings) > 1 or self.total > len(self.findings):
            parts.insert(0, f"{len(self.findings)} findings, seen {self.total} times in all")
        return "\n".join([*parts, *(str(k) for k in self.kernels)]) + "\n"


class SimulationError(TcompError):
    """A simulated kernel did something that it must not do; ``report`` has it all."""

    def __init__(self, report: Report) -> None:
        self.report = report
        super().__init__(*(Diagnostic(str(finding)) for finding in report.findings))

    def __reduce__(self) -> tuple[type[SimulationError], tuple[Report]]:  # type: ignore[override]
        return type(self), (self.report,)


def merge(counts: Iterable[AccessCounts]) -> tuple[AccessCounts, ...]:
    """Counts by line, buffer, access and width: the compiler may have made several copies of a line."""
    found: dict[tuple[int, str, AccessName, int], AccessCounts] = {}
    for c in counts:
        key = (c.line or 0, c.buffer, c.access, c.bytes_per_lane)
        before = found.get(key)
        if before is not None:
            c = AccessCounts(
                c.line, c.statement, c.text, c.buffer, c.space, c.access, c.bytes_per_lane,
                c.requests + before.requests, c.lanes + before.lanes, c.sectors + before.sectors,
                c.ideal_sectors + before.ideal_sectors, c.wavefronts + before.wavefronts,
                c.ideal_wavefronts + before.ideal_wavefronts,
            )  # fmt: skip
        found[key] = c
    return tuple(found[key] for key in sorted(found))
