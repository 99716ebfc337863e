"""The loop IR: what a schedule tree becomes before a backend spells it.  Frozen nodes, walked with ``match``.

``str(node)`` is C-like text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Number:
    value: int

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True, slots=True)
class Variable:
    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Operation:
    """``+ - * floordiv mod min max == < <= > >= && ||`` of two operands, ``?:`` of three; integers are 64 bits."""

    operator: str
    operands: tuple[LoopExpr, ...]

    def __str__(self) -> str:
        match self.operator, self.operands:
            case "?:", (condition, then, otherwise):
                return f"({condition} ? {then} : {otherwise})"
            case "floordiv" | "mod" | "min" | "max" as name, (a, b):
                return f"{name}({a}, {b})"
            case operator, (a, b):
                return f"({a} {operator} {b})"
            case operator, operands:
                return f"{operator}({', '.join(map(str, operands))})"


LoopExpr = Number | Variable | Operation


@dataclass(frozen=True, slots=True)
class Block:
    """Nodes executed in order."""

    children: tuple[LoopNode, ...]


@dataclass(frozen=True, slots=True)
class For:
    """``iterator`` from ``lower`` up to but not including ``upper``.  ``label`` names the band member for readers."""

    iterator: str
    lower: LoopExpr
    upper: LoopExpr
    step: int
    body: LoopNode
    label: str = ""


@dataclass(frozen=True, slots=True)
class Let:
    """A loop of one iteration."""

    iterator: str
    value: LoopExpr
    body: LoopNode


@dataclass(frozen=True, slots=True)
class If:
    condition: LoopExpr
    then: LoopNode
    otherwise: LoopNode | None


@dataclass(frozen=True, slots=True)
class Scope:
    """A marked place; ``around`` gives the values of the band members around it, outermost first, where asked for.

    Buffers whose ``mark`` is ``name`` are declared here; a "parallel" mark lets the loops just below run in parallel.
    Of the loops over the iterators ``torn``, if there are any, one at least does not have its full extent: another
    version of the tile runs where all have.
    """

    name: str
    around: tuple[LoopExpr, ...]
    body: LoopNode
    torn: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Execute:
    """One instance of a statement."""

    statement: str
    arguments: tuple[LoopExpr, ...]


LoopNode = Block | For | Let | If | Scope | Execute


def variables(expr: LoopExpr) -> frozenset[str]:
    """The names of the iterators in an expression."""
    match expr:
        case Variable():
            return frozenset({expr.name})
        case Operation():
            return frozenset().union(*(variables(o) for o in expr.operands))
        case Number():
            return frozenset()


def flattened(expr: LoopExpr, operator: str) -> tuple[LoopExpr, ...]:
    """The operands of nested uses of one associative operator; the expression itself where it is not one."""
    if isinstance(expr, Operation) and expr.operator == operator:
        return tuple(x for o in expr.operands for x in flattened(o, operator))
    return (expr,)


def conjunction(conditions: Sequence[LoopExpr]) -> LoopExpr:
    """All of some conditions, of which there is at least one."""
    result = conditions[0]
    for condition in conditions[1:]:
        result = Operation("&&", (result, condition))
    return result


def substitute(expr: LoopExpr, name: str, value: LoopExpr) -> LoopExpr:
    """An expression with a value in place of an iterator."""
    match expr:
        case Variable() if expr.name == name:
            return value
        case Operation():
            return Operation(expr.operator, tuple(substitute(o, name, value) for o in expr.operands))
        case _:
            return expr


def substitute_all(expr: LoopExpr, values: Mapping[str, LoopExpr]) -> LoopExpr:
    """An expression with values in place of iterators, one after another."""
    for name, value in values.items():
        expr = substitute(expr, name, value)
    return expr


def substitute_below(node: LoopNode, name: str, value: LoopExpr) -> LoopNode:
    """A nest with a value in place of an iterator that nothing in it defines."""

    def below(child: LoopNode) -> LoopNode:
        return substitute_below(child, name, value)

    match node:
        case Block():
            return Block(tuple(below(c) for c in node.children))
        case For():
            lower, upper = substitute(node.lower, name, value), substitute(node.upper, name, value)
            return replace(node, lower=lower, upper=upper, body=below(node.body))
        case Let():
            return Let(node.iterator, substitute(node.value, name, value), below(node.body))
        case If():
            otherwise = None if node.otherwise is None else below(node.otherwise)
            return If(substitute(node.condition, name, value), below(node.then), otherwise)
        case Scope():
            around = tuple(substitute(e, name, value) for e in node.around)
            return replace(node, around=around, body=below(node.body))
        case Execute():
            return Execute(node.statement, tuple(substitute(a, name, value) for a in node.arguments))


def children(node: LoopNode) -> tuple[LoopNode, ...]:
    """The nodes directly below."""
    match node:
        case Block():
            return node.children
        case For() | Let() | Scope():
            return (node.body,)
        case If():
            return (node.then,) if node.otherwise is None else (node.then, node.otherwise)
        case Execute():
            return ()


def walk(node: LoopNode) -> Iterator[LoopNode]:
    """The node and everything below it, in execution order."""
    yield node
    for child in children(node):
        yield from walk(child)


def depth(node: LoopNode) -> int:
    """How many loops are in one another at most."""
    return isinstance(node, For) + max((depth(child) for child in children(node)), default=0)


def render(node: LoopNode, indent: str = "") -> str:
    """C-like text of a loop nest."""
    match node:
        case Block():
            return "".join(render(c, indent) for c in node.children)
        case For():
            head = f"{indent}for {node.iterator} in {node.lower} .. {node.upper} step {node.step}:\n"
            return head.replace(" step 1:", ":") + render(node.body, indent + "  ")
        case Let():
            return f"{indent}{node.iterator} = {node.value}\n" + render(node.body, indent)
        case If():
            text = f"{indent}if {node.condition}:\n" + render(node.then, indent + "  ")
            if node.otherwise is not None:
                text += f"{indent}else:\n" + render(node.otherwise, indent + "  ")
            return text
        case Scope():
            return f"{indent}# {node.name}\n" + render(node.body, indent)
        case Execute():
            return f"{indent}{node.statement}({', '.join(map(str, node.arguments))})\n"
