"""Blocks of steps: which steps there are where the text does not say, and which instances run before which."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import islpy as isl

from tcomp.grammar.ranges.accesses import accesses
from tcomp.grammar.ranges.intervals import Bounds, solve
from tcomp.grammar.tree.forms import Form, Interval, to_form, variables
from tcomp.grammar.tree.function import Function, Statement, Step


def steps_of(
    function: Function, step: Step, known: Mapping[str, Sequence[Interval]], sizes: Mapping[str, int]
) -> Interval | None:
    """The steps of a block without bounds: those for which all it reads from outside lies in bounds, in all statements.

    None where nothing bounds them on both sides.  ``known`` are the bounds of tensors.
    """
    inside = [s for s in function.statements if any(other.number == step.number for other in s.steps)]
    written = {statement.target for statement in inside}
    found: Interval | None = None
    for statement in inside:
        reads: list[tuple[Form, Interval]] = []
        for access in accesses(statement, sizes):
            bounds = known.get(access.read.tensor)
            if bounds is None or access.read.tensor in written or access.read.boundary is not None:
                continue
            pairs = zip(access.forms, bounds, strict=True)
            reads += [(form, b) for form, b in pairs if form and step.index in variables(form)]
        own = solve(statement.indices, dict(_given(statement, sizes)), reads).intervals.get(step.index)
        if own is not None and reads:
            found = own if found is None else (max(found[0], own[0]), min(found[1], own[1]))
    return found


def _given(statement: Statement, sizes: Mapping[str, int]) -> Iterator[tuple[str, Bounds]]:
    for given in statement.ranges:
        low, high = to_form(given.lower, sizes), to_form(given.upper, sizes)
        if low is not None and high is not None:
            yield given.index, Bounds(low, high.plus(-1))


def common_steps(first: Statement, second: Statement) -> int:
    """How many blocks two statements share."""
    count = 0
    for a, b in zip(first.steps, second.steps, strict=False):
        if a.number != b.number:
            break
        count += 1
    return count


def runs_before(later: isl.Set, earlier: isl.Set, common: int, in_order: bool) -> isl.Map:
    """From instances of one statement to those of another that have run before.

    The leading ``common`` dimensions of both are the steps that they share; ``in_order`` says that within a step the
    other statement runs before.
    """
    types = isl.dim_type
    names = [f"a{d}" for d in range(later.dim(types.set))], [f"b{d}" for d in range(earlier.dim(types.set))]
    cases = []
    for depth in range(common + in_order):
        equal = [f"b{d} = a{d}" for d in range(min(depth, common))]
        cases.append(" and ".join([*equal, f"b{depth} < a{depth}"] if depth < common else equal or ["true"]))
    spaces = [f"{s.get_tuple_name()}[{', '.join(own)}]" for s, own in zip((later, earlier), names, strict=True)]
    condition = " or ".join(f"({case})" for case in cases) or "false"
    return isl.Map(f"{{ {spaces[0]} -> {spaces[1]} : {condition} }}")


def blocks_of(function: Function) -> list[list[int]]:
    """The numbers of the statements, those inside one outermost block together."""
    blocks: list[list[int]] = []
    for number, statement in enumerate(function.statements):
        if blocks and common_steps(statement, function.statements[number - 1]):
            blocks[-1].append(number)
        else:
            blocks.append([number])
    return blocks
