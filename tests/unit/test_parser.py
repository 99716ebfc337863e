"""Tokens, syntax trees, printing, and texts that try to break the parser."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tcomp.errors import CompileError, SourceText
from tcomp.grammar import define, parse
from tcomp.grammar.parsing.lexer import MAX_TOKENS, tokenize
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.limits import MAX_DEPTH, MAX_NODES
from tcomp.grammar.tree.syntax import Apply, Binary, Cast, Conditional, Expr, Name, Number, Parameter, Unary

pytestmark = pytest.mark.sweep(4)

CATALOGUE = Path(__file__).parents[3] / "shared" / "corpus" / "tc_catalogue.json"


def statement(text: str) -> syntax.Statement:
    """The single statement of a program."""
    (definition,) = parse(f"def f() -> (O) {{ {text} }}")
    (item,) = definition.body
    assert isinstance(item, syntax.Statement)
    return item


def expression(text: str) -> Expr:
    """An expression on its own."""
    return statement(f"O = {text}").value


def failure(text: str) -> CompileError | None:
    """How a program fails, if it does."""
    try:
        define(text)
    except CompileError as error:
        return error
    return None


def kinds(text: str) -> list[str]:
    return [token.type for token in tokenize(SourceText(text))]


def a(*subscripts: Expr) -> Apply:
    return Apply(Name("A"), subscripts)


I, J = Name("i"), Name("j")  # noqa: E741 - the index i


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("min=! min= min max=!", ["ACCUMULATE", "ACCUMULATE", "MIN", "ACCUMULATE"]),
        ("xmin= minx", ["WORD", "EQUAL", "WORD"]),
        ("a+=!b", ["WORD", "ACCUMULATE", "WORD"]),
        ("a+= !b", ["WORD", "ACCUMULATE", "BANG", "WORD"]),
        ("a<=!b", ["WORD", "LESSEQUAL", "BANG", "WORD"]),
        ("a<=>b", ["WORD", "EQUIVALENT", "WORD"]),
        ("inf nan infinity nanny inf2", ["WORD"] * 5),
        ("3 3. .5 1e-5 1E5 0x1F 0x1.8p3", ["NUMBER"] * 7),
        ("3e 0x", ["NUMBER", "WORD"] * 2),
        ("float4 float threadIdx half int main", ["WORD", "TYPE", "WORD", "TYPE", "TYPE", "WORD"]),
        ("const int S, const", ["CONST", "TYPE", "WORD", "COMMA", "WORD"]),
        ("for t in for", ["FOR", "WORD", "IN", "WORD"]),
        ("a # comment = 3\nb", ["WORD", "WORD"]),
        ("0..2 $", ["INVALID", "INVALID"]),
    ],
)  # fmt: skip
def test_tokens(text: str, expected: list[str]) -> None:
    assert kinds(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a - b - c", Binary("-", Binary("-", Name("a"), Name("b")), Name("c"))),
        ("a + b * c", Binary("+", Name("a"), Binary("*", Name("b"), Name("c")))),
        ("a < b == c", Binary("==", Binary("<", Name("a"), Name("b")), Name("c"))),
        ("a || b && c", Binary("||", Name("a"), Binary("&&", Name("b"), Name("c")))),
        ("-a * b", Binary("*", Unary("-", Name("a")), Name("b"))),
        ("!a && b", Binary("&&", Unary("!", Name("a")), Name("b"))),
        ("- - 3", Unary("-", Unary("-", Number("3")))),
        ("a ? b : c ? d : e", Conditional(Name("a"), Name("b"), Conditional(Name("c"), Name("d"), Name("e")))),
        ("a ? b ? c : d : e", Conditional(Name("a"), Conditional(Name("b"), Name("c"), Name("d")), Name("e"))),
        ("a + b ? c : d", Conditional(Binary("+", Name("a"), Name("b")), Name("c"), Name("d"))),
        ("int32(A(i)) + A()", Binary("+", Cast("int32", a(I)), a())),
        ("min(i, max(1, j))", Apply(Name("min"), (I, Apply(Name("max"), (Number("1"), J))))),
        ("mirror_image(A)(i - 1)", syntax.Boundary(Name("mirror_image"), (Name("A"),),
                                                   (Binary("-", I, Number("1")),))),
    ],
)  # fmt: skip
def test_expressions(text: str, expected: Expr) -> None:
    assert expression(text) == expected


def test_statement() -> None:
    parsed = statement("O(i, 2*j) max=! A(i) <=> g(A(i), 1) where i in 0:N, x = A(j), exists A(i)")
    assert parsed == syntax.Statement(
        Name("O"),
        (I, Binary("*", Number("2"), J)),
        "max=!",
        a(I),
        syntax.Equivalent(Name("g"), (a(I), Number("1"))),
        (syntax.Range(I, Number("0"), Name("N")), syntax.Let(Name("x"), a(J)), syntax.Exists(a(I))),
    )


def test_scalars_keep_their_parentheses() -> None:
    assert statement("O = A").subscripts is None
    assert statement("O() = A").subscripts == ()
    assert expression("A") == Name("A")
    assert expression("A()") == a()


def test_statements_need_no_separator() -> None:
    (definition,) = parse("def f(float(N) a)->(b,c){b(i)=a(i) c(i)=b(i)where i in 0:N b(i)=a\n(i)}")
    assert [str(s) for s in definition.body] == ["b(i) = a(i)", "c(i) = b(i) where i in 0:N", "b(i) = a(i)"]


def test_parameters() -> None:
    (definition,) = parse("def f(float(N, 2*N, 3) A, double s, const int S, half() h) -> (int32(N) O, P, float() q) {}")
    n = Name("N")
    assert definition.inputs == (
        Parameter(Name("A"), "float", (n, Binary("*", Number("2"), n), Number("3"))),
        Parameter(Name("s"), "double"),
        Parameter(Name("S"), "int", const=True),
        Parameter(Name("h"), "half", ()),
    )
    assert definition.outputs == (
        Parameter(Name("O"), "int32", (n,)),
        Parameter(Name("P")),
        Parameter(Name("q"), "float", ()),
    )


def test_several_definitions_and_none() -> None:
    assert [d.name.name for d in parse("def f() -> (a) { a = 1 } # one\ndef g() -> () {}")] == ["f", "g"]
    assert parse(" # nothing\n") == ()


def test_words_that_are_keywords_elsewhere() -> None:
    text = "def for(float(const) for, float inf) -> (const) { const(in_) = for(in_) + inf where in_ in 0:const }"
    (definition,) = parse(text)
    assert str(parse(str(definition))[0]) == str(definition)


def test_spans_point_into_the_text() -> None:
    text = "def f(float(N) A) -> (O) {\n  O(i) +=! (A(i) + 1) * 2 where i in 0:N\n}"
    (definition,) = parse(text)
    item = definition.body[0]
    assert isinstance(item, syntax.Statement) and isinstance(item.value, Binary)

    def part(node: Expr | syntax.Statement | syntax.Definition) -> str:
        return text[node.span.start : node.span.end]

    assert part(definition) == text
    assert part(item) == "O(i) +=! (A(i) + 1) * 2 where i in 0:N"
    assert part(item.value.lhs) == "(A(i) + 1)"
    assert text[item.operator_span.start : item.operator_span.end] == "+=!"


def test_printing() -> None:
    text = """\
