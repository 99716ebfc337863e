"""Filesystem operations that kill the process or fail: the k-th, for every k.

``python -m tests.hostile.faultyfiles`` tries them all: one process compiles and calls a kernel and dies, or is refused,
at its k-th operation below the directories of the cache and of temporary files; the next must find nothing wrong.
"""

from __future__ import annotations

import argparse
import errno
import itertools
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import tcomp as tc
from tcomp.backends.host import toolchain
from tcomp.storage import cache

PROGRAM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
A = np.arange(12, dtype=np.float32).reshape(3, 4)
B = np.arange(20, dtype=np.float32).reshape(4, 5)

_PATHS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "os.listdir", "os.scandir"}
_RIGHT, _REFUSED, _WRONG, _WARNED = 0, 3, 4, 5


@dataclass(slots=True)
class Hook:
    """Counts the operations below some directories and calls ``strike`` in place of the one with number ``at``."""

    roots: tuple[str, ...]
    at: int
    strike: Callable[[], None]
    count: int = 0

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        """What ``sys.addaudithook`` takes."""
        touched = event == "fcntl.flock" or (
            event in _PATHS and isinstance(arguments[0], (str, os.PathLike)) and self._is_below(str(arguments[0]))
        )
        if touched:
            self.count += 1
            if self.count == self.at:
                self.strike()

    def _is_below(self, path: str) -> bool:
        return path.startswith(self.roots)


@dataclass(frozen=True, slots=True)
class Places:
    """The directory of the cache, and that of temporary files."""

    cache: Path
    scratch: Path

    def forked(self, work: Callable[[], int], before: Callable[[], None] = lambda: None) -> int:
        """The exit status of a child that works here; minus the signal that ended it."""
        child = os.fork()
        if child == 0:
            status = _WRONG
            try:
                os.environ["TCOMP_CACHE"] = str(self.cache)
                tempfile.tempdir = str(self.scratch)
                signal.alarm(60)
                before()
                status = work()
            finally:
                if sys.exc_info()[0] is not None:
                    traceback.print_exc()
                os._exit(status)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

    def hooked(self, work: Callable[[], int], at: int, strike: Callable[[], None]) -> int:
        """``forked`` with a fault."""
        hook = Hook((str(self.cache), str(self.scratch)), at, strike)
        return self.forked(work, lambda: sys.addaudithook(hook))

    def operations(self, work: Callable[[], int]) -> int:
        """How many operations ``work`` does."""
        reader, writer = os.pipe()

        def counted() -> int:
            hook = Hook((str(self.cache), str(self.scratch)), 0, lambda: None)
            sys.addaudithook(hook)
            status = work()
            os.write(writer, f"{hook.count}\n".encode())
            return status

        assert self.forked(counted) == _RIGHT
        with os.fdopen(reader) as lines:
            os.close(writer)
            return int(lines.readline())

    def age(self) -> None:
        """Make everything here look two days old."""
        old = time.time() - 2 * 86400
        for root in (self.cache, self.scratch):
            for path in (root, *root.rglob("*")):
                os.utime(path, (old, old), follow_symlinks=False)

    def leftovers(self) -> list[str]:
        """Files that no finished process leaves."""
        drafts = [path.name for path in self.cache.rglob(".draft-*")]
        return drafts + [path.name for path in self.scratch.iterdir()]


@contextmanager
def places() -> Iterator[Places]:
    """Empty ones."""
    root = Path(tempfile.mkdtemp(prefix="tcomp-test-"))
    try:
        (root / "scratch").mkdir()
        yield Places(root / "cache", root / "scratch")
    finally:
        shutil.rmtree(root, ignore_errors=True)


