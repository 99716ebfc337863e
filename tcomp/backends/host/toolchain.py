"""The machine's C compiler: which one there is, how it is called, and what it makes of a kernel's text.

``$CC`` if it is set, else gcc, clang or cc, else the one in the ``ziglang`` wheel.  Kernels hold no headers and call
nothing but libm and OpenMP, so the link leaves out the start files, and with gcc libc too (8 of 60 ms).
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import platform
import shlex
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from tcomp import debug
from tcomp.backends.host import linking, sharedfunctions
from tcomp.backends.host.linking import Link
from tcomp.backends.host.processes import Running, run, started, work_directory
from tcomp.backends.host.sharedfunctions import SharedFunctions
from tcomp.errors import TargetError
from tcomp.storage.cache import store
from tcomp.storage.forks import Renewed
from tcomp.storage.memo import Memo
from tcomp.storage.turns import stand_aside

COMPILE_SECONDS = 60.0
"""How long the compiler may take for one kernel; the largest known takes one."""

_IDENTIFY_SECONDS = 10.0
_INSTALL_HINT = "install gcc or clang, or `pip install ziglang`, or set CC to a C compiler"

MEANING_FLAGS = ("-std=gnu11", "-fwrapv", "-fno-math-errno", "-fno-trapping-math")
"""Integers wrap, as in the language.  IEEE arithmetic but for contraction to fused multiply-adds, which every compiler
of the list does for gnu11."""

_COMMON_FLAGS = (*MEANING_FLAGS, "-march=native", "-fPIC", "-shared", "-w")

_PLAIN_START = ("-nostartfiles",)
"""With -ffast-math, start files would make the thread that loads a kernel flush denormals from then on."""

_OPENMP_PROBE = "void f(float *a) {\n#pragma omp parallel for\nfor (int i = 0; i < 64; ++i) a[i] = 0;\n}\n"
_ALL_DEFINED = ("-Wl,-z,defs",) if sys.platform == "linux" else ()
"""Makes the linker complain of a library that is not there, as others do unasked."""


@dataclass(frozen=True, slots=True)
class Family:
    """Compilers that take the same flags.  ``mark`` occurs in their ``--version`` text."""

    name: str
    mark: str
    flags: tuple[str, ...]
    libraries: tuple[str, ...]
    openmp_flags: tuple[str, ...]
    openmp_libraries: tuple[str, ...]
    openmp: bool | None
    """Whether OpenMP is there; None where only a trial tells."""


GCC = Family(
    "gcc",
    "Free Software Foundation",
    flags=(
        *("-O2", "-ftree-vectorize", "-fvect-cost-model=dynamic", "-fno-tree-slp-vectorize"),
        *("-fno-tree-dominator-opts", "-fno-aggressive-loop-optimizations"),
        *("-ffp-contract=fast", "-fno-stack-protector", "-nostdlib", "-fstack-reuse=none"),
    ),
    libraries=("-lm", "-lgcc"),
    openmp_flags=("-fopenmp",),
    openmp_libraries=("-lgomp",),
    openmp=True,
)
"""-O2 leaves out what -O3 does to loops besides vectors: unrolling the short loops inside a register tile costs kernels
up to half of their speed (depthwise and strided convolutions, pooling), and 10 to 20 % of compile time.  The cost
model is that of -O3; -O2 by itself vectorises only what costs nothing.  Of all that -O2 does, two things take 3 % of
its time each and gained no kernel anything: dominator optimisations, and bounds of loops from what would be
undefined.

Straight-line code is not vectorised: gcc 12 then takes a load for older than the store that it follows
(``tests/fuzzed/store-that-gcc-moves-behind-a-load.tc``).  No kernel measured is slower for it.

Variables do not share places on the stack: gcc takes a buffer for dead whose address a loop keeps in a register
(its bug 90348; ``tests/fuzzed/buffer-whose-room-gcc-gives-away.tc``)."""
CLANG = Family(
    "clang",
    "clang",
    flags=("-O3", "-ffp-contract=fast", *_PLAIN_START),
    libraries=("-lm",),
    openmp_flags=("-fopenmp",),
    openmp_libraries=(),
    openmp=None,
)
ZIG = Family(
    "zig",
    "",
    flags=("-O3", "-ffp-contract=fast", "-fno-sanitize=all"),
    libraries=("-lm",),
    openmp_flags=(),
    openmp_libraries=(),
    openmp=False,
)
OTHER = Family(
    "cc",
    "",
    flags=("-O3", *_PLAIN_START),
    libraries=("-lm",),
    openmp_flags=("-fopenmp",),
    openmp_libraries=(),
    openmp=None,
)


@dataclass(frozen=True, slots=True)
class Toolchain:
    """A compiler that has told its version.

    ``command`` is what precedes the flags; ``version`` the first line of what ``--version`` prints; ``identity`` a
    digest of everything about compiler and processor that may change the machine code.
    """

    command: tuple[str, ...]
    family: Family
    version: str
    openmp: bool
    identity: str

    def arguments(self, text: str, flags: tuple[str, ...], *, own_threads: bool = False) -> tuple[str, ...]:
        """Flags for one kernel, ``flags`` of its own last; its regions run on tcomp's own threads or on OpenMP's."""
        parallel = self.openmp and uses_threads(text)
        libraries = _OWN_THREADS if own_threads else self.family.openmp_libraries
        return (
            *_COMMON_FLAGS,
            *self.family.flags,
            *(self.family.openmp_flags if parallel else ("-fopenmp-simd",)),
            *flags,
            *("-x", "c", "-"),
            *(libraries if parallel else ()),
            *self.family.libraries,
        )

    def linker(self, text: str, flags: tuple[str, ...], own_threads: bool) -> str | None:
        """The linker that makes a kernel's shared object by itself; None where the compiler has to."""
        alone = self.family is GCC and len(self.command) == 1 and linking.may_do_alone(text, flags)
        return linking.linker() if alone and (own_threads or not uses_threads(text)) else None


