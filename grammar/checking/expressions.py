"""Typing of expressions: syntax nodes in, nodes of ``tree/function.py`` out."""

from __future__ import annotations

from enum import Enum, auto

from tcomp.errors import Span
from tcomp.grammar.checking.bits import BITWISE, bits, in_arithmetic
from tcomp.grammar.checking.names import BOUNDARIES, REWRITTEN, Environment, Scope, TensorEntry, is_function
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.conversions import Typed, convert, flexible, literal
from tcomp.grammar.tree.diagnostics import Report
from tcomp.grammar.tree.function import (
    Binary,
    Boundary,
    Call,
    Constant,
    Expr,
    Index,
    Read,
    Select,
    Size,
    Unary,
)
from tcomp.values.operators import (
    BOOL,
    FLOAT32,
    INT32,
    INTRINSICS,
    TYPE_KEYWORDS,
    UINT64,
    DType,
    arithmetic_type,
    narrows,
    promote,
)

_COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")
_ELSEWHERE = {
    name: f"reductions are statements: write `S(i) {operator} ...`, over the indices that stand on the right alone"
    for name, operator in (
        ("sum", "+=!"), ("mean", "+=!"), ("prod", "*=!"), ("reduce", "+=!"), ("amax", "max=!"), ("amin", "min=!"),
        ("argmax", "argmax=!"), ("argmin", "argmin=!"), ("dot", "+=!"),
    )
} | {
    "isnan": "write `x != x`", "isfinite": "write `abs(x) < 1.0 / 0.0`", "isinf": "write `abs(x) == 1.0 / 0.0`",
    "signbit": "write `copysign(1.0, x) < 0`", "rint": "`round` takes halves away from 0; `floor` and `%` give others",
}  # fmt: skip
"""What functions of other languages are here."""

_ON_BOOLS = {"+": "||", "*": "&&", "max": "||", "min": "&&"}


class Place(Enum):
    """Where an expression stands, which decides what it may hold."""

    VALUE = auto()
    EXISTS = auto()
    BOUND = auto()
    TARGET = auto()
    DIMENSION = auto()


