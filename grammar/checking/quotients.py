"""Warning of what is not what was meant: ``1/2``, which is 0, floats that overflow, and ``0 < i < 2``."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from tcomp.errors import Span
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.diagnostics import Report
from tcomp.grammar.tree.function import Binary, Cast, Constant, Expr, Read, Select, Size, Unary, children, walk
from tcomp.values.operators import FLOAT32


def warn_of_lost_fractions(value: Expr, report: Report) -> None:
    """Warn of each integer quotient of a number in the text that loses its fraction and then becomes a float."""
    warned: set[Span] = set()
    for node in walk(value):
        if not isinstance(node, Cast) or not node.dtype.is_float or not node.operand.dtype.is_integer:
            continue
        for quotient in _arithmetic(node.operand):
            if _loses_a_fraction(quotient) and quotient.span not in warned:
                warned.add(quotient.span)
                text = report.source.text[quotient.span.start : quotient.span.end]
                report.warn(
                    f"`{text}` is a quotient of integers, which is rounded down before it becomes a float",
                    quotient.span,
                    f"write `{_with_a_point(text)}`",
                )


def warn_of_rounded_means(value: Expr, report: Report) -> None:
    """Warn of a sum of integers of which each was divided by a size: a mean of them loses as many fractions."""
    quotient = _plain(value)
    if (
        isinstance(quotient, Binary)
        and quotient.op == "/"
        and quotient.dtype.is_integer
        and isinstance(_plain(quotient.rhs), Size)
        and any(isinstance(e, Read) for e in _arithmetic(quotient.lhs))
    ):
        text = report.source.text[quotient.span.start : quotient.span.end]
        report.warn(
            f"`{text}` is a quotient of integers, which is rounded down before it is summed",
            quotient.span,
            "sum first and divide the sum, or divide floats",
        )


def _with_a_point(quotient: str) -> str:
    """The quotient with a float as its dividend."""
    return re.sub(r"\d+", r"\g<0>.0", quotient, count=1)


def _arithmetic(expr: Expr) -> Iterator[Expr]:
    """What the value of an integer is computed from, but for subscripts and conditions."""
    yield expr
    match expr:
        case Binary() | Unary():
            for child in children(expr):
                yield from _arithmetic(child)
        case Select():
            yield from _arithmetic(expr.then)
            yield from _arithmetic(expr.otherwise)
        case Cast() if expr.operand.dtype.is_integer:
            yield from _arithmetic(expr.operand)


def _loses_a_fraction(expr: Expr) -> bool:
    if not isinstance(expr, Binary) or expr.op != "/":
        return False
    dividend, divisor = _number(expr.lhs), _number(expr.rhs)
    if dividend is None:
        return False
    if divisor is None:
        return isinstance(_plain(expr.rhs), Size) and dividend != 0
    return divisor != 0 and dividend % divisor != 0


def _plain(expr: Expr) -> Expr:
    while isinstance(expr, Cast) and expr.operand.dtype.is_integer:
        expr = expr.operand
    return expr


def _number(expr: Expr) -> int | None:
    """The value of an integer that is written as a number."""
    expr = _plain(expr)
    if isinstance(expr, Unary) and expr.op == "-":
        operand = _number(expr.operand)
        return None if operand is None else -operand
    return int(expr.value) if isinstance(expr, Constant) else None


def warn_of_infinities(expr: Expr, report: Report) -> None:
    """Warn of numbers that a float32 cannot hold, where nothing beside them makes them doubles."""
    for node in walk(expr):
        if isinstance(node, Constant) and node.dtype == FLOAT32 and node.value == math.inf:
            report.warn("this number is too large for float32 and becomes infinity", node.span)


_ORDER = ("<", "<=", ">", ">=")


def warn_of_chains(expr: syntax.Expr, report: Report) -> None:
    """Warn of ``0 < i < 2``, which compares a truth value, unless it is written with parentheses."""
    stack = [expr]
    while stack:
        node = stack.pop()
        stack += syntax.children(node)
        if not isinstance(node, syntax.Binary) or node.op not in _ORDER:
            continue
        first = node.lhs
        text = report.source.text
        if (
            isinstance(first, syntax.Binary)
            and first.op in _ORDER
            and text[first.span.start : first.span.start + 1] != "("
        ):
            whole, inner = (text[n.span.start : n.span.end] for n in (node, first))
            message = f"comparisons do not chain: `{whole}` compares the truth value `{inner}`"
            report.warn(message, node.span, f"write `{first} && {first.rhs} {node.op} {node.rhs}`")
