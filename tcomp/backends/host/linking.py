"""Links of kernels that need nothing but the C library of the process: by the linker alone, which reads no library.

A driver of compilers starts two programs more for a link, and looks at all symbols of libm and OpenMP: three quarters
of its time.  What a kernel misses afterwards tells whether it needs them after all.
"""

from __future__ import annotations

import functools
import platform
import shlex
import shutil
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

_FLAGS = ("-shared", "--eh-frame-hdr", "--hash-style=gnu")
_PRESENT = ("memcpy", "memmove", "memset", "memcmp", "getenv")
"""What compilers call of the C library though no text does, and what direct calls do: no link names that library."""

_WRAPPED = "__wrap_"
"""How functions begin that the process has where the linker was told to wrap others."""

_HEADER = struct.Struct("<40xQ10xHH")
_SECTION = struct.Struct("<4xI16xQQI20x")
_SYMBOL = struct.Struct("<IBxH16x")
_DYNAMIC_SYMBOLS = 11
_UNDEFINED = 0
_GLOBAL = 1
_FUNCTION = 2


@functools.cache
def linker() -> str | None:
    """The linker, where it may be called by itself: on Linux for x86-64, where gcc gives it no flags of a processor."""
    return shutil.which("ld") if sys.platform == "linux" and platform.machine() == "x86_64" else None


def may_do_alone(text: str, flags: Sequence[str]) -> bool:
    """Whether a text is one that a linker may do for without libraries: with no header, nor flags for the link.

    Nor with tables of lines, for what is linked with it has none.
    """
    return "#include" not in text and not any(flag.startswith(("-Wl,", "-l", "-L", "-g")) for flag in flags)


@dataclass(frozen=True, slots=True)
class Link:
    """A kernel on its way from a text to a shared object, in a directory of its own.

    ``compiler`` and its ``flags`` make and link it by themselves; ``wrapped`` are flags of the ``linker``.  ``others``
    are objects to link with it, of which the commands ``beside`` make some.
    """

    linker: str
    compiler: tuple[str, ...]
    flags: tuple[str, ...]
    wrapped: tuple[str, ...]
    directory: Path
    output: Path
    others: tuple[Path, ...] = ()
    beside: tuple[tuple[str, ...], ...] = ()

    @property
    def steps(self) -> tuple[str, ...]:
        """The command that compiles standard input to an object and links it without libraries.

        Where the linker cannot, the compiler links it.
        """
        compiled = shlex.join((*self.compiler, *self.flags, "-c", "-o", str(self._object)))
        objects = (str(self._object), *map(str, self.others))
        linked = shlex.join((self.linker, *_FLAGS, *self.wrapped, "-o", str(self.output), *objects))
        # Where a compiler gave no object, nothing is linked, and the image that is missing tells so.
        link = f"{{ [ ! -e {shlex.quote(str(self._object))} ] || {linked} 2>/dev/null || {shlex.join(self.again)}; }}"
        if not self.beside:
            return "/bin/sh", "-c", f"{compiled} && {link}"
        # What runs beside is waited for in any case: it ends before the directory does.
        started = "".join(f"{shlex.join(command)} & " for command in self.beside)
        return "/bin/sh", "-c", f"{started}{compiled}; status=$?; wait; [ $status = 0 ] || exit $status; {link}"

    @property
    def again(self) -> tuple[str, ...]:
        """The command that links the same objects by the compiler."""
        start = self.flags.index("-x")
        objects = (str(self._object), *map(str, self.others))
        return (*self.compiler, *self.flags[:start], *objects, *self.flags[start + 3 :], "-o", str(self.output))

    @property
    def _object(self) -> Path:
        return self.directory / "kernel.o"


def is_complete(image: bytes) -> bool:
    """Whether a shared object is whole though its linker read no library: all that it misses is in every process.

    One that has no function is not whole: its objects were none for a linker by itself, but for link-time optimisation.
    """
    return _has_functions(image) and all(name in _PRESENT or name.startswith(_WRAPPED) for name in missing(image))


def missing(image: bytes) -> Iterator[str]:
    """The names that a shared object wants others to have, weak ones left out; nothing is said of what is none."""
    for name, info, section in _symbols(image):
        if name and section == _UNDEFINED and info >> 4 == _GLOBAL:
            yield name


def _has_functions(image: bytes) -> bool:
    return any(section != _UNDEFINED and info & 15 == _FUNCTION for _, info, section in _symbols(image))


def _symbols(image: bytes) -> Iterator[tuple[str, int, int]]:
    """Name, binding and type, and section of each symbol that others may see.

    The layout is that of "Tool Interface Standard: Executable and Linking Format", for 64 bits, low byte first.
    """
    try:
        start, size, count = _HEADER.unpack_from(image)
        sections = [_SECTION.unpack_from(image, start + number * size) for number in range(count)]
        for kind, offset, length, link in sections:
            if kind != _DYNAMIC_SYMBOLS:
                continue
            names = sections[link][1]
            for place in range(offset, offset + length, _SYMBOL.size):
                name, info, section = _SYMBOL.unpack_from(image, place)
                yield image[names + name : image.index(b"\0", names + name)].decode(), info, section
    except (struct.error, LookupError, ValueError):
        return
