"""Damaged files, wrong inputs, several threads, and processes that are killed while they compile."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcomp as tc

LONG = pytest.mark.long


def sweep(first: Any, rest: Any) -> list[Any]:
    """Values for every run, and those for the long one."""
    return [*first, *(pytest.param(value, marks=LONG) for value in rest)]


TEXT = """
def dense(float(N,K) X, float(M,K) W) -> (Y) { Y(n,m) +=! X(n,k) * W(m,k) }
def positive(float(N,M) X) -> (Y) { Y(n,m) = max(X(n,m), 0) }
def net(float(4,24) x, float(24,24) v, float(8,24) w) -> (y) {
  a = dense(x, v)
  b = positive(a)
  y = dense(b, w)
}
"""
V, W = (np.random.default_rng(k).random((24 - 16 * k, 24), "f4") for k in (0, 1))


def small(**options: Any) -> Any:
    return tc.compile_network(TEXT, weights={"v": V, "w": W}, options=options)


def model() -> Any:
    onnx = pytest.importorskip("onnx")
    from tests.networks.onnx_cases import model_of

    node, draw = onnx.helper.make_node, np.random.default_rng(0)
    nodes = [
        node("Conv", ["x", "w"], ["a"], pads=[1, 1, 1, 1]),
        node("Relu", ["a"], ["b"]),
        node("Reshape", ["b", "s"], ["c"]),
        node("Gemm", ["c", "v"], ["d"], transB=1),
        node("Softmax", ["d"], ["y"], axis=1),
    ]
    weights = {
        "w": draw.random((2, 3, 3, 3)).astype("f4"),
        "s": np.array([1, 32]),
        "v": draw.random((5, 32)).astype("f4"),
    }
    return model_of(nodes, {"x": (1, 3, 4, 4)}, ["y"], weights=weights)


@pytest.mark.parametrize("seed", sweep(range(2), rest=range(2, 12)))
def test_damaged_models_are_read_or_refused(seed: int, tmp_path: Path) -> None:
    whole, draw, refused = model().SerializeToString(), random.Random(seed), 0
    path = tmp_path / "damaged.onnx"
    for number in range(250):
        content = bytearray(whole)
        if number % 4 == 0:
            del content[draw.randrange(len(content)) :]
        else:
            for _ in range(draw.choice((1, 1, 2, 8))):
                content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        path.write_bytes(content)
        try:
            tc.from_onnx(path)
        except tc.NetworkError:
            refused += 1
    assert 50 < refused < 250


@pytest.mark.parametrize("seed", sweep(range(1), rest=range(1, 5)))
def test_damaged_networks_are_loaded_or_refused(seed: int, tmp_path: Path) -> None:
    path, damaged, draw = tmp_path / "net.tcn", tmp_path / "damaged.tcn", random.Random(seed)
    small().save(path)
    whole = path.read_bytes()
    for cut in (0, 1, 22, len(whole) // 2, len(whole) - 1):
        damaged.write_bytes(whole[:cut])
        with pytest.raises(tc.NetworkError):
            tc.load_network(damaged)
    for _ in range(40):
        content = bytearray(whole)
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        damaged.write_bytes(content)
        try:
            tc.load_network(damaged)
        except tc.TcompError:
            continue


@pytest.mark.parametrize("size", [2**31, 2**40, 2**62, 2**63, 2**64, -1, 0])
def test_sizes_beyond_all_memory(size: int) -> None:
    text = "def half(float(N,M) X) -> (Y) { Y(n,m) = 0.5 * X(n,m) } def net(float(N,M) x) -> (y) { y = half(x) }"
    with pytest.raises(tc.TcompError):
        tc.compile_network(text, sizes={"N": size, "M": 2**31})
    onnx = pytest.importorskip("onnx")
    from tests.networks.onnx_cases import model_of

    open_sizes = model_of([onnx.helper.make_node("Relu", ["x"], ["y"])], {"x": ("n", 2**31)}, ["y"])
    with pytest.raises(tc.TcompError):
        tc.compile_network(open_sizes, sizes={"n": size})


def test_ten_thousand_nodes_take_time_that_grows_with_them() -> None:
    onnx = pytest.importorskip("onnx")
    from tests.networks.onnx_cases import model_of

    def seconds(count: int) -> float:
        names = ["x", *(f"t{k}" for k in range(count - 1)), "y"]
        nodes = [onnx.helper.make_node("Relu", [a], [b]) for a, b in pairwise(names)]
        made = model_of(nodes, {"x": (2, 3)}, ["y"])
        start = time.process_time()
        assert len(tc.from_onnx(made).calls) == count
        return time.process_time() - start

    assert seconds(10_000) < 25 * seconds(1_000)


def test_inputs_that_do_not_fit() -> None:
    net, x = small(), np.ones((4, 24), "f4")
    for wrong in ((), (x, x), (x[1:],), (x.astype("f8"),), (x.astype("i4"),), ([1.0, 2.0],), (None,), (x[None],)):
        with pytest.raises(tc.ShapeError):
            net(*wrong)
    turned = np.asfortranarray(x)
    assert np.array_equal(net(turned), net(x)) and np.array_equal(net(np.repeat(x, 2, 0)[::2]), net(x))


def test_no_gradient_is_lost_in_silence() -> None:
    torch = pytest.importorskip("torch")
    net, x = small(), torch.ones((4, 24), requires_grad=True)
    with pytest.raises(tc.ShapeError, match="x requires a gradient"):
        net(x)
    with torch.no_grad():
        assert torch.equal(net(x), net(x.detach()))


@pytest.mark.parametrize("operator", ["Conv", "ConvTranspose"])
def test_kernels_with_other_sides_than_their_node_says(operator: str) -> None:
    onnx = pytest.importorskip("onnx")
    from tests.networks.onnx_cases import model_of

    node = onnx.helper.make_node(operator, ["x", "w"], ["y"], kernel_shape=[5, 5])
    model = model_of([node], {"x": (2, 3, 7, 5), "w": (3, 3, 2, 2)}, ["y"])
    with pytest.raises(tc.NetworkError, match=r"kernel_shape \[5, 5\], but a kernel of \(3, 3, 2, 2\)"):
        tc.from_onnx(model)


def test_fallbacks_that_nobody_has() -> None:
    torch, onnx = pytest.importorskip("torch"), pytest.importorskip("onnx")
    from tests.networks.onnx_cases import model_of

    for wrong in ("aten.nosuch", "aten.nosuch.default", "aten.sort", "aten.sort.nosuch", "sort"):
        with pytest.raises(tc.NetworkError, match=f"fallback names {wrong}, which is no operator"):
            tc.networks.from_torch(torch.nn.ReLU().eval(), torch.ones(2), fallback={wrong})
    model = model_of([onnx.helper.make_node("Relu", ["x"], ["y"])], {"x": (2, 3)}, ["y"])
    for wrong in ("Relu", "onnx.Nosuch"):
        with pytest.raises(tc.NetworkError, match=f"fallback names {wrong}, which is no operator"):
            tc.from_onnx(model, fallback={wrong})


def test_threads_that_call_one_network() -> None:
    net = small()
    inputs = [np.full((4, 24), k, "f4") for k in range(8)]
    expected = [net(x) for x in inputs]
    wrong: list[int] = []

    def call(number: int) -> None:
        for _ in range(200):
            if not np.array_equal(net(inputs[number]), expected[number]):
                wrong.append(number)

    threads = [threading.Thread(target=call, args=(k,)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


_COMPILES = """
import sys, numpy as np
sys.path.insert(0, {root!r})
import tcomp as tc
from tests.networks.test_hostile import TEXT, V, W
print("begins", flush=True)
net = tc.compile_network(TEXT, weights={{"v": V, "w": W}})
print(float(net(np.ones((4, 24), "f4")).sum()), flush=True)
"""


@pytest.mark.parametrize("wait", sweep([0.05, 0.4], rest=[0.0, 0.1, 0.2, 0.3, 0.6, 0.8]))
def test_a_compilation_that_is_killed_leaves_a_cache_that_is_right(wait: float, tmp_path: Path) -> None:
    given = dict(os.environ, TCOMP_CACHE=str(tmp_path / "cache"))
    command = [sys.executable, "-c", _COMPILES.format(root=str(Path(__file__).parents[2]))]
    with subprocess.Popen(command, env=given, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "begins\n"
        time.sleep(wait)
        os.killpg(process.pid, signal.SIGKILL)
    found = subprocess.run(command, env=given, capture_output=True, text=True, timeout=120, check=True)
    right = np.maximum(np.ones((4, 24)) @ V.T, 0) @ W.T
    assert float(found.stdout.split()[-1]) == pytest.approx(right.sum(), rel=1e-4)


def test_the_other_order_of_bytes_arrays_that_change_and_what_is_no_array() -> None:
    net, x = small(), np.random.default_rng(2).random((4, 24), "f4")
    assert np.array_equal(net(x.astype(">f4")), net(x))
    other = tc.compile_network(TEXT, weights={"v": V.astype(">f4"), "w": W})
    assert np.array_equal(other(x), net(x))
    given = V.copy()
    own = tc.compile_network(TEXT, weights={"v": given, "w": W}, options={"pack_weights": False})
    given[:] = 0
    assert np.allclose(own(x), net(x), rtol=1e-5)
    with pytest.raises(tc.ShapeError, match="x cannot be read as an array"):
        net([[1.0], [2.0, 3.0]])
