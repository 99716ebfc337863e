"""Convolutions and contractions drawn at random, each beside torch.

    taskset -c 0 python -m benchmarks.drawn [--seed 1] [--convolutions 60] [--contractions 60] [--below 0.9]
    taskset -c 0 python -m benchmarks.drawn --first 60 --json out/benchmarks/drawn.json

Nobody chose these sizes, so nobody tuned to them.  A row is torch's time over tcomp's, the least of interleaved turns.
Results of both are in the order asked for: ``torch.einsum`` by itself returns a view, turned by its strides alone.
The processors that the process may run on are the threads of both.  Pieces of a long run add their rows to one file.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

import tcomp as tc
from benchmarks.gradients import machine

Array = np.ndarray[tuple[int, ...], np.dtype[np.float32]]
Call = Callable[[], object]
Row = tuple[str, float, float]
"""A program, and microseconds of a call in tcomp and in torch."""

_LEAST, _MOST = 2e6, 1.5e8
"""Products of a program: enough to be a kernel, few enough to draw many."""


@dataclass(frozen=True, slots=True)
class Drawn:
    """A program, what torch calls it, and the shapes of its arguments."""

    name: str
    text: str
    shapes: tuple[tuple[int, ...], ...]
    torch: Callable[..., torch.Tensor]


def contractions(rng: random.Random) -> Iterator[Drawn]:
    """Sums of products over up to three indices a side and a batch, all in any order."""
    while True:
        letters = rng.sample("pqrstuvwxyz", 11)
        counts = rng.choice((0, 0, 1)), rng.randint(1, 3), rng.randint(1, 3), rng.randint(1, 3)
        sides = [[letters.pop() for _ in range(count)] for count in counts]
        extent = {i: round(2 ** rng.uniform(1, 6.5)) for side in sides for i in side}
        if not _LEAST <= math.prod(extent.values()) <= _MOST:
            continue
        batch, m, n, k = sides
        left, right, result = batch + m + k, batch + n + k, batch + m + n
        for side in (left, right, result):
            rng.shuffle(side)
        if sum(math.prod(extent[i] for i in side) for side in (left, right, result)) > 1 << 23:
            continue
        yield _contraction(left, right, result, extent)


def _contraction(left: list[str], right: list[str], result: list[str], extent: dict[str, int]) -> Drawn:
    subscripts = f"{''.join(left)},{''.join(right)}->{''.join(result)}"
    a, b, c = (",".join(side) for side in (left, right, result))
    sizes = [",".join(str(extent[i]) for i in side) for side in (left, right)]
    return Drawn(
        f"{subscripts} {' '.join(f'{i}{e}' for i, e in extent.items())}",
        f"def f(float({sizes[0]}) A, float({sizes[1]}) B) -> (C) {{ C({c}) +=! A({a}) * B({b}) }}",
        tuple(tuple(extent[i] for i in side) for side in (left, right)),
        lambda x, y: torch.einsum(subscripts, x, y).contiguous(),
    )


def convolutions(rng: random.Random) -> Iterator[Drawn]:
    """Two-dimensional ones with strides, dilation and groups."""
    while True:
        batch, side, taps = rng.choice((1, 1, 2, 4, 8)), round(2 ** rng.uniform(2.8, 7)), rng.choice((1, 1, 3, 3, 5, 7))
        wide = side if rng.random() < 0.7 else round(2 ** rng.uniform(2.8, 7))
        stride, dilation = rng.choice((1, 1, 1, 2, 3)), rng.choice((1, 1, 1, 2)) if taps > 1 else 1
        groups = rng.choice((1, 1, 1, 1, 2, 4))
        channels, filters = (groups * round(2 ** rng.uniform(0, 8 - math.log2(groups))) for _ in range(2))
        reach = dilation * (taps - 1) + 1
        if min(side, wide) < reach:
            continue
        high, across = (side - reach) // stride + 1, (wide - reach) // stride + 1
        products = batch * filters * high * across * (channels // groups) * taps * taps
        if _LEAST <= products <= _MOST:
            yield _convolution(batch, channels, filters, groups, (side, wide), taps, stride, dilation)


def _convolution(
    batch: int, channels: int, filters: int, groups: int, image: tuple[int, int], taps: int, stride: int, dilation: int
) -> Drawn:
    def along(place: str, tap: str) -> str:
        return (f"{stride}*" if stride > 1 else "") + place + " + " + (f"{dilation}*" if dilation > 1 else "") + tap

    where = f"{along('h', 'kh')}, {along('w', 'kw')}"
    c, f = channels // groups, filters // groups
    if groups == 1:
        shapes = (batch, channels, *image), (filters, channels, taps, taps)
        body = f"O(n,f,h,w) +=! I(n,c,{where}) * K(f,c,kh,kw)"
    else:
        shapes = (batch, groups, c, *image), (groups, f, c, taps, taps)
        body = f"O(n,g,f,h,w) +=! I(n,g,c,{where}) * K(g,f,c,kh,kw)"
    image_type, kernel_type = (f"float({','.join(map(str, shape))})" for shape in shapes)

    def in_torch(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x, y = x.reshape(batch, channels, *image), y.reshape(filters, c, taps, taps)
        return torch.nn.functional.conv2d(x, y, stride=stride, dilation=dilation, groups=groups)

    grouped = f" in {groups} groups" if groups > 1 else ""
    return Drawn(
        f"{batch}x{channels}x{image[0]}x{image[1]} to {filters}, {taps}x{taps}, "
        f"stride {stride}, dilation {dilation}{grouped}",
        f"def f({image_type} I, {kernel_type} K) -> (O) {{ {body} }}",
        shapes,
        in_torch,
    )


def compare(drawn: Drawn, turns: int, seconds: float) -> tuple[float, float]:
    """Seconds that a call takes in tcomp and in torch, the least of interleaved turns; results are compared first."""
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal(shape, np.float32) for shape in drawn.shapes]
    tensors = [torch.from_numpy(a) for a in inputs]
    operation = tc.define(drawn.text, tune="off").f
    found, expected = operation(*inputs), drawn.torch(*tensors).numpy()
    assert np.linalg.norm(found.ravel() - expected.ravel()) <= 1e-4 * np.linalg.norm(expected), drawn.name
    out = np.empty_like(found)
    calls: list[Call] = [lambda: operation(*inputs, out=out), lambda: drawn.torch(*tensors)]
    least = [math.inf, math.inf]
    for _ in range(turns):
        for which, call in enumerate(calls):
            end = time.perf_counter() + seconds
            while (start := time.perf_counter()) < end:
                call()
                least[which] = min(least[which], time.perf_counter() - start)
    return least[0], least[1]


def add_rows(file: Path, kind: str, seed: int, rows: list[Row]) -> None:
    """Add rows to those of one kind in a file, which is made where there is none."""
    known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"benchmark": "drawn", "rows": {}}
    known |= {"date": datetime.now(UTC).isoformat(timespec="seconds"), "seed": seed}
    known["machine"] = machine() | {"threads": torch.get_num_threads()}
    known["rows"].setdefault(kind, []).extend([name, round(ours, 1), round(theirs, 1)] for name, ours, theirs in rows)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Draw, compare, and print what is slower than torch and the means."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--convolutions", type=int, default=60)
    parser.add_argument("--contractions", type=int, default=60)
    parser.add_argument("--below", type=float, default=0.9, help="print the rows below this ratio")
    parser.add_argument("--turns", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=0.02, help="of a turn")
    parser.add_argument("--first", type=int, default=0, help="leave out so many of what is drawn")
    parser.add_argument("--json", type=Path, help="a file that rows are added to")
    arguments = parser.parse_args()
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    for kind, draw in (("convolutions", convolutions), ("contractions", contractions)):
        first, rows = arguments.first, list[Row]()
        source = itertools.islice(draw(random.Random(arguments.seed)), first, first + getattr(arguments, kind))
        for drawn in source:
            ours, theirs = compare(drawn, arguments.turns, arguments.seconds)
            rows.append((drawn.name, ours * 1e6, theirs * 1e6))
            if theirs / ours < arguments.below:
                print(f"{theirs / ours:5.2f}  {ours * 1e6:7.0f} us  {drawn.name}", flush=True)
        if arguments.json is not None:
            add_rows(arguments.json, kind, arguments.seed, rows)
        ratios = [theirs / ours for _, ours, theirs in rows]
        if ratios:
            slow = sum(r < arguments.below for r in ratios)
            mean = statistics.geometric_mean(ratios)
            print(f"{kind}: mean {mean:.2f}, least {min(ratios):.2f}, {slow} below {arguments.below}")


if __name__ == "__main__":
    main()
