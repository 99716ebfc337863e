"""Processors that kernels can be compiled for by name, whether this machine has one or not."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace

from tcomp.errors import Diagnostic, TargetError
from tcomp.mapping.machines.cpu import Machine, processor_features

X86, ARM = "x86_64", "aarch64"
"""The instruction sets, as ``uname -m`` calls them."""


@dataclass(frozen=True, slots=True)
class Processor:
    """A processor by name: what passes need to know of it, and what compilers and emulators call it.

    ``flags`` tell gcc and clang which instructions there are.  ``features`` are what Linux must say of a processor that
    runs such kernels.  ``emulated`` is the processor that QEMU takes for it.
    """

    instructions: str
    machine: Machine
    flags: tuple[str, ...]
    features: frozenset[str]
    emulated: str
    help: str

    @property
    def missing(self) -> str:
        """What this machine lacks to run kernels of this processor itself; empty where it lacks nothing."""
        here = platform.machine().replace("arm64", ARM)
        if here != self.instructions:
            return f"processors with {self.instructions}"
        return ", ".join(sorted(self.features - processor_features()))


_SSE = Machine(16, 16, 16, 4, nearest_cache=32 << 10, middle_cache=256 << 10, last_cache=8 << 20)
_AVX2 = Machine(32, 16, 32, 8, dots="avx2", widens=True)
_AVX512 = Machine(64, 32, 64, 8, nearest_cache=32 << 10, middle_cache=1 << 20, dots="avx2", widens=True)
_NEON = Machine(16, 32, 16, 4)

_V2 = frozenset({"cx16", "popcnt", "sse4_1", "sse4_2", "ssse3"})
_V3 = _V2 | {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "movbe"}
_V4 = _V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
_ARM = frozenset({"asimd", "fp"})
_DOTPROD = _ARM | {"asimddp", "atomics", "asimdhp"}

_NEON_LOOPS = "--param=aarch64-autovec-preference=1"
"""Vectors that a kernel names are SVE's; loops that the compiler vectorises by itself are NEON's, since gcc 12 makes
wrong code of some with SVE (``tests/fuzzed/loop-that-gcc-vectorises-wrongly-for-sve.tc``)."""

PROCESSORS: Mapping[str, Processor] = {
    "x86-64": Processor(X86, _SSE, ("-march=x86-64",), frozenset(), "qemu64", "any x86 of 64 bits: SSE2"),
    "x86-64-v2": Processor(X86, _SSE, ("-march=x86-64-v2",), _V2, "Nehalem", "SSE4.2, from 2009 on"),
    "x86-64-v3": Processor(X86, _AVX2, ("-march=x86-64-v3",), _V3, "Haswell", "AVX2 and FMA, from 2013 on"),
    "x86-64-v4": Processor(X86, _AVX512, ("-march=x86-64-v4",), _V4, "max", "AVX-512, from 2017 on"),
    "sapphire-rapids": Processor(
        X86,
        Machine(64, 32, 64, 8, 48 << 10, 2 << 20, 32 << 20, "avx512_vnni", True, True, True),
        ("-march=sapphirerapids",),
        _V4 | {"avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_int8", "amx_bf16"},
        "max",
        "AVX-512 and AMX, Xeons from 2023 on",
    ),
    "cortex-a72": Processor(
        ARM,
        replace(_NEON, nearest_cache=32 << 10, middle_cache=1 << 20, last_cache=1 << 20),
        ("-mcpu=cortex-a72",),
        _ARM,
        "cortex-a72",
        "Raspberry Pi 4, Graviton 1: NEON",
    ),
    "neoverse-n1": Processor(
        ARM,
        replace(_NEON, threads=64, nearest_cache=64 << 10, middle_cache=1 << 20, last_cache=32 << 20),
        ("-mcpu=neoverse-n1",),
        _DOTPROD,
        "neoverse-n1",
        "Graviton 2, Ampere Altra: NEON",
    ),
    "neoverse-v1": Processor(
        ARM,
        Machine(32, 32, 32, 64, nearest_cache=64 << 10, middle_cache=1 << 20, last_cache=32 << 20),
        ("-mcpu=neoverse-v1", "-msve-vector-bits=256", _NEON_LOOPS),
        _DOTPROD | {"sve", "i8mm", "bf16"},
        "max,sve512=off,sve-default-vector-length=32",
        "Graviton 3: SVE with 256 bits",
    ),
    "neoverse-v2": Processor(
        ARM,
        replace(
            _NEON, threads=64, datapath_bytes=32, nearest_cache=64 << 10, middle_cache=2 << 20, last_cache=36 << 20
        ),
        ("-march=armv8.5-a+sve2",),
        _DOTPROD | {"sve2", "i8mm", "bf16"},
        "max",
        "Graviton 4, Grace: NEON in four pipes, SVE2 with 128 bits",
    ),
    "apple-m1": Processor(
        ARM,
        replace(
            _NEON, threads=4, datapath_bytes=32, nearest_cache=128 << 10, middle_cache=12 << 20, last_cache=12 << 20
        ),
        ("-march=armv8.4-a+fp16",),
        _DOTPROD,
        "max,sve=off",
        "Apple M1 and later, four fast cores: NEON in four pipes",
    ),
}
"""By name.  Vector registers, pipes and caches are those of the makers' optimisation guides; those of Apple's are what
D. Johnson measured ("Apple M1 microarchitecture research", 2021).  Kernels for ``aarch64`` have run in QEMU alone."""


def processor_of(name: str) -> Processor:
    """The processor with a name.  Raises TargetError."""
    found = PROCESSORS.get(name)
    if found is None:
        raise TargetError(Diagnostic(f"there is no processor {name!r}", hint=f"processors: {', '.join(PROCESSORS)}"))
    return found
