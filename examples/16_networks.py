"""Lesson 16: a whole network, read from a model of ONNX, as a program, as a few kernels, and as a file.

The network prints as the text of a program. Passes fold, join and place; each can be left out, and each stage is
checked against the same interpreter. What comes out runs in one call. ``tc.compile_network(module, x)`` does the same
for modules of PyTorch.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from pictures import picture

import tcomp as tc

try:
    import onnx
    from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info
    from onnx.reference import ReferenceEvaluator
except ImportError:
    onnx = None


def small_model() -> Any:
    """A convolution with its norm, a pool, and a head with ten classes."""
    draw = np.random.default_rng(0)
    shapes = {"kernel": (8, 1, 3, 3), "scale": (8,), "shift": (8,), "mean": (8,), "head": (10, 128), "bias": (10,)}
    weights = {name: draw.standard_normal(shape).astype("f4") / 4 for name, shape in shapes.items()}
    weights |= {"variance": draw.random(8, "f4") + 0.5, "rows": np.array([-1, 128])}
    nodes = [
        make_node("Conv", ["image", "kernel"], ["features"], pads=[1, 1, 1, 1]),
        make_node("BatchNormalization", ["features", "scale", "shift", "mean", "variance"], ["normed"]),
        make_node("Relu", ["normed"], ["active"]),
        make_node("MaxPool", ["active"], ["pooled"], kernel_shape=[2, 2], strides=[2, 2]),
        make_node("Reshape", ["pooled", "rows"], ["flat"]),
        make_node("Gemm", ["flat", "head", "bias"], ["scores"], transB=1),
        make_node("Softmax", ["scores"], ["classes"], axis=1),
    ]
    image = make_tensor_value_info("image", onnx.TensorProto.FLOAT, ("batch", 1, 8, 8))
    classes = make_tensor_value_info("classes", onnx.TensorProto.FLOAT, None)
    known = [onnx.numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = make_graph(nodes, "small", [image], [classes], known)
    return make_model(graph, opset_imports=[make_opsetid("", 20)], ir_version=10)


def main() -> None:
    if onnx is None:
        print("this lesson needs the package onnx: pip install 'tcomp[onnx]'")
        return
    model = small_model()
    x = np.random.default_rng(1).random((1, 1, 8, 8), "f4")

    network = tc.from_onnx(model, sizes={"batch": 1})
    print(str(network)[str(network).index("def network") :])

    net = tc.compile_network(network)
    print(net.explain())
    picture("small_kernels", net.picture)
    (expected,) = ReferenceEvaluator(model).run(None, {"image": x})
    difference = float(np.abs(net(x) - expected).max())
    print(f"largest difference from what ONNX says: {difference:.1e}")
    assert difference < 1e-6

    for name, stage in net.stages.items():
        error = float(np.abs(stage.reference(x) - net(x)).max())
        print(f"after {name}: {len(stage.calls)} calls, {error:.1e} from the kernels")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "net.tcn"
        net.save(path)
        same = np.array_equal(tc.load_network(path)(x), net(x))
        print(f"saved in {path.stat().st_size:,} bytes; results are the same: {same}")
    print(net.profile(x, repeats=3))


if __name__ == "__main__":
    main()
