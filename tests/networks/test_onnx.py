"""Networks of ONNX, against what the package ``onnx`` says that its operators give."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

import tcomp as tc  # noqa: E402
from tests.networks.onnx_cases import Case, cases_of, mismatch, model_of, operators  # noqa: E402

LEAST = {
    "choosing": 20,
    "convolving": 22,
    "elementwise": 190,
    "moving": 85,
    "normalising": 55,
    "products": 24,
    "quantised": 22,
    "recurrent": 9,
    "reducing": 110,
    "resizing": 37,
    "signals": 26,
}
"""How many cases of each room must be computed."""


def run(cases: list[Case]) -> int:
    """Check the text of cases against what they expect; how many were computed."""
    right = 0
    for case in cases:
        if (network := case.network()) is None:
            continue
        assert [v.dtype for v in network.outputs] == [np.asarray(x).dtype.name for x in case.expected], case.name
        wrong = mismatch(network.reference(*case.inputs), case.expected)
        assert wrong is None, f"{case.name} {wrong}\n{network}"
        right += 1
    return right


@pytest.mark.parametrize("room", LEAST)
def test_texts_compute_what_operators_do(room: str) -> None:
    assert run(list(cases_of(operators(room)))) >= LEAST[room]


@pytest.mark.long
def test_texts_of_pools_compute_what_operators_do() -> None:
    assert run(list(cases_of(operators("convolving"), slow=True))) >= 30


def check_kernels(cases: list[Case]) -> None:
    for case in cases:
        if (network := case.network()) is None:
            continue
        net = tc.compile_network(network)
        wrong = mismatch(net(*case.inputs), case.expected)
        assert wrong is None, f"{case.name} {wrong}\n{net.source}"


@pytest.mark.parametrize("room", LEAST)
def test_kernels_compute_what_operators_do(room: str) -> None:
    cases = list(cases_of(operators(room)))
    check_kernels(cases[:: len(cases) // 4])


@pytest.mark.long
@pytest.mark.parametrize("room", LEAST)
def test_more_kernels_compute_what_operators_do(room: str) -> None:
    cases = list(cases_of(operators(room)))
    check_kernels(cases[1 :: len(cases) // 14])


def small_network() -> tuple[Any, np.ndarray[Any, Any]]:
    """What an exporter writes: a convolution with its norm, shapes that are computed, a head."""
    rng = np.random.default_rng(3)
    f = lambda *shape: rng.standard_normal(shape).astype("f4")  # noqa: E731
    nodes = [
        helper.make_node(
            "Conv", ["x", "k"], ["/conv/Conv_output_0"], "/conv/Conv", pads=[0, 0, 1, 1], kernel_shape=[3, 3]
        ),
        helper.make_node("BatchNormalization", ["/conv/Conv_output_0", "g", "b", "m", "v"], ["n"], "/norm"),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("Shape", ["r"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["batch"]),
        helper.make_node("Unsqueeze", ["batch", "first"], ["rows"]),
        helper.make_node("Concat", ["rows", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["r", "shape"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w", "c"], ["y"], "/head", transB=1),
        helper.make_node("Softmax", ["y"], ["p"], axis=-1),
        helper.make_node("ArgMax", ["y"], ["label"], axis=1, keepdims=0),
    ]
    weights = {
        "k": f(4, 3, 3, 3),
        "g": f(4),
        "b": f(4),
        "m": f(4),
        "v": abs(f(4)) + 0.5,
        "w": f(5, 4 * 4 * 3),
        "c": f(5),
    }
    weights |= {"zero": np.array(0), "first": np.array([0]), "rest": np.array([-1])}
    kinds = {"label": TensorProto.INT64}
    return model_of(nodes, {"x": ("batch", 3, 5, 4)}, ["p", "label", "y"], weights, kinds=kinds), f(2, 3, 5, 4)


def test_a_model_is_a_program_and_a_chain_of_kernels(tmp_path: Path) -> None:
    model, x = small_network()
    expected = ReferenceEvaluator(model).run(None, {"x": x})
    path = tmp_path / "small.onnx"
    onnx.save(model, path)
    network = tc.from_onnx(path, sizes={"batch": 2})
    assert mismatch(network.reference(x), expected) is None
    assert [call.function for call in network.calls][-3:] == ["linear_2d_bias", "softmax_2d_axis1", "argmax_2d_axis1"]
    net = tc.compile_network(str(path), sizes={"batch": 2})
    assert mismatch(net(x), expected) is None
    assert list(tc.define(str(network)))[-1] == "network"


def test_functions_of_a_model_and_branches_are_inlined() -> None:
    body = [helper.make_node("Mul", ["a", "a"], ["q"]), helper.make_node("Add", ["q", "a"], ["r"])]
    own = helper.make_function("own", "twice", ["a"], ["r"], body, [helper.make_opsetid("", 20)])
    branch = [
        helper.make_graph(
            [helper.make_node(kind, ["t"], [f"{kind}_y"])],
            kind,
            [],
            [helper.make_tensor_value_info(f"{kind}_y", 1, None)],
        )
        for kind in ("Exp", "Neg")
    ]
    nodes = [
        helper.make_node("twice", ["x"], ["t"], domain="own"),
        helper.make_node("If", ["yes"], ["y"], then_branch=branch[0], else_branch=branch[1]),
    ]
    model = model_of(nodes, {"x": (3,)}, ["y"], {"yes": np.array(True)})
    model.functions.append(own)
    model.opset_import.append(helper.make_opsetid("own", 1))
    x = np.array([0.5, -1, 2], "f4")
    assert mismatch(tc.from_onnx(model).reference(x), [np.exp(x * x + x)]) is None


def test_outputs_may_be_inputs_weights_or_one_another() -> None:
    nodes = [helper.make_node("Identity", ["x"], ["same"]), helper.make_node("Relu", ["x"], ["r"])]
    nodes.append(helper.make_node("Identity", ["r"], ["again"]))
    model = model_of(nodes, {"x": (2, 3)}, ["same", "r", "again", "w"], {"w": np.arange(3, dtype="f4")})
    x = np.array([[1, -2, 3], [-4, 5, -6]], "f4")
    net = tc.compile_network(model)
    assert mismatch(net(x), [x, np.maximum(x, 0), np.maximum(x, 0), np.arange(3)]) is None


def test_a_network_with_scales_as_tools_of_quantisation_write_it() -> None:
    rng = np.random.default_rng(4)
    kernel = rng.integers(-127, 128, (4, 3, 3, 3)).astype("i1")
    weights = {"k": kernel, "ks": np.linspace(0.01, 0.02, 4, dtype="f4"), "kz": np.zeros(4, "i1")}
    weights |= {"s": np.array(0.02, "f4"), "z": np.array(128, "u1"), "t": np.array(0.3, "f4"), "o": np.array(0, "u1")}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["k", "ks", "kz"], ["w"], axis=0),
        helper.make_node("Conv", ["d", "w"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "t", "o"], ["y"]),
    ]
    model = model_of(nodes, {"x": (1, 3, 8, 8)}, ["y"], weights, kinds={"y": TensorProto.UINT8})
    x = rng.standard_normal((1, 3, 8, 8)).astype("f4")
    (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    found = tc.compile_network(model)(x)
    assert found.dtype == np.uint8 and expected.max() > 9
    # Sums in another order may fall on the other side of a half.
    assert abs(found.astype(int) - expected).max() <= 1 and (found != expected).mean() < 0.01


def test_operators_without_a_rule_may_run_outside() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Det", ["r"], ["d"]),
        helper.make_node("Neg", ["d"], ["y"]),
    ]
    model = model_of(nodes, {"x": (2, 3, 3)}, ["y"])
    x = np.random.default_rng(8).random((2, 3, 3), "f4")
    net = tc.compile_network(model, fallback={"onnx.Det"})
    assert mismatch(net(x), [-np.linalg.det(x)]) is None
    assert [step.kernel is None for step in net.steps] == [False, True, False]


def _single(operator: str, *weights: Any, outputs: int = 1, shape: tuple[int, ...], **attributes: Any) -> Any:
    names = [f"w{k}" for k in range(len(weights))]
    kept = [onnx.numpy_helper.from_array(w, n) for w, n in zip(weights, names, strict=True)]
    results = [f"y{k}" for k in range(outputs)]
    node = helper.make_node(operator, ["x", *names], results, **attributes)
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [onnx.ValueInfoProto(name=name) for name in results],
        kept,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    return onnx.shape_inference.infer_shapes(made)


def test_half_of_an_odd_border_of_a_transposed_convolution_is_in_front() -> None:
    """Unless SAME_UPPER is said: so does the operator's page, and ONNX Runtime."""
    x, w = np.arange(1, 4, dtype=np.float32).reshape(1, 1, 3), np.float32([1, 10, 100]).reshape(1, 1, 3)
    model = _single("ConvTranspose", w, shape=x.shape, strides=[2], output_shape=[6])
    whole = np.float32([1, 10, 102, 20, 203, 30, 300])
    np.testing.assert_array_equal(tc.compile_network(model)(x).ravel(), whole[1:])


