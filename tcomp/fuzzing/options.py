"""Random mapping options, drawn from their declarations, and processors to use them for."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

from tcomp.fuzzing.programs.choices import Choices
from tcomp.mapping.machines.cpu import Machine, this_machine
from tcomp.mapping.options.declarations import BlockShape, Choice, Flag, Integer, Integers, Kind, OfParts, Ratio
from tcomp.mapping.options.options import OPTIONS, MappingOptions

MOST_THREADS = 256
"""Threads of a block: simulated ones cost time."""

MOST_ON_DEVICE = 1024
"""Threads of a block that a device runs."""

NOT_EXACT = frozenset({"fast_math", "math"})
"""Options under which infinities and NaN may come out otherwise."""

_LARGEST_TILE = 256
_LONGEST = 5


def random_options(choices: Choices, target: str, most_threads: int = MOST_THREADS) -> MappingOptions:
    """Options that a target such as ``cpu`` or ``cuda`` takes; about half keep their defaults."""
    values = {
        option: _value(choices, declared.kind, most_threads)
        for option, declared in OPTIONS.items()
        if option not in NOT_EXACT and declared.is_for(target) and choices.chance(50)
    }
    sizes, threads = values.get("tile_sizes"), values.get("threads")
    if isinstance(sizes, list) and isinstance(threads, list) and choices.chance(60):
        values["tile_sizes"] = _dealt_evenly(sizes, threads)
    return MappingOptions.from_json(json.dumps(values))


def _dealt_evenly(sizes: Sequence[int], threads: Sequence[int]) -> list[int]:
    """Tile sizes that threads divide, the innermost for those in x: such tiles take other ways where they are torn."""
    along = dict(enumerate(threads))
    return [-(-size // along.get(d, 1)) * along.get(d, 1) for d, size in reversed(list(enumerate(reversed(sizes))))]


def random_machine(choices: Choices) -> Machine:
    """A processor to lay a kernel out for, without special instructions or with those that are here.

    Any other runs on any, only slower.
    """
    here, width = this_machine(), choices.pick((32, 16, 64))
    special = choices.chance(60) and width <= here.vector_bytes
    return Machine(
        vector_bytes=width,
        registers=choices.pick((16, 32)),
        datapath_bytes=choices.pick((width, max(16, width // 2))),
        threads=choices.pick((2, 1, 3, 16)),
        nearest_cache=choices.pick((32 << 10, 1 << 10, 256 << 10)),
        middle_cache=choices.pick((512 << 10, 4 << 10)),
        last_cache=choices.pick((32 << 20, 16 << 10)),
        dots=here.dots if special else "",
        widens=here.widens and special,
        bfloat16=here.bfloat16 and special,
        matrix_tiles=here.matrix_tiles and special,
    )


def _value(choices: Choices, kind: Kind, most_threads: int) -> object:
    """Any value of a kind; numbers near powers of two, small ones more often."""
    match kind:
        case Flag():
            return choices.chance(50)
        case Choice():
            return choices.pick(kind.names)
        case Integer():
            return max(kind.least, _integer(choices, kind.usual))
        case Ratio():
            return kind.least * choices.pick((1.0, 1.5, 2.0, 4.0, 10.0, math.inf))
        case Integers():
            longest = _LONGEST if kind.longest is None else kind.longest
            count = choices.integer(kind.fewest, longest)
            return [max(kind.least, _integer(choices, _LARGEST_TILE)) for _ in range(count)]
        case OfParts():
            return {}
        case BlockShape():
            shape: list[int] = []
            for limit in kind.most[: choices.integer(1, len(kind.most))]:
                left = min(limit, kind.in_all // math.prod(shape), most_threads // math.prod(shape))
                shape.append(max(1, min(left, _integer(choices, left))))
            return shape


def _integer(choices: Choices, largest: int) -> int:
    """A number up to ``largest``, or little more: a power of two or one beside it, 0 among them, or any."""
    if choices.chance(20):
        return choices.integer(0, largest)
    return (1 << choices.integer(0, largest.bit_length() - 1)) + choices.pick((0, 0, 1, -1))
