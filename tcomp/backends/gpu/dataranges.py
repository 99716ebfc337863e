"""Loops of one thread over ranges whose ends data give."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

from tcomp.backends.gpu.statements import named_indices, speller
from tcomp.backends.gpu.words.spelling import expression_text
from tcomp.backends.gpu.writer import Body, KernelWriter
from tcomp.grammar.tree.function import depends_on_data
from tcomp.loops.indexing import Ranges
from tcomp.loops.ir import For, LoopExpr, Number, Operation, Variable, variables
from tcomp.loops.narrowing import Narrowing, narrowed_bounds
from tcomp.mapping.machines.gpu import WARP


def range_loop(writer: KernelWriter, loop: For, way: Narrowing, depth: int, ranges: Ranges, body: Body) -> None:
    """A loop from one end of a range to the other, both checked in front of it, and cut to what there is."""
    own = speller(writer, way.call, ranges)
    index = writer.program.dialect.index
    lower, upper, order = own.range_ends(way.within)
    first, end = (writer.unlike(f"{loop.iterator}_{name}", ranges, loop) for name in ("first", "end"))
    if writer.program.checked and way.within.box is not None:
        # Behind its check an end is where it may be.
        for text, given in ((lower, way.within.lower), (upper, way.within.upper)):
            ranges = ranges.knowing(text, *way.within.box) if depends_on_data(given) else ranges
    first_step, last_step = narrowed_bounds(way, lower, upper)
    bounds = _needed(first_step, ">=", way, ranges), _needed(last_step, "<=", way, ranges)
    texts = [expression_text(bound, ranges) for bound in bounds]
    writer.put(depth, "{")
    for name, value in named_indices(writer, own).items():
        writer.put(depth + 1, f"const {index} {name} = {expression_text(value, ranges)};")
    for name, text in zip((first, end), texts, strict=True):
        writer.put(depth + 1, f"const {index} {name} = {text};")
    if order:
        writer.put(depth + 1, f"{order};")
    low, high = ranges.bounds(way.lower), ranges.bounds(way.upper)
    known = ranges
    if low is not None and high is not None:
        known = ranges.knowing(first, low[0], high[1]).knowing(end, low[0], high[1])
    writer.loop(replace(loop, lower=Variable(first), upper=Variable(end)), depth + 1, known, body)
    writer.put(depth, "}")


def _needed(bound: LoopExpr, operator: str, way: Narrowing, ranges: Ranges) -> LoopExpr:
    """What data say of a bound, alone if that never leads beyond what the plan says, which stands in front of it."""
    assert isinstance(bound, Operation)
    planned, found = bound.operands
    within = Operation(operator, (found, planned))
    names = [name for name in variables(way.offset or Number(0)) if name in ranges.known]
    extents = [range(ranges.known[name][0], ranges.known[name][1] + 1) for name in names]
    if math.prod(map(len, extents)) > WARP:
        return found if ranges.decide(within) is True else bound
    cases = (Ranges({**ranges.known, **{n: (v, v) for n, v in zip(names, case, strict=True)}})
             for case in itertools.product(*extents))  # fmt: skip
    return found if all(case.decide(within) is True for case in cases) else bound
