"""Quasi-affine expressions and conditions as isl objects.

Both functions of the contract return None where an expression is not affine: it reads a tensor, multiplies two
indices, divides by an index, or passes through a float.
"""

from __future__ import annotations

from collections.abc import Mapping

import islpy as isl

from tcomp.grammar.tree.forms import Atom, Condition, Form, to_condition, to_form
from tcomp.grammar.tree.function import Binary, Expr, Unary

_WORD = 1 << 62


def step_parameter(index: str) -> str:
    """What isl and C call the index of a block of steps around a piece of a program, where it is a parameter."""
    return f"step_{index}"


def to_pw_aff(expr: Expr, space: isl.Space, sizes: Mapping[str, int]) -> isl.PwAff | None:
    """The expression as a function on ``space``, whose set dimensions are named after the index variables.

    Args:
        expr: an integer expression; ``/`` and ``%`` are floor division and its remainder.
        space: a set space; an index that it does not name, nor has as a parameter, makes the expression not affine.
        sizes: the value of every size symbol and const parameter.

    Returns:
        None where the expression is not quasi-affine.
    """
    form = to_form(expr, sizes)
    return None if form is None else form_to_pw_aff(form, space)


def form_to_pw_aff(form: Form, space: isl.Space) -> isl.PwAff | None:
    """A form as a function on ``space``; None where it mentions an index that the space does not name."""
    aff = isl.Aff.zero_on_domain(isl.LocalSpace.from_space(space))
    if form.constant:
        aff = aff.set_constant_val(to_val(form.constant, space))
    atoms: list[isl.PwAff] = []
    for term, coefficient in form.terms:
        if isinstance(term, Atom):
            value = _atom_to_pw_aff(term, space)
            if value is None:
                return None
            atoms.append(value.scale_val(to_val(coefficient, space)))
            continue
        position, kind = space.find_dim_by_name(isl.dim_type.set, term), isl.dim_type.in_
        if position < 0:
            position, kind = space.find_dim_by_name(isl.dim_type.param, step_parameter(term)), isl.dim_type.param
        if position < 0:
            return None
        aff = aff.set_coefficient_val(kind, position, to_val(coefficient, space))
    result = isl.PwAff.from_aff(aff)
    for value in atoms:
        result = result.add(value)
    return result


def _atom_to_pw_aff(atom: Atom, space: isl.Space) -> isl.PwAff | None:
    operands: list[isl.PwAff] = []
    for operand in atom.operands:
        value = form_to_pw_aff(operand, space)
        if value is None:
            return None
        operands.append(value)
    match atom.op:
        case "/":
            return operands[0].scale_down_val(to_val(atom.divisor, space)).floor()
        case "%":
            return operands[0].mod_val(to_val(atom.divisor, space))
        case "min":
            return operands[0].min(operands[1])
        case "max":
            return operands[0].max(operands[1])
        case "select":
            assert atom.condition is not None
            chosen = condition_to_set(atom.condition, space)
            if chosen is None:
                return None
            then, otherwise = operands
            return then.intersect_domain(chosen).union_add(otherwise.subtract_domain(chosen))


def to_set(condition: Expr, space: isl.Space, sizes: Mapping[str, int]) -> isl.Set | None:
    """The points of ``space`` where a condition holds, or None where the condition is not affine."""
    affine = to_condition(condition, sizes)
    return None if affine is None else condition_to_set(affine, space)


def condition_to_set(condition: Condition, space: isl.Space) -> isl.Set | None:
    """The points where an affine condition holds; None where it mentions an index that the space does not name."""
    if condition.form is not None:
        value = form_to_pw_aff(condition.form, space)
        if value is None:
            return None
        match condition.op:
            case "==":
                return value.zero_set()
            case "!=":
                return value.non_zero_set()
            case _:
                return value.nonneg_set()
    result = isl.Set.empty(space) if condition.op == "||" else isl.Set.universe(space)
    for operand in condition.operands:
        points = condition_to_set(operand, space)
        if points is None:
            return None
        match condition.op:
            case "!":
                result = points.complement()
            case "||":
                result = result.union(points)
            case _:
                result = result.intersect(points)
    return result


def where_may_hold(condition: Expr, truth: bool, space: isl.Space, sizes: Mapping[str, int]) -> isl.Set:
    """A superset of the points of ``space`` where a condition is ``truth``.

    Exact for affine conditions; the affine parts of other conditions still count, so ``i > 0 && A(i) > 0`` gives
    ``i > 0`` for True and every point for False.
    """
    holds = to_set(condition, space, sizes)
    if holds is not None:
        return holds if truth else holds.complement()
    match condition:
        case Unary(op="!"):
            return where_may_hold(condition.operand, not truth, space, sizes)
        case Binary(op="&&" | "||"):
            lhs = where_may_hold(condition.lhs, truth, space, sizes)
            rhs = where_may_hold(condition.rhs, truth, space, sizes)
            return lhs.intersect(rhs) if (condition.op == "&&") == truth else lhs.union(rhs)
        case _:
            return isl.Set.universe(space)


def to_val(value: int, space: isl.Space) -> isl.Val:
    """An isl value of any magnitude in the context of ``space``."""
    context = space.get_ctx()
    return isl.Val(value, context) if -_WORD < value < _WORD else isl.Val(str(value), context)


def extremes(value: isl.PwAff, points: isl.Set) -> tuple[int, int]:
    """The least and the greatest value of a function at some points, of which there are any.

    The image is asked: isl looks for extrema of functions of integers only, and where points satisfy an equation as
    ``i = 2*p`` it knows ``p`` as ``i / 2``.
    """
    image = isl.Map.from_pw_aff(value).intersect_domain(points).range()
    return image.dim_min_val(0).to_python(), image.dim_max_val(0).to_python()
