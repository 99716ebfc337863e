"""From text to syntax tree: ``parse``.

The grammar in ``tc.lark`` decides what is legal.  Only when it rejects a text is the text split into definitions and
statements (``recovery.py``), each parsed on its own, so that every independent error is reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from lark import Lark, Token, Transformer, UnexpectedToken, v_args

from tcomp.errors import Diagnostic, SourceText, Span
from tcomp.grammar.parsing import tables
from tcomp.grammar.parsing.chains import is_link, shallow
from tcomp.grammar.parsing.lexer import span_of, tokenize
from tcomp.grammar.parsing.recovery import Recovery
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.diagnostics import compile_error
from tcomp.grammar.tree.limits import complaint
from tcomp.grammar.tree.syntax import Expr, Loop, Name, Parameter, Statement

Body = tuple[Statement | Loop, ...]


@v_args(inline=True)
class _TreeBuilder(Transformer[Token, Any]):
    """Makes syntax nodes as the parser reduces; one method per rule of the grammar."""

    def program(self, *items: syntax.Definition | syntax.Use) -> tuple[syntax.Definition | syntax.Use, ...]:
        return items

    def use_file(self, start: Token, file: Token) -> syntax.Use:
        return syntax.Use(str(file)[1:-1], False, span_of(start).to(span_of(file)))

    def use_library(self, start: Token, word: Token, name: Token) -> syntax.Use:
        return syntax.Use(str(name), True, span_of(start).to(span_of(name)))

    def definition(
        self,
        start: Token,
        word: Token,
        types: tuple[Name, ...] | None,
        inputs: tuple[Parameter, ...] | None,
        outputs: tuple[Parameter, ...] | None,
        body: Body,
        end: Token,
    ) -> syntax.Definition:
        span = span_of(start).to(span_of(end))
        return syntax.Definition(_name(word), inputs or (), outputs or (), body, span, types or ())

    def inputs(self, *parameters: Parameter) -> tuple[Parameter, ...]:
        return parameters

    outputs = inputs

    def constant(self, const: Token, kind: Token, word: Token, equal: Token | None, default: Expr | None) -> Parameter:
        span, default = span_of(const).to(span_of(word)), None if default is None else shallow(default)
        return Parameter(_name(word), str(kind), None, True, span, default)

    def tensor(self, kind: Token, dims: tuple[Expr, ...] | None, word: Token) -> Parameter:
        return Parameter(_name(word), str(kind), dims, False, span_of(kind).to(span_of(word)))

    def inferred(self, word: Token) -> Parameter:
        return Parameter(_name(word), span=span_of(word))

    def dims(self, items: tuple[Expr, ...] | None) -> tuple[Expr, ...]:
        return items or ()

    def body(self, *items: Statement | Loop) -> Body:
        return items

    def loop(
        self, start: Token, index: Token, lower: Expr | None, upper: Expr | None, body: Body, end: Token
    ) -> Loop:  # fmt: skip
        low, high = (None if bound is None else shallow(bound) for bound in (lower, upper))
        return Loop(_name(index), low, high, body, span_of(start).to(span_of(end)))

    def assignment(
        self,
        target: Token,
        subscripts: tuple[tuple[Expr, ...], Span] | None,
        operator: Token,
        value: Expr,
        equivalent: syntax.Equivalent | None,
        clauses: tuple[syntax.Clause, ...] | None,
    ) -> Statement:
        name, end = _name(target), (clauses[-1] if clauses else equivalent or value).span
        indices = None if subscripts is None else subscripts[0]
        return Statement(
            name,
            indices,
            str(operator),
            shallow(value),
            equivalent,
            clauses or (),
            name.span.to(end),
            span_of(operator),
        )

    def several(
        self,
        target: Token,
        others: tuple[Name, ...],
        operator: Token,
        value: Expr,
        clauses: tuple[syntax.Clause, ...] | None,
    ) -> Statement:
        made = self.assignment(target, None, operator, value, None, clauses)
        return replace(made, others=others)

    def places(
        self,
        target: Token,
        others: tuple[Name, ...],
        subscripts: tuple[tuple[Expr, ...], Span] | None,
        operator: Token,
        value: Expr,
        clauses: tuple[syntax.Clause, ...] | None,
    ) -> Statement:
        made = self.assignment(target, subscripts, operator, value, None, clauses)
        return replace(made, others=others)

    def declared(self, kind: Token, dims: tuple[Expr, ...] | None, statement: Statement) -> Statement:
        declared = syntax.Declared(str(kind), dims, span_of(kind))
        return replace(statement, declared=declared, span=declared.span.to(statement.span))

    def names(self, *words: Token) -> tuple[Name, ...]:
        return tuple(map(_name, words))

    def equivalent(self, word: Token, arguments: tuple[Expr, ...] | None, end: Token) -> syntax.Equivalent:
        return syntax.Equivalent(_name(word), arguments or (), span_of(word).to(span_of(end)))

    def where(self, *clauses: syntax.Clause) -> tuple[syntax.Clause, ...]:
        return clauses

    def range(self, word: Token, lower: Expr, upper: Expr) -> syntax.Range:
        return syntax.Range(_name(word), shallow(lower), shallow(upper), span_of(word).to(upper.span))

    def let(self, word: Token, value: Expr) -> syntax.Let:
        return syntax.Let(_name(word), shallow(value), span_of(word).to(value.span))

    def order(self, which: Token, index: Token) -> syntax.Order:
        return syntax.Order(str(which), _name(index), span_of(which).to(span_of(index)))

    def exists(self, word: Token, read: Expr) -> syntax.Exists:
        return syntax.Exists(shallow(read), span_of(word).to(read.span))

    def subscripts(self, items: tuple[Expr, ...] | None, end: Token) -> tuple[tuple[Expr, ...], Span]:
        return items or (), span_of(end)

    def expressions(self, *items: Expr) -> tuple[Expr, ...]:
        return tuple(map(shallow, items))

    arguments = expressions

    def named(self, word: Token, operator: Token, value: Expr) -> Expr:
        return syntax.Named(_name(word), shallow(value), span_of(word).to(value.span))

    def conditional(self, condition: Expr, then: Expr, otherwise: Expr) -> Expr:
        condition, then, otherwise = shallow(condition), shallow(then), shallow(otherwise)
        return syntax.Conditional(condition, then, otherwise, condition.span.to(otherwise.span))

    def binary(self, lhs: Expr, operator: Token, rhs: Expr) -> Expr:
        whole = lhs if is_link(lhs, str(operator)) else shallow(lhs)
        return syntax.Binary(str(operator), whole, shallow(rhs), lhs.span.to(rhs.span))

    def unary(self, operator: Token, operand: Expr) -> Expr:
        return syntax.Unary(str(operator), operand, span_of(operator).to(operand.span))

    def number(self, token: Token) -> Expr:
        return syntax.Number(str(token), span_of(token))

    def name(self, word: Token) -> Expr:
        return _name(word)

    def apply(self, word: Token, arguments: tuple[tuple[Expr, ...], Span]) -> Expr:
        return syntax.Apply(_name(word), arguments[0], span_of(word).to(arguments[1]))

    def boundary(
        self, word: Token, arguments: tuple[tuple[Expr, ...], Span], subscripts: tuple[tuple[Expr, ...], Span]
    ) -> Expr:
        return syntax.Boundary(_name(word), arguments[0], subscripts[0], span_of(word).to(subscripts[1]))

    def cast(self, kind: Token, operand: Expr, end: Token) -> Expr:
        return syntax.Cast(str(kind), shallow(operand), span_of(kind).to(span_of(end)))

    def parenthesised(self, start: Token, expr: Expr, end: Token) -> Expr:
        return replace(shallow(expr), span=span_of(start).to(span_of(end)))


def _name(token: Token) -> Name:
    return Name(str(token), span_of(token))


@cache
def _lark() -> Lark:
    """The parser, made when first needed."""
    return tables.parser(_TreeBuilder())


def parse_tokens(tokens: Sequence[Token], start: str) -> Any:
    """The value of rule ``start`` for a list of tokens; raises ``lark.UnexpectedToken``."""
    return _lark().parse(tokens, start)


@dataclass(frozen=True, slots=True)
class Parsed:
    """The definitions of a text that parse and are no larger than the limits, what it uses, and what is wrong."""

    definitions: tuple[syntax.Definition, ...]
    uses: tuple[syntax.Use, ...]
    errors: tuple[Diagnostic, ...]


def parse_recovering(source: SourceText, start: int = 0) -> Parsed:
    """What a text says from ``start`` on, and every independent error of the rest.

    Raises CompileError at once for a text that is too long or too deeply nested to be read.
    """
    tokens = tokenize(source, start)
    try:
        items: Sequence[syntax.Definition | syntax.Use] = parse_tokens(tokens, "program")
        errors: list[Diagnostic] = []
    except UnexpectedToken:
        recovery = Recovery(tokens, source, parse_tokens)
        items, errors = recovery.items, recovery.errors
    readable = []
    for definition in items:
        if isinstance(definition, syntax.Use):
            continue
        too_large = _too_large(definition, source)
        errors.extend(too_large)
        if not too_large:
            readable.append(definition)
    uses = tuple(item for item in items if isinstance(item, syntax.Use))
    return Parsed(tuple(readable), uses, tuple(errors))


def _too_large(definition: syntax.Definition, source: SourceText) -> list[Diagnostic]:
    complaints = ((expr.span, complaint(expr, syntax.children)) for expr in syntax.expressions(definition))
    return [Diagnostic(text, source, span, "split the statement") for span, text in complaints if text]


def parse(text: str, name: str = "<string>") -> tuple[syntax.Definition, ...]:
    """The definitions of a text.  Raises CompileError with every independent syntax error."""
    parsed = parse_recovering(SourceText(text, name))
    if parsed.errors:
        raise compile_error(parsed.errors)
    return parsed.definitions
