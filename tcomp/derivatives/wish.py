"""What is asked of a derivation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tcomp.derivatives.saving import Save
from tcomp.errors import DerivativeError, Diagnostic
from tcomp.grammar.tree.function import Function


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


def chosen_inputs(function: Function, wrt: Sequence[str] | None) -> tuple[str, ...]:
    floats = [t.name for t in function.inputs if t.role == "input" and t.dtype.is_float]
    if wrt is None:
        if not floats:
            raise DerivativeError(f"{function.name} has no input of floats to find a gradient for")
        return tuple(floats)
    hint = f"its inputs of floats are {', '.join(floats)}" if floats else None
    chosen = (wrt,) if isinstance(wrt, str) or not isinstance(wrt, Iterable) else tuple(wrt)
    if not chosen:
        raise DerivativeError(Diagnostic(f"wrt names no input of {function.name}", function.source, hint=hint))
    for given in chosen:
        if given not in floats:
            known = next((t.span for t in function.inputs if t.name == given), None)
            message = f"{function.name} has no gradient with respect to {given}"
            raise DerivativeError(Diagnostic(message, function.source, known, hint))
        if chosen.count(given) > 1:
            raise DerivativeError(Diagnostic(f"wrt names {given} twice", function.source, hint=hint))
    return chosen
