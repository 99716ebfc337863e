"""Named facts about a candidate, from which the learned ranker concludes how good it is.

They are the values of its options and what the model of its target makes of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tcomp.driver import Compilation
from tcomp.mapping.machines.devices import device_of
from tcomp.mapping.options.declarations import Integer, Ratio
from tcomp.mapping.options.options import OPTIONS, MappingOptions
from tcomp.runtime.registry import machine_of
from tcomp.tuner.model.cpufacts import CpuFacts
from tcomp.tuner.model.devicefacts import DeviceFacts
from tcomp.tuner.space.outline import outline, tiles_of_bands, tiles_of_model, unfused

Features = Mapping[str, float]

_LARGEST = 2.0**20

_LEFT = " of the model"
_OF_OPTIONS = frozenset(name + end for name in OPTIONS for end in ("", _LEFT))


Facts = Callable[[MappingOptions], Features]
"""What is known of a candidate before it is compiled: the same names for every candidate of a target.  The feature
``ESTIMATE`` is the binary logarithm of what it costs by the analytic model, in any unit."""

ESTIMATE = "estimate"


@dataclass(frozen=True, slots=True)
class ProgramFacts:
    """What is known of the candidates for one program on one target."""

    target: str
    model: Facts

    def __call__(self, options: MappingOptions) -> Features:
        """What the model of the target says, and the options."""
        return {**self.model(options), **of_options(options, self.target)}


def signature(features: Features) -> tuple[float, ...]:
    """What the model of the target makes of a candidate: those with the same often have the same code."""
    return tuple(value for name, value in features.items() if name not in _OF_OPTIONS)


def facts_of(compilation: Compilation, target: str) -> ProgramFacts:
    """What is known of the candidates for a program that was compiled for a target, with whatever options."""
    plan = unfused(compilation)
    gpu = device_of(target)
    if gpu is not None:
        return ProgramFacts(target, DeviceFacts(plan, outline(plan), tiles_of_model(compilation), gpu))
    machine = machine_of(target)
    return ProgramFacts(target, CpuFacts(outline(plan, machine.vector_bytes), tiles_of_bands(compilation), machine))


def of_options(options: MappingOptions, target: str) -> dict[str, float]:
    """The options of a target that are no lists as numbers, and which are left to its model."""
    found: dict[str, float] = {}
    for name, option in OPTIONS.items():
        if not option.is_searched(target):
            continue
        value = getattr(options, name)
        if option.kind.choices is not None:
            found[name] = -1.0 if value is None else float(option.kind.choices.index(value))
        elif isinstance(option.kind, Integer | Ratio):
            found[name] = math.log2(1 + min(value, _LARGEST)) if isinstance(value, int | float) else -1.0
        if option.default is None:
            found[name + _LEFT] = float(value is None)
    return found
