"""The syntax tree of a program, as written: names unresolved, nothing typed.

Spans point into the source text and do not take part in comparisons.  ``str`` of any node is program text; parsing the
text of a ``Definition`` gives an equal ``Definition``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from tcomp.errors import Span

NOWHERE = Span(0, 0)
LINE_WIDTH = 100
INDENT = "    "


@dataclass(frozen=True, slots=True)
class Name:
    """An identifier: an index, size, let, scalar, or the name of what is being defined."""

    name: str
    span: Span = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Number:
    """A literal, kept as its text; never signed."""

    text: str
    span: Span = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Apply:
    """``function(arguments)``: a tensor element or a built-in function, ``min`` and ``max`` included."""

    function: Name
    arguments: tuple[Expr, ...]
    span: Span = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return expression_text(self)


@dataclass(frozen=True, slots=True)
class Boundary:
    """``kind(arguments)(subscripts)``, such as ``constant_exterior(I, 0)(n, h - 1)``."""

    kind: Name
    arguments: tuple[Expr, ...]
    subscripts: tuple[Expr, ...]
    span: Span = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return expression_text(self)


@dataclass(frozen=True, slots=True)
class Cast:
    """``type(operand)``."""

    type: str
    operand: Expr
    span: Span = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return expression_text(self)


@dataclass(frozen=True, slots=True)
class Unary:
    """``-operand``, ``!operand`` or ``~operand``."""

    op: str
    operand: Expr
    span: Span = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return expression_text(self)


@dataclass(frozen=True, slots=True)
class Binary:
    """``lhs op rhs``; ``op`` is a key of ``PRECEDENCE``."""

    op: str
    lhs: Expr
    rhs: Expr
    span: Span = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return expression_text(self)


@dataclass(frozen=True, slots=True)
class Conditional:
    """``condition ? then : otherwise``."""

    condition: Expr
    then: Expr
    otherwise: Expr
    span: Span = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return expression_text(self)


@dataclass(frozen=True, slots=True)
class Named:
    """``name = value`` among the arguments of a call of a def; it stands nowhere else."""

    name: Name
    value: Expr
    span: Span = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return expression_text(self)


Expr = Name | Number | Apply | Boundary | Cast | Unary | Binary | Conditional | Named


@dataclass(frozen=True, slots=True)
class Range:
    """``where index in lower:upper``, half-open."""

    index: Name
    lower: Expr
    upper: Expr
    span: Span = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return f"{self.index} in {_bound_text(self.lower)}:{_bound_text(self.upper)}"


@dataclass(frozen=True, slots=True)
class Let:
    """``where name = value``: the value stands wherever the name is used in the statement."""

    name: Name
    value: Expr
    span: Span = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return f"{self.name} = {self.value}"


@dataclass(frozen=True, slots=True)
class Exists:
    """``where exists read``: an access that takes part in range inference only."""

    read: Expr
    span: Span = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return f"exists {self.read}"


@dataclass(frozen=True, slots=True)
class Order:
    """``where last index`` or ``where first index``: which of the instances that name one element counts."""

    which: str
    index: Name
    span: Span = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return f"{self.which} {self.index}"


Clause = Range | Let | Exists | Order


@dataclass(frozen=True, slots=True)
class Equivalent:
    """``<=> function(arguments)``: a library call said to compute the same; read and ignored."""

    function: Name
    arguments: tuple[Expr, ...]
    span: Span = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return f"<=> {self.function}({_list_text(self.arguments)})"


@dataclass(frozen=True, slots=True)
class Declared:
    """``type(dims)`` before the first statement that writes a tensor; ``dims`` is None without parentheses."""

    type: str
    dims: tuple[Expr, ...] | None = None
    span: Span = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return self.type + ("" if self.dims is None else f"({_list_text(self.dims)})")


@dataclass(frozen=True, slots=True)
class Statement:
    """``declared target(subscripts) operator value <=> equivalent where clauses``.

    ``subscripts`` is None for a target without parentheses; ``operator`` is one of ``= += *= min= max=``, one of the
    last four with ``!``, or ``argmin=!`` or ``argmax=!``.  ``others`` are further results of a call, ``target, others =
    value``, or further coordinates of a place, ``target, others(subscripts) argmax=! value``.
    """

    target: Name
    subscripts: tuple[Expr, ...] | None
    operator: str
    value: Expr
    equivalent: Equivalent | None = None
    clauses: tuple[Clause, ...] = ()
    span: Span = field(default=NOWHERE, compare=False)
    operator_span: Span = field(default=NOWHERE, compare=False)
    declared: Declared | None = None
    others: tuple[Name, ...] = ()

    def __str__(self) -> str:
        return _statement_text(self, "")


@dataclass(frozen=True, slots=True)
class Loop:
    """``for index in lower:upper { body }``: steps, one after another; no bounds where they follow from the body."""

    index: Name
    lower: Expr | None
    upper: Expr | None
    body: tuple[Statement | Loop, ...]
    span: Span = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return _loop_text(self, "")

    @property
    def head(self) -> str:
        """What stands before the body, with the brace."""
        bounds = [_bound_text(bound) for bound in (self.lower, self.upper) if bound is not None]
        return f"for {self.index}{' in ' * bool(bounds)}{':'.join(bounds)} {{"


@dataclass(frozen=True, slots=True)
class Parameter:
    """An input or output: ``const type name = default``, ``type(dims) name``, ``type name``, or an output's ``name``.

    ``dims`` is None where no parentheses are written, ``default`` where there is none.
    """

    name: Name
    type: str | None = None
    dims: tuple[Expr, ...] | None = None
    const: bool = False
    span: Span = field(default=NOWHERE, compare=False)
    default: Expr | None = None

    def __str__(self) -> str:
        const = "const " if self.const else ""
        kind = "" if self.type is None else self.type
        dims = "" if self.dims is None else f"({_list_text(self.dims)})"
        default = "" if self.default is None else f" = {self.default}"
        return f"{const}{kind}{dims} {self.name}{default}".lstrip()


@dataclass(frozen=True, slots=True)
class Use:
    """``use "file.tc"`` or ``use library:name``: the defs of another text."""

    target: str
    is_library: bool
    span: Span = field(default=NOWHERE, compare=False)

    def __str__(self) -> str:
        return f"use library:{self.target}" if self.is_library else f'use "{self.target}"'


@dataclass(frozen=True, slots=True)
class Definition:
    """``def name<types>(inputs) -> (outputs) { body }``; ``types`` are parameters that stand for element types."""

    name: Name
    inputs: tuple[Parameter, ...]
    outputs: tuple[Parameter, ...]
    body: tuple[Statement | Loop, ...]
    span: Span = field(default=NOWHERE, compare=False)
    types: tuple[Name, ...] = ()

    def __str__(self) -> str:
        name = f"{self.name}<{', '.join(map(str, self.types))}>" if self.types else str(self.name)
        head = f"def {name}({_list_text(self.inputs)}) -> ({_list_text(self.outputs)}) {{"
        if len(head) > LINE_WIDTH:
            inputs = ",\n".join(f"{INDENT}{INDENT}{p}" for p in self.inputs)
            outputs = _list_text(self.outputs)
            if len(self.outputs) > 1 and len(outputs) + len(INDENT) + len("-> () {") > LINE_WIDTH:
                outputs = "\n" + ",\n".join(f"{INDENT}{INDENT}{p}" for p in self.outputs)
            head = f"def {name}(\n{inputs})\n{INDENT}-> ({outputs}) {{"
        return "\n".join([head, *(_item_text(item, INDENT) for item in self.body), "}"])


PRECEDENCE: dict[str, int] = {
    "||": 1, "&&": 2, "<": 3, "<=": 3, ">": 3, ">=": 3, "==": 3, "!=": 3, "|": 4, "^": 5, "&": 6, "<<": 7, ">>": 7,
    "+": 8, "-": 8, "*": 9, "/": 9, "%": 9,
}  # fmt: skip
"""Binary operators, all left-associative; a larger number binds tighter."""

_CONDITIONAL, _UNARY, _PRIMARY = 0, 10, 11


def children(expr: Expr) -> tuple[Expr, ...]:
    """The direct operands of an expression, in textual order."""
    match expr:
        case Apply():
            return expr.arguments
        case Boundary():
            return (*expr.arguments, *expr.subscripts)
        case Cast() | Unary():
            return (expr.operand,)
        case Binary():
            return (expr.lhs, expr.rhs)
        case Conditional():
            return (expr.condition, expr.then, expr.otherwise)
        case Named():
            return (expr.value,)
        case _:
            return ()


def statements(body: tuple[Statement | Loop, ...]) -> Iterator[Statement]:
    """The statements of a body, those inside loops included, in textual order."""
    for item in body:
        if isinstance(item, Loop):
            yield from statements(item.body)
        else:
            yield item


def expressions(definition: Definition) -> Iterator[Expr]:
    """The outermost expressions of a definition."""
    for parameter in (*definition.inputs, *definition.outputs):
        yield from parameter.dims or ()
        yield from () if parameter.default is None else (parameter.default,)
    yield from _body_expressions(definition.body)


def _body_expressions(body: tuple[Statement | Loop, ...]) -> Iterator[Expr]:
    for item in body:
        if isinstance(item, Loop):
            yield from (bound for bound in (item.lower, item.upper) if bound is not None)
            yield from _body_expressions(item.body)
            continue
        yield from (item.declared.dims or ()) if item.declared else ()
        yield from item.subscripts or ()
        yield item.value
        yield from item.equivalent.arguments if item.equivalent else ()
        for clause in item.clauses:
            match clause:
                case Range():
                    yield from (clause.lower, clause.upper)
                case Let():
                    yield clause.value
                case Exists():
                    yield clause.read


def expression_text(expr: Expr, tighter_than: int = 0) -> str:
    """Program text of an expression, in parentheses if its outermost operator binds less than ``tighter_than``."""
    match expr:
        case Name() | Number():
            return str(expr)
        case Apply():
            return f"{expr.function}({_list_text(expr.arguments)})"
        case Boundary():
            return f"{expr.kind}({_list_text(expr.arguments)})({_list_text(expr.subscripts)})"
        case Cast():
            return f"{expr.type}({expression_text(expr.operand)})"
        case Named():
            return f"{expr.name} = {expr.value}"
        case Unary():
            text, level = f"{expr.op}{expression_text(expr.operand, _UNARY)}", _UNARY
        case Binary():
            level = PRECEDENCE[expr.op]
            text = f"{expression_text(expr.lhs, level)} {expr.op} {expression_text(expr.rhs, level + 1)}"
        case Conditional():
            level = _CONDITIONAL
            condition, otherwise = expression_text(expr.condition, level + 1), expression_text(expr.otherwise)
            text = f"{condition} ? {expression_text(expr.then)} : {otherwise}"
    return f"({text})" if level < tighter_than else text


def _list_text(items: tuple[Expr, ...] | tuple[Parameter, ...]) -> str:
    return ", ".join(map(str, items))


def _bound_text(expr: Expr) -> str:
    return expression_text(expr, _CONDITIONAL + 1)


def _item_text(item: Statement | Loop, indent: str) -> str:
    return _loop_text(item, indent) if isinstance(item, Loop) else _statement_text(item, indent)


def _loop_text(loop: Loop, indent: str) -> str:
    return "\n".join([indent + loop.head, *(_item_text(item, indent + INDENT) for item in loop.body), f"{indent}}}"])


def _statement_text(statement: Statement, indent: str) -> str:
    subscripts = "" if statement.subscripts is None else f"({_list_text(statement.subscripts)})"
    declared = "" if statement.declared is None else f"{statement.declared} "
    targets = ", ".join(map(str, (statement.target, *statement.others)))
    text = f"{indent}{declared}{targets}{subscripts} {statement.operator} {statement.value}"
    if statement.equivalent is not None:
        text += f" {statement.equivalent}"
    if not statement.clauses:
        return text
    clauses = "where " + ", ".join(map(str, statement.clauses))
    if len(text) + 1 + len(clauses) <= LINE_WIDTH:
        return f"{text} {clauses}"
    return f"{text}\n{indent}{INDENT}{clauses}"
