"""Kernels for processors that this machine lacks: compiled by a cross compiler, run by QEMU.

Each call is a process of its own.  Its arrays lie in one file that it maps, at the distances that they have here, so
that what overlaps here overlaps there.  Times say nothing.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tcomp import debug
from tcomp.backends.host import toolchain
from tcomp.backends.host.processes import run, work_directory
from tcomp.backends.host.toolchain import COMPILE_SECONDS, GCC, Toolchain, program_flags, uses_threads
from tcomp.backends.host.transfers import WORD, Block, Transfer, transferred
from tcomp.backends.source import Source
from tcomp.errors import Diagnostic, TargetError
from tcomp.grammar.tree.limits import MAX_INDICES
from tcomp.mapping.machines.processors import Processor
from tcomp.storage.cache import store

EMULATION_SECONDS = 600.0
"""How long an emulated call may take; QEMU is some 20 to 100 times as slow as a processor."""

_REPORT_BYTES = WORD * (3 + MAX_INDICES)
_NEWEST_GCC = 20
_INSTALL = "on Debian: apt-get install gcc-{0}-linux-gnu libc6-dev-{1}-cross qemu-user"
_DEBIAN = {"aarch64": ("aarch64", "arm64"), "x86_64": ("x86-64", "amd64")}


@dataclass(frozen=True, slots=True)
class Tools:
    """A compiler for the instructions of a processor, and what runs its programs on this machine."""

    compiler: str
    emulator: str


def find(processor: Processor) -> Tools:
    """The tools for a processor.  Raises TargetError where one is missing."""
    path = os.environ.get("PATH", "")
    return Tools(_cross_compiler(processor.instructions, path), _emulator(processor.instructions, path))


@functools.cache
def _cross_compiler(instructions: str, _path: str) -> str:
    prefix = f"{instructions}-linux-gnu-gcc"
    names = (prefix, *(f"{prefix}-{version}" for version in range(_NEWEST_GCC, 9, -1)))
    return _first(instructions, names)


@functools.cache
def _emulator(instructions: str, _path: str) -> str:
    return _first(instructions, (f"qemu-{instructions}", f"qemu-{instructions}-static"))


def _first(instructions: str, names: Sequence[str]) -> str:
    found = next((path for name in names if (path := shutil.which(name))), None)
    if found is None:
        hint = _INSTALL.format(*_DEBIAN[instructions])
        raise TargetError(Diagnostic(f"there is no {names[0]} on this machine", hint=hint))
    return found


def compiler_for(processor: Processor) -> Toolchain:
    """What compiles for a processor: this machine's compiler where it knows its instructions, else a cross compiler.

    Raises TargetError where there is none.
    """
    if platform.machine() == processor.instructions:
        return toolchain.find()
    command = (_cross_compiler(processor.instructions, os.environ.get("PATH", "")),)
    return Toolchain(command, GCC, command[0], True, command[0])


def load(source: Source, processor: Processor) -> EmulatedKernel:
    """A kernel as a program for a processor: from the cache on disk or the compiler.  Raises TargetError."""
    tools = find(processor)
    text = _runner(source)
    facts = (source.text, text, *source.flags, tools.compiler, str(Path(tools.compiler).stat().st_mtime_ns))
    key = hashlib.sha256("\n".join(facts).encode()).hexdigest()
    with store().turn("emulated", key):
        program = store().get("emulated", key)
        if program is None:
            program = _compiled(source, text, tools)
            store().put("emulated", key, source.entry, program)
    return EmulatedKernel(source, (tools.emulator, "-cpu", processor.emulated), program)


def _compiled(source: Source, runner: str, tools: Tools) -> bytes:
    with work_directory() as directory:
        kernel, around, output = directory / "kernel.c", directory / "runner.c", directory / "program"
        kernel.write_text(source.text, encoding="utf-8")
        around.write_text(runner, encoding="utf-8")
        parallel = ("-fopenmp",) if uses_threads(source.text) else ("-fopenmp-simd",)
        command = (tools.compiler, *program_flags(GCC), *parallel, *source.flags, "-w", "-static")
        command += (str(kernel), str(around), "-o", str(output), "-lm")
        debug.log(4, " ".join(command))
        code, messages = run(command, "", COMPILE_SECONDS, os.environ | {"TMPDIR": str(directory), "LC_ALL": "C"})
        if code != 0:
            raise TargetError(f"{Path(tools.compiler).name} failed on kernel {source.entry}:\n{messages}")
        return output.read_bytes()


def _runner(source: Source) -> str:
    """A program around a kernel: it maps the file that it is given, in whose first words it finds where arrays are."""
    count = len(source.arguments)
    places = ", ".join(f"AT({number})" for number in range(1, count + 3))
    lines = ["#include <fcntl.h>", "#include <stdint.h>", "#include <sys/mman.h>", "#include <sys/stat.h>"]
    lines += ["#define AT(n) (places[n] ? base + places[n] : 0)", f"extern int {source.entry}();"]
    if source.packing is not None:
        lines.append(f"extern void {source.packing}();")
    lines += ["int main(int count, char **words) {", "  int file = open(words[1], O_RDWR);", "  struct stat status;"]
    lines += ["  if (file < 0 || fstat(file, &status)) return 2;"]
    lines += ["  char *base = mmap(0, status.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);"]
    lines += ["  if (base == MAP_FAILED) return 2;", "  int64_t *places = (int64_t *)base;"]
    if source.packing is not None:
        first = count - len(source.bound) + 1
        bound = ", ".join(f"AT({number})" for number in range(first, count + 1))
        lines.append(f"  if (count > 2) return {source.packing}({bound}), 0;")
    lines += [f"  places[0] = {source.entry}({places});", "  return 0;", "}"]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class EmulatedKernel:
    """A kernel that is called as those of this process are (``NativeFunction``)."""

    source: Source
    command: tuple[str, ...]
    program: bytes

    def __call__(self, *addresses: int | None) -> int:
        """Run on the arguments at these addresses, behind which stand those of scratch memory and report.

        Raises TargetError if the program does not end well, or in time.
        """
        *given, scratch, report = addresses
        assert report is not None
        arguments = self.source.arguments
        blocks = [Block.of(argument, address) for argument, address in zip(arguments, given, strict=True)]
        blocks.append(Block(scratch or 0, 0, self.source.scratch_bytes, fresh=True))
        blocks.append(Block(report, 0, _REPORT_BYTES))
        with self._run(blocks) as done:
            for number, (argument, address) in enumerate(zip(arguments, given, strict=True)):
                if argument.role != "input" and address is not None:
                    done.fetch(number, argument, address)
            ctypes.memmove(report, done.bytes(len(arguments) + 1, _REPORT_BYTES), _REPORT_BYTES)
            return done.status

    def packing(self, *addresses: int) -> None:
        """Fill the last of the bound arguments from the others.  Raises what a call does."""
        bound, before = self.source.bound, len(self.source.called)
        blocks = [Block(0, 0, 0)] * before
        blocks += [Block.of(argument, address) for argument, address in zip(bound, addresses, strict=True)]
        with self._run([*blocks, Block(0, 0, 0), Block(0, 0, 0)], "packing") as done:
            done.fetch(before + len(bound) - 1, bound[-1], addresses[-1])

    @contextmanager
    def _run(self, blocks: Sequence[Block], *words: str) -> Iterator[Transfer]:
        with work_directory() as directory:
            program = directory / "program"
            program.write_bytes(self.program)
            program.chmod(0o700)
            with transferred(blocks, directory / "memory") as transfer:
                command = (*self.command, str(program), str(directory / "memory"), *words)
                code, messages = run(command, "", EMULATION_SECONDS, os.environ)
                if code != 0:
                    raise TargetError(f"{self.source.entry} ended with status {code} under emulation: {messages}")
                yield transfer
