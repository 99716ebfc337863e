"""Access relations: which elements an expression of the program touches, as isl maps.

A subscript that depends on data covers its whole dimension; a read under ``?:`` is restricted to where its affine
condition holds; a boundary read is folded back into its tensor.  Every relation is exact or larger than the truth, and
never leaves the tensor.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import islpy as isl

from tcomp.grammar.ranges.affine import to_pw_aff, to_set
from tcomp.grammar.ranges.ranges import Box
from tcomp.grammar.tree.function import (
    Binary,
    Constant,
    Expr,
    Read,
    Select,
    children,
    depends_on_data,
    map_children,
    walk,
)
from tcomp.model.terms.storages import Storage


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """Where accesses are taken: a statement's domain, the sizes, and the box of every storage."""

    domain: isl.Set
    sizes: Mapping[str, int]
    boxes: Mapping[str, Box]

    def restricted(self, condition: isl.Set | None) -> Frame:
        """The frame where an affine condition holds; the same frame if the condition is not affine (None)."""
        return self if condition is None else Frame(self.domain.intersect(condition), self.sizes, self.boxes)

    @property
    def space(self) -> isl.Space:
        """The space of the domain."""
        return self.domain.get_space()


@functools.lru_cache(maxsize=1000)
def box_set(name: str, box: Box) -> isl.Set:
    """All elements of a storage."""
    space = isl.Space.set_alloc(isl.DEFAULT_CONTEXT, 0, len(box.extent)).set_tuple_name(isl.dim_type.set, name)
    result = isl.Set.universe(space)
    for position, (origin, extent) in enumerate(zip(box.origin, box.extent, strict=True)):
        result = result.lower_bound_val(isl.dim_type.set, position, isl.Val(origin))
        result = result.upper_bound_val(isl.dim_type.set, position, isl.Val(origin + extent - 1))
    return result


def elements_of(storage: Storage) -> isl.Set:
    """All elements of a storage, as many as the open sizes say."""
    own = storage.opened
    return box_set(storage.name, storage.box) if own is None else own.elements.set_tuple_name(storage.name)


def element_map(frame: Frame, storage: str, subscripts: tuple[Expr, ...]) -> isl.Map:
    """Instance to element for plain subscripts; dimensions that are not affine cover the whole extent."""
    box = frame.boxes[storage]
    affine = [to_pw_aff(s, frame.space, frame.sizes) for s in subscripts]
    return _assemble(frame, storage, box, affine)


def _assemble(frame: Frame, storage: str, box: Box, affine: list[isl.PwAff | None]) -> isl.Map:
    if not affine:
        element = isl.Set.universe(isl.Space.set_alloc(isl.DEFAULT_CONTEXT, 0, 0))
        return isl.Map.from_domain_and_range(frame.domain, element).set_tuple_name(isl.dim_type.out, storage)
    whole = [a.as_aff() for a in affine if a is not None and a.isa_aff()]
    if len(whole) == len(affine):
        # The same relation as by the product below, in half of its time.
        space = frame.space.from_domain().add_dims(isl.dim_type.out, len(whole))
        affs = functools.reduce(isl.AffList.add, whole, isl.AffList.alloc(isl.DEFAULT_CONTEXT, len(whole)))
        function = isl.MultiAff.from_aff_list(space.set_tuple_name(isl.dim_type.out, storage), affs)
        return isl.Map.from_multi_aff(function).intersect_domain(frame.domain)
    everywhere = isl.Set.universe(frame.space)
    dimensions = []
    for position, expression in enumerate(affine):
        if expression is None:
            low, extent = box.origin[position], box.extent[position]
            free = isl.Set(f"{{ [x] : {low} <= x < {low + extent} }}")
            dimension = isl.Map.from_domain_and_range(everywhere, free)
        else:
            dimension = isl.Map.from_pw_aff(expression)
        dimensions.append(dimension)
    # The domain comes last: products of relations from all of it would be products of its constraints, too.
    result = functools.reduce(isl.Map.flat_range_product, dimensions)
    return result.intersect_domain(frame.domain).set_tuple_name(isl.dim_type.out, storage)


