"""The loops over tiles on a CPU: which of them threads share, and in what portions."""

from __future__ import annotations

from collections.abc import Sequence

from tcomp.backends.c.rows.streaming import FENCE, LINE
from tcomp.backends.spelling import loop_text
from tcomp.loops.ir import For, LoopNode, Number, variables
from tcomp.mapping.machines.fitted.cputext import THREADS

FETCH = "__atomic_fetch_add(&begun[share][0], {}, __ATOMIC_RELAXED)"
"""How a thread takes the next few tiles of a share, and learns how many were taken before."""


def tile_loops(tiles: LoopNode) -> tuple[list[For], LoopNode]:
    """The loops over tiles below a mark, perfectly nested and rectangular, outermost first, and what is in them."""
    loops: list[For] = []
    while isinstance(tiles, For) and not (variables(tiles.lower) | variables(tiles.upper)) & {
        loop.iterator for loop in loops
    }:
        loops.append(tiles)
        tiles = tiles.body
    return loops, tiles


def runs_parallel(loops: Sequence[For], instances: int, threads: int) -> bool:
    """Whether the iterations of loops over tiles are shared out to threads."""
    return threads > 1 and len(loops) > 0 and instances >= THREADS.parallel_instances


def shared_out(
    loops: Sequence[For], lines: Sequence[str], own: Sequence[str], instances: int, threads: int
) -> list[str]:
    """The C text of tiles that several threads run; each waits in the end until others see what it stored.

    Each thread has a share of the tiles, the same at every call, so that its caches still hold what it touched at the
    one before.  It fetches some at a time, from its own share and then from what others have not begun, and so makes
    up for a thread that is slowed down.  ``lines`` are those of a tile, ``own`` what a thread declares before its
    first one.
    """
    chunk = _chunk(loops, instances, threads)
    trips = [_trips(loop) for loop in loops]
    count = " * ".join(trips)
    values = []
    for position, loop in enumerate(loops):
        inner = " * ".join(trips[position + 1 :])
        number = f"tile / ({inner})" if inner else "tile"
        if position:
            number = f"({number}) % {trips[position]}"
        if loop.step != 1:
            number = f"({number}) * {loop.step}"
        start = "" if loop.lower == Number(0) else f"{loop_text(loop.lower)} + "
        values.append(f"const long {loop.iterator} = {start}{number};")
    return [
        "{",
        f"  long begun[{threads}][{LINE // 8}] __attribute__((aligned({LINE}))) = {{}};",
        f"  #pragma omp parallel num_threads(tc_min(omp_get_max_threads(), {threads}))",
        "  {",
        *("    " + line for line in own),
        "    const long shares = omp_get_num_threads(), own = omp_get_thread_num();",
        "    for (long turn = 0; turn < shares; turn++) {",
        f"      const long share = (own + turn) % shares, count = {count};",
        "      const long first = count * share / shares, end = count * (share + 1) / shares;",
        f"      for (long tile; (tile = first + {FETCH.format(chunk)}) < end;) {{",
        f"        const long last = tc_min(tile + {chunk}, end);",
        "        for (; tile < last; tile++) {",
        *("          " + line for line in (*values, *lines)),
        "        }",
        "      }",
        "    }",
        *(["    " + FENCE] if streams(lines) else []),
        "  }",
        "}",
    ]


def streams(lines: Sequence[str]) -> bool:
    """Whether some lines store past the caches."""
    return any("tc_stream_" in line for line in lines)


def _trips(loop: For) -> str:
    """The C text of how often a loop runs."""
    if isinstance(loop.lower, Number) and isinstance(loop.upper, Number):
        return f"{max(0, -(-(loop.upper.value - loop.lower.value) // loop.step))}L"
    reached = f"{loop_text(loop.upper)} - {loop_text(loop.lower)}"
    return f"tc_max(0, ({reached} + {loop.step - 1}) / {loop.step})"


def _chunk(loops: Sequence[For], instances: int, threads: int) -> int:
    """Tiles, the iterations of some loops, that a thread fetches at a time."""
    tiles = 1
    for loop in loops:
        if not (isinstance(loop.lower, Number) and isinstance(loop.upper, Number)):
            return 1
        tiles *= max(1, -(-(loop.upper.value - loop.lower.value) // loop.step))
    return max(1, min(THREADS.chunk_instances * tiles // max(1, instances), tiles // (THREADS.chunks * threads)))
