"""The solver of range inference: rounds of single-variable inequalities.

Source of the algorithm: Tensor Comprehensions, ``forwardBoundsInference``.  ``where`` ranges are taken first and
unconditionally.  In every round each unsolved variable takes the conjunction of the inequalities whose only free
variable it is, and gets the largest interval on which that holds; at the end of the round all the new intervals are
substituted together, each remaining inequality being restricted to "true for all values of the solved variables".
Sizes are concrete, so nearly all of this is integer arithmetic on linear forms; inequalities that are not monotone in a
variable (remainders, choices) are kept as isl sets instead.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter

import islpy as isl

from tcomp.grammar.ranges.affine import form_to_pw_aff, to_val
from tcomp.grammar.tree.forms import (
    Form,
    Interval,
    constant_form,
    directions,
    index_form,
    interval,
    substitute,
    variables,
)

_SET = isl.dim_type.set


@dataclass(frozen=True, slots=True)
class Bounds:
    """The ``where`` range of a variable, both ends inclusive; they may mention other variables."""

    low: Form
    high: Form

    def variables(self) -> frozenset[str]:
        """The index variables that the range depends on."""
        return variables(self.low) | variables(self.high)


@dataclass(frozen=True, slots=True)
class Solution:
    """Inclusive intervals per solved variable, those that stayed unsolved, and those with several candidates."""

    intervals: dict[str, Interval]
    unsolved: tuple[str, ...]
    ambiguous: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Region:
    """An inequality that intervals do not follow: a set over all variables, and those it still depends on."""

    points: isl.Set
    free: frozenset[str]


NOWHERE: Interval = (0, -2)
"""The interval of a variable that no value satisfies, where the inequalities give no bounds to report."""

_Inequality = Form | _Region
"""A form stands for ``form >= 0``."""


def dependence_order(mentioned: Mapping[str, frozenset[str]]) -> tuple[str, ...] | None:
    """Variables with ranges, each before those that its range mentions; None where ranges depend on each other."""
    among = {name: others & mentioned.keys() for name, others in mentioned.items()}
    try:
        return tuple(reversed(tuple(TopologicalSorter(among).static_order())))
    except CycleError:
        return None


def solve(
    indices: tuple[str, ...],
    ranges: Mapping[str, Bounds],
    accesses: Iterable[tuple[Form, Interval]],
) -> Solution:
    """Find the range of every index variable of a statement.

    Args:
        indices: all index variables.
        ranges: their ``where`` ranges, acyclic.
        accesses: subscripts and the inclusive bounds of the dimensions that they index.

    Returns:
        The intervals.  One whose upper bound is more than one below its lower bound came from contradictory
        inequalities or a ``where`` range that ends before it starts.
    """
    return _Solver(indices).run(ranges, accesses)


class _Solver:
    def __init__(self, indices: tuple[str, ...]) -> None:
        self.indices = indices
        self.space: isl.Space | None = None
        self.intervals: dict[str, Interval] = {}

    def run(self, ranges: Mapping[str, Bounds], accesses: Iterable[tuple[Form, Interval]]) -> Solution:
        order = dependence_order({name: bounds.variables() for name, bounds in ranges.items()})
        assert order is not None, "the caller rejects cyclic ranges"
        pinned: set[str] = set()
        for name in reversed(order):
            if ranges[name].variables() <= pinned:
                pinned.add(name)
        open_accesses = [(form, bounds) for form, bounds in accesses if not variables(form) <= pinned]
        pending = [part for form, bounds in open_accesses for part in self._within(form, bounds)]
        for name in order:
            bounds = ranges[name]
            if not bounds.variables() and bounds.high.constant < bounds.low.constant:
                bounds = Bounds(bounds.low, bounds.low.plus(-1))
            pending = self._substitute(pending, name, bounds)
        unsolved = [name for name in self.indices if name not in ranges]
        ambiguous: tuple[str, ...] = ()
        while unsolved:
            found, ambiguous, pending = self._round(unsolved, pending)
            self.intervals |= found
            unsolved = [name for name in unsolved if name not in found]
            if not found or not unsolved:
                break
            for name, (low, high) in found.items():
                pending = self._substitute(pending, name, Bounds(constant_form(low), constant_form(high)))
        for name in reversed(order):
            self._settle(name, ranges[name])
        missing = tuple(name for name in self.indices if name not in self.intervals)
        return Solution(self.intervals, missing, ambiguous)

    def _settle(self, name: str, bounds: Bounds) -> None:
        """The interval of a variable with a range, once those that the range mentions have theirs."""
        if any(other not in self.intervals for other in bounds.variables()):
            return
        low, high = interval(bounds.low, self.intervals)[0], interval(bounds.high, self.intervals)[1]
        self.intervals[name] = (low, max(high, low - 1) if bounds.variables() else high)

    def _round(
        self, unsolved: list[str], pending: list[_Inequality]
    ) -> tuple[dict[str, Interval], tuple[str, ...], list[_Inequality]]:
        """The variables that single-variable inequalities bound on both sides, and the inequalities not used."""
        single: dict[str, list[_Inequality]] = {name: [] for name in unsolved}
        others: list[_Inequality] = []
        for inequality in pending:
            free = _free(inequality)
            if len(free) == 1 and (name := next(iter(free))) in single:
                single[name].append(inequality)
            elif free:
                others.append(inequality)
        found: dict[str, Interval] = {}
        ambiguous: list[str] = []
        for name, conjunction in single.items():
            answer = self._largest_interval(name, conjunction)
            if isinstance(answer, tuple):
                found[name] = answer
                continue
            if answer == "ambiguous":
                ambiguous.append(name)
            others += conjunction
        return found, tuple(ambiguous), others

    def _largest_interval(self, name: str, conjunction: list[_Inequality]) -> Interval | str:
        low: int | None = None
        high: int | None = None
        regions: list[isl.Set] = []
        for inequality in conjunction:
            if isinstance(inequality, Form) and len(inequality.terms) == 1 and inequality.terms[0][0] == name:
                coefficient, constant = inequality.terms[0][1], inequality.constant
                if coefficient > 0:
                    low = -(constant // coefficient) if low is None else max(low, -(constant // coefficient))
                else:
                    high = constant // -coefficient if high is None else min(high, constant // -coefficient)
            else:
                regions.append(self._region(inequality).points)
        if not regions:
            return "unbounded" if low is None or high is None else (low, high)
        return self._largest_run(name, low, high, regions)

    def _largest_run(self, name: str, low: int | None, high: int | None, regions: list[isl.Set]) -> Interval | str:
        """The unique longest run of consecutive values of a variable inside all regions and ``[low, high]``."""
        position = self.indices.index(name)
        points = regions[0]
        for region in regions[1:]:
            points = points.intersect(region)
        if low is not None:
            points = points.lower_bound_val(_SET, position, to_val(low, points.get_space()))
        if high is not None:
            points = points.upper_bound_val(_SET, position, to_val(high, points.get_space()))
        after = len(self.indices) - position - 1
        line = points.project_out(_SET, position + 1, after).project_out(_SET, 0, position)
        if line.is_empty():
            return NOWHERE
        if not line.is_bounded():
            return "unbounded"
        return longest_run(line)

    def _within(self, form: Form, bounds: Interval) -> Iterable[_Inequality]:
        """``bounds[0] <= form <= bounds[1]`` as inequalities."""
        yield from self._unwrap(form.plus(-bounds[0]))
        yield from self._unwrap(form.scaled(-1).plus(bounds[1]))

    def _unwrap(self, form: Form) -> Iterable[_Inequality]:
        """``form >= 0`` without its outermost atom where that is equivalent."""
        atom, coefficient = form.terms[0] if len(form.terms) == 1 else ("", 0)
        if isinstance(atom, str):
            yield form if not _has_choice(form) else self._region(form)
            return
        at_least = coefficient > 0
        limit = -(form.constant // coefficient) if at_least else form.constant // -coefficient
        match atom.op:
            case "/":
                inner = atom.operands[0]
                if at_least:
                    yield from self._unwrap(inner.plus(-atom.divisor * limit))
                else:
                    yield from self._unwrap(inner.scaled(-1).plus(atom.divisor * limit + atom.divisor - 1))
            case "%" if (limit <= 0) if at_least else (limit >= atom.divisor - 1):
                return
            case "min" if at_least:
                for operand in atom.operands:
                    yield from self._unwrap(operand.plus(-limit))
            case "max" if not at_least:
                for operand in atom.operands:
                    yield from self._unwrap(operand.scaled(-1).plus(limit))
            case _:
                yield form if not _has_choice(form) else self._region(form)

    def _substitute(self, pending: list[_Inequality], name: str, bounds: Bounds) -> list[_Inequality]:
        """Restrict inequalities to those that hold for every value of a variable."""
        result: list[_Inequality] = []
        for inequality in pending:
            if name not in _free(inequality):
                result.append(inequality)
            elif isinstance(inequality, _Region):
                result.append(self._for_all(inequality, name, bounds))
            else:
                moves = directions(inequality, name)
                if moves == {1}:
                    result += self._unwrap(substitute(inequality, name, bounds.low))
                elif moves == {-1}:
                    result += self._unwrap(substitute(inequality, name, bounds.high))
                else:
                    result.append(self._for_all(self._region(inequality), name, bounds))
        return result

    def _for_all(self, region: _Region, name: str, bounds: Bounds) -> _Region:
        space = region.points.get_space()
        variable = self._pw_aff(index_form(name), space)
        values = self._pw_aff(bounds.low, space).le_set(variable)
        values = values.intersect(variable.le_set(self._pw_aff(bounds.high, space)))
        position = self.indices.index(name)
        outside = region.points.complement().intersect(values).eliminate(_SET, position, 1)
        return _Region(outside.complement().coalesce(), (region.free - {name}) | bounds.variables())

    def _region(self, inequality: _Inequality) -> _Region:
        if isinstance(inequality, _Region):
            return inequality
        if self.space is None:
            space = isl.Space.set_alloc(isl.DEFAULT_CONTEXT, 0, len(self.indices))
            for position, name in enumerate(self.indices):
                space = space.set_dim_name(_SET, position, name)
            self.space = space
        return _Region(self._pw_aff(inequality, self.space).nonneg_set(), variables(inequality))

    def _pw_aff(self, form: Form, space: isl.Space) -> isl.PwAff:
        value = form_to_pw_aff(form, space)
        assert value is not None, "every index variable of the statement is a dimension"
        return value


def longest_run(line: isl.Set) -> Interval | str:
    """The longest run of consecutive integers in a bounded, non-empty one-dimensional set.

    Returns:
        Its inclusive ends, or ``"ambiguous"`` where several runs share the greatest length.
    """
    low, high = line.dim_min_val(0).to_python(), line.dim_max_val(0).to_python()
    shifted_up = isl.Map("{ [v] -> [v + 1] }", line.get_ctx())
    starts = line.subtract(line.apply(shifted_up))
    if starts.is_singleton():
        return low, high
    ends = line.subtract(line.apply(shifted_up.reverse()))
    runs = isl.Map("{ [a] -> [b] : b >= a }", line.get_ctx()).intersect_domain(starts).intersect_range(ends).lexmin()
    length = runs.deltas().dim_max_val(0).to_python()
    longest = runs.intersect(isl.Map(f"{{ [a] -> [a + {length}] }}", line.get_ctx())).domain()
    if not longest.is_singleton():
        return "ambiguous"
    start = longest.dim_min_val(0).to_python()
    return start, start + length


def _free(inequality: _Inequality) -> frozenset[str]:
    return inequality.free if isinstance(inequality, _Region) else variables(inequality)


def _has_choice(form: Form) -> bool:
    return any(
        not isinstance(term, str) and (term.op == "select" or any(_has_choice(o) for o in term.operands))
        for term, _ in form.terms
    )
