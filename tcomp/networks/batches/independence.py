"""Whether a def computes each part of a batch from the same part of what it reads: proved from its accesses.

An axis of a tensor is *carried* by an index if all accesses of the tensor have that index there, alone, and nowhere
else.  Then the instances of one value of the index touch nothing that those of another one write, and a def with fewer
values of it computes a part of the results from a part of the arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import islpy as isl

from tcomp.grammar.ranges.domains import StatementDomain
from tcomp.grammar.ranges.ranges import Ranges, infer
from tcomp.grammar.tree.function import Function, Index, Read, Statement, Within, is_indirect, walk


def carried(function: Function, given: Mapping[str, int]) -> dict[str, int] | None:
    """The axes of a batch, which arguments have as ``given``, in all tensors that follow from them.

    None where results are not made for each part by itself, or where data choose elements: what such a kernel reports
    counts from the first part.
    """
    axes = dict(given)
    before = -1
    while len(axes) != before:
        before = len(axes)
        for statement in function.statements:
            places = {i for i in map(_place, statement.subscripts) if i is not None}
            index = _index(statement, axes)
            if index in places and statement.target not in axes:
                axes[statement.target] = [_place(s) for s in statement.subscripts].index(index)
    results = {tensor.name for tensor in function.outputs}
    if not results <= axes.keys() or not all(_is_apart(statement, axes) for statement in function.statements):
        return None
    ranges = infer(function, {})
    pairs = zip(function.statements, ranges.domains, strict=True)
    return axes if all(_is_box(one, domain, axes, ranges) for one, domain in pairs) else None


def is_part(part: Function, whole: Function, axes: Mapping[str, int]) -> bool:
    """Whether one def is another, of which ``carried`` gave the axes, with a batch of another extent."""
    if len(part.statements) != len(whole.statements):
        return False
    mine, other = infer(part, {}), infer(whole, {})
    for one, two, few, all_ in zip(part.statements, whole.statements, mine.domains, other.domains, strict=True):
        if _facts(one) != _facts(two):
            return False
        index = _index(one, axes)
        extent = None if index is None else mine.boxes[one.target].extent[axes[one.target]]
        if not _same(few, all_, index, extent):
            return False
    for name, box in mine.boxes.items():
        axis = axes.get(name)
        pairs = enumerate(zip(box.extent, other.boxes[name].extent, strict=True))
        if any(k != axis and first != second for k, (first, second) in pairs):
            return False
    return True


def _place(subscript: object) -> str | None:
    return subscript.name if isinstance(subscript, Index) else None


def _accesses(statement: Statement) -> Iterator[tuple[str, tuple[object, ...]]]:
    """The tensors that a statement touches, and where."""
    yield statement.target, statement.subscripts
    for expression in statement.expressions():
        for node in walk(expression):
            if isinstance(node, Read):
                yield node.tensor, node.subscripts


def _index(statement: Statement, axes: Mapping[str, int]) -> str | None:
    """The index by which a statement goes over the batch, if it is one."""
    for tensor, subscripts in _accesses(statement):
        if tensor in axes:
            return _place(subscripts[axes[tensor]])
    return None


def _is_apart(statement: Statement, axes: Mapping[str, int]) -> bool:
    """Whether all that a statement touches of the batch is at one index, which stands nowhere else."""
    if any(is_indirect(s) for _, subscripts in _accesses(statement) for s in subscripts):  # type: ignore[arg-type]
        return False
    if any(isinstance(node, Within) for expression in statement.expressions() for node in walk(expression)):
        return False
    touched = [(tensor, subscripts) for tensor, subscripts in _accesses(statement) if tensor in axes]
    if not touched:
        return True
    index = _index(statement, axes)
    if index is None or statement.target not in axes or index in (step.index for step in statement.steps):
        return False
    if any(_place(subscripts[axes[tensor]]) != index for tensor, subscripts in touched):
        return False
    named = sum(isinstance(n, Index) and n.name == index for e in statement.expressions() for n in walk(e))
    return named == len(touched)


def _is_box(statement: Statement, domain: StatementDomain, axes: Mapping[str, int], ranges: Ranges) -> bool:
    """Whether a statement runs for the whole batch, and does the same for each part."""
    index = _index(statement, axes)
    if index is None:
        return True
    boxes = [(ranges.boxes[tensor], axes[tensor]) for tensor, _ in _accesses(statement) if tensor in axes]
    whole = {(box.origin[axis], box.extent[axis]) for box, axis in boxes}
    extent = boxes[0][0].extent[boxes[0][1]]
    return whole == {(0, extent)} and _same(domain, domain, index, extent)


def _facts(statement: Statement) -> tuple[object, ...]:
    """What a statement does, but for which values its indices have."""
    one = statement
    steps = tuple(step.index for step in one.steps)
    named = (one.target, one.subscripts, one.reduction, one.initialise, one.value, one.accumulator, one.exists)
    return (*named, one.indices, one.reduction_indices, steps)


def _same(few: StatementDomain, all_: StatementDomain, index: str | None, extent: int | None) -> bool:
    """Whether the first has the instances of the second, with an index from 0 to an extent where one is given."""
    if few.indices != all_.indices:
        return False
    at = -1 if index is None else few.indices.index(index)
    pairs = ((few.domain, all_.domain), (few.lhs, all_.lhs))
    return all(mine.is_equal(_cut(other, at, extent)) for mine, other in pairs)


def _cut(points: isl.Set, at: int, extent: int | None) -> isl.Set:
    """All values from 0 to an extent in one dimension, for each of the others that has one."""
    if at < 0 or extent is None or at >= points.dim(isl.dim_type.set):
        return points
    kind, name = isl.dim_type.set, points.get_tuple_name()
    every = points.project_out(kind, at, 1).insert_dims(kind, at, 1).set_tuple_name(name)
    return every.lower_bound_val(kind, at, isl.Val(0)).upper_bound_val(kind, at, isl.Val(extent - 1))
