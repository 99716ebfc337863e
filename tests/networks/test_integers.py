"""Networks in integers of 8 bits: by example, and as models of ONNX say it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.networks import Network, quantize

torch = pytest.importorskip("torch")
nn = torch.nn

X = torch.rand(2, 3, 19, 21, generator=torch.Generator().manual_seed(7))


class Small(nn.Module):  # type: ignore[misc]
    """Kernels of one pixel and of nine, with strides, a sum with what came before, negative images, a pool."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(3, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12), nn.ReLU())
        self.a = nn.Sequential(nn.Conv2d(12, 12, 3, padding=1, bias=False), nn.BatchNorm2d(12), nn.ReLU())
        self.b = nn.Conv2d(12, 12, 1)
        self.c = nn.Conv2d(12, 20, 3, stride=2, padding=1)
        self.alone = nn.Conv2d(20, 20, 3, padding=1, groups=20)
        self.d = nn.Conv2d(20, 16, 1, stride=2)
        self.last = nn.Linear(16, 5)

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        x = torch.relu(x + self.b(self.a(x)))
        x = self.d(self.alone(self.c(x) - 0.1))
        return self.last(torch.relu(x).mean((2, 3)))


@pytest.fixture(scope="module")
def network() -> Network:
    torch.manual_seed(3)
    return tc.networks.from_torch(Small().eval(), X)


def functions(net: Any) -> list[str]:
    return [call.function for call in net.network.calls]


