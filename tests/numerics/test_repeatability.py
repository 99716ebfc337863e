"""The same bits every time: under load, on any number of threads, in other processes, with and without a cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcomp
from tcomp.backends.simulator.simulation import Settings
from tcomp.driver import Compilation
from tcomp.grammar import define
from tcomp.mapping.options.options import MappingOptions
from tests.cuda.compiled import Data, compiled, run

pytestmark = pytest.mark.sweep(4)

TEXTS = {
    "total": "def f(float(K) X) -> (S) { S +=! X(k) }",
    "columns": "def f(float(N,K) X) -> (S) { S(k) +=! X(n,k) }",
    "softmax": """def f(float(N,D) X) -> (Y) {
        m(n) max=! X(n,d)  e(n,d) = exp(X(n,d) - m(n))  s(n) +=! e(n,d)  Y(n,d) = e(n,d) / s(n) }""",
    "gram": "def f(float(N,K) X) -> (C) { C(m,n) +=! X(m,k) * X(n,k) }",
    "chain": """def f(float(N,D) X) -> (Y) {
        m(n) +=! X(n,d) / D  v(n) +=! (X(n,d) - m(n)) * (X(n,d) - m(n)) / D
        Z(n,d) = (X(n,d) - m(n)) * rsqrt(v(n) + 1e-5)  Y(n,m) +=! Z(n,d) * tanh(Z(m,d)) }""",
}
SHAPES = {"total": (300_007,), "columns": (401, 307), "softmax": (97, 1009), "gram": (131, 257), "chain": (131, 257)}
"""Large enough for several threads, the sum of one element apart."""

SMALL = {"total": (3001,), "columns": (61, 37), "softmax": (7, 203), "gram": (9, 67), "chain": (9, 67)}
"""For the simulator."""


def data(shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def result(name: str, options: MappingOptions | None = None) -> bytes:
    found: np.ndarray[Any, Any] = tcomp.define(TEXTS[name]).f(data(SHAPES[name]), target="cpu", options=options)
    return found.tobytes()


@contextmanager
def load() -> Iterator[None]:
    """Busy threads beside the kernel's, so that its tiles come to other threads in another order each time."""
    stop = threading.Event()

    def work() -> None:
        square = np.ones((200, 200))
        while not stop.is_set():
            square = square @ square / 200

    workers = [threading.Thread(target=work) for _ in range(2)]
    for worker in workers:
        worker.start()
    try:
        yield
    finally:
        stop.set()
        for worker in workers:
            worker.join()


@pytest.mark.parametrize("name", TEXTS)
def test_fifty_runs_under_load(name: str) -> None:
    quiet = {result(name) for _ in range(25)}
    with load():
        busy = {result(name) for _ in range(25)}
    assert len(quiet | busy) == 1


SCRIPT = """
import hashlib, os, sys
sys.path.insert(0, sys.argv[1])
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(sys.argv[2])])
from tests.numerics.test_repeatability import TEXTS, result
for name in TEXTS:
    print(name, hashlib.sha256(result(name)).hexdigest())
"""


def digests(changes: Mapping[str, str], processors: int = 1024) -> list[str]:
    """What another process gets, which may use so many processors."""
    command = [sys.executable, "-c", SCRIPT, str(Path(__file__).parents[2]), str(processors)]
    done = subprocess.run(command, env=os.environ | changes, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def here() -> list[str]:
    return [f"{name} {hashlib.sha256(result(name)).hexdigest()}" for name in TEXTS]


@pytest.mark.parametrize("threads", ["1", "2", "3", "7"])
def test_threads_do_not_matter(threads: str, here: list[str]) -> None:
    assert digests({"OMP_NUM_THREADS": threads}) == here


def test_nor_does_how_many_processors_there_are(here: list[str]) -> None:
    """Compiled for one, too."""
    assert digests({"TCOMP_CACHE": "0"}, processors=1) == here


@pytest.mark.parametrize("name", TEXTS)
def test_nor_does_running_on_one(name: str) -> None:
    assert result(name, MappingOptions(parallel=False)) == result(name)


@pytest.mark.long
def test_nor_does_the_cache(tmp_path: Path, here: list[str]) -> None:
    """Compiled without one, then into an empty one, then from it, with other hashes each time."""
    cache = {"TCOMP_CACHE": str(tmp_path / "cache")}
    assert digests({"TCOMP_CACHE": "0", "PYTHONHASHSEED": "1"}) == here
    assert digests(cache | {"PYTHONHASHSEED": "2"}) == here
    assert digests(cache | {"PYTHONHASHSEED": "3"}) == here


@pytest.mark.skipif(shutil.which("g++") is None, reason="the simulator needs g++")
@pytest.mark.parametrize("options", [None, MappingOptions(split_reduction=3)], ids=["default", "split"])
@pytest.mark.parametrize("name", TEXTS)
def test_blocks_and_threads_of_a_gpu_may_run_in_any_order(name: str, options: MappingOptions | None) -> None:
    function = define(TEXTS[name])["f"]
    x = data(SMALL[name])
    compilation: Compilation = compiled(function, dict(zip(function.sizes, x.shape, strict=True)), options)
    (output,) = (a for a in compilation.source.arguments if a.role != "input")
    arrays = Data({"X": x}, {}, {output.name: np.zeros(output.shape, np.float32)})
    settings = [Settings("forward"), Settings("reverse"), *(Settings("random", seed) for seed in range(4))]
    found = {run(compilation.source, arrays, s)[1][output.name].tobytes() for s in settings}
    assert len(found) == 1