_NAMES = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads", "omp_get_max_threads")
_WRAPPED = tuple(f"--wrap={name}" for name in _NAMES)
_OWN_THREADS = (f"-Wl,{','.join(_WRAPPED)}",)
"""Lets the linker put in place of GNU OpenMP's functions those that ``threads.c`` has."""

_OPENMP_STUBS = """
__attribute__((visibility("hidden"))) int omp_get_thread_num(void) { return 0; }
__attribute__((visibility("hidden"))) int omp_get_num_threads(void) { return 1; }
__attribute__((visibility("hidden"))) int omp_get_max_threads(void) { return 1; }
"""
"""What kernels call of OpenMP, for compilers that have none: the loops then run on one thread."""


def program_flags(family: Family) -> tuple[str, ...]:
    """What kernels need of a compiler to mean what they mean, and be fast, in a library or program of others."""
    left_out = ("-nostdlib", "-nostartfiles")
    return (*MEANING_FLAGS, *(flag for flag in family.flags if flag not in left_out))


def uses_threads(text: str) -> bool:
    """Whether a kernel asks for threads."""
    return "#pragma omp parallel" in text or "omp_get_" in text


def find() -> Toolchain:
    """The C compiler to use.  Raises TargetError if there is none, or it does not run."""
    command, family = _command()
    status = Path(command[0]).stat()
    return _TOOLCHAINS.get(
        (command, status.st_mtime_ns, status.st_size, status.st_ino), lambda: _identify(command, family)
    )


def compile_shared(
    toolchain: Toolchain, text: str, flags: tuple[str, ...], name: str, *, own_threads: bool = False
) -> bytes:
    """The shared object that the compiler makes of a C text; ``name`` is the kernel's, for messages.

    Raises TargetError if the compiler fails or takes longer than ``COMPILE_SECONDS``.
    """
    with compiling(toolchain, text, flags, name, own_threads=own_threads) as image:
        return image()


@contextmanager
def compiling(
    toolchain: Toolchain,
    text: str,
    flags: tuple[str, ...],
    name: str,
    *,
    own_threads: bool = False,
    counted: bool = True,
) -> Iterator[Callable[[], bytes]]:
    """The compiler at work during the block, at whose end it is stopped.

    What is given waits for the shared object, and raises what ``compile_shared`` does.  One that is not ``counted``
    takes none of the places that there are for compilers, and so waits for none.
    """
    arguments = toolchain.arguments(text, flags, own_threads=own_threads)
    if uses_threads(text) and not toolchain.openmp:
        text += _OPENMP_STUBS
    debug.log(4, shlex.join((*toolchain.command, *arguments)))
    with work_directory() as directory:
        output = directory / "kernel.so"
        command = (*toolchain.command, *arguments, "-o", str(output))
        variables = environment(directory, toolchain.family)
        place, linker = _SLOTS.value if counted else nullcontext(), toolchain.linker(text, flags, own_threads)
        if linker is None:
            with place, started(command, text, variables) as compiler:
                yield lambda: _image(toolchain, compiler, output, name)
            return
        shared_by = (*toolchain.command, *_COMMON_FLAGS, *toolchain.family.flags)
        with place, sharedfunctions.shared(text, directory, shared_by, toolchain.identity) as shared:
            objects = shared.objects, shared.beside
            link = linking.Link(linker, toolchain.command, arguments, _WRAPPED, directory, output, *objects)
            with started(link.steps, shared.text, variables) as compiler:
                yield lambda: _linked(toolchain, link, shared, compiler, name)


def _linked(toolchain: Toolchain, link: Link, shared: SharedFunctions, compiler: Running, name: str) -> bytes:
    """The shared object that was linked without libraries, or with them if it needs some."""
    image = _image(toolchain, compiler, link.output, name)
    shared.keep()
    if linking.is_complete(image):
        return image
    with started(link.again, "", environment(link.directory, toolchain.family)) as linker:
        return _image(toolchain, linker, link.output, name)


