"""Which options mattered: how much of the spread of the measured times goes with the value of each."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, fields

from tcomp.mapping.options.options import MappingOptions
from tcomp.tuner.database.trials import Outcome, Trial


@dataclass(frozen=True, slots=True)
class Influence:
    """An option, or one position of an option that is a list, with its values as texts and the trials of each.

    ``share`` is the part of the variance of the logarithms of times that the values account for, from 0 to 1, less
    what as many random groups would: epsilon squared (T. L. Kelley, "An unbiased correlation ratio measure", 1935).
    """

    name: str
    share: float
    groups: tuple[tuple[str, tuple[Trial, ...]], ...]


def influences(trials: Sequence[Trial]) -> list[Influence]:
    """Every option of which more than one value was measured, the most influential first."""
    ran = [t for t in trials if t.outcome is Outcome.MEASURED and 0 < t.ratio < math.inf]
    values = [_values(t.options) for t in ran]
    names = list(dict.fromkeys(name for of in values for name in of))
    found = []
    for name in names:
        groups: dict[str, list[Trial]] = {}
        for trial, of in zip(ran, values, strict=True):
            groups.setdefault(of.get(name, "model"), []).append(trial)
        if len(groups) > 1:
            ordered = sorted(groups.items(), key=lambda group: _order(group[0]))
            found.append(Influence(name, _share(list(groups.values())), tuple((v, tuple(ts)) for v, ts in ordered)))
    return sorted(found, key=lambda influence: -influence.share)


def _values(options: MappingOptions) -> dict[str, str]:
    """The value of each option by name; lists by position, and where the model chooses ``model``."""
    found: dict[str, str] = {}
    for option in fields(options):
        value = getattr(options, option.name)
        if isinstance(value, tuple):
            found |= {f"{option.name}[{position}]": str(size) for position, size in enumerate(value)}
        elif value is not None:
            found[option.name] = str(value)
    return found


def _order(value: str) -> tuple[float, str]:
    """Numbers by size, after what the model chooses."""
    try:
        return float(value), value
    except ValueError:
        return -math.inf, value


def _share(groups: Sequence[Sequence[Trial]]) -> float:
    logs = [[math.log(t.ratio) for t in group] for group in groups]
    everything = [x for group in logs for x in group]
    spread = statistics.pvariance(everything) * len(everything)
    within = sum(statistics.pvariance(group) * len(group) for group in logs)
    free = len(everything) - len(groups)
    if spread == 0 or free <= 0:
        return 0.0
    return max(0.0, (spread - within - (len(groups) - 1) * within / free) / spread)
