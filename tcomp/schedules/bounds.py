"""Between which values the loops of a schedule run, and on what conditions, as texts in the names of loops around."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import islpy as isl

from tcomp.model.islbounds import attempted
from tcomp.model.terms.unions import map_from_text
from tcomp.schedules.expressions import Expression, Name, Negative, Quotient, Rest, Sum, as_counted
from tcomp.schedules.placing import Placing, in_step
from tcomp.schedules.stages import Loop, Stage, loop_map
from tcomp.schedules.state import State

MOST_OPERATIONS = 200_000
"""What isl may do for the bounds of one loop, or for one condition: some tenths of a second."""

_OP, _SET, _PARAM = isl.ast_expr_op_type, isl.dim_type.set, isl.dim_type.param
_TESTS = {_OP.eq: "==", _OP.le: "<=", _OP.lt: "<", _OP.ge: ">=", _OP.gt: ">"}
_JOINED = {_OP.and_: "and", _OP.and_then: "and", _OP.or_: "or", _OP.or_else: "or"}
_PARTS = {_OP.div: "/", _OP.fdiv_q: "/", _OP.pdiv_q: "/", _OP.pdiv_r: " mod ", _OP.zdiv_r: " mod "}


@dataclass(frozen=True, slots=True)
class Bounds:
    """A loop from ``low`` up to but not including ``high``, and what must hold for an iteration, if anything must;
    where that is not ``known``, it runs at most so far."""

    low: str
    high: str
    step: int = 1
    condition: str = ""
    known: bool = True


class Runs:
    """The iterations of all loops of a state, each loop counted as its steps made it."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.placed = Placing(state).placed
        self._sets: dict[tuple[str, str], isl.Set] = {}

    def base(self, stage: Stage) -> int:
        """Loops of other stages around one that are not its own."""
        return self.placed[stage.name].depth - in_step(self.state, stage)

    def named(self, stage: Stage, depth: int) -> list[tuple[str, str]]:
        """Stage and loop for each of the outermost ``depth`` loops around what a stage runs."""
        around = self.placed[stage.name].depth
        own = [(stage.name, loop.name) for loop in stage.loops[in_step(self.state, stage) :]]
        if stage.place is None:
            return own[:depth]
        return [*self.named(self.state.stage(stage.place.consumer), around), *own][:depth]

    def of(self, stage: Stage, statements: Iterable[str], depth: int) -> isl.Set:
        """The iterations of the outermost ``depth`` loops in which some statements of a stage run."""
        every = (self._all(stage, s).project_out(_SET, depth, self._rank(stage, s) - depth) for s in statements)
        return _union(every, depth)

    def within(self, stage: Stage, depth: int) -> isl.Set:
        """Those in which anything runs that is in so many loops, of a stage or of others inside it."""
        found = [self.of(stage, [s], depth) for s in stage.statements if self._rank(stage, s) >= depth]
        for inner in self.state.inside(stage.name):
            if self.placed[inner.name].depth >= depth:
                found.append(self.within(inner, depth))
        return _union(found, depth)

    def _rank(self, stage: Stage, statement: str) -> int:
        return int(self._all(stage, statement).dim(_SET))

    def _all(self, stage: Stage, statement: str) -> isl.Set:
        """The values of all loops in which a statement runs."""
        if (stage.name, statement) not in self._sets:
            s, placed = self.state.scop.by_name[statement], self.placed[stage.name]
            loops = stage.loops if s.kind in ("update", "assign") else stage.loops[: stage.shared]
            values = [loop.value for loop in loops[in_step(self.state, stage) :]]
            around = placed.around[statement]
            if placed.depth:
                around = around.apply_range(self._counted(stage, placed.depth))
            own = loop_map(s, values, placed.domains[statement], placed.rank)
            self._sets[stage.name, statement] = around.flat_range_product(own).range().coalesce()
        return self._sets[stage.name, statement]

    def _counted(self, stage: Stage, depth: int) -> isl.Map:
        """The values that a plan gives to the loops around a stage, to those that the loops count."""
        texts: list[str] = []
        chain: list[Stage] = []
        while stage.place is not None:
            stage = self.state.stage(stage.place.consumer)
            chain.append(stage)
        for consumer in reversed(chain):
            base, first = self.base(consumer), in_step(self.state, consumer)
            values = [loop.value for loop in consumer.loops]
            for position in range(first, len(values)):
                outer = {value: texts[base + d] for d, value in enumerate(values[:position])}
                texts[base + position :] = [as_counted(values[position], f"o{base + position}", outer)]
        inputs = ", ".join(f"o{d}" for d in range(depth))
        return map_from_text(f"{{ [{inputs}] -> [{', '.join(texts[:depth])}] }}")


