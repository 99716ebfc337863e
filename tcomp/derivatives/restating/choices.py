"""Choices that the ranges of a statement settle, whatever the sizes: ``t < N ? a : 0.0`` is ``a`` for ``t in 1:N``.

Derivation says of each read when it takes place; what then holds at every instance goes here, by isl, in which indices,
steps and sizes are parameters.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import islpy as isl

from tcomp.derivatives.text import ZERO, Expr, names_in, shortest, with_children
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.function import Function
from tcomp.storage.forks import ISL
from tcomp.values.operators import INTRINSICS

_COMPARISONS = {"==": "=", "!=": "!=", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_TRUE: Expr = syntax.Number("1")
_FALSE: Expr = syntax.Number("0")
_Item = syntax.Statement | syntax.Loop


def with_settled_choices(item: _Item, whole: Collection[str], types: Mapping[str, str]) -> _Item:
    """A statement, or a block of them, in which no choice is the same at all instances.

    ``whole`` are the names of whole numbers, ``types`` the element types of tensors, as far as they are known: a choice
    between elements of two types also converts, and stays.
    """
    with ISL.value:
        return _settled(item, _Names(tuple(dict.fromkeys(whole)), types), ())


def whole_numbers(function: Function) -> tuple[str, ...]:
    """What stands for whole numbers that are the same everywhere: sizes, and constants that are no floats."""
    return (*function.sizes, *(t.name for t in function.inputs if t.role == "const" and t.dtype.is_integer))


@dataclass(frozen=True, slots=True)
class _Names:
    whole: tuple[str, ...]
    types: Mapping[str, str]

    def beside(self, indices: Sequence[str]) -> _Names:
        return _Names(tuple(dict.fromkeys((*self.whole, *indices))), self.types)

    def types_in(self, value: Expr) -> set[str]:
        """The types of the elements that a value is made of; one for all that are not known."""
        return {self.types.get(tensor, "") for tensor in _tensors(value) if tensor not in self.whole}

    def set_of(self, condition: Expr) -> isl.Set | None:
        """Where a condition holds; None where it is not one of whole numbers alone."""
        text = _condition_text(condition, {name: f"n{number}" for number, name in enumerate(self.whole)})
        return None if text is None else _parsed(len(self.whole), text)


@lru_cache(maxsize=4096)
def _parsed(names: int, text: str) -> isl.Set:
    return isl.Set(f"[{', '.join(f'n{number}' for number in range(names))}] -> {{ : {text} }}")


def _settled(item: _Item, names: _Names, around: tuple[syntax.Range, ...]) -> _Item:
    if isinstance(item, syntax.Loop):
        if item.lower is None or item.upper is None:
            return item
        inside, steps = names.beside([item.index.name]), syntax.Range(item.index, item.lower, item.upper)
        return replace(item, body=tuple(_settled(own, inside, (*around, steps)) for own in item.body))
    ranges = [*around, *(clause for clause in item.clauses if isinstance(clause, syntax.Range))]
    names = names.beside([own.index.name for own in ranges])
    here = _parsed(len(names.whole), "true")
    for own in ranges:
        for op, lhs, rhs in (("<=", own.lower, own.index), ("<", own.index, own.upper)):
            holds = names.set_of(syntax.Binary(op, lhs, rhs))
            here = here if holds is None else here.intersect(holds)
    if here.is_empty():
        return item
    value = _Context(names, here).value(item.value)
    steps_around = {own.index.name for own in around}
    subscripts = item.subscripts
    if subscripts is not None:
        subscripts = tuple(_target(s, _Context(names, here), steps_around) for s in subscripts)
    # Without elements of some type, such as doubles, the value might be of another one.
    same = names.types_in(value) == names.types_in(item.value)
    return replace(item, subscripts=subscripts, value=value if same else item.value)


def _target(subscript: Expr, context: _Context, steps: Collection[str]) -> Expr:
    """A subscript of what is written; ``t + 0`` is ``t`` where that is a step of the block, and so no index."""
    if isinstance(subscript, syntax.Binary) and subscript.rhs == _FALSE and subscript.op == "+":
        stays = isinstance(subscript.lhs, syntax.Name) and subscript.lhs.name not in steps
        return subscript if stays else context.whole(subscript.lhs)
    found = context.whole(subscript)
    if isinstance(found, syntax.Name) and found != subscript and found.name not in steps:
        return syntax.Binary("+", found, _FALSE)
    return found


@dataclass(frozen=True, slots=True)
class _Context:
    """What is known where an expression is computed: that names have values ``here``."""

    names: _Names
    here: isl.Set

    def value(self, expr: Expr) -> Expr:
        """An expression without the choices that are settled."""
        match expr:
            case syntax.Conditional():
                return self._choice(expr)
            case syntax.Binary(op="+"):
                lhs, rhs = self.value(expr.lhs), self.value(expr.rhs)
                if (lhs, rhs) != (expr.lhs, expr.rhs) and ZERO in (lhs, rhs):
                    return rhs if lhs == ZERO else lhs
                return replace(expr, lhs=lhs, rhs=rhs)
            case syntax.Apply() if expr.function.name not in INTRINSICS:
                return replace(expr, arguments=tuple(map(self.whole, expr.arguments)))
            case syntax.Boundary():
                return expr
            case _:
                return with_children(expr, [self.value(child) for child in syntax.children(expr)])

    def whole(self, expr: Expr) -> Expr:
        """A whole number without what cancels, or is the least or greatest at all instances."""
        match expr:
            case syntax.Apply(function=syntax.Name(name="min" | "max" as op), arguments=(a, b)):
                a, b = self.whole(a), self.whole(b)
                for first, second in ((a, b), (b, a)):
                    if self._holds(syntax.Binary("<=" if op == "min" else ">=", first, second)):
                        return first
                return replace(expr, arguments=(a, b))
            case syntax.Apply():
                return self.value(expr)
            case syntax.Conditional():
                return self._choice(expr)
            case _:
                inside = with_children(expr, [self.whole(child) for child in syntax.children(expr)])
                return shortest(inside)

    def _holds(self, condition: Expr) -> bool:
        there = self.names.set_of(condition)
        return there is not None and self.here.is_subset(there)

    def _choice(self, expr: syntax.Conditional) -> Expr:
        condition, there, elsewhere = self._condition(expr.condition)
        if condition in (_TRUE, _FALSE):
            chosen, other = (expr.then, expr.otherwise) if condition == _TRUE else (expr.otherwise, expr.then)
            if _is_number(other) or _is_number(chosen) or self._is_of_one_type(chosen, other):
                return self.value(chosen)
        return syntax.Conditional(
            expr.condition if condition in (_TRUE, _FALSE) else condition,
            _Context(self.names, there).value(expr.then) if not there.is_empty() else expr.then,
            _Context(self.names, elsewhere).value(expr.otherwise) if not elsewhere.is_empty() else expr.otherwise,
        )

    def _is_of_one_type(self, one: Expr, other: Expr) -> bool:
        types = self.names.types_in(one) | self.names.types_in(other)
        return len(types) == 1 and types != {""}

    def _is_whole(self, expr: Expr) -> bool:
        return all(own in self.names.whole or own in ("min", "max") for own in names_in(expr))

    def _condition(self, expr: Expr) -> tuple[Expr, isl.Set, isl.Set]:
        """A condition without parts that hold anyway, and, as far as is known, where it holds and where it does not."""
        there = self.names.set_of(expr)
        if there is not None:
            if self.here.is_subset(there):
                return _TRUE, self.here, self.here.subtract(there)
            if self.here.is_disjoint(there):
                return _FALSE, self.here.intersect(there), self.here
        match expr:
            case syntax.Binary(op="&&"):
                lhs, left, _ = self._condition(expr.lhs)
                rhs, both = _FALSE, left
                if not left.is_empty():
                    rhs, both, _ = _Context(self.names, left)._condition(expr.rhs)
                if _FALSE in (lhs, rhs):
                    return _FALSE, both, self.here
                joined = rhs if lhs == _TRUE else lhs if rhs == _TRUE else replace(expr, lhs=lhs, rhs=rhs)
                return joined, both, self.here if there is None else self.here.subtract(there)
            case syntax.Binary(op="<" | "<=" | ">" | ">=" | "==" | "!="):
                lhs, rhs = (self.whole(e) if self._is_whole(e) else self.value(e) for e in (expr.lhs, expr.rhs))
                expr = replace(expr, lhs=lhs, rhs=rhs)
        if there is None:
            return expr, self.here, self.here
        return expr, self.here.intersect(there), self.here.subtract(there)


def _is_number(expr: Expr) -> bool:
    return isinstance(expr.operand if isinstance(expr, syntax.Unary) else expr, syntax.Number)


def _tensors(expr: Expr) -> list[str]:
    """The tensors whose elements an expression is made of; those in subscripts and conditions are not."""
    match expr:
        case syntax.Apply() if expr.function.name not in INTRINSICS:
            return [expr.function.name]
        case syntax.Conditional():
            return [*_tensors(expr.then), *_tensors(expr.otherwise)]
        case syntax.Binary(op=op) if op in _COMPARISONS:
            return []
    own = [expr.name] if isinstance(expr, syntax.Name) else []
    return own + [tensor for child in syntax.children(expr) for tensor in _tensors(child)]


def _condition_text(expr: Expr, names: Mapping[str, str]) -> str | None:
    match expr:
        case syntax.Binary(op="&&" | "||" as op):
            parts = [_condition_text(e, names) for e in (expr.lhs, expr.rhs)]
            return None if None in parts else f"({parts[0]} {'and' if op == '&&' else 'or'} {parts[1]})"
        case syntax.Unary(op="!"):
            inner = _condition_text(expr.operand, names)
            return None if inner is None else f"not ({inner})"
        case syntax.Binary(op=op) if op in _COMPARISONS:
            parts = [_affine_text(e, names) for e in (expr.lhs, expr.rhs)]
            return None if None in parts else f"({parts[0]} {_COMPARISONS[op]} {parts[1]})"
    return None


def _affine_text(expr: Expr, names: Mapping[str, str]) -> str | None:
    match expr:
        case syntax.Number() if expr.text.isdigit():
            return expr.text
        case syntax.Name():
            return names.get(expr.name)
        case syntax.Unary(op="-"):
            inner = _affine_text(expr.operand, names)
            return None if inner is None else f"(-{inner})"
        case syntax.Binary(op="/" | "%" as op, rhs=syntax.Number(text=divisor)) if divisor.isdigit() and int(divisor):
            inner = _affine_text(expr.lhs, names)
            if inner is None:
                return None
            return f"floor(({inner})/{divisor})" if op == "/" else f"(({inner}) mod {divisor})"
        case syntax.Binary(op="+" | "-" | "*" as op):
            if op == "*" and not any(isinstance(e, syntax.Number) for e in (expr.lhs, expr.rhs)):
                return None
            parts = [_affine_text(e, names) for e in (expr.lhs, expr.rhs)]
            return None if None in parts else f"({parts[0]} {op} {parts[1]})"
        case syntax.Apply(function=syntax.Name(name="min" | "max" as op), arguments=(a, b)):
            parts = [_affine_text(e, names) for e in (a, b)]
            return None if None in parts else f"{op}({parts[0]}, {parts[1]})"
    return None
