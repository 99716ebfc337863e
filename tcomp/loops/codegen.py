"""``Plan`` to loop IR, through isl's AST generator (Grosser, Verdoolaege and Cohen, TOPLAS 2015)."""

from __future__ import annotations

from dataclasses import dataclass

import islpy as isl

from tcomp.loops.boxes import loops_of_boxes
from tcomp.loops.fulltiles import separate_full_tiles
from tcomp.loops.ir import (
    Block,
    Execute,
    For,
    If,
    Let,
    LoopExpr,
    LoopNode,
    Number,
    Operation,
    Scope,
    Variable,
    substitute,
)
from tcomp.loops.shifting import PART, part_times, shifted_back
from tcomp.mapping.memory.overhang import overhanging
from tcomp.mapping.memory.places import places
from tcomp.mapping.memory.runningagain import shifted_rows
from tcomp.mapping.plan.values import Plan
from tcomp.model.terms.unions import union_map

isl.DEFAULT_CONTEXT.set_ast_build_group_coscheduled(1)
# The iterator of a loop is then the coordinate itself, which a thread may be, and no count of strides.
isl.DEFAULT_CONTEXT.set_ast_build_scale_strides(0)

_OP = isl.ast_expr_op_type

_BINARY = {
    _OP.add: "+",
    _OP.sub: "-",
    _OP.mul: "*",
    _OP.div: "floordiv",
    _OP.fdiv_q: "floordiv",
    _OP.pdiv_q: "floordiv",
    _OP.pdiv_r: "mod",
    _OP.zdiv_r: "mod",
    _OP.min: "min",
    _OP.max: "max",
    _OP.eq: "==",
    _OP.le: "<=",
    _OP.lt: "<",
    _OP.ge: ">=",
    _OP.gt: ">",
    _OP.and_: "&&",
    _OP.and_then: "&&",
    _OP.or_: "||",
    _OP.or_else: "||",
}


def generate_loops(plan: Plan) -> LoopNode:
    """The loops of a plan; statement instances carry the values of all their indices."""
    found = loops_of_boxes(plan.tree, told_marks(plan)) if plan.scop.around is None else None
    return shifted_back(separate_full_tiles(found or loops_of_isl(plan), sides=overhanging(plan)), shifted_rows(plan))


def loops_of_isl(plan: Plan) -> LoopNode:
    """The loops of a plan as isl generates them."""
    places = _Places(plan)
    # What is known of the steps around a piece of a program needs no condition.
    context = isl.Set("{ : }") if plan.scop.around is None else plan.scop.around.values
    build, _keep_alive = isl.AstBuild.from_context(context).set_after_each_mark(places.annotate)
    tree = build.node_from_schedule(plan.tree)
    if places.failure is not None:
        raise places.failure
    return _Reader(places.found).node(tree)


def told_marks(plan: Plan) -> set[str]:
    """The marks at which a tile is declared or dealt to threads: there the values of the band members are asked for."""
    marks = {b.mark for b in plan.buffers.values() if b.lower is not None}
    marks |= {c.mark for c in plan.copies} | {p.lanes for p in plan.phases.values()}
    turns = (n for n, group in enumerate(plan.groups) if group.seen is not None or group.first is not None)
    return marks | {f"turn{number}" for number in turns}


class _Places:
    """The values of the band members around each mark at which a tile is declared or dealt to threads.

    isl leaves out loops that always have one value, so the values are expressed in the loops that exist, through the
    schedule that isl has at the mark.
    """

    def __init__(self, plan: Plan) -> None:
        marks = told_marks(plan)
        chosen = [p for p in places(plan.tree) if p.mark in marks] if marks else []
        self.prefixes = {p.mark: union_map(list(p.prefixes.values())) for p in chosen}
        self.found: list[tuple[LoopExpr, ...]] = []
        self.failure: Exception | None = None

    def annotate(self, node: isl.AstNode, build: isl.AstBuild) -> isl.AstNode:
        """Called by isl, which would swallow an exception: it is kept and raised afterwards."""
        prefix = self.prefixes.get(node.mark_get_id().get_name())
        try:
            if prefix is None:
                return self._numbered(node, ())
            relation = isl.Map.from_union_map(build.get_schedule().reverse().apply_range(prefix))
            values = isl.PwMultiAff.from_map(relation)
            members = range(values.dim(isl.dim_type.out))
            return self._numbered(node, tuple(_expression(build.expr_from_pw_aff(values.get_at(m))) for m in members))
        except Exception as error:  # noqa: BLE001 - isl would lose it, and corrupt its memory
            self.failure = error
            return node

    def _numbered(self, node: isl.AstNode, values: tuple[LoopExpr, ...]) -> isl.AstNode:
        self.found.append(values)
        return node.set_annotation(isl.Id(f"place{len(self.found) - 1}"))


def affine_expressions(corner: isl.MultiAff, around: tuple[LoopExpr, ...]) -> tuple[LoopExpr, ...]:
    """The values of an affine function of the loops around a place."""
    return tuple(_affine(corner.get_at(d), around) for d in range(corner.dim(isl.dim_type.out)))


