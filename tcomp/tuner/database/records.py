"""Tuned results and trials as rows of a table and as JSON."""

from __future__ import annotations

import json
import math
import statistics
from dataclasses import dataclass
from typing import Any

from tcomp.errors import TcompError
from tcomp.mapping.options.options import MappingOptions
from tcomp.tuner.database.identity import Identity
from tcomp.tuner.database.trials import Candidate, Compiled, Outcome, Trial


@dataclass(frozen=True, slots=True)
class Tuned:
    """The best options known for something, and how that is known.

    ``times`` and ``baseline`` are seconds of single calls under these and under the default options, taken in turn on
    ``worker``.  ``confirmed`` is false while a run has not compared its best candidates yet, or was killed before.
    ``trials`` counts the candidates that were measured; ``when`` is seconds since the epoch.
    """

    identity: Identity
    label: str
    options: MappingOptions
    times: tuple[float, ...]
    baseline: tuple[float, ...]
    confirmed: bool
    trials: int
    when: float
    worker: str

    @property
    def seconds(self) -> float:
        """The median time of a call."""
        return median(self.times)

    @property
    def speedup(self) -> float:
        """How many times faster than the default options."""
        return median(self.baseline) / self.seconds if self.times and self.baseline else 1.0


def median(times: tuple[float, ...]) -> float:
    """The median; infinite where there is nothing."""
    return statistics.median(times) if times else math.inf


def tuned_to_plain(tuned: Tuned) -> dict[str, Any]:
    """What JSON can hold."""
    identity = tuned.identity
    return {
        "program": identity.program,
        "sizes": dict(identity.sizes),
        "strides": {name: list(strides) for name, strides in identity.strides},
        "target": identity.target,
        "device": identity.device,
        "version": identity.version,
        "label": tuned.label,
        "options": json.loads(tuned.options.to_json()),
        "times": list(tuned.times),
        "baseline": list(tuned.baseline),
        "confirmed": tuned.confirmed,
        "trials": tuned.trials,
        "when": tuned.when,
        "worker": tuned.worker,
    }


def identity_from_plain(plain: Any) -> Identity:
    """What a result belongs to, as ``tuned_to_plain`` has it.  Raises TcompError for anything else."""
    try:
        return Identity(
            _text(plain["program"]),
            tuple(sorted((_text(name), _whole(value)) for name, value in plain["sizes"].items())),
            tuple(sorted((_text(name), tuple(map(_whole, s))) for name, s in plain["strides"].items())),
            _text(plain["target"]),
            _text(plain["device"]),
            _text(plain["version"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TcompError(f"not a tuned result: {error!r}") from None


def tuned_from_plain(plain: Any) -> Tuned:
    """The inverse of ``tuned_to_plain``.  Raises TcompError for anything else."""
    try:
        return Tuned(
            identity_from_plain(plain),
            _text(plain["label"]),
            MappingOptions.from_json(json.dumps(plain["options"])),
            _times(plain["times"]),
            _times(plain["baseline"]),
            plain["confirmed"] is True,
            _whole(plain["trials"]),
            _date(plain["when"]),
            _text(plain["worker"]),
        )
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise TcompError(f"not a tuned result: {error!r}") from None


def trial_to_plain(trial: Trial) -> dict[str, Any]:
    """What JSON can hold."""
    compiled = trial.compiled
    return {
        "options": json.loads(compiled.candidate.options.to_json()),
        "origin": compiled.candidate.origin,
        "source": compiled.source,
        "features": dict(compiled.features),
        "compile_seconds": compiled.seconds,
        "outcome": trial.outcome.value,
        "times": list(trial.times),
        "message": trial.message or compiled.message,
        "failure": None if compiled.failure is None else compiled.failure.value,
        "worker": trial.worker,
        "when": trial.when,
        "generation": trial.generation,
        "baseline": trial.baseline if trial.baseline < math.inf else None,
        "doubtful": trial.doubtful,
    }


def trial_from_plain(plain: Any) -> Trial:
    """The inverse of ``trial_to_plain``.  Raises TcompError for anything else."""
    try:
        message, outcome = _text(plain["message"]), Outcome(plain["outcome"])
        failure = None if plain["failure"] is None else Outcome(plain["failure"])
        baseline = math.inf if plain["baseline"] is None else _number(plain["baseline"])
        compiled = Compiled(
            Candidate(MappingOptions.from_json(json.dumps(plain["options"])), _text(plain["origin"])),
            _text(plain["source"]),
            tuple((_text(name), _number(value)) for name, value in plain["features"].items()),
            _number(plain["compile_seconds"]),
            message if failure is not None else "",
            failure,
        )
        times, worker = _times(plain["times"]), _text(plain["worker"])
        when, generation = _date(plain["when"]), _whole(plain["generation"])
        doubtful = plain.get("doubtful") is True
        return Trial(compiled, outcome, times, message, worker, when, generation, baseline, doubtful)
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise TcompError(f"not a trial: {error!r}") from None


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    value.encode()
    return value


def _whole(value: object) -> int:
    if type(value) is not int or abs(value) >> 63:
        raise TypeError(f"{value!r} is not a whole number of 64 bits")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{value!r} is not a number")
    return float(value)


def _date(value: object) -> float:
    if not math.isfinite(_number(value)):
        raise ValueError(f"{value!r} is no date")
    return _number(value)


def _times(values: object) -> tuple[float, ...]:
    if not isinstance(values, list):
        raise TypeError(f"{values!r} is not a list of times")
    times = tuple(map(_number, values))
    if not all(0 < t < math.inf for t in times):
        raise ValueError("a time is not a positive number of seconds")
    return times
