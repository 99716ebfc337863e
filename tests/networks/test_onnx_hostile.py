"""Models that are wrong, or want what is not known, end in a NetworkError that names the place."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import helper  # noqa: E402

import tcomp as tc  # noqa: E402
from tcomp.networks.grouping import group  # noqa: E402
from tests.networks.onnx_cases import model_of  # noqa: E402

node = helper.make_node


def chain(*nodes: Any, shape: tuple[Any, ...] = (2, 3), **options: Any) -> Any:
    return model_of(nodes, {"x": shape}, ["y"], **options)


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "shapes": (
        lambda: chain(node("MatMul", ["x", "w"], ["y"], "/product"), weights={"w": np.ones((4, 4), "f4")}),
        r"MatMul does not fit its operands \(node y of /product\)",
    ),
    "an input that is missing": (
        lambda: chain(node("Add", ["x", "z"], ["y"])),
        r"Add reads z, which nothing .*\(node y\)",
    ),
    "a cycle": (
        lambda: chain(node("Add", ["x", "b"], ["a"]), node("Relu", ["a"], ["b"]), node("Relu", ["b"], ["y"])),
        r"Add reads b, which nothing before it makes \(node a\)",
    ),
    "an output that nothing computes": (lambda: chain(node("Relu", ["x"], ["a"])), r"nothing computes the output y"),
    "one name twice": (lambda: chain(node("Relu", ["x"], ["y"]), node("Exp", ["x"], ["y"])), r"y is made twice"),
    "an operator without a rule": (
        lambda: chain(node("NonZero", ["x"], ["y"], "/where")),
        r"onnx.NonZero has no rule \(node y of /where\)",
    ),
    "an operator that nobody knows": (
        lambda: chain(node("Magic", ["x"], ["y"], domain="com.other")),
        r"onnx.com.other.Magic has no rule",
    ),
    "a size that is open": (lambda: chain(node("Relu", ["x"], ["y"]), shape=("n", 3)), r"dimension n of the input x"),
    "a size beyond all memory": (lambda: chain(node("Relu", ["x"], ["y"]), shape=(2**62, 8)), r"x has the extents"),
    "a result beyond all memory": (
        lambda: chain(node("Expand", ["x", "s"], ["y"]), shape=(1,), weights={"s": np.array([2**60, 64])}),
        r"y has the extents",
    ),
    "a constant beyond all memory": (
        lambda: chain(
            node("ConstantOfShape", ["s"], ["c"]),
            node("Add", ["x", "c"], ["y"]),
            shape=(1,),
            weights={"s": np.array([2**35])},
        ),
        r"too large a constant",
    ),
    "an old opset": (lambda: chain(node("Relu", ["x"], ["y"]), opset=7), r"opset 7, known are 13 to"),
    "an opset to come": (lambda: chain(node("Relu", ["x"], ["y"]), opset=999), r"opset 999"),
    "an axis that is not there": (lambda: chain(node("Softmax", ["x"], ["y"], axis=7)), r"Softmax|axis"),
    "a stride of 0": (
        lambda: chain(node("MaxPool", ["x"], ["y"], kernel_shape=[2], strides=[0]), shape=(1, 1, 5)),
        r"stride|MaxPool",
    ),
    "shapes from data": (
        lambda: model_of([node("Reshape", ["x", "s"], ["y"])], {"x": (4,), "s": (2,)}, ["y"], kinds={"s": 7}),
        r"Reshape has a shape that depends on an input",
    ),
    "numbers that are complex": (
        lambda: model_of([node("Identity", ["x"], ["y"])], {"x": (4,)}, ["y"], kinds={"x": 14}),
        r"complex64",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_named(name: str) -> None:
    make, message = WRONG[name]
    with pytest.raises(tc.NetworkError, match=message):
        tc.from_onnx(make())


def test_files_that_are_no_models(tmp_path: Path) -> None:
    (tmp_path / "a.onnx").write_bytes(b"nothing\xff\xff" * 9)
    for path in (tmp_path / "a.onnx", tmp_path / "missing.onnx"):
        with pytest.raises(tc.NetworkError):
            tc.from_onnx(path)
    (tmp_path / "empty.onnx").touch()
    with pytest.raises(tc.NetworkError, match="no model of ONNX"):
        tc.from_onnx(tmp_path / "empty.onnx")


def test_weights_outside_the_folder_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(np.ones(3, "f4").tobytes())
    inner = tmp_path / "models"
    inner.mkdir()
    for location in ("../secret", str(tmp_path / "secret"), "missing"):
        model = chain(node("Add", ["x", "w"], ["y"]), shape=(3,), weights={"w": np.ones(3, "f4")})
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = onnx.TensorProto.EXTERNAL
        tensor.external_data.add(key="location", value=location)
        (inner / "m.onnx").write_bytes(model.SerializeToString())
        with pytest.raises(tc.NetworkError, match="cannot be read"):
            tc.from_onnx(inner / "m.onnx")


def test_weights_that_are_cut_short() -> None:
    model = chain(node("Add", ["x", "w"], ["y"]), shape=(3,), weights={"w": np.ones(3, "f4")})
    model.graph.initializer[0].raw_data = b"\0" * 5
    with pytest.raises(tc.NetworkError, match="the weight w cannot be read"):
        tc.from_onnx(model)


def test_sizes_that_are_no_ones() -> None:
    with pytest.raises(tc.NetworkError, match="sizes has other, which is no input or dimension"):
        tc.from_onnx(chain(node("Relu", ["x"], ["y"])), sizes={"other": 3})


def test_many_nodes_are_read_in_time_that_grows_with_them() -> None:
    names = ["x", *(f"t{k}" for k in range(1500)), "y"]
    model = chain(*(node("Relu", [a], [b]) for a, b in pairwise(names)))
    network = tc.from_onnx(model)
    assert len(network.calls) == 1501
    assert [len(one.calls) for one in group(network)] == [64] * 23 + [29]
    assert len(group(network, followers=False)) == 1501


def test_long_chains_become_few_kernels() -> None:
    steps, b = 3 * 64, np.linspace(-1, 1, 3, dtype="f4")
    names = ["x", *(f"t{k}" for k in range(steps - 1)), "y"]
    model = chain(*(node("Add", [a, "b"], [c]) for a, c in pairwise(names)), weights={"b": b})
    compiled = tc.compile_network(tc.from_onnx(model))
    assert (len(compiled.steps), compiled.kernels) == (3, 1)
    np.testing.assert_allclose(compiled(np.ones((2, 3), "f4")), 1 + steps * np.array([b, b]), rtol=1e-5)


def test_many_pieces_are_put_together_in_parts() -> None:
    names = [f"t{k}" for k in range(150)]
    pieces = [node("Mul", ["x", f"w{k}"], [name]) for k, name in enumerate(names)]
    weights = {f"w{k}": np.float32(k) for k in range(150)}
    network = tc.from_onnx(chain(*pieces, node("Concat", names, ["y"], axis=1), weights=weights))
    assert max(len(call.arguments) for call in network.calls) == 64
    x = np.arange(6, dtype="f4").reshape(2, 3)
    np.testing.assert_array_equal(network.reference(x), np.concatenate([x * np.float32(k) for k in range(150)], 1))
