"""Batches a few images at a time: what may be taken apart, where that pays, and that results stay the same."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.mapping.machines.cpu import Machine
from tcomp.networks.batches import splitting
from tcomp.networks.batches.choosing import Work, turns
from tcomp.networks.batches.independence import carried, is_part

SMALL = Machine(32, 16, 32, 2, middle_cache=1 << 19, last_cache=1 << 25)


def function_of(text: str, batch: int = 8) -> Any:
    return tc.define(f"def f({text.replace('B', str(batch))}")["f"].function


@pytest.mark.parametrize(
    "text",
    [
        "float(B,4) X) -> (Y) { Y(n,k) = X(n,k) * 2 }",
        "float(B,4) X) -> (Y) { Y(k,n) = X(n,k) * 2 }",
        "float(B,4,4) X) -> (Y) { T(n,j) +=! X(n,k,j)  Y(n,j) = T(n,j) * T(n,3-j) }",
        "float(B,4) X) -> (Y) { T(n,k) = 0.0 where n in 0:B, k in 0:6  T(n,k) = X(n,k)  Y(n,k) = T(n,k) }",
        "float(B,6) X) -> (Y) { Y(n,k) = X(n,k+1) where k in 0:5 }",
        "float(B,6) X) -> (Y) { Y(n,k) max=! constant_exterior(X, 0)(n,2*k+j-1) where n in 0:B, k in 0:3, j in 0:3 }",
        "float(B,6) X) -> (Y) { Y(n,k) +=! X(n,j) where k in 0:6, j in 0:k+1 }",
    ],
)
def test_what_may_be_taken_apart(text: str) -> None:
    whole = function_of(text)
    axes = carried(whole, {"X": 0})
    assert axes is not None and axes["X"] == 0
    assert is_part(function_of(text, 2), whole, axes)


@pytest.mark.parametrize(
    "text",
    [
        "float(B,4) X) -> (Y) { Y(k) +=! X(n,k) }",
        "float(B,4) X) -> (Y) { Y(n,k) = X(7-n,k) }",
        "float(B,4) X) -> (Y) { Y(n,k) = X(n,k) + X(0,k) where n in 0:B }",
        "float(B,4) X) -> (Y) { Y(n,k) = X(n,k) * n }",
        "float(B,4) X) -> (Y) { Y(n,k) = X(n,k) where n in 0:5 }",
        "float(B,B) X) -> (Y) { Y(n,k) +=! X(n,k) * X(k,n) }",
        "float(B,8) X) -> (Y) { Y(n,k) +=! X(n,j) where k in 0:8, j in 0:n+1 }",
        "float(B,4) X, float(B) s) -> (Y) { Y(n,k) = X(n,k) * s(n) }",
        "float(B,4) X, int32(4) at) -> (Y) { Y(n,k) = X(n,at(k)) }",
        "float(B,4) X) -> (Y, z) { Y(n,k) = X(n,k)  z(k) = 1.0 where k in 0:4 }",
        "float(B,4) X) -> (Y) { Y(n,k) = X(n,k) where n in 0:4  Y(n,k) = 0.0 where n in 4:B, k in 0:4 }",
    ],
)
def test_what_may_not(text: str) -> None:
    assert carried(function_of(text), {"X": 0}) is None


def test_a_part_computes_what_the_whole_does() -> None:
    text = "float(B,4) X) -> (Y) { Y(n,k) = X(n,k) / B }"
    whole = function_of(text)
    axes = carried(whole, {"X": 0})
    assert axes == {"X": 0, "Y": 0} and not is_part(function_of(text, 2), whole, axes)
    longer = function_of(text.replace("B,4", "B,5").replace("/ B", "/ 8"), 2)
    assert not is_part(longer, function_of(text.replace("/ B", "/ 8")), axes)


def test_turns_are_taken_where_results_are_large_and_weights_small() -> None:
    mega = 1 << 20

    def works(size: int, weights: int, apart: bool = True) -> list[Work]:
        reads = [{"x": size}, {"a": size}, {"b": size}]
        writes = [{"a": size}, {"b": size}, {"y": size}]
        return [Work(r, w, weights, apart) for r, w in zip(reads, writes, strict=True)]

    assert turns(works(32 * mega, 1000), 8, SMALL) == (8, 8, 8)
    assert turns(works(32 * mega, 1000, apart=False), 8, SMALL) == (1, 1, 1)
    assert turns(works(32 * mega, 64 * mega), 8, SMALL) == (1, 1, 1)
    assert turns(works(1000, 1000), 8, SMALL) == (1, 1, 1)
    late = [*works(32 * mega, 1000), Work({"y": 1000}, {"z": 1000}, 16 * mega, True)]
    assert turns(late, 6, SMALL) == (6, 6, 6, 1)
    assert turns([], 8, SMALL) == ()


TEXT = """
def dense(float(B,N,K) X, float(M,K) W) -> (Y) { Y(b,n,m) +=! X(b,n,k) * W(m,k) }
def turned(float(B,N,M) X) -> (Y) { Y(m,b,n) = relu(X(b,n,m)) }
def back(float(M,B,N) X, float(B,N,M) R) -> (Y) { Y(b,n,m) = X(m,b,n) * 2 + R(b,n,m) }
def mixed(float(B,N,M) X) -> (Y) { Y(n,m) max=! X(b,n,m) }
def network(float(4,5,6) x, float(6,6) w, float(7,6) v) -> (y, z, t) {
  a = dense(x, w)
  t = turned(a)
  b = back(t, a)
  c = dense(b, w)
  y = dense(c, v)
  z = mixed(y)
}
"""


def everywhere(works: Any, batch: int, machine: Machine) -> tuple[int, ...]:
    """As many turns as can be, but for the fourth step."""
    return tuple(batch if work.apart and number != 3 else 1 for number, work in enumerate(works))


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitting, "turns", everywhere)


def compiled(**options: Any) -> tuple[tc.networks.CompiledNetwork, np.ndarray[Any, Any]]:
    draw = np.random.default_rng(1)
    weights = {n: draw.standard_normal(s).astype("f4") for n, s in (("w", (6, 6)), ("v", (7, 6)))}
    net = tc.compile_network(TEXT, weights=weights, options=options)
    return net, draw.standard_normal((4, 5, 6)).astype("f4")


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("options", [{}, {"one_call": False}, {"share_memory": False, "pack_weights": False}])
def test_parts_give_what_the_whole_gives(options: dict[str, Any]) -> None:
    net, x = compiled(**options)
    assert [(run.turns, len(run.steps)) for run in net.runs] == [(4, 3), (1, 1), (4, 1), (1, 1)]
    expected = net.network.reference(x)
    net(x)
    net._arenas[0][:] = 255  # NaN: nothing may be read before it is written
    for found, value in zip(net(x), expected, strict=True):
        assert np.allclose(found, value, rtol=1e-5, atol=1e-5)
    assert len(net.profile(x, repeats=1).rows) == 6
    told = net.explain()
    assert "in 4 turns, 1 of 4 at a time: 3 steps" in told and "all at once:" in told


@pytest.mark.usefixtures("parts")
def test_parts_take_less_memory_and_are_kept(tmp_path: Path) -> None:
    net, x = compiled()
    whole, _ = compiled(split_batch=False)
    assert len(whole.runs) == 1 and sum(v.bytes for v in net.lives) < sum(v.bytes for v in whole.lives)
    net.save(tmp_path / "net.tcn")
    again = tc.load_network(tmp_path / "net.tcn")
    assert [run.turns for run in again.runs] == [4, 1, 4, 1]
    assert all((one == other).all() for one, other in zip(again(x), net(x), strict=True))


@pytest.mark.usefixtures("parts")
@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_parts_in_exported_c(tmp_path: Path) -> None:
    net, x = compiled()
    net.export(tmp_path, name="small")
    assert "for (int turn = 0; turn < 4; turn++) {" in (tmp_path / "small.c").read_text()
    files = [path.name for path in tmp_path.glob("*.c")]
    flags = ["-Wall", "-Wextra", "-Wconversion", "-Werror", "-O1", "-march=native", "-fwrapv", "-fopenmp"]
    flags += ["-fsanitize=address,undefined"]
    subprocess.run(["gcc", *flags, *files, "-lm", "-lpthread", "-o", "example"], cwd=tmp_path, check=True)
    x.tofile(tmp_path / "in0.raw")
    subprocess.run(["./example", "weights.bin", "in0.raw"], cwd=tmp_path, check=True, capture_output=True)
    for k, value in enumerate(net(x)):
        assert np.allclose(np.fromfile(tmp_path / f"out{k}.raw", "f4"), value.reshape(-1), atol=1e-5)


@pytest.mark.usefixtures("parts")
def test_layers_of_images_and_of_tokens() -> None:
    torch = pytest.importorskip("torch")
    nn, f = torch.nn, torch.nn.functional

    class Both(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.enter, self.wide = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
            self.left, self.right, self.last = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 5)

        def forward(self, x: Any) -> Any:
            y = torch.relu(self.enter(x))
            y = torch.relu(self.wide(y)) + y
            t = f.max_pool2d(y, 2).flatten(2).transpose(1, 2)
            q = self.left(t.reshape(-1, 8)).view(*t.shape[:2], 2, 4).transpose(1, 2)
            t = t + f.scaled_dot_product_attention(q, q, q).transpose(1, 2).reshape(t.shape)
            return self.last(torch.relu(self.right(t))), t[1:].sum(0), t.softmax(0)

    torch.manual_seed(3)
    module, x = Both().eval(), torch.randn(4, 3, 8, 8)
    for algorithm in ("direct", "F(4,3)"):
        net = tc.compile_network(module, x, options={"algorithms": {"conv2d_1": algorithm}})
        assert sum(len(run.steps) for run in net.runs if run.turns == 4) > len(net.steps) / 2
        net(x)
        net._arenas[0][:] = 255
        with torch.no_grad():
            for found, expected in zip(net(x), module(x), strict=True):
                assert torch.allclose(found, expected, atol=1e-5), algorithm