def norm(float(N, K) I, const int S) -> (mean, float(N) var) {
    mean(n) +=! I(n, r_k)
    var(n) = (mean(n) / K - -mean(n)) * (n < 3 && !(n == 2) ? 1.0 : 2.0) where n in 0:N
    var(n) min=! repeat_edge(I)(n, S * r + 1) + constant_exterior(I, 0)(n, r - 1) + a_long_name(n)
        where r in 0:(S > 2 ? 3 : 4), a_long_name = float(int32(n)), exists I(n, r)
    tmp = 3 <=> library(I(n, 0), 1)
}"""
    assert str(parse(text)[0]) == text
    untidy = text.replace("(mean(n) /", "((mean((n)) /").replace("K -", "K) -").replace("\n", " ")
    assert str(parse(untidy)[0]) == text


def test_long_heads_are_broken() -> None:
    inputs = ", ".join(f"float(N, M) tensor{k}" for k in range(8))
    (definition,) = parse(f"def f({inputs}) -> (O) {{ O(i, j) = tensor0(i, j) }}")
    printed = str(definition)
    assert max(map(len, printed.splitlines())) < 100
    assert parse(printed) == (definition,)


def test_catalogue_prints_and_parses() -> None:
    if not CATALOGUE.exists():
        pytest.skip("the catalogue is not here")
    entries = json.loads(CATALOGUE.read_text(encoding="utf-8"))
    valid = [entry["tc"] for entry in entries if entry["parses"]]
    assert len(valid) > 300
    for text in valid:
        definitions = parse(text)
        assert definitions
        assert parse("\n".join(map(str, definitions))) == definitions


def test_catalogue_of_bad_programs() -> None:
    """What the original rejects is either one of tcomp's additions or an error that points somewhere."""
    if not CATALOGUE.exists():
        pytest.skip("the catalogue is not here")
    entries = [e for e in json.loads(CATALOGUE.read_text(encoding="utf-8")) if not e["parses"]]
    failures = {entry["tc"]: failure(entry["tc"]) for entry in entries}
    assert all(error is None or (error.line is not None and "^" in error.caret) for error in failures.values())
    accepted = [name for text, error in failures.items() if error is None for name in define(text)]
    assert sorted(accepted) == ["concat", "f", "f", *["fun"] * 9, "gather", "sum1D"]


