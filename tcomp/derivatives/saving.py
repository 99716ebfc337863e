"""Which values of the forward pass a backward pass takes instead of computing them again."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from tcomp.derivatives.steps.unrolled import with_steps_as_subscripts
from tcomp.derivatives.versions import Version, tensors_read, versions_of
from tcomp.errors import DerivativeError
from tcomp.grammar.ranges.polynomials import Polynomial
from tcomp.grammar.ranges.symbolic import Symbolic, symbolic_ranges
from tcomp.grammar.tree.diagnostics import did_you_mean
from tcomp.grammar.tree.function import Binary, Call, Expr, Function, Read, walk

Save = str | Sequence[str]
"""``"statistics"``, ``"all"``, or names of tensors, ``T_1`` for the first content of one that is written anew; none of
them with ``()``."""


def saveable(function: Function, versions: Sequence[Version], symbolic: Symbolic, save: Save) -> set[str]:
    """The versions that may be saved: outputs, which the caller has anyway, and temporaries.

    ``"statistics"`` takes those temporaries whose dimensions are some of an output's, but not all: means, maxima and
    sums of rows cost next to nothing.  ``"all"`` takes results of reductions, too.  Raises DerivativeError for other
    names than those of tensors that the def writes.
    """
    written = {v.tensor for v in versions} | {v.name for v in versions}
    check_save(function, written, save)
    if not isinstance(save, str):
        return {v.name for v in versions if v.name in save and _begins_at_zero(v, symbolic)}
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


def without_rounded(
    function: Function, versions: Sequence[Version], may_save: Collection[str], sought: Collection[str]
) -> set[str]:
    """What may be saved but for extrema that a derivative compares with values that it computes again.

    Another kernel may add up or round otherwise, and then none of the values is the extreme: the adjoint of the saved
    one would reach nothing.  Computed again of the same values, it is one of them.
    """
    kept = set(may_save)
    for version, statement in zip(versions, function.statements, strict=True):
        if version.name not in kept or version.name not in sought:
            continue
        known = {*kept, *(t.name for t in function.inputs)}
        read = {version.reads[t] for t in tensors_read(statement)} | ({version.base} if version.base else set())
        if not (read <= known and all(map(_is_exact, walk(statement.value)))):
            kept.discard(version.name)
    return kept


def compared(function: Function, versions: Sequence[Version]) -> set[str]:
    """The versions that the def itself compares with rounded values, as a gradient does which is derived once more.

    What it counts of those that are equal goes with them.
    """
    names = {v.name for v in versions}
    found: set[str] = set()
    for version, statement in zip(versions, function.statements, strict=True):
        for expr in walk(statement.value):
            if not (isinstance(expr, Binary) and expr.op in ("==", "!=") and expr.lhs.dtype.is_float):
                continue
            for side, other in ((expr.lhs, expr.rhs), (expr.rhs, expr.lhs)):
                if not isinstance(side, Read) or version.reads.get(side.tensor) not in names:
                    continue
                read = {version.reads.get(e.tensor) for e in walk(other) if isinstance(e, Read)}
                if read and not (names.isdisjoint(read) and all(map(_is_exact, walk(other)))):
                    found.add(version.reads[side.tensor])
                    found |= {version.name} if function.tensors[version.tensor].dtype.is_float else set()
    return found


def _is_exact(expr: Expr) -> bool:
    """Whether an operation chooses one of its operands or its negative, so that nothing of it is rounded."""
    match expr:
        case Binary():
            return not expr.dtype.is_float or expr.op in ("min", "max")
        case Call():
            return expr.intrinsic in ("abs", "fabs", "relu", "fmin", "fmax")
        case _:
            return True


def check_save(function: Function, written: Collection[str], save: Save) -> None:
    """Raises DerivativeError for another choice than there is, and for names of what is not ``written``."""
    if isinstance(save, str) and save not in ("statistics", "all", "auto"):
        raise DerivativeError(f"save is 'statistics', 'all', 'auto' or a tuple of names, not {save!r}")
    if not isinstance(save, Iterable):
        raise DerivativeError(f"save is 'statistics', 'all', 'auto' or a tuple of names, not {save!r}")
    for name in () if isinstance(save, str) else save:
        if name not in written:
            hint = did_you_mean(str(name), written) or f"it writes {', '.join(sorted(written))}"
            raise DerivativeError(f"{function.name} has no {name} to save; {hint}")


class CheapToSave:
    """Which values to save for given sizes: statistics, and reductions of many values that take little memory.

    A contraction's result is saved if it is no larger than inputs and outputs together: that of an MLP's layer, and not
    the scores of attention over long rows.
    """

    def __init__(self, function: Function) -> None:
        self.versions: Sequence[Version] = ()
        self.always: set[str] = set()
        with contextlib.suppress(DerivativeError):  # what is derived in blocks as they stand saves nothing
            function = with_steps_as_subscripts(function)
            self.versions = versions_of(function, symbolic_ranges(function))
        self.function = function
        self.symbolic = symbolic_ranges(function)
        if self.versions:
            self.always = saveable(function, self.versions, self.symbolic, "statistics")

    def names(self, sizes: Mapping[str, int]) -> tuple[str, ...]:
        """In the order in which they are written.  Only the statistics where a stride is 0: calls say what is wrong."""
        try:
            return self._names(sizes)
        except ZeroDivisionError:
            return tuple(dict.fromkeys(v.name for v in self.versions if v.name in self.always))

    def _names(self, sizes: Mapping[str, int]) -> tuple[str, ...]:
        most = sum(self._count(t.name, sizes) for t in (*self.function.inputs, *self.function.outputs))
        found = set(self.always)
        for position, version in enumerate(self.versions):
            if _begins_at_zero(version, self.symbolic) and self._steps(position, sizes) >= _MANY:
                found |= {version.name} if self._count(version.tensor, sizes) <= most else set()
        return tuple(dict.fromkeys(v.name for v in self.versions if v.name in found))

    def _count(self, tensor: str, sizes: Mapping[str, int]) -> int:
        if self.function.tensors[tensor].role == "const" or tensor not in self.symbolic.boxes:
            return 0
        return math.prod(extent.value(sizes) for extent in self.symbolic.extents(tensor))

    def _steps(self, position: int, sizes: Mapping[str, int]) -> int:
        """How many values each element is reduced from; 0 for what is no reduction, or has no plain ranges."""
        statement, ranges = self.function.statements[position], self.symbolic.ranges[position]
        if statement.reduction is None or not all(index in ranges for index in statement.indices):
            return 0
        extents = ((ranges[i][1] - ranges[i][0] + 1).value(sizes) for i in statement.reduction_indices)
        return math.prod(extents)


_MANY = 16
"""Steps of a reduction that take longer to compute than its result to write and read."""


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
