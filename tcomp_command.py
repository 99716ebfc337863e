"""How the command ``tcomp`` starts and ends: quietly, at whatever moment it is interrupted.

It stands outside the package because importing anything inside takes half a second, and Ctrl-C comes then, too.
"""

from __future__ import annotations

import importlib
import io
import os
import signal
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import NoReturn

_ENDINGS = {number: 128 + number for number in (signal.SIGINT, signal.SIGTERM)}
"""Exit statuses as shells give them for processes that a signal has killed."""


def main() -> int:
    """Run ``tcomp`` on the arguments of the process and return its exit status."""
    heeded = [number for number in _ENDINGS if signal.getsignal(number) is not signal.SIG_IGN]
    _handle(heeded, _leave)
    _open_streams()
    command_line = importlib.import_module("tcomp.cli")
    try:
        _handle(heeded, _unwind)
        status: int = command_line.main()
    except KeyboardInterrupt:
        status = _ENDINGS[signal.SIGINT]
    finally:
        _handle(heeded, _leave)
    return status


def _open_streams() -> None:
    """Give a process that was started without standard streams some that lead nowhere: a file that it opens later
    would get their numbers, and then what others write to them.  All can write any text."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    sys.stdin = sys.stdin or os.fdopen(0, encoding="utf-8")
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8")
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # what a terminal cannot show is not worth a failure


def _handle(signals: Sequence[signal.Signals], handler: Callable[[int, FrameType | None], NoReturn]) -> None:
    for number in signals:
        signal.signal(number, handler)


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    """End at once: nothing has begun, or all is done."""
    os._exit(128 + number)


def _unwind(number: int, _frame: FrameType | None) -> NoReturn:
    """End by an exception, so that compilers are stopped and temporary files removed; the next signal does not wait."""
    signal.signal(number, _leave)
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(_ENDINGS[signal.Signals(number)])


if __name__ == "__main__":
    sys.exit(main())
