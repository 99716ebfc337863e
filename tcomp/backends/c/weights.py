"""Exponentials of weights that are relative to the maximum of a part: none is above 1.

What keeps powers from overflowing is left out, and those below the least normal number are 0: a row has weights of 1.
"""

from __future__ import annotations

from dataclasses import replace

from tcomp.grammar.tree.function import Binary, Call, Expr, Read, map_children, walk
from tcomp.mapping.plan.values import Plan
from tcomp.values.operators import FLOAT32


def with_exponentials_of_weights(plan: Plan) -> Plan:
    """The plan with these functions where ``mapping/rescaling/parts.py`` has weights of parts."""
    left = frozenset[str]().union(*(done.storages for done in plan.rescaled))
    if not left:
        return plan
    statements = tuple(replace(s, value=_changed(s.value, left)) for s in plan.scop.statements)
    return replace(plan, scop=replace(plan.scop, statements=statements))


def _changed(expr: Expr, left: frozenset[str]) -> Expr:
    if isinstance(expr, Call) and expr.intrinsic == "exp" and expr.dtype == FLOAT32:
        score = _score(expr.arguments[0], left)
        if score is not None and _is_exact(score):
            return replace(expr, intrinsic="exp_of_weight")
    return map_children(expr, lambda child: _changed(child, left))


def _score(expr: Expr, left: frozenset[str]) -> Expr | None:
    """What is less the maximum of a part, which is among what parts leave, times what is known to be positive."""
    if not isinstance(expr, Binary):
        return None
    if expr.op == "-" and isinstance(expr.rhs, Read) and expr.rhs.tensor in left:
        return expr.lhs
    found = _score(expr.lhs, left) if expr.op in ("*", "/") else None
    return _score(expr.rhs, left) if found is None and expr.op == "*" else found


def _is_exact(score: Expr) -> bool:
    """Whether a score is the same number wherever it is computed: no compiler fuses a product with what follows it."""
    floats = (e for e in walk(score) if isinstance(e, Call | Binary) and e.dtype.is_float)
    return not any(isinstance(e, Call) or e.op == "*" for e in floats)
