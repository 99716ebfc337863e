"""How a copy lies in shared memory so that the lanes of a warp meet in no bank.

Shared memory has 32 banks of 4 bytes; lanes that need different words of one bank wait for each other (CUDA programming
guide, "Shared memory").  The layouts tried are the tensor's order of dimensions, and the one with the dimension that
neighbouring threads run along innermost, each with a few paddings; the addresses of one warp are counted for each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

from tcomp.grammar.tree.function import Expr
from tcomp.mapping.machines.fitted.gpu import SHARED
from tcomp.mapping.machines.gpu import VECTOR_BYTES, WARP
from tcomp.mapping.memory.owners import home_of
from tcomp.mapping.plan.values import Copy, Plan
from tcomp.mapping.tiles.strides import coefficient
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.storages import contiguous_strides

BANKS, BANK_BYTES = 32, 4

ASYNCHRONOUS_BYTES = (4, 8, 16)
"""What one asynchronous copy may have."""


LANES_ALIKE = 2
"""Neighbouring vectors of a row that are stored into columns from the same element on, where lanes take turns.

Columns that begin at whole vectors lie 4 words further for each element, so vectors 8 elements apart meet.
"""


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


def without_conflicts(plan: Plan, copy: Copy, reuse: float, in_runs: Copy | None = None) -> Copy:
    """The copy in the layout whose accesses take least: each a turn of the warp and its passes over the banks.

    ``reuse`` is how often a fetched element is read, ``in_runs`` the same copy in joined rows, if it may have them.
    """
    scop = plan.scop
    statement = scop.by_name[copy.statement]
    storage = scop.storages[copy.storage]
    stored = _offsets_when_stored(copy.shape, storage.strides, copy.vector)
    read = [_offsets_when_read(plan, statement, r.subscripts) for r in copy.reads]
    orders = {tuple(range(len(copy.shape)))} | {_innermost(len(copy.shape), d) for d in range(len(copy.shape))}
    together = [_read_together(plan, statement, r.subscripts) for r in copy.reads]
    best: tuple[tuple[float, float, int], tuple[int, ...]] | None = None

    def cost_of_reading(candidate: Copy) -> tuple[float, list[int]]:
        vectors = [_read_at_a_time(candidate, t) for t in together]
        return reuse * sum(_cost(candidate, o, v) / v for o, v in zip(read, vectors, strict=True)), vectors

    for order in sorted(orders):
        for padding in range(SHARED.largest_padding + 1 if len(order) > 1 else 1):
            candidate = replace(copy, order=order, padding=padding)
            cost = float(_cost_of_storing(candidate, stored, storage.strides))
            reading, vectors = cost_of_reading(candidate)
            cost += reading
            rank = cost, sum(1 / v for v in vectors), padding
            if best is None or rank < best[0]:
                best = rank, order
    assert best is not None
    found = replace(copy, padding=best[0][2], order=best[1])
    if in_runs is not None:
        # A thread fetches an element, or a vector, and stores it.
        stored = _offsets_when_stored(in_runs.shape, storage.strides, in_runs.vector)
        cost = (1 + _cost_of_storing(in_runs, stored, storage.strides)) / in_runs.vector + cost_of_reading(in_runs)[0]
        if cost <= 1 + best[0][0]:
            return in_runs
    return found


def asynchronous_layout(plan: Plan, copy: Copy, reuse: float, narrow: Sequence[int] = ()) -> Copy | None:
    """The copy in the best of the layouts that the device can fill by itself; None if that reads much slower.

    It copies 4, 8 or 16 bytes that lie together on both sides; so elements of 4 bytes may go anywhere, one by one.
    ``narrow`` are shorter vectors that it may take.
    """
    scop = plan.scop
    statement, storage = scop.by_name[copy.statement], scop.storages[copy.storage]
    read = [_offsets_when_read(plan, statement, r.subscripts) for r in copy.reads]
    together = [_read_together(plan, statement, r.subscripts) for r in copy.reads]

    def cost(candidate: Copy) -> tuple[float, int]:
        stored = _offsets_when_stored(candidate.shape, storage.strides, candidate.vector)
        storing = (1 + _cost_of_storing(candidate, stored, storage.strides)) / candidate.vector
        vectors = [_read_at_a_time(candidate, t) for t in together]
        reading = sum(_cost(candidate, o, v) / v for o, v in zip(read, vectors, strict=True))
        return storing + reuse * reading, candidate.padding

    orders = {tuple(range(len(copy.shape)))} | {_innermost(len(copy.shape), d) for d in range(len(copy.shape))}
    paddings = range(SHARED.largest_padding + 1 if len(copy.shape) > 1 else 1)
    candidates = [
        replace(copy, vector=vector, order=order, padding=padding)
        for vector in sorted({1, copy.vector, *narrow}) for order in sorted(orders) for padding in paddings
    ]  # fmt: skip
    possible = [c for c in (copy, *candidates) if is_asynchronous(c, storage.strides)]
    best = min(possible, key=cost, default=None)
    return best if best is not None and cost(best)[0] <= SHARED.pipelined_cost * cost(copy)[0] else None


def is_asynchronous(copy: Copy, strides: tuple[int, ...]) -> bool:
    """Whether the device can copy what a thread fetches at a time by itself."""
    if copy.vector * copy.dtype.itemsize not in ASYNCHRONOUS_BYTES or not copy.shape:
        return False
    return copy.vector == 1 or stores_whole_vectors(copy, fetch_order(copy.shape, strides)[-1])


def _innermost(rank: int, last: int) -> tuple[int, ...]:
    return (*(d for d in range(rank) if d != last), last)


def fetch_order(shape: tuple[int, ...], strides: tuple[int, ...]) -> list[int]:
    """The dimensions of a box from the largest stride in the tensor to the smallest: the last runs along lanes.

    Those of one element come first: no lanes run along them.
    """
    return sorted(range(len(shape)), key=lambda d: (shape[d] > 1, -abs(strides[d]), d))


def stores_whole_vectors(copy: Copy, fastest: int) -> bool:
    """Whether the elements that a thread fetches at a time also lie together, and aligned, in shared memory.

    Rows that are no whole vectors are joined (``joining.py``): they lie as in the tensor.
    """
    if copy.vector == 1 or copy.order[-1] != fastest:
        return False
    return copy.room[-1] % copy.vector == 0 or copy.shape[fastest] % copy.vector != 0


def takes_turns(copy: Copy, strides: tuple[int, ...]) -> bool:
    """Whether fewer lanes meet if every other pair of them stores the second half of its vector into columns first."""
    fastest = fetch_order(copy.shape, strides)[-1] if copy.shape else 0
    words = copy.vector * copy.dtype.itemsize == VECTOR_BYTES and copy.dtype.itemsize == BANK_BYTES
    if not words or stores_whole_vectors(copy, fastest):
        return False
    stored = _offsets_when_stored(copy.shape, strides, copy.vector)
    straight, turned = (_cost_of_columns(copy, stored, fastest, turns) for turns in (False, True))
    return turned < straight


def _cost_of_storing(copy: Copy, offsets: Sequence[tuple[int, ...]], strides: tuple[int, ...]) -> int:
    fastest = fetch_order(copy.shape, strides)[-1] if copy.shape else 0
    if copy.vector == 1:
        return _cost(copy, offsets)
    if stores_whole_vectors(copy, fastest):
        return _cost(copy, offsets, copy.vector)
    return _cost_of_columns(copy, offsets, fastest, takes_turns(copy, strides))


def _cost_of_columns(copy: Copy, offsets: Sequence[tuple[int, ...]], fastest: int, turns: bool) -> int:
    """What it costs to store the elements of vectors one by one."""

    def moved(offset: tuple[int, ...], element: int) -> tuple[int, ...]:
        first = copy.vector // 2 * (offset[fastest] // copy.vector // LANES_ALIKE % 2) if turns else 0
        own = offset[fastest] + (element + first) % copy.vector
        return (*offset[:fastest], own, *offset[fastest + 1 :])

    return sum(_cost(copy, [moved(o, element) for o in offsets]) for element in range(copy.vector))


def _read_at_a_time(copy: Copy, together: Sequence[int]) -> int:
    """How many of the elements that a lane reads in turn lie together, and aligned: one access reads them.

    Three take two accesses, which still are fewer; the layout that follows was the fastest measured.
    """
    run = math.gcd(together[copy.order[-1]], copy.room[-1] if len(copy.room) > 1 else 0)
    return max(n for n in range(1, VECTOR_BYTES // copy.dtype.itemsize + 1) if run % n == 0)


def _cost(copy: Copy, offsets: Sequence[Sequence[int]], elements: int = 1) -> int:
    """What an access of a warp takes to so many ``elements`` a lane: its turn, and its passes over the banks."""
    steps = contiguous_strides(copy.room)
    strides = dict(zip(copy.order, steps, strict=True))
    width = copy.dtype.itemsize
    addresses = (width * sum(o * strides[d] for d, o in enumerate(lane)) for lane in offsets)
    return 1 + wavefronts(addresses, width * elements)


def _offsets_when_stored(shape: tuple[int, ...], strides: tuple[int, ...], vector: int) -> list[tuple[int, ...]]:
    """Per lane the place in the box that it fetches first: neighbouring lanes take neighbours in memory."""
    order = fetch_order(shape, strides)
    lanes = []
    for lane in range(min(WARP, math.prod(shape) // vector)):
        rest, place = lane * vector, [0] * len(shape)
        for d in reversed(order):
            rest, place[d] = divmod(rest, shape[d])
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
