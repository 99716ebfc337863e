"""A ``Plan``: when and where the instances of a ``Scop`` run.  Every pass is a function ``Plan -> Plan``.

``tree`` is the schedule.  ``clusters`` say which statements share a coincident band, ``groups`` which clusters share a
tile, ``buffers`` where temporaries live, ``operations`` which subtrees are opaque to polyhedral code generation.  A
printed plan shows the tree as isl writes it and a table of the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import islpy as isl

from tcomp.mapping.operations import TileOperation
from tcomp.operators import DType
from tcomp.scop import Scop


@dataclass(frozen=True, slots=True)
class Cluster:
    """Statements that isl schedules under one coincident, permutable band.

    ``coordinates`` gives, for each statement, which of its indices are the members of that band, outermost first.
    """

    number: int
    statements: tuple[str, ...]
    coordinates: Mapping[str, tuple[int, ...]]

    @property
    def rank(self) -> int:
        """Number of coincident members."""
        return len(next(iter(self.coordinates.values())))


@dataclass(frozen=True, slots=True, eq=False)
class Footprint:
    """The coordinates of one cluster that each tile runs.

    ``tiles`` maps a tile to coordinates.  ``partition`` says that no coordinate belongs to two tiles; otherwise
    ``ratio`` is how many instances run for each one needed once.  ``free`` lists the tile members on which the
    footprint does not depend: tiling them only repeats work.
    """

    tiles: isl.Map
    partition: bool
    ratio: float
    free: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """Clusters that share the tiles of the last one, the root, in execution order.

    ``members`` are the coordinates of the root that the tile loops run over, ``sizes`` their tile sizes;
    ``footprints`` give what each cluster runs in a tile.
    """

    clusters: tuple[int, ...]
    members: tuple[int, ...]
    sizes: tuple[int, ...]
    footprints: Mapping[int, Footprint]

    @property
    def root(self) -> int:
        """The cluster that was tiled; the others follow its tiles."""
        return self.clusters[-1]

    @property
    def expanded(self) -> tuple[int, ...]:
        """Clusters whose instances carry the tile in front because neighbouring tiles recompute some of them."""
        return tuple(c for c in self.clusters if not self.footprints[c].partition)

    @property
    def recompute(self) -> float:
        """The largest ratio of instances run to instances needed."""
        return max(f.ratio for f in self.footprints.values())


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """Where a temporary lives.

    ``space`` is "global" (one copy, in the arena), "tile" (declared at ``mark``, a box that moves with the loops around
    it) or "register" (one element, declared at ``mark``).  ``shape`` is the box; its first element has the logical
    coordinates ``origin`` (global) or ``lower``, an affine function of the loops around the mark (tile).
    """

    storage: str
    dtype: DType
    space: str
    shape: tuple[int, ...]
    origin: tuple[int, ...]
    lower: isl.MultiAff | None
    mark: str

    @property
    def bytes(self) -> int:
        """Size of the box in bytes."""
        count = self.dtype.itemsize
        for extent in self.shape:
            count *= extent
        return count


@dataclass(frozen=True, eq=False)
class Plan:
    """A schedule with what its passes decided.

    ``program`` is the Scop as it was built; ``scop`` is that or, after fusion, what tiles run of it (``expand.py``).
    """

    program: Scop
    scop: Scop
    tree: isl.Schedule
    clusters: tuple[Cluster, ...]
    groups: tuple[Group, ...] = ()
    buffers: Mapping[str, Buffer] = field(default_factory=lambda: MappingProxyType({}))
    operations: Mapping[str, TileOperation] = field(default_factory=lambda: MappingProxyType({}))
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [self.tree.to_str()]
        for cluster in self.clusters:
            lines.append(f"cluster {cluster.number}: {' '.join(cluster.statements)} (rank {cluster.rank})")
        for number, group in enumerate(self.groups):
            tiles = ", ".join(f"{m}:{s}" for m, s in zip(group.members, group.sizes, strict=True))
            expanded = f", expanded {list(group.expanded)}, recompute {group.recompute:.3f}" if group.expanded else ""
            lines.append(f"group {number}: clusters {list(group.clusters)}, tiles [{tiles}]{expanded}")
        for b in self.buffers.values():
            where = f" at {b.mark}" if b.mark else ""
            corner = f", lower {b.lower}" if b.lower is not None else ""
            lines.append(f"buffer {b.storage}: {b.dtype}{list(b.shape)} in {b.space} space{where}{corner}")
        lines += [f"operation {operation}" for operation in self.operations.values()]
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(lines) + "\n"
