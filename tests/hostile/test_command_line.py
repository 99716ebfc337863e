"""The command ``tcomp`` is interrupted, or started without what a shell gives to a process."""

from __future__ import annotations

import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.hostile.sleepers import is_running, kill, places, sleeping_compiler, wait_for
from tests.hostile.subprocesses import ROOT, environment, start

pytestmark = pytest.mark.sweep(6)

COMMAND = """
import signal, sys, tcomp_command
signal.signal(signal.SIGINT, signal.default_int_handler)
print("ready", flush=True)
sys.exit(tcomp_command.main())
"""


def _command(arguments: list[str], changes: dict[str, str | None]) -> subprocess.Popen[bytes]:
    """The command line, which says when Python itself has started."""
    process = start(COMMAND, changes, arguments)
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    return process


def _assert_ends(process: subprocess.Popen[bytes], status: int) -> None:
    output, errors = process.communicate(timeout=60)
    assert process.returncode == status, (process.returncode, errors.decode())
    assert errors == b"" and b"Traceback" not in output


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
class TestTheCommandLine:
    @pytest.mark.long
    def test_in_its_first_second(self, number: signal.Signals, status: int, tmp_path: Path) -> None:
        compiler = sleeping_compiler(tmp_path)
        program = tmp_path / "mm.tc"
        program.write_text("def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }")
        changes = {"CC": str(compiler), **places(tmp_path)}
        for tenth in range(10):
            process = _command(["run", str(program), "--sizes", "M=6,N=5,K=4"], changes)
            time.sleep(0.02 + tenth / 10)
            process.send_signal(number)
            _assert_ends(process, status)
        assert not list((tmp_path / "scratch").iterdir())

    def test_while_the_compiler_runs(self, number: signal.Signals, status: int, tmp_path: Path) -> None:
        compiler = sleeping_compiler(tmp_path)
        program = tmp_path / "mm.tc"
        program.write_text("def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }")
        changes = {"CC": str(compiler), **places(tmp_path)}
        process = _command(["run", str(program), "--sizes", "M=6,N=5,K=4"], changes)
        compilers = wait_for(tmp_path / "compiling")
        process.send_signal(number)
        _assert_ends(process, status)
        assert not any(is_running(compiler) for compiler in compilers)
        assert not list((tmp_path / "scratch").iterdir())
        # What was interrupted is made by the next.
        _, errors = (
            done := _command(["run", str(program), "--sizes", "M=6,N=5,K=4"], changes | {"CC": None})
        ).communicate()
        assert done.returncode == 0, errors

    @pytest.mark.long
    def test_twice(self, number: signal.Signals, status: int, tmp_path: Path) -> None:
        process = _command(["doctor"], {"CC": str(sleeping_compiler(tmp_path)), **places(tmp_path)})
        compilers = wait_for(tmp_path / "compiling")
        for _ in range(3):
            process.send_signal(number)
            time.sleep(0.001)
        _, errors = process.communicate(timeout=60)
        kill(compilers)
        # As Python ends it goes back to what signals do by default, which shells show as the same status.
        assert process.returncode in (status, -number) and b"Traceback" not in errors


def test_the_command_leaves_ignored_interrupts_ignored(tmp_path: Path) -> None:
    """As for what a shell starts in the background."""
    ignoring = COMMAND.replace("default_int_handler", "SIG_IGN")
    process = start(ignoring, places(tmp_path), ["cache", "ls"])
    assert process.stdout is not None and process.stdout.readline() == b"ready\n"
    for _ in range(20):
        process.send_signal(signal.SIGINT)
        time.sleep(0.03)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors.decode()


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (1, 2), (0, 1, 2)])
@pytest.mark.long
def test_the_command_without_standard_streams(closed: tuple[int, ...], tmp_path: Path) -> None:
    """Nothing that is written to a missing stream ends up in a file that got its number."""
    program = tmp_path / "mm.tc"
    program.write_text("def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }")
    closing = " ".join(f"{descriptor}{'<' if descriptor == 0 else '>'}&-" for descriptor in closed)
    command = f"{sys.executable} -m tcomp_command run {program} --sizes M=6,N=5,K=4 {closing}"
    changes = {**places(tmp_path), "TCOMP_DEBUG": "4", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        ["sh", "-c", command], env=environment(changes), capture_output=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    kept = [path for path in (tmp_path / "cache" / "v1").iterdir() if stat.S_ISREG(path.stat().st_mode)]
    assert {path.name.partition("-")[0] for path in kept} >= {"kernel"}
    assert all(path.read_bytes().startswith(b'{"tcomp"') for path in kept if not path.name.startswith("."))


def _sh(script: str, tmp_path: Path, **changes: str) -> subprocess.CompletedProcess[bytes]:
    """What a shell makes of ``tcomp`` in a script, in a folder with a program."""
    text = "# \N{GREEK SMALL LETTER ALPHA}\ndef f(float(N) A) -> (B) { B(n) = A(n) }"
    (tmp_path / "f.tc").write_text(text, encoding="utf-8")
    command = script.replace("tcomp", f"{sys.executable} -m tcomp_command", 1)
    variables = environment({**places(tmp_path), "PYTHONPATH": str(ROOT), **changes})
    return subprocess.run(["sh", "-c", command], env=variables, cwd=tmp_path, capture_output=True, check=False)


def test_what_a_terminal_cannot_show_is_escaped(tmp_path: Path) -> None:
    done = _sh("tcomp compile f.tc --sizes N=4 --emit input", tmp_path, PYTHONIOENCODING="ascii")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"# \\u03b1\ndef f")


def test_a_program_from_a_stream_that_is_closed_is_empty(tmp_path: Path) -> None:
    done = _sh("tcomp run - <&-", tmp_path)
    assert done.returncode == 1 and b"the text defines nothing" in done.stderr and b"Traceback" not in done.stderr


def test_the_status_tells_what_is_wrong_where_nobody_reads_it(tmp_path: Path) -> None:
    assert _sh("tcomp run f.tc --sizes N=4 --target cuda:sm_0 2>/dev/full", tmp_path).returncode == 3
