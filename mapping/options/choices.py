"""What some options may be, and on which targets they matter."""

from __future__ import annotations

FUSION_STRATEGIES = ("max", "preserve3coincident", "min")

POINT_FUSIONS = ("max", "min")

DISTRIBUTIONS = ("vectors", "cyclic", "blocked")

MATHS = ("exact", "tf32x3", "tf32")

CPU_TARGETS = ("cpu",)
"""Where the options of a processor's cores and registers matter."""

NVIDIA_TARGETS = ("cuda", "simulator")
"""Where texts are CUDA C++, for NVIDIA's architectures: some options ask for what only those have."""

GPU_TARGETS = (*NVIDIA_TARGETS, "opencl", "hip")
"""Where the options of a GPU's thread hierarchy matter; an option without ``targets`` matters everywhere."""

ATOMIC_TARGETS = (*CPU_TARGETS, *NVIDIA_TARGETS, "hip")
"""Where threads may combine values into one element by atomic operations."""

MOST_THREADS = (1024, 1024, 64)
"""Threads that a block may have in x, y, z; 1024 in all."""
