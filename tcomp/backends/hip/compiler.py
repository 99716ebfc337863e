"""clang for AMD's GPUs: machine code as text, and what kernels take of registers and memory.

Where ROCm is not installed, a header of tcomp's own stands for HIP's: it declares the mathematical library, so texts
compile to machine code of their own, and do not link.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tcomp.backends.host.native import describe
from tcomp.backends.source import Source
from tcomp.errors import Diagnostic, TargetError
from tcomp.storage.memo import Memo

_NAMES = ("clang", *(f"clang-{version}" for version in range(22, 14, -1)))
_OLDEST = 15
_HEADERS = Path(__file__).parent / "device"
_SECONDS = 300
_VERSION = re.compile(r"version (\d+)\.")
_HINT = f"install clang {_OLDEST} or later, such as `apt-get install clang-16`; HIPCC names another"


@dataclass(frozen=True, slots=True)
class Clang:
    """A clang that knows HIP, and its version."""

    path: str
    version: int

    def __str__(self) -> str:
        return f"clang {self.version}: {self.path}"


@dataclass(frozen=True, slots=True)
class Kernel:
    """What a kernel takes: vector and scalar registers, how many of them were spilled, bytes of LDS and of scratch."""

    name: str
    vector_registers: int
    scalar_registers: int
    spilled: int
    shared_bytes: int
    scratch_bytes: int

    def __str__(self) -> str:
        text = f"{self.vector_registers} vector registers, {self.scalar_registers} scalar, {self.spilled} spilled"
        return f"{self.name}: {text}, {self.shared_bytes} bytes of LDS, {self.scratch_bytes} of scratch"


_FOUND: Memo[str | None, Clang] = Memo()


def find() -> Clang:
    """The clang that the variable HIPCC names, or the first of the usual names.  Raises TargetError."""
    return _FOUND.get(os.environ.get("HIPCC"), _find)


def _find() -> Clang:
    own = os.environ.get("HIPCC")
    for name in (own,) if own else _NAMES:
        path = shutil.which(name)
        if path is None:
            continue
        run = subprocess.run([path, "--version"], capture_output=True, text=True, check=False, timeout=_SECONDS)
        version = _VERSION.search(run.stdout)
        if version is not None and int(version[1]) >= _OLDEST:
            return Clang(path, int(version[1]))
    what = f"HIPCC is {own!r}, which is no clang {_OLDEST} or later" if own else "there is no clang for HIP"
    raise TargetError(Diagnostic(what, hint=_HINT))


def assemble(source: Source, architecture: str) -> str:
    """The machine code of a text as text.  Raises TargetError without clang, or where it refuses the text."""
    clang = find()
    command = [
        clang.path, "-x", "hip", "--offload-device-only", f"--offload-arch={architecture}", "-nogpuinc", "-nogpulib",
        "-isystem", str(_HEADERS), "-std=c++17", "-O3", "-w", *source.flags, "-S", "-o", "-",
    ]  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="tcomp-") as folder:
        file = Path(folder) / "kernel.hip"
        file.write_text(source.text, encoding="utf-8")
        try:
            run = subprocess.run(
                [*command, str(file)], capture_output=True, text=True, check=False, timeout=_SECONDS, cwd=folder
            )
        except subprocess.TimeoutExpired:
            raise TargetError(f"{clang} takes more than {_SECONDS} s for {describe(source)}") from None
    if run.returncode:
        first = next((line for line in run.stderr.splitlines() if "error" in line), run.stderr.strip())
        raise TargetError(f"{clang} refuses {describe(source)} for {architecture}: {first}")
    return run.stdout


def kernels_in(assembly: str) -> tuple[Kernel, ...]:
    """What the kernels of machine code take, from the metadata at its end."""
    found = []
    for entry in re.split(r"^  - (?=\.)", assembly.partition(".amdgpu_metadata")[2], flags=re.M)[1:]:
        facts = dict(re.findall(r"^ *\.(\w+): +(\S+)$", entry, re.M))
        spilled = int(facts["vgpr_spill_count"]) + int(facts["sgpr_spill_count"])
        shared, scratch = int(facts["group_segment_fixed_size"]), int(facts["private_segment_fixed_size"])
        found.append(
            Kernel(facts["name"], int(facts["vgpr_count"]), int(facts["sgpr_count"]), spilled, shared, scratch)
        )
    return tuple(found)
