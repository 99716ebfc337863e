"""The CPU target for a machine that does not depend on where the tests run."""

from __future__ import annotations

from tcomp.backends.c.target import CpuBackend
from tcomp.mapping.machines.cpu import Machine

CPU = CpuBackend(Machine(vector_bytes=64, registers=32, datapath_bytes=64, threads=2, middle_cache=1 << 20))
