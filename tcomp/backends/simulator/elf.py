"""Where the shared variables of a kernel lie in its compiled image: the symbols of one section of an ELF file."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from tcomp.errors import TargetError

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SYMBOL_TABLE = 2
_LOCAL_NAME = re.compile(r"_Z(?:Z.*E|L)(?P<length>\d+)(?P<rest>.*)\Z")
_OWNER = re.compile(r"_ZZ(?P<length>\d+)?(?P<rest>.*)\Z")


@dataclass(frozen=True, slots=True)
class Symbol:
    """A variable: its name in the text, the kernel that declares it (empty outside functions), and where it lies.

    ``address`` counts from where the image is loaded; ``size`` is in bytes.
    """

    name: str
    kernel: str
    address: int
    size: int


@dataclass(frozen=True, slots=True)
class Section:
    """A section of the image, ``address`` counted from where it is loaded, and the variables in it by address."""

    address: int
    size: int
    symbols: tuple[Symbol, ...]


def read_section(image: bytes, name: str) -> Section:
    """A section and its variables; empty if there is no such section.  Raises TargetError if this is no ELF64 file."""
    if image[:6] != b"\x7fELF\x02\x01":
        raise TargetError("the simulator needs a compiler that makes 64-bit little-endian ELF files, as on Linux")
    header = _HEADER.unpack_from(image)
    start, width, count, names = header[6], header[11], header[12], header[13]
    sections = [_SECTION.unpack_from(image, start + n * width) for n in range(count)]
    number = next((n for n, s in enumerate(sections) if _text(image, sections[names], s[0]) == name), None)
    if number is None:
        return Section(0, 0, ())
    found = []
    for table in sections:
        if table[1] != _SYMBOL_TABLE:
            continue
        for at in range(table[4], table[4] + table[5], _SYMBOL.size):
            symbol, _, _, section, address, size = _SYMBOL.unpack_from(image, at)
            if section == number and size:
                mangled = _text(image, sections[table[6]], symbol)
                found.append(Symbol(_plain(mangled), _kernel(mangled), address, size))
    return Section(sections[number][3], sections[number][5], tuple(sorted(found, key=lambda s: s.address)))


def _text(image: bytes, table: tuple[int, ...], offset: int) -> str:
    start = table[4] + offset
    return image[start : image.index(b"\0", start)].decode(errors="replace")


def _plain(mangled: str) -> str:
    """The name as the text has it: ``tile`` of ``_ZZ4mm_0E4tile_0``."""
    found = _LOCAL_NAME.match(mangled)
    return found["rest"][: int(found["length"])] if found else mangled


def _kernel(mangled: str) -> str:
    """The function that declares a variable: ``mm_0`` of ``_ZZ4mm_0E4tile_0``."""
    found = _OWNER.match(mangled)
    return found["rest"][: int(found["length"])] if found and found["length"] else ""
