"""A ``Plan``: when and where the instances of a ``Scop`` run.  Every pass is a function ``Plan -> Plan``.

``tree`` is the schedule.  ``clusters`` say which statements share a coincident band, ``groups`` which clusters share a
tile, ``buffers`` where temporaries live, ``operations`` which subtrees are opaque to polyhedral code generation.
``text/writer.py`` prints a plan, ``text/reader.py`` reads it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from types import MappingProxyType

import islpy as isl

from tcomp.grammar.tree.function import Read
from tcomp.mapping.plan.deals import Deal, Dealt, Phase
from tcomp.mapping.plan.layouts import OVERHANG, SUM_ALIGNMENT, SUM_BYTES, StepGroups, Swizzle
from tcomp.mapping.plan.operations import TileOperation
from tcomp.model.scop import Scop
from tcomp.model.terms.storages import contiguous_strides
from tcomp.values.operators import DType

LARGEST = 1 << 40
"""No number in a plan is larger."""

TENSOR, BARRIERS = "tensor", "barriers"
"""The route of copies that the device makes box by box for one thread, and the kind of pipelines that they feed."""


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
    ``footprints`` give what each cluster runs in a tile.  The loops of the first ``shared`` members are one with those
    of the group before: both run in one nest, one after another at each point of these loops.  Where a point has
    several tiles of a group, ``together`` says how many along each of these loops; the group then has loops over all
    of its members for itself, too.  The clusters ``turns``, the first ones, run in each turn of a loop inside a tile:
    their footprints have the number of the turn behind the tile.  A tile runs its turns from number ``first`` on, where
    that is not None, up to number ``seen``, where that is not None: the others change nothing.  Where these are more
    along the innermost loop over tiles, blocks may take it ``backwards``.
    """

    clusters: tuple[int, ...]
    members: tuple[int, ...]
    sizes: tuple[int, ...]
    footprints: Mapping[int, Footprint]
    shared: int = 0
    together: tuple[int, ...] = ()
    turns: tuple[int, ...] = ()
    seen: isl.PwAff | None = None
    first: isl.PwAff | None = None
    backwards: bool = False

    def sizes_of(self, cluster: int) -> tuple[int, ...]:
        """The tile sizes along all that the footprint of a cluster begins with: each turn is a tile of its own."""
        return (*self.sizes, 1) if cluster in self.turns else self.sizes

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


@dataclass(frozen=True, slots=True)
class Rescaled:
    """The statement of weights that are computed in parts of so many ``steps``, and the ``storages`` that parts leave.

    Only a group whose root writes one of these computes others of them: parts are combined by groups of their own.
    Where parts run in turn instead, ``inside`` are the statements of a turn, ``last`` those that take the results, and
    ``carried`` tells which dimension of a storage is the part: what one leaves there the next goes on with.  Tiles have
    several of the ``row`` of that number, and one of all others.  Where nothing is rescaled, but ``summed`` alone,
    ``weights`` is the first of the sums.  Where blocks share the steps, each runs
    through ``shared`` of them in turn, and leaves ``storages``.
    """

    weights: str
    steps: int
    storages: frozenset[str]
    inside: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    carried: tuple[tuple[str, int], ...] = ()
    row: int = 0
    summed: bool = False
    shared: int = 0


@dataclass(frozen=True, slots=True)
class Swept:
    """An update that runs in ``count`` stretches of its elements, through all of its instances in each."""

    statement: str
    count: int


@dataclass(frozen=True, slots=True)
class Sought:
    """A search for the place of an extremum that asks one of so many ``parts`` of a row.

    What these reduce to is in a ``storage``.
    """

    statement: str
    parts: int
    storage: str


