"""Rows that are reduced, normalised, gathered and streamed: in vectors of every width, of every length."""

from __future__ import annotations

import platform
import re
import subprocess
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.host import toolchain
from tcomp.errors import TcompError

pytestmark = pytest.mark.sweep(8)

Array = np.ndarray[Any, np.dtype[Any]]

LENGTHS = (1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100, 127, 130, 257)
SERIAL = tc.MappingOptions(parallel=False)

Use = Callable[..., None]


def integers(*shape: int, dtype: Any = np.float32, seed: int = 0) -> Array:
    return np.random.default_rng([seed, *shape]).integers(-9, 10, shape).astype(dtype)


@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("dtype", ["float", "double", "int32", "uint32", "int64"])
def test_reductions_of_all_lengths(machine: Use, dtype: str, width: int) -> None:
    machine(vector_bytes=width)
    f = tc.define(
        f"""def f({dtype}(N,D) X, {dtype}(N,D) Y) -> (s, p, low, high) {{
          s(n) +=! X(n,d)
          p(n) +=! X(n,d) * Y(n,d) - Y(n,d)
          low(n) min=! X(n,d)
          high(n) max=! X(n,d)
        }}"""
    )["f"]
    # All lengths of floats; of the others those of every second length, other ones in vectors of the next width.
    for length in LENGTHS if dtype == "float" else LENGTHS[width // 32 % 2 :: 2]:
        X = integers(3, length).astype({"float": "f4", "double": "f8"}.get(dtype, dtype))
        Y = X[::-1].copy()
        s, p, low, high = f(X, Y)
        assert (s == X.sum(1, dtype=X.dtype)).all(), length
        assert (p == (X * Y - Y).sum(1, dtype=X.dtype)).all(), length
        assert (low == X.min(1)).all(), length
        assert (high == X.max(1)).all(), length


@pytest.mark.parametrize("width", [16, 64])
@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf, -0.0])
def test_one_special_value_anywhere(machine: Use, value: float, width: int) -> None:
    machine(vector_bytes=width)
    f = tc.define(
        """def f(float(N,D) X) -> (low, high, s) {
          low(n) min=! X(n,d)
          high(n) max=! X(n,d)
          s(n) +=! X(n,d)
        }"""
    )["f"]
    for length in (3, 16, 70, 133):
        X = np.ones((length, length), np.float32)
        np.fill_diagonal(X, value)
        low, high, s = f(X)
        np.testing.assert_array_equal(low, X.min(1))
        np.testing.assert_array_equal(high, X.max(1))
        np.testing.assert_array_equal(s, X.sum(1))


def test_values_that_the_compiler_computes_are_reduced_in_vectors(machine: Use) -> None:
    """A function is no arithmetic on vectors, but what it gives is added in them."""
    machine(vector_bytes=64)
    f = tc.define("def f(float(N,D) X) -> (s) { s(n) +=! exp(X(n,d)) }")["f"]
    for length in LENGTHS:
        X = integers(4, length) / 8
        np.testing.assert_allclose(f(X), np.exp(X, dtype=np.float64).sum(1), rtol=1e-5)
    assert re.search(r"part\d = part\d \+ \*\(const tc_float32_x8 \*\)\(value", f.compile(X).source)


def test_a_softmax_keeps_its_accumulators_in_registers(machine: Use) -> None:
    """Accumulators of which other loops read the results lie in memory, but not while they are summed."""
    machine(vector_bytes=64)
    f = tc.define(
        """def f(float(N,D) X) -> (Y) {
          m(n) max=! X(n,d)
          e(n,d) = exp(X(n,d) - m(n))
          s(n) +=! e(n,d)
          Y(n,d) = e(n,d) / s(n)
        }"""
    )["f"]
    for shape in ((5, 333), (64, 64), (1, 4099), (2, 7)):
        X = integers(*shape)
        e = np.exp(X - X.max(1, keepdims=True), dtype=np.float64)
        np.testing.assert_allclose(f(X), e / e.sum(1, keepdims=True), rtol=1e-5, atol=1e-30)
    text = f.compile(integers(5, 333)).source
    assert "part3 = tc_max_float32_x16(part3" in text
    assert len(re.findall(r"c3 = 333 - 16;\n.*\n.*part0 = ", text)) == 2, "5 * 64 + 13 ends in a vector that overlaps"
    assert re.search(r"\(tc_int32_x16\)\{0, 0, 0, -1, ", text), "of which three elements were added before"
    assert re.search(r"part3 = part3 \+ \*\(const tc_float32_x16 \*\)&v_e", text)


