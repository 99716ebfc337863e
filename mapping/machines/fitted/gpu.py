"""GPUs: tiles of blocks, how they are dealt to threads, what latencies and launches cost."""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.mapping.machines.fitted.declaring import NOT_RECORDED, fitted

_FIRST_RUNS = (
    "2026-11-22, with the first runs on a device: 4096^3 had reached 44 % of the peak; how the number "
    "was found: not recorded"
)
WIDE = "2026-11-22: 4096^3 takes 2.98 ms with 128 threads of 16 x 8 elements, 3.35 before"


@dataclass(frozen=True, eq=False, repr=False)
class Device:
    """What the models count: rates, latencies, and what a multiprocessor holds."""

    l2_advantage: float = fitted(
        2.5,
        "times the bandwidth of memory",
        "How much faster the second cache is, where neighbouring blocks find each other's operands.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    step_latency: float = fitted(
        0.7e-6,
        "seconds",
        "From asking for a tile of operands to having it in shared memory; arithmetic may hide it.",
        machine="NVIDIA H100",
        how=_FIRST_RUNS,
    )
    barrier_seconds: float = fitted(
        0.1e-6,
        "seconds",
        "What threads wait for each other around a tile of steps.",
        machine="NVIDIA H100",
        how=_FIRST_RUNS,
    )
    half_busy_threads: int = fitted(
        180,
        "threads of a multiprocessor",
        "With so many it reaches half of what it could.",
        machine="NVIDIA H100",
        how=_FIRST_RUNS,
    )
    half_busy_wide_threads: int = fitted(
        60,
        "threads of a multiprocessor",
        (
            "The same where a thread has so many elements that all steps of a tile are unrolled: one has much "
            "to do meanwhile."
        ),
        machine="NVIDIA H100",
        how=WIDE,
    )
    launch_seconds: float = fitted(
        3e-6,
        "seconds",
        "From one kernel of a stream to the next.",
        machine=NOT_RECORDED,
        how=("2026-11-22: one number in place of 2, 2.5 and 3 us in three modules; how it was found: not recorded"),
    )
    threads_resident: int = fitted(
        512,
        "threads of a multiprocessor",
        (
            "What it must hold at least: left to choose, ptxas spills to hold more. Each then has 128 of 65,536 "
            "registers."
        ),
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    base_registers: int = fitted(
        32,
        "registers",
        ("What a thread has besides the elements that it keeps and, in a contraction, the operands of one step."),
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    spilled: float = fitted(
        3.0,
        "times the time",
        "Arithmetic whose accumulators are not in registers, for the tuner.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    enough_threads: int = fitted(
        512,
        "threads of a multiprocessor",
        ("From so many on the latency of memory is hidden, by and large, for the tuner; half as many wide ones."),
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )


DEVICE = Device()


@dataclass(frozen=True, eq=False, repr=False)
class Contractions:
    """Tiles of contractions, and steps between two fetches."""

    parts: tuple[int, ...] = fitted(
        (2, 4, 8, 16, 32, 64, 128),
        "parts",
        "Into how many the steps of a contraction may be split.",
        machine="none: no device was at hand",
        how="powers of two up to the multiprocessors of an H100; up to 16 is older, and not recorded",
    )
    tiles: tuple[tuple[int, int], ...] = fitted(
        ((128, 128), (64, 128), (64, 64), (32, 64), (32, 32), (16, 32), (16, 16)),
        "rows and columns",
        "What a block may compute of a contraction, the most reuse first.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    matrix_tiles: tuple[tuple[int, int], ...] = fitted(
        ((128, 128), (256, 64), (128, 64), (64, 128), (64, 64), (32, 64), (32, 32), (16, 32), (16, 16)),
        "rows and columns",
        "The same where warps multiply matrices: the first that fit hold most of a warp's results in its registers.",
        machine="none: no device was at hand",
        how="128 accumulators a thread, as in the kernels of CUTLASS for sm_80",
    )
    window_atoms: int = fitted(
        32,
        "instructions",
        "Steps of a window, in instructions, that a phase takes for one row and one column of matrices.",
        machine="none: no device was at hand",
        how="3 x 3 taps of two times 16 channels are 18, 5 x 5 of 16 are 25; all are written out",
    )
    group_tiles: tuple[tuple[int, int], ...] = fitted(
        ((128, 256), (256, 128), (128, 192), (128, 128), (64, 256), (128, 64), (64, 128), (64, 64)),
        "rows and columns",
        "The same where warpgroups multiply them: two groups of 64 rows by 256 columns where there is enough.",
        machine="none: no device was at hand",
        how="the tiles of CUTLASS and DeepGEMM for sm_90: below 64 columns a product takes longer than its operands",
    )
    matrix_reads: int = fitted(
        16,
        "multiply-adds",
        "What a multiprocessor multiplies of matrices of halves while it reads one element from shared memory.",
        machine="none: NVIDIA's data sheets",
        how="1024 multiply-adds and 128 bytes a cycle",
    )
    block_threads: int = fitted(
        256,
        "threads",
        "Threads of a block where the user gives none.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    fetched_elements: int = fitted(
        16,
        "elements",
        "What a thread fetches of the operands at a time: enough of them must be on their way.",
        machine="NVIDIA H100",
        how=_FIRST_RUNS,
    )
    wide_share: int = fitted(
        128,
        "elements",
        ("What a thread has of a tile that is large enough: more multiplications for each read of shared memory."),
        machine="NVIDIA H100",
        how=WIDE,
    )
    least_steps: int = fitted(
        16,
        "steps",
        "Steps between two fetches at least.",
        machine="NVIDIA H100",
        how=_FIRST_RUNS,
    )
    least_wide_steps: int = fitted(
        8,
        "steps",
        "The same where few threads have wide shares.",
        machine="NVIDIA H100",
        how=f"{WIDE}; tiles of 16 steps were slower",
    )
    most_steps: int = fitted(
        128,
        "steps",
        "Steps between two fetches at most.",
        machine="NVIDIA H100",
        how=_FIRST_RUNS,
    )
    orders: tuple[int, ...] = fitted(
        (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64),
        "rows of tiles",
        "That blocks may take together, column by column.",
        machine="none: no device was at hand",
        how="few of them, most of which divide usual numbers of tiles",
    )
    waves: int = fitted(
        4,
        "sets of blocks",
        "That run one after another, for which the rows and columns that they read are counted.",
        machine="none: no device was at hand",
        how="enough for the ends of groups to show",
    )
    usual_side: int = fitted(
        64,
        "rows, or columns",
        (
            "Sides of a tile that a contraction has where it may choose: for deciding whether a consumer's "
            "tiles are too narrow."
        ),
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )


CONTRACTIONS = Contractions()


@dataclass(frozen=True, eq=False, repr=False)
class Dealing:
    """How tiles are dealt to blocks and threads."""

    step_multiple: int = fitted(
        8,
        "steps",
        "Tiles of more steps are a multiple of this, so that they begin where vectors do.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    long_reduction: int = fitted(
        32,
        "steps",
        "From so many on threads may share a reduction.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    usual_points: int = fitted(
        8192,
        "steps, or elements",
        ("A reduction, or a tile, for which the usual threads of a block are enough; more have twice as many."),
        machine="NVIDIA H100",
        how=(
            "2026-11-22, with the first runs on a device: long rows may have 512 threads; how the number was "
            "found: not recorded"
        ),
    )
    most_row_threads: int = fitted(
        512,
        "threads of a block",
        "That may share the rows of a tile.",
        machine="none: no device was at hand",
        how="what a multiprocessor must hold at least, so that each thread has 128 registers",
    )
    elements_per_thread: int = fitted(
        4,
        "elements",
        "What a thread has of a pointwise tile once there are blocks enough.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    transposed_tile: int = fitted(
        32,
        "elements",
        "Both sides of a tile that is read along the one and written along the other.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    parallel_blocks: int = fitted(
        4,
        "blocks a multiprocessor",
        ("Fusion may leave so many, or all that there were: idle multiprocessors cost less than a pass over memory."),
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    part_work: int = fitted(
        1 << 22,
        "instances",
        "Instances of an update from which on a second kernel costs less than idle multiprocessors.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    part_steps: int = fitted(
        256,
        "steps",
        "Steps that a part of a reduction has at least.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    contraction_part_steps: int = fitted(
        64,
        "steps",
        "Steps that a part of a contraction has at least.",
        machine="NVIDIA H100",
        how=_FIRST_RUNS,
    )
    scan_length: int = fitted(
        512,
        "elements",
        "Elements from which on a cumulative reduction runs in parts: each thread sums all steps of its element.",
        machine="none",
        how="2026-11-26: by the count of additions, which parts lower to an eighth for 512 elements",
    )


DEALING = Dealing()


@dataclass(frozen=True, eq=False, repr=False)
class Shared:
    """What is fetched into shared memory, and how it lies there."""

    least_reuse: float = fitted(
        2.0,
        "reads of an element",
        "Reads of a fetched element that make fetching it worth while.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    largest_padding: int = fitted(
        8,
        "elements",
        "What may be added to a row so that threads meet in no bank.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    few_rounds: int = fitted(
        8,
        "rounds",
        "Fetches of so few are unrolled, so that all of their loads go out together.",
        machine=NOT_RECORDED,
        how=NOT_RECORDED,
    )
    stages: int = fitted(
        3,
        "stages",
        "Tiles of operands in shared memory where copies are asynchronous: two on their way, one in use.",
        machine="none: no device was at hand",
        how="as the float kernels of CUTLASS for sm_80 have it, from 3 to 5",
    )
    group_stages: int = fitted(
        4,
        "stages",
        "The same where warpgroups multiply: two on their way, one in use, and one whose products are under way.",
        machine="none: no device was at hand",
        how="as the kernels of CUTLASS and DeepGEMM for sm_90 have it with 48 KiB a stage",
    )
    fed_tiles: int = fitted(
        8,
        "tiles of steps",
        (
            "From so many on a warp of its own fetches for warpgroups: it begins with barriers that all must see, and "
            "a call hands over maps."
        ),
        machine="none: no device was at hand",
        how="twice as many as there are stages; 51 of 133 instructions for each of them are saved",
    )
    turned_reuse: int = fitted(
        1024,
        "instances",
        "So often an element of weights is used, at least, for a copy of them in another order.",
        machine="none: no device was at hand",
        how="as many as 16 tiles of 64 pixels",
    )
    pipelined_cost: float = fitted(
        1.25,
        "cost",
        (
            "What the accesses of an asynchronous copy may cost, where that of one through registers is 1: elements of "
            "2 bytes cannot be turned on their way, and lanes would meet when they read them."
        ),
        machine="none: no device was at hand",
        how="so that copies of halves in other orders than the tensor's stay as they are",
    )
    prefetched_bytes: int = fitted(
        128,
        "bytes",
        "What a thread may keep of tiles on their way: 32 registers.",
        machine="NVIDIA H100",
        how=(
            "2026-11-22, with prefetching as a whole, worth a third of the time of 4096^3; how the number was "
            "found: not recorded"
        ),
    )


SHARED = Shared()
