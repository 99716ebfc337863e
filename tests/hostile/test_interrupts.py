"""Ctrl-C and SIGTERM at any moment: the interrupt comes, nothing hangs, and what follows works."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import pytest

from tests.hostile.sleepers import is_running, kill, places, sleeping_compiler, wait_for
from tests.hostile.subprocesses import PRELUDE, run

pytestmark = pytest.mark.sweep(4)

STATE = """
from pathlib import Path
from tcomp.storage import cache
from tcomp.backends.host import native
from tcomp.storage.memo import Memo
SCRATCH = Path(os.environ["TMPDIR"])
def children():
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
def in_thread(work):
    # Locks that the main thread still holds would not stop the main thread.
    failures = []
    def body():
        try: work()
        except BaseException as error: failures.append(error)
    worker = threading.Thread(target=body, daemon=True)
    worker.start()
    worker.join(60)
    assert not worker.is_alive(), "another thread hangs"
    assert not failures, failures
def forget():
    native._LOADED = Memo()
    cache.store().clear()
def leftovers(): return [*SCRATCH.iterdir(), *Path(os.environ["TCOMP_CACHE"]).rglob(".draft-*")]
def sweep():
    # An interrupt as a directory is about to be removed leaves it to a later process.
    from tcomp.backends.host import processes
    for path in leftovers(): os.utime(path, (0, 0))
    processes._sweep.cache_clear()
    processes._sweep(SCRATCH)
    cache._sweep(cache.store().directory, 3600)
    assert not leftovers(), leftovers()
def sound(operation):
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert not children(), children()
    in_thread(lambda: check(operation))
    check(operation)
    check()
"""

MOMENTS = (
    PRELUDE
    + STATE
    + """
first, step, last = (float(word) for word in sys.argv[1:])
check()
came = count = 0
delay = first
while delay < last:
    forget()
    operation = tc.define(MM).mm
    timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        operation(A, B)
        time.sleep(last + 5)
    except KeyboardInterrupt:
        came += 1
    timer.join()
    count += 1
    sound(operation)
    delay += step
assert len(leftovers()) <= 2, leftovers()
sweep()
print(came, count)
"""
)


def interrupted_at_moments(folder: Path, first: float, step: float, last: float) -> tuple[int, int]:
    """Interrupts that came and that were sent, from ``first`` to ``last`` seconds after the begin of a first call."""
    variables = places(folder)
    output = run(MOMENTS, variables, [str(seconds) for seconds in (first, step, last)], seconds=900)
    came, sent = output.split()
    return int(came), int(sent)


@pytest.mark.long
def test_interrupts_at_many_moments_of_a_first_call(tmp_path: Path) -> None:
    came, sent = interrupted_at_moments(tmp_path, 0.0, 0.013, 0.3)
    assert came == sent >= 20


LINES = (
    PRELUDE
    + STATE
    + """
import linecache
MODULES = ("memo.py", "forks.py", "native.py", "toolchain.py", "processes.py", "cache.py", "filelocks.py",
           "interrupts.py", "specialisation.py", "kernel.py", "operation.py", "driver.py")
stride, begin = int(sys.argv[1]), int(sys.argv[2])
check()
class Tracer:
    # Sends an interrupt before the line with a number, of all lines of the modules that are executed.
    def __init__(self, at): self.at, self.count, self.place, self.last = at, 0, None, {}
    def __call__(self, frame, event, argument):
        code = frame.f_code
        if not (code.co_filename.endswith(MODULES) and "/tcomp/" in code.co_filename): return None
        before, self.last[frame] = self.last.get(frame, 0), frame.f_lineno
        # When a block is left its "with" is traced again, and "try" is traced before it protects.  Python itself looks
        # for signals at neither.
        text = linecache.getline(code.co_filename, frame.f_lineno)
        left = before > frame.f_lineno and text.lstrip().startswith("with ")
        if event == "line" and not left and text.strip() != "try:":
            self.count += 1
            if self.count == self.at:
                self.place = f"{code.co_filename}:{frame.f_lineno}"
                signal.raise_signal(signal.SIGINT)
        return self
def traced(at):
    forget()
    operation = tc.define(MM).mm
    tracer = Tracer(at)
    came = False
    sys.settrace(tracer)
    try:
        operation(A, B)
        sys.settrace(None)
    except KeyboardInterrupt:
        came = True
    finally:
        sys.settrace(None)
    return tracer, came, operation
total = traced(0)[0].count
count = 0
for at in range(begin, total + 1, stride):
    tracer, came, operation = traced(at)
    try:
        assert came or tracer.place is None, "the interrupt is lost"
        sound(operation)
    except BaseException:
        print("interrupted at", tracer.place, file=sys.stderr)
        raise
    count += 1
