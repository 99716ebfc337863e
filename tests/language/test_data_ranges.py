"""Ranges whose ends data give: rows of sparse matrices, ragged batches, on the CPU and the simulator."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tests.agreement import assert_agrees
from tests.cuda.simulated import NEEDS_COMPILER

Array = np.ndarray[Any, np.dtype[Any]]

TARGETS = ["cpu", pytest.param("simulator", marks=NEEDS_COMPILER)]

ON_ROWS = {
    "vector": "float(N) x, float(E) V) -> (Y) { Y(i) +=! V(e) * x(col(e)) where e in row(i):row(i+1) }",
    "dense": "float(N,D) X, float(E) V) -> (Y) { Y(i,d) +=! V(e) * X(col(e),d) where e in row(i):row(i+1) }",
    "largest": "float(N,D) X) -> (Y) { Y(i,d) max=! X(col(e),d) where e in row(i):row(i+1) }",
    "mean and more": """float(N,D) X) -> (Y) {
        count(i) +=! 1.0 where e in row(i):row(i+1), exists col(e)
        total(i,d) +=! X(col(e),d) where e in row(i):row(i+1)
        Y(i,d) = total(i,d) / max(count(i), 1.0) }""",
    "into what is there": """float(N,D) X) -> (Y) {
        Y(i,d) = 1.0 where i in 0:R1-1, d in 0:D
        Y(i,d) += X(col(e),d) where e in row(i):row(i+1) }""",
    "where it stands": "float(E) V) -> (Y) { Y(i) argmax=! V(e) where e in row(i):row(i+1) }",
    "made dense": """float(E) V, const int M) -> (float(R1-1,M) Y) {
        Y(i,j) +=! col(e) == j ? V(e) : 0.0 where e in row(i):row(i+1), j in 0:M }""",
    "two steps away": """float(N) x) -> (Y) {
        Y(i) +=! x(col(f)) where e in row(i):row(i+1), f in row(col(e)):row(col(e)+1) }""",
    "blocks": """float(E,B,C) V, float(N,C,D) X) -> (Y) {
        Y(i,b,d) +=! V(e,b,c) * X(col(e),c,d) where e in row(i):row(i+1) }""",
    "normalised": """float(E) V, float(N,D) X) -> (Y) {
        most(i) max=! V(e) where e in row(i):row(i+1)
        total(i) +=! exp(V(e) - most(i)) where e in row(i):row(i+1)
        Y(i,d) +=! exp(V(e) - most(i)) / total(i) * X(col(e),d) where e in row(i):row(i+1) }""",
}  # fmt: skip

SIZES = {"R1": 12, "E": 40, "N": 11, "D": 19, "B": 2, "C": 3}


def rows(count: int, entries: int, seed: int = 0) -> Array:
    """Where so many rows begin and end; some are empty."""
    generator = np.random.default_rng(seed)
    inner = np.sort(generator.integers(0, entries + 1, count - 1))
    return np.array([0, *inner, entries], np.int32)


def arguments(f: tc.Operation) -> list[Any]:
    generator = np.random.default_rng(1)
    given: list[Any] = []
    for tensor in f.function.inputs:
        shape = [SIZES[str(d)] for d in f.function.definition.inputs[len(given)].dims or ()]
        match tensor.name:
            case "row":
                given.append(rows(SIZES["R1"] - 1, SIZES["E"]))
            case "col":
                given.append(generator.integers(0, SIZES["N"], shape).astype(np.int32))
            case "M":
                given.append(SIZES["N"])
            case _:
                given.append(generator.integers(-3, 4, shape).astype(np.float32))
    return given


SIMULATED = [
    pytest.param(name, "simulator", marks=NEEDS_COMPILER)
    for name in ("vector", "dense", "normalised", "two steps away")
]


@pytest.mark.parametrize(("name", "target"), [*((name, "cpu") for name in ON_ROWS), *SIMULATED])
def test_results_are_those_of_the_interpreter(name: str, target: str) -> None:
    f = tc.define("def f(int32(R1) row, int32(E) col, " + ON_ROWS[name]).f
    given = arguments(f)
    inputs = {t.name: a for t, a in zip(f.function.inputs, given, strict=True)}
    assert_agrees(f.function, inputs, {"Y": f(*given, target=target)})


def test_the_interpreter_has_what_numpy_has() -> None:
    row, col = rows(11, 40), np.random.default_rng(0).integers(0, 11, 40).astype(np.int32)
    x, v = np.arange(11, dtype=np.float32), np.arange(40, dtype=np.float32)
    f = tc.define("def f(int32(R1) row, int32(E) col, " + ON_ROWS["vector"]).f
    expected = [sum(v[e] * x[col[e]] for e in range(row[i], row[i + 1])) for i in range(11)]
    np.testing.assert_array_equal(f.reference(row, col, x, v), expected)
    g = tc.define("def f(int32(R1) row, int32(E) col, " + ON_ROWS["two steps away"]).f
    ends = np.append(row, 40).astype(np.int32)  # row(col(e)+1) for the last column
    expected = [
        sum(x[col[f]] for e in range(ends[i], ends[i + 1]) for f in range(ends[col[e]], ends[col[e] + 1]))
        for i in range(12)
    ]
    np.testing.assert_array_equal(g.reference(ends, col, x), expected)


def test_only_what_is_in_range_is_run() -> None:
    """Loops begin and end where rows do, and no instance asks whether it is in one."""
    f = tc.define("def f(int32(R1) row, int32(E) col, " + ON_ROWS["dense"]).f
    text = f.compile(*arguments(f)).source
    loop = re.search(r"for \(long (c\d) = tc_from0; \1 < tc_from0_end; \1\+\+\)", text)
    assert loop is not None
    assert text.count("v_row[") == 4, "both ends, which are compared once more"
    assert "?" not in text[loop.start() :]


RAGGED = """def f(int32(B) length, float(B,T,D) X, float(B,T) W) -> (Y, Z) {
  Y(b,d) max=! X(b,t,d) where t in 0:length(b)
  Z(b,t) = 0.0 where b in 0:B, t in 0:T
  Z(b,t) = W(b,t) where t in length(b)/2:length(b) }"""


def test_a_ragged_batch() -> None:
    f = tc.define(RAGGED).f
    length = np.array([3, 0, 5, 1], np.int32)
    x, w = (np.random.default_rng(0).standard_normal(s).astype(np.float32) for s in ((4, 5, 6), (4, 5)))
    y, z = f(length, x, w)
    for b, n in enumerate(length):
        np.testing.assert_array_equal(y[b], x[b, :n].max(axis=0, initial=-np.inf))
        np.testing.assert_array_equal(z[b], [w[b, t] if n // 2 <= t < n else 0 for t in range(5)])
    for got, expected in zip((y, z), f.reference(length, x, w), strict=True):
        np.testing.assert_array_equal(got, expected)


WRONG = {
    r"row\(i\+1\) which is 41|at row\(i\+1\), which is 41 at i = 10, but must lie in 0..40": (11, 41),
    r"starts at row\(i\), which is -2 at i = 0, but must lie in 0..40": (0, -2),
    r"the range row\(i\):row\(i\+1\) ends 3 before it starts at i = ": (5, None),
}


@pytest.mark.parametrize("target", [*TARGETS, "reference"])
def test_ends_are_checked(target: str) -> None:
    f = tc.define("def f(int32(R1) row, int32(E) col, " + ON_ROWS["dense"]).f
    for message, (position, value) in WRONG.items():
        row, *others = arguments(f)
        row[position] = row[position - 1] - 3 if value is None else value
        with pytest.raises(tc.ShapeError, match=message):
            f.reference(row, *others) if target == "reference" else f(row, *others, target=target)
        if target == "cpu":
            assert f(row, *others, unchecked=True).shape == (11, 19), "nothing outside is read"


def test_a_range_that_sizes_give_bounds_one_that_data_give() -> None:
    """Without it nothing would say for which values of the index to prove what is read."""
    text = "def f(int32(B1) at, float(E) X, const int T) -> (Y) { Y(b) +=! X(at(b)+t) where t in 0:at(b+1)-at(b)%s }"
    with pytest.raises(tc.CompileError, match="Free variable t"):
        tc.define(text % "")
    f = tc.define(text % ", t in 0:T").f
    at, x = np.array([0, 2, 2, 6], np.int32), np.arange(6, dtype=np.float32)
    np.testing.assert_array_equal(f(at, x, T=4), [1, 0, 14])
    np.testing.assert_array_equal(f.reference(at, x, T=4), [1, 0, 14])
    with pytest.raises(tc.ShapeError, match=r"ends at at\(b\+1\)-at\(b\), which is 4 at b = 2, but must lie in 0..3"):
        f(at, x, T=3)


def test_text_is_printed_and_read_back() -> None:
    f = tc.define("def f(int32(R1) row, int32(E) col, " + ON_ROWS["normalised"]).f
    again = tc.define(str(f.function)).f
    assert str(again.function) == str(f.function)
    assert "where e in row(i):row(i + 1)" in str(f.function)


ENTRIES = """
def sampled(int32(R1) row, int32(E) col, float(N,K) A, float(M,K) B) -> (P) {
  P(e) +=! A(i,k) * B(col(e),k) where e in row(i):row(i+1)
}
def softmax(int32(R1) row, float(E,H) S) -> (P) {
  most(i,h)  max=! S(e,h) where e in row(i):row(i+1)
  total(i,h) +=!   exp(S(e,h) - most(i,h)) where e in row(i):row(i+1)
  P(e,h)     =     exp(S(e,h) - most(i,h)) / total(i,h) where e in row(i):row(i+1)
}
def numbered(int32(R1) row, const int E) -> (int32(E) P) {
  P(e) = 100 * i + e - first where e in row(i):row(i+1), e in 0:E, first = row(i)
}"""


@pytest.mark.parametrize("target", TARGETS)
def test_entries_on_the_left_know_their_row(target: str) -> None:
    """Entries run side by side, and look up the row that they are in."""
    generator, row = np.random.default_rng(0), rows(9, 50)
    own = np.repeat(np.arange(9), np.diff(row))
    ops, col = tc.define(ENTRIES), generator.integers(0, 7, 50).astype(np.int32)
    a, b = (generator.integers(-3, 4, shape).astype(np.float32) for shape in ((9, 5), (7, 5)))
    np.testing.assert_array_equal(ops.sampled(row, col, a, b, target=target), (a[own] * b[col]).sum(1))
    np.testing.assert_array_equal(ops.sampled.reference(row, col, a, b), (a[own] * b[col]).sum(1))
    s = generator.standard_normal((50, 2)).astype(np.float32)
    found = ops.softmax(row, s, target=target)
    exact = np.exp(s) / np.stack([np.exp(s[own == i]).sum(0) for i in own])
    np.testing.assert_allclose(found, exact, rtol=1e-5)
    np.testing.assert_array_equal(ops.numbered(row, 50, target=target), 100 * own + np.arange(50) - row[own])


def test_a_row_ends_where_one_more_begins() -> None:
    """Whichever way that is written."""
    text = "def f(int32(R1) row, const int E) -> (int32(E) P) { P(e) = i where e in row(i):row(1+i), e in 0:E }"
    row = rows(9, 50)
    np.testing.assert_array_equal(tc.define(text).f(row, 50), np.repeat(np.arange(9), np.diff(row)))


@pytest.mark.parametrize("target", TARGETS)
def test_what_a_statement_computes_first_is_there_outside_of_its_range(target: str) -> None:
    """A value that is written down on its way has the neutral element there."""
    text = "def f(int32(2) B, int32(1) X) -> (int32 T) { T *=! T * X(0) where q in 0:2, r in 0:7, q in 0:B(1) }"
    f = tc.define(text).f
    for count in range(3):
        arguments, held = (np.array([9, count], np.int32), np.array([-1], np.int32)), np.array(1, np.int32)
        assert f(*arguments, out={"T": held.copy()}, target=target) == (-1) ** (7 * count)
        assert f.reference(*arguments, out={"T": held.copy()}) == (-1) ** (7 * count)


@pytest.mark.parametrize("target", TARGETS)
def test_elements_in_a_range_are_dealt_to_threads_as_others_are(target: str) -> None:
    """The ends are the same for all of them, so on a CPU a loop is cut; on a GPU it may be no loop."""
    text = """def f(int32(2) at, float(N) W, float(N,M) V) -> (Y, Z) {
      Y(i) = 0.0 where i in 0:N
      Y(i) = W(i) where i in at(0):at(1)
      Z(i,j) = 1.0 where i in 0:N, j in 0:M
      Z(i,j) max= V(i,j) where j in at(0):at(1) }"""
    f, rng = tc.define(text).f, np.random.default_rng(0)
    for size in (7, 300):
        w, v = rng.standard_normal(size).astype(np.float32), rng.standard_normal((size, 9)).astype(np.float32)
        for ends in ((2, 6), (0, 0)):
            y, z = f(np.array(ends, np.int32), w, v, target=target)
            inside, among = (np.isin(np.arange(n), np.arange(*ends)) for n in (size, 9))
            np.testing.assert_array_equal(y, np.where(inside, w, 0))
            np.testing.assert_array_equal(z, np.where(among, np.maximum(v, 1), 1))


@pytest.mark.parametrize("target", TARGETS)
def test_what_goes_where_data_choose_may_have_a_range(target: str) -> None:
    text = """def f(int32(N) at, int32(N) most, float(N,M) V, const int K) -> (Y) {
      Y(k,j) = 0.0 where k in 0:K, j in 0:M
      Y(at(i),j) max= V(i,j) where j in 0:most(i) }"""
    f, rng = tc.define(text).f, np.random.default_rng(0)
    at, most = rng.integers(0, 3, 8).astype(np.int32), rng.integers(0, 301, 8).astype(np.int32)
    v, wanted = rng.standard_normal((8, 300)).astype(np.float32), np.zeros((3, 300), np.float32)
    for i in range(8):
        wanted[at[i], : most[i]] = np.maximum(wanted[at[i], : most[i]], v[i, : most[i]])
    np.testing.assert_array_equal(f(at, most, v, 3, target=target), wanted)


@pytest.mark.parametrize("target", [*TARGETS[:1], "reference"])
def test_each_entry_must_be_in_a_row(target: str) -> None:
    ops = tc.define(ENTRIES)
    for position, value, message in (
        (-1, 49, "no range that data give holds e = 49|subscript -1 of dimension 0 of 'row' is outside"),
        (4, -5, r"the range row\(i\):row\(i\+1\) ends \d+ before it starts at i = 3"),
    ):
        row = rows(9, 50)
        row[position] = value
        with pytest.raises(tc.ShapeError, match=message):
            (ops.numbered.reference(row, 50)) if target == "reference" else ops.numbered(row, 50)


def test_what_entries_stand_for_is_printed_and_read_back() -> None:
    ops = tc.define(ENTRIES)
    text = str(ops.softmax.function)
    assert "i_of_e(row(i) + e_of_i) max= i where e_of_i in 0:row(i + 1) - row(i), exists S(e_of_i, 0)" in text
    assert str(tc.define(text).softmax.function) == text


SPARSE = """
def product(int32(R1) row, int32(E) col, float(E) V, float(N,D) X) -> (Y) {
  Y(i,d) +=! V(e) * X(col(e),d) where e in row(i):row(i+1)
}
def entry_by_entry(int32(E) row, int32(E) col, float(E) V, float(N) X, const int R) -> (float(R) Y) {
  Y(row(e)) +=! V(e) * X(col(e))
}"""


def test_sparse_matrices_are_arguments() -> None:
    """They stand for three parameters, in every format that has three arrays."""
    scipy = pytest.importorskip("scipy.sparse")
    generator, ops = np.random.default_rng(0), tc.define(SPARSE)
    dense = generator.integers(-3, 4, (9, 7)).astype(np.float32)
    x = generator.integers(-3, 4, (7, 5)).astype(np.float32)
    for matrix in (scipy.csr_matrix(dense), scipy.csr_array(dense), scipy.csc_array(dense.T.copy()).T):
        np.testing.assert_array_equal(ops.product(matrix, x), dense @ x)
        np.testing.assert_array_equal(ops.product(row=matrix, X=x), dense @ x)
    wide = scipy.csr_array(dense)
    wide.indptr, wide.indices = wide.indptr.astype(np.int64), wide.indices.astype(np.int64)
    np.testing.assert_array_equal(ops.product(wide, x), dense @ x)
    np.testing.assert_array_equal(ops.product.reference(wide, x), dense @ x)
    assert "R1 = 10" in ops.product.compile(wide, x).source
    np.testing.assert_array_equal(ops.entry_by_entry(scipy.coo_array(dense), x[:, 0].copy(), R=9), dense @ x[:, 0])
    for other in (scipy.lil_array(dense), scipy.coo_array(dense), scipy.csc_array(dense)):
        found = f"row is given a sparse matrix in the format '{other.format}'(.|\\n)*ends of rows: pass its .tocsr()"
        with pytest.raises(tc.ShapeError, match=found):
            ops.product(other, x)
    with pytest.raises(tc.ShapeError, match=r"'csr'(.|\n)*row of each entry: pass its .tocoo()"):
        ops.entry_by_entry(scipy.csr_array(dense), x[:, 0].copy(), R=9)
    with pytest.raises(tc.ShapeError, match="V is given a sparse matrix, which stands for 3 parameters, but 2"):
        ops.product(wide.indptr, wide.indices, wide, x)
    with pytest.raises(tc.ShapeError, match=r"X is given a sparse matrix, but has 2 dimensions(.|\n)*\.toarray\(\)"):
        ops.product(wide.indptr, wide.indices, wide.data, wide)
    with pytest.raises(tc.ShapeError, match="expected type float32 but found float64"):
        ops.product(scipy.csr_array(dense.astype(np.float64)), x)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_sparse_tensors_of_torch_are_arguments() -> None:
    torch = pytest.importorskip("torch")
    ops, dense = tc.define(SPARSE), torch.tensor([[0.0, 2.0, 0.0], [0.0, 0.0, 0.0], [1.0, 0.0, 3.0]])
    x = torch.arange(6.0).reshape(3, 2)
    found = ops.product(dense.to_sparse_csr(), x)
    assert isinstance(found, torch.Tensor)
    assert torch.equal(found, dense @ x)
    for other in (dense.to_sparse_csc(), dense.to_sparse_coo()):
        with pytest.raises(tc.ShapeError, match=f"row is given a tensor with the layout {other.layout}"):
            ops.product(other, x)
    assert torch.equal(ops.entry_by_entry(dense.to_sparse_coo(), x[:, 1].contiguous(), R=3), dense @ x[:, 1])
