"""The stages of a schedule: what computes each tensor, with its loops as they stand so far."""

from __future__ import annotations

from dataclasses import dataclass, replace

import islpy as isl

from tcomp.grammar.tree.function import Function
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.unions import map_from_text
from tcomp.schedules.errors import ScheduleError, stage_name
from tcomp.schedules.expressions import Expression, Name, names_in, text_of

SERIAL, PARALLEL, VECTORS, COPIES = "serial", "parallel", "vectors", "copies"


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop: its name, its value, its least and greatest value, and how its iterations run."""

    name: str
    value: Expression
    low: int
    high: int
    how: str = SERIAL

    @property
    def extent(self) -> int:
        """Iterations of the longest run."""
        return self.high - self.low + 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where a stage is computed: inside ``loop`` of the stage ``consumer``.

    ``kept`` is the loop of it inside which values are kept (empty: none, all are kept; None: the same as ``loop``).
    With a ``shift``, its own outermost loops run in step with the consumer's, so many iterations later.
    """

    consumer: str
    loop: str
    kept: str | None = None
    shift: int | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """What computes one tensor.

    ``statements`` start, update and finish a reduction, or are one; ``coordinates`` are the indices that name an
    element, ``reduced`` those that are summed over.  ``copied`` are reads that are to be copied: tensor and loop.
    ``tensorized`` says that the update's inner loops are one tile operation.
    """

    name: str
    statements: tuple[str, ...]
    coordinates: tuple[str, ...]
    reduced: tuple[str, ...]
    loops: tuple[Loop, ...]
    place: Place | None = None
    copied: tuple[tuple[str, str], ...] = ()
    tensorized: bool = False

    def loop(self, name: str) -> Loop:
        """A loop by its name.  Raises ScheduleError."""
        return self.loops[self.depth(name) - 1]

    def depth(self, name: str) -> int:
        """How many loops there are down to one, itself included.  Raises ScheduleError."""
        for depth, loop in enumerate(self.loops, 1):
            if loop.name == name:
                return depth
        known = ", ".join(loop.name for loop in self.loops) or "none"
        raise ScheduleError(f"{self.name} has no loop {name!r}; its loops are {known}")

    @property
    def shared(self) -> int:
        """The outer loops that a reduction's start and end run in as well: those over its coordinates alone."""
        for depth, loop in enumerate(self.loops):
            if not names_in(loop.value) <= {*self.coordinates}:
                return depth
        return len(self.loops)

    def with_loops(self, loops: tuple[Loop, ...]) -> Stage:
        """The stage with other loops.  Raises ScheduleError where two have one name."""
        names = [loop.name for loop in loops]
        twice = next((n for n in names if names.count(n) > 1), None)
        if twice is not None:
            raise ScheduleError(f"{self.name} has a loop {twice!r} already; give the new one another name")
        return replace(self, loops=loops)


def stages_of(function: Function, scop: Scop) -> tuple[Stage, ...]:
    """The stages of a program, in order, each with a loop for every index.  Raises ScheduleError."""
    by_origin: dict[int, list[ScopStatement]] = {}
    for statement in scop.statements:
        by_origin.setdefault(statement.origin, []).append(statement)
    return tuple(_stage(stage_name(origin, function), statements) for origin, statements in by_origin.items())


def _stage(name: str, statements: list[ScopStatement]) -> Stage:
    main = next((s for s in statements if s.kind == "update"), statements[-1])
    coordinates, reduced = main.indices[: main.coordinates], main.indices[main.coordinates :]
    for s in statements:
        if s.kind != "update" and s.indices[: len(coordinates)] != coordinates:
            coordinates, reduced = (), main.indices
    loops = []
    for index in main.indices:
        low, high = range_of(main, Name(index))
        loops.append(Loop(index, Name(index), low, high))
    return Stage(name, tuple(s.name for s in statements), coordinates, reduced, tuple(loops))


def main_of(scop: Scop, stage: Stage) -> ScopStatement:
    """The statement that has all loops of a stage."""
    own = [scop.by_name[s] for s in stage.statements]
    return next((s for s in own if s.kind == "update"), own[-1])


def range_of(statement: ScopStatement, value: Expression) -> tuple[int, int]:
    """The least and the greatest value of a loop."""
    indices = ", ".join(statement.indices[statement.tile_rank :])
    values = statement.domain.apply(map_from_text(f"{{ {statement.name}[{indices}] -> [{text_of(value)}] }}"))
    if values.is_empty():
        return 0, -1
    return values.dim_min_val(0).to_python(), values.dim_max_val(0).to_python()


def loop_map(statement: ScopStatement, values: list[Expression], domain: isl.Set, rank: int) -> isl.Map:
    """Instance to the values of some loops; ``rank`` dimensions of a tile stand in front of the instance's indices."""
    front = [f"t{d}" for d in range(rank)]
    inputs = ", ".join([*front, *statement.indices[statement.tile_rank :]])
    outputs = ", ".join(map(text_of, values))
    return isl.Map(f"{{ {statement.name}[{inputs}] -> [{outputs}] }}").intersect_domain(domain)