def test_a_sum_that_moves_its_target_is_not_kept_in_a_register() -> None:
    f = tc.define("def f(float(X) I, float(K) W) -> (O) { O(x+k) +=! I(x) * W(k) }")["f"]
    A, W = integers(9), integers(40)
    assert (f(A, W) == np.convolve(A, W)).all()
    f = tc.define("def f(float(X,C) I, float(K) W) -> (O) { O(x+k,c) +=! I(x,c) - W(k) }")["f"]
    A, W = integers(6, 32), integers(4)
    expected = np.zeros((9, 32), np.float32)
    for k in range(4):
        expected[k : k + 6] += A - W[k]
    assert (f(A, W) == expected).all()


EMBEDDING = "def f(float(E,D) T, int32(B,L) I) -> (O) { O(b,d) +=! T(I(b,l),d) }"


@pytest.mark.parametrize("sizes", [(6, 64, 7, 5), (5, 50, 9, 3), (3, 7, 4, 2), (4, 1, 3, 3), (8, 130, 33, 11)])
def test_sums_of_gathered_rows(sizes: tuple[int, int, int, int]) -> None:
    E, D, B, L = sizes
    T, rows = integers(E, D), np.random.default_rng(1).integers(0, E, (B, L)).astype(np.int32)
    assert (tc.define(EMBEDDING)["f"](T, rows) == T[rows].sum(1)).all()


def test_a_gathered_row_is_checked_once_and_added_in_vectors(machine: Use) -> None:
    machine(vector_bytes=64)
    f = tc.define(EMBEDDING)["f"]
    T, rows = integers(6, 64), np.zeros((8, 5), np.int32)
    text = f.compile(T, rows).source
    assert re.search(
        r"const long (tc_at0_0) = tc_check\(.*\n(.*tc_sum0_\d = tc_sum0_\d \+ .*v_T\[tc_at0_0 .*\n){4}", text
    )
    assert re.search(r"tc_sum0_3 = .*\+ 34\)", f.compile(integers(6, 50), rows).source), "the last vector overlaps"
    rows[7, 4] = 6
    with pytest.raises(TcompError, match=r"6"):
        f(T, rows)


def test_a_condition_still_guards_a_gather() -> None:
    """Only what every instance reads may be read, and checked, in front of a loop."""
    f = tc.define("def f(float(E,D) T, int32(B) I) -> (O) { O(b,d) = I(b) < 0 ? 0.5 : T(I(b),d) }")["f"]
    T, rows = integers(4, 20), np.array([-1, 2, -7, 0], np.int32)
    assert (f(T, rows) == np.where(rows[:, None] < 0, np.float32(0.5), T[np.maximum(rows, 0)])).all()


def test_a_loop_without_iterations_checks_nothing() -> None:
    f = tc.define("def f(float(E,D) T, int32(B) I) -> (O) { O(b) +=! T(I(b),d) where d in 0:b }")["f"]
    T = integers(4, 40)
    rows = np.array([99, 1, 3, 0] + 30 * [2], np.int32)
    expected = [0.0, *(T[row, :b].sum() for b, row in enumerate(rows) if b)]
    assert (f(T, rows) == np.array(expected, np.float32)).all()


def test_dot_products_with_gathered_rows() -> None:
    f = tc.define("def f(float(E,D) T, int32(B) I, float(D) w) -> (O) { O(b) +=! T(I(b),d) * w(d) }")["f"]
    T, w, rows = integers(5, 75), integers(75), np.array([4, 0, 3, 3], np.int32)
    assert (f(T, rows, w) == T[rows] @ w).all()
    with pytest.raises(TcompError):
        f(T, rows + 2, w)


