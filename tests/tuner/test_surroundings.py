"""Candidates where there is no room on the disk, no directory, or nobody left who waits for them."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.sweep(6)

ROOT = Path(__file__).parents[2]

PRELUDE = """
import sys
from tcomp import MappingOptions
from tcomp.tuner.measuring.evaluation import Bench, CompileJob, MeasureJob, compile_candidate, measure_candidate
from tcomp.tuner.measuring.executors import local_executor
from tcomp.tuner.database.trials import Candidate
from tests.tuner.problems import problem

def tried(folder):
    bench = Bench(folder)
    with local_executor(1) as executor:
        job = CompileJob(bench, problem(), Candidate(MappingOptions(), "x"))
        compiled = executor.submit(compile_candidate, job).result()
        if compiled.failure is not None:
            return compiled.failure.value, compiled.message
        trial = executor.submit(measure_candidate, MeasureJob(bench, problem(), compiled)).result()
        return trial.outcome.value, trial.message
"""


def run(program: str, changes: dict[str, str], *, before: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"} | changes
    command = (*before, sys.executable, "-c", PRELUDE + program)
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=250, check=False)


@pytest.mark.parametrize("kilobytes", [8, 32, 64, 4096])
def test_a_disk_that_gets_full(kilobytes: int, tmp_path: Path) -> None:
    """The compiler fails and says so, or the candidate is measured, compiled once more for that if need be."""
    namespace = ("unshare", "-m") if os.geteuid() == 0 else ("unshare", "-rm")
    mount = f"mount -t tmpfs -o size={kilobytes}k none {tmp_path}"
    if (
        shutil.which("unshare") is None
        or subprocess.run([*namespace, "sh", "-c", mount], capture_output=True, check=False).returncode
    ):
        pytest.skip("file systems cannot be mounted here")
    program = f"outcome, message = tried({str(tmp_path / 'kernels')!r})\nprint(outcome, message)"
    begin = (*namespace, "sh", "-c", f'{mount} && exec "$@"', "sh")
    done = run(program, {"TMPDIR": str(tmp_path)}, before=begin)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("measured") or "No space left" in done.stdout, done.stdout
    assert kilobytes < 4096 or done.stdout.startswith("measured"), done.stdout


def test_no_directory_for_kernels() -> None:
    done = run("print(*tried('/dev/null/kernels'))", {})
    assert done.stdout == "measured \n", done.stdout + done.stderr


def test_no_compiler() -> None:
    done = run("print(*tried('/dev/null/kernels'))", {"CC": "no-such-compiler"})
    assert done.stdout.startswith("rejected CC is 'no-such-compiler'"), done.stdout + done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_ends_the_process_and_all_sandboxes(number: signal.Signals, tmp_path: Path) -> None:
    program = f"""
import tests.tuner.faultytarget
from tests.tuner.faulty import TARGET, options_with
bench = Bench({str(tmp_path)!r}, modules=("tests.tuner.faultytarget",))
with local_executor(2) as executor:
    job = CompileJob(bench, problem(target=TARGET), Candidate(options_with("never compiles"), "x"))
    running = [executor.submit(compile_candidate, job) for _ in range(2)]
    print("begun", flush=True)
    running[0].result()
"""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", PRELUDE + program], env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        assert eventually(lambda: len(sandboxes_with(tmp_path)) >= 2), "they start"
        process.send_signal(number)
        process.wait(25)
        assert eventually(lambda: not sandboxes_with(tmp_path))
    finally:
        process.kill()
        process.wait()


def sandboxes_with(folder: Path) -> list[str]:
    """The processes that keep kernels in a folder."""
    wanted, found = f"TCOMP_CACHE={folder}".encode(), []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                found.append(process.name)
        except OSError:
            continue
    return found


def eventually(condition: Callable[[], bool], seconds: float = 30.0) -> bool:
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(0.05)
    return True