def reads_of(frame: Frame, value: Expr) -> list[isl.Map]:
    """Every read in an expression, those inside subscripts included."""
    return [_read_map(where, read) for read, where in guarded_reads(frame, value)]


def reads_with_subscripts(frame: Frame, value: Expr, subscripts: tuple[Expr, ...]) -> tuple[isl.Map, ...]:
    """Every read of a statement that writes a value at subscripts, which data may choose."""
    return tuple(read for expr in (value, *subscripts) for read in reads_of(frame, expr))


def guarded_reads(frame: Frame, expr: Expr) -> Iterator[tuple[Read, Frame]]:
    """Reads with the frame in which they are evaluated."""
    match expr:
        case Select():
            yield from guarded_reads(frame, expr.condition)
            condition = to_set(expr.condition, frame.space, frame.sizes)
            yield from guarded_reads(frame.restricted(condition), expr.then)
            negated = None if condition is None else condition.complement()
            yield from guarded_reads(frame.restricted(negated), expr.otherwise)
        case Binary(op="&&" | "||"):
            yield from guarded_reads(frame, expr.lhs)
            condition = to_set(expr.lhs, frame.space, frame.sizes)
            if condition is not None and expr.op == "||":
                condition = condition.complement()
            yield from guarded_reads(frame.restricted(condition), expr.rhs)
        case _:
            if isinstance(expr, Read):
                yield expr, frame
            for child in children(expr):
                yield from guarded_reads(frame, child)


def _read_map(frame: Frame, read: Read) -> isl.Map:
    box = frame.boxes[read.tensor]
    inside = box_set(read.tensor, box)
    if read.boundary is None or read.boundary.kind == "constant_exterior":
        return element_map(frame, read.tensor, read.subscripts).intersect_range(inside)
    affine: list[isl.PwAff | None] = []
    for position, subscript in enumerate(read.subscripts):
        expression = to_pw_aff(subscript, frame.space, frame.sizes)
        low = box.origin[position]
        high = low + box.extent[position] - 1
        if expression is None:
            affine.append(None)
        elif read.boundary.kind == "repeat_edge":
            affine.append(expression.max(_constant(expression, low)).min(_constant(expression, high)))
        else:
            affine.append(expression if _stays_inside(frame, expression, low, high) else None)
    return _assemble(frame, read.tensor, box, affine).intersect_range(inside)


def _constant(like: isl.PwAff, value: int) -> isl.PwAff:
    space = like.get_domain_space()
    aff = isl.Aff.zero_on_domain(isl.LocalSpace.from_space(space)).set_constant_val(isl.Val(value))
    return isl.PwAff.from_aff(aff)


def _stays_inside(frame: Frame, expression: isl.PwAff, low: int, high: int) -> bool:
    inside = expression.ge_set(_constant(expression, low)).intersect(expression.le_set(_constant(expression, high)))
    return bool(frame.domain.is_subset(inside))


def prune_reads(
    value: Expr, reads: tuple[isl.Map, ...], temporaries: Collection[str]
) -> tuple[Expr, tuple[isl.Map, ...]]:
    """The value and its reads without those of temporaries that never happen: their guard holds nowhere.

    What never happens must not keep a temporary alive.  A read outside its boundary is the boundary's value.
    """
    happening = {r.get_tuple_name(isl.dim_type.out) for r in reads if not r.is_empty()}
    dead = {
        e.tensor
        for e in walk(value)
        if isinstance(e, Read)
        and e.tensor in temporaries
        and e.tensor not in happening
        and not any(depends_on_data(s) for s in e.subscripts)
    }
    if not dead:
        return value, reads
    kept = tuple(r for r in reads if r.get_tuple_name(isl.dim_type.out) not in dead)
    return _without(value, dead), kept


def _without(expr: Expr, dead: set[str]) -> Expr:
    if isinstance(expr, Read) and expr.tensor in dead:
        outside = None if expr.boundary is None else expr.boundary.value
        return Constant(0, expr.dtype, expr.span) if outside is None else _without(outside, dead)
    return map_children(expr, lambda child: _without(child, dead))
