"""Checked expressions back as syntax, and sums and products that leave out what adds nothing."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from tcomp.grammar.parsing.parser import parse
from tcomp.grammar.ranges.linear import Linear, Rounded
from tcomp.grammar.ranges.polynomials import Polynomial
from tcomp.grammar.ranges.symbolic import Span
from tcomp.grammar.tree import function, syntax
from tcomp.values.operators import FLOAT32, FLOAT64, INTRINSICS, DType

SPELLINGS = {"float32": "float", "float64": "double", "float16": "half", "int32": "int"}
"""What people call the types."""

ZERO, ONE = syntax.Number("0.0"), syntax.Number("1.0")
Expr = syntax.Expr


def name(text: str) -> syntax.Name:
    return syntax.Name(text)


def element(tensor: str, subscripts: tuple[Expr, ...]) -> Expr:
    """``tensor(subscripts)``, or the bare name of a 0-D tensor."""
    return syntax.Apply(name(tensor), subscripts) if subscripts else name(tensor)


def range_text(index: str, span: Span) -> syntax.Range:
    """The range of an index that goes through an interval."""
    return syntax.Range(name(index), span[0].syntax(), (span[1] + 1).syntax())


def to_syntax(expr: function.Expr, renamed: Mapping[str, str]) -> Expr:
    """The text of a checked expression; tensors of ``renamed`` have other names."""
    text: Callable[[function.Expr], Expr] = lambda child: to_syntax(child, renamed)  # noqa: E731
    match expr:
        case function.Constant():
            return constant(expr.value, expr.dtype)
        case function.Index() | function.Size():
            return name(expr.name)
        case function.Read():
            tensor, subscripts = renamed.get(expr.tensor, expr.tensor), tuple(map(text, expr.subscripts))
            if expr.boundary is None:
                return element(tensor, subscripts)
            value = () if expr.boundary.value is None else (text(expr.boundary.value),)
            if value and not expr.dtype.is_float and expr.dtype.name != "int32":
                value = (syntax.Cast(expr.dtype.name, value[0]),)
            return syntax.Boundary(name(expr.boundary.kind), (name(tensor), *value), subscripts)
        case function.Unary():
            return syntax.Unary(expr.op, text(expr.operand))
        case function.Binary(op="min" | "max"):
            return syntax.Apply(name(expr.op), (text(expr.lhs), text(expr.rhs)))
        case function.Binary():
            return syntax.Binary(expr.op, text(expr.lhs), text(expr.rhs))
        case function.Select():
            return syntax.Conditional(text(expr.condition), text(expr.then), text(expr.otherwise))
        case function.Call():
            return syntax.Apply(name(expr.intrinsic), tuple(map(text, expr.arguments)))
        case function.Cast(operand=function.Constant(value=value)) if expr.dtype.is_float:
            return constant(float(value), expr.dtype)
        case function.Cast():
            return syntax.Cast(SPELLINGS.get(expr.dtype.name, expr.dtype.name), text(expr.operand))


def is_double_as_text(expr: function.Expr) -> bool:
    """Whether a double is one as it is written; literals are not, and what is only compared tells no type."""
    if expr.dtype.name != "float64":
        return False
    match expr:
        case function.Read():
            return True
        case function.Cast():
            return not isinstance(expr.operand, function.Constant)
        case function.Select():
            return is_double_as_text(expr.then) or is_double_as_text(expr.otherwise)
        case _:
            return any(map(is_double_as_text, function.children(expr)))


def constant(value: float | int | bool, dtype: DType) -> Expr:
    """A literal; the shortest that gives the value."""
    if dtype.kind == "bool":
        return syntax.Cast("bool", syntax.Number(str(int(value))))
    if value < 0:
        negated = syntax.Unary("-", constant(-value, dtype))
        # A literal of 2147483648 is an int64, also behind a minus.
        is_wider = not dtype.is_float and dtype.bits <= 32 and -value >= 1 << 31
        return syntax.Cast(SPELLINGS.get(dtype.name, dtype.name), negated) if is_wider else negated
    if not dtype.is_float:
        return syntax.Number(str(int(value)))  # a converted literal may still be a float
    if not np.isfinite(value):
        return syntax.Binary("/", ONE if value == value else ZERO, ZERO)
    text = str(float(value)) if dtype == FLOAT64 else str(np.float32(value))
    return syntax.Number(text)


def integer(value: int) -> Expr:
    """A whole number as text."""
    return syntax.Number(str(value)) if value >= 0 else syntax.Unary("-", syntax.Number(str(-value)))


def linear_text(form: Linear) -> Expr:
    """A subscript as text."""
    result: Expr = syntax.Number("0")
    for term, coefficient in form.terms:
        sign = all(number < 0 for _, number in coefficient.terms)
        factor = -coefficient if sign else coefficient
        item = _term_text(term)
        item = item if factor.constant == 1 else syntax.Binary("*", factor.syntax(), item)
        if result == syntax.Number("0"):
            result = syntax.Unary("-", item) if sign else item
        else:
            result = syntax.Binary("-" if sign else "+", result, item)
    if not form.terms:
        return form.constant.syntax()
    offset = form.constant
    if not offset.terms:
        return result
    negative = all(coefficient < 0 for _, coefficient in offset.terms)
    return syntax.Binary("-" if negative else "+", result, (-offset if negative else offset).syntax())


def _term_text(term: str | Rounded) -> Expr:
    if isinstance(term, str):
        return name(term)
    return syntax.Binary("%" if term.remainder else "/", linear_text(term.operand), term.divisor.syntax())


def negated(expr: Expr) -> Expr:
    match expr:
        case syntax.Unary(op="-"):
            return expr.operand
        case _:
            return expr if expr == ZERO else syntax.Unary("-", expr)


def product(lhs: Expr, rhs: Expr) -> Expr:
    """``lhs * rhs``; a literal 0 is the table of derivatives' and makes all 0."""
    if ZERO in (lhs, rhs):
        return ZERO
    if lhs == ONE:
        return rhs
    if rhs == ONE:
        return lhs
    if isinstance(rhs, syntax.Unary) and rhs.op == "-":
        return negated(product(lhs, rhs.operand))
    if isinstance(lhs, syntax.Unary) and lhs.op == "-":
        return negated(product(lhs.operand, rhs))
    if isinstance(rhs, syntax.Binary) and rhs.op == "/" and rhs.lhs == ONE:
        return syntax.Binary("/", lhs, rhs.rhs)
    return syntax.Binary("*", lhs, rhs)


