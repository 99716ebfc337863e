"""Whole steps of training: compiled, on several processes, and graphs that other processes load."""

from __future__ import annotations

import copy
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

import tcomp as tc
import tcomp.torch as tct

TEXT = """
def linear(float(N,D) X, float(C,D) W, float(C) b) -> (Y) { Y(n,c) +=! X(n,d) * W(c,d)  Y(n,c) = Y(n,c) + b(c) }
def norm(float(N,D) X, float eps) -> (Y) {
    s(n) +=! X(n,d) * X(n,d)
    Y(n,d) = X(n,d) * rsqrt(s(n) + eps)
}
"""


def model() -> torch.nn.Sequential:
    torch.manual_seed(0)
    ops = tc.define(TEXT)
    normed = tct.Layer(ops.norm, eps=torch.tensor(0.1))
    return torch.nn.Sequential(tct.Layer(ops.linear, W=(5, 4), b=(5,)), torch.nn.Tanh(), normed)


def steps_of(trained: torch.nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    optimizer = torch.optim.SGD(trained.parameters(), lr=0.1)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss: torch.Tensor = trained(x).pow(2)[:, 0].mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@pytest.mark.long
def test_a_step_that_is_compiled_whole() -> None:
    plain = model()
    compiled = copy.deepcopy(plain)
    one, other = steps_of(plain), torch.compile(steps_of(compiled), backend="aot_eager")
    for seed in range(4):
        x = torch.rand(6, 4, generator=torch.Generator().manual_seed(seed))
        torch.testing.assert_close(one(x), other(x))
    torch.testing.assert_close(list(plain.parameters()), list(compiled.parameters()))


def test_one_graph_for_all_batches_with_gradients() -> None:
    ops, eps = tc.define(TEXT), torch.tensor(0.1)

    def f(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = ops.norm(ops.linear(x, w, b), eps).sin().sum()
        return found

    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(f, backend=counter, dynamic=True, fullgraph=True)
    w, b = torch.rand(5, 4, requires_grad=True), torch.rand(5)
    for n in (6, 8, 12, 9):
        x = torch.rand(n, 4, requires_grad=True)
        torch.testing.assert_close(
            torch.autograd.grad(compiled(x, w, b), (x, w)), torch.autograd.grad(f(x, w, b), (x, w))
        )
    assert counter.frame_count == 1


def _rank(rank: int, meeting: str) -> None:
    """Steps on half of the data each, averaged, against steps on all of it in torch.  Raises where they differ."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
    ours = model()[:2]
    theirs = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh())
    with torch.no_grad():
        theirs[0].weight.copy_(ours[0].W)
        theirs[0].bias.copy_(ours[0].b)
    data = torch.rand(8, 4, generator=torch.Generator().manual_seed(1))
    here, all_of_it = steps_of(torch.nn.parallel.DistributedDataParallel(ours)), steps_of(theirs)
    for _ in range(3):
        here(data[rank::2])
        all_of_it(data)
    torch.testing.assert_close(list(ours.parameters()), list(theirs.parameters()))
    torch.distributed.destroy_process_group()


@pytest.mark.long
def test_two_processes_train_one_model() -> None:
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(_rank, (str(Path(folder) / "meeting"),), nprocs=2)


def _python(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True, check=False)


@pytest.mark.long
def test_exported_programs_in_another_process(tmp_path: Path) -> None:
    ops = tct.define(TEXT, namespace="tct_exported")
    layer = tct.Layer(ops.linear, W=(5, 4), b=(5,))
    shapes = {"arguments": ({0: torch.export.Dim("n", min=2)},)}
    program = torch.export.export(layer, (torch.rand(6, 4),), dynamic_shapes=shapes)
    torch.export.save(program, tmp_path / "program.pt2")
    x = torch.rand(9, 4)
    torch.save((x, layer(x)), tmp_path / "expected.pt")
    load = f"program = torch.export.load({str(tmp_path / 'program.pt2')!r})"
    assert _python(f"import torch\n{load}").returncode != 0  # torch says that it does not know the operator
    run = _python(
        f"import torch, tcomp.torch as tct\ntct.define({TEXT!r}, namespace='tct_exported')\n{load}\n"
        f"x, expected = torch.load({str(tmp_path / 'expected.pt')!r})\n"
        "torch.testing.assert_close(program.module()(x), expected)\n"
    )
    assert run.returncode == 0, run.stderr


@pytest.mark.long
def test_ahead_of_time_inductor(tmp_path: Path) -> None:
    """In a Python process that has registered the operator; a process of C++ has no kernel of Python."""
    layer = tct.Layer(tct.define(TEXT, namespace="tct_aoti").linear, W=(5, 4), b=(5,))
    x = torch.rand(6, 4)
    package = torch._inductor.aoti_compile_and_package(
        torch.export.export(layer, (x,)), package_path=str(tmp_path / "model.pt2")
    )
    torch.testing.assert_close(torch._inductor.aoti_load_package(package)(x), layer(x))


@pytest.mark.long
def test_graphs_that_torch_keeps_on_disk(tmp_path: Path) -> None:
    """The second process finds the compiled graph of the first, with the names of the operators in it."""
    script = f"""
import os
os.environ["TORCHINDUCTOR_CACHE_DIR"] = {str(tmp_path)!r}
import torch, tcomp as tc
ops, eps = tc.define({TEXT!r}), torch.tensor(0.1)
f = torch.compile(lambda x: ops.norm(x, eps) * 2)
x = torch.rand(6, 4, requires_grad=True)
found, = torch.autograd.grad(f(x).sin().sum(), x)
expected, = torch.autograd.grad((ops.norm(x, eps) * 2).sin().sum(), x)
torch.testing.assert_close(found, expected)
print(dict(torch._dynamo.utils.counters["aot_autograd"]))
"""
    first, second = _python(script), _python(script)
    assert first.returncode == 0 and second.returncode == 0, first.stderr + second.stderr
    assert "autograd_cache_miss" in first.stdout and "autograd_cache_hit" in second.stdout
