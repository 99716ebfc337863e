"""Quasi-affine forms in plain Python integers: what range inference computes with.

A ``Form`` is ``sum(coefficient * term) + constant``; a term is an index variable or an ``Atom`` (a floor division or a
remainder by a positive constant, a minimum, a maximum, or a choice under an affine condition).  Sizes are concrete
here, so a product of an index with a size symbol is affine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from tcomp.grammar.tree.function import PROVED, Binary, Call, Cast, Constant, Expr, Index, Select, Size, Unary

Interval = tuple[int, int]
"""Inclusive bounds; empty where the upper one is below the lower one."""


@dataclass(frozen=True, slots=True)
class Atom:
    """A term that is not linear.

    ``/`` and ``%`` have one operand and a positive ``divisor`` (floor semantics); ``min`` and ``max`` have two
    operands; ``select`` has the two values, chosen by the affine ``condition``.
    """

    op: Literal["/", "%", "min", "max", "select"]
    operands: tuple[Form, ...]
    divisor: int = 1
    condition: Condition | None = None


@dataclass(frozen=True, slots=True)
class Form:
    """``sum(coefficient * term) + constant``; coefficients are not zero and terms are distinct."""

    terms: tuple[tuple[str | Atom, int], ...]
    constant: int

    def plus(self, constant: int) -> Form:
        """The form shifted by a constant."""
        return Form(self.terms, self.constant + constant)

    def scaled(self, factor: int) -> Form:
        """The form times a constant."""
        if factor == 1:
            return self
        if factor == 0:
            return Form((), 0)
        return Form(tuple((t, c * factor) for t, c in self.terms), self.constant * factor)

    def add(self, other: Form, factor: int = 1) -> Form:
        """``self + factor * other``."""
        return combine(((self, 1), (other, factor)), 0)


@dataclass(frozen=True, slots=True)
class Condition:
    """An affine condition: ``form >= 0``, ``form == 0``, ``form != 0``, or a combination of ``operands``.

    ``&&`` of no operands is true and ``||`` of none is false.
    """

    op: Literal[">=", "==", "!=", "&&", "||", "!"]
    form: Form | None = None
    operands: tuple[Condition, ...] = ()


def constant_form(value: int) -> Form:
    """The form that is always ``value``."""
    return Form((), value)


def index_form(name: str) -> Form:
    """The form that is an index variable."""
    return Form(((name, 1),), 0)


def combine(parts: tuple[tuple[Form, int], ...] | list[tuple[Form, int]], constant: int) -> Form:
    """``sum(factor * form) + constant`` with like terms gathered."""
    parts = [(form, factor) for form, factor in parts if form.terms or form.constant]
    if len(parts) == 1:
        return parts[0][0].scaled(parts[0][1]).plus(constant)
    total: dict[str | Atom, int] = {}
    for form, factor in parts:
        constant += factor * form.constant
        for term, coefficient in form.terms:
            total[term] = total.get(term, 0) + factor * coefficient
    return Form(tuple((t, c) for t, c in total.items() if c), constant)


def floor_divide(form: Form, divisor: int) -> Form:
    """``floor(form / divisor)`` for a positive divisor; multiples of the divisor leave the atom."""
    if divisor == 1:
        return form
    whole = tuple((t, c // divisor) for t, c in form.terms if c % divisor == 0)
    rest = tuple((t, c) for t, c in form.terms if c % divisor)
    if not rest:
        return Form(whole, form.constant // divisor)
    atom = Atom("/", (Form(rest, form.constant % divisor),), divisor)
    return combine([(Form(whole, form.constant // divisor), 1), (Form(((atom, 1),), 0), 1)], 0)


def remainder(form: Form, divisor: int) -> Form:
    """``form mod divisor`` for a positive divisor."""
    reduced = Form(tuple((t, c) for t, c in form.terms if c % divisor), form.constant % divisor)
    if not reduced.terms:
        return reduced
    return Form(((Atom("%", (reduced,), divisor), 1),), 0)


def extremum(op: Literal["min", "max"], lhs: Form, rhs: Form) -> Form:
    """The smaller or the larger of two forms."""
    if lhs.terms == rhs.terms:
        return lhs if (lhs.constant < rhs.constant) == (op == "min") else rhs
    return Form(((Atom(op, (lhs, rhs)), 1),), 0)


def to_form(expr: Expr, sizes: Mapping[str, int]) -> Form | None:
    """The quasi-affine form of an integer expression, or None where it has none."""
    parts: list[tuple[Form, int]] = []
    constant = 0
    stack: list[tuple[Expr, int]] = [(expr, 1)]
    while stack:
        node, factor = stack.pop()
        match node:
            case Binary(op="+"):
                stack += [(node.rhs, factor), (node.lhs, factor)]
            case Binary(op="-"):
                stack += [(node.rhs, -factor), (node.lhs, factor)]
            case Unary(op="-"):
                stack.append((node.operand, -factor))
            case Constant() if isinstance(node.value, int) and not isinstance(node.value, bool):
                constant += factor * node.value
            case Index():
                parts.append((index_form(node.name), factor))
            case _:
                form = _compound_form(node, sizes)
                if form is None:
                    return None
                parts.append((form, factor))
    return combine(parts, constant)


def _compound_form(expr: Expr, sizes: Mapping[str, int]) -> Form | None:
    match expr:
        case Size():
            return constant_form(sizes[expr.name])
        case Binary(op="*" | "/" | "%" | "min" | "max"):
            lhs, rhs = to_form(expr.lhs, sizes), to_form(expr.rhs, sizes)
            return None if lhs is None or rhs is None else _binary_form(expr.op, lhs, rhs)
        case Call(intrinsic=intrinsic, arguments=(argument,)) if intrinsic in PROVED:
            value = to_form(argument, sizes)
            if value is None:
                return None
            return extremum("max", value, value.scaled(-1) if expr.intrinsic == "abs" else constant_form(0))
        case Select():
            return _select_form(expr, sizes)
        case Cast() if expr.dtype.is_integer:
            return _cast_form(expr, sizes)
        case _:
            return None


def _binary_form(op: str, lhs: Form, rhs: Form) -> Form | None:
    match op:
        case "*" if not rhs.terms:
            return lhs.scaled(rhs.constant)
        case "*" if not lhs.terms:
            return rhs.scaled(lhs.constant)
        case "/" if not rhs.terms and rhs.constant > 0:
            return floor_divide(lhs, rhs.constant)
        case "/" if not rhs.terms and rhs.constant < 0:
            return floor_divide(lhs.scaled(-1), -rhs.constant)
        case "%" if not rhs.terms and rhs.constant > 0:
            return remainder(lhs, rhs.constant)
        case "%" if not rhs.terms and rhs.constant < 0:
            return remainder(lhs.scaled(-1), -rhs.constant).scaled(-1)
        case "min":
            return extremum("min", lhs, rhs)
        case "max":
            return extremum("max", lhs, rhs)
        case _:
            return None


def _select_form(expr: Select, sizes: Mapping[str, int]) -> Form | None:
    condition = to_condition(expr.condition, sizes)
    if condition is None:
        return None
    is_then = _decided(condition)
    if is_then is not None:
        return to_form(expr.then if is_then else expr.otherwise, sizes)
    then, otherwise = to_form(expr.then, sizes), to_form(expr.otherwise, sizes)
    if then is None or otherwise is None:
        return None
    return Form(((Atom("select", (then, otherwise), 1, condition), 1),), 0)


def _decided(condition: Condition) -> bool | None:
    """Whether a condition holds for these sizes; None where that depends on indices."""
    if condition.form is None:
        found = [_decided(operand) for operand in condition.operands]
        if condition.op == "!":
            return None if found[0] is None else not found[0]
        final = condition.op == "||"
        return final if final in found else None if None in found else not final
    if condition.form.terms:
        return None
    value = condition.form.constant
    return {">=": value >= 0, "==": value == 0, "!=": value != 0}[condition.op]


def _cast_form(expr: Cast, sizes: Mapping[str, int]) -> Form | None:
    """Signed types of 32 bits and more hold every subscript; a constant must fit the type that it is cast to."""
    form = to_form(expr.operand, sizes)
    if form is None or (expr.dtype.kind == "int" and expr.dtype.bits >= 32):
        return form
    fits = not form.terms and expr.dtype.lowest <= form.constant <= expr.dtype.highest
    return form if fits else None


def to_condition(expr: Expr, sizes: Mapping[str, int]) -> Condition | None:
    """A condition built from comparisons of quasi-affine integers by ``&&``, ``||`` and ``!``; None where it is not."""
    match expr:
        case Constant():
            return Condition("&&" if expr.value else "||") if isinstance(expr.value, bool) else None
        case Unary(op="!"):
            inner = to_condition(expr.operand, sizes)
            return None if inner is None else Condition("!", None, (inner,))
        case Binary(op="&&" | "||"):
            lhs, rhs = to_condition(expr.lhs, sizes), to_condition(expr.rhs, sizes)
            if lhs is None or rhs is None:
                return None
            return Condition("&&" if expr.op == "&&" else "||", None, (lhs, rhs))
        case Binary(op="<" | "<=" | ">" | ">=" | "==" | "!="):
            return _comparison(expr, sizes)
        case _:
            return None


def _comparison(expr: Binary, sizes: Mapping[str, int]) -> Condition | None:
    lhs, rhs = to_form(expr.lhs, sizes), to_form(expr.rhs, sizes)
    if lhs is None or rhs is None:
        return None
    match expr.op:
        case "<":
            return Condition(">=", rhs.add(lhs, -1).plus(-1))
        case "<=":
            return Condition(">=", rhs.add(lhs, -1))
        case ">":
            return Condition(">=", lhs.add(rhs, -1).plus(-1))
        case ">=":
            return Condition(">=", lhs.add(rhs, -1))
        case "==":
            return Condition("==", lhs.add(rhs, -1))
        case _:
            return Condition("!=", lhs.add(rhs, -1))


def variables(form: Form) -> frozenset[str]:
    """The index variables in a form (those of a ``select`` condition included)."""
    return frozenset(occurrences(form))


def occurrences(form: Form) -> Iterator[str]:
    """Every occurrence of an index variable in a form."""
    for term, _ in form.terms:
        if isinstance(term, str):
            yield term
            continue
        for operand in term.operands:
            yield from occurrences(operand)
        if term.condition is not None:
            yield from _condition_occurrences(term.condition)


def _condition_occurrences(condition: Condition) -> Iterator[str]:
    if condition.form is not None:
        yield from occurrences(condition.form)
    for operand in condition.operands:
        yield from _condition_occurrences(operand)


def directions(form: Form, name: str, sign: int = 1) -> set[int]:
    """In which directions a form moves with a variable: 1 up, -1 down, 0 not monotone."""
    found: set[int] = set()
    for term, coefficient in form.terms:
        turned = sign if coefficient > 0 else -sign
        if isinstance(term, str):
            if term == name:
                found.add(turned)
        elif term.op in ("/", "min", "max"):
            for operand in term.operands:
                found |= directions(operand, name, turned)
        elif name in variables(Form(((term, 1),), 0)):
            found.add(0)
    return found


def substitute(form: Form, name: str, value: Form) -> Form:
    """The form with a variable replaced; the variable must not occur in a ``select``."""
    parts: list[tuple[Form, int]] = []
    for term, coefficient in form.terms:
        if isinstance(term, str):
            parts.append((value if term == name else index_form(term), coefficient))
            continue
        operands = tuple(substitute(operand, name, value) for operand in term.operands)
        match term.op:
            case "/":
                parts.append((floor_divide(operands[0], term.divisor), coefficient))
            case "%":
                parts.append((remainder(operands[0], term.divisor), coefficient))
            case "min" | "max":
                parts.append((extremum(term.op, operands[0], operands[1]), coefficient))
            case "select":
                parts.append((Form(((term, 1),), 0), coefficient))
    return combine(parts, form.constant)


def interval(form: Form, hull: Mapping[str, Interval]) -> Interval:
    """Bounds of a form over a box of index values; exact where ``is_exact(form)``."""
    low = high = form.constant
    for term, coefficient in form.terms:
        a, b = hull[term] if isinstance(term, str) else _atom_interval(term, hull)
        if coefficient < 0:
            a, b = b, a
        low += coefficient * a
        high += coefficient * b
    return low, high


def _atom_interval(atom: Atom, hull: Mapping[str, Interval]) -> Interval:
    bounds = [interval(operand, hull) for operand in atom.operands]
    (low, high), k = bounds[0], atom.divisor
    match atom.op:
        case "/":
            return low // k, high // k
        case "%" if low // k == high // k:
            return low % k, high % k
        case "%":
            return 0, k - 1
        case "min":
            return min(b[0] for b in bounds), min(b[1] for b in bounds)
        case "max":
            return max(b[0] for b in bounds), max(b[1] for b in bounds)
        case "select":
            return min(b[0] for b in bounds), max(b[1] for b in bounds)


def is_exact(form: Form) -> bool:
    """Whether ``interval`` gives the exact bounds over a box: monotone, each variable at most once."""
    seen = list(occurrences(form))
    return len(seen) == len(set(seen)) and _is_monotone(form)


def _is_monotone(form: Form) -> bool:
    return all(
        isinstance(term, str)
        or (term.op in ("/", "min", "max") and all(_is_monotone(operand) for operand in term.operands))
        for term, _ in form.terms
    )


def value(form: Form, at: Mapping[str, int]) -> int:
    """The value of a form where its variables have those of ``at``."""
    terms = ((_atom_value(term, at) if isinstance(term, Atom) else at[term]) * factor for term, factor in form.terms)
    return form.constant + sum(terms)


def _atom_value(atom: Atom, at: Mapping[str, int]) -> int:
    operands = [value(operand, at) for operand in atom.operands]
    match atom.op:
        case "/":
            return operands[0] // atom.divisor
        case "%":
            return operands[0] % atom.divisor
        case "select":
            assert atom.condition is not None
            return operands[0] if _holds(atom.condition, at) else operands[1]
        case _:
            return min(operands) if atom.op == "min" else max(operands)


def _holds(condition: Condition, at: Mapping[str, int]) -> bool:
    if condition.form is not None:
        number = value(condition.form, at)
        return number == 0 if condition.op == "==" else number != 0 if condition.op == "!=" else number >= 0
    found = [_holds(operand, at) for operand in condition.operands]
    return not found[0] if condition.op == "!" else any(found) if condition.op == "||" else all(found)
