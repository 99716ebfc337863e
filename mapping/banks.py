"""How a copy lies in shared memory so that the lanes of a warp meet in no bank.

Shared memory has 32 banks of 4 bytes; lanes that need different words of one bank wait for each other (CUDA programming
guide, "Shared memory").  The layouts tried are the tensor's order of dimensions, and the one with the dimension that
neighbouring threads run along innermost, each with a few paddings; the addresses of one warp are counted for each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tcomp.grammar.function import Expr
from tcomp.mapping.gpu import SECTOR_BYTES, WARP
from tcomp.mapping.memories import home_of
from tcomp.mapping.plan import Copy, Plan
from tcomp.mapping.strides import coefficient
from tcomp.scop import Scop, ScopStatement, contiguous_strides

BANKS, BANK_BYTES = 32, 4

LARGEST_PADDING = 8
"""Elements that may be added to a row."""


def wavefronts(addresses: Iterable[int], width: int) -> int:
    """Passes over the banks that one access of a warp takes; ``addresses`` are in bytes, ``width`` bytes a lane.

    Lanes that read the same word are served together.  Accesses of 8 and 16 bytes go by half and quarter warps.
    """
    lanes = list(addresses)
    share = max(1, width // BANK_BYTES)
    total = 0
    for start in range(0, len(lanes), WARP // share):
        words: set[int] = set()
        for address in lanes[start : start + WARP // share]:
            words.update(range(address // BANK_BYTES, (address + width - 1) // BANK_BYTES + 1))
        counts = [0] * BANKS
        for word in words:
            counts[word % BANKS] += 1
        total += max(counts)
    return total


def without_conflicts(plan: Plan, copy: Copy, reuse: float) -> Copy:
    """The copy in the layout with the fewest conflicts, of equals that with the fewest reads.

    ``reuse`` is how often a fetched element is read.
    """
    scop = plan.scop
    statement = scop.by_name[copy.statement]
    storage = scop.storages[copy.storage]
    fastest = fetch_order(copy.shape, storage.strides)[-1] if copy.shape else 0
    read = [_offsets_when_read(plan, statement, r.subscripts) for r in copy.reads]
    orders = {tuple(range(len(copy.shape)))} | {_innermost(len(copy.shape), d) for d in range(len(copy.shape))}
    together = [_read_together(plan, statement, r.subscripts) for r in copy.reads]
    best: tuple[tuple[float, float, int], tuple[int, ...]] | None = None
    for order in sorted(orders):
        for padding in range(LARGEST_PADDING + 1 if len(order) > 1 else 1):
            candidate = replace(copy, order=order, padding=padding)
            cost = float(_cost_of_storing(candidate, _offsets_when_stored(candidate, storage.strides), fastest))
            vectors = [_read_at_a_time(candidate, t) for t in together]
            cost += reuse * sum(_cost(candidate, o, v) / v for o, v in zip(read, vectors, strict=True))
            rank = cost, sum(1 / v for v in vectors), padding
            if best is None or rank < best[0]:
                best = rank, order
    assert best is not None
    return replace(copy, padding=best[0][2], order=best[1])


def _innermost(rank: int, last: int) -> tuple[int, ...]:
    return (*(d for d in range(rank) if d != last), last)


def fetch_order(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """The dimensions of a box from the largest stride in the tensor to the smallest: the last runs along lanes."""
    return sorted(range(len(shape)), key=lambda d: (-abs(strides[d]), d))


def stores_whole_vectors(copy: Copy, fastest: int) -> bool:
    """Whether the elements that a thread fetches at a time also lie together, and aligned, in shared memory."""
    return copy.vector > 1 and copy.order[-1] == fastest and copy.room[-1] % copy.vector == 0


def _cost_of_storing(copy: Copy, offsets: Sequence[tuple[int, ...]], fastest: int) -> int:
    if copy.vector == 1:
        return _cost(copy, offsets)
    if stores_whole_vectors(copy, fastest):
        return _cost(copy, offsets, copy.vector)
    shifted = [[(*o[:fastest], o[fastest] + i, *o[fastest + 1 :]) for o in offsets] for i in range(copy.vector)]
    return sum(_cost(copy, lanes) for lanes in shifted)


def _read_at_a_time(copy: Copy, together: Sequence[int]) -> int:
    """How many of the elements that a lane reads in turn lie together, and aligned: one access reads them."""
    return math.gcd(together[copy.order[-1]], copy.room[-1] if len(copy.room) > 1 else 0)


def _cost(copy: Copy, offsets: Sequence[Sequence[int]], elements: int = 1) -> int:
    steps = contiguous_strides(copy.room)
    strides = dict(zip(copy.order, steps, strict=True))
    width = copy.dtype.itemsize
    return wavefronts((width * sum(o * strides[d] for d, o in enumerate(lane)) for lane in offsets), width * elements)


def run_of(copy: Copy, strides: tuple[int, ...]) -> int:
    """Elements of a row that neighbouring threads fetch before they go to the next row: all of them, or a sector.

    What is fetched in vectors and stored into columns meets in fewer banks so, and as many sectors are read.
    """
    fastest = fetch_order(copy.shape, strides)[-1] if copy.shape else 0
    row = copy.shape[fastest] if copy.shape else 1
    sector = SECTOR_BYTES // copy.dtype.itemsize
    return sector if copy.vector > 1 and copy.order[-1] != fastest and row % sector == 0 else row


def _offsets_when_stored(copy: Copy, strides: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Per lane the place in the box that it fetches first: neighbouring lanes take neighbours in memory."""
    order, run = fetch_order(copy.shape, strides), run_of(copy, strides)
    lanes = []
    for lane in range(min(WARP, math.prod(copy.shape) // copy.vector)):
        rest, place = lane * copy.vector // run, [0] * len(copy.shape)
        for d in reversed(order[:-1]):
            rest, place[d] = divmod(rest, copy.shape[d])
        if order:
            place[order[-1]] = run * rest + lane * copy.vector % run
        lanes.append(tuple(place))
    return lanes


def _offsets_when_read(plan: Plan, statement: ScopStatement, subscripts: Sequence[Expr]) -> list[tuple[int, ...]]:
    """Per lane how far its first element lies from that of the first lane; what is not linear counts as fixed."""
    _, number = home_of(plan, statement.name)
    dealt, coordinates = plan.dealt[number], plan.clusters[number].coordinates[statement.name]
    lanes = []
    for lane in range(min(WARP, dealt.threads)):
        rest, threads = lane, [0] * len(dealt.shape)
        for dimension in reversed(range(len(dealt.shape))):
            rest, threads[dimension] = divmod(rest, dealt.shape[dimension])
        place = []
        for subscript in subscripts:
            total = 0
            for d, own in enumerate(dealt.deals):
                if own.dimension is not None:
                    index = statement.indices[coordinates[d]]
                    step = _step(plan.scop, subscript, index)
                    total += step * own.vector * threads[own.dimension]
            place.append(total)
        lanes.append(tuple(place))
    return lanes


def _read_together(plan: Plan, statement: ScopStatement, subscripts: Sequence[Expr]) -> list[int]:
    """Per dimension of the box how many neighbouring elements, at a multiple of that number, a lane reads in turn."""
    _, number = home_of(plan, statement.name)
    dealt, coordinates = plan.dealt[number], plan.clusters[number].coordinates[statement.name]
    found = []
    for subscript in subscripts:
        steps = [_step(plan.scop, subscript, statement.indices[c]) for c in coordinates]
        moving = [d for d, step in enumerate(steps) if step]
        alone = len(moving) == 1 and steps[moving[0]] == 1
        found.append(dealt.deals[moving[0]].vector if alone and dealt.deals[moving[0]].dimension is not None else 1)
    return found


def _step(scop: Scop, subscript: Expr, index: str) -> int:
    return coefficient(subscript, index, scop.sizes) or 0