def test_scales_by_example(network: Network) -> None:
    """All but the convolution of each channel by itself and the first layer are sums of products of integers."""
    rounded = quantize(network, [X])
    net, exact = tc.compile_network(rounded), tc.compile_network(network)
    assert sum("int8" in name and name.startswith("conv2d") for name in functions(net)) == 4
    assert not any(name.startswith("dequantize") for name in functions(net) if name.startswith("conv2d"))
    found = tc.networks.agreement(exact, net, [X])
    assert 0 < found.error < 0.05
    for stage in net.stages.values():
        np.testing.assert_allclose(stage.reference(X.numpy()), rounded.reference(X.numpy()), rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(net(X.numpy()), rounded.reference(X.numpy()), rtol=2e-3, atol=2e-3)


def test_the_same_without_the_pass(network: Network) -> None:
    rounded = quantize(network, [X])
    plain = tc.compile_network(rounded, options={"integer_layers": False})
    assert not any("_int8" in name for name in functions(plain) if name.startswith("conv2d"))
    np.testing.assert_allclose(plain(X.numpy()), tc.compile_network(rounded)(X.numpy()), rtol=2e-3, atol=2e-3)


def test_what_each_option_does(network: Network) -> None:
    made = [call.results[0] for call in network.calls if call.function.startswith("conv2d")]

    def count(**options: Any) -> int:
        return sum("_int8" in name and name.startswith("conv2d") for name in functions(
            tc.compile_network(quantize(network, [X], **options))))  # fmt: skip

    assert count(ends=True) == 5
    assert count(keep=[made[2]]) == 3
    one, each = (quantize(network, [X], per_channel=on) for on in (False, True))
    shapes = [{v.shape for v in q.values if v.name.endswith("weight_scale")} for q in (one, each)]
    assert shapes[0] == {()} and all(len(shape) == 4 for shape in shapes[1])
    narrow = quantize(network, [X], percentile=90.0)
    assert any(narrow.weights[n] > w for n, w in each.weights.items() if n.endswith("_inverse"))


def test_compiled_at_once(network: Network, tmp_path: Any) -> None:
    net = tc.compile_network(network, precision="int8", calibrate=[X, (2 * X,)])
    assert net.agreement is not None and 0 < net.agreement.error < 0.05
    assert f"agreement: {net.agreement}" in net.explain()
    assert net.agreement.worst.startswith("conv2d") and 0 < net.agreement.worst_error < 0.05
    profile = net.profile(X, repeats=1)
    assert profile.agreement == net.agreement and f"worst layer {net.agreement.worst}" in str(profile)
    net.save(tmp_path / "net.tcn")
    again = tc.load_network(tmp_path / "net.tcn")
    assert (again(X) == net(X)).all() and again.agreement == net.agreement


def test_what_is_refused(network: Network) -> None:
    with pytest.raises(tc.NetworkError, match="there are no inputs to choose scales by"):
        tc.compile_network(network, precision="int8")
    with pytest.raises(tc.NetworkError, match="float32, float16, bfloat16 or int8, not in int4"):
        tc.compile_network(network, precision="int4", calibrate=[X])
    with pytest.raises(tc.NetworkError, match="nothing makes nowhere"):
        quantize(network, [X], keep=["nowhere"])
    with pytest.raises(tc.NetworkError, match="percentile is 200"):
        quantize(network, [X], percentile=200)
    with pytest.raises(tc.NetworkError, match="not finite"):
        quantize(network, [np.full_like(X, np.nan)])
    with pytest.raises(tc.NetworkError, match="kept in float16 or bfloat16, not in int8"):
        tc.networks.narrow_weights(network, "int8")


@pytest.mark.parametrize(("kind", "bias"), [("float16", False), ("bfloat16", True)])
def test_weights_of_16_bits(kind: str, bias: bool, tmp_path: Any) -> None:
    """Those of products of matrices, but for one that has a larger number than float16 has."""
    if kind == "bfloat16":
        pytest.importorskip("ml_dtypes")
    torch.manual_seed(1)
    module = nn.Sequential(
        nn.Linear(40, 70, bias=bias), nn.ReLU(), nn.Linear(70, 33), nn.Linear(33, 9, bias=bias)
    ).eval()
    with torch.no_grad():
        module[3].weight[2, 3] = 1e5
    x = torch.randn(5, 40)
    net = tc.compile_network(module, x, precision=kind, calibrate=[x])
    assert sum("_by_" in name for name in functions(net)) == (2 if kind == "float16" else 3)
    kept = {v.dtype for v in net.network.values if v.role == "weight" and len(v.shape) == 2}
    assert kept == ({"float16", "float32"} if kind == "float16" else {"bfloat16"})
    assert net.agreement is not None and 0 < net.agreement.error < 1e-2
    with torch.no_grad():
        for layer in (module[0], module[2], *([module[3]] if kind == "bfloat16" else [])):
            layer.weight.copy_(layer.weight.to(getattr(torch, kind)).float())
        np.testing.assert_allclose(net(x), module(x), rtol=1e-4, atol=1e-2)
    np.testing.assert_allclose(net.network.reference(x.numpy()), net(x.numpy()), rtol=1e-4, atol=1e-2)
    net.save(tmp_path / "net.tcn")
    assert (tc.load_network(tmp_path / "net.tcn")(x) == net(x)).all()


def model(zero: int, kernel_type: str, bias: bool, axis: int = 0) -> Any:
    """A convolution between rounded tensors, and a sum with the image, as exporters write them."""
    onnx = pytest.importorskip("onnx")
    helper, types = onnx.helper, onnx.TensorProto
    random = np.random.default_rng(4)
    K = random.integers(-127 if kernel_type == "int8" else 0, 128, (8, 8, 3, 3)).astype(kernel_type)
    arrays = {
        "s": np.float32(0.02), "z": np.uint8(zero), "K": K, "ks": random.uniform(0.001, 0.003, 8).astype("f4"),
        "kz": np.zeros(8, kernel_type), "B": random.integers(-900, 900, 8).astype("i4"),
        "bs": np.full(8, 4e-5, "f4"), "os": np.float32(0.05), "oz": np.uint8(100),
    }  # fmt: skip
    node = helper.make_node
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("DequantizeLinear", ["K", "ks", "kz"], ["k"], axis=axis),
        *([node("DequantizeLinear", ["B", "bs"], ["b"], axis=0)] if bias else []),
        node("Conv", ["d", "k", *(["b"] if bias else [])], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("Add", ["r", "d"], ["a"]),
        node("QuantizeLinear", ["a", "os", "oz"], ["o"]),
        node("DequantizeLinear", ["o", "os", "oz"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(n, types.FLOAT, (1, 8, 11, 13)) for n in "xy"]
    weights = [onnx.numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "rounded", ends[:1], ends[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


@pytest.mark.parametrize("zero", [0, 128])
@pytest.mark.parametrize("bias", [False, True])
def test_a_model_that_came_rounded(zero: int, bias: bool) -> None:
    made = model(zero, "int8", bias)
    reference = pytest.importorskip("onnx.reference").ReferenceEvaluator(made)
    net = tc.compile_network(made)
    assert any("uint8_int8" in name for name in functions(net) if name.startswith("conv2d"))
    x = np.random.default_rng(5).uniform(0.0 if zero == 0 else -2.5, 2.5, (1, 8, 11, 13)).astype("f4")
    (expected,) = reference.run(None, {"x": x})
    found = net(x)
    # Sums in floats are rounded otherwise, so an element may be rounded to the next integer.
    assert (np.abs(found - expected) > 1e-5).mean() < 0.01 and np.abs(found - expected).max() < 0.051


def test_scales_along_another_dimension_are_none_of_filters() -> None:
    """There are as many channels as filters."""
    made = model(0, "int8", False, axis=1)
    reference = pytest.importorskip("onnx.reference").ReferenceEvaluator(made)
    x = np.random.default_rng(5).uniform(0.0, 2.5, (1, 8, 11, 13)).astype("f4")
    (expected,) = reference.run(None, {"x": x})
    found = tc.compile_network(made)(x)
    assert (np.abs(found - expected) > 1e-5).mean() < 0.01 and np.abs(found - expected).max() < 0.051


def test_a_kernel_with_zero_points_stays_in_floats() -> None:
    made = model(0, "uint8", False)
    kernel_zero = next(t for t in made.graph.initializer if t.name == "kz")
    onnx = pytest.importorskip("onnx")
    kernel_zero.CopyFrom(onnx.numpy_helper.from_array(np.full(8, 3, "u1"), "kz"))
    net = tc.compile_network(made)
    assert not any("uint8" in name for name in functions(net) if name.startswith("conv2d"))


class Products(nn.Module):  # type: ignore[misc]
    """Rows by weights with a bias and without, two tensors, a product of few rows, and a kernel with dilation."""

    def __init__(self) -> None:
        super().__init__()
        self.enter, self.mix, self.leave = nn.Linear(8, 16), nn.Linear(16, 16, bias=False), nn.Linear(16, 8)
        self.table, self.wide = nn.Parameter(torch.randn(16, 16)), nn.Conv2d(2, 3, 3, padding=2, dilation=2)

    def forward(self, x: Any) -> Any:
        y = torch.relu(self.enter(x))
        y = (y @ self.table) @ self.mix(y).transpose(1, 2)
        y = self.wide(y[:, None].expand(-1, 2, -1, -1) * 0.1)
        return self.leave(y.mean((1, 2)) @ self.table[:10])


def test_products_of_rounded_rows() -> None:
    torch.manual_seed(2)
    x = torch.randn(1, 10, 8)
    network = tc.networks.from_torch(Products().eval(), x)
    rounded = quantize(network, [x], ends=True)
    net = tc.compile_network(rounded)
    integers = [name for name in functions(net) if "int8" in name and not name.startswith(("quant", "dequant"))]
    assert [name.partition("int8")[0].rstrip("_u") for name in integers if "permute" not in name] == [
        "linear_3d", "matmul_amk_kn", "linear_3d", "matmul_3d", "conv2d_padded_dilated"
    ]  # fmt: skip
    assert 0 < tc.networks.agreement(tc.compile_network(network), net, [x]).error < 0.05
    expected = rounded.reference(x.numpy())
    for stage in net.stages.values():
        np.testing.assert_allclose(stage.reference(x.numpy()), expected, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(net(x.numpy()), expected, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("operator", ["QLinearConv", "QLinearMatMul"])
def test_operators_of_integers_are_layers_between_rounded_tensors(operator: str) -> None:
    """What came as one operator runs by the same kernels, and is right to the last bit."""
    onnx = pytest.importorskip("onnx")
    helper, random, conv = onnx.helper, np.random.default_rng(0), operator == "QLinearConv"
    kernel = random.integers(-127, 128, (6, 4, 3, 3) if conv else (20, 6)).astype("i1")
    arrays = {
        "xs": np.float32(0.02), "xz": np.uint8(128), "w": kernel, "ws": random.uniform(0.001, 0.003, 6).astype("f4"),
        "wz": np.zeros(6, "i1"), "ys": np.float32(0.05), "yz": np.uint8(100),
        "B": random.integers(-900, 900, 6).astype("i4"),
    }  # fmt: skip
    names = ["x", *arrays] if conv else ["x", *list(arrays)[:-1]]
    node = helper.make_node(operator, names, ["y"], **({"pads": [1, 1, 1, 1]} if conv else {}))
    shapes = ((1, 4, 7, 9), (1, 6, 7, 9)) if conv else ((9, 20), (9, 6))
    ends = [helper.make_tensor_value_info(n, onnx.TensorProto.UINT8, s) for n, s in zip("xy", shapes, strict=True)]
    weights = [onnx.numpy_helper.from_array(np.asarray(arrays[n]), n) for n in names[1:]]
    graph = helper.make_graph([node], "rounded", ends[:1], ends[1:], weights)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    net = tc.compile_network(made)
    assert any("_uint8_int8" in name for name in functions(net))
    x = random.integers(0, 256, shapes[0]).astype("u1")
    (expected,) = pytest.importorskip("onnx.reference").ReferenceEvaluator(made).run(None, {"x": x})
    assert (net(x) == expected).mean() > 0.99 and np.abs(net(x).astype(int) - expected).max() <= 1


def test_kernels_of_several_products_beside_a_zero_point_stay_in_floats() -> None:
    """What the zero point adds differs from product to product: sums over all of them were taken off."""
    onnx = pytest.importorskip("onnx")
    helper, random = onnx.helper, np.random.default_rng(0)
    kernel = random.integers(-127, 128, (2, 3, 8, 5)).astype("i1")
    scalars = {"xs": np.float32(0.02), "xz": np.uint8(100), "ws": np.float32(0.01), "wz": np.int8(0)}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["xf"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"]),
        helper.make_node("MatMul", ["xf", "wf"], ["y"]),
    ]
    ends = [
        helper.make_tensor_value_info("x", onnx.TensorProto.UINT8, (2, 3, 16, 8)),
        helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, (2, 3, 16, 5)),
    ]
    weights = [onnx.numpy_helper.from_array(np.asarray(a), n) for n, a in {**scalars, "w": kernel}.items()]
    graph = helper.make_graph(nodes, "products", ends[:1], ends[1:], weights)
    net = tc.compile_network(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]))
    x = random.integers(0, 256, (2, 3, 16, 8)).astype("u1")
    expected = (x.astype("f4") - 100) * np.float32(0.02) @ (kernel.astype("f4") * np.float32(0.01))
    np.testing.assert_allclose(net(x), expected, rtol=1e-4, atol=1e-4)
