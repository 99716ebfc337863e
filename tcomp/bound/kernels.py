"""Kernels of a bound operation, and what they share: results that are computed once, panels that are packed once."""

from __future__ import annotations

import functools
import time
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tcomp.arrays.arrays import default_kind, kind_of
from tcomp.arrays.devices import MAIN, Place, wait
from tcomp.arrays.kinds import ArrayKind
from tcomp.backends.runtime import Program
from tcomp.backends.source import PACKED, Argument, Source
from tcomp.bound.ahead import aligned
from tcomp.bound.held import Held
from tcomp.grammar.tree.function import Function
from tcomp.model.build import build
from tcomp.model.terms.sizes import Part, Sizes
from tcomp.runtime.binding import failure_of, site_of
from tcomp.runtime.fixedarguments import BoundProgram
from tcomp.runtime.kernel import Kernel
from tcomp.runtime.registry import runtime_of
from tcomp.runtime.specialisation import Specialisation
from tcomp.storage.forks import ISL
from tcomp.storage.memo import Memo


@dataclass(frozen=True, slots=True, eq=False)
class Computed:
    """What was computed, or packed, once: arrays by name, and the seconds that it took."""

    arrays: Mapping[str, Any]
    bytes: int
    seconds: float


class Shared:
    """What the kernels of one bound operation share, each made once however many threads ask for it.

    Results do not depend on sizes of the other arguments where the statements do not; panels are the same wherever
    they are packed by the same text.
    """

    def __init__(self, function: Function, held: Held) -> None:
        self._function = function
        self._held = held
        self._results: Memo[Hashable, Computed] = Memo()
        self._panels: Memo[Hashable, Computed] = Memo()

    @property
    def results(self) -> list[Computed]:
        """What was computed once, so far."""
        return self._results.values()

    @property
    def panels(self) -> list[Computed]:
        """The panels that were packed, so far."""
        return self._panels.values()

    def bind(self, specialisation: Specialisation, place: Place, source: Source, program: Program) -> Program:
        """A program with what is bound to it, computed and packed if it is not there yet.

        Raises ShapeError for a data-dependent subscript outside its tensor, and for want of memory.
        """
        key: Hashable = None
        arrays = dict(self._held.arrays)
        if any(a.name not in arrays and a.name != PACKED for a in source.bound):
            once = self._once(specialisation)
            key = (specialisation.target, specialisation.unchecked, _meaning(once))
            results = self._results.get(key, lambda: self._computed(once, place))
            arrays |= results.arrays
        if source.packing is not None:
            # The same text may be about other results.
            text = _function(source.text, source.packing)
            panels = self._panels.get((text, key), lambda: self._packed(source, program, arrays))
            arrays |= panels.arrays
        chosen = tuple(arrays[a.name] for a in source.bound)
        return BoundProgram(program, tuple(kind_of(a).address(a) for a in chosen), chosen)

    def _once(self, specialisation: Specialisation) -> Specialisation:
        sizes = specialisation.sizes
        assert sizes.part is not None
        strides = {name: own for name, own in sizes.strides.items() if name in self._held.arrays}
        part = Part(sizes.part.bound, once=True)
        return replace(specialisation, sizes=Sizes(sizes.values, strides, part), plan=None)

    def _computed(self, once: Specialisation, place: Place) -> Computed:
        """Run the part of a program that depends on bound arrays alone."""
        begun = time.perf_counter()
        source, _ = once.source()
        kind, run = self._kind(place), runtime_of(once.target).load(source)
        given = [self._held.arrays[a.name] for a in source.called if a.role == "input"]
        made = [(a.name, self._room(kind, a, place)) for a in source.called if a.role != "input"]
        addresses = [*(kind_of(a).address(a) for a in given), *(kind_of(a).address(a) for _, a in made)]
        failure = functools.partial(failure_of, self._function, source.checks)
        report = run.at(site_of(kind, place, failure))(addresses)
        if report is not None:
            raise failure(report)
        wait(place.memory, place.device)
        size = sum(_bytes(a) for a in source.called if a.role != "input")
        return Computed(dict(made), size, time.perf_counter() - begun)

    @staticmethod
    def _room(kind: ArrayKind, argument: Argument, place: Place) -> Any:
        """Bytes for a result; elements that no statement writes are 0.

        Not from the memory that is kept for results of calls: this one is not given back.
        """
        zeros = aligned(_bytes(argument))
        return zeros if place == MAIN else kind.from_numpy(zeros, place)

    def _packed(self, source: Source, program: Program, arrays: Mapping[str, Any]) -> Computed:
        """Fill the memory of the panels of a kernel."""
        begun = time.perf_counter()
        *bound, memory = source.bound
        room = aligned(_bytes(memory))
        program.pack([*(kind_of(arrays[a.name]).address(arrays[a.name]) for a in bound), kind_of(room).address(room)])
        return Computed({PACKED: room}, _bytes(memory), time.perf_counter() - begun)

    def _kind(self, place: Place) -> ArrayKind:
        kinds = [kind_of(a) for name, a in self._held.arrays.items() if self._held.views[name].shape]
        return kinds[0] if kinds else default_kind(place)


def bound_kernel(shared: Shared, specialisation: Specialisation, place: Place) -> Kernel:
    """The kernel of a part for each call, with what is bound to it.  Raises TcompError."""
    return Kernel(specialisation, supply=functools.partial(shared.bind, specialisation, place))


def _meaning(once: Specialisation) -> str:
    """All on which the results of a part depend, beside the arrays."""
    with ISL.value:
        scop = build(once.function, once.sizes)
    values = (f"{s.name}: {s.value} {s.subscripts}" for s in scop.statements)
    return "\n".join((str(scop), *values))


def _function(text: str, name: str) -> str:
    """A function of a C text."""
    start = text.index(f"void {name}(")
    return text[start : text.index("\n}\n", start)]


def _bytes(argument: Argument) -> int:
    count = argument.dtype.itemsize
    for extent in argument.shape:
        count *= extent
    return count
