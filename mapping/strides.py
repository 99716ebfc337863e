"""How far apart in memory neighbouring instances touch: the basis for choosing the vector loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tcomp.grammar.function import Binary, Cast, Constant, Expr, Index, Read, Size, Unary, walk
from tcomp.scop import Scop, ScopStatement


def coefficient(expr: Expr, index: str, sizes: Mapping[str, int]) -> int | None:
    """The coefficient of an index in an affine expression; 0 where it does not occur, None if it is not linear."""
    if not any(isinstance(e, Index) and e.name == index for e in walk(expr)):
        return 0
    match expr:
        case Index():
            return 1
        case Cast():
            return coefficient(expr.operand, index, sizes)
        case Unary(op="-"):
            inner = coefficient(expr.operand, index, sizes)
            return None if inner is None else -inner
        case Binary(op="+" | "-"):
            a, b = coefficient(expr.lhs, index, sizes), coefficient(expr.rhs, index, sizes)
            if a is None or b is None:
                return None
            return a + b if expr.op == "+" else a - b
        case Binary(op="*"):
            return _scaled(expr.lhs, expr.rhs, index, sizes)
        case _:
            return None


def _scaled(lhs: Expr, rhs: Expr, index: str, sizes: Mapping[str, int]) -> int | None:
    for factor, other in ((lhs, rhs), (rhs, lhs)):
        value = constant_value(factor, sizes)
        inner = coefficient(other, index, sizes)
        if value is not None and inner is not None:
            return value * inner
    return None


def constant_value(expr: Expr, sizes: Mapping[str, int]) -> int | None:
    """The value of a literal, size or const parameter, casts included; None for anything else."""
    match expr:
        case Constant(value=int() as value):
            return int(value)
        case Size():
            return sizes[expr.name]
        case Cast():
            return constant_value(expr.operand, sizes)
        case _:
            return None


def access_stride(
    scop: Scop, storage: str, subscripts: tuple[Expr, ...], index: str, sizes: Mapping[str, int]
) -> int | None:
    """Elements between the accesses of neighbouring values of ``index``; None where that is not constant."""
    total = 0
    for subscript, stride in zip(subscripts, scop.storages[storage].strides, strict=True):
        step = coefficient(subscript, index, sizes)
        if step is None:
            return None
        total += step * stride
    return total


def strides_along(scop: Scop, statement: ScopStatement, index: str, sizes: Mapping[str, int]) -> Iterator[int | None]:
    """The stride of the write, then of each read."""
    yield access_stride(scop, statement.target, statement.subscripts, index, sizes)
    for expr in walk(statement.value):
        if isinstance(expr, Read):
            yield access_stride(scop, expr.tensor, expr.subscripts, index, sizes)
