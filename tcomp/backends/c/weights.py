"""Exponentials of weights that are relative to the maximum of a part: none is above 1.

What keeps powers from overflowing is left out, and those below the least normal number are 0: a row has weights of 1.
A factor that is known goes into the function, which takes powers of 2: no product is left to be computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tcomp.errors import SourceText
from tcomp.grammar.tree.function import Binary, Call, Cast, Constant, Expr, Read, Size, map_children, walk
from tcomp.mapping.plan.values import Plan
from tcomp.model.evaluation import Frame, evaluate
from tcomp.values.operators import FLOAT32, FLOAT64

LEAST_FACTOR = 2.0**-60
"""Factors from here to its reciprocal neither overflow nor lose digits with log2(e)."""


def with_exponentials_of_weights(plan: Plan) -> Plan:
    """The plan with these functions where ``mapping/rescaling/parts.py`` has weights of parts."""
    left = frozenset[str]().union(*(done.storages for done in plan.rescaled))
    if not left:
        return plan
    statements = tuple(replace(s, value=_changed(s.value, left, plan.scop.sizes)) for s in plan.scop.statements)
    return replace(plan, scop=replace(plan.scop, statements=statements))


def _changed(expr: Expr, left: frozenset[str], sizes: Mapping[str, int]) -> Expr:
    if isinstance(expr, Call) and expr.intrinsic == "exp" and expr.dtype == FLOAT32:
        score = _score(expr.arguments[0], left)
        if score is not None and _is_exact(score):
            scaled = _scaled(expr.arguments[0], left, sizes)
            if scaled is not None:
                return replace(expr, intrinsic="exp_of_scaled_weight", arguments=scaled)
            return replace(expr, intrinsic="exp_of_weight")
    return map_children(expr, lambda child: _changed(child, left, sizes))


def _scaled(exponent: Expr, left: frozenset[str], sizes: Mapping[str, int]) -> tuple[Expr, Expr] | None:
    """A difference of a score and a maximum, and what it is multiplied by, a double; None if there is no such factor.

    The factor is made of constants and sizes, and far from where floats end.
    """
    if not isinstance(exponent, Binary) or exponent.op not in ("*", "/"):
        return None
    difference, factor = exponent.lhs, exponent.rhs
    if exponent.op == "*" and not _is_difference(difference, left):
        difference, factor = factor, difference
    if not _is_difference(difference, left) or factor.dtype != FLOAT32 or not _is_moderate(factor, sizes):
        return None
    factor = Cast(factor, FLOAT64, factor.span)
    if exponent.op == "/":
        factor = Binary("/", Constant(1.0, FLOAT64, factor.span), factor, FLOAT64, factor.span)
    return difference, factor


def _is_difference(expr: Expr, left: frozenset[str]) -> bool:
    """Whether a maximum of a part, which is among what parts leave, is subtracted in an expression."""
    return isinstance(expr, Binary) and expr.op == "-" and isinstance(expr.rhs, Read) and expr.rhs.tensor in left


def _is_moderate(factor: Expr, sizes: Mapping[str, int]) -> bool:
    if not all(isinstance(e, Constant | Size | Cast | Binary | Call) for e in walk(factor)):
        return False
    return LEAST_FACTOR <= float(evaluate(factor, Frame({}, sizes, {}, SourceText("")))) <= 1 / LEAST_FACTOR


def _score(expr: Expr, left: frozenset[str]) -> Expr | None:
    """What is less the maximum of a part, which is among what parts leave, times what is known to be positive."""
    if not isinstance(expr, Binary):
        return None
    if _is_difference(expr, left):
        return expr.lhs
    found = _score(expr.lhs, left) if expr.op in ("*", "/") else None
    return _score(expr.rhs, left) if found is None and expr.op == "*" else found


def _is_exact(score: Expr) -> bool:
    """Whether a score is the same number wherever it is computed: no compiler fuses a product with what follows it."""
    floats = (e for e in walk(score) if isinstance(e, Call | Binary) and e.dtype.is_float)
    return not any(isinstance(e, Call) or e.op == "*" for e in floats)
