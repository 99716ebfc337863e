"""Rows that do not fill vectors: loops that are joined, rows that run in groups, reductions folded together."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.c.loops.joined import joined
from tcomp.backends.c.loops.nests import may_have
from tcomp.backends.c.rows.loops import RowLoops
from tcomp.driver import lower
from tcomp.loops.ir import Block, Execute, For, Number, Operation, Variable
from tcomp.mapping.machines.cpu import this_machine
from tcomp.model.terms.sizes import Sizes
from tests.targets import CPU

pytestmark = pytest.mark.sweep(4)

Array = np.ndarray[Any, np.dtype[Any]]
Use = Callable[[int], None]

SERIAL = tc.MappingOptions(parallel=False)
TYPES = {"float": "f4", "double": "f8", "int32": "i4", "int64": "i8", "uint8": "u1", "int16": "i2", "half": "f2"}

FLAT = "def f(float(A,B,C) X, float(A,B,C) Y) -> (Z) { Z(a,b,c) = X(a,b,c) * Y(a,b,c) + X(a,b,c) }"
CHAIN = """
  m{d}(n)   max=! X{d}(n,d)
  e{d}(n,d) =     (X{d}(n,d) - m{d}(n)) * W{d}(d)
  s{d}(n)   +=!   e{d}(n,d)
  Y{d}(n,d) =     e{d}(n,d) + s{d}(n) * R(n)"""


def chains(dtype: str, lengths: Sequence[int]) -> tc.Operation:
    """The same for rows of several lengths, which takes less time than several programs."""
    inputs = ", ".join(f"{dtype}(N,{d}) X{d}, {dtype}({d}) W{d}" for d in lengths)
    outputs = ", ".join(f"m{d}, s{d}, e{d}, Y{d}" for d in lengths)
    body = "".join(CHAIN.format(d=d) for d in lengths)
    return tc.define(f"def f({dtype}(N) R, {inputs}) -> ({outputs}) {{{body} }}")["f"]


@pytest.fixture
def lanes(monkeypatch: pytest.MonkeyPatch) -> Use:
    """Makes kernels for vectors of so many bytes."""

    def use(width: int) -> None:
        machine = replace(this_machine(), vector_bytes=width)
        monkeypatch.setattr("tcomp.runtime.registry.this_machine", lambda: machine)
        monkeypatch.setenv("TCOMP_CACHE", "0")

    return use


def integers(*shape: int, dtype: str = "f4", seed: int = 0) -> Array:
    low = 0 if dtype.startswith("u") else -3
    return np.random.default_rng([seed, *shape]).integers(low, 4, shape).astype(dtype)


def loops(source: str) -> int:
    """Loops of a kernel over instances."""
    return len(re.findall(r"for \(long c\d+ =", source))


def loops_of(stage: str) -> int:
    """Loops of a nest as it was planned."""
    return stage.count("for ")


def agrees(operation: tc.Operation, *arrays: Array) -> None:
    got, wanted = operation(*arrays, options=SERIAL), operation.reference(*arrays)
    pairs = zip(got, wanted, strict=True) if isinstance(got, tuple) else [(got, wanted)]
    for one, other in pairs:
        np.testing.assert_array_equal(one, other)


def test_contiguous_loops_are_one() -> None:
    kernel = tc.define(FLAT)["f"].compile(sizes={"A": 512, "B": 2, "C": 2}, options=SERIAL)
    assert loops(kernel.source) == 2, "the tiles, and one loop over all elements of one"
    large = tc.define(FLAT)["f"].compile(sizes={"A": 16384, "B": 2, "C": 2}, options=SERIAL)
    assert "sizes = [512, 2, 2]" in large.stages["pack"], "as long as a tile of the flat array would be"
    X, Y = integers(512, 2, 2), integers(512, 2, 2, seed=1)
    assert np.array_equal(kernel(X, Y), X * Y + X)


@pytest.mark.parametrize(
    ("value", "joined"),
    [
        ("X(b,a)", False),
        ("X(a,b) + b", False),
        ("X(a,b) + Y(b)", False),
        ("b > 3 ? X(a,b) : 0.0", False),
        ("constant_exterior(X, 0)(a,b+1)", False),
        ("X(a/2,b)", False),
        ("X(95-a,95-b)", True),
        ("X(a,b) + Y(3)", True),
    ],
)
def test_only_loops_that_move_alike_are_joined(value: str, joined: bool) -> None:
    text = f"def f(float(N,N) X, float(N) Y) -> (Z) {{ Z(a,b) = {value} where a in 0:N, b in 0:N }}"
    # Rows of more vectors than are written out as such, in vectors of any width.
    kernel = tc.define(text)["f"].compile(sizes={"N": 96}, options=replace(SERIAL, tile_sizes=(0, 0)))
    assert (loops(kernel.source) < loops_of(kernel.stages["loops"])) == joined, kernel.source
    agrees(tc.define(text)["f"], integers(96, 96), integers(96))


@pytest.mark.parametrize(("read", "joins"), [("T(i,j)", True), ("T(i-1,j)", False)])
def test_rows_that_hand_values_on_stay_apart(read: str, joins: bool) -> None:
    """A plan may have a row read what the one before wrote: the vectors of one loop would read it too early."""
    text = f"def f(float(N,3) A) -> (B, T) {{ T(i,j) = A(i,j)  B(i,j) = {read} where i in 1:N, j in 0:3 }}"
    plan = lower(tc.define(text)["f"].function, Sizes({"N": 40}), SERIAL, CPU).plan
    rows = RowLoops(plan, CPU.machine, spell=NotImplemented, plain=NotImplemented, spelled=NotImplemented)
    body = Block(tuple(Execute(s.name, (Variable("r"), Variable("c"))) for s in plan.scop.statements))
    loop = For("r", Number(1), Number(40), 1, For("c", Number(0), Number(3), 1, body))
    one = joined(loop, plan, rows.side_by_side)
    assert isinstance(one.body, Block) == joins
    assert one.upper == Number(120 if joins else 40)


def test_arrays_with_gaps_keep_their_loops() -> None:
    operation = tc.define(FLAT)["f"]
    X = integers(9, 3, 8)[:, :, ::2]
    for Y in (integers(9, 3, 4, seed=1), integers(3, 9, 4).swapaxes(0, 1), integers(9, 3, 4)[::-1, ::-1, ::-1]):
        agrees(operation, X, Y)
        agrees(operation, Y, X)
        agrees(operation, Y, Y)


@pytest.mark.parametrize(
    ("dtype", "width"),
    [("float", 16), ("float", 32), ("float", 64), ("double", 32), ("int32", 64), ("uint8", 32), ("half", 32)],
)
def test_chains_over_short_rows(lanes: Use, dtype: str, width: int) -> None:
    lanes(width)
    lengths = (2, 3, 5, 7, 12, 17) if dtype == "float" and width == 32 else (3, 5, 12)
    operation, kind = chains(dtype, lengths), TYPES[dtype]
    for rows in (61, 3, 0) if dtype == "float" and width == 32 else (61,):
        arrays = [integers(*shape, dtype=kind) for d in lengths for shape in ((rows, d), (d,))]
        agrees(operation, integers(rows, dtype=kind), *arrays)


def test_short_rows_share_vectors() -> None:
    text = "def f(float(N,D) X, float(D) W, float(N) R) -> (Y) { Y(n,d) = exp(X(n,d) * W(d) - R(n)) }"
    kernel = tc.define(text)["f"].compile(sizes={"N": 500, "D": 3}, options=SERIAL)
    assert "tc_beside1" in kernel.source, "what is read once a row, and once for all of them"
    wide = tc.define(text)["f"].compile(sizes={"N": 500, "D": 64}, options=SERIAL)
    assert "tc_beside" not in wide.source, "these rows fill vectors"


def test_a_tile_of_few_rows_has_no_groups() -> None:
    low = Operation("*", (Number(6), Variable("t")))
    tile = For("m", low, Operation("min", (Variable("M"), Operation("+", (low, Number(6))))), 1, Execute("S", ()))
    assert may_have(tile, 6) and not may_have(tile, 8)
    text = "def f(float(M,K) A, float(N,K) B, float(N) v) -> (C) { C(m,n) +=! A(m,k) * B(n,k)  C(m,n) = C(m,n) + v(n) }"
    kernel = tc.define(text)["f"].compile(sizes={"M": 130, "N": 2, "K": 32}, options=SERIAL)
    assert "contract" in kernel.stages["loops"] and "tc_beside" not in kernel.source, kernel.source


def test_rows_are_unrolled_while_they_are_short() -> None:
    operation = tc.define("def f(float(N,D) X) -> (s) { s(n) +=! X(n,d) }")["f"]
    lanes = this_machine().vector_bytes // 4
    for vectors, unrolled in ((2, True), (16, False)):
        source = operation.compile(sizes={"N": 64, "D": vectors * lanes}, options=SERIAL).source
        assert "tc_folded" in source and ("GCC unroll" in source) == unrolled, vectors


def test_nothing_is_laid_out_for_no_rows() -> None:
    """In a triangle there may be no rows, and what they would read is then outside its tensor."""
    text = """def f(float(M,3) W, float(M,3) X) -> (float(M,M,3) Y) {
      Y(m,n,d) = 0.0 where m in 0:M, n in 0:M, d in 0:3
      Y(m,n,d) = exp(X(n,d) * W(m-1,d)) where m in 0:M, n in 0:m, d in 0:3 }"""
    operation, W, X = tc.define(text)["f"], integers(20, 3), integers(20, 3)
    source = operation.compile(sizes={"M": 20}, options=SERIAL).source
    assert re.search(r"if \(c\d+_first \+ \d+ <= .*\n *float tc_beside0", source), source
    np.testing.assert_allclose(operation(W, X, options=SERIAL), operation.reference(W, X), rtol=1e-5)


@pytest.mark.parametrize("read", ["W(t-1,d)", "R(t-1,n)"])
def test_nothing_is_laid_out_that_a_condition_guards(read: str) -> None:
    """In the first of these rows it is outside its tensor."""
    text = f"""def f(float(T,N,3) X, float(T,3) W, float(T,N) R) -> (Y) {{
      Y(t,n,d) = exp(X(t,n,d)) * (t > 0 ? {read} : 2.0) where t in 0:T }}"""
    source = tc.define(text)["f"].compile(sizes={"T": 2, "N": 500}, options=SERIAL).source
    assert "tc_beside" not in source, source


@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("length", [2, 3, 4, 11])
def test_folded_reductions(lanes: Use, length: int, width: int) -> None:
    lanes(width)
    text = """def f(float(N,D) X, float(D) W) -> (p, q, r, s, t) {
      p(n) +=! X(n,d) * W(d)
      q(n) *=! W(d) - X(n,d) * 0.0
      r(n) min=! exp(X(n,d) * 0.0) * W(d)
      s(n) max=! X(n,d)
      t(n) = r(n) * s(n) }"""
    agrees(tc.define(text)["f"], integers(37, length), np.sign(integers(length)))


def test_folded_reductions_are_those_of_single_rows() -> None:
    """The same to the bit, whichever rows of a tile are folded together."""
    operation = tc.define("def f(float(N,D) X) -> (s) { s(n) +=! X(n,d) }")["f"]
    for length in (2, 3, 7, 30):
        X = np.random.default_rng(length).standard_normal((23, length), np.float32)
        alone = np.concatenate([operation(X[n : n + 1], options=SERIAL) for n in range(0, 23, 5)])
        assert np.array_equal(operation(X, options=SERIAL)[::5], alone), length


def test_results_of_folded_rows_are_stored_as_vectors(lanes: Use) -> None:
    lanes(32)
    text = """def f(float(M,K) A, float(N,K) B) -> (Y) {
      S(m,n) +=! A(m,k) * B(n,k)  L(m) max=! S(m,n)  T(m) +=! S(m,n)  Y(m,n) = (S(m,n) - L(m)) * T(m) }"""
    operation = tc.define(text)["f"]
    A, B = integers(18, 8), integers(64, 8)
    source = operation.compile(A, B, options=SERIAL).source
    assert "*(tc_float32_x4 *)&v_L_acc" in source and "*(tc_float32_x4 *)&v_T_acc" in source, source
    assert "omp simd" not in source[source.index("tc_folded") : source.rindex("tc_folded")], source
    A[[3, 16]] = np.nan
    S = A @ B.T
    expected = (S - S.max(1, keepdims=True)) * S.sum(1, keepdims=True)
    np.testing.assert_array_equal(operation(A, B, options=SERIAL), expected)


@pytest.mark.parametrize("length", [3, 12])
def test_special_values_in_short_rows(length: int) -> None:
    operation = tc.define("def f(float(N,D) X) -> (a, b) { a(n) min=! X(n,d)  b(n) max=! X(n,d) }")["f"]
    for value in (np.nan, np.inf, -np.inf, -0.0):
        X = np.ones((3 * length, length), np.float32)
        X[np.arange(3 * length), np.arange(3 * length) % length] = value
        low, high = operation(X, options=SERIAL)
        np.testing.assert_array_equal(low, X.min(1))
        np.testing.assert_array_equal(high, X.max(1))


def test_trailing_dimensions_are_reduced_as_one() -> None:
    operation = tc.define("def f(float(A,B,C,D) X) -> (s) { s(a,b) +=! X(a,b,c,d) }")["f"]
    kernel = operation.compile(sizes={"A": 16, "B": 3, "C": 4, "D": 4}, options=SERIAL)
    assert "tc_folded" in kernel.source
    assert "reduce0" in kernel.stages["loops"]
    for shape in ((16, 3, 4, 4), (5, 1, 7, 3), (3, 0, 2, 2)):
        agrees(operation, integers(*shape))


@pytest.mark.filterwarnings("ignore::tcomp.ProgramWarning")
def test_an_array_that_is_written_again() -> None:
    text = "def f(float(N,D) X, float(N) R) -> (float(N) Y) { Y(n) += X(n,d) * R(n) }"
    operation = tc.define(text)["f"]
    X, R = integers(21, 6), integers(21)
    Y = np.ones(21, np.float32)
    operation(X, R, out=Y, options=SERIAL)
    assert np.array_equal(Y, 1 + (X * R[:, None]).sum(1))


@pytest.mark.parametrize("dtype", ["float", "double", "int32"])
def test_short_reductions_of_a_middle_dimension(dtype: str) -> None:
    text = f"""def f({dtype}(A,B,C) X) -> (p, q, r, s, t) {{
      p(a,c) +=! X(a,b,c)
      q(a,c) *=! X(a,b,c)
      r(a,c) max=! X(a,b,c) - X(a,0,c)
      s(a,c) min=! X(a,b,c)
      t(a,c) = s(a,c) + r(a,c) }}"""
    agrees(tc.define(text)["f"], integers(5, 3, 37, dtype=TYPES[dtype]))


@pytest.mark.filterwarnings("ignore::tcomp.ProgramWarning")
def test_sums_of_a_tile_never_leave_registers() -> None:
    operation = tc.define("def f(float(A,B,C) X) -> (Y) { Y(a,c) max=! X(a,b,c) }")["f"]
    kernel = operation.compile(sizes={"A": 8, "B": 5, "C": 32}, options=SERIAL)
    assert kernel.source.count("v_Y_acc0[") == 1, "it is declared, and neither set nor copied"
    both = tc.define("def f(float(A,B,C) X) -> (Y, Z) { Y(a,c) max=! X(a,b,c)  Z(a,c) = 2 * Y(a,c) }")["f"]
    agrees(both, integers(8, 5, 32))
    again = tc.define("def f(float(A,B,C) X) -> (float(A,C) Y) { Y(a,c) += X(a,b,c) * Y(a,c) }")["f"]
    X, Y = integers(8, 5, 32), integers(8, 32)
    out = Y.copy()
    again(X, out=out, options=SERIAL)
    assert np.array_equal(out, Y + (X * Y[:, None]).sum(1))
