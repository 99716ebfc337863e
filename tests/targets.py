"""Targets that do not depend on where the tests run: a CPU, and GPUs in other languages than CUDA."""

from __future__ import annotations

from tcomp.backends.c.target import CpuBackend
from tcomp.backends.hip.target import HipBackend
from tcomp.backends.opencl.target import OpenClBackend
from tcomp.mapping.machines.amd import amd_gpu
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.machines.opencl import opencl_device

CPU = CpuBackend(Machine(vector_bytes=64, registers=32, datapath_bytes=64, threads=2, middle_cache=1 << 20))

OPENCL = OpenClBackend(opencl_device("gpu"))

HIP = HipBackend(amd_gpu("gfx90a"))
