"""``const`` parameters with a default value: as text, from Python, between defs, and in what is derived."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import tcomp as tc
import tcomp.torch as tct
from tcomp import cli, grammar
from tcomp.grammar.parsing.parser import parse

TEXT = """
def conv(float(N) X, float(K) W, const int S = 1, const int D = 2 * 3 - 5) -> (Y) {
    Y(i) +=! X(S * i + D * k) * W(k)
}
def twice(float(N) X, float(K) W) -> (Y, Z) { Y = conv(X, W)  Z = conv(X, W, D=2) }
def scaled(float(N) X, const int P = -2) -> (Y) { Y(i) = X(i) * P }
def middle(float(N) X, const int P = 3, float(N) Z) -> (Y) { Y(i) = P * X(i) - Z(i) }
"""
X, W = np.arange(12, dtype=np.float32), np.ones(3, np.float32)


def expected(stride: int = 1, dilation: int = 1) -> np.ndarray:
    count = (12 - 1 - 2 * dilation) // stride + 1
    return np.array([X[stride * i : stride * i + 2 * dilation + 1 : dilation].sum() for i in range(count)], np.float32)


@pytest.fixture(scope="module")
def ops() -> tc.Module:
    return tc.define(TEXT)


def test_printed_and_read_again() -> None:
    (definition,) = parse(TEXT[: TEXT.index("def twice")])
    assert "const int S = 1, const int D = 2 * 3 - 5" in str(definition)
    assert parse(str(definition)) == (definition,)
    assert grammar.define(TEXT)["conv"].defaults == {"S": 1, "D": 1}


def test_calls_with_and_without_them(ops: tc.Module) -> None:
    for _ in range(3):  # the second call of a kind is a quick one, the third a direct one
        np.testing.assert_array_equal(ops.conv(X, W), expected())
        np.testing.assert_array_equal(ops.conv(X, W, 2), expected(2))
        np.testing.assert_array_equal(ops.conv(X, W, D=2), expected(1, 2))
        np.testing.assert_array_equal(ops.conv(X, W, 2, 2), expected(2, 2))
        np.testing.assert_array_equal(ops.conv(W=W, X=X, S=3), expected(3))
        np.testing.assert_array_equal(ops.scaled(X), -2 * X)
    np.testing.assert_array_equal(ops.conv.reference(X, W), expected())
    np.testing.assert_array_equal(ops.conv.compile(X, W)(X, W), expected())
    np.testing.assert_array_equal(ops.conv.compile(sizes={"N": 12, "K": 3})(X, W), expected())
    np.testing.assert_array_equal(ops.conv.bind(W=W)(X), expected())
    np.testing.assert_array_equal(ops.conv.bind(S=2)(X, W), expected(2))


def test_one_in_the_middle_is_left_out_by_name(ops: tc.Module) -> None:
    np.testing.assert_array_equal(ops.middle(X, Z=X), 2 * X)
    with pytest.raises(tc.ShapeError, match="expected 3 inputs but found 2"):
        ops.middle(X, X)


def test_kernels_of_other_values_refuse_the_default(ops: tc.Module) -> None:
    with pytest.raises(tc.ShapeError, match="S is 1, but the kernel was compiled for 2"):
        ops.conv.compile(X, W, 2)(X, W)


def test_calls_between_defs(ops: tc.Module) -> None:
    one, two = ops.twice(X, W)
    np.testing.assert_array_equal(one, expected())
    np.testing.assert_array_equal(two, expected(1, 2))


def test_derived_texts(ops: tc.Module) -> None:
    assert "const int S = 1" in str(ops.conv.gradient())
    value, (d_X, _) = ops.conv.value_and_grad()(X, W, cotangents=(np.ones(10, np.float32),))
    np.testing.assert_array_equal(value, expected())
    np.testing.assert_array_equal(d_X, [1, 2, 3, 3, 3, 3, 3, 3, 3, 3, 2, 1])


def test_torch() -> None:
    ops = tct.define(TEXT)
    tensor, weights = torch.from_numpy(X.copy()).requires_grad_(), torch.from_numpy(W)
    for _ in range(3):
        result = ops.conv(tensor, weights)
        np.testing.assert_array_equal(result.detach(), expected())
    result.sum().backward()
    np.testing.assert_array_equal(tensor.grad, [1, 2, 3, 3, 3, 3, 3, 3, 3, 3, 2, 1])
    layer = tct.Layer(ops.conv, W=weights)
    np.testing.assert_array_equal(layer(torch.from_numpy(X)).detach(), expected())


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "conv.tc"
    file.write_text(TEXT)
    command = ["run", str(file), "--def", "conv", "--sizes", "N=12,K=3", "--check"]
    assert cli.main(command) == 0
    assert "S=1" in capsys.readouterr().out or cli.main([*command, "--sizes", "S=2"]) == 0