def total(lhs: Expr, rhs: Expr) -> Expr:
    if isinstance(rhs, syntax.Unary) and rhs.op == "-":
        return syntax.Binary("-", lhs, rhs.operand)
    return syntax.Binary("+", lhs, rhs)


def shortest(expr: Expr) -> Expr:
    """A subscript without what cancels: ``i + 9 - 7`` as ``i + 2``, ``D + (d - D)`` as ``d``."""
    if not isinstance(expr, syntax.Binary) or expr.op not in ("+", "-"):
        return expr
    form = polynomial_of(expr)
    added_up = None if form is None else form.syntax()
    return expr if added_up is None or len(str(added_up)) >= len(str(expr)) else added_up


def on_the_left(subscript: Expr, indices: Collection[str]) -> Expr:
    """A subscript of what is written: a bare name there is an index, so one of anything else is ``k + 0``.

    Whatever makes subscripts shorter makes ``k`` of that, so this comes behind it.
    """
    is_bare = isinstance(subscript, syntax.Name) and subscript.name not in indices
    return syntax.Binary("+", subscript, syntax.Number("0")) if is_bare else subscript


def target_subscripts(statement: function.Statement, renamed: Mapping[str, str]) -> tuple[Expr, ...]:
    """The subscripts of what a checked statement writes, as text that stands on the left."""
    return tuple(on_the_left(to_syntax(s, renamed), statement.indices) for s in statement.subscripts)