class ExpressionChecker:
    """Types the expressions of one statement or of one parameter list.

    Errors go to the report; the ``Typed`` returned then has no nominal type.  Unknown identifiers become index
    variables of the scope, except in dimensions.
    """

    def __init__(self, environment: Environment, scope: Scope, report: Report) -> None:
        self.environment = environment
        self.scope = scope
        self.report = report

    def integer(self, expr: syntax.Expr, place: Place) -> Expr:
        """A subscript, bound or dimension, which must have an integer type."""
        typed = self.check(expr, place)
        if typed.nominal is not None and not typed.nominal.is_integer:
            self.report.error(f"expected integral type but found {typed.nominal}", expr.span)
        return in_arithmetic(typed.expr)

    def check(self, expr: syntax.Expr, place: Place = Place.VALUE) -> Typed:
        """The typed form of any expression."""
        match expr:
            case syntax.Name():
                return self._name(expr, place)
            case syntax.Number():
                return self._number(expr)
            case syntax.Apply():
                return self._apply(expr, place)
            case syntax.Boundary():
                return self._boundary(expr, place)
            case syntax.Cast():
                kind = TYPE_KEYWORDS[expr.type]
                number = expr.operand if isinstance(expr.operand, syntax.Number) else None
                return cast(self.check(expr.operand, place) if number is None else self._number(number, kind), kind)
            case syntax.Named():
                message = f"`{expr}` stands where only the call of a def has arguments by name"
                self.report.error(message, expr.span, f"a comparison is written `{expr.name} == {expr.value}`")
                return self._failed(expr.span)
            case syntax.Unary():
                return self._unary(expr.op, self.check(expr.operand, place), expr.span)
            case syntax.Binary():
                return self._chain(expr, place)
            case syntax.Conditional():
                condition, then = self.check(expr.condition, place), self.check(expr.then, place)
                return self._select(condition, then, self.check(expr.otherwise, place), expr.span)

    def _chain(self, expr: syntax.Binary, place: Place) -> Typed:
        """A run of left-associative operators, without recursing along it."""
        links = [expr]
        while isinstance(links[-1].lhs, syntax.Binary):
            links.append(links[-1].lhs)
        result = self.check(links[-1].lhs, place)
        for link in reversed(links):
            result = self._binary(link.op, result, self.check(link.rhs, place), link.span)
        return result

    def _failed(self, span: Span) -> Typed:
        return Typed(Constant(0, INT32, span), None)

    def _number(self, expr: syntax.Number, converted: DType | None = None) -> Typed:
        """A number, which may be as large as the type allows to which it is ``converted`` where it stands."""
        constant = literal(expr.text, expr.span, unsigned=converted == UINT64)
        if constant is None:
            unsigned = literal(expr.text, expr.span, unsigned=True) is not None
            hint = f"write `uint64({expr.text})`" if unsigned else "write it with a `.` to make a float"
            where = "63 bits and a sign" if unsigned else "64 bits"
            self.report.error(f"this integer does not fit in {where}", expr.span, hint)
            return self._failed(expr.span)
        return Typed(constant, constant.dtype, flexible=constant.dtype == FLOAT32)

    def _name(self, expr: syntax.Name, place: Place) -> Typed:
        name, environment = expr.name, self.environment
        if name in self.scope.indices:
            return Typed(Index(name, INT32, expr.span), INT32)
        if name in self.scope.lets:
            return self.scope.lets[name]
        if name in environment.sizes:
            return Typed(Size(name, environment.sizes[name], expr.span), environment.sizes[name])
        if name in environment.constants:
            return Typed(Size(name, environment.constants[name], expr.span), environment.constants[name])
        if name in environment.tensors:
            entry = environment.tensors[name]
            if entry.rank:
                self.report.error(
                    "expected a scalar but found a tensor expression.",
                    expr.span,
                    f"`{name}` has {entry.rank} dimensions: write `{name}({', '.join('ijklmnop'[: entry.rank])})`",
                )
                return self._failed(expr.span)
            return self._read(entry, (), expr.span, place)
        if place is Place.DIMENSION:
            self.report.error(
                f"undefined variable {name} used here",
                expr.span,
                self.report.did_you_mean(name, environment.scalars())
                or f"some input must have `{name}` itself as a dimension",
            )
            return self._failed(expr.span)
        self.scope.indices[name] = expr.span
        return Typed(Index(name, INT32, expr.span), INT32)

    def _apply(self, expr: syntax.Apply, place: Place) -> Typed:
        name = expr.function.name
        if name in self.environment.tensors:
            entry = self.environment.tensors[name]
            if is_function(name):
                return self._read_not_called(entry, expr, place)
            subscripts = tuple(self.integer(argument, place) for argument in expr.arguments)
            return self._read(entry, subscripts, expr.span, place)
        if name in BOUNDARIES:
            self.report.error(f"`{name}` needs subscripts after its arguments", expr.span, f"write `{expr}(...)`")
            return self._failed(expr.span)
        if name in self.environment.defs and not is_function(name):
            return self._call_inside(expr)
        arguments = tuple(self.check(argument, place) for argument in expr.arguments)
        if name in ("min", "max"):
            return self._call(name, 2, arguments, expr)
        if name in INTRINSICS:
            return self._call(name, INTRINSICS[name].arity, arguments, expr)
        if name in REWRITTEN:
            return self._call(name, REWRITTEN[name], arguments, expr)
        if name in self.scope.indices or name in self.scope.lets or self.environment.kind_of(name):
            self.report.error(f"expected a tensor but found a scalar: `{name}`", expr.function.span)
        elif name in self.environment.written_later:
            self.report.error(f"`{name}` is read here, before any statement writes it", expr.function.span)
        else:
            hint = _ELSEWHERE.get(name) or self.report.did_you_mean(name, self.environment.callables())
            self.report.error(f"undefined variable {name} used here", expr.function.span, hint)
        return self._failed(expr.span)

    def _call_inside(self, call: syntax.Apply) -> Typed:
        message = f"`{call.function}` is a def, and a call of a def stands alone"
        self.report.error(message, call.span, f"write `T = {call}` before this, and read `T`")
        return self._failed(call.span)

    def _shape_hint(self, entry: TensorEntry) -> str | None:
        """How a tensor was declared or first written."""
        if entry.dims:
            text = self.report.source.text[entry.dims[0].span.start : entry.dims[-1].span.end]
            return f"it is declared as `{entry.name}({text})`"
        return f"it is written as `{entry.name}` with {entry.rank} subscripts above" if entry.written else None

    def _read_not_called(self, entry: TensorEntry, expr: syntax.Apply, place: Place) -> Typed:
        """An element of a tensor that has the name of a built-in function, unless that is what was meant."""
        arguments = [self.check(argument, place) for argument in expr.arguments]
        floats = any(a.nominal is not None and not a.nominal.is_integer for a in arguments)
        if floats or (entry.rank is not None and entry.rank != len(arguments)):
            kind = self.environment.kind_of(entry.name)
            message = f"`{entry.name}` is {kind} here, so the built-in function cannot be called"
            self.report.error(message, expr.span, f"give the tensor `{entry.name}` another name")
            return self._failed(expr.span)
        return self._read(entry, tuple(a.expr for a in arguments), expr.span, place)

    def _read(
        self,
        entry: TensorEntry,
        subscripts: tuple[Expr, ...],
        span: Span,
        place: Place,
        boundary: Boundary | None = None,
    ) -> Typed:
        if place in (Place.BOUND, Place.DIMENSION):
            self.report.error("tensor accesses cannot be used in this context", span)
            return self._failed(span)
        entry.read = True
        if entry.rank is not None and entry.rank != len(subscripts):
            message = f"expected {entry.rank} dimensions but found {len(subscripts)} dimensions."
            self.report.error(message, span, self._shape_hint(entry))
            return self._failed(span)
        if not entry.written and not entry.opened and place in (Place.VALUE, Place.TARGET):
            if entry.role == "output":
                self.environment.needs_content.add(entry.name)
            elif entry.role == "temporary":
                self.report.error(f"`{entry.name}` is read here, before any statement writes it", span)
                return self._failed(span)
        if entry.dtype is None:
            if not entry.failed:
                self.report.error(
                    f"the type of `{entry.name}` is not known here: it is read before any statement writes it",
                    span,
                    f"declare it among the outputs, as in `-> (float(N) {entry.name})`",
                )
            return self._failed(span)
        return Typed(Read(entry.name, subscripts, entry.dtype, span, boundary), entry.dtype)

    def _boundary(self, expr: syntax.Boundary, place: Place) -> Typed:
        kind = expr.kind.name
        if kind not in BOUNDARIES:
            if kind in self.environment.defs and kind not in self.environment.tensors:
                return self._call_inside(syntax.Apply(expr.kind, expr.arguments, expr.span))
            if kind in self.environment.tensors:
                self.report.error("expected one list of subscripts but found two", expr.span)
            else:
                hint = self.report.did_you_mean(kind, BOUNDARIES)
                if not hint and expr.arguments:
                    hint = f"to call a def, write `T = {kind}({expr.arguments[0]})` before this, then `T(...)`"
                self.report.error(f"`{kind}` is not a way to read outside a tensor", expr.kind.span, hint)
            return self._failed(expr.span)
        if len(expr.arguments) != BOUNDARIES[kind]:
            self.report.error(
                f"expected {BOUNDARIES[kind]} but found {len(expr.arguments)} arguments of `{kind}`", expr.span
            )
            return self._failed(expr.span)
        tensor, *rest = expr.arguments
        if not isinstance(tensor, syntax.Name) or tensor.name not in self.environment.tensors:
            known = (name for name, entry in self.environment.tensors.items() if entry.rank)
            hint = self.report.did_you_mean(tensor.name, known) if isinstance(tensor, syntax.Name) else None
            self.report.error(f"expected the name of a tensor but found `{tensor}`", tensor.span, hint)
            return self._failed(expr.span)
        entry = self.environment.tensors[tensor.name]
        value = self._exterior(rest[0], entry, place) if rest else None
        subscripts = tuple(self.integer(subscript, place) for subscript in expr.subscripts)
        return self._read(entry, subscripts, expr.span, place, Boundary(kind, value))

    def _exterior(self, expr: syntax.Expr, entry: TensorEntry, place: Place) -> Expr:
        value = self.check(expr, place)
        if value.nominal is None or entry.dtype is None:
            return value.expr
        if narrows(value.nominal, entry.dtype):
            self.report.error(narrowing(value.nominal, entry.dtype), expr.span)
        return value.converted(entry.dtype)

    def _unary(self, op: str, operand: Typed, span: Span) -> Typed:
        if operand.nominal is None:
            return operand
        if op == "!":
            if not self._expect_bool(operand, span):
                return self._failed(span)
            return Typed(Unary("!", operand.expr, BOOL, span), BOOL)
        if op == "~":
            return bits(op, "bit_not", (operand,), span, self.report)
        if operand.nominal == BOOL:
            return self._no_arithmetic(op, span)
        dtype = arithmetic_type(operand.nominal)
        return Typed(Unary("-", convert(operand.expr, dtype), dtype, span), operand.nominal, operand.flexible)

    def _binary(self, op: str, lhs: Typed, rhs: Typed, span: Span) -> Typed:
        if op in ("&&", "||"):
            bools = [self._expect_bool(side, side.expr.span) for side in (lhs, rhs)]
            if not all(bools):
                return self._failed(span)
            return Typed(Binary(op, lhs.expr, rhs.expr, BOOL, span), BOOL)
        if lhs.nominal is None or rhs.nominal is None:
            return self._failed(span)
        if op in BITWISE:
            return bits(op, BITWISE[op], (lhs, rhs), span, self.report)
        nominal = promote(lhs.nominal, rhs.nominal)
        if nominal == BOOL and op not in _COMPARISONS:
            if op not in _ON_BOOLS:
                return self._no_arithmetic(op, span)
            return Typed(Binary(_ON_BOOLS[op], lhs.expr, rhs.expr, BOOL, span), BOOL)
        dtype = arithmetic_type(nominal)
        left, right = lhs.converted(dtype), rhs.converted(dtype)
        if op in _COMPARISONS:
            return Typed(Binary(op, left, right, BOOL, span), BOOL)
        if op in ("/", "%") and nominal.is_integer and isinstance(right, Constant) and right.value == 0:
            self.report.error("division by zero", span)
            return self._failed(span)
        return Typed(Binary(op, left, right, dtype, span), nominal, flexible((lhs, rhs)))

    def compared(self, op: str, lhs: Typed, rhs: Typed, span: Span) -> Expr:
        """The comparison of two typed expressions."""
        return self._binary(op, lhs, rhs, span).expr

    def _select(self, condition: Typed, then: Typed, otherwise: Typed, span: Span) -> Typed:
        is_bool = self._expect_bool(condition, condition.expr.span)
        if not is_bool or then.nominal is None or otherwise.nominal is None:
            return self._failed(span)
        nominal = promote(then.nominal, otherwise.nominal)
        copies = then.expr.dtype == otherwise.expr.dtype == nominal
        dtype = nominal if copies else arithmetic_type(nominal)
        parts = (condition.expr, then.converted(dtype), otherwise.converted(dtype))
        return Typed(Select(*parts, dtype, span), nominal, flexible((then, otherwise)))

    def _call(self, name: str, arity: int, arguments: tuple[Typed, ...], expr: syntax.Apply) -> Typed:
        span = expr.span
        if len(arguments) != arity:
            self.report.error(f"expected {arity} but found {len(arguments)} arguments of `{name}`", span)
            return self._failed(span)
        match name:
            case "min" | "max":
                return self._binary(name, arguments[0], arguments[1], span)
            case "select":
                condition, then, otherwise = arguments
                return self._select(condition, then, otherwise, span)
            case "clamp":
                value, lower, upper = arguments
                return self._binary("min", self._binary("max", value, lower, span), upper, span)
        nominal: DType = BOOL
        for argument in arguments:
            if argument.nominal is None:
                return self._failed(span)
            nominal = promote(nominal, argument.nominal)
        if INTRINSICS[name].only_integers:
            return bits(name, name, arguments, span, self.report)
        if not INTRINSICS[name].keeps_integers:
            nominal = promote(nominal, FLOAT32)
        elif nominal == BOOL:
            nominal = INT32
        dtype = arithmetic_type(nominal)
        converted = tuple(a.converted(dtype) for a in arguments)
        return Typed(Call(name, converted, dtype, span), nominal, flexible(arguments))

    def _expect_bool(self, typed: Typed, span: Span) -> bool:
        """True for a bool; reports anything else, unless an error has been reported for it already."""
        if typed.nominal not in (None, BOOL):
            is_word = isinstance(typed.expr, Index) and typed.expr.name.lower() in ("true", "false")
            hint = "there is no such word: write a comparison that holds, or does not, as `0 == 0`" if is_word else None
            self.report.error(f"expected boolean but found {typed.nominal}", span, hint)
        return typed.nominal == BOOL

    def _no_arithmetic(self, op: str, span: Span) -> Typed:
        self.report.error(f"`{op}` does not apply to bool", span, "convert to a number first, as in `int32(...)`")
        return self._failed(span)


def cast(operand: Typed, dtype: DType) -> Typed:
    """A conversion that the program asks for."""
    return Typed(operand.converted(dtype), None if operand.nominal is None else dtype)


def narrowing(found: DType, wanted: DType) -> str:
    """The message for a value that would lose range or precision silently."""
    return f"attempting to assign type {found} to narrower type {wanted} without an explicit cast"
