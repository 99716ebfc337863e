"""Loops of one thread over ranges whose ends data give."""

from __future__ import annotations

from dataclasses import replace

from tcomp.backends.gpu.statements import named_indices, speller
from tcomp.backends.gpu.words.spelling import expression_text
from tcomp.backends.gpu.writer import Body, KernelWriter
from tcomp.loops.indexing import Ranges
from tcomp.loops.ir import For, Variable
from tcomp.loops.narrowing import Narrowing, narrowed_bounds


def range_loop(writer: KernelWriter, loop: For, way: Narrowing, depth: int, ranges: Ranges, body: Body) -> None:
    """A loop from one end of a range to the other, both checked in front of it, and cut to what there is."""
    own = speller(writer, way.call, ranges)
    index = writer.program.dialect.index
    lower, upper, order = own.range_ends(way.within)
    first, end = (writer.unlike(f"{loop.iterator}_{name}", ranges, loop) for name in ("first", "end"))
    bounds = narrowed_bounds(way, lower, upper)
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
