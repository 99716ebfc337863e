"""Where statements run and tensors live, as values: boxes of elements and iteration domains."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import islpy as isl

from tcomp.grammar.ranges.affine import form_to_pw_aff, to_val
from tcomp.grammar.ranges.intervals import Bounds
from tcomp.grammar.tree.forms import Form, Interval, index_form
from tcomp.grammar.tree.function import Statement

_SET = isl.dim_type.set


@dataclass(frozen=True, slots=True)
class Box:
    """The elements of a tensor in logical coordinates: ``origin[d] <= x[d] < origin[d] + extent[d]``."""

    origin: tuple[int, ...]
    extent: tuple[int, ...]

    def interval(self, dimension: int) -> Interval:
        """The first and last coordinate of a dimension."""
        return self.origin[dimension], self.origin[dimension] + self.extent[dimension] - 1


@dataclass(frozen=True, slots=True)
class StatementDomain:
    """The instances of a statement.

    ``domain`` is named ``S<k>`` for statement k and has the statement's indices as dimensions, no parameters.
    ``lhs`` has the same name and the left-hand indices only: the instances of an initialisation, which exist even
    where the range of a reduction index is empty.  ``hull`` gives inclusive bounds per index (upper below lower where
    empty); ``rectangular`` says that the domain is the product of these.
    """

    indices: tuple[str, ...]
    domain: isl.Set
    lhs: isl.Set
    hull: dict[str, Interval]
    rectangular: bool

    @property
    def is_empty(self) -> bool:
        """Whether an interval of the hull is empty, so that the statement has no instance."""
        return any(high < low for low, high in self.hull.values())


def statement_domain(
    number: int,
    statement: Statement,
    hull: dict[str, Interval],
    dependent: Mapping[str, Bounds],
) -> StatementDomain:
    """The domain of statement ``number``; ``dependent`` holds the ranges that mention other indices."""
    outer = statement.indices[: len(statement.indices) - len(statement.reduction_indices)]
    domain = _points(number, statement.indices, hull, dependent)
    if len(outer) == len(statement.indices):
        return StatementDomain(statement.indices, domain, domain, hull, not dependent)
    among_outer = {name: bounds for name, bounds in dependent.items() if bounds.variables() <= set(outer)}
    lhs = _points(number, outer, hull, among_outer)
    return StatementDomain(statement.indices, domain, lhs, hull, not dependent)


def _points(
    number: int,
    indices: tuple[str, ...],
    hull: Mapping[str, Interval],
    dependent: Mapping[str, Bounds],
) -> isl.Set:
    space = isl.Space.set_alloc(isl.DEFAULT_CONTEXT, 0, len(indices)).set_tuple_name(_SET, f"S{number}")
    for position, name in enumerate(indices):
        space = space.set_dim_name(_SET, position, name)
    points = isl.Set.universe(space)
    for position, name in enumerate(indices):
        bounds = dependent.get(name)
        if bounds is None:
            low, high = hull[name]
            points = points.lower_bound_val(_SET, position, to_val(low, space))
            points = points.upper_bound_val(_SET, position, to_val(high, space))
        else:
            points = points.intersect(_at_least_zero(index_form(name).add(bounds.low, -1), space))
            points = points.intersect(_at_least_zero(bounds.high.add(index_form(name), -1), space))
    return points


def _at_least_zero(form: Form, space: isl.Space) -> isl.Set:
    value = form_to_pw_aff(form, space)
    assert value is not None, "ranges mention indices of the statement only"
    return value.nonneg_set()


def box_of(intervals: tuple[Interval, ...]) -> isl.Set:
    """The elements of a box, in the unnamed space that images of accesses have."""
    space = isl.Space.set_alloc(isl.DEFAULT_CONTEXT, 0, len(intervals))
    elements = isl.Set.universe(space)
    for dimension, (low, high) in enumerate(intervals):
        elements = elements.lower_bound_val(_SET, dimension, to_val(low, space))
        elements = elements.upper_bound_val(_SET, dimension, to_val(high, space))
    return elements
