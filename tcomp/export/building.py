"""Libraries of exported C, made by the C compiler of this machine, or by a cross compiler."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from tcomp.backends.host import emulated, toolchain
from tcomp.backends.host.processes import run, work_directory
from tcomp.backends.host.toolchain import CLANG, GCC, program_flags
from tcomp.errors import TargetError
from tcomp.mapping.machines.processors import Processor

_SECONDS = 60.0
_ARCHIVER = ("ar", "gcc-ar", "llvm-ar")


GCC_FLAGS, OTHER_FLAGS = program_flags(GCC), program_flags(CLANG)


def build(
    name: str, sources: dict[str, str], extra: Sequence[str], folder: Path, processor: Processor | None = None
) -> dict[str, bytes]:
    """The shared library, and the static one where there is an archiver, by file name.

    ``sources`` are C files by name that include headers from ``folder``; ``extra`` are more flags, which name the
    ``processor``, if it is not this machine's.  Raises TargetError.
    """
    compiler = toolchain.find() if processor is None else emulated.compiler_for(processor)
    parallel = compiler.openmp and any(map(toolchain.uses_threads, sources.values()))
    openmp = compiler.family.openmp_flags if parallel else ("-fopenmp-simd",)
    native = ("-march=native",) if processor is None else ()
    flags = (*native, "-fPIC", *program_flags(compiler.family), *openmp, *extra, "-w", f"-I{folder}")
    with work_directory() as directory:
        variables = toolchain.environment(directory, compiler.family)
        objects = []
        for file, text in sources.items():
            target = str(directory / f"{file.removesuffix('.c')}.o")
            _run((*compiler.command, *flags, "-c", "-x", "c", "-", "-o", target), text, variables, file)
            objects.append(target)
        shared = directory / f"lib{name}.so"
        # gcc's parallel regions end in this library's own threads, so OpenMP's are not needed.
        linked = () if compiler.family is GCC else openmp
        command = (*compiler.command, "-shared", *linked, *objects, "-lm", "-lpthread", "-o", str(shared))
        _run(command, "", variables, shared.name)
        made = {shared.name: shared.read_bytes()}
        archiver = next((path for tool in _ARCHIVER if (path := shutil.which(tool))), None)
        if archiver is not None:
            static = directory / f"lib{name}.a"
            _run((archiver, "rcsD", str(static), *objects), "", variables, static.name)
            made[static.name] = static.read_bytes()
        return made


def _run(command: tuple[str, ...], text: str, variables: Mapping[str, str], what: str) -> None:
    code, messages = run(command, text, _SECONDS, variables)
    if code != 0:
        raise TargetError(f"{Path(command[0]).name} failed on {what}:\n{messages}")
