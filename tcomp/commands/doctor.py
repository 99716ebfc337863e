"""``tcomp doctor``: what is on this machine, which targets work, and whether a small kernel gives the right result."""

from __future__ import annotations

import argparse
import importlib.util
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path

import numpy as np

from tcomp.arrays.arrays import fetched, moved
from tcomp.backends.cuda.tools import nvrtc, sass
from tcomp.backends.hip import compiler as hip_compiler
from tcomp.backends.host import toolchain
from tcomp.backends.simulator import compiler as simulator_compiler
from tcomp.commands.kept.cache import count, directory_name, readable_size
from tcomp.commands.terminal.display import show_line, show_table
from tcomp.commands.terminal.exit_codes import DONE, NOT_HERE, WRONG
from tcomp.debug import VARIABLES
from tcomp.engine import define
from tcomp.errors import TargetError, TcompError
from tcomp.runtime.registry import Availability, memory_of, targets
from tcomp.storage.cache import store
from tcomp.tuner.settings import LEARNING
from tcomp.version import __version__

_PACKAGES = (
    "islpy",
    "lark",
    "numpy",
    "platformdirs",
    "rich",
    "scipy",
    "torch",
    "cupy-cuda12x",
    "cupy-cuda13x",
    "nvidia-cuda-nvrtc",
    "nvidia-cuda-nvrtc-cu12",
    "pyopencl",
    "pocl-binary-distribution",
    "ziglang",
)
_VECTOR_FEATURES = (
    "sse4_2",
    "avx",
    "avx2",
    "fma",
    "f16c",
    "avx512f",
    "avx512_vnni",
    "avx512_bf16",
    "amx_tile",
    "asimd",
    "sve",
)
_PROGRAM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """``tcomp doctor`` takes none."""
    parser.set_defaults(execute=lambda _: examine())


def examine() -> int:
    """Print what was found.  Returns NOT_HERE where no target works, WRONG where a kernel gives a wrong result."""
    show_table(("what", "found"), [*_software(), *_machine(), *_cache(), *_environment()])
    show_line("")
    states = targets()
    show_table(("target", "works", "with, or why not"), [_state(name, state) for name, state in states.items()])
    show_line("")
    working = [name for name, state in states.items() if state.available]
    return max((_try_out(target) for target in working), default=NOT_HERE)


def _state(name: str, state: Availability) -> tuple[str, str, str]:
    return name, "yes" if state.available else "no", state.detail


def _software() -> Iterator[tuple[str, str]]:
    yield "tcomp", __version__
    yield "Python", f"{platform.python_version()} ({platform.python_implementation()})"
    for package in _PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            yield package, metadata.version(package)
    if importlib.util.find_spec(LEARNING) is None:
        yield "scikit-learn", "not installed, so tuning is genetic; pip install 'tcomp[tune]'"


def _machine() -> Iterator[tuple[str, str]]:
    yield "system", f"{platform.system()} {platform.release()}, {platform.machine()}, {os.cpu_count()} processors"
    yield "processor", _processor()
    for name, describe in _TOOLS.items():
        try:
            yield name, describe()
        except TargetError as error:
            hint = error.diagnostics[0].hint
            yield name, f"{error.message}; {hint}" if hint else error.message


def _c_compiler() -> str:
    compiler = toolchain.find()
    parallel = "with OpenMP" if compiler.openmp else "without OpenMP: kernels run on one thread"
    return f"{' '.join(compiler.command)}: {compiler.version}, {parallel}"


def _simulator_compiler() -> str:
    compiler = simulator_compiler.find()
    return f"{' '.join(compiler.command)}: {compiler.version}"


def _nvrtc() -> str:
    compiler = nvrtc.find()
    return f"{'.'.join(map(str, compiler.version))}: {compiler.path}"


_TOOLS: dict[str, Callable[[], str]] = {
    "C compiler": _c_compiler,
    "simulator's C++": _simulator_compiler,
    "NVRTC": _nvrtc,
    "disassembler": lambda: str(sass.find()),
    "clang for HIP": lambda: str(hip_compiler.find()),
}
"""What describes each tool, or raises TargetError where it is missing."""


def _processor() -> str:
    """Name and vector instructions of the first processor, where the system tells."""
    facts: dict[str, str] = {}
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if not line.strip():
                break
            name, _, value = line.partition(":")
            facts[name.strip()] = value.strip()
    features = facts.get("flags", facts.get("Features", "")).split()
    known = [feature for feature in _VECTOR_FEATURES if feature in features]
    return f"{facts.get('model name', platform.processor() or 'unknown')}; {' '.join(known) or 'features unknown'}"


def _cache() -> Iterator[tuple[str, str]]:
    entries = list(store().entries())
    yield "cache", f"{directory_name()}: {count(len(entries))}, {readable_size(sum(e.size for e in entries))}"


def _environment() -> Iterator[tuple[str, str]]:
    for name in (*(variable.name for variable in VARIABLES), "CC", "OMP_NUM_THREADS"):
        if name in os.environ:
            yield name, os.environ[name]


def _try_out(target: str) -> int:
    """Compile and run a small matrix product and compare it with NumPy's."""
    values = np.random.default_rng(0).integers(-4, 5, (2, 48, 48)).astype(np.float32)
    begin = time.perf_counter()
    try:
        result = fetched(define(_PROGRAM).mm(*(moved(v, memory_of(target)) for v in values), target=target))
    except TcompError as error:
        show_line(f"self-test on {target}: {error}", "red")
        return WRONG
    seconds = time.perf_counter() - begin
    if not np.array_equal(result, values[0] @ values[1]):
        show_line(f"self-test on {target}: a 48x48 matrix product is wrong", "red")
        return WRONG
    show_line(f"self-test on {target}: a 48x48 matrix product is right, {seconds * 1e3:.0f} ms", "green")
    return DONE
