"""What is asked of a derivation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tcomp.derivatives.saving import Save


@dataclass(frozen=True, slots=True)
class Wish:
    """What gradient is asked for, as for ``Operation.gradient``.

    It takes no cotangents of the outputs ``without``, on which nothing depends.
    """

    wrt: str | Sequence[str] | None = None
    save: Save = "statistics"
    ties: str = "even"
    name: str | None = None
    sizes: Mapping[str, int] | None = None
    without: frozenset[str] = frozenset()
