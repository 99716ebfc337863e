"""Forks at any moment: the children run kernels, on however many threads the parent did."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import pytest

from tests.hostile.subprocesses import PRELUDE, run

pytestmark = pytest.mark.sweep(6)

PARALLEL = """
BIG = np.arange(256 * 256, dtype=np.float32).reshape(256, 256) % 5
EXPECTED = BIG @ BIG
def check_big():
    assert np.array_equal(tc.define(MM).mm(BIG, BIG), EXPECTED)
def wait(child):
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert status == 0, status
            return
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    raise SystemExit("a child hangs")
def forked(*work):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for step in work: step()
            status = 0
        finally:
            if status: import traceback; traceback.print_exc()
            os._exit(status)
    return child
"""
"""A kernel large enough for OpenMP, and children that must end."""

FORKS = {
    "after a parallel kernel": "check_big(); wait(forked(check_big, check)); check_big()",
    "before any kernel": "wait(forked(check_big)); check_big()",
    "a child of a child": "check_big(); wait(forked(check_big, lambda: wait(forked(check_big, check)), check_big))",
    "a thread of a child": """
def threaded():
    failures = []
    def body():
        try: check_big()
        except BaseException as error: failures.append(error)
    workers = [threading.Thread(target=body) for _ in range(4)]
    for w in workers: w.start()
    for w in workers: w.join()
    assert not failures, failures
check_big(); wait(forked(threaded, check_big))
""",
    "from a thread": """
check_big()
def body(): wait(forked(check_big, check))
worker = threading.Thread(target=body); worker.start(); worker.join(100)
""",
    "while others run parallel kernels": """
stop = threading.Event()
def running():
    while not stop.is_set(): check_big()
workers = [threading.Thread(target=running, daemon=True) for _ in range(3)]
for w in workers: w.start()
for number in range({forks}):
    wait(forked(check_big))
stop.set()
for w in workers: w.join()
""",
    "while others compile": """
stop = threading.Event()
def multiply(m, k, n):
    a, b = np.ones((m, k), np.float32), np.ones((k, n), np.float32)
    assert (tc.define(MM).mm(a, b) == k).all()
def compiling(seed):
    number = 0
    while not stop.is_set():
        number += 1
        multiply(seed + 1, number % 11 + 1, number + 1)
workers = [threading.Thread(target=compiling, args=(seed,), daemon=True) for seed in range(3)]
for w in workers: w.start()
for number in range({forks}):
    time.sleep(0.05)
    wait(forked(lambda: multiply(20, number + 1, 20)))
stop.set()
for w in workers: w.join()
""",
    "while another starts a compiler": """
# subprocess has opened the pipe that tells of the start, and a lock of the cache is held, for which the child waits.
check_big()
pipe, opened = os.pipe, threading.Event()
def slow_pipe():
    ends = pipe()
    if sys._getframe(1).f_code.co_name == "_execute_child" and not opened.is_set():
        opened.set()
        time.sleep(0.3)
    return ends
os.pipe = slow_pipe
worker = threading.Thread(target=check); worker.start()
assert opened.wait(30)
wait(forked(check))
worker.join()
""",
    "after torch": """
import torch
x = torch.ones(256, 256)
torch.set_num_threads(2)
check_big()
def with_torch():
    result = tc.define(MM).mm(x, x)
    assert bool((result == 256).all())
with_torch()
wait(forked(check_big, with_torch))
with_torch()
""",
}


def forking(name: str, forks: int) -> str:
    """The program of a row of ``FORKS``."""
    return PRELUDE + PARALLEL + FORKS[name].replace("{forks}", str(forks))


@pytest.mark.parametrize("name", FORKS)
@pytest.mark.parametrize("threads", ["1", "4"])
@pytest.mark.long
def test_forks(name: str, threads: str, tmp_path: Path) -> None:
    if name == "after torch":
        pytest.importorskip("torch")
    run(forking(name, 6), {"TCOMP_CACHE": str(tmp_path), "OMP_NUM_THREADS": threads}, seconds=200)


def main() -> None:
    """More forks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    for number in range(parser.parse_args().rounds):
        for name in FORKS:
            with tempfile.TemporaryDirectory(prefix="tcomp-test-") as folder:
                run(forking(name, 50), {"TCOMP_CACHE": folder, "OMP_NUM_THREADS": "4"}, seconds=600)
            sys.stdout.write(f"round {number}: fork {name}: right\n")


if __name__ == "__main__":
    main()
