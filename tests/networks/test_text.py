"""Networks that program text says, with arrays for their weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tcomp as tc

DRAW = np.random.default_rng(6)
W, V, B = (DRAW.standard_normal(shape).astype("f4") for shape in ((6, 5), (3, 6), (3,)))
X = DRAW.standard_normal((4, 5)).astype("f4")

TEXT = """
use library:softmax

def dense(float(N,K) X, float(M,K) W) -> (Y) { Y(n,m) +=! X(n,k) * W(m,k) }
def plus(float(N,M) X, float(M) b) -> (Y) { Y(n,m) = X(n,m) + b(m) }
def scaled(float(N,M) X, float factor) -> (Y) { Y(n,m) = factor * X(n,m) }
def network(float(N,5) x, float(6,5) w, float(3,6) v, float(3) b) -> (y, s) {
  h = scaled(dense(x, w), factor=-0.5)
  y = plus(X=dense(h, v), b=b)
  s = softmax(y)
}
"""


def expected(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    y = -0.5 * (x @ W.T) @ V.T + B
    e = np.exp(y - y.max(1, keepdims=True))
    return y, e / e.sum(1, keepdims=True)


def test_calls_become_kernels_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "net.tc"
    path.write_text(TEXT)
    weights = {"w": W, "v": V, "b": B}
    for source, example in ((TEXT, [X]), (path, [])):
        net = tc.compile_network(source, *example, weights=weights, sizes={"N": 4})
        for mine, right in zip(net(X), expected(X), strict=True):
            assert np.allclose(mine, right, atol=1e-5)
        # Functions of elements are found in the text, and join what they follow.
        assert [len(step.group.calls) for step in net.steps] == [2, 2, 1]


def test_what_a_network_prints_is_read_as_it_was() -> None:
    onnx = pytest.importorskip("onnx")
    from tests.networks.onnx_cases import model_of

    make = onnx.helper.make_node
    nodes = [
        make("Conv", ["x", "k"], ["c"], pads=[1, 1, 1, 1]),
        make("BatchNormalization", ["c", "m", "m", "m", "v"], ["n"]),
        make("Relu", ["n"], ["r"]),
        make("Transpose", ["r"], ["t"], perm=[0, 2, 1, 3]),
        make("Reshape", ["t", "s"], ["u"]),
        make("Softmax", ["u"], ["y"]),
    ]
    weights = {"k": DRAW.standard_normal((2, 2, 3, 3)).astype("f4"), "m": np.ones(2, "f4"), "v": np.ones(2, "f4")}
    network = tc.from_onnx(model_of(nodes, {"x": (1, 2, 4, 3)}, ["y"], weights | {"s": np.array([4, -1])}))
    one = tc.compile_network(network)
    other = tc.compile_network(str(network), weights=network.weights)
    assert [len(stage.calls) for stage in one.stages.values()] == [len(stage.calls) for stage in other.stages.values()]
    assert len(one.steps) == len(other.steps) == 2
    x = DRAW.standard_normal((1, 2, 4, 3)).astype("f4")
    assert np.array_equal(one(x), other(x))


def test_other_defs_are_one_kernel() -> None:
    text = "def f(float(N) X, float(N) w) -> (Y) { T(i) = X(i) * w(i)  Y(i) = T(i) + 1.0 }"
    net = tc.compile_network(text, np.zeros(3, "f4"), weights={"w": np.arange(3, dtype="f4")})
    assert np.array_equal(net(np.ones(3, "f4")), [1, 2, 3]) and len(net.steps) == 1


def test_what_does_not_fit_is_told_with_its_place() -> None:
    with pytest.raises(tc.NetworkError, match=r"<string>:7:24: error: the extent N of x is not known") as found:
        tc.networks.from_text(TEXT, weights={"w": W, "v": V, "b": B})
    assert "sizes={'N': 1}" in str(found.value)
    with pytest.raises(tc.NetworkError, match="no parameter is called u"):
        tc.networks.from_text(TEXT, X, weights={"w": W, "v": V, "b": B, "u": B})
    with pytest.raises(tc.NetworkError, match="the weight b is of float64, not float32"):
        tc.networks.from_text(TEXT, X, weights={"w": W, "v": V, "b": B.astype("f8")})
    with pytest.raises(tc.NetworkError, match="more arrays than inputs"):
        tc.networks.from_text(TEXT, X, X, weights={"w": W, "v": V, "b": B})
    with pytest.raises(tc.NetworkError, match="no def other"):
        tc.networks.from_text(TEXT, X, name="other")
    with pytest.raises(tc.ShapeError):
        tc.networks.from_text(TEXT, X[:, :4], weights={"w": W, "v": V, "b": B})
    with pytest.raises(tc.CompileError):
        tc.networks.from_text(TEXT.replace("plus(X", "minus(X"), X)


def test_a_text_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tcomp.cli import main

    (tmp_path / "net.tc").write_text(TEXT)
    np.savez(tmp_path / "w.npz", w=W, v=V, b=B)
    given = [str(tmp_path / "net.tc"), "--weights", str(tmp_path / "w.npz"), "--size", "N=4"]
    assert main(["network", "run", *given]) == 0
    assert "s: float32 4x3, " in capsys.readouterr().out
    assert main(["network", "explain", *given[:2], str(tmp_path / "none.npz")]) == 1
    assert "cannot read" in capsys.readouterr().err
