"""Recurrent layers, and the loops of ONNX: against PyTorch, and what the package ``onnx`` says that they give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")

from onnx import TensorProto, helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

import tcomp as tc  # noqa: E402
from tcomp.networks.onnx import loops  # noqa: E402
from tests.networks.onnx_cases import mismatch, model_of  # noqa: E402
from tests.networks.test_blocks import error  # noqa: E402

LAYERS = {
    "lstm": lambda: torch.nn.LSTM(3, 4, num_layers=2, batch_first=True),
    "projected": lambda: torch.nn.LSTM(3, 4, proj_size=2, bias=False),
    "gru": lambda: torch.nn.GRU(3, 4, bidirectional=True),
    "gru without biases": lambda: torch.nn.GRU(3, 4, bias=False, batch_first=True),
    "rnn": lambda: torch.nn.RNN(3, 4, num_layers=2, nonlinearity="relu"),
}
RNG = np.random.default_rng(3)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("name", LAYERS)
def test_layers_compute_what_those_of_torch_do(name: str) -> None:
    torch.manual_seed(1)
    layer, x = LAYERS[name]().eval(), torch.randn(3, 2, 3)
    with torch.no_grad():
        expected, states = layer(x)
    network = tc.networks.from_torch(layer, (x,))
    assert len(network.calls) < 40
    found = network.reference(x.numpy())
    assert error(found, (expected, *(states if isinstance(states, tuple) else (states,)))) < 1e-6


@pytest.mark.filterwarnings("error::tcomp.ProgramWarning")
def test_a_layer_is_one_kernel_for_all_steps() -> None:
    torch.manual_seed(1)
    layer, x = torch.nn.LSTM(3, 4).eval(), torch.randn(9, 2, 3)
    state = torch.randn(1, 2, 4), torch.randn(1, 2, 4)
    with torch.no_grad():
        expected, (h, c) = layer(x, state)
    net = tc.compile_network(layer, x, state)
    assert error(net(x, *state), (expected, h, c)) < 1e-5
    assert [step.told for step in net.steps] == ["linear_3d_bias", "lstm"]
    assert "for t in 0:T {" in str(net.network)


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_sequences_of_other_lengths_are_each_as_if_alone(kind: str) -> None:
    gates, lengths = {"LSTM": 4, "GRU": 3}[kind], np.array([2, 5], np.int32)
    weights = {"W": floats(2, gates * 4, 3), "R": floats(2, gates * 4, 4), "B": floats(2, gates * 8)}
    names = ["X", "W", "R", "B", "lengths"]
    options = {"hidden_size": 4, "direction": "bidirectional", "clip": 0.8}
    options |= {"linear_before_reset": 1} if kind == "GRU" else {"input_forget": 1}
    node = helper.make_node(kind, names, ["Y", "H"], **options)
    x = floats(5, 2, 3)
    model = model_of([node], {"X": x.shape, "lengths": (2,)}, ["Y", "H"], weights, kinds={"lengths": TensorProto.INT32})
    y, h = tc.from_onnx(model).reference(x, lengths)
    assert y.shape == (5, 2, 2, 4)
    for k, length in enumerate(lengths):
        alone = helper.make_node(kind, names[:4], ["Y", "H"], **options)
        part = x[:length, k : k + 1]
        own, last = tc.from_onnx(model_of([alone], {"X": part.shape}, ["Y", "H"], weights)).reference(part)
        np.testing.assert_allclose(y[:length, :, k], own[:, :, 0], rtol=1e-6)
        np.testing.assert_allclose(h[:, k], last[:, 0], rtol=1e-6)
        assert not y[length:, :, k].any()


def test_functions_of_cells() -> None:
    """Softsign, and another one with two numbers."""
    node = helper.make_node(
        "RNN", ["X", "W", "R"], ["Y"], hidden_size=2, direction="bidirectional",
        activations=["Softsign", "HardSigmoid"], activation_alpha=[0.25], activation_beta=[0.125],
    )  # fmt: skip
    weights, x = {"W": floats(2, 2, 3), "R": np.zeros((2, 2, 2), np.float32)}, floats(4, 1, 3)
    y = tc.from_onnx(model_of([node], {"X": x.shape}, ["Y"], weights)).reference(x)
    there, back = x[:, 0] @ weights["W"][0].T, x[:, 0] @ weights["W"][1].T
    np.testing.assert_allclose(y[:, 0, 0], there / (1 + abs(there)), rtol=1e-5)
    np.testing.assert_allclose(y[:, 1, 0], np.clip(0.25 * back + 0.125, 0, 1), rtol=1e-5, atol=1e-7)


def body_of(nodes: list[Any], inputs: dict[str, tuple[int, tuple[int, ...]]], outputs: list[str]) -> Any:
    given = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
    return helper.make_graph(nodes, "body", given, [helper.make_empty_tensor_value_info(name) for name in outputs])


def scan() -> Any:
    body = body_of(
        [helper.make_node("Add", ["s", "x"], ["t"]), helper.make_node("Mul", ["t", "k"], ["y"])],
        {"s": (TensorProto.FLOAT, (2,)), "x": (TensorProto.FLOAT, (2,))},
        ["t", "y"],
    )
    node = helper.make_node("Scan", ["s0", "X"], ["last", "Y"], body=body, num_scan_inputs=1, scan_input_directions=[1],
                            scan_input_axes=[1], scan_output_axes=[1])  # fmt: skip
    return model_of([node], {"s0": (2,), "X": (2, 20)}, ["last", "Y"], {"k": np.float32([2, 3])})


def loop(often: int, stop: int) -> Any:
    """Adds up to ``often`` times, and no more than ``stop`` times."""
    body = body_of(
        [
            helper.make_node("Add", ["s", "x"], ["t"]),
            helper.make_node("Less", ["turn", "stop"], ["more"]),
            helper.make_node("Cast", ["turn"], ["f"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["t", "f"], ["y"]),
        ],
        {"turn": (TensorProto.INT64, ()), "go": (TensorProto.BOOL, ()), "s": (TensorProto.FLOAT, (3,))},
        ["more", "t", "y"],
    )
    weights = {"often": np.array(often), "go": np.array(True), "stop": np.array(stop)}
    node = helper.make_node("Loop", ["often", "go", "x"], ["last", "Y"], body=body)
    return model_of([node], {"x": (3,)}, ["last", "Y"], weights)


def choice() -> Any:
    sides = {f"{side}_branch": body_of([helper.make_node(op, ["x"], [side])], {}, [side]) for side, op in
             (("then", "Exp"), ("else", "Neg"))}  # fmt: skip
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["c"]),
    ]
    nodes.append(helper.make_node("If", ["c"], ["y"], **sides))
    return model_of(nodes, {"x": (3,)}, ["y"], {"zero": np.float32(0)})


def test_scans_go_over_slices_backwards_and_along_any_axis() -> None:
    start, x = floats(2), floats(2, 20)
    sums = start[:, None] + np.cumsum(x[:, ::-1], 1)
    last, y = tc.from_onnx(scan()).reference(start, x)
    np.testing.assert_allclose(last, sums[:, -1], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(y, sums * np.float32([[2], [3]]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["loop", "loop that stops", "choice", "other choice"])
def test_loops_are_unrolled_and_branches_chosen(name: str) -> None:
    x = np.float32([1, -2, 0.5])
    model, inputs = {
        "loop": (lambda: loop(4, 9), (x,)),
        "loop that stops": (lambda: loop(9, 2), (x,)),
        "choice": (choice, (x,)),
        "other choice": (choice, (-x,)),
    }[name]
    made = model()
    expected = ReferenceEvaluator(made).run(None, {i.name: v for i, v in zip(made.graph.input, inputs, strict=True)})
    assert mismatch(tc.from_onnx(made).reference(*inputs), expected) is None


def test_loops_without_an_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "_MOST_NODES", 20)
    body = body_of([helper.make_node("Add", ["s", "s"], ["t"]), helper.make_node("Identity", ["go"], ["more"])],
                   {"turn": (TensorProto.INT64, ()), "go": (TensorProto.BOOL, ()), "s": (TensorProto.FLOAT, (3,))},
                   ["more", "t"])  # fmt: skip
    endless = helper.make_node("Loop", ["", "go", "x"], ["last"], body=body)
    with pytest.raises(tc.NetworkError, match="more than 20 nodes"):
        tc.from_onnx(model_of([endless], {"x": (3,)}, ["last"], {"go": np.array(True)}))
    open_ = helper.make_node("Loop", ["often", "", "x"], ["last"], body=body)
    model = model_of([open_], {"x": (3,), "often": ()}, ["last"], kinds={"often": TensorProto.INT64})
    with pytest.raises(tc.NetworkError, match="how often it turns from an input"):
        tc.from_onnx(model)
