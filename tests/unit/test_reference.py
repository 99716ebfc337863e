"""The reference interpreter against NumPy and PyTorch, written by hand for each program."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from tcomp.errors import CompileError, ShapeError
from tcomp.grammar import define
from tcomp.model import reference
from tcomp.model.reference import interpret
from tests.programs import IMAGE, INEXACT, MATMUL, PROGRAMS, WEIGHTS, A, Array, B, C, integers


def run(text: str, *inputs: Any, **contents: Array) -> Any:
    """The outputs of the only definition in a text: one array, or a tuple."""
    (function,) = define(text).values()
    names = [t.name for t in function.inputs]
    outputs = interpret(function, dict(zip(names, inputs, strict=True)), contents)
    assert list(outputs) == [t.name for t in function.outputs]
    return next(iter(outputs.values())) if len(outputs) == 1 else tuple(outputs.values())


@pytest.mark.parametrize("chunk", [1 << 22, 16])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same whether the iteration domain is evaluated at once or in many small boxes."""
    monkeypatch.setattr(reference, "_CHUNK", chunk)
    text, inputs, formula = PROGRAMS[name]
    found = run(text, *inputs)
    expected = np.asarray(formula(*inputs))
    assert found.shape == expected.shape
    assert found.dtype == inputs[0].dtype
    if name in INEXACT:
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    else:
        np.testing.assert_array_equal(found, expected)


def test_convolution_and_pooling_are_those_of_torch() -> None:
    torch = pytest.importorskip("torch")
    text = """
    def f(float(N,C,H,W) I, float(F,C,KH,KW) K, float(F) B, const int S) -> (O, P) {
        O(n,f,h,w) +=! constant_exterior(I, 0)(n,c,S*h+kh-1,S*w+kw-1) * K(f,c,kh,kw)
            where n in 0:N, h in 0:(H+S-1)/S, w in 0:W/S
        O(n,f,h,w) = relu(O(n,f,h,w) + B(f))
        P(n,f,h,w) max=! O(n,f,2*h+i,2*w+j) where i in 0:2, j in 0:2
    }"""
    bias = integers(4, seed=6)
    found, pooled = run(text, IMAGE, WEIGHTS, bias, 2)
    arguments = [torch.from_numpy(a) for a in (IMAGE, WEIGHTS, bias)]
    expected = torch.relu(torch.nn.functional.conv2d(*arguments, stride=2, padding=1))
    np.testing.assert_array_equal(found, expected.numpy())
    np.testing.assert_array_equal(pooled, torch.nn.functional.max_pool2d(expected, 2).numpy())


@pytest.mark.parametrize("extent", [1, 2, 5])
@pytest.mark.parametrize(
    ("boundary", "mode"),
    [("repeat_edge", "edge"), ("mirror_image", "symmetric"), ("mirror_interior", "reflect"), ("repeat_image", "wrap")],
)
def test_boundaries_are_the_padding_modes_of_numpy(boundary: str, mode: Any, extent: int) -> None:
    signal = np.arange(1, extent + 1, dtype=np.float32)
    found = run(f"def f(float(N) A) -> (O) {{ O(i) = {boundary}(A)(i-7) where i in 0:N+14 }}", signal)
    np.testing.assert_array_equal(found, np.pad(signal, 7, mode=mode))


def test_boundaries_fold_about_a_shifted_origin() -> None:
    text = "def f(float(N) A) -> (O) { T(i) = A(i-3)  O(i) = mirror_image(T)(i) where i in 0:N+6 }"
    np.testing.assert_array_equal(run(text, C), np.pad(C, 3, mode="symmetric"))


def test_exterior_value_may_vary() -> None:
    text = "def f(float(N) A, float(M) B) -> (O) { O(i) = constant_exterior(A, B(i))(i-1) where i in 0:N+2 }"
    other = integers(9, seed=7)
    np.testing.assert_array_equal(run(text, C, other), np.concatenate([other[:1], C, other[-1:]]))


