"""Maxima that cancel: the ``m(n)`` of a softmax moves nothing, so its adjoint is 0 and need not be computed.

If one element ``m(n)`` grows by ``t``, a value of the program is multiplied by ``exp(a*t)`` or grows by ``b*t``; both
numbers follow from those of its operands.  Where they are 0 for all outputs, no output depends on ``m``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

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

_ZERO = Fraction(0)


@dataclass(frozen=True, slots=True)
class _Degree:
    """``factor`` is ``a``, ``shift`` is ``b``; one of them is 0.  ``where`` are the subscripts of the ``m`` in it."""

    factor: Fraction = _ZERO
    shift: Fraction = _ZERO
    where: tuple[Expr, ...] | None = None

    @property
    def is_still(self) -> bool:
        return not self.factor and not self.shift


_STILL = _Degree()


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
            degrees[moved] = _Degree(shift=Fraction(1)), tuple(range(len(names)))
            continue
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


def _degree(expr: Expr, degrees: dict[str, tuple[_Degree, tuple[int, ...]]], version: Version) -> _Degree | None:
    """None where it is not known."""
    match expr:
        case Constant() | Index() | Size():
            return _STILL
        case Read():
            known, places = degrees.get(version.reads[expr.tensor], (_STILL, ()))
            inner = [e for s in expr.subscripts for e in walk(s) if isinstance(e, Read)]
            if any(_degree(read, degrees, version) != _STILL for read in inner):
                return None
            if known == _STILL:
                return _STILL
            if expr.boundary is not None:
                return None
            return _Degree(known.factor, known.shift, tuple(expr.subscripts[p] for p in places))
        case Cast(operand=operand) if expr.dtype.is_float:
            return _degree(operand, degrees, version)
        case Unary(op="-"):
            inner_degree = _degree(expr.operand, degrees, version)
            return inner_degree and _Degree(inner_degree.factor, -inner_degree.shift, inner_degree.where)
        case Binary(op="+" | "-" | "*" | "/"):
            lhs, rhs = _degree(expr.lhs, degrees, version), _degree(expr.rhs, degrees, version)
            return None if lhs is None or rhs is None else _combined(expr, lhs, rhs)
        case Call(intrinsic="exp" | "log", arguments=(argument,)):
            degree = _degree(argument, degrees, version)
            if degree is None or degree.is_still:
                return degree
            if expr.intrinsic == "exp":
                return None if degree.factor else _Degree(degree.shift, _ZERO, degree.where)
            return None if degree.shift else _Degree(_ZERO, degree.factor, degree.where)
        case Select():
            branches = [_degree(e, degrees, version) for e in (expr.condition, expr.then, expr.otherwise)]
            chosen, then, otherwise = branches
            if chosen is None or then is None or otherwise is None or not chosen.is_still:
                return None
            return then if then == otherwise else None
        case _:
            reads = [e for e in walk(expr) if isinstance(e, Read)]
            still = all((found := _degree(e, degrees, version)) is not None and found == _STILL for e in reads)
            return _STILL if still else None


def _combined(expr: Binary, lhs: _Degree, rhs: _Degree) -> _Degree | None:
    where = {d.where for d in (lhs, rhs) if d.where is not None}
    if len(where) > 1:
        return None
    place = next(iter(where), None)
    if expr.op in ("+", "-"):
        if lhs.factor != rhs.factor:
            return None
        return _made(lhs.factor, lhs.shift + (rhs.shift if expr.op == "+" else -rhs.shift), place)
    if not lhs.shift and not rhs.shift:
        return _made(lhs.factor + (rhs.factor if expr.op == "*" else -rhs.factor), _ZERO, place)
    if isinstance(expr.rhs, Constant) and rhs.is_still and expr.rhs.value:
        times = Fraction(expr.rhs.value)
        return _Degree(_ZERO, lhs.shift * times if expr.op == "*" else lhs.shift / times, place)
    if expr.op == "*" and isinstance(expr.lhs, Constant) and lhs.is_still:
        return _Degree(_ZERO, rhs.shift * Fraction(expr.lhs.value), place)
    return None


def _made(factor: Fraction, shift: Fraction, where: tuple[Expr, ...] | None) -> _Degree:
    return _Degree(factor, shift, where) if factor or shift else _STILL