def bounds_of(run: isl.Set, around: isl.Set, names: Sequence[str], loop: Loop) -> Bounds:
    """The bounds of ``loop``, the innermost one of ``run``, in the loops ``around`` it, which have ``names``.

    Where isl would take long, they are the least and the greatest value that the loop ever has.
    """
    if run.is_empty():
        return Bounds("0", "0")
    kept = [d for d in range(len(names)) if d in _related(run, len(names))]
    for d in reversed(range(len(names))):
        if d not in kept:
            run, around = (s.project_out(_SET, d, 1) for s in (run, around))
    names = [names[d] for d in kept]
    found = attempted(lambda: _bounds(run, around, names, loop.name), MOST_OPERATIONS)
    return found or Bounds(str(loop.low), str(loop.high + 1), known=False)


def _related(run: isl.Set, last: int) -> set[int]:
    """The dimensions of a set on which the values of one may depend, itself included."""
    basic = run.coalesce().get_basic_sets()
    if len(basic) > 1:
        return {*range(last + 1)}
    groups: list[set[int]] = []
    for constraint in basic[0].get_constraints():
        involved = {d for d in range(last + 1) if constraint.involves_dims(_SET, d, 1)}
        divisions = constraint.dim(isl.dim_type.div)
        if divisions and constraint.involves_dims(isl.dim_type.div, 0, divisions):
            involved.add(-1)
        joined = [g for g in groups if g & involved]
        groups = [*(g for g in groups if g not in joined), involved.union(*joined)]
    return next((g for g in groups if last in g), {last})


def _bounds(run: isl.Set, around: isl.Set, names: Sequence[str], loop: str) -> Bounds:
    context, values = _of_parameters(around, names).params(), _of_parameters(run, names)
    after = values.apply(isl.Map("{ [x] -> [x + 1] }"))
    first, last = (_loop(v, context, loop) for v in (values, after))
    if first is not None and last is not None:
        if first.for_is_degenerate():
            return Bounds(_text(first.for_get_init()), _text(last.for_get_init()))
        step = first.for_get_inc().get_val().to_python()
        return Bounds(_text(first.for_get_init()), _text(last.for_get_cond().get_op_arg(1)), step)
    build = isl.AstBuild.from_context(context)
    ends = [v.gist(context) for v in (values.dim_min(0), after.dim_max(0))]
    low, high = (_text(build.expr_from_pw_aff(v)) for v in ends)
    some = _of_parameters(run, [*names, loop]).params()
    line = isl.PwAff.var_on_domain(isl.LocalSpace.from_space(some.get_space()), _PARAM, len(names))
    first_value, end = (v.align_params(some.get_space()) for v in ends)
    every = line.ge_set(first_value).intersect(line.lt_set(end)).intersect(context.align_params(some.get_space()))
    return Bounds(low, high, 1, _condition(some, every))


def condition_of(run: isl.Set, around: isl.Set, names: Sequence[str]) -> str:
    """When something runs in the loops ``around``; empty if always."""
    some, every = (_of_parameters(s, names) for s in (run, around))
    found = attempted(lambda: _condition(some.params(), every.params()), MOST_OPERATIONS)
    return "there is something to do" if found is None else found


def _condition(some: isl.Set, context: isl.Set) -> str:
    if context.is_subset(some):
        return ""
    return _text(isl.AstBuild.from_context(context).expr_from_set(some.gist(context)))


def _loop(values: isl.Set, context: isl.Set, name: str) -> isl.AstNode | None:
    """The one loop over the values of a set; None where there are several, or something must hold in it."""
    build = isl.AstBuild.from_context(context).set_options(isl.UnionMap("{ [i] -> atomic[x] }"))
    build = build.set_iterators(isl.IdList.from_id(isl.Id(name)))
    named = values.set_tuple_name("S")
    order = isl.Map.identity(named.get_space().map_from_set()).intersect_domain(named).reset_tuple_id(isl.dim_type.out)
    node = build.node_from_schedule_map(isl.UnionMap.from_map(order))
    if node.get_type() == isl.ast_node_type.for_ and node.for_get_body().get_type() == isl.ast_node_type.user:
        return node
    return None


def _of_parameters(values: isl.Set, names: Sequence[str]) -> isl.Set:
    """The set with its first dimensions, which have ``names``, as parameters."""
    values = values.move_dims(_PARAM, 0, _SET, 0, len(names))
    for d, name in enumerate(names):
        values = values.set_dim_id(_PARAM, d, isl.Id(name))
    return values