def _image(toolchain: Toolchain, compiler: Running, output: Path, name: str) -> bytes:
    stand_aside()
    code, messages = compiler.finished(COMPILE_SECONDS)
    if code != 0:
        raise TargetError(f"{_display(toolchain.command)} failed on kernel {name} ({_ending(code)}):\n{messages}")
    try:
        return output.read_bytes()
    except OSError as error:
        raise TargetError(
            f"{_display(toolchain.command)} gave no shared object for kernel {name}: {error.strerror}"
        ) from None


@functools.cache
def cpu_identity() -> str:
    """What ``-march=native`` depends on: a digest of the processor's name and features."""
    facts = [platform.system(), platform.machine(), platform.processor()]
    with suppress(OSError), Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as file:
        # One processor's block is enough, and reading it does not grow with the number of processors.
        for line in file:
            if not line.strip():
                break
            name, _, value = line.partition(":")
            if name.strip() in _CPU_FACTS:
                facts.append(value.strip())
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()


_CPU_FACTS = (
    *("vendor_id", "cpu family", "model", "model name", "stepping", "flags"),
    *("CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features"),
)

_SLOTS = Renewed(lambda: threading.BoundedSemaphore(2 * (os.cpu_count() or 1)))
"""How many compilers run at a time in this process: each takes some 50 MB."""

_TOOLCHAINS: Memo[tuple[tuple[str, ...], int, int, int], Toolchain] = Memo()


def _command() -> tuple[tuple[str, ...], Family | None]:
    """The compiler's command with an absolute path, and its family where that is known without asking."""
    chosen = os.environ.get("CC", "").strip()
    if chosen:
        try:
            words = shlex.split(chosen)
        except ValueError as error:
            raise TargetError(f"CC is {chosen!r}: {error}") from None
        path = shutil.which(words[0]) if words else None
        if path is None:
            raise TargetError(f"CC is {chosen!r}, which is not a program; {_INSTALL_HINT}")
        is_zig = any(Path(word).name in ("zig", "ziglang") for word in words)
        return (str(Path(path).absolute()), *words[1:]), ZIG if is_zig else None
    for name in ("gcc", "clang", "cc"):
        path = shutil.which(name)
        if path is not None:
            return (str(Path(path).absolute()),), None
    zig = _zig()
    if zig is not None:
        return (zig, "cc"), ZIG
    raise TargetError(f"there is no C compiler on this machine; {_INSTALL_HINT}")


def _zig() -> str | None:
    """The compiler inside the ``ziglang`` wheel: started by itself, it saves the 20 ms of ``python -m ziglang``."""
    package = importlib.util.find_spec("ziglang")
    for folder in (package.submodule_search_locations or ()) if package else ():
        program = Path(folder, "zig")
        if os.access(program, os.X_OK):
            return str(program)
    return None


def _identify(command: tuple[str, ...], family: Family | None) -> Toolchain:
    with work_directory() as directory:
        variables = environment(directory, family)
        code, messages = run((*command, "--version"), "", _IDENTIFY_SECONDS, variables, output=True)
    if code != 0:
        raise TargetError(f"{_display(command)} --version failed ({_ending(code)}); {_INSTALL_HINT}\n{messages}")
    family = family or next((f for f in (CLANG, GCC) if f.mark in messages), OTHER)
    version = messages.partition("\n")[0]
    facts = "\n".join((*command, messages, cpu_identity()))
    identity = hashlib.sha256(facts.encode()).hexdigest()
    toolchain = Toolchain(command, family, version, True, identity)
    openmp = _has_openmp(toolchain) if family.openmp is None else family.openmp
    debug.log(1, f"C compiler: {_display(command)}, {version}{'' if openmp else ', without OpenMP'}")
    return Toolchain(command, family, version, openmp, identity)


def _has_openmp(toolchain: Toolchain) -> bool:
    """Whether a parallel loop compiles and links.  The answer is kept on disk, for it costs a compilation."""
    kept = store().get("openmp", toolchain.identity)
    if kept is not None:
        return kept == b"1"
    try:
        compile_shared(toolchain, _OPENMP_PROBE, _ALL_DEFINED, "probe")
    except TargetError:
        found = False
    else:
        found = True
    store().put("openmp", toolchain.identity, toolchain.version, b"1" if found else b"0")
    return found


def environment(directory: Path, family: Family | None) -> Mapping[str, str]:
    """The variables of a compiler that works in ``directory``."""
    variables = os.environ | {"TMPDIR": str(directory), "LC_ALL": "C"}
    if family is ZIG and not os.access(os.environ.get("XDG_CACHE_HOME") or os.environ.get("HOME", ""), os.W_OK):
        variables.setdefault("ZIG_GLOBAL_CACHE_DIR", str(directory))
    return variables


def _display(command: tuple[str, ...]) -> str:
    return shlex.join(command)


def _ending(code: int) -> str:
    """How a process ended, or what a shell started in it, which adds 128 to signals."""
    number = -code if code < 0 else code - 128
    with suppress(ValueError):
        return f"killed by {signal.Signals(number).name}"
    return f"killed by signal {number}" if code < 0 else f"exit status {code}"
