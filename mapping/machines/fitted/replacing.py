"""Fitted numbers of a machine in place of those that tcomp comes with, for all of a process.

A number is named ``module.GROUP.number``, such as ``cpupanels.PACKING.least_panel``.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import Any

from tcomp.errors import TcompError
from tcomp.mapping.machines import fitted
from tcomp.mapping.machines.fitted.declaring import fittings

Number = int | float

FARTHEST = 16
"""How many times more or less than a shipped number another one may be."""


@functools.cache
def shipped() -> Mapping[str, Number]:
    """Every fitted number that is one number, as tcomp comes with it."""
    return {
        f"{place}.{name}": value
        for place, group in _groups().items()
        for name, value, _ in fittings(group)
        if isinstance(value, int | float)
    }


_REPLACED: dict[str, Number] = {}


def replaced() -> Mapping[str, Number]:
    """The numbers that were replaced, by name, in order."""
    return dict(sorted(_REPLACED.items()))


def replace_numbers(values: Mapping[str, Number]) -> None:
    """Put these in place of what there is; all others are again what tcomp comes with.

    Raises TcompError, and changes nothing, where a name is unknown or a value does not fit: it has the type of the
    shipped one, of which it is a part or a multiple within ``FARTHEST``.
    """
    known = shipped()
    for name, value in values.items():
        if name not in known:
            raise TcompError(f"there is no fitted number {name!r}")
        if type(value) is not type(known[name]) or not known[name] / FARTHEST <= value <= known[name] * FARTHEST:
            usual = f"{known[name]!r}, or up to {FARTHEST} times more or less"
            raise TcompError(f"{name} is {value!r}; it must be like {usual}")
    for name in _REPLACED.keys() - values.keys():
        _set(name, known[name])
    for name, value in values.items():
        _set(name, value)
    _REPLACED.clear()
    _REPLACED.update({name: value for name, value in values.items() if value != known[name]})


def _set(name: str, value: Number) -> None:
    place, _, number = name.rpartition(".")
    # The groups are frozen for everybody else: passes read them, and never change them.
    object.__setattr__(_groups()[place], number, value)


@functools.cache
def _groups() -> Mapping[str, Any]:
    found = {}
    for module in pkgutil.iter_modules(fitted.__path__):
        for name, value in vars(importlib.import_module(f"{fitted.__name__}.{module.name}")).items():
            if is_dataclass(value) and not isinstance(value, type):
                found[f"{module.name}.{name}"] = value
    return found
