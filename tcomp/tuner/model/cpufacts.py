"""What is known of a candidate for a CPU before it is compiled.

Facts are about roles (the vector loop, the rows of a register tile), not about positions, and in ratios to the machine
and to the program, so that what was learned from one shape, or program, says something about another.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.options.options import MappingOptions
from tcomp.tuner.model.cpucost import Cost, band_costs
from tcomp.tuner.space.outline import Band, heaviest


@dataclass(frozen=True, slots=True)
class CpuFacts:
    """What is known of a candidate for the CPU before it is compiled.

    ``start`` are the tile sizes of each band that stand for those of the model.
    """

    bands: tuple[Band, ...]
    start: tuple[tuple[int, ...], ...]
    machine: Machine

    def __call__(self, options: MappingOptions) -> Mapping[str, float]:
        """The features of a candidate but for the values of its options."""
        costs = self._costs(options)
        found = {"estimate": _log(sum(c.cycles for c in costs))}
        main = heaviest(self.bands)
        if main is not None:
            found |= _of_band(main, costs[self.bands.index(main)], self.machine)
        found["arithmetic"] = _log(sum(c.arithmetic for c in costs))
        found["memory"] = _log(sum(c.memory for c in costs))
        return found | {"bands": float(len(self.bands))}

    def _costs(self, options: MappingOptions) -> tuple[Cost, ...]:
        given = options.tile_sizes
        sizes = self.start if given is None else (given,) * len(self.bands)
        tiles = tuple(band.tile(s) for band, s in zip(self.bands, sizes, strict=True))
        return band_costs(self.bands, tiles, options, self.machine)


def _of_band(band: Band, cost: Cost, machine: Machine) -> dict[str, float]:
    lanes = max(1, machine.vector_bytes // band.itemsize)
    vector = 1 if band.vector is None else cost.tile[band.vector]
    row = 1 if band.row is None else cost.tile[band.row]
    points = math.prod(cost.tile)
    covered = cost.tiles * points / math.prod(band.extents)
    return {
        "vector tile": _log(vector),
        "row tile": _log(row),
        "other tile": _log(points / (vector * row)),
        "vector whole": float(band.vector is not None and vector == band.extents[band.vector]),
        "row whole": float(band.row is not None and row == band.extents[band.row]),
        "vectors unfilled": _log(-(-vector // lanes) * lanes / vector),
        "tiles": _log(cost.tiles),
        "tiles per thread": _log(-(-cost.tiles // machine.threads) * machine.threads / cost.tiles),
        "tile instances": _log(points * band.steps),
        "tile bytes": _log(cost.tile_bytes / machine.nearest_cache),
        "moved": _log(cost.moved),
        "covered": _log(covered),
        "register rows": float(cost.rows),
        "register vectors": cost.columns / lanes,
        "registers": cost.registers,
        "rows left": row % max(1, cost.rows) / max(1, cost.rows),
        "columns left": vector % max(1, cost.columns) / max(1, cost.columns),
        **_of_loops(band),
    }


def _of_loops(band: Band) -> dict[str, float]:
    """What a band is like under any options."""
    whole = sum(a.bytes(band.extents) for a in band.accesses)
    return {
        "contraction": float(band.contraction),
        "reduces": float(band.reduces),
        "shared vectors": float(band.shared_vectors),
        "packed": float(band.packed),
        "steps": _log(band.steps),
        "rank": float(len(band.extents)),
        "vector extent": 0.0 if band.vector is None else _log(band.extents[band.vector]),
        "row extent": 0.0 if band.row is None else _log(band.extents[band.row]),
        "operations per byte": _log(math.prod(band.extents) * band.flops / max(1, whole)),
        "scattered": float(sum(a.vector_stride not in (0, 1) for a in band.accesses)),
    }


def _log(value: float) -> float:
    return math.log2(max(value, 1e-9))
