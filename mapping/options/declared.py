"""Mapping options of a whole program, each declared once: values, default, help, where and when it matters.

The command line, the tuner, the cache key and the docs read these declarations.  What can be done with a set of
options is in ``options``.
"""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.mapping.options.choices import (
    ATOMIC_TARGETS,
    CPU_TARGETS,
    DISTRIBUTIONS,
    FUSION_STRATEGIES,
    GPU_TARGETS,
    MATHS,
    MOST_THREADS,
    NVIDIA_TARGETS,
    POINT_FUSIONS,
)
from tcomp.mapping.options.declarations import (
    BlockShape,
    Choice,
    Condition,
    Flag,
    Integer,
    Integers,
    Ratio,
    declare,
)


@dataclass(frozen=True, slots=True)
class DeclaredOptions:
    """The options of a whole program, in the order in which they are listed."""

    tile_sizes: tuple[int, ...] | None = declare(
        Integers(0),
        None,
        "tile sizes of the outer band, outermost first; 0 leaves a loop untiled; None lets the model choose",
        method="tile",
        original="tile",
        planted=True,
    )
    fusion_strategy: str = declare(
        Choice(FUSION_STRATEGIES),
        "max",
        "what fusion by footprint may merge: everything, while three coincident loops stay, or nothing",
        method="outer_schedule_fusion_strategy",
        original="outerScheduleFusionStrategy",
        planted=True,
    )
    register_tile: tuple[int, int] | None = declare(
        Integers(1, 2, 2, "be rows and vector extent"),
        None,
        "rows and vector extent of a reduction's register tile; None fits them to the registers",
        targets=CPU_TARGETS,
        planted=True,
    )
    recompute_limit: float = declare(
        Ratio(1),
        1.5,
        "largest ratio of recomputed to original instances that fusion accepts; 1 has nothing computed twice",
        when=(Condition("fusion_strategy", ("max", "preserve3coincident")),),
        planted=True,
    )
    threads: tuple[int, ...] | None = declare(
        BlockShape(MOST_THREADS, 1024),
        None,
        "threads of a block in x, y, z, the innermost loop on x; None lets the model choose; on a processor how many "
        "threads run a kernel at most, None all cores",
        method="map_to_threads",
        original="mapToThreads",
        planted=True,
        granted=CPU_TARGETS,
    )
    blocks: tuple[int, ...] | None = declare(
        Integers(1, 1, 3),
        None,
        "most blocks of a grid in x, y, z; blocks that are fewer than tiles run several in turn",
        targets=GPU_TARGETS,
        method="map_to_blocks",
        original="mapToBlocks",
    )
    reduction_tile: int | None = declare(
        Integer(1, 64),
        None,
        "steps of a reduction between two fetches into shared memory; None lets the model choose",
        targets=GPU_TARGETS,
        when=(Condition("use_shared_memory", (True,)),),
    )
    distribution: str = declare(
        Choice(DISTRIBUTIONS),
        "vectors",
        "whether the elements of one thread lie apart (neighbours on neighbouring threads), in a contraction as many"
        " together as it reads at a time, or all together",
        targets=GPU_TARGETS,
        planted=True,
    )
    point_fusion: str = declare(
        Choice(POINT_FUSIONS),
        "max",
        "whether the statements of one cluster run together on each element, or one after another",
        targets=GPU_TARGETS,
        method="intra_tile_schedule_fusion_strategy",
        original="intraTileScheduleFusionStrategy",
        planted=True,
    )
    match_reductions: bool = declare(
        Flag(),
        True,
        "let the threads of a block share one reduction",
        targets=GPU_TARGETS,
        method="match_library_calls",
        original="matchLibraryCalls",
        planted=True,
    )
    split_reduction: int | None = declare(
        Integer(1, 8),
        None,
        "parts of a reduction that different blocks compute and a second kernel combines; None lets the model choose",
        targets=GPU_TARGETS,
        planted=True,
    )
    unroll: int | None = declare(
        Integer(1, 1024),
        None,
        "copies of a loop body that unrolling may make; None lets the model choose",
        targets=GPU_TARGETS,
        method="with_unroll",
        original="unroll",
    )
    use_shared_memory: bool = declare(
        Flag(),
        True,
        "fetch what threads of a block read repeatedly into shared memory",
        targets=GPU_TARGETS,
        method="with_shared_memory",
        original="useSharedMemory",
    )
    prefetch: bool = declare(
        Flag(),
        True,
        "ask for the next tile of operands while threads work on this one",
        targets=GPU_TARGETS,
        when=(Condition("use_shared_memory", (True,)),),
    )
    stages: int | None = declare(
        Integer(1, 8),
        None,
        "places in shared memory for tiles of operands that are asked for asynchronously, all but one ahead; 1 asks for"
        " the next one through registers; None lets the model choose",
        targets=NVIDIA_TARGETS,
        when=(Condition("use_shared_memory", (True,)), Condition("prefetch", (True,))),
    )
    route: str | None = declare(
        Choice(("async", "tensor")),
        None,
        "how operands of warpgroups come to shared memory: all threads ask for parts of them (async), or one asks for"
        " whole boxes, beside those that multiply (tensor, on sm_90); None lets the model choose",
        targets=NVIDIA_TARGETS,
        when=(Condition("matrix_units", (True,)), Condition("prefetch", (True,))),
    )
    order: int | None = declare(
        Integer(1, 64),
        None,
        "rows of tiles that blocks of a contraction take together, column by column, so that those which run at a time"
        " read few rows and columns; 1 takes row by row; None lets the model choose",
        targets=GPU_TARGETS,
    )
    persistent: int | None = declare(
        Integer(0, 1024),
        None,
        "blocks that take the tiles of a contraction in turn until none is left, while a warp of each fetches for the"
        " next one; 0: a block for each tile; None: as many as the device holds, where there are more tiles",
        targets=NVIDIA_TARGETS,
        when=(Condition("matrix_units", (True,)), Condition("route", (None, "tensor"))),
    )
    math: str = declare(
        Choice(MATHS),
        "exact",
        "how floats are multiplied: one by one, rounded to 11 bits (tf32), or as sums of two such (tf32x3)",
        targets=NVIDIA_TARGETS,
        when=(Condition("matrix_units", (True,)),),
        planted=True,
    )
    matrix_units: bool = declare(
        Flag(),
        True,
        "multiply matrices with the instructions that the device has for that: of halves, bytes and doubles",
        targets=NVIDIA_TARGETS,
        when=(Condition("use_shared_memory", (True,)), Condition("use_private_memory", (True,))),
        planted=True,
    )
    warpgroups: bool = declare(
        Flag(),
        True,
        "let four warps multiply matrices of halves together where the device can (sm_90), in code for it alone",
        targets=NVIDIA_TARGETS,
        when=(Condition("matrix_units", (True,)),),
        planted=True,
    )
    use_private_memory: bool = declare(
        Flag(),
        True,
        "keep the elements that only one thread needs in its registers",
        targets=GPU_TARGETS,
        method="with_private_memory",
        original="usePrivateMemory",
    )
    max_shared_memory: int | None = declare(
        Integer(0, 227 << 10),
        None,
        "bytes of shared memory that a block may take; None leaves as much to a second block",
        targets=GPU_TARGETS,
        method="with_max_shared_memory",
        original="maxSharedMemory",
    )
    atomics: bool = declare(
        Flag(),
        False,
        "let threads meet in the elements that data choose for a reduction, by atomic operations: then sums of floats"
        " are not the same to the bit from run to run",
        targets=ATOMIC_TARGETS,
        planted=True,
    )
    parallel: bool = declare(Flag(), True, "run the outer coincident loops on several threads", targets=CPU_TARGETS)
    fast_math: bool = declare(Flag(), False, "let the compiler break IEEE rules beyond sums")
