"""Many threads and processes with one cache, and the end of a process that still works."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import pickle
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import forkserver
from pathlib import Path

import numpy as np
import pytest

import tcomp as tc
from tcomp.storage import cache
from tests.hostile.subprocesses import PRELUDE, run, start

pytestmark = pytest.mark.sweep(3)

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
A = np.arange(12, dtype=np.float32).reshape(3, 4)
B = np.arange(20, dtype=np.float32).reshape(4, 5)

COUNTING = """#!/bin/sh
case "$1" in --version) ;; *) echo x >> {log};; esac
exec gcc "$@"
"""


@pytest.fixture
def counting_compiler(tmp_path: Path) -> Path:
    """A compiler that leaves a line in ``compilations`` for each run."""
    path = tmp_path / "counting-cc"
    path.write_text(COUNTING.format(log=tmp_path / "compilations"))
    path.chmod(0o755)
    return path


def compilations(folder: Path) -> int:
    """How often the counting compiler has run."""
    log = folder / "compilations"
    return len(log.read_text().splitlines()) if log.exists() else 0


CROWD = (
    PRELUDE
    + """
import json, random
threads, sizes, calls = (int(word) for word in sys.argv[1:4])
sys.setswitchinterval(float(sys.argv[4]))
shared = tc.define(MM).mm
gate = threading.Barrier(threads)
wrong = []
def work(seed):
    order = random.Random(seed)
    try:
        gate.wait()
        for _ in range(calls):
            m = order.randrange(1, sizes + 1)
            a = np.full((m, 4), seed % 7, np.float32)
            # Half use an operation that all threads share, half one of their own.
            operation = shared if seed % 2 else tc.define(MM).mm
            if not np.array_equal(operation(a, B), a @ B):
                wrong.append((seed, m))
    except BaseException as error:
        wrong.append((seed, repr(error)))
workers = [threading.Thread(target=work, args=(seed,)) for seed in range(threads)]
for worker in workers: worker.start()
for worker in workers: worker.join()
print(json.dumps(wrong))
"""
)


def crowd(folder: Path, compiler: Path, processes: int, threads: int, sizes: int, calls: int, interval: float) -> None:
    """Let processes of many threads compile and call kernels of a few sizes at once, with one cache.

    AssertionError if a result is wrong, something is left behind, or a kernel is compiled more than once.
    """
    scratch = folder / "scratch"
    scratch.mkdir()
    changes = {"TCOMP_CACHE": str(folder / "cache"), "CC": str(compiler), "TMPDIR": str(scratch)}
    numbers = tuple(map(str, (threads, sizes, calls, interval)))
    running = [start(CROWD, changes, numbers) for _ in range(processes)]
    for process in running:
        output, errors = process.communicate(timeout=280)
        assert process.returncode == 0, errors.decode()
        assert json.loads(output) == []
    assert not list(scratch.iterdir())
    names = [path.name for path in (folder / "cache" / "v1").iterdir() if not path.name.startswith(".lock-")]
    # One entry is what calls kernels directly.
    assert Counter(name.partition("-")[0] for name in names) == {"source": sizes, "kernel": sizes, "call": 1}
    assert compilations(folder) == sizes + 1


@pytest.mark.long
def test_200_threads(tmp_path: Path, counting_compiler: Path) -> None:
    crowd(tmp_path, counting_compiler, processes=1, threads=200, sizes=6, calls=5, interval=0.005)


def test_threads_that_switch_all_the_time(tmp_path: Path, counting_compiler: Path) -> None:
    crowd(tmp_path, counting_compiler, processes=1, threads=40, sizes=4, calls=3, interval=1e-6)


@pytest.mark.long
def test_8_processes(tmp_path: Path, counting_compiler: Path) -> None:
    crowd(tmp_path, counting_compiler, processes=8, threads=4, sizes=3, calls=4, interval=0.005)


@pytest.mark.long
def test_commands_on_a_cache_that_changes(tmp_path: Path) -> None:
    """Listing, exporting, importing and clearing while kernels are compiled: no command fails, no result is wrong."""
    program = (
        PRELUDE
        + """
from tcomp.storage import cache
from pathlib import Path
archive = Path(os.environ["TCOMP_CACHE"]).parent / f"archive-{os.getpid()}"
limit = time.monotonic() + 4
while time.monotonic() < limit:
    check()
    store = cache.store()
    list(store.entries())
    store.export_to(archive)
    store.import_from(archive)
    store.clear()
"""
    )
    running = [
        start("import warnings; warnings.simplefilter('error')" + program, {"TCOMP_CACHE": str(tmp_path / "cache")})
        for _ in range(3)
    ]
    for process in running:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors.decode()


def test_two_versions_share_a_cache(tmp_path: Path) -> None:
    """They never find each other's texts, and both find their own."""
    program = (
        PRELUDE
        + """
from tcomp.runtime import specialisation
lower, count = specialisation.lower, []
specialisation.lower = lambda *a, **k: count.append(1) or lower(*a, **k)
specialisation.__version__ = sys.argv[1]
check()
print(len(count))
"""
    )
    changes = {"TCOMP_CACHE": str(tmp_path / "cache")}
    found = [run(program, changes, (version,)).strip() for version in ("1", "2", "1", "2")]
    assert found == ["1", "1", "0", "0"]


def test_a_lock_whose_holder_is_stopped_does_not_stop_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCOMP_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("tcomp.storage.cache._LONGEST_TURN", 0.2)
    key = "ab" * 32
    with cache.store().turn("kernel", key), cache.store().turn("kernel", key):
        assert cache.store().put("kernel", key, "label", b"payload")