def test_one_subscript_of_two_tensors_is_checked_for_each() -> None:
    f = tc.define("def f(float(E,D) S, float(F,D) T, int32(B) I) -> (O) { O(b,d) = S(I(b),d) + T(I(b),d) }")["f"]
    S, T = integers(9, 20), integers(3, 20, seed=1)
    assert (f(S, T, np.array([2, 0], np.int32)) == S[[2, 0]] + T[[2, 0]]).all()
    with pytest.raises(TcompError, match="T"):
        f(S, T, np.array([2, 5], np.int32))


POOLS: dict[str, tuple[str, Callable[..., Array]]] = {
    "sums over windows": ("O(h,w) +=! I(h+i,w+j) where i in 0:3, j in 0:3", np.sum),
    "maxima over windows": ("O(h,w) max=! I(h+i,w+j) where i in 0:3, j in 0:3", np.max),
}


@pytest.mark.parametrize("name", POOLS)
def test_windows(name: str) -> None:
    statement, reduce = POOLS[name]
    f = tc.define(f"def f(float(H,W) I) -> (O) {{ {statement} }}")["f"]
    for shape in ((7, 9), (20, 67), (70, 130)):
        image = integers(*shape)
        if reduce is np.max:
            image[3, 4] = np.nan
        windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3))
        np.testing.assert_array_equal(f(image), reduce(windows, axis=(2, 3)))


@pytest.mark.parametrize("axis", ["sum", "max"])
def test_columns(axis: str) -> None:
    f = tc.define(f"def f(float(N,D) X) -> (O) {{ O(d) {'+' if axis == 'sum' else 'max'}=! X(n,d) }}")["f"]
    for shape in ((5, 3), (40, 64), (33, 129)):
        X = integers(*shape)
        assert (f(X) == getattr(X, axis)(0)).all()


STREAMED = "def f(float(N,D) X, float(D) g) -> (Y) { Y(n,d) = X(n,d) * g(d) - 1 }"
COMPUTED = "def f(float(N,D) X, float(D) g) -> (Y) { Y(n,d) = exp(X(n,d)) * g(d) }"


@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize("text", [STREAMED, COMPUTED])
def test_streamed_rows(machine: Use, text: str, width: int, threads: bool) -> None:
    machine(vector_bytes=width, last_cache=1, threads=2)
    f = tc.define(text)["f"]
    for shape in ((3, 128), (5, 129), (2, 1000), (300, 143)):
        X, g = integers(*shape) / 4, integers(shape[1], seed=3)
        kernel = f.compile(X, g, options=tc.MappingOptions(parallel=threads))
        assert f"tc_stream_{width if text == STREAMED else 32}(" in kernel.source
        expected = X * g - 1 if text == STREAMED else np.exp(X, dtype=np.float64) * g
        for offset in (0, 1, 7, 15):
            room = np.full(X.size + 32, -5, np.float32)
            kernel(X, g, out=room[offset : offset + X.size].reshape(shape))
            np.testing.assert_allclose(room[offset : offset + X.size].reshape(shape), expected, rtol=1e-5)
            assert (room[:offset] == -5).all()
            assert (room[offset + X.size :] == -5).all()


def test_every_thread_waits_for_its_streamed_stores(machine: Use) -> None:
    machine(last_cache=1, threads=2, vector_bytes=64)
    f = tc.define(STREAMED)["f"]
    text = f.compile(sizes={"N": 4096, "D": 256}).source
    loop = text.index("#pragma omp parallel")
    assert text.index("tc_stream_fence();", loop) > text.index("tc_stream_64(", loop)
    assert "tc_stream_fence();" in f.compile(sizes={"N": 4096, "D": 256}, options=SERIAL).source