@dataclass(frozen=True, slots=True)
class Parted:
    """A cumulative reduction in parts of so many ``steps``, and the ``storages`` by which parts know of each other."""

    statement: str
    steps: int
    storages: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class Copy:
    """A box of a tensor that the threads of a block fetch together whenever control reaches ``mark``.

    Below the mark ``statement`` takes ``reads`` of ``storage`` from shared memory.  The box has its first element at
    ``lower``, an affine function of the loops around the mark.  In shared memory its dimensions stand in ``order``,
    outermost first, and ``padding`` elements follow each row.  A thread fetches ``vector`` elements at a time, which
    are neighbours in the tensor.  Of the innermost dimension, elements that are ``step`` apart stand side by side: all
    whose distance from the corner divides by it, then those with a rest of 1, and so on.  On a CPU one thread makes the
    copy, in memory of its own; elements may be converted to a ``dtype`` that holds every value of theirs, and steps of
    a reduction may lie in ``groups``.  What is copied of a bound array may be there before the kernel is called, each
    box in a place of its own: ``ahead``.  Elements that instructions fetch by themselves lie as ``swizzle`` says.  On
    the ``route`` "tensor" one thread asks the device for whole boxes; otherwise all threads of a block fetch.
    """

    storage: str
    dtype: DType
    mark: str
    statement: str
    reads: tuple[Read, ...]
    shape: tuple[int, ...]
    lower: isl.MultiAff
    order: tuple[int, ...]
    padding: int = 0
    vector: int = 1
    step: int = 1
    groups: StepGroups | None = None
    ahead: bool = False
    swizzle: Swizzle | None = None
    route: str = ""

    @property
    def panel(self) -> str:
        """What tells it on a CPU from all storages, and from the other copies of a plan, in C as well."""
        around = "" if self.mark.startswith("panel") else f"_{self.mark}"
        return f"{self.storage}_of_{self.statement}{around}"

    @property
    def run(self) -> int:
        """Elements of the innermost dimension that stand side by side."""
        return -(-self.shape[self.order[-1]] // self.step)

    @property
    def room(self) -> tuple[int, ...]:
        """Extents of the array in shared memory, outermost first, padding included, groups whole."""
        if self.swizzle is not None:
            return (math.prod(self.shape),)
        extents = [*(self.shape[d] for d in self.order[:-1]), self.run * self.step + self.padding]
        if self.groups is not None:
            place, size = self.order.index(self.groups.dimension), self.groups.whole
            extents[place] = -(-extents[place] // size) * size
        return tuple(extents)

    @property
    def box_bytes(self) -> int:
        """Size of the array in shared memory."""
        return math.prod(self.room) * self.dtype.itemsize

    @property
    def sums_offset(self) -> int:
        """Bytes from the array to the sums behind it."""
        return -(-self.box_bytes // SUM_ALIGNMENT) * SUM_ALIGNMENT

    @property
    def bytes(self) -> int:
        """Size in memory, with what stands behind the array."""
        if self.groups is None:
            return self.box_bytes
        kept = self.groups.summed
        return self.sums_offset + (0 if kept is None else math.prod(self.shape[d] for d in kept) * SUM_BYTES) + OVERHANG


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Copies at the phase in a loop over tiles of steps that are on their way while threads work on other tiles.

    Each copy has ``stages`` places in shared memory, which its tiles use in turn; tile t + ``distance`` is asked for
    when all threads are done with tile t - 1 - ``flight``: so many tiles' products may be under way when they go on.
    They are asynchronous copies of the device.  Of the ``kind`` "barriers" a warp makes them that does nothing else: it
    waits until the stage of a tile is empty, and those who multiply until it is full.
    """

    stages: int
    distance: int
    flight: int = 0
    kind: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """Where a temporary lives.

    ``space`` is "global" (one copy, in the arena), "tile" (declared at ``mark``, a box that moves with the loops around
    it) or "register" (one element, declared at ``mark``).  On a GPU a tile is "shared" (by the threads of a block),
    "block" (a block has it in global memory) or "private" (each thread has its own elements of it, as ``deals`` says).
    ``shape`` is the box; its first element has the logical coordinates ``origin`` (global) or ``lower``, an affine
    function of the loops around the mark (all tiles).  In memory its dimensions stand in ``order``, outermost first, or
    as they are if that is empty.  Elements along a ``folded`` dimension that are its extent apart, or a multiple of it,
    have one place, which they use in turn.
    """

    storage: str
    dtype: DType
    space: str
    shape: tuple[int, ...]
    origin: tuple[int, ...]
    lower: isl.MultiAff | None
    mark: str
    deals: tuple[Deal, ...] = ()
    order: tuple[int, ...] = ()
    folded: tuple[int, ...] = ()

    @property
    def strides(self) -> tuple[int, ...]:
        """How far apart neighbours along each dimension lie."""
        order = self.order or tuple(range(len(self.shape)))
        by_order = contiguous_strides(tuple(self.shape[d] for d in order))
        return tuple(by_order[order.index(d)] for d in range(len(self.shape)))

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

    ``program`` is the Scop as it was built, or rewritten; ``scop`` is that or, after fusion, what tiles run of it
    (``tiles/expand.py``).  ``atomic`` names updates whose instances may
    meet in an element (``tiles/atomics.py``), ``swept`` those that run stretch by stretch of their elements
    (``tiles/sweeps.py``); ``distributed`` names updates whose terms are added up one after another
    (``fusion/distributing.py``); after that ``unfolded`` are windows that are copied ahead, with the
    indices of the copy; after that ``quotients`` names statements with an index of each that became two and the values
    of the second (``fusion/quotients.py``); after that ``merged`` names statements with two indices of each that became
    one (``fusion/merging.py``), in order; after that ``mirrored`` names products of which half is computed
    (``fusion/mirroring.py``), with the two indices that are exchanged; after that ``outlined`` are parts of statements
    that are computed ahead of them (``fusion/outlining.py``), in order, ``inlined`` names statements that are computed
    where they were read
    (``fusion/inlining.py``), ``sought`` are searches that ask one part of a row (``cpu/seeking.py``), ``parted``
    cumulative reductions in parts (``tiles/scanparts.py``).  What is in ``stored`` must go through global memory;
    ``apart`` names updates whose sums have a storage of their own (``tiles/apart.py``), ``kept`` what statements read
    from a temporary that is filled ahead of them (``fusion/keeping.py``).  On a GPU ``phases`` and ``dealt``
    say how work is dealt to threads, ``copies`` what is fetched into shared memory, ``pipelines`` at which phases
    that is asynchronous, and ``barriers`` at the entry of which marks threads wait: for their "block" or their
    "warp"; ``orders`` has, by the number of a group, how many rows of its tiles blocks take together, ``persistent``
    how many blocks take all of them in turn.
    """

    program: Scop
    scop: Scop
    tree: isl.Schedule
    clusters: tuple[Cluster, ...]
    groups: tuple[Group, ...] = ()
    buffers: Mapping[str, Buffer] = field(default_factory=lambda: MappingProxyType({}))
    operations: Mapping[str, TileOperation] = field(default_factory=lambda: MappingProxyType({}))
    phases: Mapping[str, Phase] = field(default_factory=lambda: MappingProxyType({}))
    atomic: tuple[str, ...] = ()
    swept: tuple[Swept, ...] = ()
    distributed: tuple[str, ...] = ()
    unfolded: tuple[tuple[str, int, tuple[str, ...]], ...] = ()
    merged: tuple[tuple[str, str, str], ...] = ()
    quotients: tuple[tuple[str, str, int], ...] = ()
    mirrored: tuple[tuple[str, str, str], ...] = ()
    outlined: tuple[tuple[str, int], ...] = ()
    inlined: tuple[str, ...] = ()
    rescaled: tuple[Rescaled, ...] = ()
    parted: tuple[Parted, ...] = ()
    sought: tuple[Sought, ...] = ()
    stored: frozenset[str] = frozenset()
    apart: tuple[str, ...] = ()
    kept: tuple[tuple[str, tuple[str, ...]], ...] = ()
    dealt: Mapping[int, Dealt] = field(default_factory=lambda: MappingProxyType({}))
    copies: tuple[Copy, ...] = ()
    pipelines: Mapping[str, Pipeline] = field(default_factory=lambda: MappingProxyType({}))
    barriers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    orders: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    persistent: Mapping[int, int] = field(default_factory=lambda: MappingProxyType({}))
    notes: tuple[str, ...] = ()

    @property
    def searched(self) -> frozenset[str]:
        """The storages of what parts of rows reduce to in which a place is sought."""
        return frozenset(one.storage for one in self.sought)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self.tree))}</pre>"

    @property
    def nests(self) -> tuple[range, ...]:
        """The numbers of the groups of each nest, in order."""
        starts = [number for number, group in enumerate(self.groups) if not group.shared]
        return tuple(range(a, b) for a, b in itertools.pairwise([*starts, len(self.groups)]))
