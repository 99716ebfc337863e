"""Other processes: DDP on two of them, workers that load data, exported programs and packages that are loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import tcomp.torch as tct

TEXT = """
def layer(float(N,D) X, float(M,D) W, float(M) b) -> (Y) { Y(n,m) +=! X(n,d) * W(m,d)  Y(n,m) = tanh(Y(n,m) + b(m)) }
def norm(float(N,D) X) -> (Y) { s(n) +=! X(n,d) * X(n,d)  Y(n,d) = X(n,d) * rsqrt(s(n)) }
"""

AVERAGING = """
import sys, torch, torch.distributed as dist, tcomp.torch as tct
rank, store = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
ops = tct.define(TEXT)
torch.manual_seed(0)
layer = tct.Layer(ops.layer, W=(3, 4), b=(3,))
X = torch.rand(2, 5, 4)
expected = torch.zeros(3, 4)
for own in X:
    W = layer.W.detach().requires_grad_()
    expected += torch.autograd.grad(torch.tanh(own @ W.t() + layer.b.detach()).sum(), W)[0] / 2
model = torch.nn.parallel.DistributedDataParallel(layer)
model(X[rank]).sum().backward()
torch.testing.assert_close(layer.W.grad, expected)
dist.destroy_process_group()
"""

LOADING = """
import sys, torch, tcomp.torch as tct
tct.define(TEXT, namespace="loadedlater")
loaded = MODULE
X, W, b = torch.ones(5, 4), torch.full((3, 4), 0.25), torch.zeros(3)
torch.testing.assert_close(loaded(X, W, b), torch.tanh(X @ W.t() + b) * 2)
"""


class Net(torch.nn.Module):
    """One operator by its stable name, and something of torch."""

    def forward(self, X: torch.Tensor, W: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return torch.ops.loadedlater.layer(X, W, b) * 2


def _started(text: str, *arguments: str) -> subprocess.Popen[str]:
    script = text.replace("TEXT", repr(TEXT))
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", script, *arguments],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def _ended_well(process: subprocess.Popen[str]) -> None:
    _, errors = process.communicate(timeout=250)
    assert process.returncode == 0, errors


@pytest.mark.long
@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch has no distributed package here")
def test_gradients_are_averaged_over_processes(tmp_path: Path) -> None:
    processes = [_started(AVERAGING, str(rank), str(tmp_path / "store")) for rank in range(2)]
    for process in processes:
        _ended_well(process)


def _exported() -> torch.export.ExportedProgram:
    tct.define(TEXT, namespace="loadedlater")
    return torch.export.export(Net(), (torch.ones(5, 4), torch.ones(3, 4), torch.ones(3)))


@pytest.mark.long
def test_an_exported_program_is_loaded_elsewhere(tmp_path: Path) -> None:
    file = tmp_path / "net.pt2"
    torch.export.save(_exported(), file)
    _ended_well(_started(LOADING.replace("MODULE", f"torch.export.load({str(file)!r}).module()")))


@pytest.mark.long
def test_a_package_of_aotinductor_is_loaded_elsewhere(tmp_path: Path) -> None:
    file = str(tmp_path / "net.pt2")
    torch._inductor.aoti_compile_and_package(_exported(), package_path=file)
    _ended_well(_started(LOADING.replace("MODULE", f"torch._inductor.aoti_load_package({file!r})")))


KEPT = """
import sys, torch, tcomp.torch as tct
from torch._dynamo.utils import counters
ops = tct.define(TEXT, namespace="keptgraphs")
torch.manual_seed(0)
X, W, b = torch.rand(5, 4), torch.rand(3, 4, requires_grad=True), torch.zeros(3)
graph = torch.compile(lambda X, W, b: ops.norm(ops.layer(X, W, b)) * 2, fullgraph=True)
found = graph(X, W, b)
expected = torch.nn.functional.normalize(torch.tanh(X @ W.t() + b)) * 2
torch.testing.assert_close(found, expected)
torch.testing.assert_close(*(torch.autograd.grad(y[:, 0].sum(), W) for y in (found, expected)))
hits = counters["aot_autograd"]["autograd_cache_hit"]
assert hits == int(sys.argv[1]), dict(counters["aot_autograd"])
"""


@pytest.mark.long
def test_graphs_that_torch_keeps_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process finds the graph with its operators, the backward pass, too, which it registers before."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    for hits in range(2):
        _ended_well(_started(KEPT, str(hits)))


KEPT_BY_NAME = """
import os, torch, torch._inductor.compile_fx, tcomp.torch as tct
def run(power):
    product = " * ".join(["X(i)"] * power)
    ops = tct.define(f"def f(float(N) X) -> (Y) {{ Y(i) = {product} }}", namespace="keptbyname")
    X, V = torch.rand(2, 3)
    found = torch.compile(lambda X, V: torch.func.vjp(ops.f, X)[1](V)[0], fullgraph=True)(X, V)
    torch.testing.assert_close(found, power * X ** (power - 1) * V)
child = os.fork()
if child:
    assert os.waitpid(child, 0)[1] == 0
run(2 if child else 3)
"""


@pytest.mark.long
def test_graphs_on_disk_of_another_def_of_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a graph calls a gradient that only the other def has.  The second process is a copy of the first, which has
    imported what takes longest.
    """
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    _ended_well(_started(KEPT_BY_NAME))


class Rows(Dataset[torch.Tensor]):
    """Each row goes through an operation where it is loaded, in a worker."""

    def __init__(self) -> None:
        self.operation = tct.define("def twice(float(N) X) -> (Y) { Y(n) = 2.0 * X(n) }").twice

    def __len__(self) -> int:
        return 4

    def __getitem__(self, number: int) -> torch.Tensor:
        with torch.no_grad():
            result: torch.Tensor = self.operation(torch.full((3,), float(number)))
        return result


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.long)])
def test_workers_load_data(method: str) -> None:
    rows = Rows()
    assert (rows[1] == 2).all()
    loader = DataLoader(rows, batch_size=2, num_workers=2, multiprocessing_context=method)
    assert [batch[:, 0].tolist() for batch in loader] == [[0, 2], [4, 6]]
