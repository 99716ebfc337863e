"""What crosses from one process to another: exported programs, packages, caches, gradients, batches."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

import tcomp as tc
import tcomp.torch as tct

ROOT = Path(__file__).parents[2]
SECONDS = 240
"""A process that takes longer hangs."""

NETWORK = '''
import torch
import tcomp.torch as tct

ops = tct.define("""
def linear(float(N,D) X, float(C,D) W, float(C) b) -> (Y) { Y(n,c) +=! X(n,d) * W(c,d)  Y(n,c) = Y(n,c) + b(c) }
def swish(float(N,D) X) -> (Y) { Y(n,d) = X(n,d) * sigmoid(X(n,d)) }
""", namespace="tct_processes")


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        tct.Layer(ops.linear, W=(6, 4), b=(6,)), tct.Layer(ops.swish), tct.Layer(ops.linear, W=(3, 6), b=(3,))
    )


def batch():
    generator = torch.Generator().manual_seed(1)
    return torch.rand(8, 4, generator=generator), torch.rand(8, 3, generator=generator)
'''
"""A module that every process of a test imports."""


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "shared_network.py").write_text(NETWORK, encoding="utf-8")
    return tmp_path


def begin(directory: Path, script: str, *arguments: object, **variables: str) -> subprocess.Popen[str]:
    """A process that has tcomp and the shared network, and caches of its test alone."""
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), str(directory), os.environ.get("PYTHONPATH")))),
        "TORCHINDUCTOR_CACHE_DIR": str(directory / "inductor"),
        **variables,
    }
    return subprocess.Popen(
        [sys.executable, "-c", script, *map(str, arguments)],
        cwd=directory,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def end(*processes: subprocess.Popen[str]) -> list[str]:
    """What the processes printed; none of them is left, whatever happens."""
    printed = []
    try:
        for process in processes:
            out, err = process.communicate(timeout=SECONDS)
            assert process.returncode == 0, err
            printed.append(out)
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    return printed


EXPECTED = """
import sys, torch
from shared_network import batch, network
x, y = batch()
model = network()
result = model(x)
torch.nn.functional.mse_loss(result, y).backward()
torch.save((result.detach(), [p.grad for p in model.parameters()]), sys.argv[1])
"""


def expected(directory: Path) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The results and the gradients that one process gives without any compiler of torch."""
    end(begin(directory, EXPECTED, directory / "expected.pt"))
    result, gradients = torch.load(directory / "expected.pt")
    return result, gradients


WORKER = """
import sys, torch
import torch.distributed as distributed
from torch.nn.parallel import DistributedDataParallel
from shared_network import batch, network
rank, file = int(sys.argv[1]), sys.argv[2]
distributed.init_process_group("gloo", init_method=f"file://{file}.meeting", rank=rank, world_size=2)
torch.manual_seed(0)
model = DistributedDataParallel(network())
x, y = (t[rank::2] for t in batch())
for _ in range(2):  # the second time, the buckets are those of the first
    model.zero_grad()
    torch.nn.functional.mse_loss(model(x), y).backward()
torch.save([p.grad for p in model.parameters()], f"{file}.{rank}")
distributed.destroy_process_group()
"""


@pytest.mark.long
@pytest.mark.skipif(not torch.distributed.is_available(), reason="torch without torch.distributed")
def test_two_processes_have_the_gradients_of_one(directory: Path) -> None:
    """Each sees half of the batch; the mean of the halves' gradients is that of the whole."""
    _, gradients = expected(directory)
    file = directory / "gradients"
    end(*(begin(directory, WORKER, rank, file, GLOO_SOCKET_IFNAME="lo") for rank in range(2)))
    for rank in range(2):
        torch.testing.assert_close(torch.load(f"{file}.{rank}"), gradients)


EXPORT = """
import sys, torch
from shared_network import batch, network
x, _ = batch()
exported = torch.export.export(network(), (x,), dynamic_shapes=({0: torch.export.Dim("n")},))
torch.export.save(exported, sys.argv[1])
"""

LOAD = """
import sys, torch
import shared_network
x, _ = shared_network.batch()
loaded = torch.export.load(sys.argv[1]).module()
torch.save((loaded(x), loaded(x[:5])), sys.argv[2])
"""


@pytest.mark.long
def test_a_program_exported_by_another_process(directory: Path) -> None:
    result, _ = expected(directory)
    program, found = directory / "program.pt2", directory / "found.pt"
    end(begin(directory, EXPORT, program))
    end(begin(directory, LOAD, program, found))
    torch.testing.assert_close(torch.load(found), (result, result[:5]))
    with pytest.raises(AssertionError, match="tct_processes"):
        end(begin(directory, "import sys, torch; torch.export.load(sys.argv[1])", program))


PACKAGE = """
import sys, torch
from shared_network import batch, network
x, _ = batch()
torch._inductor.aoti_compile_and_package(torch.export.export(network(), (x,)), package_path=sys.argv[1])
"""

RUN_PACKAGE = """
import sys, torch
import shared_network
x, _ = shared_network.batch()
torch.save(torch._inductor.aoti_load_package(sys.argv[1])(x), sys.argv[2])
"""


@pytest.mark.long
def test_a_package_compiled_ahead_of_time(directory: Path) -> None:
    result, _ = expected(directory)
    package, found = directory / "network.pt2", directory / "found.pt"
    end(begin(directory, PACKAGE, package))
    end(begin(directory, RUN_PACKAGE, package, found))
    torch.testing.assert_close(torch.load(found), result)


COMPILED = """
import sys, torch
from torch._dynamo.utils import counters
from shared_network import batch, network
x, y = batch()
model = network()
result = torch.compile(model, fullgraph=True)(x)
torch.nn.functional.mse_loss(result, y).backward()
torch.save((result.detach(), [p.grad for p in model.parameters()]), sys.argv[1])
print(counters["aot_autograd"]["autograd_cache_hit"], counters["aot_autograd"]["autograd_cache_miss"])
"""


@pytest.mark.long
def test_graphs_on_disk_serve_the_next_process(directory: Path) -> None:
    result, gradients = expected(directory)
    counts = []
    for number in range(2):
        found = directory / f"found{number}.pt"
        counts += end(begin(directory, COMPILED, found))
        torch.testing.assert_close(torch.load(found), (result, gradients))
    assert [text.split() for text in counts] == [["0", "1"], ["1", "0"]]


class Rows(Dataset[torch.Tensor]):
    """A row of the table for each number, made by an operation in the process that is asked for it."""

    def __init__(self, operation: tc.Operation, table: torch.Tensor) -> None:
        self.operation = operation
        self.table = table

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, number: int) -> torch.Tensor:
        result: torch.Tensor = self.operation(self.table[number])
        return result


@pytest.mark.parametrize("way", ["fork", pytest.param("spawn", marks=pytest.mark.long)])
def test_workers_of_a_data_loader(way: str) -> None:
    """Forked after the operation has run here, on threads that the workers do not have; or begun anew."""
    operation = tct.define("def scaled(float(D) X) -> (Y) { s max=! fabs(X(d))  Y(d) = X(d) / s }").scaled
    table = torch.rand(12, 5000) + 0.5
    expected = table / table.amax(1, keepdim=True)
    torch.testing.assert_close(operation(table[0]), expected[0])
    loader = DataLoader(
        Rows(operation, table), batch_size=4, num_workers=2, multiprocessing_context=way, timeout=SECONDS // 4
    )
    torch.testing.assert_close(torch.cat(list(loader)), expected)
