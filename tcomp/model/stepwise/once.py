"""Temporaries that are the same along a dimension, which are computed once and kept without it.

In ``for j { p(i,j) = a / (p(i,j-1) + b); q(i,j) = (X(i,j) - q(i,j-1)) * p(i,j) }`` nothing tells one row of ``p`` from
another: coefficients of tridiagonal systems with equal matrices are like that.  It becomes
``for j { p(j) = a / (p(j-1) + b) }`` and ``for j { q(i,j) = (X(i,j) - q(i,j-1)) * p(j) }``.  Each value is computed by
the same operations as before.  That rows are the same, and that a block may be split, is proved by isl.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.errors import LegalityError
from tcomp.grammar.ranges.ranges import Ranges
from tcomp.grammar.tree.function import (
    Expr,
    Function,
    Index,
    Read,
    Statement,
    Tensor,
    depends_on_data,
    map_children,
    walk,
)
from tcomp.model.accesses import Frame, element_map

_SET, _OUT = isl.dim_type.set, isl.dim_type.out


@dataclass(frozen=True, slots=True, eq=False)
class Once:
    """A program with a temporary that has lost a dimension, and what it was; ``along`` are the indices that are gone.

    ``along`` is by the numbers of the statements that write it, which both programs have in the same order.
    """

    before: Function
    ranges: Ranges
    after: Function
    tensor: str
    dimension: int
    along: Mapping[int, str]


def computed_once(function: Function, ranges: Ranges) -> Once | None:
    """The function with its first temporary that is the same along a dimension without that; None where it has none.

    Only what is written in blocks of steps is looked at.
    """
    if len(ranges.domains) != len(function.statements):
        return None
    for tensor in function.temporaries:
        writers = [n for n, s in enumerate(function.statements) if s.target == tensor.name]
        stepped = any(function.statements[n].steps for n in writers)
        if not stepped or any(passed.tensor == tensor.name for passed in function.passed):
            continue
        for dimension in range(tensor.rank if tensor.rank > 1 else 0):
            along = _along(function, writers, tensor.name, dimension)
            blocks = None if along is None else _split(function, writers)
            if along is None or blocks is None:
                continue
            after = _without(function, blocks, tensor, dimension, along)
            made = Once(function, ranges, after, tensor.name, dimension, along)
            if _rows_are_one(made) and _may_be_split(made):
                return made
    return None


def runs_as_before(made: Once, after: Ranges) -> bool:
    """Whether all statements run for the same points as before, those of the dimension that is gone apart.

    They need not: an index may have had its range from that dimension.
    """
    if len(after.domains) != len(made.ranges.domains):
        return False
    for number, (old, new) in enumerate(zip(made.ranges.domains, after.domains, strict=True)):
        was = old.domain.reset_tuple_id()
        if number in made.along:
            was = was.project_out(_SET, made.before.statements[number].indices.index(made.along[number]), 1)
        if not was.reset_tuple_id().is_equal(new.domain.reset_tuple_id()):
            return False
    return all(after.boxes[name] == box for name, box in made.ranges.boxes.items() if name != made.tensor)


def prove_once(made: Once, after: Ranges) -> None:
    """Raise LegalityError unless rows were the same, blocks may be split, and all else runs as it did."""
    if not (_rows_are_one(made) and _may_be_split(made) and runs_as_before(made, after)):
        raise LegalityError(f"{made.tensor} of {made.before.name} is not the same along dimension {made.dimension}")


def _along(function: Function, writers: Sequence[int], tensor: str, dimension: int) -> dict[int, str] | None:
    """The index along a dimension in each statement that writes a tensor, where that says nothing else there."""
    found: dict[int, str] = {}
    for number in writers:
        statement = function.statements[number]
        own = statement.subscripts[dimension]
        if not isinstance(own, Index) or any(step.index == own.name for step in statement.steps):
            return None
        if statement.reduction is not None or statement.exists or statement.scatters:
            return None
        others = [s for d, s in enumerate(statement.subscripts) if d != dimension]
        others += [end for r in statement.ranges if r.index != own.name for end in (r.lower, r.upper)]
        others.append(_reduced(statement.value, tensor, dimension, own))
        if any(isinstance(e, Index) and e.name == own.name for other in others for e in walk(other)):
            return None
        found[number] = own.name
    return found


def _reduced(expr: Expr, tensor: str, dimension: int, own: Index | None) -> Expr:
    """The expression with reads of a tensor without a dimension: those at an index of it, or all of them."""
    expr = map_children(expr, lambda child: _reduced(child, tensor, dimension, own))
    if not isinstance(expr, Read) or expr.tensor != tensor:
        return expr
    place = expr.subscripts[dimension]
    if own is not None and not (isinstance(place, Index) and place.name == own.name):
        return expr
    return replace(expr, subscripts=tuple(s for d, s in enumerate(expr.subscripts) if d != dimension))


def _split(function: Function, writers: Sequence[int]) -> dict[int, int] | None:
    """Numbers of new blocks for statements that come behind those that write a tensor, by statement.

    Only blocks are split that have no others in them, as only these may be tiled over time.  None where other
    statements come before those that write the tensor or between them, or where these read what others make.
    """
    fresh = 1 + max(step.number for s in function.statements for step in s.steps)
    found: dict[int, int] = {}
    for block in dict.fromkeys(
        function.statements[n].steps[-1].number for n in writers if function.statements[n].steps
    ):
        own = [n for n, s in enumerate(function.statements) if any(step.number == block for step in s.steps)]
        if any(function.statements[n].steps[-1].number != block for n in own):
            continue
        first = [n for n in own if n in writers]
        rest = own[len(first) :]
        made = {function.statements[n].target for n in rest}
        if own[: len(first)] != first or any(r.tensor in made for n in first for r in _reads(function.statements[n])):
            return None
        found |= dict.fromkeys(rest, fresh)
        fresh += 1
    return found


def _without(
    function: Function, blocks: Mapping[int, int], tensor: Tensor, dimension: int, along: Mapping[int, str]
) -> Function:  # fmt: skip
    """The function with a temporary that has one dimension less, and statements behind it in blocks of their own."""
    statements = []
    for number, statement in enumerate(function.statements):
        made = _in_block(statement, blocks[number]) if number in blocks else statement
        subscripts = tuple(_reduced(s, tensor.name, dimension, None) for s in made.subscripts)
        ranges = tuple(
            replace(r, lower=_reduced(r.lower, tensor.name, dimension, None),
                    upper=_reduced(r.upper, tensor.name, dimension, None))
            for r in made.ranges
        )  # fmt: skip
        made = replace(
            made, subscripts=subscripts, value=_reduced(made.value, tensor.name, dimension, None), ranges=ranges
        )
        if number in along:
            made = replace(
                made,
                subscripts=tuple(s for d, s in enumerate(made.subscripts) if d != dimension),
                ranges=tuple(r for r in made.ranges if r.index != along[number]),
                indices=tuple(i for i in made.indices if i != along[number]),
            )
        statements.append(made)
    dims = None if tensor.dims is None else tuple(x for d, x in enumerate(tensor.dims) if d != dimension)
    smaller = replace(tensor, rank=tensor.rank - 1, dims=dims)
    temporaries = tuple(smaller if t.name == tensor.name else t for t in function.temporaries)
    return replace(function, statements=tuple(statements), temporaries=temporaries)


def _in_block(statement: Statement, number: int) -> Statement:
    """The statement with another number of the block that it stands in."""
    *around, last = statement.steps
    return replace(statement, steps=(*around, replace(last, number=number)))


def _rows_are_one(made: Once) -> bool:
    """Whether all that is written is so for the same rows, at least one, and only these are read."""
    rows: isl.Set | None = None
    for number, index in made.along.items():
        domain = made.ranges.domains[number].domain.reset_tuple_id()
        place = made.before.statements[number].indices.index(index)
        rank = domain.dim(_SET)
        own = domain.project_out(_SET, place + 1, rank - place - 1).project_out(_SET, 0, place).reset_tuple_id()
        rest = domain.project_out(_SET, place, 1).insert_dims(_SET, place, 1).reset_tuple_id()
        everywhere = own.insert_dims(_SET, 0, place).insert_dims(_SET, place + 1, rank - place - 1).reset_tuple_id()
        if not domain.is_equal(rest.intersect(everywhere)) or own.is_empty():
            return False
        if rows is not None and not rows.is_equal(own):
            return False
        rows = own
    if rows is None:
        return False
    for number, statement in enumerate(made.before.statements):
        for read in _reads(statement):
            if read.tensor != made.tensor:
                continue
            if read.boundary is not None or read in statement.exists or any(map(depends_on_data, read.subscripts)):
                return False
            touched = element_map(_frame(made, number), made.tensor, read.subscripts)
            elements = touched.intersect_domain(made.ranges.domains[number].domain).range().reset_tuple_id()
            rank = elements.dim(_SET)
            elements = elements.project_out(_SET, made.dimension + 1, rank - made.dimension - 1)
            if not elements.project_out(_SET, 0, made.dimension).reset_tuple_id().is_subset(rows):
                return False
    return True


def _may_be_split(made: Once) -> bool:
    """Whether no step writes an element that a statement which now comes later reads in a step before."""
    new = made.after.statements
    for number, statement in enumerate(made.before.statements):
        depth = next((d for d, s in enumerate(statement.steps) if new[number].steps[d].number != s.number), None)
        if depth is None:
            continue
        reads = [read for read in _reads(statement) if read.tensor == made.tensor]
        for writer in made.along:
            other = made.before.statements[writer]
            if len(other.steps) <= depth or other.steps[depth].number != statement.steps[depth].number:
                continue
            write = _at_steps(made, writer, other.subscripts, depth + 1)
            for read in reads:
                pairs = _at_steps(made, number, read.subscripts, depth + 1).apply_range(write.reverse())
                if not pairs.intersect(_earlier(depth)).is_empty():
                    return False
    return True


def _at_steps(made: Once, number: int, subscripts: Sequence[Expr], count: int) -> isl.Map:
    """From the first steps around a statement to the elements of the tensor that it touches."""
    touched = element_map(_frame(made, number), made.tensor, tuple(subscripts))
    touched = touched.intersect_domain(made.ranges.domains[number].domain)
    touched = touched.reset_tuple_id(isl.dim_type.in_).reset_tuple_id(_OUT)
    return touched.project_out(isl.dim_type.in_, count, touched.dim(isl.dim_type.in_) - count)


def _earlier(depth: int) -> isl.Map:
    """From steps to those with the same steps around that come later."""
    one, other = ([f"{letter}{d}" for d in range(depth + 1)] for letter in "ab")
    same = [f"{a} = {b}" for a, b in zip(one[:-1], other[:-1], strict=True)]
    return isl.Map(
        f"{{ [{', '.join(one)}] -> [{', '.join(other)}] : {' and '.join([*same, f'a{depth} < b{depth}'])} }}"
    )


def _frame(made: Once, number: int) -> Frame:
    return Frame(made.ranges.domains[number].domain, made.ranges.sizes, made.ranges.boxes)


def _reads(statement: Statement) -> Iterator[Read]:
    """All reads of a statement, and of what its ranges are bounded by."""
    ends = (end for r in statement.ranges for end in (r.lower, r.upper))
    for expression in (*statement.expressions(), *ends):
        yield from (e for e in walk(expression) if isinstance(e, Read))