def _union(sets: Iterable[isl.Set], depth: int) -> isl.Set:
    """All iterations of some sets of so many loops; none where there are no sets."""
    found = isl.Set.empty(isl.Space.set_alloc(isl.DEFAULT_CONTEXT, 0, depth))
    for other in sets:
        found = found.union(other)
    return found.coalesce()


# Texts.


def _text(expr: isl.AstExpr) -> str:
    """An expression of isl as people write it: products first, then what is added, then what is taken off."""
    match expr.get_type():
        case isl.ast_expr_type.int:
            return str(expr.get_val().to_python())
        case isl.ast_expr_type.id:
            return str(expr.get_id().get_name())
    operator = expr.get_op_type()
    parts = [expr.get_op_arg(n) for n in range(expr.get_op_n_arg())]
    if operator in _TESTS:
        return f"{_text(parts[0])} {_TESTS[operator]} {_text(parts[1])}"
    if operator in _JOINED:
        return f" {_JOINED[operator]} ".join(_text(p) if _is_test(p) else f"({_text(p)})" for p in parts)
    if operator in (_OP.min, _OP.max):
        name = "min" if operator == _OP.min else "max"
        return f"{name}({', '.join(map(_text, parts))})"
    if operator in _PARTS:
        whole = _text(parts[0])
        whole = whole if parts[0].get_type() == isl.ast_expr_type.id else f"({whole})"
        return f"{whole}{_PARTS[operator]}{_text(parts[1])}"
    if operator in (_OP.cond, _OP.select):
        return f"({_text(parts[1])} if {_text(parts[0])} else {_text(parts[2])})"
    return sum_text(_terms(expr, 1))


def _is_test(expr: isl.AstExpr) -> bool:
    return expr.get_type() == isl.ast_expr_type.op and expr.get_op_type() in {*_TESTS, _OP.and_, _OP.and_then}


def _terms(expr: isl.AstExpr, times: int) -> list[tuple[int, str]]:
    """A sum as factors with what they are of, which is empty for numbers."""
    if expr.get_type() == isl.ast_expr_type.int:
        return [(times * expr.get_val().to_python(), "")]
    if expr.get_type() == isl.ast_expr_type.op:
        parts = [expr.get_op_arg(n) for n in range(expr.get_op_n_arg())]
        match expr.get_op_type():
            case _OP.add:
                return [t for part in parts for t in _terms(part, times)]
            case _OP.sub:
                return [*_terms(parts[0], times), *_terms(parts[1], -times)]
            case _OP.minus:
                return _terms(parts[0], -times)
            case _OP.mul:
                number = next((p for p in parts if p.get_type() == isl.ast_expr_type.int), None)
                if number is not None:
                    other = parts[1] if number is parts[0] else parts[0]
                    return _terms(other, times * number.get_val().to_python())
    return [(times, _text(expr))]


def sum_text(terms: Iterable[tuple[int, str]]) -> str:
    """A sum of factors and what they are of."""
    by_name: dict[str, int] = {}
    for factor, name in terms:
        by_name[name] = by_name.get(name, 0) + factor
    order = sorted((n for n in by_name if by_name[n]), key=lambda n: (by_name[n] < 0, not n))
    text = ""
    for name in order:
        factor = by_name[name]
        whole = name if not re.search(r"[/ ]", name) or name.startswith(("min(", "max(")) else f"({name})"
        size = str(abs(factor)) if not name else name if abs(factor) == 1 else f"{abs(factor)}*{whole}"
        size = whole if factor == -1 and name and not text else size
        sign = "-" if factor < 0 else "+"
        text = f"{text} {sign} {size}" if text else size if factor > 0 else f"-{size}"
    return text or "0"


def counted(expression: Expression) -> str:
    """What a loop counts, in the program's indices."""
    return sum_text(_counts(expression, 1))


def _counts(expression: Expression, times: int) -> list[tuple[int, str]]:
    match expression:
        case Name(name):
            return [(times, name)]
        case Sum(first, factor, second, shift):
            return [*_counts(first, times * factor), *_counts(second, times), (times * shift, "")]
        case Negative(value):
            return _counts(value, -times)
        case Quotient(value, size):
            return [(times, f"({counted(value)})/{size}" if not isinstance(value, Name) else f"{value.name}/{size}")]
        case Rest(value, size):
            inner = value.name if isinstance(value, Name) else f"({counted(value)})"
            return [(times, f"({inner} mod {size})")]


def runs_apart(expression: Expression) -> bool:
    """Whether a loop counts something else than an index, a part of it or what is left of it in a part."""
    match expression:
        case Name():
            return False
        case Quotient(value) | Rest(value):
            return runs_apart(value)
        case _:
            return True
