"""The loops over tiles on a CPU: which of them OpenMP shares out, and in what portions."""

from __future__ import annotations

from tcomp.backends.streaming import FENCE
from tcomp.loops import For, LoopNode, Number, variables

PARALLEL_INSTANCES = 32768
"""Statement instances below which a group runs on one thread: waking the others costs more."""

CHUNK_INSTANCES = 32768
"""Statement instances that a thread fetches at a time, if there are enough: fetching takes some tens of them."""

CHUNKS = 8
"""Chunks that there are for every thread at least, so that one which is slowed down can be made up for."""


def runs_parallel(tiles: LoopNode, instances: int, threads: int) -> bool:
    """Whether the tiles below a mark are shared out to threads."""
    return threads > 1 and _collapsible(tiles) > 0 and instances >= PARALLEL_INSTANCES


def shared_out(tiles: LoopNode, lines: list[str], instances: int, threads: int) -> list[str]:
    """The C text of tiles that several threads run; each waits in the end until others see what it stored."""
    loops = _collapsible(tiles)
    chunk = _chunk(tiles, loops, instances, threads)
    collapse = f" collapse({loops})" if loops > 1 else ""
    each = f"for{collapse} schedule(dynamic{f', {chunk}' if chunk > 1 else ''})"
    limit = f"num_threads(tc_min(omp_get_max_threads(), {threads}))"
    if not streams(lines):
        return [f"#pragma omp parallel {each} {limit}", *lines]
    inside = [f"#pragma omp {each} nowait", *lines, FENCE]
    return [f"#pragma omp parallel {limit}", "{", *("  " + line for line in inside), "}"]


def streams(lines: list[str]) -> bool:
    """Whether some lines store past the caches."""
    return any("tc_stream_" in line for line in lines)


def _chunk(node: LoopNode, loops: int, instances: int, threads: int) -> int:
    """Tiles, the iterations of so many loops, that a thread fetches at a time."""
    tiles = 1
    for _ in range(loops):
        assert isinstance(node, For)
        if not (isinstance(node.lower, Number) and isinstance(node.upper, Number)):
            return 1
        tiles *= max(1, -(-(node.upper.value - node.lower.value) // node.step))
        node = node.body
    return max(1, min(CHUNK_INSTANCES * tiles // max(1, instances), tiles // (CHUNKS * threads)))


def _collapsible(node: LoopNode) -> int:
    """How many loops from here inwards are perfectly nested and rectangular."""
    count = 0
    iterators: set[str] = set()
    while isinstance(node, For) and not (variables(node.lower) | variables(node.upper)) & iterators:
        count += 1
        iterators.add(node.iterator)
        node = node.body
    return count
