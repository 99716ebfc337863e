"""The mapping options that may be tried for a problem: their values, and the moves of a search among them.

Values come from the declarations of the options, so an option that is declared is searched.  What a program cannot
feel, such as fusion of a single cluster, is left as it is, and options are brought to a normal form in which two
candidates differ only where that may change the code.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from tcomp.driver import Compilation
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.options.declarations import BlockShape, Choice, Flag, Integer, Integers, OfParts, Ratio
from tcomp.mapping.options.effects import matters
from tcomp.mapping.options.options import OPTIONS, MappingOptions
from tcomp.mapping.tiles.footprint import coordinate_set
from tcomp.model.scop import Scop
from tcomp.model.terms.unions import extents
from tcomp.runtime.registry import machine_of
from tcomp.tuner.space.outline import tiles_of_model, unfused
from tcomp.tuner.space.parameters import Parameter, Scalar, Sizes

NOT_SEARCHED = frozenset({"atomics", "fast_math", "math", "max_shared_memory", "parts"})
"""Options that change results, one that only bounds what others decide, and those of parts, which are many."""

HALVINGS = 10
"""Tile sizes that cut an extent into up to 2 to this power even parts are tried, as are powers of two."""

_RATIOS = (1.0, 1.5, 2.0, 4.0, math.inf)
_MOST_ROWS, _MOST_VECTORS = 14, 8

_OF_SEVERAL_CLUSTERS = frozenset({"fusion_strategy", "recompute_limit"})
_OF_REDUCTIONS = frozenset({"register_tile", "reduction_tile", "match_reductions", "split_reduction"})


@dataclass(frozen=True, slots=True)
class Space:
    """All candidates for a problem.  ``base`` are the options that it has when nobody tunes."""

    base: MappingOptions
    target: str
    parameters: tuple[Parameter, ...]

    @property
    def count(self) -> int:
        """The number of candidates at most: some are illegal or equal."""
        return math.prod(p.count for p in self.parameters)

    def normal(self, options: MappingOptions) -> MappingOptions:
        """The candidate that gives the same code as ``options`` would, but for what is not searched: that is kept."""
        searched = {p.name: p.settled(getattr(options, p.name)) for p in self.parameters}
        found = _with(self.base, searched)
        idle = [p.name for p in self.parameters if not matters(found, p.name, self.target)]
        return _with(found, {name: getattr(self.base, name) for name in idle})

    def drawn(self, rng: random.Random) -> MappingOptions:
        """Any candidate."""
        return self.normal(_with(self.base, {p.name: p.drawn(rng) for p in self.parameters}))

    def mutated(self, options: MappingOptions, rng: random.Random, rate: float) -> MappingOptions:
        """A candidate like ``options``, of which each part is drawn anew with probability ``rate``."""
        changed = {p.name: p.mutated(getattr(options, p.name), rng, rate) for p in self.parameters}
        return self.normal(_with(self.base, changed))

    def crossed(self, parents: Sequence[MappingOptions], rng: random.Random) -> MappingOptions:
        """A candidate that has each of its options from one of the parents."""
        mixed = {p.name: p.crossed([getattr(o, p.name) for o in parents], rng) for p in self.parameters}
        return self.normal(_with(self.base, mixed))

    def neighbours(self, options: MappingOptions) -> Iterator[MappingOptions]:
        """The candidates one step from ``options``, each once."""
        seen = {options}
        for parameter in self.parameters:
            for value in parameter.near(getattr(options, parameter.name)):
                found = self.normal(_with(options, {parameter.name: value}))
                if found not in seen:
                    seen.add(found)
                    yield found


def space_of(compilation: Compilation, base: MappingOptions, target: str, fixed: Iterable[str] = ()) -> Space:
    """The candidates for a program that was compiled with its default options ``base`` for a target.

    ``fixed`` names options that keep the values they have in ``base``.
    """
    machine = machine_of(target)
    facts = _Facts(compilation, machine)
    left_out = {*NOT_SEARCHED, *fixed, *facts.idle()}
    names = [n for n in OPTIONS if n not in left_out and OPTIONS[n].is_searched(target)]
    found = (_parameter(name, facts) for name in names)
    return Space(base, target, tuple(p for p in found if p is not None and p.count > 1))


class _Facts:
    """What the values depend on."""

    def __init__(self, compilation: Compilation, machine: Machine) -> None:
        first = unfused(compilation)
        self.machine = machine
        self.scop: Scop = compilation.scop
        self.bands = [extents(coordinate_set(first.scop, c)) for c in first.clusters]
        self.statements = first.scop.statements
        self.start = tiles_of_model(compilation)

    def divided(self) -> tuple[int, ...]:
        """Numbers that suit any loop of an outer band, or 256 threads."""
        return tuple(sorted({n for e in self.all_extents() | {256} for n in divided(e)}))

    @property
    def rank(self) -> int:
        """Loops of the longest outer band."""
        return max(map(len, self.bands), default=0)

    def whole(self, position: int) -> int:
        """The largest extent of a loop at a position of an outer band."""
        return max((max(1, band[position]) for band in self.bands if position < len(band)), default=1)

    def extents_at(self, position: int) -> set[int]:
        """All extents of the loops at a position."""
        return {max(1, band[position]) for band in self.bands if position < len(band)}

    def all_extents(self) -> set[int]:
        """All extents of the loops of outer bands."""
        return {max(1, e) for band in self.bands for e in band}

    def lanes(self) -> int:
        """Elements of a vector of the narrowest floating-point or integer results."""
        sizes = [self.scop.storages[s.target].dtype.itemsize for s in self.statements]
        return max(1, self.machine.vector_bytes // min(sizes, default=4))

    def idle(self) -> frozenset[str]:
        """Options that this program, on this machine, cannot feel."""
        found: set[str] = set()
        if len(self.bands) < 2:
            found |= _OF_SEVERAL_CLUSTERS
        if not any(s.kind == "update" for s in self.statements):
            found |= _OF_REDUCTIONS
        if self.machine.threads == 1:
            found.add("parallel")
        return frozenset(found)


def _parameter(name: str, facts: _Facts) -> Parameter | None:
    """The values of an option, from its declaration; None where there is nothing to choose."""
    option = OPTIONS[name]
    optional: tuple[object, ...] = (None,) if option.default is None else ()
    match option.kind:
        case Flag():
            return Scalar(name, (False, True), True)
        case Choice(names):
            return Scalar(name, (*optional, *names), False)
        case Integer(least, usual):
            return Scalar(name, (*optional, *_powers(least, usual)), True)
        case Ratio(least):
            return Scalar(name, tuple(r for r in _RATIOS if r >= least), True)
        case BlockShape(most):
            numbers = facts.divided()
            shapes = tuple(tuple(n for n in numbers if n <= limit) for limit in most)
            return Sizes(name, option, shapes, missing=1)
        case Integers() if name == "register_tile":
            lanes = facts.lanes()
            columns = tuple(lanes * v for v in range(1, _MOST_VECTORS + 1))
            held = lanes * facts.machine.registers
            return Sizes(name, option, (tuple(range(1, _MOST_ROWS + 1)), columns), missing=1, most=held)
        case Integers(longest=None):
            return _tiles(name, facts)
        case OfParts():
            return None
        case Integers(longest=longest):
            assert longest is not None
            return Sizes(name, option, (facts.divided(),) * longest, missing=1)


def _tiles(name: str, facts: _Facts) -> Sizes | None:
    """Tile sizes for the longest band; at each of its positions 0 stands for loops that are not tiled."""
    if facts.rank == 0:
        return None
    whole = tuple(facts.whole(d) for d in range(facts.rank))
    start = facts.start
    positions = tuple(
        (*sorted({n for e in facts.extents_at(d) for n in divided(e)} | {start[d]} - {0}), 0) for d in range(facts.rank)
    )
    cut = tuple(tuple(n for n in values if n < most) for values, most in zip(positions, whole, strict=True))
    return Sizes(name, OPTIONS[name], cut, missing=0, whole=whole, start=start)


def divided(extent: int) -> frozenset[int]:
    """Numbers that divide an extent well: powers of two up to the first that covers it, and its even parts."""
    powers = {1 << k for k in range((extent - 1).bit_length() + 1)}
    return frozenset(powers | {-(-extent // (1 << k)) for k in range(HALVINGS + 1)})


def _powers(least: int, usual: int) -> tuple[int, ...]:
    """``least`` and the powers of two above it up to ``usual``."""
    return (least, *(1 << k for k in range(usual.bit_length()) if least < 1 << k <= usual))


def _with(options: MappingOptions, values: Mapping[str, object]) -> MappingOptions:
    return replace(options, **values)  # type: ignore[arg-type]
