"""The loops over tiles on a CPU: which of them threads share, and in what portions."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import add, floordiv, mul, sub
from types import MappingProxyType

from tcomp.backends.c.rows.streaming import FENCE, LINE
from tcomp.backends.c.rowwork import RowWork
from tcomp.backends.spelling import loop_text
from tcomp.loops.ir import For, If, LoopExpr, LoopNode, Number, Operation, Variable, variables
from tcomp.loops.narrowing import runs_over_data
from tcomp.mapping.machines.fitted.cputext import THREADS

_OPERATIONS: Mapping[str, Callable[[int, int], int]] = {
    "+": add, "-": sub, "*": mul, "floordiv": floordiv, "min": min, "max": max,
}  # fmt: skip

FETCH = "__atomic_fetch_add(&begun[share][0], {}, __ATOMIC_RELAXED)"
"""How a thread takes the next few tiles of a share, and learns how many were taken before."""


def tile_loops(tiles: LoopNode, threads: int = 1) -> tuple[list[For], LoopNode]:
    """The loops over tiles below a mark, perfectly nested and rectangular, outermost first, and what is in them.

    Where these are too few for threads to have about as much each, a loop inside whose range depends on them is one of
    them, too, over all values that it ever takes: a condition leaves out the tiles that there are not.
    """
    loops: list[For] = []
    while isinstance(tiles, For) and not runs_over_data(tiles):
        if (variables(tiles.lower) | variables(tiles.upper)) & {loop.iterator for loop in loops}:
            hull = _hull(loops, tiles, threads)
            if hull is None:
                break
            number = Variable(tiles.iterator)
            there = Operation("&&", (Operation("<=", (tiles.lower, number)), Operation("<", (number, tiles.upper))))
            loops.append(hull)
            tiles = If(there, tiles.body, None)
            break
        loops.append(tiles)
        tiles = tiles.body
    return loops, tiles


def _hull(loops: Sequence[For], inner: For, threads: int) -> For | None:
    """A loop that takes all values of ``inner`` for any of the tiles around it; None if these are not a few."""
    if threads == 1 or inner.step != 1 or not 0 < _tiles(loops) < THREADS.chunks * threads:
        return None
    ranges = [range(_number(loop.lower), _number(loop.upper), loop.step) for loop in loops]
    bounds = []
    for tile in itertools.product(*ranges):
        values = dict(zip((loop.iterator for loop in loops), tile, strict=True))
        lower, upper = (_value(bound, values) for bound in (inner.lower, inner.upper))
        if lower is None or upper is None:
            return None
        if lower < upper:
            bounds.append((lower, upper))
    if not bounds:
        return None
    lowers, uppers = zip(*bounds, strict=True)
    return replace(inner, lower=Number(min(lowers)), upper=Number(max(uppers)))


def _number(bound: LoopExpr) -> int:
    """The value of a bound that is a number."""
    assert isinstance(bound, Number)
    return bound.value


def runs_parallel(loops: Sequence[For], instances: int, threads: int) -> bool:
    """Whether the iterations of loops over tiles are shared out to threads."""
    return threads > 1 and len(loops) > 0 and instances >= THREADS.parallel_instances


def shared_out(
    loops: Sequence[For],
    lines: Sequence[str],
    own: Sequence[str],
    instances: int,
    threads: int,
    largest: Mapping[str, int] = MappingProxyType({}),
    work: RowWork | None = None,
) -> list[str]:
    """The C text of tiles that several threads run; each waits in the end until others see what it stored.

    Each thread has a share of the tiles, the same at every call, so that its caches still hold what it touched at the
    one before.  It fetches some at a time, from its own share and then from what others have not begun, and so makes
    up for a thread that is slowed down.  ``lines`` are those of a tile, ``own`` what a thread declares before its
    first one.  ``largest`` has the values of open sizes for which there are so many ``instances``: where a call has
    fewer, fewer tiles are fetched at a time, and one thread runs what is not worth two.  Where ``work`` is known, what
    is fetched are pieces of about as much of it each.
    """
    at_most = [_at(loop, largest) for loop in loops]
    chunk: int | str = _chunk(at_most, instances, threads)
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
    granted, declared = f"tc_min(omp_get_max_threads(), {threads})", []
    if largest and any(a != b for a, b in zip(loops, at_most, strict=True)):
        each = max(1, instances // max(1, _tiles(at_most)))
        declared = [f"  const long tiles = {count};"]
        if chunk != 1:
            declared.append(f"  const long chunk = tc_max(1, tc_min({chunk}, tiles / {THREADS.chunks * threads}));")
            chunk = "chunk"
        granted = f"tiles < {-(-THREADS.parallel_instances // each)} ? 1 : {granted}"
    fetched = [
        f"for (long tile; (tile = first + {FETCH.format(chunk)}) < end;) {{",
        f"  const long last = tc_min(tile + {chunk}, end);",
        "  for (; tile < last; tile++) {",
    ]
    if work is not None:
        inner = "".join(f" * {trip}" for trip in trips[1:])
        pieces = THREADS.chunks * threads
        count = f"{pieces}L"
        fetched = [
            f"for (long piece; (piece = first + {FETCH.format(1)}) < end;) {{",
            *("  " + line for line in work.lines(trips[0], pieces)),
            f"  for (long tile = ends[0]{inner}; tile < ends[1]{inner}; tile++) {{",
        ]
    return [
        "{",
        *declared,
        f"  long begun[{threads}][{LINE // 8}] __attribute__((aligned({LINE}))) = {{}};",
        f"  #pragma omp parallel num_threads({granted})",
        "  {",
        *("    " + line for line in own),
        "    const long shares = omp_get_num_threads(), own = omp_get_thread_num();",
        "    for (long turn = 0; turn < shares; turn++) {",
        f"      const long share = (own + turn) % shares, count = {count};",
        "      const long first = count * share / shares, end = count * (share + 1) / shares;",
        *("      " + line for line in fetched),
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
    tiles = _tiles(loops)
    if not tiles:
        return 1
    return max(1, min(THREADS.chunk_instances * tiles // max(1, instances), tiles // (THREADS.chunks * threads)))


def _tiles(loops: Sequence[For]) -> int:
    """How many iterations loops have together; 0 where that is not known."""
    tiles = 1
    for loop in loops:
        if not (isinstance(loop.lower, Number) and isinstance(loop.upper, Number)):
            return 0
        tiles *= max(1, -(-(loop.upper.value - loop.lower.value) // loop.step))
    return tiles


def _at(loop: For, values: Mapping[str, int]) -> For:
    """A loop for given values of open sizes."""
    lower, upper = (_value(bound, values) for bound in (loop.lower, loop.upper))
    if lower is None or upper is None:
        return loop
    return replace(loop, lower=Number(lower), upper=Number(upper))


def _value(expr: LoopExpr, values: Mapping[str, int]) -> int | None:
    match expr:
        case Number():
            return expr.value
        case Variable():
            return values.get(expr.name)
        case Operation(operator="+" | "-" | "*" | "floordiv" | "min" | "max", operands=(first, second)):
            a, b = _value(first, values), _value(second, values)
            if a is None or b is None:
                return None
            return _OPERATIONS[expr.operator](a, b)
    return None
