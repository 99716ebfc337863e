"""Where the time of a kernel goes, line by line of its C text: a timer asks the calling thread (``sampling.c``).

Nothing is put into the text; the compiler adds a table of lines, which changes no instruction.
"""

from __future__ import annotations

import ctypes
import functools
import re
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

from tcomp.backends.host import threads, toolchain
from tcomp.backends.host.images import open_image
from tcomp.backends.host.processes import work_directory
from tcomp.backends.source import Source
from tcomp.errors import TcompError
from tcomp.storage.forks import Renewed

_EVERY = 100_003
"""Nanoseconds between two questions; a prime, so that they do not keep step with what they watch."""

_ENOUGH, _TRANSLATE_SECONDS = 5000, 60.0
_TABLE = ("-g1",)

_ALONE = Renewed(threading.Lock)
"""One thread is asked at a time; a forked child has a lock of its own."""


def sample_lines(source: Source, arguments: tuple[int | None, ...], seconds: float) -> Counter[int]:
    """How often each line of a kernel's text, counted from 1, was under way while it ran again and again.

    Args:
        source: the kernel, a C function.
        arguments: one address for each argument, then those of the scratch memory and of the report.
        seconds: how long to run it at most; 5,000 answers are enough.

    Raises:
        TcompError: the system has no such timers, or no ``addr2line``.
        TargetError: the compiler is missing, or fails.
    """
    translator = shutil.which("addr2line")
    if not sys.platform.startswith("linux") or translator is None:
        raise TcompError("lines are timed on Linux, where there is addr2line (package binutils)")
    compiler = toolchain.find()
    own = threads.serve(source.text, compiler) and threads.are_there(compiler)
    image = toolchain.compile_shared(compiler, source.text, (*source.flags, *_TABLE), source.entry, own_threads=own)
    with work_directory() as directory:
        path = directory / "sampled.so"
        path.write_bytes(image)
        library = ctypes.CDLL(str(path))
        function = library[source.entry]
        function.argtypes, function.restype = (ctypes.c_void_p,) * len(arguments), ctypes.c_int32
        places = _asked(lambda: function(*arguments), seconds)
        # The handle points to what the loader knows of a library, at first the address that it was moved by.
        moved = ctypes.c_size_t.from_address(library._handle).value
        own_places = Counter(place - moved for place in places if 0 <= place - moved < 2 * len(image))
        return _lines(translator, path, own_places)


def _asked(call: Callable[[], object], seconds: float) -> list[int]:
    """The addresses that the calling thread was at."""
    sampler = _sampler()
    call()
    with _ALONE.value:
        if sampler.tcomp_sampling_begin(_EVERY):
            raise TcompError("the system has no timers that interrupt one thread")
        end, enough = time.monotonic() + seconds, time.monotonic() + 1e-9 * _EVERY * _ENOUGH
        try:
            while time.monotonic() < min(end, enough):
                call()
        finally:
            found = ctypes.POINTER(ctypes.c_size_t)()
            count = sampler.tcomp_sampling_end(ctypes.byref(found))
        return found[:count]


@functools.cache
def _sampler() -> ctypes.CDLL:
    """Raises TargetError where it cannot be compiled, as without headers."""
    text = files("tcomp.backends.host").joinpath("sampling.c").read_text(encoding="utf-8")
    library = open_image(toolchain.compile_shared(toolchain.find(), text, (), "sampling"))
    library.tcomp_sampling_begin.argtypes = (ctypes.c_long,)
    library.tcomp_sampling_end.restype = ctypes.c_long
    return library


def _lines(translator: str, path: Path, places: Counter[int]) -> Counter[int]:
    """The lines that addresses belong to: of what was inlined, the line that calls it."""
    addresses = sorted(places)
    told = subprocess.run(
        (translator, "-a", "-i", "-e", str(path)),
        input="".join(f"{address:#x}\n" for address in addresses),
        capture_output=True,
        text=True,
        timeout=_TRANSLATE_SECONDS,
        check=False,
    ).stdout
    found: Counter[int] = Counter()
    parts = re.split(r"^0x[0-9a-f]+\n", told, flags=re.MULTILINE)[1:]
    if len(parts) != len(addresses):
        raise TcompError(f"{translator} does not tell lines of addresses")
    for address, lines in zip(addresses, parts, strict=True):
        outermost = re.search(r":(\d+)[^:]*\Z", lines)
        if outermost is not None and int(outermost[1]):
            found[int(outermost[1])] += places[address]
    return found
