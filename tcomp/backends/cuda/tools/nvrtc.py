"""NVRTC, NVIDIA's compiler for CUDA text as a library; it needs neither a GPU nor a driver.

It comes with the ``nvidia-cuda-nvrtc`` wheel (CUDA 13), the ``nvidia-cuda-nvrtc-cu12`` wheel, or a CUDA toolkit.  What
is called here is in the NVRTC documentation, https://docs.nvidia.com/cuda/nvrtc.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib.util
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

from tcomp import debug
from tcomp.backends.host.toolchain import COMPILE_SECONDS
from tcomp.errors import Diagnostic, SourceText, Span, TargetError, TcompError
from tcomp.storage.memo import Memo

OLDEST = 12
"""The oldest major version of CUDA whose NVRTC serves."""

_INSTALL_HINT = "`pip install nvidia-cuda-nvrtc` (CUDA 13) or `pip install nvidia-cuda-nvrtc-cu12` (CUDA 12)"
_SHOWN_ERRORS = 12
_GRACE_SECONDS = 10.0
"""How long NVRTC may take to give up."""

CACHING = (12, 9)
"""The release from which on NVRTC asks the driver's cache first, where there is a driver: then its log is empty."""

_UNCACHED = ("--no-cache",)

_INVALID_OPTION, _COMPILATION, _CANCELLED = 5, 6, 16  # of enum nvrtcResult


class CudaTextError(TcompError):
    """NVRTC rejects a CUDA text.

    One diagnostic for each error in its log, with line and column of the text where the log names them.
    """


@dataclass(frozen=True, slots=True)
class Output:
    """What NVRTC makes of a text: PTX, machine code and what it has to say about them."""

    ptx: str
    cubin: bytes
    log: str


@dataclass(frozen=True, slots=True)
class Nvrtc:
    """An installed NVRTC, which need not be loaded yet.

    ``version`` is that of the file's name, such as (13,) or (12, 9, 86).  ``identity`` tells any two builds apart, by
    the names and sizes of its files.
    """

    path: Path
    version: tuple[int, ...]
    identity: str

    def compile(self, text: str, name: str, architecture: str, options: tuple[str, ...]) -> Output:
        """Compile a text for ``architecture``, such as ``sm_90``; ``name`` stands for its file in messages.

        Any number of threads may compile at a time: the interpreter's lock is released.  Raises CudaTextError if the
        text is wrong; TargetError if this NVRTC cannot be loaded, knows no such architecture or option, or takes
        longer than ``COMPILE_SECONDS``, even if it hangs.  A process of its own would also survive a crash of NVRTC,
        but doubles the time of most kernels (0.1 s).
        """
        watch, finished = _Watch(), Future[Output]()

        def work() -> None:
            try:
                finished.set_result(self._compile(text, name, architecture, options, watch))
            except BaseException as error:  # noqa: BLE001 - raised below, in the thread that waits
                finished.set_exception(error)

        # Where signals are handled, the callback would swallow an interrupt, so another thread compiles.
        thread = threading.Thread(target=work, daemon=True)
        _WORKING.add(thread)
        try:
            thread.start()
            return finished.result(COMPILE_SECONDS + _GRACE_SECONDS)
        except TimeoutError:
            raise TargetError(f"NVRTC hangs on {name}: it was left alone after {COMPILE_SECONDS:.0f} seconds") from None
        finally:
            watch.abandoned = True

    def _compile(self, text: str, name: str, architecture: str, options: tuple[str, ...], watch: _Watch) -> Output:
        library = _LOADED.get(str(self.path), lambda: _load(self.path))
        chosen = (f"--gpu-architecture={architecture}", *_UNCACHED[: _release(library) >= CACHING], *options)
        debug.log(4, f"{self.path} {' '.join(chosen)}")
        program = ctypes.c_void_p()
        encoded = text.encode()
        _expect(library, library.nvrtcCreateProgram(ctypes.byref(program), encoded, name.encode(), 0, None, None))
        try:
            callback = _FLOW_CALLBACK(watch.ask)
            if hasattr(library, "nvrtcSetFlowCallback"):  # CUDA 12.4 has none yet
                _expect(library, library.nvrtcSetFlowCallback(program, callback, None))
            arguments = (ctypes.c_char_p * len(chosen))(*(option.encode() for option in chosen))
            code = library.nvrtcCompileProgram(program, len(chosen), arguments)
            log = _log(library, program)
            if code == 0:
                ptx = _fetch(library, program, "PTX").decode().rstrip("\0")
                return Output(ptx, _fetch(library, program, "CUBIN"), log)
            raise self._failure(library, code, log, SourceText(text, name), architecture)
        finally:
            library.nvrtcDestroyProgram(ctypes.byref(program))

    def _failure(self, library: ctypes.CDLL, code: int, log: str, source: SourceText, architecture: str) -> TcompError:
        if code == _COMPILATION:
            return CudaTextError(*_diagnostics(log, source))
        if code == _CANCELLED:
            return TargetError(f"NVRTC did not finish {source.name} within {COMPILE_SECONDS:.0f} seconds")
        if code == _INVALID_OPTION:
            known = _architectures(library)
            if architecture.rstrip("af") not in known:
                what = f"NVRTC {'.'.join(map(str, self.version))} ({self.path}) does not compile for {architecture}"
                return TargetError(Diagnostic(what, hint=f"it knows {', '.join(known)}"))
        return TargetError(f"NVRTC ({self.path}) fails on {source.name}: {log or _describe(library, code)}")


