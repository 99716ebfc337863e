"""g++ for the simulator: the runtime once per machine, each kernel's text in a fraction of a second.

``-fsanitize=thread`` makes the compiler put a call in front of every load and store; the calls end in the runtime,
which is linked in place of the sanitizer's own library.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from tcomp import debug
from tcomp.backends.host.processes import run, work_directory
from tcomp.backends.host.toolchain import GCC, environment
from tcomp.backends.simulator.text import FILE, dynamic_names
from tcomp.backends.source import ANYWHERE
from tcomp.errors import TargetError
from tcomp.storage.cache import store
from tcomp.storage.memo import Memo

STACK_BYTES = 256 * 1024
"""The stack of one simulated thread; larger frames are refused when the text is compiled."""

_COMPILE_SECONDS = 120.0
_IDENTIFY_SECONDS = 10.0
_DEVICE = Path(__file__).parent / "device"
_HINT = "install g++, or set CXX to GNU's C++ compiler"
_ALLOWED_FLAGS = ("-ffast-math", ANYWHERE)

_CODE_FLAGS = (
    "-std=c++17",
    "-fPIC",
    "-fvisibility=hidden",
    "-fno-exceptions",
    "-fno-rtti",
    "-fno-stack-protector",
    "-fstack-reuse=none",
    "-fcf-protection=none",
    "-fwrapv",
    "-fno-math-errno",
)  # fmt: skip

_RUNTIME_FLAGS = (*_CODE_FLAGS, "-O2", "-g0", "-w", "-c")

_KERNEL_FLAGS = (
    *_CODE_FLAGS,
    *("-O1", "-g1", "-shared", "-nostdlib"),
    *("-fsanitize=thread,bounds-strict,integer-divide-by-zero", "--param", "tsan-instrument-func-entry-exit=0"),
    # Vector loads and stores stay whole, and barriers where they are.
    *("-fno-tree-sra", "-fno-thread-jumps", "-fno-strict-aliasing", "-fno-threadsafe-statics"),
    # Loads and stores happen where and when the text says: out of a loop or a branch they would race.
    *("-fno-tree-loop-im", "-fno-tree-sink", "-fno-tree-dominator-opts", "-fno-tree-cselim", "-fno-tree-phiprop"),
    *("-fno-tree-loop-distribute-patterns", "-ffp-contract=off", "-fno-asynchronous-unwind-tables"),
    *(f"-Werror=frame-larger-than={STACK_BYTES // 2}", "-Wl,-Bsymbolic", "-Wl,-z,defs", "-Wl,--build-id=none"),
)


@dataclass(frozen=True, slots=True)
class Compiler:
    """GNU's C++ compiler; ``identity`` is a digest of what may change its output, the runtime's text included."""

    command: tuple[str, ...]
    version: str
    identity: str


_COMPILERS: Memo[tuple[tuple[str, ...], int, int], Compiler] = Memo()
_RUNTIMES: Memo[str, bytes] = Memo()


def find() -> Compiler:
    """The compiler to use.  Raises TargetError if there is none, or it is not GNU's."""
    command = _command()
    status = Path(command[0]).stat()
    return _COMPILERS.get((command, status.st_mtime_ns, status.st_size), lambda: _identify(command))


def why_not() -> str | None:
    """Why kernels cannot be simulated here, or None."""
    try:
        find()
    except TargetError as error:
        return error.message
    return None


def image_key(compiler: Compiler, text: str, flags: tuple[str, ...]) -> str:
    """The name of a compiled text in the cache."""
    facts = (compiler.identity, _RUNTIME_FLAGS, text, _flags(text, flags))
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def compile_image(compiler: Compiler, text: str, original: str, flags: tuple[str, ...], name: str) -> bytes:
    """The shared object for a text.  ``original`` is what NVRTC gets, ``name`` the kernel's, for messages.

    Raises TargetError if the compiler fails.
    """
    runtime = _RUNTIMES.get(compiler.identity, lambda: _runtime(compiler))
    with work_directory() as directory:
        (directory / "runtime.o").write_bytes(runtime)
        arguments = (
            *_flags(original, flags),
            *("-include", str(_DEVICE / "cuda.hpp"), "-x", "c++", "-"),
            *("-x", "none", str(directory / "runtime.o"), "-lm", "-lc", "-lgcc"),
        )
        return _compile(compiler, arguments, f'#line 1 "{FILE}"\n{text}', directory, f"kernel {name}")


def _flags(text: str, flags: tuple[str, ...]) -> tuple[str, ...]:
    dynamic = tuple(f"-Wl,--defsym={name}=tc_sim_dynamic" for name in dynamic_names(text))
    return (*_KERNEL_FLAGS, *(f for f in flags if f in _ALLOWED_FLAGS), *dynamic)


def _runtime(compiler: Compiler) -> bytes:
    key = hashlib.sha256(json.dumps((compiler.identity, _RUNTIME_FLAGS)).encode()).hexdigest()
    kept = store().get("simruntime", key)
    if kept is None:
        with work_directory() as directory:
            arguments = (*_RUNTIME_FLAGS, str(_DEVICE / "runtime.cpp"))
            kept = _compile(compiler, arguments, "", directory, "the simulator's runtime")
        store().put("simruntime", key, f"simulator runtime, {compiler.version}", kept)
    return kept


def _compile(compiler: Compiler, arguments: tuple[str, ...], text: str, directory: Path, what: str) -> bytes:
    output = directory / "output"
    command = (*compiler.command, *arguments, "-o", str(output))
    debug.log(4, shlex.join(command))
    code, messages = run(command, text, _COMPILE_SECONDS, environment(directory, None))
    if code != 0:
        raise TargetError(f"{shlex.join(compiler.command)} failed on {what} (exit status {code}):\n{messages}")
    try:
        return output.read_bytes()
    except OSError as error:
        message = f"{shlex.join(compiler.command)} gave no output for {what}: {error.strerror}"
        raise TargetError(message) from None


def _command() -> tuple[str, ...]:
    chosen = os.environ.get("CXX", "").strip()
    try:
        words = shlex.split(chosen) or ["g++"]
    except ValueError as error:
        raise TargetError(f"CXX is {chosen!r}: {error}") from None
    path = shutil.which(words[0])
    if path is None:
        problem = f"CXX is {chosen!r}, which is not a program" if chosen else "there is no C++ compiler on this machine"
        raise TargetError(f"{problem}; {_HINT}")
    return (str(Path(path).absolute()), *words[1:])


def _identify(command: tuple[str, ...]) -> Compiler:
    with work_directory() as directory:
        code, messages = run((*command, "--version"), "", _IDENTIFY_SECONDS, environment(directory, None), output=True)
    version = messages.partition("\n")[0]
    if code != 0 or GCC.mark not in messages or re.search(r"\bclang\b", messages):
        raise TargetError(f"the simulator needs GNU's C++ compiler, but {command[0]} is {version or 'silent'}; {_HINT}")
    parts = [file.read_text(encoding="utf-8") for file in sorted(_DEVICE.iterdir()) if file.is_file()]
    facts = json.dumps((command, messages, parts))
    return Compiler(command, version, hashlib.sha256(facts.encode()).hexdigest())