sweep()
print(count, total)
"""
)

COPYING = """#!/bin/sh
case "$1" in --version) exec gcc "$@";; esac
text=$(cat)
key={folder}/$(printf %s "$text" | cksum | cut -d" " -f1).so
for word in "$@"; do output=$word; done
[ -e "$key" ] || printf %s "$text" | gcc "$@" -o "$key"
exec cp "$key" "$output"
"""
"""A compiler that does each text once."""


def interrupted_at_lines(folder: Path, stride: int, begin: int = 1) -> tuple[int, int]:
    """Lines before which an interrupt was sent, every ``stride``-th, and lines that there are."""
    compiler = folder / "copying-cc"
    compiler.write_text(COPYING.format(folder=folder))
    compiler.chmod(0o755)
    changes = places(folder) | {"CC": str(compiler)}
    sent, total = run(LINES, changes, [str(stride), str(begin)], seconds=1800).split()
    return int(sent), int(total)


@pytest.mark.parametrize("begin", [1, 20])
def test_interrupts_before_many_lines_of_a_first_call(begin: int, tmp_path: Path) -> None:
    sent, total = interrupted_at_lines(tmp_path, 31, begin)
    assert sent >= total // 31 > 10


WAITING = {
    "for the compiler": "work = lambda: check()",
    "for another thread that compiles the same": """
operation = tc.define(MM).mm
threading.Thread(target=lambda: check(operation), daemon=True).start()
time.sleep(0.5)
work = lambda: check(operation)
""",
    "for another thread that uses isl": """
from tcomp.storage.forks import ISL
free = threading.Event()
def hold():
    with ISL.value: free.wait()
threading.Thread(target=hold, daemon=True).start()
time.sleep(0.2)
work = lambda: check()
""",
    "for another process that compiles the same": """
key = tc.define(MM).mm.compile  # any turn will do: all of them are taken
from tcomp.storage.filelocks import exclusive
from tcomp.storage.cache import store
directory = store().directory
def hold():
    import contextlib
    with contextlib.ExitStack() as stack:
        for number in range(256): stack.enter_context(exclusive(directory / f".lock-{number:02x}", 1))
        time.sleep(600)
child = os.fork()
if child == 0: hold()
time.sleep(1)
work = lambda: check()
""",
}


@pytest.mark.parametrize("name", WAITING)
def test_an_interrupt_ends_waiting(name: str, tmp_path: Path) -> None:
    program = (
        PRELUDE
        + WAITING[name]
        + """
threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT)).start()
begin = time.monotonic()
try: work()
except KeyboardInterrupt: print("interrupted" if time.monotonic() - begin < 30 else "late", flush=True)
if "child" in globals(): os.kill(child, signal.SIGKILL)
os._exit(0)
"""
    )
    changes = {"CC": str(sleeping_compiler(tmp_path)), **places(tmp_path)}
    assert run(program, changes, seconds=100).strip() == "interrupted"
    if (tmp_path / "compiling").exists() and name == "for the compiler":
        assert not any(is_running(compiler) for compiler in wait_for(tmp_path / "compiling"))
    if (tmp_path / "compiling").exists():
        kill(wait_for(tmp_path / "compiling"))


def test_an_interrupt_during_a_call(tmp_path: Path) -> None:
    """It comes when the kernel has ended, which it does not wait for longer than that; the next call is right."""
    program = (
        PRELUDE
        + """
mm = tc.define(MM).mm
big = np.ones((700, 700), np.float32)
mm(big, big)
for number in range(8):
    timer = threading.Timer(0.004 * number, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        while True: mm(big, big)
    except KeyboardInterrupt: pass
    timer.join()
    assert (mm(big, big) == 700).all()
print("right")
"""
    )
    assert run(program, places(tmp_path)).strip() == "right"


def test_an_interrupt_during_the_reference(tmp_path: Path) -> None:
    program = (
        PRELUDE
        + """
mm = tc.define(MM).mm
big = np.ones((120, 120), np.float32)
for number in range(8):
    timer = threading.Timer(0.004 * number, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        while True: mm.reference(big, big)
    except KeyboardInterrupt: pass
    timer.join()
    assert np.array_equal(mm.reference(A, B), A @ B)
    check(mm)
print("right")
"""
    )
    assert run(program, places(tmp_path)).strip() == "right"


def test_handlers_of_the_program_are_respected(tmp_path: Path) -> None:
    """A handler that raises something else raises that; one that returns is run, and the call succeeds."""
    program = (
        PRELUDE
        + """
class Stop(Exception): pass
def stop(number, frame): raise Stop
seen = []
from tcomp import driver
lower = driver.schedule
def interrupting(*arguments):
    signal.raise_signal(signal.SIGINT)
    return lower(*arguments)
driver.schedule = interrupting
signal.signal(signal.SIGINT, stop)
try: check()
except Stop: print("stopped")
assert signal.getsignal(signal.SIGINT) is stop
signal.signal(signal.SIGINT, signal.SIG_IGN)
check()
driver.schedule = lower
check()
"""
    )
    assert run(program, places(tmp_path)).strip() == "stopped"


def main() -> None:
    """Interrupts at more moments, and before every line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1)
    rounds = parser.parse_args().rounds
    for number in range(rounds):
        with tempfile.TemporaryDirectory(prefix="tcomp-test-") as name:
            came, sent = interrupted_at_moments(Path(name), number * 0.001 / rounds, 0.001, 0.3)
            sys.stdout.write(f"round {number}: {sent} interrupts at moments of a first call, {came} came\n")
    with tempfile.TemporaryDirectory(prefix="tcomp-test-") as name:
        sent, total = interrupted_at_lines(Path(name), 1)
        sys.stdout.write(f"interrupts before {sent} of {total} lines of a first call: all came, nothing hangs\n")


if __name__ == "__main__":
    main()
