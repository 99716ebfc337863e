"""Printing a syntax tree gives text that parses to the same tree; no text whatever makes the front end crash."""

from __future__ import annotations

import string

from hypothesis import given, settings
from hypothesis import strategies as st

from tcomp.errors import CompileError
from tcomp.grammar import define, parse
from tcomp.grammar.parsing.lexer import ASSIGNMENTS, KEYWORDS, PUNCTUATION
from tcomp.grammar.tree.syntax import (
    PRECEDENCE,
    Apply,
    Binary,
    Boundary,
    Cast,
    Conditional,
    Definition,
    Equivalent,
    Exists,
    Expr,
    Let,
    Loop,
    Name,
    Number,
    Parameter,
    Range,
    Statement,
    Unary,
)
from tcomp.values.operators import TYPE_KEYWORDS

words = st.one_of(
    st.sampled_from(["A", "i", "for", "const", "inf", "nan0", "float4", "main", "_", "wherever", "inn", "minimum"]),
    st.from_regex(r"[A-Za-z_][A-Za-z_0-9]{0,6}", fullmatch=True),
).filter(lambda word: word not in KEYWORDS)
names = st.builds(Name, words)
numbers = st.builds(
    Number,
    st.one_of(
        st.integers(0, 2**70).map(str),
        st.from_regex(r"([0-9]{1,4}\.[0-9]{0,3}|\.[0-9]{1,3})([eE][+-]?[0-9]{1,3})?", fullmatch=True),
        st.from_regex(r"[0-9]{1,3}[eE][+-]?[0-9]{1,3}", fullmatch=True),
        st.from_regex(r"0[xX][0-9a-fA-F]{1,4}(\.[0-9a-f]{0,2})?(p[+-]?[0-9]{1,2})?", fullmatch=True),
    ),
)
types = st.sampled_from(sorted(TYPE_KEYWORDS))


def lists(items: st.SearchStrategy[Expr]) -> st.SearchStrategy[tuple[Expr, ...]]:
    return st.lists(items, max_size=3).map(tuple)


def larger(parts: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.one_of(
        st.builds(Apply, names | st.sampled_from([Name("min"), Name("max")]), lists(parts)),
        st.builds(Boundary, names, lists(parts), lists(parts)),
        st.builds(Cast, types, parts),
        st.builds(Unary, st.sampled_from("-!"), parts),
        st.builds(Binary, st.sampled_from(sorted(PRECEDENCE)), parts, parts),
        st.builds(Conditional, parts, parts, parts),
    )


expressions: st.SearchStrategy[Expr] = st.recursive(names | numbers, larger, max_leaves=12)
clauses = st.one_of(
    st.builds(Range, names, expressions, expressions),
    st.builds(Let, names, expressions),
    st.builds(Exists, expressions),
)
statements = st.builds(
    Statement,
    names,
    st.none() | lists(expressions),
    st.sampled_from(["=", *ASSIGNMENTS]),
    expressions,
    st.none() | st.builds(Equivalent, names, lists(expressions)),
    st.lists(clauses, max_size=3).map(tuple),
)
bodies = st.recursive(
    st.lists(statements, max_size=3).map(tuple),
    lambda body: st.lists(statements | st.builds(Loop, names, expressions, expressions, body), max_size=3).map(tuple),
    max_leaves=3,
)
tensors = st.builds(Parameter, names, types, st.none() | lists(expressions))
inputs = st.one_of(tensors, st.builds(Parameter, names, types, st.none(), st.just(True)))
definitions = st.builds(
    Definition,
    names,
    st.lists(inputs, max_size=3).map(tuple),
    st.lists(tensors | st.builds(Parameter, names), max_size=3).map(tuple),
    bodies,
)


@given(st.lists(definitions, min_size=1, max_size=2).map(tuple))
@settings(max_examples=60, deadline=None)
def test_parse_inverts_print(program: tuple[Definition, ...]) -> None:
    text = "\n".join(map(str, program))
    parsed = parse(text)
    assert parsed == program
    assert "\n".join(map(str, parsed)) == text


@given(expressions)
@settings(max_examples=150, deadline=None)
def test_parentheses_are_minimal(expr: Expr) -> None:
    """Taking any pair of parentheses that only groups out of a printed expression changes what it means."""
    text = str(expr)
    for start, end in _groups(text):
        shorter = f"{text[:start]} {text[start + 1 : end]} {text[end + 1 :]}"
        assert _parsed(shorter) != expr


def _groups(text: str) -> list[tuple[int, int]]:
    """Pairs of parentheses that do not hold the arguments of something."""
    pairs, opened = [], []
    for position, character in enumerate(text):
        if character == "(":
            opened.append(position)
        elif character == ")":
            start = opened.pop()
            if start == 0 or text[start - 1] not in string.ascii_letters + string.digits + "_)":
                pairs.append((start, position))
    return pairs


def _parsed(text: str) -> Expr | None:
    try:
        (definition,) = parse(f"def f() -> (O) {{ O = {text} }}")
    except CompileError:
        return None
    items = definition.body
    return items[0].value if len(items) == 1 and isinstance(items[0], Statement) and not items[0].clauses else None


words_and_marks = ["A", "B", "O", "i", "j", "N", "0", "1.5", "for", "const", "..", "[", ";"]
pieces = ["def f(float(N) A) -> (O) {", "O(i) = A(i)", "where i in 0:N", "repeat_edge(A)(i)", "exp(", "}"]
fragments = st.sampled_from([*PUNCTUATION, *ASSIGNMENTS, *KEYWORDS, *words_and_marks, *pieces])


@given(st.lists(fragments, max_size=40).map(" ".join) | st.text(max_size=200) | st.binary(max_size=200).map(str))
@settings(max_examples=200, deadline=None)
def test_any_text_ends_in_a_program_or_an_error(text: str) -> None:
    outcome: object
    try:
        outcome = define(text)
    except CompileError as error:
        outcome = str(error)
    assert outcome