def polynomial_of(expr: Expr) -> Polynomial | None:
    """None where there is anything but names, integers, sums and products."""
    match expr:
        case syntax.Number() if expr.text.isdigit():
            return Polynomial.of(int(expr.text))
        case syntax.Name():
            return Polynomial.of(expr.name)
        case syntax.Unary(op="-"):
            inner = polynomial_of(expr.operand)
            return None if inner is None else -inner
        case syntax.Binary(op="+" | "-" | "*"):
            lhs, rhs = polynomial_of(expr.lhs), polynomial_of(expr.rhs)
            if lhs is None or rhs is None:
                return None
            return lhs * rhs if expr.op == "*" else lhs + rhs if expr.op == "+" else lhs - rhs
        case _:
            return None


def with_short_subscripts(expr: Expr) -> Expr:
    """An expression whose reads have subscripts without what cancels."""
    expr = with_children(expr, [with_short_subscripts(child) for child in syntax.children(expr)])
    match expr:
        case syntax.Apply() if expr.function.name not in INTRINSICS:
            return replace(expr, arguments=tuple(map(shortest, expr.arguments)))
        case syntax.Boundary():
            return replace(expr, subscripts=tuple(map(shortest, expr.subscripts)))
        case syntax.Binary(op="==" | "<" | "<=" | ">" | ">="):
            return _short_comparison(expr)
        case _:
            return expr


def _short_comparison(expr: syntax.Binary) -> Expr:
    """`N - t < N` as `0 < t`."""
    lhs, rhs = polynomial_of(expr.lhs), polynomial_of(expr.rhs)
    if lhs is None or rhs is None:
        return expr
    terms = (rhs - lhs).terms
    left = Polynomial.total((monomial, -factor) for monomial, factor in terms if factor < 0)
    right = Polynomial.total((monomial, factor) for monomial, factor in terms if factor > 0)
    short = replace(expr, lhs=left.syntax(), rhs=right.syntax())
    return short if len(str(short)) < len(str(expr)) else expr


def conjunction(tests: Sequence[Expr]) -> Expr:
    """Whether all of some tests hold."""
    first, *others = tests
    for other in others:
        first = syntax.Binary("&&", first, other)
    return first


def substitute(expr: Expr, places: Mapping[str, Expr]) -> Expr:
    """The expression with other values of some of its names, all at once; functions and tensors keep theirs."""
    if isinstance(expr, syntax.Name):
        return places.get(expr.name, expr)
    return with_children(expr, [substitute(child, places) for child in syntax.children(expr)])


def with_children(expr: Expr, children: Sequence[Expr]) -> Expr:
    """The expression with other operands, in the order of ``syntax.children``."""
    match expr:
        case syntax.Apply():
            return replace(expr, arguments=tuple(children))
        case syntax.Boundary():
            count = len(expr.subscripts)
            values = children[1 : len(children) - count]
            tensor, *_ = expr.arguments
            return replace(expr, arguments=(tensor, *values), subscripts=tuple(children[len(children) - count :]))
        case syntax.Cast() | syntax.Unary():
            return replace(expr, operand=children[0])
        case syntax.Binary():
            return replace(expr, lhs=children[0], rhs=children[1])
        case syntax.Conditional():
            return replace(expr, condition=children[0], then=children[1], otherwise=children[2])
        case _:
            return expr


def names_in(expr: Expr) -> set[str]:
    """Every name that an expression mentions, functions and tensors included."""
    own = {expr.name} if isinstance(expr, syntax.Name) else set()
    if isinstance(expr, syntax.Apply):
        own.add(expr.function.name)
    return own.union(*(names_in(child) for child in syntax.children(expr)))


