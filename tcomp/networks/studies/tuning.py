"""Faster options for the kernels of a network: each distinct kernel is searched for once, the slowest first."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tcomp.arrays.devices import MAIN
from tcomp.errors import TcompError
from tcomp.mapping.options.options import MappingOptions
from tcomp.networks.kernels import Step
from tcomp.networks.program import CompiledNetwork
from tcomp.networks.views import Array, spread
from tcomp.tuner.database.file import look_up
from tcomp.tuner.database.identity import device_model, identity_of
from tcomp.tuner.database.records import Tuned
from tcomp.tuner.settings import Settings

LEAST_SECONDS = 2.0
"""A search that is shorter finds nothing: it compiles a few candidates and compares them."""

_COMPARISON, _LEAST_ROUNDS, _MOST_ROUNDS = 2.0, 5, 200
"""Seconds for which the network is compared before and after, and calls of both."""


@dataclass(frozen=True, slots=True)
class Row:
    """A kernel of a network, and what was found for it.

    The defs that it computes, the steps that run it, their seconds in a call of the network before, how many times
    faster it is alone with the ``options`` than with default ones (1 where nothing was found), and what was done:
    ``tuned``, ``known`` from an earlier search, ``no time`` or ``failed: ...``.
    """

    calls: str
    makes: str
    steps: int
    seconds: float
    speedup: float
    options: MappingOptions
    told: str


@dataclass(frozen=True, slots=True)
class NetworkTuning:
    """What tuning a network found; ``before`` and ``after`` are median seconds of a call, measured in turn."""

    rows: tuple[Row, ...]
    before: float
    after: float

    @property
    def speedup(self) -> float:
        """How many times faster the network has become."""
        return self.before / self.after

    def __str__(self) -> str:
        lines = [f"{'ms':>8} {'steps':>5} {'faster':>6}  kernel"]
        lines += [
            f"{1e3 * row.seconds:8.3f} {row.steps:5} {row.speedup:6.2f}  {row.calls}: {row.told}"
            + (f", {row.options.to_text()}" if row.options != MappingOptions() else "")
            for row in self.rows
        ]
        told = f"{1e3 * self.before:.3f} ms before, {1e3 * self.after:.3f} ms after"
        return "\n".join([*lines, f"the network: {told}, {self.speedup:.2f} times as fast"])


def tune(
    net: CompiledNetwork, inputs: Sequence[Any], budget: float, search: Mapping[str, Any], *, again: bool
) -> tuple[NetworkTuning, CompiledNetwork | None]:
    """Search for options for the kernels of a network; also the network with them, if it is faster.

    Raises what tuning and calling raise, KeyboardInterrupt among it.
    """
    Settings(budget)  # it checks
    seconds = [row.seconds for row in net.profile(*inputs, repeats=5).rows]
    rows = tuple(_searched(net, seconds, budget, search, again=again))
    found = {row.makes: row.options for row in rows if row.speedup > 1 and row.options != MappingOptions()}
    chosen = {step.group.results[0]: found[first] for first, step in _firsts(net) if _changes(step, found.get(first))}
    given = net.options.kernels
    options = replace(net.options, kernels=chosen | dict(given))
    if not chosen:
        before = _in_turn([net], inputs)[0]
        return NetworkTuning(rows, before, before), None
    faster = CompiledNetwork(net.network, options, passed=True)
    before, after = _in_turn([net, faster], inputs)
    return NetworkTuning(rows, before, min(before, after)), faster if after < before else None


def _firsts(net: CompiledNetwork) -> Iterator[tuple[str, Step]]:
    """Each step with a kernel, and what the first step with this kernel makes."""
    first: dict[int, str] = {}
    for step in net.steps:
        if step.kernel is not None:
            yield first.setdefault(step.number, step.group.results[0]), step


def _changes(step: Step, options: MappingOptions | None) -> bool:
    """Whether there are options that the kernel of a step does not have already."""
    assert step.kernel is not None
    return options not in (None, step.kernel.specialisation.options)


def _in_turn(nets: Sequence[CompiledNetwork], inputs: Sequence[Any]) -> list[float]:
    """The median seconds of a call of each."""
    times: list[list[float]] = [[] for _ in nets]
    end = time.monotonic() + _COMPARISON
    while len(times[0]) < _LEAST_ROUNDS or (len(times[0]) < _MOST_ROUNDS and time.monotonic() < end):
        for net, own in zip(nets, times, strict=True):
            start = time.perf_counter()
            net(*inputs)
            own.append(time.perf_counter() - start)
    return [float(np.median(own[1:])) for own in times]


def _searched(
    net: CompiledNetwork, seconds: Sequence[float], budget: float, search: Mapping[str, Any], *, again: bool
) -> Iterator[Row]:
    """Look for options for each distinct kernel, the one that takes most first; each gets its share of what is left."""
    takes: dict[str, float] = {}
    counts: Counter[str] = Counter()
    makers = {step.group.results[0]: step for step in net.steps}
    took = {step.group.results[0]: each for step, each in zip(net.steps, seconds, strict=True)}
    for first, step in _firsts(net):
        takes[first] = takes.get(first, 0.0) + took[step.group.results[0]]
        counts[first] += 1
    left, end = sum(takes.values()), time.monotonic() + budget
    for first, taken in sorted(takes.items(), key=lambda one: -one[1]):
        step = makers[first]
        share = taken / left if left > 0 else 1.0
        left -= taken
        row = Row(step.told, first, counts[first], taken, 1.0, MappingOptions(), "no time")
        known = None if again else _known(step)
        remaining = end - time.monotonic()
        if known is not None:
            yield replace(row, options=known.options, speedup=known.speedup, told="known")
        elif remaining < LEAST_SECONDS:
            yield row
        else:
            yield _tuned(net, step, row, min(remaining, max(LEAST_SECONDS, share * remaining)), search)


def _tuned(net: CompiledNetwork, step: Step, row: Row, budget: float, search: Mapping[str, Any]) -> Row:
    """The row of a kernel after a search of so many seconds."""
    assert step.operation is not None
    values = net.network.by_name

    def array(name: str) -> Array:
        return spread(step.shapes[name], values[name].dtype, net.layout_of(name).strides)

    out = tuple(array(name) for name in step.group.results)
    arguments = [array(name) for name in step.group.arguments]
    try:
        found = step.operation.tune(*arguments, out=out, target="cpu", budget=budget, **search)
    except TcompError as error:
        return replace(row, told=f"failed: {error.message}")
    return replace(row, options=found.best, speedup=max(1.0, found.speedup), told="tuned")


def _known(step: Step) -> Tuned | None:
    """What an earlier search kept for the kernel of a step."""
    assert step.kernel is not None
    made = replace(step.kernel.specialisation, options=MappingOptions())
    return look_up(identity_of(made, device_model(made.target, MAIN)))
