"""What calls do with tuned options: whoever gives none gets the best that are known for the program and the machine."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace

from tcomp import debug
from tcomp.arrays.devices import Place
from tcomp.errors import TcompError
from tcomp.mapping.options.options import MappingOptions
from tcomp.runtime.kernel import Kernel
from tcomp.runtime.specialisation import Specialisation
from tcomp.tuner.database.database import TuningWarning
from tcomp.tuner.database.file import is_there, look_up
from tcomp.tuner.database.identity import device_model, identity_of
from tcomp.tuner.database.records import Tuned
from tcomp.tuner.database.trials import Problem
from tcomp.tuner.settings import LONGEST, shown

_UNCONFIRMED_GAIN = 1.05
"""What was never compared with the default in turn must promise more."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Whether calls ``look`` for tuned options, and the ``seconds`` for which they tune where there are none."""

    look: bool = True
    seconds: float | None = None


FROM_CACHE = Policy()

Make = Callable[[Specialisation], Kernel]

Tune = Callable[[Problem, float], MappingOptions]
"""Looks for so many seconds for better options for a problem, keeps them, and returns them."""


def policy_of(tune: object) -> Policy:
    """The meaning of ``tune="cache"``, ``"off"`` or a number of seconds.  Raises TcompError."""
    if tune == "cache":
        return FROM_CACHE
    if tune == "off":
        return Policy(look=False)
    if not isinstance(tune, bool) and isinstance(tune, int | float) and 0 < tune < LONGEST:
        return Policy(seconds=float(tune))
    raise TcompError(f'tune is {shown(tune)}; it must be "cache", "off" or a number of seconds above 0')


@dataclass(frozen=True, slots=True)
class Choice:
    """How the kernel of a call without options is chosen.

    ``policy`` says what to do, ``make`` compiles, ``tune`` looks for better options.  ``found`` are those that this
    process found; they count where nothing is kept.
    """

    policy: Policy
    make: Make
    tune: Tune
    found: MappingOptions | None = None


def chosen_kernel(made: Specialisation, place: Place, choice: Choice) -> Kernel:
    """The kernel for a call without options, whose arrays lie at ``place``: with the best options that are known.

    ``made`` has the default options.  Raises TcompError.
    """
    make, options = choice.make, _chosen_options(made, place, choice)
    if options == made.options:
        return make(made)
    debug.log(1, f"{made.label()}: tuned options, {options}")
    try:
        return make(replace(made, options=options))
    except TcompError as error:
        reason = error.message
    kernel = make(made)
    message = f"the tuned options of {made.label()} do not compile any more; tune it again: {reason}"
    warnings.warn(message, TuningWarning, stacklevel=2)
    return kernel


def _chosen_options(made: Specialisation, place: Place, choice: Choice) -> MappingOptions:
    if not choice.policy.look:
        return made.options
    device = device_model(made.target, place)
    known = _known(made, device)
    if known is not None:
        return _usable(known, made)
    if choice.found is not None:
        return choice.found
    seconds = choice.policy.seconds
    return made.options if seconds is None else choice.tune(Problem(made, device), seconds)


def stored_options(made: Specialisation, device: str) -> MappingOptions:
    """The best options that are kept for a specialisation on a device; its own where there are none."""
    known = _known(made, device)
    return made.options if known is None else _usable(known, made)


def _known(made: Specialisation, device: str) -> Tuned | None:
    return look_up(identity_of(made, device)) if is_there() else None


def _usable(known: Tuned, made: Specialisation) -> MappingOptions:
    """The options of a result, unless they promise little; what changes results is never taken from a store."""
    doubtful = not known.confirmed and known.speedup < _UNCONFIRMED_GAIN
    changed = any(getattr(known.options, o) != getattr(made.options, o) for o in ("atomics", "fast_math"))
    return made.options if doubtful or changed else known.options
