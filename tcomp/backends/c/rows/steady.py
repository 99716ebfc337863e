"""Values that all iterations of an innermost loop have alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tcomp.grammar.tree.function import Binary, Call, Cast, Expr, Read, Select, Unary, children, depends_on_data, walk
from tcomp.mapping.plan.operations import indices_in


def steady_values(expr: Expr, is_steady: Callable[[Read], bool], moving: frozenset[str]) -> Iterator[Expr]:
    """The largest parts of an expression that are worth a variable: reads, and what is computed from them.

    ``is_steady`` says whether an iteration reads what the first one reads; ``moving`` are the indices that change.
    Parts are evaluated whatever the data are, and complain of nothing: a quotient of integers is none.
    """
    if _is_one(expr, is_steady, moving):
        yield expr
        return
    match expr:
        case Select():
            yield from steady_values(expr.condition, is_steady, moving)
        case Binary(op="&&" | "||"):
            yield from steady_values(expr.lhs, is_steady, moving)
        case Read(boundary=boundary) if boundary is not None:
            return
        case _:
            for child in children(expr):
                yield from steady_values(child, is_steady, moving)


def _is_one(expr: Expr, is_steady: Callable[[Read], bool], moving: frozenset[str]) -> bool:
    match expr:
        case Read():
            return is_steady(expr)
        case Unary(dtype=dtype) | Call(dtype=dtype) | Cast(dtype=dtype):
            computes = dtype.is_float
        case Binary(dtype=dtype, op=op):
            computes = dtype.is_float and op in ("+", "-", "*", "/", "min", "max")
        case _:
            return False
    reads = [e for e in walk(expr) if isinstance(e, Read)]
    return computes and bool(reads) and all(_is_part(child, is_steady, moving) for child in children(expr))


def _is_part(expr: Expr, is_steady: Callable[[Read], bool], moving: frozenset[str]) -> bool:
    """Whether an operand is the same in all iterations: what reads nothing need only not move."""
    if any(isinstance(e, Read) for e in walk(expr)):
        return _is_one(expr, is_steady, moving)
    return not moving & indices_in(expr) and not depends_on_data(expr)