def test_only_outputs_that_nothing_reads_are_streamed(machine: Use) -> None:
    machine(last_cache=1)
    f = tc.define(
        """def f(float(N,D) X) -> (Y, Z) {
          Y(n,d) = X(n,d) + 1
          s(n) +=! Y(n,d)
          Z(n,d) = X(n,d) * s(n)
        }"""
    )["f"]
    text = f.compile(sizes={"N": 100, "D": 500}).source
    assert re.search(r"tc_stream_\d+\(\(char \*\)&v_Z", text)
    assert not re.search(r"tc_stream_\d+\(\(char \*\)&v_Y", text)


def test_outputs_that_fit_the_cache_are_not_streamed(machine: Use) -> None:
    machine(last_cache=32 << 20)
    f = tc.define(STREAMED)["f"]
    assert "tc_stream" not in f.compile(sizes={"N": 1000, "D": 1000}).source
    assert "tc_stream" in f.compile(sizes={"N": 4000, "D": 1000}).source


def test_threads_fetch_small_tiles_by_the_dozen(machine: Use) -> None:
    machine(threads=2)
    f = tc.define("def f(float(N,D) X) -> (Y) { s(n) +=! X(n,d)  Y(n,d) = X(n,d) / s(n) }")["f"]
    fetched = r"fetch_add\(&begun\[share\]\[0\], (\d+),"
    chunk = re.search(fetched, f.compile(sizes={"N": 20000, "D": 100}).source)
    assert chunk is not None
    assert int(chunk[1]) > 1
    chunk = re.search(fetched, f.compile(sizes={"N": 16, "D": 100000}).source)
    assert chunk is not None
    assert int(chunk[1]) == 1


@pytest.mark.parametrize("tiles", [(1, 1, 64), (3, 2, 50), (64, 40, 13)])
@pytest.mark.parametrize("threads", [2, 3, 7])
@pytest.mark.filterwarnings("ignore::tcomp.ProgramWarning")
def test_all_tiles_belong_to_some_thread_and_to_one(machine: Use, threads: int, tiles: tuple[int, ...]) -> None:
    machine(threads=threads)
    f = tc.define("def f(float(A,B,C) X) -> (Y) { Y(a,b,c) += X(a,b,c) where a in 2:A, b in 0:B, c in 1:C }")["f"]
    X = integers(29, 31, 67)
    options = tc.MappingOptions(tile_sizes=tiles)
    kernel = f.compile(X, options=options)
    assert "omp parallel" in kernel.source
    Y = np.zeros((27, 31, 66), np.float32)
    for calls in range(1, 4):
        kernel(X, out=Y)
        np.testing.assert_array_equal(Y, calls * X[2:, :, 1:])


def test_rows_that_are_passed_over_several_times_stay_in_the_nearest_cache(machine: Use) -> None:
    f = tc.define("def f(float(N,D) X) -> (Y) { s(n) +=! X(n,d)  Y(n,d) = X(n,d) / s(n) }")["f"]

    def rows(length: int, cache: int) -> int:
        machine(nearest_cache=cache)
        return f.compile(sizes={"N": 1000, "D": length}).compilation.plan.groups[0].sizes[0]

    assert rows(1024, 48 << 10) < rows(64, 48 << 10)
    assert rows(512, 16 << 10) <= rows(512, 96 << 10)
    assert rows(1024, 48 << 10) * 1024 * 4 <= 48 << 10


BOUNDS = (
    "max(X(n), 1.0)",
    "min(1.0, X(n))",
    "clamp(X(n), -1.0, 5.0)",
    "max(X(n), 0.0 / 0.0)",
    "min(X(n), max(Y(n), 2.0))",
)


@pytest.mark.parametrize("bound", BOUNDS)
def test_bounds_keep_what_is_no_number(bound: str) -> None:
    f = tc.define(f"def f(float(N) X, float(N) Y) -> (O) {{ O(n) = {bound} }}")["f"]
    X = np.array([np.nan, -np.nan, 1, -1, 0, np.inf, -np.inf, 5, 7] * 4, np.float32)
    np.testing.assert_array_equal(f(X, X[::-1]), f.reference(X, X[::-1]))


