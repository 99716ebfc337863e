"""Sandboxes survive what runs in them, and say what became of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tcomp.errors import TcompError
from tcomp.tuner.database.trials import Outcome
from tcomp.tuner.measuring.sandbox import Confines, Failure, Patience, Sandbox
from tests.tuner.tasks import Busy, Counted, Fail, Isolating, Overdue, Refused, Tell

pytestmark = pytest.mark.sweep(5)

CONFINES = Confines(30.0, memory=1 << 30)
LASTING = Confines(30.0, alone=False)


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    made = Sandbox({})
    yield made
    made.close()


def told(sandbox: Sandbox, confines: Confines = CONFINES, number: int = 0) -> tuple[Any, int]:
    """The setup's number and process, and the process of the task."""
    answer: Any = sandbox.run(Counted(number), Tell(), confines)
    assert not isinstance(answer, Failure), answer.message
    return answer


@pytest.mark.parametrize(
    ("way", "outcome", "words"),
    [
        ("segmentation fault", Outcome.CRASHED, "SIGSEGV while failing"),
        ("abort", Outcome.CRASHED, "SIGABRT while failing"),
        ("kill", Outcome.OUT_OF_MEMORY, "killed while failing"),
        ("exit", Outcome.CRASHED, "exit status 3 while failing"),
        ("python", Outcome.CRASHED, "ZeroDivisionError"),
        ("refusal", Outcome.REJECTED, "these options are no good"),
        ("memory", Outcome.OUT_OF_MEMORY, "memory"),
        ("chunks", Outcome.OUT_OF_MEMORY, "memory"),
        ("loop", Outcome.HUNG, "failing took more than 1 s"),
        ("nonsense", Outcome.CRASHED, "memory was damaged while failing"),
    ],
)
def test_a_failure_ends_one_task_alone(sandbox: Sandbox, way: str, outcome: Outcome, words: str) -> None:
    (_, server), _ = told(sandbox)
    failure = sandbox.run(Counted(), Fail(way), CONFINES)
    assert isinstance(failure, Failure)
    assert failure.outcome is outcome
    assert words in failure.message
    assert told(sandbox)[0] == (0, server), "the sandbox is the one from before"


def test_what_takes_too_long_may_be_slow_or_hung(sandbox: Sandbox) -> None:
    for outcome in (Outcome.SLOW, Outcome.HUNG):
        failure = sandbox.run(Counted(), Overdue(outcome), CONFINES)
        assert failure == Failure(outcome, "taking long took more than 0.2 s")


def test_each_task_has_a_child_of_its_own(sandbox: Sandbox) -> None:
    state, child = told(sandbox)
    again, other = told(sandbox)
    assert state == again, "the setup was made once"
    assert len({state[1], child, other, os.getpid()}) == 4


def test_another_setup_takes_the_place_of_the_first(sandbox: Sandbox) -> None:
    assert told(sandbox, number=1)[0][0] == 1
    assert told(sandbox, number=2)[0][0] == 2


def test_a_setup_may_ask_children(sandbox: Sandbox) -> None:
    answer: Any = sandbox.run(Isolating(), Tell(), CONFINES)
    (child, aborted, server), _ = answer
    assert child != server
    assert aborted.outcome is Outcome.CRASHED


def test_a_setup_that_fails_is_every_task_s_failure(sandbox: Sandbox) -> None:
    for _ in range(2):
        assert sandbox.run(Refused(), Tell(), CONFINES) == Failure(Outcome.REJECTED, "no such problem")
    assert told(sandbox)


def test_a_lasting_child_serves_until_the_first_failure(sandbox: Sandbox) -> None:
    _, first = told(sandbox, LASTING)
    assert told(sandbox, LASTING)[1] == first
    assert isinstance(sandbox.run(Counted(), Fail("abort"), LASTING), Failure)
    assert told(sandbox, LASTING)[1] != first


def test_what_a_task_started_ends_with_it(sandbox: Sandbox) -> None:
    failure = sandbox.run(Counted(), Fail("grandchild"), CONFINES)
    assert isinstance(failure, Failure)
    assert failure.outcome is Outcome.HUNG
    assert not running("sleep", "1000.25")


def test_a_sandbox_that_is_killed_is_started_again(sandbox: Sandbox) -> None:
    (_, server), _ = told(sandbox)
    os.kill(server, signal.SIGKILL)
    (_, other), _ = told(sandbox)
    assert other != server


def test_a_task_that_kills_its_sandbox_fails(sandbox: Sandbox) -> None:
    failure = sandbox.run(Counted(), Fail("sandbox"), CONFINES)
    assert isinstance(failure, Failure)
    assert failure.outcome is Outcome.CRASHED
    assert told(sandbox)


@pytest.mark.long
def test_a_sandbox_that_is_silent_is_given_up_if_it_does_nothing(sandbox: Sandbox) -> None:
    told(sandbox)
    sandbox.patience = Patience(answer=0.5, end=0.5)
    answer: Any = sandbox.run(Busy(2.0), Tell(), CONFINES)
    assert not isinstance(answer, Failure), answer.message
    _, server = answer[0]
    os.kill(server, signal.SIGSTOP)
    assert not isinstance(sandbox.run(Counted(), Tell(), CONFINES), Failure), "another one takes its place"
    assert eventually(lambda: not Path(f"/proc/{server}").exists())


def test_killing_a_sandbox_ends_a_wait_for_it(sandbox: Sandbox) -> None:
    told(sandbox)
    answers: list[object] = []
    thread = threading.Thread(target=lambda: answers.append(sandbox.run(Counted(), Fail("grandchild"), CONFINES)))
    thread.start()
    time.sleep(0.3)
    sandbox.kill()
    thread.join(20)
    assert not thread.is_alive()
    assert isinstance(answers[0], Failure)


def test_killing_a_sandbox_ends_its_start() -> None:
    """Its imports do not end."""
    sandbox = Sandbox({}, ["tests.tuner.slowstart"])
    answers: list[object] = []
    thread = threading.Thread(target=lambda: answers.append(sandbox.run(Counted(), Tell(), CONFINES)))
    thread.start()
    time.sleep(0.3)
    begin = time.monotonic()
    sandbox.kill()
    assert time.monotonic() - begin < sandbox.patience.end
    thread.join(sandbox.patience.end)
    assert not thread.is_alive()
    assert isinstance(answers[0], Failure)


def test_nothing_outlives_the_process_that_asked() -> None:
    program = """
import os, threading, time
from tcomp.tuner.measuring.sandbox import Confines, Sandbox
from tests.tuner.tasks import Counted, Fail
threading.Thread(target=lambda: Sandbox({}).run(Counted(), Fail("grandchild"), Confines(30.0)), daemon=True).start()
time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", program], start_new_session=True)
    try:
        assert eventually(lambda: running("sleep", "1000.25"))
    finally:
        process.kill()
        process.wait()
    assert eventually(lambda: not running("sleep", "1000.25"))


def test_a_sandbox_that_cannot_start_says_why() -> None:
    sandbox = Sandbox({}, ["no_such_module"])
    with pytest.raises(TcompError, match="no_such_module"):
        sandbox.run(Counted(), Tell(), CONFINES)
    sandbox.close()


def eventually(condition: Any, seconds: float = 30.0) -> bool:
    limit = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > limit:
            return False
        time.sleep(0.05)
    return True


def running(*command: str) -> bool:
    """Whether a process with this command line is alive."""
    wanted = "\0".join((*command, "")).encode()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if path.read_bytes() == wanted:
                return True
        except OSError:
            continue
    return False