def test_functions_of_what_is_no_number() -> None:
    x = np.float32([np.nan, -1, 2])
    wanted = np.float32([np.nan, 2 * np.expm1(-0.5), 2])
    np.testing.assert_allclose(tc.compile_network(_single("Celu", shape=(3,), alpha=2.0))(x), wanted, rtol=1e-6)
    rows = np.float32([[-np.inf, -np.inf], [np.inf, 1], [1000, 1000]])
    model = _single("ReduceLogSumExp", np.int64([1]), shape=(3, 2), keepdims=0)
    np.testing.assert_allclose(tc.compile_network(model)(rows), [-np.inf, np.inf, 1000 + np.log(2)], rtol=1e-6)


def test_scales_that_data_give() -> None:
    x = np.float32([[-1, 0, 3], [0.5, 1, 2]])
    rounded, scale, zero = tc.compile_network(_single("DynamicQuantizeLinear", shape=(2, 3), outputs=3))(x)
    assert scale == np.float32(4 / 255)
    assert zero == 64
    np.testing.assert_array_equal(rounded, np.rint(x / scale).astype(int) + 64)


@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize("size", [(1, 1, 3, 4), (2, 3, 2, 3, 4)], ids=str)
def test_grids_of_maps(size: tuple[int, ...], aligned: int) -> None:
    axes = len(size) - 2
    maps = np.random.default_rng(1).standard_normal((size[0], axes, axes + 1)).astype(np.float32)
    found = tc.compile_network(_single("AffineGrid", np.int64(size), shape=maps.shape, align_corners=aligned))(maps)
    middles = [np.linspace(-1, 1, n) if aligned else (2 * np.arange(n) + 1) / n - 1 for n in size[2:]]
    places = np.stack([*np.meshgrid(*middles, indexing="ij")[::-1], np.ones(size[2:])], -1)
    np.testing.assert_allclose(found, np.einsum("...k,nik->n...i", places, maps), rtol=1e-5, atol=1e-6)


def test_huge_batches_are_told_apart_at_once() -> None:
    assert tc.compile_network(_single("Relu", shape=(2**33,))).network.inputs[0].shape == (2**33,)