MEASURES: dict[str, Callable[[Array, Array], Array]] = {
    "abs(X(n,d) - Y(n,d))": lambda X, Y: np.abs(X - Y),
    "max(X(n,d), Y(n,d)) - min(X(n,d), 2.0)": lambda X, Y: np.maximum(X, Y) - np.minimum(X, 2),
    "relu(X(n,d) - Y(n,0)) * 2.0": lambda X, Y: np.maximum(X - Y[:, :1], 0) * 2,
}


@pytest.mark.parametrize("value", MEASURES)
def test_extrema_and_magnitudes_are_added_in_vectors(machine: Use, value: str) -> None:
    machine(vector_bytes=64)
    f = tc.define(f"def f(float(N,D) X, float(N,D) Y) -> (s) {{ s(n) +=! {value} }}")["f"]
    for length in LENGTHS:
        X, Y = integers(3, length), integers(3, length, seed=1)
        assert (f(X, Y) == MEASURES[value](X, Y).sum(1)).all(), length
    assert "value[l]" not in f.compile(X, Y).source
    X[1, 100] = np.nan
    np.testing.assert_array_equal(f(X, Y), MEASURES[value](X, Y).sum(1))


SHARED: dict[str, tuple[str, tuple[int, ...], Callable[[Array], Array]]] = {
    "all": ("s +=! X(n,d)", (1030, 517), lambda X: X.sum()),
    "largest": ("s max=! X(n,d)", (3, 200_001), lambda X: X.max()),
    "columns": ("s(d) +=! X(n,d)", (40_000, 13), lambda X: X.sum(0)),
    "a window": ("s +=! X(n+2,d) where n in 3:N-9, d in 1:D", (901, 700), lambda X: X[5:-7, 1:].sum()),
    "numbers of steps": (
        "s +=! X(n,d) * float(n % 3)",
        (999, 400),
        lambda X: (X * (np.arange(999) % 3)[:, None]).sum(),
    ),
    "a triangle": ("s +=! X(n,d) where n in 0:N, d in 0:n", (700, 1000), lambda X: np.tril(X, -1).sum()),
}


@pytest.mark.parametrize("name", SHARED)
def test_threads_share_reductions(machine: Use, name: str) -> None:
    machine(threads=2)
    statement, shape, expected = SHARED[name]
    f = tc.define(f"def f(float(N,D) X) -> (s) {{ {statement} }}")["f"]
    X = integers(*shape)
    kernel = f.compile(X)
    assert "#pragma omp parallel " in kernel.source
    assert (kernel(X) == expected(X)).all()
    assert (f.compile(X, options=SERIAL)(X) == expected(X)).all()
    assert "#pragma omp parallel" not in f.compile(sizes={"N": 20, "D": 30}).source
    assert f.compile(X, plan=kernel.stages["place"]).source == kernel.source


def test_rows_that_keep_all_threads_busy_are_not_split(machine: Use) -> None:
    machine(threads=2)
    f = tc.define("def f(float(N,D) X) -> (s) { s(n) +=! X(n,d) }")["f"]
    assert not f.compile(sizes={"N": 500, "D": 5000}).compilation.plan.stored
    assert f.compile(sizes={"N": 2, "D": 500_000}).compilation.plan.stored


def test_a_product_ends_in_parts_of_vectors(machine: Use) -> None:
    """Its lanes cannot be left out by their bits."""
    machine(vector_bytes=64)
    f = tc.define("def f(float(N,D) X) -> (p) { p(n) *=! X(n,d) }")["f"]
    for length in LENGTHS:
        X = np.where(np.arange(3 * length).reshape(3, length) % 7 == 0, -1, 1).astype(np.float32)
        assert (f(X) == X.prod(1)).all(), length
    assert re.search(r"half8 = half8 \* .*\n.* \+= 8;", f.compile(sizes={"N": 3, "D": 333}).source)


