"""From the C text of a kernel to a function that can be called: compiled once, kept on disk, loaded with ctypes."""

from __future__ import annotations

import _ctypes
import ctypes
import hashlib
import json
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from tcomp import debug
from tcomp.backends.host import threads, toolchain
from tcomp.backends.host.images import open_image
from tcomp.backends.host.toolchain import Toolchain
from tcomp.backends.source import Argument, Source
from tcomp.errors import TargetError
from tcomp.storage.cache import store
from tcomp.storage.memo import MOST_KEPT, Memo

NativeFunction = Callable[..., int]
"""The entry point.  Takes one address (int, or None for a null pointer) for each argument of the ``Source``, then those
of the scratch memory and of the report; runs without the interpreter's lock; returns the kernel's status.  The function
of the source that packs panels, where there is one, is its attribute ``packing``."""

ABI = 1
"""Changes when the meaning of an entry point's arguments does."""

_LOADED: Memo[str, NativeFunction] = Memo(MOST_KEPT)


def load(source: Source) -> NativeFunction:
    """The entry point of a kernel: from this process, the cache on disk or the compiler.

    Raises TargetError if there is no compiler, or it fails or hangs on the text.
    """
    compiler = toolchain.find()
    try:
        return _loaded(source, compiler)
    except threads.MissingError:
        # That is known by now, so this time it is the kernel for OpenMP's threads, under a key of its own.
        return _loaded(source, compiler)


def _loaded(source: Source, compiler: Toolchain) -> NativeFunction:
    """Raises what ``load`` does, and MissingError."""
    own = _on_own_threads(source, compiler)
    key = _key(source, compiler, own)
    return _LOADED.get(key, lambda: _load(source, compiler, key, own))


def kernel_key(source: Source, compiler: Toolchain) -> str:
    """The name of a compiled kernel: a digest of everything on which its machine code depends."""
    return _key(source, compiler, _on_own_threads(source, compiler))


def _key(source: Source, compiler: Toolchain, own: bool) -> str:
    arguments = compiler.arguments(source.text, source.flags, own_threads=own)
    facts = (ABI, source.entry, source.text, arguments, compiler.identity)
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def _on_own_threads(source: Source, compiler: Toolchain) -> bool:
    """Whether a kernel is compiled for tcomp's own threads: where they serve it, or may, which nobody knows yet."""
    own = threads.serve(source.text, compiler)
    if own and not threads.are_known() and store().get("kernel", _key(source, compiler, False)) is not None:
        # In another process there were none.
        own = threads.are_there(compiler)
    return own


def describe(source: Source) -> str:
    """A kernel and its arrays in one line: ``mm(A float32[64,32], B float32[32,16]) -> (C float32[64,16])``."""
    taken = ", ".join(_describe_argument(a) for a in source.called if a.role == "input")
    given = ", ".join(_describe_argument(a) for a in source.called if a.role != "input")
    return f"{source.entry.removeprefix('tcomp_')}({taken}) -> ({given})"


def _describe_argument(argument: Argument) -> str:
    return f"{argument.name} {argument.dtype}[{','.join(map(str, argument.shape))}]"


@contextmanager
def loading(source: Source) -> Iterator[None]:
    """Compile a kernel during the block, after which ``load`` has it; not if the block raises.

    Other processes are not held off.  Raises what ``load`` does.
    """
    compiler = toolchain.find()
    own = _on_own_threads(source, compiler)
    key, function = _key(source, compiler, own), None
    with suppress(threads.MissingError):
        function = _LOADED.known(key) or _kept(source, compiler, key, own)
    if function is not None:
        yield
    else:
        with toolchain.compiling(compiler, source.text, source.flags, source.entry, own_threads=own) as image:
            yield
            with suppress(threads.MissingError):
                function = _compiled(source, image(), compiler, key, own)
    if (made := function) is not None:
        _LOADED.get(key, lambda: made)


def _load(source: Source, compiler: Toolchain, key: str, own: bool) -> NativeFunction:
    function = _kept(source, compiler, key, own)
    if function is not None:
        return function
    with store().turn("kernel", key):
        function = _kept(source, compiler, key, own)
        if function is not None:
            return function
        image = toolchain.compile_shared(compiler, source.text, source.flags, source.entry, own_threads=own)
        return _compiled(source, image, compiler, key, own)


def _kept(source: Source, compiler: Toolchain, key: str, own: bool) -> NativeFunction | None:
    """The entry point of what the cache has.  Raises MissingError."""
    kept = store().get("kernel", key)
    if kept is not None:
        # A sound entry may still not load, say because a library that it needs is gone.
        with suppress(OSError, AttributeError):
            function = _bind(kept, source, compiler, own)
            debug.log(1, f"kernel {source.entry}: from the cache")
            return function
    return None


def _compiled(source: Source, image: bytes, compiler: Toolchain, key: str, own: bool) -> NativeFunction:
    """The entry point of what the compiler made.  Raises TargetError and MissingError."""
    debug.log(1, f"kernel {source.entry}: compiled, {len(image)} bytes")
    try:
        function = _bind(image, source, compiler, own)
    except (OSError, AttributeError) as error:
        raise TargetError(f"kernel {source.entry} was compiled but cannot be loaded: {error}") from None
    store().put("kernel", key, describe(source), image)
    return function


def _bind(image: bytes, source: Source, compiler: Toolchain, own: bool) -> NativeFunction:
    """Load a shared object and find its entry point; it may need tcomp's ``own`` threads, which are opened before it.

    Raises OSError, AttributeError or MissingError.
    """
    openmp = threads.ask_openmp(compiler) if own else None
    library = open_image(image)
    # As an attribute the function would be kept by the library that it keeps.
    function: NativeFunction = library[source.entry]
    unload_with(library)
    count = len(source.arguments) + 2
    function.argtypes = (ctypes.c_void_p,) * count  # type: ignore[attr-defined]
    function.restype = ctypes.c_int32  # type: ignore[attr-defined]
    if source.packing is not None:
        packing: Any = library[source.packing]
        packing.argtypes, packing.restype = (ctypes.c_void_p,) * len(source.bound), None
        function.packing = packing  # type: ignore[attr-defined]
    _FORKED.watch(openmp or library)
    return function


def unload_with(library: ctypes.CDLL) -> None:
    """Unload a library when nobody holds it, or a function of it, any more.

    Not before the end of the process, when other threads may be running it; nor one that is linked with LLVM's OpenMP,
    which keeps pointers into the libraries that it has run.
    """
    if not hasattr(library, "__kmpc_fork_call"):
        weakref.finalize(library, _ctypes.dlclose, library._handle).atexit = False


class _ForkGuard:
    """Keeps kernels, and torch beside them, from hanging in forked children.

    GNU OpenMP believes that a forked child has the worker threads of its parent, and waits for them for ever.  The
    thread that comes out of a fork therefore runs its regions alone; threads that the child starts have workers.
    """

    def __init__(self) -> None:
        self._set_nesting: Callable[[int], None] | None = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._after_fork)

    def watch(self, library: ctypes.CDLL) -> None:
        """Remember the OpenMP library of the process, if it is GNU's."""
        if self._set_nesting is None and hasattr(library, "GOMP_parallel") and not hasattr(library, "__kmpc_fork_call"):
            self._set_nesting = library.omp_set_max_active_levels

    def _after_fork(self) -> None:
        if self._set_nesting is not None:
            self._set_nesting(0)


_FORKED = _ForkGuard()
