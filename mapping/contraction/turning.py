"""Transposed operands of pointwise statements: a tile of them is turned in registers before it is read.

Where neighbouring lanes read far apart, but neighbouring values of another coordinate lie together, a tile of both is
copied with the lanes innermost, as the panel of a contraction is.
"""

from __future__ import annotations

from dataclasses import dataclass

from tcomp.grammar.tree.function import Read, depends_on_data, walk
from tcomp.mapping.machines.fitted.cpucontractions import TURNING
from tcomp.mapping.plan.values import Cluster
from tcomp.mapping.tiles.sizes import lane_position, main_statement
from tcomp.mapping.tiles.strides import access_stride, coefficient
from tcomp.model.scop import Scop, ScopStatement


@dataclass(frozen=True, slots=True)
class Turned:
    """The index of the lanes and the one that the operands run along, by their positions, and the operands."""

    lanes: int
    run: int
    reads: tuple[Read, ...]


def turned_reads(scop: Scop, cluster: Cluster) -> Turned | None:
    """What the main statement of a cluster reads across its lanes; None where nothing is, or cannot be turned."""
    main = main_statement(scop, cluster)
    if main.kind != "assign" or not main.plain:
        return None
    lanes = lane_position(scop, main)
    positions = cluster.coordinates[main.name]
    sizes = main.extents
    if lanes not in positions or sizes[lanes] < TURNING.least_side:
        return None
    found: dict[str, tuple[int, Read]] = {}
    for read in (e for e in walk(main.value) if isinstance(e, Read)):
        run = next((p for p in positions if sizes[p] >= TURNING.least_side and _runs(scop, main, read, p)), None)
        if run is not None and _crosses(scop, main, read, lanes):
            found.setdefault(read.tensor, (run, read))
    if not found:
        return None
    run = next(iter(found.values()))[0]
    return Turned(lanes, run, tuple(read for own, read in found.values() if own == run))


def _runs(scop: Scop, statement: ScopStatement, read: Read, position: int) -> bool:
    """Whether neighbouring values of an index read neighbours of a tensor in memory."""
    index = statement.indices[position]
    return access_stride(scop, read.tensor, read.subscripts, index, scop.sizes) == 1


def _crosses(scop: Scop, statement: ScopStatement, read: Read, position: int) -> bool:
    """Whether neighbouring values of an index read far apart, one dimension moving by one element at a time."""
    index = statement.indices[position]
    outside = read.boundary is not None or any(map(depends_on_data, read.subscripts))
    if outside or scop.storages[read.tensor].role == "temporary":
        return False
    steps = [coefficient(s, index, scop.sizes) for s in read.subscripts]
    apart = access_stride(scop, read.tensor, read.subscripts, index, scop.sizes)
    return [s for s in steps if s != 0] == [1] and apart not in (None, 0, 1)
