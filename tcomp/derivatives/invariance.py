"""Maxima that cancel: the ``m(n)`` of a softmax moves nothing, so its adjoint is 0 and need not be computed.

If one element ``m(n)`` grows by ``t``, a value of the program is multiplied by ``exp(a*t)`` or grows by ``b*t``; both
numbers follow from those of its operands, as multiples of constants such as ``rsqrt(D)``.  Where they are 0 for all
outputs, no output depends on ``m``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from tcomp.derivatives.text import to_syntax
from tcomp.derivatives.versions import Version
from tcomp.grammar.tree.function import (
    Binary,
    Call,
    Cast,
    Constant,
    Expr,
    Function,
    Index,
    Read,
    Select,
    Size,
    Statement,
    Unary,
    walk,
)

Sum = tuple[tuple[str, Fraction], ...]
"""Multiples of constants, which are written as text; empty for 0."""

_ZERO: Sum = ()


@dataclass(frozen=True, slots=True)
class _Degree:
    """``factor`` is ``a``, ``shift`` is ``b``; one of them is 0.  ``where`` are the subscripts of the ``m`` in it."""

    factor: Sum = _ZERO
    shift: Sum = _ZERO
    where: tuple[Expr, ...] | None = None

    @property
    def is_still(self) -> bool:
        return not self.factor and not self.shift


_STILL = _Degree()

_Degrees = Mapping[str, tuple[_Degree, tuple[int, ...]]]
"""By version; beside each which of its dimensions are those of ``m``."""


def shifts_that_cancel(function: Function, versions: Sequence[Version]) -> set[str]:
    """The versions that are results of ``max`` or ``min`` and on which no output depends."""
    return {
        version.name
        for version, statement in zip(versions, function.statements, strict=True)
        if statement.reduction in ("max", "min")
        and version.is_only_write
        and function.tensors[version.tensor].role == "temporary"
        and _cancels(function, versions, version.name)
    }


def _cancels(function: Function, versions: Sequence[Version], moved: str) -> bool:
    degrees: dict[str, tuple[_Degree, tuple[int, ...]]] = {}
    finals = {version.tensor: version.name for version in versions}
    for version, statement in zip(versions, function.statements, strict=True):
        names = [s.name if isinstance(s, Index) else None for s in statement.subscripts]
        if version.name == moved:
            degrees[moved] = _Degree(shift=(("", Fraction(1)),)), tuple(range(len(names)))
            continue
        if version.base is not None:
            return False
        degree = _reduced(statement, _degree(statement.value, degrees, version))
        if degree is None:
            return False
        places = [names.index(s.name) if isinstance(s, Index) and s.name in names else None for s in degree.where or ()]
        known = tuple(p for p in places if p is not None)
        if len(known) < len(places):
            return False
        own = _Degree(degree.factor, degree.shift), known
        if degrees.setdefault(version.name, own) != own:
            return False
    outputs = [degrees[finals[t.name]][0] for t in function.outputs if t.name in finals]
    return all(degree.is_still for degree in outputs)


def _reduced(statement: Statement, degree: _Degree | None) -> _Degree | None:
    if degree is None or statement.reduction is None or degree.is_still:
        return degree
    if statement.reduction == "+" and statement.initialise and not degree.shift:
        return degree
    return degree if statement.reduction in ("max", "min") and statement.initialise else None


def _degree(expr: Expr, degrees: _Degrees, version: Version) -> _Degree | None:
    """None where it is not known."""
    match expr:
        case Constant() | Index() | Size():
            return _STILL
        case Read():
            return _degree_of_read(expr, degrees, version)
        case Cast(operand=operand) if expr.dtype.is_float:
            return _degree(operand, degrees, version)
        case Unary(op="-"):
            inner = _degree(expr.operand, degrees, version)
            return inner and _Degree(inner.factor, _times(inner.shift, Fraction(-1)), inner.where)
        case Binary(op="+" | "-" | "*" | "/"):
            lhs, rhs = _degree(expr.lhs, degrees, version), _degree(expr.rhs, degrees, version)
            return None if lhs is None or rhs is None else _combined(expr, lhs, rhs)
        case Call(intrinsic="exp" | "log", arguments=(argument,)):
            degree = _degree(argument, degrees, version)
            return degree if degree is None or degree.is_still else _degree_of_call(expr.intrinsic, degree)
        case Select():
            return _degree_of_choice(expr, degrees, version)
        case _:
            reads = [e for e in walk(expr) if isinstance(e, Read)]
            return _STILL if all(_degree(e, degrees, version) == _STILL for e in reads) else None


def _degree_of_read(read: Read, degrees: _Degrees, version: Version) -> _Degree | None:
    known, places = degrees.get(version.reads[read.tensor], (_STILL, ()))
    inner = [e for s in read.subscripts for e in walk(s) if isinstance(e, Read)]
    if any(_degree(e, degrees, version) != _STILL for e in inner):
        return None
    if known == _STILL:
        return _STILL
    if read.boundary is not None:
        return None
    return _Degree(known.factor, known.shift, tuple(read.subscripts[p] for p in places))


def _degree_of_call(intrinsic: str, argument: _Degree) -> _Degree | None:
    """Of the exponential or the logarithm of something that moves."""
    if intrinsic == "exp":
        return None if argument.factor else _Degree(argument.shift, _ZERO, argument.where)
    return None if argument.shift else _Degree(_ZERO, argument.factor, argument.where)


def _degree_of_choice(expr: Select, degrees: _Degrees, version: Version) -> _Degree | None:
    branches = [_degree(e, degrees, version) for e in (expr.condition, expr.then, expr.otherwise)]
    chosen, then, otherwise = branches
    if chosen is None or then is None or otherwise is None or not chosen.is_still:
        return None
    if _is_zero(expr.otherwise) and not then.shift:
        return then
    if _is_zero(expr.then) and not otherwise.shift:
        return otherwise
    return then if then == otherwise else None


def _is_zero(expr: Expr) -> bool:
    return isinstance(expr, Constant) and not expr.value


def _combined(expr: Binary, lhs: _Degree, rhs: _Degree) -> _Degree | None:
    where = {d.where for d in (lhs, rhs) if d.where is not None}
    if len(where) > 1:
        return None
    place = next(iter(where), None)
    sign = Fraction(1) if expr.op in ("+", "*") else Fraction(-1)
    if expr.op in ("+", "-"):
        return _made(lhs.factor, _plus(lhs.shift, rhs.shift, sign), place) if lhs.factor == rhs.factor else None
    if not lhs.shift and not rhs.shift:
        return _made(_plus(lhs.factor, rhs.factor, sign), _ZERO, place)
    if rhs.is_still and _is_constant(expr.rhs):
        return _Degree(_ZERO, _scaled(lhs.shift, expr.rhs, expr.op), place)
    if expr.op == "*" and lhs.is_still and _is_constant(expr.lhs):
        return _Degree(_ZERO, _scaled(rhs.shift, expr.lhs, "*"), place)
    return None


def _made(factor: Sum, shift: Sum, where: tuple[Expr, ...] | None) -> _Degree:
    return _Degree(factor, shift, where) if factor or shift else _STILL


def _times(terms: Sum, number: Fraction) -> Sum:
    return tuple((constant, value * number) for constant, value in terms)


def _plus(first: Sum, second: Sum, sign: Fraction) -> Sum:
    found = dict(first)
    for constant, value in _times(second, sign):
        found[constant] = found.get(constant, Fraction(0)) + value
    return tuple(sorted((constant, value) for constant, value in found.items() if value))


def _is_constant(expr: Expr) -> bool:
    """Whether a value is the same everywhere, and not 0."""
    if isinstance(expr, Constant):
        return bool(expr.value)
    return not any(isinstance(e, Read | Index) for e in walk(expr))


def _scaled(terms: Sum, by: Expr, op: str) -> Sum:
    if isinstance(by, Constant):
        number = Fraction(by.value)
        return _times(terms, number if op == "*" else 1 / number)
    return tuple(sorted((f"{constant} {op} {to_syntax(by, {})}", value) for constant, value in terms))
