"""Random mapping options for the GPU targets."""

from __future__ import annotations

import math

from tcomp.mapping.options import DISTRIBUTIONS, FUSION_STRATEGIES, MOST_THREADS, POINT_FUSIONS, MappingOptions
from tests.properties.choices import Choices

_TILES = (16, 0, 1, 2, 3, 4, 5, 8, 32, 33, 64)
_THREADS = (1, 2, 3, 4, 7, 8, 16, 17, 32, 33, 64, 100, 128, 256)
_BUDGETS = (49152, 8192, 1024, 64, 0)


def random_options(choices: Choices, most_threads: int = 256) -> MappingOptions:
    """Any options that a GPU target takes; blocks have ``most_threads`` at most, as simulated threads cost time."""
    pick, chance = choices.pick, choices.chance
    return MappingOptions(
        tile_sizes=tuple(pick(_TILES) for _ in range(choices.integer(1, 5))) if chance(65) else None,
        fusion_strategy=pick(FUSION_STRATEGIES),
        recompute_limit=pick((1.5, 1.0, 4.0)),
        threads=_threads(choices, most_threads) if chance(65) else None,
        blocks=tuple(pick((256, 1, 2, 3, 8)) for _ in range(choices.integer(1, 3))) if chance(35) else None,
        reduction_tile=pick((16, 1, 2, 3, 4, 8, 32)) if chance(50) else None,
        distribution=pick(DISTRIBUTIONS),
        point_fusion=pick(POINT_FUSIONS),
        match_reductions=not chance(35),
        split_reduction=pick((2, 3, 4, 7)) if chance(20) else None,
        unroll=pick((128, 1, 8, 512)),
        use_shared_memory=not chance(25),
        use_private_memory=not chance(25),
        max_shared_memory=pick(_BUDGETS) if chance(25) else None,
    )


def _threads(choices: Choices, most: int) -> tuple[int, ...]:
    shape: list[int] = []
    for limit in MOST_THREADS[: choices.integer(1, 3)]:
        left = min(limit, most // math.prod(shape))
        shape.append(choices.pick([n for n in _THREADS if n <= left]))
    return tuple(shape)