def find(newest: int | None = None) -> Nvrtc:
    """The NVRTC to compile with: of a wheel, else of the toolkit that ``CUDA_PATH`` or ``CUDA_HOME`` names, else of
    one in the usual places; the newest of those that are there.

    ``newest`` is the newest major version of CUDA to consider: a driver does not load what a newer one compiled.
    Raises TargetError if there is none.
    """
    for group in (_wheels(), _toolkits(), _system()):
        found = {_version(path): path for folder in group for path in folder.glob("libnvrtc.so.[0-9]*")}
        fitting = [version for version in found if OLDEST <= version[0] <= (newest or version[0])]
        if fitting:
            version = max(fitting)
            path = found[version].resolve()
            facts = [f"{file.name} {file.stat().st_size}" for file in (path, *_builtins(path))]
            return Nvrtc(path, version, ", ".join(facts))
    purpose = f" whose code a driver for CUDA {newest} loads" if newest is not None else ""
    raise TargetError(Diagnostic(f"there is no NVRTC on this machine{purpose}", hint=_INSTALL_HINT))


def wheel_folders() -> Iterator[Path]:
    """Where NVIDIA's wheels put their files: ``nvidia/cu13``, or one such as ``nvidia/cuda_nvrtc`` for each wheel."""
    package = importlib.util.find_spec("nvidia")
    for parent in (package.submodule_search_locations or ()) if package else ():
        yield from sorted(Path(parent).glob("cu*"))


def toolkit_folders() -> Iterator[Path]:
    """The roots of CUDA toolkits that the environment names, then the usual one."""
    for variable in ("CUDA_PATH", "CUDA_HOME"):
        if os.environ.get(variable):
            yield Path(os.environ[variable])
    yield Path("/usr/local/cuda")


def _wheels() -> Iterator[Path]:
    return (folder / "lib" for folder in wheel_folders())


def _toolkits() -> Iterator[Path]:
    return (folder / library for folder in toolkit_folders() for library in ("lib64", "lib"))


def _system() -> Iterator[Path]:
    yield from (Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder)
    yield from (Path(folder) for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64"))


def _version(path: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in path.name.partition(".so.")[2].split(".") if part.isdecimal())


def _builtins(path: Path) -> list[Path]:
    """What an NVRTC opens by name when it first compiles."""
    return sorted(path.parent.glob(f"libnvrtc-builtins.so.{_version(path)[0]}.*"))


_FLOW_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)


@dataclass(slots=True)
class _Watch:
    """Ends a compilation that takes too long, or that nobody waits for: NVRTC asks it now and then, some three seconds
    apart at worst."""

    deadline: float = field(default_factory=lambda: time.monotonic() + COMPILE_SECONDS)
    abandoned: bool = False

    def ask(self, _payload: int | None, _reserved: int | None) -> int:
        """1 to give up, 0 to go on."""
        return int(self.abandoned or time.monotonic() > self.deadline)


_LOADED: Memo[str, ctypes.CDLL] = Memo()

_WORKING: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
"""The threads that compile, and some that have."""


def _end() -> None:
    """Let threads come out of NVRTC before the interpreter goes, unless they hang."""
    limit = time.monotonic() + _GRACE_SECONDS
    for thread in list(_WORKING):
        if thread.is_alive():
            thread.join(max(limit - time.monotonic(), 0.0))


atexit.register(_end)


def _load(path: Path) -> ctypes.CDLL:
    """Load NVRTC and declare its functions.  Raises TargetError."""
    try:
        # Not every build finds them by itself; once they are loaded, it does.
        for builtins in _builtins(path):
            ctypes.CDLL(str(builtins))
        library = ctypes.CDLL(str(path))
        _declare(library)
    except (OSError, AttributeError) as error:
        raise TargetError(Diagnostic(f"cannot load NVRTC: {error}", hint=_INSTALL_HINT)) from None
    debug.log(1, f"NVRTC: {path}")
    return library