def test_content_of_outputs_is_read_and_kept() -> None:
    text = MATMUL.replace("+=!", "+=")
    content = integers(6, 7, seed=11)
    before = content.copy()
    np.testing.assert_array_equal(run(text, A, B, C=content), content + A @ B)
    np.testing.assert_array_equal(content, before)


def test_inputs_may_be_views() -> None:
    big = integers(10, 12, seed=12)
    a, b = big[::-2, 1:11:3], np.broadcast_to(big[0, :4, None], (4, 3))
    np.testing.assert_array_equal(run(MATMUL, a, b), a @ b)


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64])
def test_integer_division_floors_and_is_total(dtype: type) -> None:
    low = int(np.iinfo(dtype).min)
    x, y = (np.array(v, dtype) for v in zip(*itertools.product([7, -7, 0, low], [2, -2, 0, -1]), strict=True))
    text = "def f(T(N) X, T(N) Y) -> (Q, R) { Q(i) = X(i) / Y(i)  R(i) = X(i) % Y(i) }".replace(
        "T", np.dtype(dtype).name
    )
    quotient, remainder = run(text, x, y)
    expected = [(int(a) // int(b), int(a) % int(b)) if b else (0, 0) for a, b in zip(x, y, strict=True)]
    wrapped = [(low if q == -low else q) for q, _ in expected]
    assert quotient.tolist() == wrapped
    assert remainder.tolist() == [r for _, r in expected]


def test_remainder_of_floats_has_the_sign_of_the_divisor() -> None:
    x, y = np.array([5.5, -5.5, 5.5, -5.5], np.float32), np.array([2, 2, -2, -2], np.float32)
    np.testing.assert_array_equal(
        run("def f(float(N) X, float(N) Y) -> (O) { O(i) = X(i) % Y(i) }", x, y), np.mod(x, y)
    )


def test_integers_wrap() -> None:
    a = np.array([100, -128, 127], np.int8)
    assert run("def f(int8(N) A) -> (O) { O(i) = A(i) * A(i) - A(i) }", a).tolist() == [
        (x * x - x + 128) % 256 - 128 for x in a.tolist()
    ]
    assert run("def f(uint8(N) A) -> (O) { O(i) = -A(i) }", np.array([0, 1, 255], np.uint8)).tolist() == [0, 255, 1]


def test_narrow_sums_accumulate_wider() -> None:
    a = np.full((1, 300), 127, np.int8)
    found = run("def f(int8(M,N) A) -> (O) { O(i) +=! A(i,j) }", a)
    assert (found.dtype, found.tolist()) == (np.int32, [300 * 127])
    half = np.full((1, 4096), 1, np.float16)
    found = run("def f(float16(M,N) A) -> (O) { O(i) +=! A(i,j) }", half)
    assert (found.dtype, found.tolist()) == (np.float16, [4096])


def test_sums_are_rounded_once() -> None:
    a = np.array([2.0**24, 1, 1], np.float32)
    assert run("def f(float(N) A) -> (o) { o +=! A(i) }", a) == 2.0**24 + 2


def test_bfloat16_rounds_to_nearest_even() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    text = "def f(float(N) A) -> (bfloat16(N) O) { O(i) = bfloat16(A(i)) }"
    a = np.array([1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, 3.4e38, np.nan], np.float32)
    found = run(text, a)
    assert found.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(found.astype(np.float32), [1, 1 + 2**-6, 1 + 2**-7, np.inf, np.nan])


def test_floats_convert_to_integers_by_truncation_and_saturate() -> None:
    a = np.array([1.9, -1.9, 300, -300, np.inf, -np.inf, np.nan, 127.5], np.float32)
    assert run("def f(float(N) A) -> (O) { O(i) = int8(A(i)) }", a).tolist() == [1, -1, 127, -128, 127, -128, 0, 127]
    assert run("def f(float(N) A) -> (O) { O(i) = uint8(A(i)) }", a).tolist() == [1, 0, 255, 0, 255, 0, 0, 127]
    wide = np.array([2.0**63, -(2.0**63), 2.0**62], np.float64)
    assert run("def f(double(N) A) -> (O) { O(i) = int64(A(i)) }", wide).tolist() == [2**63 - 1, -(2**63), 2**62]


def test_minimum_and_maximum_keep_nan_but_fmax_drops_it() -> None:
    a = np.array([1, np.nan, 3], np.float32)
    zero = np.zeros(3, np.float32)
    assert np.isnan(run("def f(float(N) A) -> (o) { o max=! A(i) }", a))
    text = "def f(float(N) A, float(N) Z) -> (O, P) { O(i) = max(A(i), Z(i))  P(i) = fmax(A(i), Z(i)) }"
    kept, dropped = run(text, a, zero)
    np.testing.assert_array_equal(kept, [1, np.nan, 3])
    np.testing.assert_array_equal(dropped, [1, 0, 3])


def test_literals_take_the_type_of_a_double_beside_them() -> None:
    assert run("def f(double a) -> (o) { o = a * 0.1 }", np.float64(1)) == 0.1
    assert run("def f(double a) -> (o) { o = a * float(0.1) }", np.float64(1)) == np.float64(np.float32(0.1))
    assert run("def f(float a) -> (o) { o = a * 0.1 }", np.float32(1)) == np.float32(0.1)


def test_sums_of_bools_are_disjunctions() -> None:
    a = np.array([[False, True], [False, False]])
    assert run("def f(bool(M,N) A) -> (O) { O(i) +=! A(i,j) }", a).tolist() == [True, False]


def test_empty_ranges_and_empty_arrays() -> None:
    np.testing.assert_array_equal(run(MATMUL, A[:, :0], B[:0]), np.zeros((6, 7), np.float32))
    assert run(MATMUL, A[:0], B).shape == (0, 7)


def test_indirect_subscripts_are_checked() -> None:
    text = "def f(float(E) T, int32(B) I) -> (O) { O(b) = T(I(b)) }"
    with pytest.raises(ShapeError, match="subscript 9 of dimension 0 of 'T' is outside 0:7 at b = 2") as caught:
        run(text, C, np.array([0, 1, 9], np.int32))
    assert caught.value.caret.strip().endswith("^^^^^^^")
    with pytest.raises(ShapeError, match="subscript -1 of dimension 0 of 'T'"):
        run(text, C, np.array([-1], np.int32))


def test_indirect_subscripts_under_a_condition_are_checked_where_it_holds() -> None:
    both = "def f(float(E) T, int32(B) I) -> (O) { O(b) = float(I(b) >= 0 && T(I(b)) == T(3)) }"
    either = "def f(float(E) T, int32(B) I) -> (O) { O(b) = float(I(b) < 0 || T(I(b)) == T(3)) }"
    assert run(both, C, np.array([-5, 3], np.int32)).tolist() == [0, 1]
    assert run(either, C, np.array([-5, 3], np.int32)).tolist() == [1, 1]
    text = "def f(float(E) T, int32(B) I) -> (O) { O(b) = I(b) >= 0 ? T(I(b)) : 0.0 }"
    np.testing.assert_array_equal(run(text, C, np.array([-5, 3], np.int32)), [0, C[3]])
    with pytest.raises(ShapeError, match="subscript 7 of dimension 0 of 'T'"):
        run(text, C, np.array([-5, 7], np.int32))


@pytest.mark.parametrize(
    ("inputs", "contents", "message"),
    [
        ({"A": A}, {}, "argument 'B' is missing"),
        ({"A": A, "B": B}, {}, "the previous content of output 'C' is missing"),
        ({"A": A, "B": B.astype(np.float64)}, {}, "'B': expected type float32 but found float64"),
        ({"A": A, "B": A}, {"C": A}, "Mismatched sizes for dimension K"),
        ({"A": A, "B": B[0]}, {"C": A}, "expected 2 dimensions but found tensor with 1"),
        ({"A": A, "B": B}, {"C": A}, r"'C': expected shape \(6, 7\) but found \(6, 5\)"),
    ],
)
def test_arguments_that_do_not_fit(inputs: dict[str, Array], contents: dict[str, Array], message: str) -> None:
    with pytest.raises(ShapeError, match=message):
        interpret(define(MATMUL.replace("+=!", "+="))["f"], inputs, contents)


def test_constants_must_be_integers() -> None:
    function = define("def f(float(N) A, const int S) -> (O) { O(i) = A(i) * S }")["f"]
    np.testing.assert_array_equal(interpret(function, {"A": C, "S": 3})["O"], 3 * C)
    with pytest.raises(ShapeError, match="'S' is a compile-time constant: expected an integer, found float64"):
        interpret(function, {"A": C, "S": 1.5})


def test_reading_what_is_not_written_is_refused() -> None:
    with pytest.raises((CompileError, ShapeError)):
        run("def f(float(N) A) -> (O) { T(2*i) = A(i)  O(i) = T(i) where i in 0:N }", C)


@pytest.mark.parametrize("chunk", [1 << 22, 3])
def test_what_is_not_finite_is_multiplied_before_it_is_summed(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sum of zeros and ones times infinity is infinite; of the products one is NaN."""
    monkeypatch.setattr(reference, "_CHUNK", chunk)
    factors = np.array([[0, 1, 2, 1], [1, 1, 1, 0]], np.float32)
    others = np.array([np.inf, np.nan, -np.inf, 2], np.float32)
    found = run("def f(float(M,N) A, float(N) B) -> (C) { C(n) +=! A(m,n) * B(n) }", factors, others)
    np.testing.assert_array_equal(found, [np.nan, np.nan, -np.inf, 2])


@pytest.mark.parametrize("rank", [52, 53, 63, 64])
def test_as_many_dimensions_as_numpy_has(rank: int) -> None:
    """NumPy takes 63 subscripts of one array, and has names for 52 axes of a product."""
    extents = [1] * (rank - 2) + [3, 2]
    indices = [f"i{d}" for d in range(rank)]
    every, declared = ",".join(indices), f"float({','.join(map(str, extents))})"
    x, y = integers(3, 2), integers(3, 2) + 1
    wide, other = x.reshape(extents), y.reshape(extents)
    turned = every.replace(indices[-2], f"2-{indices[-2]}")
    ranges = ", ".join(f"{index} in 0:{extent}" for index, extent in zip(indices, extents, strict=True))
    cases = {
        f"def f({declared} A) -> (O) {{ O({every}) = A({every}) + 1 }}": wide + 1,
        f"def f({declared} A) -> (O) {{ O({turned}) = A({every}) }}": x[::-1].reshape(extents),
        f"def f({declared} A) -> (O) {{ O({indices[-1]}) +=! A({every}) }}": x.sum(axis=0),
        f"def f({declared} A) -> (O) {{ O max=! A({turned}) where {ranges} }}": x.max(),
    }
    for text, expected in cases.items():
        np.testing.assert_array_equal(run(text, wide), expected)
    text = f"def f({declared} A, {declared} B) -> (O) {{ O({indices[-1]}) +=! A({every}) * B({every}) }}"
    np.testing.assert_array_equal(run(text, wide, other), (x * y).sum(axis=0))


def test_a_dimension_of_one_element_may_be_read_anywhere() -> None:
    one = integers(1, 3)
    found = run("def f(float(M,N) A) -> (O) { O(i,j) = repeat_edge(A)(i,j) where i in 0:4, j in 0:3 }", one)
    np.testing.assert_array_equal(found, np.repeat(one, 4, axis=0))
    found = run("def f(float(M,N) A) -> (O) { O(i) = repeat_image(A)(i-2,1) where i in 0:4 }", one)
    np.testing.assert_array_equal(found, np.full(4, one[0, 1]))
    found = run("def f(float(M) A) -> (O) { O(j) +=! repeat_edge(A)(j-i) where i in 0:4, j in 0:3 }", one[:, 0])
    np.testing.assert_array_equal(found, np.full(3, 4 * one[0, 0]))
