"""Subscripts that depend on data but not on the innermost loop: they are computed and checked once, in front of it."""

from __future__ import annotations

from collections.abc import Iterator

from tcomp.backends.spelling import Gather
from tcomp.grammar.tree.function import Binary, Expr, Index, Read, Select, children, depends_on_data, walk
from tcomp.model.scop import Scop, ScopStatement


def steady_gathers(scop: Scop, statement: ScopStatement, moving: frozenset[str]) -> tuple[Gather, ...]:
    """The data-dependent subscripts that every instance of ``statement`` uses and that no ``moving`` index changes.

    Those inside of others come first.
    """
    found: dict[Gather, None] = {}
    inside = [read for subscript in statement.subscripts for read in unconditional_reads(subscript)]
    accesses = [(r.tensor, r.subscripts) for r in (*inside, *unconditional_reads(statement.value))]
    for tensor, subscripts in (*accesses, (statement.target, statement.subscripts)):
        for d, subscript in enumerate(subscripts):
            names = {e.name for e in walk(subscript) if isinstance(e, Index)}
            if depends_on_data(subscript) and not names & moving and scop.storages[tensor].box.extent[d] > 0:
                found[Gather(tensor, d, subscript)] = None
    return tuple(found)


def all_gathers(statement: ScopStatement) -> frozenset[Gather]:
    """All data-dependent subscripts of a statement."""
    reads = [e for x in (statement.value, *statement.subscripts) for e in walk(x) if isinstance(e, Read)]
    accesses = [(statement.target, statement.subscripts), *((r.tensor, r.subscripts) for r in reads)]
    return frozenset(Gather(t, d, s) for t, own in accesses for d, s in enumerate(own) if depends_on_data(s))


def unconditional_reads(expr: Expr) -> Iterator[Read]:
    """Reads that are evaluated whatever the data are, and whose subscripts must be inside the tensor."""
    match expr:
        case Select():
            yield from unconditional_reads(expr.condition)
        case Binary(op="&&" | "||"):
            yield from unconditional_reads(expr.lhs)
        case _:
            for child in children(expr):
                yield from unconditional_reads(child)
            if isinstance(expr, Read) and expr.boundary is None:
                yield expr