def quasi_affine_expression(value: isl.PwAff, around: tuple[LoopExpr, ...]) -> LoopExpr:
    """The value of a function in pieces of the loops around a place."""
    kinds, count = isl.dim_type, value.dim(isl.dim_type.in_)
    names = [f"around{d}" for d in range(count)]
    of_parameters = value.move_dims(kinds.param, 0, kinds.in_, 0, count)
    for d, name in enumerate(names):
        of_parameters = of_parameters.set_dim_id(kinds.param, d, isl.Id(name))
    of_parameters = of_parameters.project_domain_on_params()
    build = isl.AstBuild.from_context(of_parameters.domain())
    found = _expression(build.expr_from_pw_aff(of_parameters))
    for name, outer in zip(names, around, strict=False):
        found = substitute(found, name, outer)
    return found


def _affine(aff: isl.Aff, around: tuple[LoopExpr, ...]) -> LoopExpr:
    if aff.dim(isl.dim_type.div):
        return quasi_affine_expression(isl.PwAff.from_aff(aff), around)
    result: LoopExpr = Number(aff.get_constant_val().to_python())
    kinds = isl.dim_type
    steps = [(kinds.param, d, Variable(aff.get_dim_name(kinds.param, d))) for d in range(aff.dim(kinds.param))]
    bands = [(kinds.in_, d, variable) for d, variable in enumerate(around[: aff.dim(kinds.in_)])]
    for kind, d, variable in (*steps, *bands):
        coefficient = aff.get_coefficient_val(kind, d).to_python()
        if coefficient == 0:
            continue
        if isinstance(variable, Operation) and variable.operator == PART:
            variable, coefficient = part_times(variable, coefficient)
        term = variable if coefficient == 1 else Operation("*", (Number(coefficient), variable))
        result = term if result == Number(0) else Operation("+", (term, result))
    return result


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads isl's syntax tree; ``places`` are the annotations on its marks."""

    places: list[tuple[LoopExpr, ...]]

    def node(self, node: isl.AstNode) -> LoopNode:
        match node.get_type():
            case isl.ast_node_type.block:
                children = node.block_get_children()
                return Block(tuple(self.node(children.get_at(i)) for i in range(children.n_ast_node())))
            case isl.ast_node_type.for_:
                return self._loop(node)
            case isl.ast_node_type.if_:
                otherwise = self.node(node.if_get_else_node()) if node.if_has_else_node() else None
                return If(_expression(node.if_get_cond()), self.node(node.if_get_then_node()), otherwise)
            case isl.ast_node_type.mark:
                return self._mark(node)
            case isl.ast_node_type.user:
                call = node.user_get_expr()
                arguments = tuple(_expression(call.get_op_arg(i)) for i in range(1, call.get_op_n_arg()))
                return Execute(call.get_op_arg(0).get_id().get_name(), arguments)
            case other:
                raise AssertionError(f"isl gave an AST node of type {other}")

    def _mark(self, node: isl.AstNode) -> LoopNode:
        around = self.places[int(node.get_annotation().get_name().removeprefix("place"))]
        return Scope(node.mark_get_id().get_name(), around, self.node(node.mark_get_node()))

    def _loop(self, node: isl.AstNode) -> LoopNode:
        iterator = node.for_get_iterator().get_id().get_name()
        lower = _expression(node.for_get_init())
        body = self.node(node.for_get_body())
        if node.for_is_degenerate():
            return Let(iterator, lower, body)
        condition = node.for_get_cond()
        bound = _expression(condition.get_op_arg(1))
        upper = _successor(bound) if condition.get_op_type() == _OP.le else bound
        return For(iterator, lower, upper, node.for_get_inc().get_val().to_python(), body)


def _successor(bound: LoopExpr) -> LoopExpr:
    match bound:
        case Number():
            return Number(bound.value + 1)
        case Operation(operator="min" | "max"):
            return Operation(bound.operator, tuple(_successor(o) for o in bound.operands))
        case Operation(operator="+", operands=(a, Number() as b)):
            return a if b.value == -1 else Operation("+", (a, Number(b.value + 1)))
        case Operation(operator="-", operands=(a, Number() as b)):
            return a if b.value == 1 else Operation("-", (a, Number(b.value - 1)))
        case _:
            return Operation("+", (bound, Number(1)))


def _expression(expr: isl.AstExpr) -> LoopExpr:
    match expr.get_type():
        case isl.ast_expr_type.int:
            return Number(expr.get_val().to_python())
        case isl.ast_expr_type.id:
            return Variable(expr.get_id().get_name())
        case _:
            return _operation(expr)


def _operation(expr: isl.AstExpr) -> LoopExpr:
    operator = expr.get_op_type()
    operands = tuple(_expression(expr.get_op_arg(i)) for i in range(expr.get_op_n_arg()))
    if operator == _OP.minus:
        return Operation("-", (Number(0), operands[0]))
    if operator in (_OP.cond, _OP.select):
        return Operation("?:", operands)
    name = _BINARY[operator]
    result = operands[0]
    for operand in operands[1:]:
        result = Operation(name, (result, operand))
    return result