def test_locks_that_cannot_be_made_are_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Something else lies where locks would be; also where a link leads elsewhere."""
    monkeypatch.setenv("TCOMP_CACHE", str(tmp_path / "cache"))
    store = cache.store()
    assert store.directory is not None
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for number in range(256):
        path = store.directory / f".lock-{number:02x}"
        if number % 3 == 0:
            path.mkdir()
        elif number % 3 == 1:
            path.symlink_to(victim)
        else:
            os.mkfifo(path)
    for number in range(8):
        with store.turn("kernel", f"{number:064x}"):
            assert store.put("kernel", f"{number:064x}", "label", b"payload")
    assert victim.read_text() == "mine"


def _child(folder: str, operation: tc.Operation, kernel: tc.Kernel, sizes: tuple[int, ...]) -> bool:
    os.environ["TCOMP_CACHE"] = folder
    right = all(np.array_equal(operation(A[:m], B), A[:m] @ B) for m in sizes)
    return right and np.array_equal(kernel(A, B), A @ B)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_pools(method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations and kernels are sent to processes of every kind."""
    monkeypatch.setenv("TCOMP_CACHE", str(tmp_path))
    operation = tc.define(MM).mm
    kernel = operation.compile(A, B)
    assert np.array_equal(kernel(A, B), A @ B)
    with multiprocessing.get_context(method).Pool(2) as pool:
        work = [(str(tmp_path), operation, kernel, (1, 2, 3))] * 4
        assert pool.starmap_async(_child, work).get(timeout=120) == [True] * 4
    if method == "forkserver":
        # Others start one that has imported what they need: it is the same for all of a process.
        forkserver._forkserver._stop()


def test_what_is_pickled_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCOMP_CACHE", str(tmp_path))
    module = tc.define(MM)
    kernel = module.mm.compile(A, B)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        operation = pickle.loads(pickle.dumps(module.mm, protocol))
        assert np.array_equal(operation(A, B), A @ B)
        assert np.array_equal(pickle.loads(pickle.dumps(module, protocol)).mm(A, B), A @ B)
        assert np.array_equal(pickle.loads(pickle.dumps(kernel, protocol))(A, B), A @ B)
    for error in _errors(module.mm):
        copy = pickle.loads(pickle.dumps(error))
        assert type(copy) is type(error) and str(copy) == str(error)


def _errors(operation: tc.Operation) -> list[tc.TcompError]:
    found = []
    attempts: list[Callable[[], object]] = [
        lambda: operation(A),
        lambda: operation(A, A),
        lambda: tc.define("def f(float(N) A) -> (B) { B(i) = C(i) }"),
        lambda: operation(A, B, target="nowhere"),
    ]
    for attempt in attempts:
        with pytest.raises(tc.TcompError) as caught:
            attempt()
        found.append(caught.value)
    return found


ENDINGS = {
    "daemon threads compile": """
def body():
    number = 0
    while True:
        number += 1
        tc.define(MM).mm(np.ones((number, 4), np.float32), B)
for _ in range(4): threading.Thread(target=body, daemon=True).start()
time.sleep(0.4)
""",
    "a daemon thread is inside isl": """
import islpy as isl
from tcomp.storage.forks import ISL
def body():
    while True:
        with ISL.value: isl.Set("{ [i] : 0 <= i < 50 }").foreach_point(lambda point: time.sleep(0.002))
threading.Thread(target=body, daemon=True).start()
time.sleep(0.05)
""",
    "daemon threads call": """
mm = tc.define(MM).mm
big = np.ones((300, 300), np.float32)
mm(big, big)
def body():
    while True: mm(big, big)
for _ in range(4): threading.Thread(target=body, daemon=True).start()
time.sleep(0.2)
""",
    "a call at exit": "import atexit; mm = tc.define(MM).mm; atexit.register(check); atexit.register(check, mm)",
}


@pytest.mark.parametrize("name", ENDINGS)
def test_a_process_that_ends_while_it_works(name: str, tmp_path: Path) -> None:
    process = start(PRELUDE + ENDINGS[name], {"TCOMP_CACHE": str(tmp_path)})
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors.decode()
    assert b"Traceback" not in errors and b"leak" not in errors


def test_threads_share_one_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler that fails is not run for each thread that waits, and the next call tries again."""
    log = tmp_path / "compilations"
    path = tmp_path / "failing-cc"
    path.write_text(f'#!/bin/sh\ncase "$1" in --version) exec gcc "$@";; esac\necho x >> {log}; sleep 0.5; exit 1\n')
    path.chmod(0o755)
    monkeypatch.setenv("CC", str(path))
    monkeypatch.setenv("TCOMP_CACHE", "0")
    operation = tc.define(MM).mm
    gate = threading.Barrier(16)

    def call(_: int) -> str:
        gate.wait()
        with pytest.raises(tc.TargetError) as caught:
            operation(A, B)
        return caught.value.message

    with ThreadPoolExecutor(16) as pool:
        assert len(set(pool.map(call, range(16)))) == 1
    assert compilations(tmp_path) <= 2
    monkeypatch.delenv("CC")
    assert np.array_equal(operation(A, B), A @ B)


def main() -> None:
    """Larger crowds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    rounds = parser.parse_args().rounds
    for number in range(rounds):
        for processes, threads, interval in ((1, 200, 0.005), (8, 25, 0.005), (2, 100, 1e-6)):
            with tempfile.TemporaryDirectory(prefix="tcomp-test-") as name:
                folder = Path(name)
                compiler = folder / "counting-cc"
                compiler.write_text(COUNTING.format(log=folder / "compilations"))
                compiler.chmod(0o755)
                crowd(folder, compiler, processes, threads, sizes=10, calls=10, interval=interval)
            sys.stdout.write(f"round {number}: {processes} processes of {threads} threads, each kernel compiled once\n")


if __name__ == "__main__":
    main()
