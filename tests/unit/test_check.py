"""The checked program: names, types, conversions, reductions, content, warnings, errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tcomp.errors import CompileError, SourceText, Span
from tcomp.grammar import check, define, parse
from tcomp.grammar.tree.function import (
    Binary,
    Boundary,
    Call,
    Cast,
    Constant,
    Expr,
    Function,
    Index,
    Read,
    Select,
    Size,
    Statement,
    Unary,
    children,
    walk,
)
from tcomp.values.operators import BOOL, FLOAT16, FLOAT32, FLOAT64, INT8, INT32, INT64, UINT8, DType

CATALOGUE = Path(__file__).parents[3] / "shared" / "corpus" / "tc_catalogue.json"
SPAN = Span(0, 0)


def checked(text: str) -> Function:
    """The single definition of a text, checked but not solved."""
    (definition,) = parse(text)
    return check(definition, SourceText(text))


def function(body: str, inputs: str = "float(N, M) A, float(N) b, int32(N) k, int32 s", outputs: str = "O") -> Function:
    return checked(f"def f({inputs}) -> ({outputs}) {{ {body} }}")


def value(text: str, **inputs: str) -> Expr:
    """The typed right-hand side of ``O(i) = text``."""
    declared = ", ".join(f"{kind}(N) {name}" for name, kind in inputs.items())
    return function(f"O(i) = {text}", declared or "float(N, M) A, float(N) b, int32(N) k, int32 s").statements[0].value


def read(name: str, dtype: DType, *subscripts: Expr) -> Read:
    return Read(name, subscripts or (Index("i", INT32, SPAN),), dtype, SPAN)


def errors(body: str, **head: str) -> list[str]:
    with pytest.raises(CompileError) as failure:
        function(body, **head)
    return [d.message for d in failure.value.diagnostics]


def shown(expr: Expr) -> str:
    """A typed expression in one line, casts and types of literals included."""
    parts = [shown(child) for child in children(expr)]
    match expr:
        case Constant():
            return f"{expr.value}:{expr.dtype}"
        case Index() | Size():
            return expr.name
        case Read():
            return f"{expr.tensor}({', '.join(parts)})"
        case Unary():
            return f"{expr.op}{parts[0]}"
        case Binary():
            return f"({parts[0]} {expr.op} {parts[1]})"
        case Select():
            return f"({parts[0]} ? {parts[1]} : {parts[2]})"
        case Call():
            return f"{expr.intrinsic}({', '.join(parts)})"
        case Cast():
            return f"{expr.dtype}({parts[0]})"


@pytest.mark.parametrize(
    ("text", "expected", "dtype"),
    [
        ("b(i) + 1", "(b(i) + 1.0:float32)", "float32"),
        ("k(i) + 1", "(k(i) + 1:int32)", "int32"),
        ("k(i) * 0.5", "(float32(k(i)) * 0.5:float32)", "float32"),
        ("k(i) + 3E5", "(float32(k(i)) + 300000.0:float32)", "float32"),
        ("b(i) / (N * M)", "(b(i) / float32((N * M)))", "float32"),
        ("k(i) + 3000000000", "(int64(k(i)) + 3000000000:int64)", "int64"),
        ("0x10 + k(i)", "(16:int32 + k(i))", "int32"),
        ("b(i) * 0.1", f"(b(i) * {0.10000000149011612}:float32)", "float32"),
        ("i - s + k(i)", "((i - s()) + k(i))", "int32"),
        ("b(i) < k(i)", "(b(i) < float32(k(i)))", "bool"),
        ("int32(b(i) > 0)", "int32((b(i) > 0.0:float32))", "int32"),
        ("bool(b(i))", "(b(i) != 0.0:float32)", "bool"),
        ("i < 3 && !(k(i) == s)", "((i < 3:int32) && !(k(i) == s()))", "bool"),
        ("i < 3 ? 1 : 0.0", "((i < 3:int32) ? 1.0:float32 : 0.0:float32)", "float32"),
        ("select(i < 3, k(i), 2)", "((i < 3:int32) ? k(i) : 2:int32)", "int32"),
        ("clamp(b(i), 0, 6)", "((b(i) max 0.0:float32) min 6.0:float32)", "float32"),
        ("min(k(i), max(1, b(i)))", "(float32(k(i)) min (1.0:float32 max b(i)))", "float32"),
        ("fmax(b(i), 0)", "fmax(b(i), 0.0:float32)", "float32"),
        ("exp(k(i))", "exp(float32(k(i)))", "float32"),
        ("abs(k(i)) + relu(k(i)) + sign(k(i))", "((abs(k(i)) + relu(k(i))) + sign(k(i)))", "int32"),
        ("sigmoid(k(i))", "sigmoid(float32(k(i)))", "float32"),
        ("pow(double(b(i)), k(i))", "pow(float64(b(i)), float64(k(i)))", "float64"),
        ("-k(i) % 3", "(-k(i) % 3:int32)", "int32"),
        ("int(b(i)) + half(1)", "(float32(int32(b(i))) + float32(float16(1:int32)))", "float16"),
        ("(i < 2) + (i > 5)", "((i < 2:int32) || (i > 5:int32))", "bool"),
    ],
)
def test_types_of_expressions(text: str, expected: str, dtype: str) -> None:
    typed = function(f"O(i) = {text}")
    result = typed.statements[0].value
    if isinstance(result, Cast) and result.dtype == FLOAT16:
        result = result.operand
    assert shown(result) == expected
    assert str(typed.outputs[0].dtype) == dtype


def test_operands_have_one_type() -> None:
    expr = value("k(i) * 2 + b(i) * N - (i < 3 ? s : 0.5) / double(b(i))")
    for node in walk(expr):
        if isinstance(node, Binary):
            assert node.lhs.dtype == node.rhs.dtype
        if isinstance(node, Select):
            assert node.condition.dtype == BOOL and node.then.dtype == node.otherwise.dtype == node.dtype


def test_16_bit_floats_compute_in_float32() -> None:
    body = "P(i) = h(i)  O(i) = h(i) * h(i) + 1  Q(i) = h(i) * 0.5  R(i) = exp(h(i))  S(i) = i < 2 ? h(i) : g(i)"
    typed = function(body, "half(N) h, float16(N) g", "O, P, Q, R, S")
    assert {t.name: str(t.dtype) for t in typed.outputs} == {
        "O": "float16", "P": "float16", "Q": "float32", "R": "float32", "S": "float16",
    }  # fmt: skip
    assert [shown(s.value) for s in typed.statements] == [
        "h(i)",
        "float16(((float32(h(i)) * float32(h(i))) + 1.0:float32))",
        "(float32(h(i)) * 0.5:float32)",
        "exp(float32(h(i)))",
        "((i < 2:int32) ? h(i) : g(i))",
    ]


def test_16_bit_sums_accumulate_in_float32() -> None:
    body = "O(i) +=! h(i, j) * g(j)  P(i) *=! h(i, j)  Q(i) max=! h(i, j)  R(i) max=! h(i, j) * g(j)  S +=! b(j)"
    typed = function(body, "half(N, M) h, half(M) g, bfloat16(M) b", "O, P, Q, R, S")
    accumulators = [(str(s.accumulator), shown(s.value)) for s in typed.statements]
    assert accumulators == [
        ("float32", "(float32(h(i, j)) * float32(g(j)))"),
        ("float32", "float32(h(i, j))"),
        ("float16", "h(i, j)"),
        ("float16", "float16((float32(h(i, j)) * float32(g(j))))"),
        ("float32", "float32(b(j))"),
    ]
    assert [str(t.dtype) for t in typed.outputs] == ["float16"] * 4 + ["bfloat16"]


def test_a_declared_type_decides_what_a_16_bit_sum_gives() -> None:
    typed = function("O(i) +=! h(i, j) * h(i, j)", "half(N, M) h", "double(N) O")
    assert typed.statements[0].accumulator == FLOAT64
    assert shown(typed.statements[0].value) == "float64((float32(h(i, j)) * float32(h(i, j))))"


@pytest.mark.parametrize(
    ("outputs", "target", "expected"),
    [
        ("O", "int32", "((int32(x(i, j)) * int32(y(j))) + int32(x(i, j)))"),
        ("int64(N) O", "int64", "((int64(x(i, j)) * int64(y(j))) + int64(x(i, j)))"),
        ("float(N) O", "float32", "float32(((int32(x(i, j)) * int32(y(j))) + int32(x(i, j))))"),
        ("int8(N) O", "int8", "((x(i, j) * y(j)) + x(i, j))"),
    ],
)
def test_8_bit_sums_widen(outputs: str, target: str, expected: str) -> None:
    typed = function("O(i) +=! x(i, j) * y(j) + x(i, j)", "int8(N, M) x, int8(M) y", outputs)
    assert str(typed.outputs[0].dtype) == str(typed.statements[0].accumulator) == target
    assert shown(typed.statements[0].value) == expected


def test_8_bit_values_stay_narrow_elsewhere() -> None:
    typed = function("O(i) = x(i) + x(i)  P max=! x(i)  Q(i) = O(i) * -min(x(i), O(i))", "uint8(N) x", "O, P, Q")
    assert [t.dtype for t in typed.outputs] == [UINT8] * 3
    typed = function("O +=! i < 3 ? -abs(x(i)) : int8(5)", "int8(N) x")
    assert shown(typed.statements[0].value) == "((i < 3:int32) ? -abs(int32(x(i))) : 5:int32)"
    assert function("O +=! i < 3 ? x(i) : 5", "int8(N) x").outputs[0].dtype == INT32


def test_sums_of_bools_are_logical() -> None:
    typed = function("O +=! c(i)  P *=! c(i)  Q += c(i)", "bool(N) c", "O, P, int32 Q")
    assert [(s.reduction, s.accumulator) for s in typed.statements] == [("max", BOOL), ("min", BOOL), ("+", INT32)]


def test_later_statements_take_the_type_of_the_tensor() -> None:
    typed = function("O(i) = b(i)  O(i) = k(i)  O(i) += s")
    assert [shown(s.value) for s in typed.statements] == ["b(i)", "float32(k(i))", "float32(s())"]


@pytest.mark.parametrize("kind", ["uint8", "int8", "int16", "uint32", "bool", "int32", "half"])
def test_narrowing_needs_a_cast(kind: str) -> None:
    dtype = {"half": "float16"}.get(kind, kind)
    message = f"attempting to assign type float32 to narrower type {dtype} without an explicit cast"
    assert errors("O(i) = b(i)", outputs=f"{kind}(N) O") == [message]
    assert (
        function(f"O(i) = {kind}(b(i))", outputs=f"{kind}(N) O").statements[0].accumulator
        == checked(f"def f({kind} a) -> (O) {{ O = a }}").inputs[0].dtype
    )


def test_widening_needs_none() -> None:
    for kind in ("int64", "float", "double", "half"):
        assert function("O(i) = k(i)", outputs=f"{kind}(N) O").statements[0].value.dtype != INT32


def test_index_variables_and_their_order() -> None:
    (statement,) = function("O(n, m) +=! A(n, r_k) * A(m, r_k) * r_s where r_s in 0:r_t, r_t in 0:3").statements
    assert statement.indices == ("n", "m", "r_k", "r_s", "r_t")
    assert statement.reduction_indices == ("r_k", "r_s", "r_t")
    assert [r.index for r in statement.ranges] == ["r_s", "r_t"]


def test_last_range_wins() -> None:
    (statement,) = function("O(i) +=! A(i, j) where j in 0:3, i in 1:N, j in 2:M").statements
    assert [(r.index, shown(r.lower), shown(r.upper)) for r in statement.ranges] == [
        ("i", "1:int32", "N"),
        ("j", "2:int32", "M"),
    ]


def test_a_left_hand_name_is_an_index_even_if_a_size_has_it() -> None:
    (statement,) = function("O(N) = b(N)").statements
    assert statement.indices == ("N",)
    assert shown(statement.value) == "b(N)" and isinstance(children(statement.value)[0], Index)


def test_left_hand_expressions() -> None:
    typed = function("O(2*i + S, i/2, N - 1, S, 0) = b(i)", "float(N) b, const int64 S")
    (statement,) = typed.statements
    assert statement.indices == ("i",)
    assert [type(e) for e in statement.subscripts] == [Binary, Binary, Binary, Size, Constant]
    assert typed.outputs[0].rank == 5


def test_lets_are_inlined() -> None:
    (statement,) = function("O(i) = y * y where x = b(i), y = x + repeat_edge(b)(i - 1), unused = A(i, j)").statements
    term = "(b(i) + b((i - 1:int32)))"
    assert shown(statement.value) == f"({term} * {term})"
    assert statement.indices == ("i",)


def test_exists_keeps_the_access() -> None:
    (statement,) = function("O(i) = 4.0 where exists A(i, k(i))").statements
    assert [shown(r) for r in statement.exists] == ["A(i, k(i))", "k(i)"]


def test_boundary_reads() -> None:
    expr = value("constant_exterior(b, 0)(i - 1) + mirror_interior(b)(i + 1)")
    assert isinstance(expr, Binary) and isinstance(expr.lhs, Read) and isinstance(expr.rhs, Read)
    assert expr.lhs.boundary == Boundary("constant_exterior", Constant(0.0, FLOAT32, SPAN))
    assert expr.rhs.boundary == Boundary("mirror_interior", None)


def test_scalars_with_and_without_parentheses() -> None:
    typed = function("O = s + s()", outputs="int32 O")
    assert typed.outputs[0].rank == 0 and typed.outputs[0].dims == ()
    assert shown(typed.statements[0].value) == "(s() + s())"
    assert function("O() = 3").outputs[0].rank == 0


def test_sizes_constants_and_dimensions() -> None:
    text = """def f(float(H - KH + 1, 2*C) A, float(C, H, 3) B, const int S, float(KH, S) W)
        -> (float(N_, C) P, float(C*S) O)
    { O(i) = A(i, 0) * S * H  P(i, j) = B(i, j, 0) }"""
    typed = checked(text)
    assert typed.sizes == ("C", "H", "KH")
    assert [t.role for t in typed.inputs] == ["input", "input", "const", "input"]
    assert [[shown(d) for d in t.dims or ()] for t in typed.inputs] == [
        ["((H - KH) + 1:int32)", "(2:int32 * C)"],
        ["C", "H", "3:int32"],
        [],
        ["KH", "S"],
    ]
    assert typed.outputs[0].dims is None
    assert [shown(d) for d in typed.outputs[1].dims or ()] == ["(C * S)"]
    assert "no input has the size N_" in typed.warnings[0].message


def test_temporaries() -> None:
    typed = function("t(i) = b(i)  u +=! t(i)  t(i) = t(i) / u  O(i) = t(i)")
    assert [(t.name, t.rank, t.role) for t in typed.temporaries] == [("t", 1, "temporary"), ("u", 0, "temporary")]
    assert typed.needs_content == () and typed.warnings == ()
    assert "never read" in function("t(i) = b(i)  O(i) = b(i)").warnings[0].message


@pytest.mark.parametrize(
    ("body", "needs"),
    [
        ("O(i) +=! A(i, j)", ()),
        ("O(i) += A(i, j)", ("O",)),
        ("O(i) = b(i)  O(i) += A(i, j)", ()),
        ("O(i) = O(i) + b(i)", ("O",)),
        ("O(i) max= b(i)  P(i) = O(i)", ("O",)),
        ("P(i) = b(i)  O(i) = P(i)", ()),
        ("P(i) = O(i) * b(i)  O(i) = P(i)", ("O",)),
    ],
)
def test_outputs_that_need_content(body: str, needs: tuple[str, ...]) -> None:
    typed = function(body, outputs="float(N) O, P" if "P(i)" in body else "O")
    assert typed.needs_content == needs
    assert typed.outputs[0].dtype == FLOAT32


def test_type_of_an_output_that_is_read_first() -> None:
    assert function("O(i) = O(i) + 1").outputs[0].dtype == INT32
    assert function("O(i) = double(2) * O(i)", "float(N) b").outputs[0].dtype == FLOAT64
    assert function("O(i) = O(i) + 3000000000").outputs[0].dtype == INT64


def test_reduction_without_initialisation_warns() -> None:
    (warning,) = function("O(i) *= A(i, j)").warnings
    assert warning.severity == "warning"
    assert warning.message == (
        "Reduction without initialization. If O is not pre-initialized before calling the TC function, consider using"
        " the !-suffixed reduction operator *=! instead of *="
    )
    assert function("O(i) = b(i)  O(i) *= A(i, j)").warnings == ()


def test_equivalent_call_is_reported_as_ignored() -> None:
    (warning,) = function("O(i) = b(i) <=> library(b(i))").warnings
    assert "`library` is ignored" in warning.message


def test_new_built_in_names_may_name_tensors() -> None:
    typed = function("relu(i) = fmax(b(i), 0)  O(i) = relu(i) + abs(clamp(i))", "float(N) b, float(N) clamp")
    assert shown(typed.statements[1].value) == "(relu(i) + abs(clamp(i)))"


@pytest.mark.parametrize("name", ["float4", "for", "main", "threadIdx", "const", "inf", "nanny", "_", "int32_t", "let"])
def test_any_identifier_works(name: str) -> None:
    typed = checked(f"def {name}(float({name}) A) -> (O) {{ O({name}) = A({name}) }}")
    assert typed.name == name and typed.sizes == (name,)


def test_function_prints_as_text() -> None:
    text = "def f(float(N) A) -> (O) {\n    O(i) = A(i)\n}"
    assert str(checked(text)) == text


def test_constant_values_are_float32_but_beside_doubles() -> None:
    assert value("double(0.1)") == Constant(0.1, FLOAT64, SPAN)
    assert value("double(float(0.1))") == Cast(Constant(0.10000000149011612, FLOAT32, SPAN), FLOAT64, SPAN)
    assert shown(value("0.1 * double(i)")) == "(0.1:float64 * float64(i))"
    assert shown(value("double(i) < -0.1")) == "(float64(i) < -0.1:float64)"
    assert shown(value("1.0 / N * double(i)")) == "((1.0:float64 / float64(N)) * float64(i))"
    assert shown(value("max(i, 0.1) + double(i)")) == "((float64(i) max 0.1:float64) + float64(i))"
    assert shown(value("(b(i) > s ? 0.1 : 2) + double(i)")).endswith("? 0.1:float64 : 2.0:float64) + float64(i))")
    assert shown(value("exp(0.1) * double(i)")) == "(exp(0.1:float64) * float64(i))"
    assert shown(value("0.1 * b(i) * double(i)")).startswith("(float64((0.10000000149011612:float32 * b(i)))")
    assert shown(value("exp(i) * double(i)")).startswith("(float64(exp(float32(i)))")
    assert not function("O(i) = double(b(i)) * 1e39").warnings
    typed = function("O(i) = b(i) * 1e39")
    assert shown(typed.statements[0].value) == "(b(i) * inf:float32)"
    assert "too large for float32" in typed.warnings[0].message


def test_independent_errors_are_all_reported() -> None:
    assert errors("O(i) = A(i, j)  P(i) = Z(i)  P(i) = b(i) && s  k(i) = 1") == [
        "this statement includes reduction variable 'j' but does not specify a reduction.",
        "undefined variable Z used here",
        "expected boolean but found float32",
        "expected boolean but found int32",
        "TC inputs are immutable, but input k is written here",
    ]


def test_one_mistake_is_reported_once() -> None:
    body = "t(i) = Z(i)  u(i) = t(i) + 1.0  v(i) = u(i) && t(i)  O(i) = v(i)"
    assert errors(body) == ["undefined variable Z used here"]


def test_a_type_that_cannot_be_inferred_is_no_second_mistake() -> None:
    assert errors("O(i) = O(i) + Z(i)") == ["undefined variable Z used here"]
    unknown = "the type of `O` is not known here: it is read before any statement writes it"
    assert errors("O(i) = -O(i)") == [unknown]
    assert errors("O(i) = O(i)") == [unknown]


def test_errors_of_all_definitions_come_together() -> None:
    text = "def f() -> (a) { a = }\ndef g() -> (b) { b = x(1) }\ndef h() -> (c) { c(i) = 1 }\ndef ok() -> (d) { d = 1 }"
    with pytest.raises(CompileError) as failure:
        define(text, "three.tc")
    positions = [d.source.position(d.span.start) for d in failure.value.diagnostics if d.source and d.span]
    assert [line for line, _ in positions] == [1, 2, 3]
    assert str(failure.value).startswith("three.tc:1:20: error: expected an expression after '='")


def test_definitions_by_name() -> None:
    assert list(define("def f() -> (a) { a = 1 } def g() -> (a) { a = 2 }")) == ["f", "g"]
    with pytest.raises(CompileError, match="the text defines nothing"):
        define("# nothing here")
    with pytest.raises(CompileError, match="f already defined"):
        define("def f() -> (a) { a = 1 } def f() -> (a) { a = 2 }")


@pytest.mark.parametrize(
    ("value", "quotient", "meant"),
    [
        ("1/2 * A(i,0)", "1/2", "1.0/2"),
        ("A(i,0) * (2/3)", "(2/3)", "(2.0/3)"),
        ("float(-1/3)", "-1/3", "-1.0/3"),
        ("1/N * A(i,0)", "1/N", "1.0/N"),
        ("pow(A(i,0), 1/3)", "1/3", "1.0/3"),
        ("h + h where h = b(i) * (1/2)", "(1/2)", "(1.0/2)"),
        ("i > 1 ? 1/2 : 1/2 - 1", None, None),
        ("b(i) / 2 + (N/2) + (i/2) + 4/2 + b(1/2) + (1/2 == 0 ? b(i) : 1) + 1.0/2", None, None),
    ],
)
def test_quotients_that_lose_what_was_meant(value: str, quotient: str | None, meant: str | None) -> None:
    warnings = function(f"O(i) = {value}").warnings
    if quotient is None:
        assert warnings == ()
    else:
        (warning,) = warnings
        assert f"`{quotient}` is a quotient of integers" in warning.message
        assert warning.hint == f"write `{meant}`"


@pytest.mark.parametrize(
    ("statement", "warns"),
    [
        ("s +=! a(i) / N", True),
        ("s +=! float(a(i) / N)", True),
        ("s +=! a(i) * (i / N)", False),
        ("s +=! float(a(i)) / N", False),
        ("s +=! i / N where i in 0:N", False),
        ("s max=! a(i) / N", False),
    ],
)
def test_means_of_integers_that_lose_all(statement: str, warns: bool) -> None:
    warnings = define(f"def f(int32(N) a) -> (s) {{ {statement} }}")["f"].warnings
    assert ["rounded down before it is summed" in w.message for w in warnings] == [True] * warns


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def f(int32(N) a) -> (b) { b(i) = a(i + .5) }", "expected integral type"),
        ("def f(int32(a(0)) a, float(N) b) -> (c) { c(i) = b(i) }", "tensor accesses cannot be used in"),
        ("def f(float(1) a) -> (b) { b(i) = 2*foo where foo = a(i), foo in 1:2 }", "undefined variable foo used here"),
        ("def f{} {}", "expected ( but found '{' here"),
        ("def f(float(M,N) A) -> (O) { O(i) = A(i,j) }", "reduction variable 'j' but does not specify a reduction."),
        ("def f(float(N) A) -> (O) { O = A }", "expected a scalar but found a tensor expression."),
        ("def f(float A) -> (O) { O(i) = A(i) }", "expected 0 dimensions but found 1 dimensions."),
        ("def f(float(N) A) -> (O) { O = N(0) }", "expected a tensor but found a scalar"),
        ("def f(float A) -> (O) { O = A ? 1 : 2 }", "expected boolean but found float32"),
        ("def f(float A) -> (O) { O = pow(A) }", "expected 2 but found 1"),
        ("def f(float(N) A) -> (A) { }", "A already defined"),
        ("def f(float(N) log, float A) -> (O) { O = log(A) }", "the built-in function cannot be called"),
    ],
)
def test_messages_of_the_original(text: str, message: str) -> None:
    with pytest.raises(CompileError) as failure:
        define(text)
    assert message in str(failure.value)


def test_catalogue_is_accepted() -> None:
    """Every valid program checks, but for those that the original's own semantic check or inference refuses."""
    if not CATALOGUE.exists():
        pytest.skip("the catalogue is not here")
    entries = [e for e in json.loads(CATALOGUE.read_text(encoding="utf-8")) if e["parses"]]
    refused = []
    for entry in entries:
        try:
            define(entry["tc"])
        except CompileError as error:
            refused.append((entry["tc"], error.message))
    unexpected = [pair for pair in refused if not any(word in pair[1] for word in _GOOD_REASONS)]
    assert unexpected == []
    assert len(refused) < 25


_GOOD_REASONS = (
    "expected integral type",
    "tensor accesses cannot be used in this context",
    "undefined variable",
    "does not specify a reduction",
    "expected 4 dimensions but found 5 dimensions.",
    "Free variable",
    "Unsolved variable",
)


def test_statement_fields() -> None:
    (statement,) = function("O(i) min=! A(i, j) where j in 0:3").statements
    assert isinstance(statement, Statement)
    assert (statement.target, statement.reduction, statement.initialise) == ("O", "min", True)
    assert statement.accumulator == FLOAT32
    (plain,) = function("O(i) = b(i)").statements
    assert (plain.reduction, plain.initialise, plain.reduction_indices) == (None, False, ())
    assert plain.value == read("b", FLOAT32)
    assert INT8 not in {node.dtype for node in walk(plain.value)}
