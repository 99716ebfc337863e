"""Arrays of this process in a file that another process maps, at the distances that they have here."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tcomp.backends.source import Argument

WORD = 8
_LINE = 64
_UNSIGNED: dict[int, np.dtype[Any]] = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}


@dataclass(frozen=True, slots=True)
class Block:
    """Memory from ``low`` to ``high`` bytes behind an address; ``fresh`` memory is nobody's, and holds zeros."""

    address: int
    low: int
    high: int
    fresh: bool = False

    @classmethod
    def of(cls, argument: Argument, address: int | None) -> Block:
        """What an argument takes whose element with index zero is at an address."""
        if address is None or 0 in argument.shape:
            return cls(0, 0, 0)
        ends = [(extent - 1) * stride for extent, stride in zip(argument.shape, argument.strides, strict=True)]
        size = argument.dtype.itemsize
        return cls(address, size * sum(min(end, 0) for end in ends), size * (1 + sum(max(end, 0) for end in ends)))

    @property
    def empty(self) -> bool:
        """Whether it has no bytes."""
        return self.low == self.high


@dataclass(frozen=True, slots=True)
class Transfer:
    """Blocks in the memory of a file, and the ``places`` of their addresses in it; 0 for those that have no bytes.

    The file begins with a word that is 0, and these places as words of 64 bits.
    """

    memory: mmap.mmap
    places: tuple[int, ...]

    @property
    def status(self) -> int:
        """The word at the beginning."""
        return int(np.frombuffer(self.memory, np.int64, 1)[0])

    def fetch(self, number: int, argument: Argument, address: int) -> None:
        """Copy the elements of an argument, the block with a number, to where they belong."""
        if 0 in argument.shape:
            return
        source = _elements(argument, ctypes.addressof(ctypes.c_char.from_buffer(self.memory)) + self.places[number])
        _elements(argument, address)[...] = source

    def bytes(self, number: int, count: int) -> bytes:
        """The first bytes of a block."""
        return self.memory[self.places[number] : self.places[number] + count]


@contextmanager
def transferred(blocks: Sequence[Block], path: Path) -> Iterator[Transfer]:
    """The blocks in a new file.  Blocks that share bytes share them there."""
    starts, size = _placed(blocks, WORD * (1 + len(blocks)))
    with path.open("w+b") as file:
        file.truncate(size)
        memory = mmap.mmap(file.fileno(), size)
    places = []
    for block in blocks:
        region = None if block.empty else next(r for r in starts if r.holds(block))
        places.append(0 if region is None else region.place + block.address - region.start)
    for region in starts:
        if not region.fresh:
            content = (ctypes.c_char * (region.end - region.start)).from_address(region.start)
            memory[region.place : region.place + len(content)] = bytes(content)
    memory[WORD : WORD * (1 + len(blocks))] = np.array(places, np.int64).tobytes()
    yield Transfer(memory, tuple(places))


@dataclass(slots=True)
class _Region:
    """Bytes of this process that go together, and where they lie in the file."""

    start: int
    end: int
    fresh: bool
    place: int = 0

    def holds(self, block: Block) -> bool:
        return self.fresh == block.fresh and self.start <= block.address + block.low < self.end


def _placed(blocks: Sequence[Block], size: int) -> tuple[list[_Region], int]:
    """The regions of some blocks behind so many bytes, each as far behind the beginning of a line as here; the size."""
    regions: list[_Region] = []
    for block in sorted((b for b in blocks if not b.empty), key=lambda b: (b.fresh, b.address + b.low)):
        start, end = block.address + block.low, block.address + block.high
        if regions and regions[-1].fresh == block.fresh and start < regions[-1].end:
            regions[-1].end = max(regions[-1].end, end)
        else:
            regions.append(_Region(start, end, block.fresh))
    for region in regions:
        size += _LINE + (region.start - size) % _LINE
        region.place = size
        size += region.end - region.start
    return regions, size


def _elements(argument: Argument, address: int) -> np.ndarray[Any, Any]:
    """The elements of an argument at an address, as unsigned integers."""
    size = argument.dtype.itemsize
    block = Block.of(argument, address)
    memory = (ctypes.c_char * (block.high - block.low)).from_address(address + block.low)
    flat = np.frombuffer(memoryview(memory), _UNSIGNED[size])
    strides = tuple(size * stride for stride in argument.strides)
    first = flat[-block.low // size :]
    return np.lib.stride_tricks.as_strided(first, argument.shape, strides, writeable=True)
