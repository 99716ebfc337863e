"""The threads that kernels share: there when they are needed, quiet when not, and never needed for a result."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tcomp import debug
from tcomp.backends.host import threads, toolchain
from tcomp.errors import TcompError

PRELUDE = """
import os, pathlib, threading, time
import numpy as np
import tcomp as tc
mm = tc.define("def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }").mm
BIG = np.arange(256 * 256, dtype=np.float32).reshape(256, 256) % 5
EXPECTED = BIG @ BIG
def check(): assert np.array_equal(mm(BIG, BIG), EXPECTED)
def own():
    tasks = pathlib.Path("/proc/self/task").iterdir()
    return sorted(int(t.name) for t in tasks if (t / "comm").read_text().strip() == "tcomp")
def settled():
    time.sleep(0.02)
    return own()
PROCESSORS = len(os.sched_getaffinity(0))
"""

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or toolchain.find().family is not toolchain.GCC, reason="about gcc on Linux"
)
several = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor has no use for threads")


def run(code: str, **variables: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + code], env=os.environ | variables, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_kernels_are_linked_with_them() -> None:
    compiler = toolchain.find()
    region = "#pragma omp parallel num_threads(2)\n"
    assert threads.serve(region, compiler)
    assert not threads.serve("#pragma omp parallel for num_threads(2)\n", compiler), "it would need both"
    assert not threads.serve("int f(void);\n", compiler)


@several
def test_there_is_one_for_each_processor_and_they_stay() -> None:
    run("""
check()
first = settled()
assert len(first) == PROCESSORS, first
for _ in range(50): check()
assert settled() == first
for task in first:
    status = pathlib.Path(f"/proc/self/task/{task}/status").read_text()
    blocked = int(status.split("SigBlk:")[1].split()[0], 16)
    assert blocked & (1 << 1), "an interrupt goes to the thread that Python expects it in"
bound = sorted(tuple(os.sched_getaffinity(task)) for task in first)
assert bound == sorted((cpu,) for cpu in os.sched_getaffinity(0)), bound
""")


@several
def test_they_sleep_when_nothing_is_to_do() -> None:
    run("""
for _ in range(20): check()
time.sleep(0.01)
before = time.process_time()
time.sleep(0.3)
spent = time.process_time() - before
assert spent < 0.1, spent
check()
""")


@several
def test_a_forked_child_has_its_own() -> None:
    run("""
def child_of(work):
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
def in_child():
    assert not own()
    for _ in range(3): check()
    assert len(settled()) == PROCESSORS
    child_of(check)
check()
child_of(in_child)
check()
""")


@pytest.mark.parametrize("limit", ["one thread", "one processor", "OpenMP's"])
def test_users_limits_hold(limit: str) -> None:
    code = "check()\nassert not settled()\n"
    variables = {"OMP_NUM_THREADS": "1"} if limit == "one thread" else {}
    if limit == "one processor":
        code = "os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n" + code
    run(code, **variables, TCOMP_THREADS="openmp" if limit == "OpenMP's" else "")


@several
def test_limits_of_torch_hold() -> None:
    pytest.importorskip("torch")
    run("""
import torch
torch.set_num_threads(1)
check()
assert not settled()
torch.set_num_threads(2)
check()
assert settled()
""")


@several
def test_many_callers_at_once() -> None:
    run("""
wrong = []
def work(number):
    for turn in range(8):
        A = BIG + np.float32(number)
        if not np.array_equal(mm(A, BIG), A @ BIG): wrong.append((number, turn))
callers = [threading.Thread(target=work, args=(n,)) for n in range(80)]
for c in callers: c.start()
for c in callers: c.join()
assert not wrong, wrong[:5]
assert len(settled()) == PROCESSORS
""")


def test_the_variable_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCOMP_THREADS", "8")
    with pytest.raises(TcompError, match="TCOMP_THREADS is '8'; it must be openmp or nothing"):
        debug.openmp_threads()


BESIDE = """
from tcomp.backends.host import threads, toolchain
begun, compiling = threading.Event(), toolchain.compiling
def watched(*arguments, **named):
    if arguments[3] == "threads":
        assert begun.wait(60), "a kernel waits for the threads before its own compiler starts"
        if MISSING: raise threads.TargetError("no headers")
    else:
        begun.set()
    return compiling(*arguments, **named)
toolchain.compiling = watched
toolchain._SLOTS.value = threading.BoundedSemaphore(1)
check()
"""


def test_they_are_compiled_beside_the_first_kernel(tmp_path: Path) -> None:
    run("MISSING = False" + BESIDE + "assert PROCESSORS == 1 or settled()", TCOMP_CACHE=str(tmp_path))


def test_without_them_a_kernel_is_compiled_again_for_those_of_openmp(tmp_path: Path) -> None:
    code = "MISSING = True" + BESIDE + "assert not settled()\n"
    run(code, TCOMP_CACHE=str(tmp_path))
    kept = sorted(path.name for path in tmp_path.rglob("kernel-*"))
    assert len(kept) == 1, "what nothing can run is not kept"
    again = code.replace("begun.wait(60)", "True").replace("begun.set()", "raise AssertionError('it is there')")
    run(again, TCOMP_CACHE=str(tmp_path))
