"""Loops of one thread in the form that unrolls: counted from 0 to a number, with a test inside for partial tiles."""

from __future__ import annotations

from dataclasses import replace

import islpy as isl

from tcomp.backends.gpu.memory import registers_of
from tcomp.backends.gpu.writer import KernelWriter
from tcomp.loops.indexing import Ranges
from tcomp.loops.ir import (
    Execute,
    For,
    If,
    Number,
    Operation,
    Variable,
    conjunction,
    flattened,
    substitute_below,
    variables,
    walk,
)


def from_zero(writer: KernelWriter, loop: For, ranges: Ranges) -> For:
    """A loop over the steps of a tile, counted from the first: then its trips are a number, at least in full tiles."""
    lower = ranges.simplify(loop.lower)
    if isinstance(lower, Number) or loop.step != 1:
        return loop
    ends = [ranges.simplify(Operation("-", (end, lower))) for end in flattened(loop.upper, "min")]
    if not any(isinstance(end, Number) for end in ends):
        return loop
    upper = ends[0]
    for end in ends[1:]:
        upper = Operation("min", (upper, end))
    name = writer.unlike(f"{loop.iterator}_part", ranges, loop.body)
    body = substitute_below(loop.body, loop.iterator, Operation("+", (lower, Variable(name))))
    return replace(loop, iterator=name, lower=Number(0), upper=upper, body=body)


def guarded(loop: For, low: int, high: int, ranges: Ranges) -> For:
    """The loop with constant bounds, and a test inside for what its own bounds exclude."""
    i = Variable(loop.iterator)
    inner = ranges.knowing(loop.iterator, low, high - 1)
    tests = [Operation(">=", (i, loop.lower)), Operation("<", (i, loop.upper))]
    kept = [t for t in tests if inner.decide(t) is not True]
    body = loop.body
    if kept:
        body = If(conjunction(kept), body, None)
    return replace(loop, lower=Number(low), upper=Number(high), body=body)


def indexes_registers(writer: KernelWriter, node: For) -> bool:
    """Whether the loop's iterator occurs in the place of an element that the thread keeps in registers."""
    for instance in (n for n in walk(node.body) if isinstance(n, Execute)):
        statement = writer.statements[instance.statement]
        cluster = next(c for c in writer.plan.clusters if statement.name in c.statements)
        touched = {statement.target, *(r.get_tuple_name(isl.dim_type.out) for r in statement.reads)}
        kept = [b for b in writer.plan.buffers.values() if b.storage in touched and registers_of(b) > 0]
        if kept:
            shared = [s.position for s in writer.plan.dealt[cluster.number].shares]
            positions = [*cluster.coordinates[statement.name], *(shared if statement.kind == "update" else [])]
            arguments = [instance.arguments[p] for p in positions]
            if any(node.iterator in variables(a) for a in arguments):
                return True
    return False
