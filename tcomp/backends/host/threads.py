"""tcomp's own threads, which parallel kernels are linked with in place of OpenMP's: compiled once, loaded once.

OpenMP's threads wake up where the caller runs, and the caller waits for each of them, also for those that come too late
to be of use; between kernels they keep processors busy on which other libraries have work.  See ``threads.c``.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
from contextlib import suppress
from importlib.resources import files

from tcomp import debug
from tcomp.backends.host import toolchain
from tcomp.backends.host.images import open_image
from tcomp.backends.host.toolchain import Toolchain
from tcomp.errors import TargetError
from tcomp.storage.cache import store
from tcomp.storage.memo import Memo

_LOADED: Memo[str, ctypes.CDLL | None] = Memo()


def serve(text: str, compiler: Toolchain) -> bool:
    """Whether a kernel's parallel regions run on tcomp's threads: where gcc compiles it for Linux, and they can start.

    Each of OpenMP's worksharing loops needs all of its threads, which there may not be.
    """
    if sys.platform != "linux" or compiler.family is not toolchain.GCC or "#pragma omp parallel for" in text:
        return False
    return toolchain.uses_threads(text) and not debug.openmp_threads() and _library(compiler) is not None


def ask_openmp(compiler: Toolchain) -> ctypes.CDLL | None:
    """Let the limits of OpenMP hold that the process has, or would have: torch brings one of its own.

    Returns that OpenMP.
    """
    library = _library(compiler)
    for name in (None, "libgomp.so.1"):
        with suppress(OSError, AttributeError):
            openmp = ctypes.CDLL(name)
            limit = openmp.omp_get_max_threads
            assert library is not None
            library.tcomp_ask_openmp(ctypes.cast(limit, ctypes.c_void_p))
            return openmp
    return None


def _library(compiler: Toolchain) -> ctypes.CDLL | None:
    return _LOADED.get("", lambda: _load(compiler))


def _load(compiler: Toolchain) -> ctypes.CDLL | None:
    """The library; None where the compiler has no headers, or the system is too old."""
    text = files("tcomp.backends.host").joinpath("threads.c").read_text(encoding="utf-8")
    facts = "\n".join((text, *compiler.arguments(text, ()), compiler.identity))
    key = hashlib.sha256(facts.encode()).hexdigest()
    image = store().get("threads", key)
    try:
        if image is None:
            image = toolchain.compile_shared(compiler, text, (), "threads")
            store().put("threads", key, "threads that kernels share", image)
        library = open_image(image, ctypes.RTLD_GLOBAL)
        begun = bool(library.tcomp_threads_begin())
    except (TargetError, OSError, AttributeError) as error:
        debug.log(1, f"kernels run on OpenMP's threads: {error}")
        return None
    return library if begun else None