@pytest.mark.parametrize("length", [4, 5, 7, 15, 16, 17, 31, 33])
def test_short_rows_run_in_whole_vectors(machine: Use, length: int) -> None:
    """gcc would unroll short loops before it looks for vectors, and run what is left of a row element by element."""
    machine(vector_bytes=64)
    f = tc.define("def f(float(N,D) X, float(N) s) -> (Y) { t(n,d) = X(n,d) * 2  Y(n,d) = t(n,d) / s(n) + t(n,d) }")[
        "f"
    ]
    X, s = integers(40, length), 2.0 ** integers(40)
    kernel = f.compile(X, s)
    assert (kernel(X, s) == 2 * X / s[:, None] + 2 * X).all()
    lanes = 16 if length >= 16 else 8 if length >= 8 else 4
    assert kernel.source.count("#pragma omp simd") == (1 if length % lanes == 0 else 2)


@pytest.mark.filterwarnings("ignore::tcomp.ProgramWarning")
def test_an_iteration_that_reads_what_it_writes_runs_once(machine: Use) -> None:
    machine(vector_bytes=64)
    f = tc.define("def f(float(N,D) X) -> (Y) { Y(n,d) += X(n,d)  Y(n,d) = Y(n,d) + 1 }")["f"]
    X, Y = integers(5, 21), integers(5, 21, seed=1)
    expected = X + Y + 1
    assert (f(X, out=Y) == expected).all()


def test_rows_of_a_loss_are_shared_out_though_it_is_one_number(machine: Use) -> None:
    machine(threads=2)
    f = tc.define(
        """def f(float(N,C) X) -> (L) {
          m(n) max=! X(n,c)
          L +=! m(n)
        }"""
    )["f"]
    X = integers(256, 1000)
    kernel = f.compile(X)
    assert len(kernel.compilation.plan.groups) == 2
    assert "#pragma omp parallel " in kernel.source
    assert kernel(X) == X.max(1).sum()
    assert len(f.compile(sizes={"N": 16, "C": 100}).compilation.plan.groups) == 1
    assert len(f.compile(X, options=SERIAL).compilation.plan.groups) == 1


FLATTENED: dict[str, tuple[str, tuple[int, ...], bool]] = {
    "two dimensions": ("Y(i) = X(i / D, i % D) where i in 0:N*D", (30, 37), True),
    "three": ("Y(i) = X(i / (B*C), (i / C) % B, i % C) where i in 0:A*B*C", (5, 7, 11), True),
    "three, by rests": ("Y(i) = X(i / (B*C), i % (B*C) / C, i % C) where i in 0:A*B*C", (5, 7, 11), True),
    "the inner two": ("Y(a,i) = X(a, i / C, i % C) where a in 0:A, i in 0:B*C", (5, 7, 11), True),
    "a part of every row": ("Y(i) = X(i / (D-1), i % (D-1)) where i in 0:N*(D-1)", (30, 37), False),
    "turned": ("Y(i) = X(i % N, i / N) where i in 0:N*D", (30, 37), False),
    "another rest": ("Y(i) = X(i / D, (i + 1) % D) where i in 0:N*D", (30, 37), False),
}


def flat(name: str, X: Array) -> Array:
    """What a statement of ``FLATTENED`` computes."""
    rows = X.reshape(X.shape[0], -1)
    match name:
        case "the inner two":
            return rows
        case "a part of every row":
            return rows[:, :-1].ravel()
        case "turned":
            return rows.T.ravel()
        case "another rest":
            return np.roll(rows, -1, axis=1).ravel()
    return rows.ravel()


@pytest.mark.parametrize("name", FLATTENED)
def test_flattening_is_a_copy(name: str) -> None:
    """Quotient and rest of an index are the index where rows lie one behind another, and nowhere else."""
    statement, shape, is_copy = FLATTENED[name]
    f = tc.define(f"def f(float({','.join('ND' if len(shape) == 2 else 'ABC')}) X) -> (Y) {{ {statement} }}")["f"]
    X = np.random.default_rng(shape).random(shape, dtype=np.float32)
    kernel = f.compile(X)
    assert ("tc_mod(" not in kernel.source) == is_copy
    np.testing.assert_array_equal(kernel(X), flat(name, X))
    apart = np.repeat(X, 2, axis=0)[::2]
    np.testing.assert_array_equal(f(apart), flat(name, apart))


