"""Checks that fail on a device after the call that runs them has returned: noticed later, raised with their message.

Kernels write what they found into memory that host and device share.  Nobody waits for them, so the next call on a
device raises it, or whoever waits for a device through tcomp; what nobody has asked for is printed when the process
ends.
"""

from __future__ import annotations

import atexit
import ctypes
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

FLAG = 2
"""The word of a report that is not 0 once a check has failed."""


class LateReport:
    """The words in which kernels of one program report on one device, at ``address``, which ``memory`` keeps alive.

    ``failure`` gives the error for a report, ``settle`` waits for the device and raises TcompError where it fails.
    """

    def __init__(
        self, memory: object, address: int, words: int,
        failure: Callable[[Sequence[int]], Exception], settle: Callable[[], object],
    ) -> None:  # fmt: skip
        self.address = address
        self.kept = False
        """Whether kernels may write it again without a call of tcomp, as those of a CUDA graph."""
        self._memory = memory
        self._failure = failure
        self._settle = settle
        self.words: Any = (ctypes.c_int64 * words).from_address(address)
        self.words[:] = [0] * words

    def taken(self) -> Exception | None:
        """The error, once the device is at rest; afterwards there is none.  None if another thread has taken it.

        Raises what ``settle`` does; then it is still there.
        """
        with LAUNCHING:
            self._settle()
            report = tuple(self.words)
            self.words[:] = [0] * len(report)
        return self._failure(report) if report[FLAG] else None

    def described(self) -> Exception:
        """The error, as far as it was written."""
        return self._failure(tuple(self.words))


WATCHED: dict[LateReport, None] = {}
"""Reports of kernels that were launched since somebody waited for their device.

One is entered behind its launches, and who waits takes it out before that: so none is missed."""

LAUNCHING = threading.Lock()
"""Held while kernels that report are launched, and while a report is taken, so that nothing is written meanwhile."""


def raise_found() -> None:
    """Raise what kernels have found so far, the first of it.  Does not wait unless there is something."""
    for report in tuple(WATCHED):
        if report.words[FLAG]:
            error = report.taken()
            if error is not None:
                raise error


def raise_after(wait: Callable[[], object]) -> None:
    """Wait for all devices, and raise what kernels have found.  Reports in which they found nothing are let go of."""
    before = [report for report in tuple(WATCHED) if not report.kept]
    for report in before:
        WATCHED.pop(report, None)
    done = False
    try:
        wait()
        done = True
    finally:
        WATCHED.update(dict.fromkeys(report for report in before if report.words[FLAG] or not done))
    raise_found()


@atexit.register
def _print_unread() -> None:
    for report in tuple(WATCHED):
        if report.words[FLAG]:
            sys.stderr.write(f"a kernel failed, and no later call told: {report.described()}\n")