def call() -> int:
    """Compile and call a kernel as a new process does."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = tc.define(PROGRAM).mm(A, B)
        except tc.TcompError:
            return _REFUSED
    if not np.array_equal(result, A @ B):
        return _WRONG
    return _RIGHT if not caught else _WARNED if len(caught) == 1 else _WRONG


def _archive() -> Path:
    return Path(os.environ["TCOMP_CACHE"], "archive")


def export() -> int:
    """Write an archive of the cache below it."""
    try:
        cache.store().export_to(_archive())
    except tc.TcompError:
        return _REFUSED
    return _RIGHT


def bring_back() -> int:
    """Take over the archive that ``export`` wrote."""
    try:
        cache.store().import_from(_archive())
    except tc.TcompError:
        return _REFUSED
    return _RIGHT


def clear() -> int:
    """Remove all entries."""
    try:
        cache.store().clear()
    except tc.TcompError:
        return _REFUSED
    return _RIGHT


def filled(here: Places) -> None:
    """Fill the cache, and write an archive of it."""
    assert here.forked(call) == _RIGHT
    assert here.forked(export) == _RIGHT


def empty(here: Places) -> None:
    """Begin without a cache."""


@dataclass(frozen=True, slots=True)
class Scene:
    """What there is before, and what is done when the fault strikes."""

    name: str
    prepare: Callable[[Places], None]
    work: Callable[[], int]


SCENES = (
    Scene("a first call", empty, call),
    Scene("a call with a full cache", filled, call),
    Scene("export", filled, export),
    Scene("import", filled, bring_back),
    Scene("clear", filled, clear),
)


def kill() -> None:
    """End as no handler can prevent."""
    os.kill(os.getpid(), signal.SIGKILL)


def failing(number: int) -> Callable[[], None]:
    """Refuse the operation with this ``errno``."""

    def fail() -> None:
        raise OSError(number, os.strerror(number))

    return fail


def killed_everywhere(scene: Scene, step: int = 1) -> int:
    """Kill a process at each of its operations, or every ``step``-th; returns how many.

    AssertionError if a later process suffers.
    """
    with places() as here:
        scene.prepare(here)
        total = here.operations(scene.work)
    numbers = range(1, total + 1, step)
    for number in numbers:
        with places() as here:
            scene.prepare(here)
            status = here.hooked(scene.work, number, kill)
            assert status == -signal.SIGKILL, f"{scene.name}: operation {number} of {total}: {status}"
            assert here.forked(call) == _RIGHT, f"{scene.name}: killed at operation {number} of {total}"
            here.age()
            assert here.forked(clear_and_call) == _RIGHT
            assert not here.leftovers(), f"{scene.name}: operation {number} of {total} leaves {here.leftovers()}"
    return len(numbers)


def clear_and_call() -> int:
    """Compile once more, which sweeps."""
    clear()
    return call()


def refused_everywhere(scene: Scene, number_of_error: int, step: int = 1) -> int:
    """Refuse each operation, or every ``step``-th, in turn; returns how many.

    AssertionError unless the outcome is right or a TcompError.
    """
    with places() as here:
        scene.prepare(here)
        total = here.operations(scene.work)
    numbers = range(1, total + 1, step)
    for number in numbers:
        with places() as here:
            scene.prepare(here)
            status = here.hooked(scene.work, number, failing(number_of_error))
            where = f"{scene.name}: {errno.errorcode[number_of_error]} at operation {number} of {total}"
            assert status in (_RIGHT, _WARNED, _REFUSED), f"{where}: {status}"
            assert here.forked(call) == _RIGHT, where
    return len(numbers)


def cut_off_everywhere(step: int) -> int:
    """Kill a process after every so many bytes of each file that it writes into the cache; returns how often.
    AssertionError if a later process suffers."""
    with places() as here:
        filled(here)
        sizes = [next(here.cache.rglob(f"{kind}-*")).stat().st_size for kind in ("kernel", "source")]
    cuts = [(number, position) for number, size in enumerate(sizes) for position in range(0, size, step)]
    for number, position in cuts:
        with places() as here:
            status = here.forked(call, lambda cut=(number, position): sys.addaudithook(_limit_write(*cut)))
            assert status == -signal.SIGXFSZ, (number, position, status)
            for _ in range(2):
                assert here.forked(call) == _RIGHT, (number, position)
    return len(cuts)


def _limit_write(number: int, position: int) -> Callable[[str, tuple[object, ...]], None]:
    """A hook that kills this process when the file with a number, of those written into the cache, gets longer."""
    seen = itertools.count()

    def limit(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and ".draft-" in str(arguments[0]) and next(seen) == number:
            signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
            resource.setrlimit(resource.RLIMIT_FSIZE, (position, position))

    return limit


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Try everything, and count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scene", choices=[scene.name for scene in SCENES], help="only this one")
    parser.add_argument("--kind", choices=["kill", "cut", *_ERRORS], help="only this fault")
    parser.add_argument("--step", type=int, default=1000, help="bytes between two places where a write is cut off")
    chosen = parser.parse_args()
    toolchain.find()
    for scene in SCENES:
        if chosen.scene not in (None, scene.name):
            continue
        if chosen.kind in (None, "kill"):
            _say(f"{scene.name}: killed at {killed_everywhere(scene)} operations, all survived")
        for name, number in _ERRORS.items():
            if chosen.kind in (None, name):
                _say(f"{scene.name}: {name} at {refused_everywhere(scene, number)} operations, all survived")
    if chosen.kind in (None, "cut") and chosen.scene is None:
        _say(f"killed within a write at {cut_off_everywhere(chosen.step)} places, all survived")


_ERRORS = {
    errno.errorcode[e]: e for e in (errno.ENOSPC, errno.EIO, errno.EROFS, errno.EACCES, errno.EMFILE, errno.EDQUOT)
}

if __name__ == "__main__":
    main()