def _program(body: str) -> str:
    return f"def f(float(N) A) -> (O) {{\n{body}\n}}"


HOSTILE = {
    "empty": "",
    "comment": "#" + "x" * 10_000_000,
    "blank": " \n" * 5_000_000,
    "zeros": "\0" * 10_000_000,
    "binary": bytes(range(256)).decode("latin-1") * 40_000,
    "surrogates": _program("O(i) = \ud800 A(i)"),
    "one word": "x" * 10_000_000,
    "one integer": _program("O(i) = A(i) + " + "9" * 10_000_000),
    "one float": _program("O(i) = A(i) + 1." + "9" * 10_000_000),
    "huge exponent": _program("O(i) = A(i) * 1e999999999 + 0x1p999999999"),
    "parentheses": _program("O(i) = " + "(" * 100_000 + "A(i)" + ")" * 100_000),
    "open parentheses": _program("O(i) = " + "(" * 100_000),
    "calls": _program("O(i) = " + "exp(" * 50_000 + "A(i)" + ")" * 50_000),
    "minuses": _program("O(i) = " + "-" * 100_000 + "A(i)"),
    "sum": _program("O(i) = " + "A(i)+" * 40_000 + "A(i)"),
    "conditionals": _program("O(i) = " + "i<1?A(i):" * 20_000 + "A(i)"),
    "braces": "def f() -> () {" * 20_000,
    "loops": _program("for t in 0:3 {" * 10_000 + "}" * 10_000),
    "statements": _program("O(i) = A(i)\n" * 1_000_000),
    "bad statements": _program("O(i) = A(i\n" * 20_000),
    "unknown names": _program("O(i) = B(i)\n" * 20_000),
    "definitions": "def " * 100_000,
    "commas": "," * 200_000,
    "lets": _program("O(i) = x60 where x0 = A(i), " + ", ".join(f"x{k + 1} = x{k}+x{k}" for k in range(60))),
    "lets in clauses": _program(
        "O(i) = A(i) where x0 = i, "
        + ", ".join(f"x{k + 1} = x{k}+x{k}" for k in range(12))
        + f", exists A({'+'.join(['x12'] * 200)}), j in 0:{'+'.join(['x12'] * 200)}"
    ),
    "target subscripts": _program("O(" + ", ".join(f"i{k}" for k in range(20_000)) + ") = A(i0)"),
    "index variables": _program("O +=! " + "+".join(f"A(i{k})" for k in range(200))),
    "dimensions": "def f(float(" + ", ".join(["N"] * 20_000) + ") A) -> (O) { O = 1 }",
    "subscripts": _program("O(i) = A(" + ", ".join("i" for _ in range(20_000)) + ")"),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.timeout(60)
def test_hostile_text_ends_soon(name: str) -> None:
    error = failure(HOSTILE[name])
    assert error is None or len(error.diagnostics) <= 21
    assert len(str(error)) < 20_000


def test_limits_are_told() -> None:
    with pytest.raises(CompileError, match=f"more than {MAX_TOKENS} tokens"):
        parse(HOSTILE["statements"])
    with pytest.raises(CompileError, match=f"levels deep, more than {MAX_DEPTH}"):
        parse(HOSTILE["minuses"])
    with pytest.raises(CompileError, match=f"parts, more than {MAX_NODES}"):
        parse(HOSTILE["sum"])
    parse(_program("O(i) = " + "A(i)+" * (MAX_DEPTH - 5) + "A(i)"))


def test_parsing_takes_time_in_proportion() -> None:
    """Eight times the statements may not take anywhere near 64 times as long."""

    def seconds(statements: int) -> float:
        text = _program("\n".join(f"T{k}(i) = A(i) * 2.0 + A(i) where i in 0:N" for k in range(statements)))
        start = time.perf_counter()
        assert len(parse(text)[0].body) == statements
        return time.perf_counter() - start

    parse(_program("O(i) = A(i)"))
    assert min(seconds(1600) for _ in range(3)) < 32 * min(seconds(200) for _ in range(3))