def test_what_a_row_reads_alike_is_read_before_it() -> None:
    """gcc read it anew behind each store, at the end of the iteration, and then found no vectors."""
    chain = toolchain.find()
    if chain.family is not toolchain.GCC or platform.machine() != "x86_64":
        pytest.skip("about gcc's code for x86-64")
    f = tc.define("""
    def f(float(N,D) X, float(N) m, float(N) r, float(N,D) dY) -> (dX) {
      s(n) +=! dY(n,d) * (X(n,d) - m(n))
      t(n) +=! dY(n,d) * r(n) + s(n) * (X(n,d) - m(n))
      dX(n,d) = dY(n,d) * r(n) + s(n) * (X(n,d) - m(n)) - t(n)
    }""")["f"]
    X, m, r, dY = (integers(*shape) for shape in ((5, 768), (5,), (5,), (5, 768)))
    kernel = f.compile(X, m, r, dY)
    assert "const float tc_same0 = v_r[" in kernel.source
    command = (*chain.command, "-S", *chain.arguments(kernel.source, ()), "-o", "-")
    code = subprocess.run(command, input=kernel.source, text=True, capture_output=True, check=True).stdout
    stores = re.findall(r"\tvmov\w+\t%\w+, \d*\(%r\w+,%r\w+\)", code)
    assert stores and not any("vmovss" in store for store in stores)
    x, d = X.astype(float) - m[:, None], dY.astype(float)
    t = d * r[:, None] + (d * x).sum(1, keepdims=True) * x
    np.testing.assert_allclose(f(X, m, r, dY), t - t.sum(1, keepdims=True), rtol=1e-4, atol=1.0)


@pytest.mark.parametrize("value", ["a / z(n) * exp(X(n,d) - m(n))", "X(n,d) * sqrt(a * z(n)) + (m(n) - a)"])
def test_what_a_row_computes_alike_is_computed_before_it(value: str) -> None:
    f = tc.define(f"def f(float(N,D) X, float(N) m, float(N) z, float a) -> (Y) {{ Y(n,d) = {value} }}")["f"]
    X, m, z, a = integers(3, 2000), integers(3), integers(3) ** 2 + 1, np.float32(3)
    source = f.compile(X, m, z, a).source
    steady = re.findall(r"const float (tc_same\d+) = (.*);", source)
    assert steady and any("/" in text or "sqrt" in text for _, text in steady)
    inside = [line for line in source.splitlines() if "v_X[" in line and "=" in line and "const" not in line]
    assert inside and not any("v_z[" in line or "v_m[" in line for line in inside)
    np.testing.assert_allclose(f(X, m, z, a), f.reference(X, m, z, a), rtol=2e-6, atol=1e-6)


def test_what_is_computed_in_a_row_for_some_elements_is_left_there() -> None:
    """A quotient of integers may fail, and a branch may not be taken."""
    text = "def f(int32(N,D) X, int32(N) z) -> (Y) { Y(n,d) = X(n,d) > 0 ? X(n,d) * (100 / z(n)) : 0 }"
    f = tc.define(text)["f"]
    X, z = integers(3, 500).astype(np.int32), np.array([3, 0, -7], np.int32)
    X[1] = -1
    np.testing.assert_array_equal(f(X, z), f.reference(X, z))


def test_what_may_change_in_a_row_is_read_there() -> None:
    """An element that the row writes itself, and one that only some iterations may read."""
    f = tc.define("""
    def f(float(N) A, float(N) B, const int K) -> (C, D) {
      C(i) = A(i) + B(i)
      C(i) = C(i) + C(3)
      D(i) = i < 2 ? A(i) : B(K)
    }""")["f"]
    A, B = integers(100), integers(100, seed=1)
    C, D = f(A, B, 7)
    assert (A + B + (A + B)[3] == C).all()
    assert (np.where(np.arange(100) < 2, A, B[7]) == D).all()