def _declare(library: ctypes.CDLL) -> None:
    program, text, size = ctypes.c_void_p, ctypes.c_char_p, ctypes.POINTER(ctypes.c_size_t)
    programs, texts = ctypes.POINTER(program), ctypes.POINTER(text)
    library.nvrtcGetErrorString.restype = text
    library.nvrtcGetErrorString.argtypes = (ctypes.c_int,)
    library.nvrtcCreateProgram.argtypes = (programs, text, text, ctypes.c_int, texts, texts)
    library.nvrtcCompileProgram.argtypes = (program, ctypes.c_int, texts)
    library.nvrtcDestroyProgram.argtypes = (programs,)
    for name in ("PTX", "CUBIN", "ProgramLog"):
        getattr(library, f"nvrtcGet{name}Size").argtypes = (program, size)
        getattr(library, f"nvrtcGet{name}").argtypes = (program, text)
    library.nvrtcVersion.argtypes = (ctypes.POINTER(ctypes.c_int), ctypes.POINTER(ctypes.c_int))
    library.nvrtcGetNumSupportedArchs.argtypes = (ctypes.POINTER(ctypes.c_int),)
    library.nvrtcGetSupportedArchs.argtypes = (ctypes.POINTER(ctypes.c_int),)
    if hasattr(library, "nvrtcSetFlowCallback"):
        library.nvrtcSetFlowCallback.argtypes = (program, _FLOW_CALLBACK, ctypes.c_void_p)


def _expect(library: ctypes.CDLL, code: int) -> None:
    if code != 0:
        raise TargetError(f"NVRTC fails: {_describe(library, code)}")


def _describe(library: ctypes.CDLL, code: int) -> str:
    text: bytes = library.nvrtcGetErrorString(code)
    return text.decode(errors="replace")


def _fetch(library: ctypes.CDLL, program: ctypes.c_void_p, name: str) -> bytes:
    size = ctypes.c_size_t()
    get_size: Callable[..., int] = getattr(library, f"nvrtcGet{name}Size")
    get: Callable[..., int] = getattr(library, f"nvrtcGet{name}")
    _expect(library, get_size(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    _expect(library, get(program, buffer))
    return buffer.raw


def _log(library: ctypes.CDLL, program: ctypes.c_void_p) -> str:
    """The log without the times in it, so that one text has one log."""
    lines = _fetch(library, program, "ProgramLog").decode(errors="replace").rstrip("\0").splitlines()
    return "\n".join(line for line in lines if "Compile time =" not in line).strip()


def _release(library: ctypes.CDLL) -> tuple[int, int]:
    """The version that the library says it is of: its file's name has the major one only."""
    major, minor = ctypes.c_int(), ctypes.c_int()
    _expect(library, library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
    return major.value, minor.value


def _architectures(library: ctypes.CDLL) -> list[str]:
    count = ctypes.c_int()
    _expect(library, library.nvrtcGetNumSupportedArchs(ctypes.byref(count)))
    numbers = (ctypes.c_int * count.value)()
    _expect(library, library.nvrtcGetSupportedArchs(numbers))
    return [f"sm_{number}" for number in numbers]


_PLACED_ERROR = re.compile(r"\((?P<line>\d+)\): (?:\w+ )?error(?: #\S+)?: (?P<message>.*)")
_UNPLACED_ERROR = re.compile(r"(?:ptxas .*?|At end of source: )error\s*: (?P<message>.*)")
_CARET = re.compile(r" *\^\s*\Z")


def _diagnostics(log: str, source: SourceText) -> list[Diagnostic]:
    """The errors of a log: those of the front end are placed in the text, but for what is missing at its
    end; those of the assembler are not."""
    lines = log.splitlines()
    found = []
    for index, line in enumerate(lines):
        if placed := _PLACED_ERROR.search(line):
            # Below an error stand its line, indented by two, and a caret.
            shown = lines[index + 2] if index + 2 < len(lines) else ""
            column = shown.index("^") - 2 if _CARET.match(shown) else 0
            start = _line_start(source.text, int(placed["line"])) + max(column, 0)
            found.append(Diagnostic(placed["message"], source, Span(start, start + 1)))
        elif unplaced := _UNPLACED_ERROR.search(line):
            found.append(Diagnostic(f"{source.name}: {unplaced['message']}"))
    return found[:_SHOWN_ERRORS] or [Diagnostic(f"NVRTC fails on {source.name}: {log}")]


def _line_start(text: str, line: int) -> int:
    """Where a line, counted from 1, starts."""
    return sum(len(content) + 1 for content in text.split("\n")[: line - 1])
