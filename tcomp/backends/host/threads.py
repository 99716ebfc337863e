"""tcomp's own threads, which parallel kernels are linked with in place of OpenMP's: compiled once, loaded once.

OpenMP's threads wake up where the caller runs, and the caller waits for each of them, also for those that come too late
to be of use; between kernels they keep processors busy on which other libraries have work.  See ``threads.c``.

A kernel needs them when it is opened.  Where they must be compiled, that goes on beside the kernel's own compilation.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
import threading
from contextlib import suppress
from importlib.resources import files

from tcomp import debug
from tcomp.backends.host import toolchain
from tcomp.backends.host.images import open_image
from tcomp.backends.host.toolchain import Toolchain
from tcomp.errors import TargetError
from tcomp.storage.cache import store
from tcomp.storage.memo import Memo

_LOADED: Memo[str, tuple[ctypes.CDLL | None]] = Memo()
_BEGUN: Memo[str, None] = Memo()


class MissingError(Exception):
    """There are no threads of tcomp's own, though a kernel was compiled for them: OpenMP's have to serve."""


def serve(text: str, compiler: Toolchain) -> bool:
    """Whether a kernel's parallel regions run on tcomp's threads: where gcc compiles it for Linux, and they can start.

    Where nobody knows yet whether they can, they are made meanwhile, and it is said that they can.

    Each of OpenMP's worksharing loops needs all of its threads, which there may not be.
    """
    if sys.platform != "linux" or compiler.family is not toolchain.GCC or "#pragma omp parallel for" in text:
        return False
    if not toolchain.uses_threads(text) or debug.openmp_threads():
        return False
    if not are_known():
        _BEGUN.get("", lambda: _begin(compiler))
    found = _LOADED.known("")
    return found is None or found[0] is not None


def are_known() -> bool:
    """Whether it is known if there are threads."""
    return _LOADED.known("") is not None


def are_there(compiler: Toolchain) -> bool:
    """Whether there are threads, which kernels that are opened after this find."""
    (found,) = _LOADED.get("", lambda: (_load(compiler),))
    return found is not None


def ask_openmp(compiler: Toolchain) -> ctypes.CDLL | None:
    """Let the limits of OpenMP hold that the process has, or would have: torch brings one of its own.

    Returns that OpenMP.  Raises MissingError.
    """
    (own,) = _LOADED.get("", lambda: (_load(compiler),))
    if own is None:
        raise MissingError
    for name in (None, "libgomp.so.1"):
        with suppress(OSError, AttributeError):
            openmp = ctypes.CDLL(name)
            limit = openmp.omp_get_max_threads
            own.tcomp_ask_openmp(ctypes.cast(limit, ctypes.c_void_p))
            return openmp
    return None


def _begin(compiler: Toolchain) -> None:
    """Have the threads made: now if the cache has them, else beside what comes next."""
    if store().get("threads", _text_and_key(compiler)[1]) is not None:
        are_there(compiler)
        return
    # Where no thread of Python can be started for it, the first kernel that is opened has them made.
    with suppress(RuntimeError):
        threading.Thread(target=are_there, args=(compiler,), name="tcomp-threads").start()


def _text_and_key(compiler: Toolchain) -> tuple[str, str]:
    text = files("tcomp.backends.host").joinpath("threads.c").read_text(encoding="utf-8")
    facts = "\n".join((text, *compiler.arguments(text, ()), compiler.identity))
    return text, hashlib.sha256(facts.encode()).hexdigest()


def _load(compiler: Toolchain) -> ctypes.CDLL | None:
    """The library; None where the compiler has no headers, or the system is too old."""
    text, key = _text_and_key(compiler)
    image = store().get("threads", key)
    try:
        if image is None:
            # It takes no place of a kernel's compiler: kernels that wait for it may have them all.
            with toolchain.compiling(compiler, text, (), "threads", counted=False) as compiled:
                image = compiled()
            store().put("threads", key, "threads that kernels share", image)
        found = open_image(image, ctypes.RTLD_GLOBAL)
        begun = bool(found.tcomp_threads_begin())
    except (TargetError, OSError, AttributeError) as error:
        debug.log(1, f"kernels run on OpenMP's threads: {error}")
        return None
    return found if begun else None
