"""What a def is told about its life as an operator of torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Backward = Callable[[tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]], Any]
"""Takes the inputs, the outputs and one cotangent per output of floats; gives one gradient or None per input."""


@dataclass(frozen=True, slots=True)
class Registration:
    """``namespace`` is None for the usual ``tcomp::NAME_DIGEST``.

    ``backward`` is a function, or another operation, whose parameters are named as this one's inputs, as its outputs,
    or ``d_Y`` for the cotangent of output ``Y``, and whose results are called ``d_X``; None derives it.  ``autocast``
    is the name of a type of torch, ``save`` what recorded calls save, ``ties`` who has the gradient of a maximum.
    """

    namespace: str | None = None
    backward: Backward | Any | None = None
    differentiable: bool = True
    autocast: str | None = None
    save: str | tuple[str, ...] = "auto"
    ties: str = "even"


UNNAMED = Registration()
"""What a def gets that was told nothing."""


@dataclass(frozen=True, slots=True)
class Choices:
    """How a call is to run, as for ``Operation.__call__``; ``options`` are MappingOptions or None."""

    target: str | None = None
    options: Any = None
    unchecked: bool = False

    def named(self) -> dict[str, Any]:
        return {"target": self.target, "options": self.options, "unchecked": self.unchecked}
