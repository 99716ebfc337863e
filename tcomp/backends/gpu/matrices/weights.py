"""Weights of attention that warps round to 16 bits before they multiply: their exponentials need fewer bits, too.

``exp(x)`` takes ten instructions, most of which see to the last bits of a float.  ``2^x`` of a GPU is one, and right to
22 bits; halves have 11.
"""

from __future__ import annotations

import math
from dataclasses import replace

from tcomp.grammar.tree.function import Binary, Call, Constant, Expr, Index, Read, Select, map_children, walk
from tcomp.mapping.machines.atoms import BY_NAME
from tcomp.mapping.plan.values import Plan
from tcomp.model.scop import ScopStatement
from tcomp.values.operators import FLOAT32

_SHORT = ("float16", "bfloat16")


def with_powers_of_two(plan: Plan) -> tuple[Plan, frozenset[str]]:
    """The plan with powers of two for exponentials of rounded weights and of their scales; the statements it is in."""
    weights = _rounded(plan)
    maxima = {r.tensor for s in plan.scop.statements if s.target in weights for r in _reads(s)} - weights
    rounded = {s.name for s in plan.scop.statements if s.target in weights or _scales(s, maxima)}
    changed = {s.name: _powers(s.value) for s in plan.scop.statements if s.name in rounded}
    quick = frozenset(name for name, value in changed.items() if value != plan.scop.by_name[name].value)
    if not quick:
        return plan, quick
    statements = tuple(replace(s, value=changed[s.name]) if s.name in quick else s for s in plan.scop.statements)
    return replace(plan, scop=replace(plan.scop, statements=statements)), quick


def chosen_without_branch(plan: Plan) -> frozenset[str]:
    """The statements that all threads of a row run for it, which begin differently in the first turn.

    As branches the compiler writes all that lies between two of them twice.
    """
    clusters = {phase.cluster for phase in plan.phases.values() if phase.everywhere}
    found = [plan.scop.by_name[name] for number in clusters for name in plan.clusters[number].statements]
    return frozenset(s.name for s in found if _begins_differently(plan, s))


def _begins_differently(plan: Plan, statement: ScopStatement) -> bool:
    value = statement.value
    if (
        not isinstance(value, Select)
        or value.dtype != FLOAT32
        or any(isinstance(e, Read) for e in walk(value.condition))
    ):
        return False
    private = {b.storage for b in plan.buffers.values() if b.space == "private"}
    return {r.tensor for r in _reads(statement)} <= private and statement.kind != "update"


def _rounded(plan: Plan) -> set[str]:
    """Floats that a product of 16 bits takes from the registers of threads."""
    private = {b.storage for b in plan.buffers.values() if b.space == "private"}
    found: set[str] = set()
    for mark, operation in plan.operations.items():
        if operation.kind == "contract" and BY_NAME[operation.atom].kind in _SHORT:
            cluster = plan.clusters[plan.phases[mark].cluster]
            updates = (plan.scop.by_name[name] for name in cluster.statements)
            found |= {r.tensor for s in updates if s.kind == "update" for r in _reads(s)} & private
    return found


def _scales(statement: ScopStatement, maxima: set[str]) -> bool:
    """Whether a statement says how much of a maximum before is left of it."""
    reads = {r.tensor for r in _reads(statement)}
    return isinstance(statement.value, Call) and bool(reads & maxima)


def _reads(statement: ScopStatement) -> list[Read]:
    return [e for e in walk(statement.value) if isinstance(e, Read)]


def _powers(expr: Expr) -> Expr:
    """An expression with ``2^(x log2 e)`` for each ``e^x``; a constant factor of ``x`` is joined with that."""
    if not (isinstance(expr, Call) and expr.intrinsic == "exp" and expr.dtype == FLOAT32):
        return map_children(expr, _powers)
    (power,) = expr.arguments
    factor: Expr = Constant(math.log2(math.e), FLOAT32, expr.span)
    if isinstance(power, Binary) and power.op == "*" and _is_constant(power.rhs):
        factor = Binary("*", power.rhs, factor, FLOAT32, expr.span)
        power = power.lhs
    return replace(expr, intrinsic="exp2", arguments=(Binary("*", power, factor, FLOAT32, expr.span),))


def _is_constant(expr: Expr) -> bool:
    return not any(isinstance(e, Read | Index) for e in walk(expr))
