"""Lesson 7: CUDA kernels without a GPU.

The target ``simulator`` makes the CUDA text of the target ``cuda`` and runs it on the CPU, thread by thread.  A call
ends in an error if threads race, reach outside an array or read what nobody wrote.  The simulator can also count what
kernels ask of memory, which ``tcomp simulate`` shows as tables.  NVIDIA's compiler, where it is
installed, tells what the same text takes of a device; it needs no GPU either.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pictures import picture

import tcomp as tc
from tcomp.backends.cuda.tools.images import compile_image
from tcomp.backends.cuda.tools.resources import resource_table
from tcomp.backends.simulator.report import KernelCounts
from tcomp.backends.simulator.simulation import Settings, load
from tcomp.mapping.machines.gpu import gpu_of

PROGRAM = """
def mm(float(M,K) A, float(K,N) B) -> (C) {
  C(m,n) +=! A(m,k) * B(k,n)
}
"""

M, N, K = 128, 128, 64
FLOAT = 4

CHOICES = {
    "by the model": tc.MappingOptions(),
    "naive": tc.MappingOptions.named("naive"),
    "blocks of 8 x 8 threads": tc.MappingOptions().tile(32, 32).map_to_threads(8, 8),
}

Array = np.ndarray[Any, np.dtype[Any]]


def small_integers(*shape: int) -> Array:
    """Values whose sums are exact in any order, so that results can be compared with ``==``."""
    return np.random.default_rng(sum(shape)).integers(-4, 5, shape).astype(np.float32)


def show_resources(kernel: tc.Kernel) -> None:
    source = kernel.compilation.source
    try:
        print(resource_table(compile_image(source, "sm_90"), source.launches, gpu_of("sm_90")))
    except tc.TargetError as error:
        print(f"no table of resources: {error}\n")


def counted(kernel: tc.Kernel, A: Array, B: Array, expected: Array) -> KernelCounts:
    """Run the kernel with its blocks and threads in random order, and count; the result must be right."""
    C = np.full_like(expected, np.nan)
    addresses = [array.ctypes.data for array in (A, B, C)]
    report = load(kernel.compilation.source).run(addresses, None, Settings("random", seed=7, counting=True))
    assert not report.findings, str(report)
    assert np.array_equal(C, expected)
    (counts,) = report.kernels
    return counts


def main() -> None:
    if not (state := tc.targets()["simulator"]):
        print(f"this lesson needs the simulator: {state.detail}")
        return
    mm = tc.define(PROGRAM).mm
    A, B = small_integers(M, K), small_integers(K, N)
    expected = A @ B

    # A call runs on the simulator like on any other target.
    assert np.array_equal(mm(A, B, target="simulator"), expected)

    kernel = mm.compile(A, B, target="simulator")
    print(kernel.source)
    show_resources(kernel)
    picture("mm_threads", kernel.draw, "threads")
    picture("mm_memory", kernel.draw, "memory")
    picture("mm_banks", kernel.draw, "banks")

    found: dict[str, KernelCounts] = {}
    for name, options in CHOICES.items():
        kernel = mm.compile(A, B, target="simulator", options=options)
        found[name] = counts = counted(kernel, A, B, expected)
        (group,) = kernel.compilation.plan.groups
        rows, columns = group.sizes
        print(
            f"{name}: tiles of {rows} x {columns}, {counts.global_bytes_read:,} bytes read, "
            f"{counts.global_sectors:,} sectors of global memory, "
            f"{counts.conflicts:,} bank conflicts, {counts.barriers:g} barriers"
        )
        assert counts.global_bytes_written == M * N * FLOAT
        # With its operands in shared memory a block reads a band of A and one of B; else each product reads both.
        fetched = options.use_shared_memory
        reads = M * N * K // columns + M * N * K // rows if fetched else 2 * M * N * K
        assert counts.global_bytes_read == reads * FLOAT
        assert counts.global_sectors >= counts.ideal_sectors

    saved = found["naive"].global_bytes_read / found["by the model"].global_bytes_read
    print(f"with its operands in shared memory the kernel reads {saved:.0f} times fewer bytes of global memory")
    assert saved > 1


if __name__ == "__main__":
    main()