@functools.cache
def partials(intrinsic: str, dtype: DType) -> tuple[Expr, ...] | None:
    """The derivatives of an intrinsic by its arguments ``a b c d``, in which ``y`` is its value."""
    texts = INTRINSICS[intrinsic].partials
    return None if texts is None else tuple(_exact(_parsed(text), dtype) for text in texts)


def _parsed(text: str) -> Expr:
    (definition,) = parse(f"def f(float a) -> (o) {{ o = {text} }}")
    (statement,) = syntax.statements(definition.body)
    return statement.value


def _exact(expr: Expr, dtype: DType) -> Expr:
    """Constants of a table: numbers in a float's text, calls of doubles in a double's, for literals are floats."""
    value = _number(expr)
    if isinstance(expr, syntax.Number) or value is None:
        return with_children(expr, [_exact(child, dtype) for child in syntax.children(expr)])
    if dtype != FLOAT64:
        return constant(value, FLOAT32)
    return _with_doubles(expr)


def _number(expr: Expr) -> float | None:
    """The value of an expression of numbers; None where there is a name in it."""
    match expr:
        case syntax.Number():
            return float(expr.text)
        case syntax.Unary(op="-"):
            inner = _number(expr.operand)
            return None if inner is None else -inner
        case syntax.Binary(op="*" | "/"):
            lhs, rhs = _number(expr.lhs), _number(expr.rhs)
            return None if lhs is None or rhs is None else lhs * rhs if expr.op == "*" else lhs / rhs
        case syntax.Apply():
            values = [_number(argument) for argument in expr.arguments]
            known = [np.float64(value) for value in values if value is not None]
            return float(INTRINSICS[expr.function.name].evaluate(*known)) if len(known) == len(values) else None
        case _:
            return None


def _with_doubles(expr: Expr) -> Expr:
    """Literals that are arguments of functions as doubles; what is multiplied with a double becomes one."""
    if isinstance(expr, syntax.Apply):
        arguments = (
            syntax.Cast("double", a) if isinstance(a, syntax.Number | syntax.Unary) and _is_literal(a) else a
            for a in expr.arguments
        )
        return replace(expr, arguments=tuple(map(_with_doubles, arguments)))
    if isinstance(expr, syntax.Cast):
        return expr
    return with_children(expr, [_with_doubles(child) for child in syntax.children(expr)])


def _is_literal(expr: Expr) -> bool:
    return isinstance(expr, syntax.Number) or (isinstance(expr, syntax.Unary) and _is_literal(expr.operand))


def folded(expr: Expr) -> Expr:
    """An expression without comparisons, sums and differences of literals that are exact."""
    expr = with_children(expr, [folded(child) for child in syntax.children(expr)])
    match expr:
        case syntax.Binary(lhs=syntax.Number() as lhs, rhs=syntax.Number() as rhs) if "." in lhs.text + rhs.text:
            a, b = float(np.float32(lhs.text)), float(np.float32(rhs.text))
            if expr.op in ("+", "-"):
                value = a + b if expr.op == "+" else a - b
                return constant(value, FLOAT32) if float(np.float32(value)) == value else expr
            if expr.op in _COMPARISONS:
                return _TRUE if _COMPARISONS[expr.op](a, b) else _FALSE
        case syntax.Conditional(condition=condition) if condition in (_TRUE, _FALSE):
            return expr.then if condition == _TRUE else expr.otherwise
        case syntax.Binary(op="&&") if _FALSE in (expr.lhs, expr.rhs):
            return _FALSE
        case syntax.Binary(op="&&") if _TRUE in (expr.lhs, expr.rhs):
            return expr.rhs if expr.lhs == _TRUE else expr.lhs
        case syntax.Apply(function=syntax.Name(name="pow"), arguments=(base, exponent)) if exponent == ONE:
            return base
    return expr


_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "==": operator.eq, ">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le,
}  # fmt: skip
_TRUE, _FALSE = syntax.Cast("bool", syntax.Number("1")), syntax.Cast("bool", syntax.Number("0"))
