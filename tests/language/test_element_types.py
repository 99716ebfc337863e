"""Element types as parameters: one text for all types, chosen by arrays, by calls and by name."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp import cli
from tcomp.grammar import parse

TEXT = """\
def softmax<T>(T(N, D) X) -> (T(N, D) Y) {
    m(n) max=! X(n, d)
    e(n, d) = exp(X(n, d) - m(n))
    s(n) +=! e(n, d)
    Y(n, d) = T(e(n, d) / s(n))
}
def picked<T, I>(T(N, D) X, I(N) label, T scale) -> (Y) {
    P = softmax(X)
    Y(n) = scale * P(n, label(n))
}
def doubles(double(N, D) X) -> (Y) {
    Y = softmax(softmax(X))
}"""


@pytest.fixture(scope="module")
def ops() -> tc.Module:
    return tc.define(TEXT)


def softmax(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    e = np.exp(x.astype(float) - x.max(1, keepdims=True))
    result: np.ndarray[Any, Any] = e / e.sum(1, keepdims=True)
    return result


def test_text_is_printed_and_read_again() -> None:
    definitions = parse(TEXT)
    assert "\n".join(map(str, definitions)) == TEXT
    assert definitions[1].types[1].name == "I"


@pytest.mark.parametrize(("dtype", "error"), [("float16", 1e-3), ("float32", 1e-6), ("float64", 1e-15)])
def test_arrays_choose(ops: tc.Module, dtype: str, error: float) -> None:
    x = np.random.default_rng(1).standard_normal((5, 7)).astype(dtype)
    y = ops.softmax(x)
    assert y.dtype == dtype
    assert np.abs(y - softmax(x)).max() < error
    label = np.array([6, 0, 3, 2, 1], "int64" if dtype == "float64" else "uint8")
    picked = ops.picked(x, label=label, scale=2.0)
    assert picked.dtype == dtype
    assert np.abs(picked - 2 * softmax(x)[range(5), label]).max() < 2 * error
    assert np.abs(ops.picked.reference(x, label, 2.0) - picked).max() < 2 * error


def test_calls_pass_types_on(ops: tc.Module) -> None:
    x = np.random.default_rng(2).standard_normal((3, 4))
    assert np.abs(ops.doubles(x) - softmax(softmax(x))).max() < 1e-15
    assert "double(N, D)" in str(ops.doubles)


def test_a_gradient_follows_the_arrays(ops: tc.Module) -> None:
    x, g = np.random.default_rng(3).standard_normal((2, 3, 4))
    y = softmax(x)
    expected = y * (g - (y * g).sum(1, keepdims=True))
    found = ops.softmax.gradient()(x, g)
    assert found.dtype == "float64"
    assert np.abs(found - expected).max() < 1e-14
    assert np.abs(ops.softmax.value_and_grad()(x, cotangents=(g,))[1] - expected).max() < 1e-14


def test_types_by_name(ops: tc.Module) -> None:
    kernel = ops.softmax.with_types(T=np.float64).compile(sizes={"N": 3, "D": 4})
    x = np.random.default_rng(4).standard_normal((3, 4))
    assert np.abs(kernel(x) - softmax(x)).max() < 1e-15
    assert ops.softmax.function.inputs[0].dtype.name == "float32"
    assert [t.dtype.name for t in ops.picked.function.inputs] == ["float32", "int32", "float32"]
    again = pickle.loads(pickle.dumps(ops))
    assert again.softmax(x.astype("float32")).dtype == "float32"


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ({"T": "flot"}, "flot is no element type\n  help: did you mean `float`?"),
        ({"U": "float"}, "softmax has no element type U"),
        ({}, "nothing says which type T is"),
    ],
)
def test_wrong_names(ops: tc.Module, types: dict[str, str], message: str) -> None:
    with pytest.raises(tc.TcompError) as caught:
        ops.softmax.with_types(**types)
    assert message in str(caught.value)


def test_arrays_that_contradict_each_other(ops: tc.Module) -> None:
    x, label = np.zeros((2, 3)), np.zeros(2, "int32")
    with pytest.raises(tc.ShapeError, match="T is float64 by X, but float32 by scale"):
        ops.picked(x, label, np.zeros((), "float32"))
    with pytest.raises(tc.CompileError, match="T is double and I is float here"):
        ops.picked(x, label.astype("float32"), 1.0)


def test_labels_and_indices_of_the_library_are_any_integers() -> None:
    x = np.random.default_rng(5).standard_normal((4, 3))
    label = np.array([2, 0, 1, 1])
    expected = -np.log(softmax(x)[range(4), label]).mean()
    for dtype in ("int32", "int64", "uint8"):
        assert abs(tc.library.cross_entropy(x, label.astype(dtype)) - expected) < 1e-14
        assert (tc.library.embedding(x, label.astype(dtype)) == x[label]).all()


def test_command_line(tmp_path: Any, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "softmax.tc"
    file.write_text(TEXT)
    assert cli.main(["compile", str(file), "--sizes", "N=2,D=3", "--types", "T=double", "--emit", "function"]) == 0
    assert "double(N, D) X" in capsys.readouterr().out
    assert cli.main(["gradient", str(file), "--def", "softmax", "--types", "T=float16"]) == 0
    assert "float16(N, D) X" in capsys.readouterr().out
    assert cli.main(["compile", str(file), "--sizes", "N=2,D=3", "--types", "U=double"]) == 1
    assert "no element type U" in capsys.readouterr().err


def test_tangents_and_batches_follow_the_arrays(ops: tc.Module) -> None:
    x, t = np.random.default_rng(2).standard_normal((2, 3, 4))
    y = softmax(x)
    moved = y * (t - (y * t).sum(1, keepdims=True))
    tangent, many = ops.softmax.tangent(), ops.softmax.batched((0,))
    np.testing.assert_allclose(tangent(x, t), moved, rtol=1e-12)
    np.testing.assert_allclose(tangent.reference(X=x, t_X=t), moved, rtol=1e-12)
    np.testing.assert_allclose(pickle.loads(pickle.dumps(many))(np.stack([x, t])), [y, softmax(t)], rtol=1e-12)
    assert many(np.stack([x, t]).astype(np.float32)).dtype == np.float32
    assert "def softmax_jvp(float(N, D) X, " in str(tangent)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_what_is_derived_twice_follows_the_arrays(dtype: str) -> None:
    f = tc.define("def f<T>(T(N) X, T a) -> (T(N) Y) { Y(n) = a * X(n) * X(n) }").f
    x, a = np.arange(4, dtype=dtype), np.asarray(3, dtype)
    moved = f.tangent("X")
    for found, expected in (
        (moved.tangent("X")(x, a, x, x), 6 * x * x),
        (moved.batched((0, None, 0))(x[None], a, x[None]), 6 * (x * x)[None]),
        (f.batched((0, None)).tangent("X")(x[None], a, x[None]), 6 * (x * x)[None]),
        (f.batched((0, None)).gradient("X")(x[None], a, x[None]), 6 * (x * x)[None]),
        (moved.gradient("X")(x, a, x, x), 6 * x * x),
    ):
        np.testing.assert_array_equal(found, expected, strict=True)
