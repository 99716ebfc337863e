"""Shared objects from memory."""

from __future__ import annotations

import ctypes
import itertools
import os
import struct
import tempfile
from contextlib import suppress
from pathlib import Path


def open_image(image: bytes, mode: int = ctypes.DEFAULT_MODE) -> ctypes.CDLL:
    """A shared object from memory: whatever happens to files later, what runs is what was checked.

    Through an anonymous file where the system has them, which also serves with a full disk and where temporary files
    may not be executed; else through a temporary file.  Raises OSError.
    """
    _check_whole(image)
    with suppress(OSError, AttributeError):
        descriptor = os.memfd_create("tcomp-kernel")
        try:
            with os.fdopen(descriptor, "wb", closefd=False) as file:
                file.write(image)
            return ctypes.CDLL(_unique_path(descriptor), mode)
        finally:
            os.close(descriptor)
    with tempfile.TemporaryDirectory(prefix="tcomp-") as directory:
        path = Path(directory, "kernel.so")
        path.write_bytes(image)
        return ctypes.CDLL(str(path), mode)


_ELF_64 = b"\x7fELF\x02\x01"
_HEADER = struct.Struct("<32xQ14xHH")
_SEGMENT = struct.Struct("<IxxxxQQQQ")
_LOADED_SEGMENT = 1


def _check_whole(image: bytes) -> None:
    """Raises OSError for an image that was cut short: the dynamic linker maps what is missing, and the process dies.

    The layout is that of "Tool Interface Standard: Executable and Linking Format", for 64 bits, low byte first.
    """
    if not image.startswith(_ELF_64):
        return
    try:
        start, size, count = _HEADER.unpack_from(image)
        segments = [_SEGMENT.unpack_from(image, start + number * size) for number in range(count)]
    except struct.error:
        raise OSError("it was cut short") from None
    for kind, offset, _, _, length in segments:
        if kind == _LOADED_SEGMENT and offset + length > len(image):
            raise OSError("it was cut short")


_SERIAL = itertools.count(2)


def _unique_path(descriptor: int) -> str:
    """A spelling of ``/proc/self/fd/N`` that was never used before.

    The dynamic linker takes a path that it has seen for the library that it had then, though the descriptor is
    another file by now.  Single and double slashes mean the same to the kernel, so they can spell a serial number.
    """
    slashes = "".join("/./" if bit == "1" else "//" for bit in f"{next(_SERIAL):b}")
    return f"/proc/self/fd{slashes}{descriptor}"
