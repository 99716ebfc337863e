"""The runtime's numbers as findings and counts that name tensors, elements, threads and lines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tcomp.backends.simulator.arena import Tensor
from tcomp.backends.simulator.elf import Symbol
from tcomp.backends.simulator.ffi import NO_BUFFER, FindingStructure, PlaceStructure, SiteStructure
from tcomp.backends.simulator.places import Line, Places
from tcomp.backends.simulator.report import (
    AccessCounts,
    AccessName,
    Extent,
    Finding,
    FindingKind,
    KernelCounts,
    Party,
    merge,
)
from tcomp.backends.simulator.text import SharedArray
from tcomp.backends.source import Launch

_KINDS = tuple(FindingKind)
_BROUGHT, _COPIED, _UNLESS_COPY = 1, 2, 3
_FETCH = "fetch "
_RIVALS = ("a read by", "a write by", "an atomic operation of")
_ACCESSES: tuple[AccessName, ...] = ("read", "write", "atomic")


@dataclass(frozen=True, slots=True)
class Names:
    """What buffers and lines are called; ``variables`` are the static shared ones, ``dynamic`` names the other."""

    tensors: Sequence[Tensor]
    variables: Sequence[Symbol]
    arrays: Mapping[tuple[str, int], SharedArray]
    dynamic: str
    places: Places

    def buffer(self, number: int) -> str:
        """The name of a buffer."""
        if number == NO_BUFFER:
            return ""
        if number >= 0:
            return self.tensors[number].name
        variable = -1 - number
        return self.variables[variable].name if variable < len(self.variables) else self.dynamic

    def element(self, number: int, offset: int) -> str:
        """The element of a buffer at a byte offset."""
        if number == NO_BUFFER:
            return f"address {offset:#x}, far from every buffer"
        if number >= 0:
            return self.tensors[number].element(offset)
        variable = -1 - number
        name = self.buffer(number)
        if variable >= len(self.variables) or not 0 <= offset < self.variables[variable].size:
            return f"byte {offset} of {name}"
        array = self.arrays.get((name, self.variables[variable].size))
        if array is None:
            return f"byte {offset} of {name}"
        indices, rest = [], offset // array.element_bytes
        for extent in reversed(array.shape):
            rest, index = divmod(rest, extent)
            indices.append(f"[{index}]")
        return name + "".join(reversed(indices))


def findings_of(
    structures: Sequence[FindingStructure], total: int, launch: Launch, names: Names
) -> tuple[tuple[Finding, ...], int]:
    """The findings in one kernel, one for each kind, line and buffer, and how many there are with those that repeat.

    ``total`` is without reads of global memory that nobody wrote.  Of these, copies of it are no findings.
    """
    names.places.learn([s for f in structures for s in (f.site, f.other_site)])
    found: dict[tuple[FindingKind, int | None, str], Finding] = {}
    for structure in structures:
        finding = _finding(structure, launch, names)
        if finding.kind is FindingKind.UNINITIALISED and structure.detail == _UNLESS_COPY:
            if (finding.statement or "").startswith(_FETCH):
                continue
            total += finding.count
        key = (finding.kind, finding.line, finding.buffer)
        before = found.get(key)
        found[key] = finding if before is None else replace(before, count=before.count + finding.count)
    return tuple(found.values()), total


def _finding(structure: FindingStructure, launch: Launch, names: Names) -> Finding:
    kind = _KINDS[structure.kind]
    line = names.places.line(structure.line) if structure.line else names.places.at(structure.site)
    buffer, element, access = names.buffer(structure.buffer), "", _ACCESSES[structure.access]
    other: Party | None = None
    detail = ""
    match kind:
        case FindingKind.DIVERGENT_BARRIER | FindingKind.DIVERGENT_WARP:
            detail, other = _divergence(kind, structure, names)
            return Finding(kind, launch.kernel, "", "", None, _party(structure.place, line), line.text, detail, other,
                           structure.count)  # fmt: skip
        case FindingKind.UNFENCED_REGISTERS | FindingKind.BAD_DESCRIPTOR:
            detail = _fault_of_product(kind, structure.detail)
            return Finding(kind, launch.kernel, "", "", None, _party(structure.place, line), line.text, detail, None,
                           structure.count)  # fmt: skip
        case FindingKind.REGISTERS_IN_FLIGHT:
            other = _party(structure.other, names.places.at(structure.other_site))
            detail = "which was not waited for"
            return Finding(kind, launch.kernel, "", "", access, _party(structure.place, line), line.text, detail, other,
                           structure.count)  # fmt: skip
        case FindingKind.UNFENCED_MEMORY:
            element = names.element(structure.buffer, structure.offset)
            other = _party(structure.other, names.places.at(structure.other_site))
            detail = "which an ordinary instruction stored"
        case FindingKind.DEADLOCK:
            element = names.element(structure.buffer, structure.offset)
            detail = f"{structure.detail} arrivals and {structure.mask} bytes are missing"
        case FindingKind.DIVISION_BY_ZERO:
            return Finding(kind, launch.kernel, "", "", None, _party(structure.place, line), line.text, "", None,
                           structure.count)  # fmt: skip
        case FindingKind.OUT_OF_BOUNDS if structure.line:
            buffer = names.places.array_at(structure.line, structure.column)
            detail = f"subscript {structure.offset} of {buffer or 'an array'}"
            return Finding(kind, launch.kernel, buffer, "", None, _party(structure.place, line), line.text, detail,
                           None, structure.count)  # fmt: skip
        case FindingKind.RACE | FindingKind.BLOCK_RACE:
            element = names.element(structure.buffer, structure.offset)
            other = _party(structure.other, names.places.at(structure.other_site))
            if kind is FindingKind.BLOCK_RACE and list(structure.other.block) == list(structure.place.block):
                # The last of several that are not ordered with it was of its own block.
                other = None
            detail = f"not ordered with {_RIVALS[structure.detail]} another {_rival(kind)}"
        case FindingKind.UNINITIALISED:
            element = names.element(structure.buffer, structure.offset)
            if structure.detail == _COPIED:
                detail = "which was copied from where nobody wrote"
            elif structure.detail == _BROUGHT:
                other = _party(structure.other, names.places.at(structure.other_site))
                detail = "which an asynchronous copy brought from where nobody wrote"
            elif structure.other_site:
                detail = "whose asynchronous copy was not waited for"
        case _:
            element = names.element(structure.buffer, structure.offset)
            detail = f"{structure.size} bytes wide"
    return Finding(kind, launch.kernel, buffer, element, access, _party(structure.place, line), line.text, detail,
                   other, structure.count)  # fmt: skip


def _fault_of_product(kind: FindingKind, detail: int) -> str:
    """What is wrong with the operands or the sums of a product of a warpgroup."""
    if kind is FindingKind.UNFENCED_REGISTERS:
        return "its sums were touched since the last fence"
    return "it is none of rows of 128 bytes, swizzled" if detail else "threads of a warpgroup bring different ones"


def _rival(kind: FindingKind) -> str:
    return "thread" if kind is FindingKind.RACE else "block"


def _party(place: PlaceStructure, line: Line) -> Party:
    return Party(_extent(place.block), _extent(place.thread), line.number, line.statement)


def _extent(values: Sequence[int]) -> Extent:
    return values[0], values[1], values[2]


def _divergence(kind: FindingKind, structure: FindingStructure, names: Names) -> tuple[str, Party | None]:
    """Why threads do not meet, and one that stays away."""
    other = _party(structure.other, names.places.at(structure.other_site))
    thread = f"thread {other.thread}"
    if kind is FindingKind.DIVERGENT_BARRIER:
        return f"{thread} has returned" if structure.detail else f"{thread} is at another barrier", other
    mask = f"mask {structure.mask:#x}"
    match structure.detail:
        case 0:
            return f"{mask} does not name the lane that calls", None
        case 1:
            return f"{mask} names the lane of {thread}, which has returned", other
        case 2:
            return f"{mask} names the lane of {thread}, which never comes", other
        case 3:
            return f"{thread} comes with another mask than {structure.mask:#x}", other
        case _:
            return f"it reads lane {structure.mask.bit_length() - 1}, which takes no part", None


def counts_of(
    sites: Sequence[SiteStructure],
    lines: Sequence[int],
    totals: tuple[int, int, int],
    launch: Launch,
    names: Names,
    line_flops: Mapping[int, int],
) -> KernelCounts:
    """The counts of one kernel, scaled from the counted blocks to all."""
    counted, barriers, collectives = totals
    blocks = launch.grid[0] * launch.grid[1] * launch.grid[2]

    def scaled(count: int) -> int:
        return round(count * blocks / counted) if counted else 0

    names.places.learn(s.site for s in sites)
    accesses = []
    for s in sites:
        line = names.places.at(s.site)
        accesses.append(
            AccessCounts(
                line.number, line.statement, line.text, names.buffer(s.buffer), "global" if s.buffer >= 0 else "shared",
                _ACCESSES[s.access], s.size, scaled(s.requests), scaled(s.lanes), scaled(s.sectors),
                scaled(s.ideal_sectors), scaled(s.wavefronts), scaled(s.ideal_wavefronts),
            )
        )  # fmt: skip
    flops = None
    if line_flops:
        flops = scaled(sum(lines[line] * count for line, count in line_flops.items() if line < len(lines)))
    per_block = barriers / counted if counted else 0.0
    return KernelCounts(
        launch.kernel, launch.grid, launch.block, counted, per_block, scaled(collectives), flops, merge(accesses)
    )
