"""Which values of the forward pass a backward pass takes instead of computing them again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from tcomp.derivatives.versions import Version
from tcomp.errors import DerivativeError
from tcomp.grammar.ranges.polynomials import Polynomial
from tcomp.grammar.ranges.symbolic import Symbolic
from tcomp.grammar.tree.diagnostics import did_you_mean
from tcomp.grammar.tree.function import Function

Save = str | Sequence[str]
"""``"statistics"``, ``"all"``, or names of tensors; none of them with ``()``."""


def saveable(function: Function, versions: Sequence[Version], symbolic: Symbolic, save: Save) -> set[str]:
    """The versions that may be saved: outputs, which the caller has anyway, and temporaries.

    ``"statistics"`` takes those temporaries whose dimensions are some of an output's, but not all: means, maxima and
    sums of rows cost next to nothing.  ``"all"`` takes results of reductions, too.  Raises DerivativeError for other
    names than those of tensors that the def writes.
    """
    written = {v.tensor for v in versions}
    if isinstance(save, str) and save not in ("statistics", "all"):
        raise DerivativeError(f"save is 'statistics', 'all' or a tuple of names, not {save!r}")
    if not isinstance(save, str):
        for name in save:
            if name not in written:
                hint = did_you_mean(str(name), written) or f"it writes {', '.join(sorted(written))}"
                raise DerivativeError(f"{function.name} has no {name} to save; {hint}")
        return {v.name for v in versions if v.tensor in save and v.name == v.tensor and _begins_at_zero(v, symbolic)}
    reduced = {
        v.name for v, statement in zip(versions, function.statements, strict=True) if statement.reduction is not None
    }
    found: set[str] = set()
    for version in versions:
        if not _begins_at_zero(version, symbolic):
            continue
        is_output = version.name == version.tensor and function.tensors[version.tensor].role == "output"
        if is_output or _is_statistic(version, function, symbolic) or (save == "all" and version.name in reduced):
            found.add(version.name)
    return found


def _begins_at_zero(version: Version, symbolic: Symbolic) -> bool:
    """What is handed out is counted from 0."""
    box = symbolic.boxes.get(version.tensor)
    return box is not None and all(not first.terms for first, _ in box)


def _is_statistic(version: Version, function: Function, symbolic: Symbolic) -> bool:
    if function.tensors[version.tensor].role != "temporary":
        return False
    own = _extents(version.tensor, symbolic)
    outputs = [_extents(t.name, symbolic) for t in function.outputs if t.name in symbolic.boxes]
    return any(own <= output and own != output for output in outputs)


def _extents(tensor: str, symbolic: Symbolic) -> Counter[Polynomial]:
    return Counter(symbolic.extents(tensor))
