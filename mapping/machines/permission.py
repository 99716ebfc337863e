"""What the system has to grant before a process may use some registers of the processor."""

from __future__ import annotations

import ctypes
import functools
import platform
import sys

_ARCH_PRCTL = 158
_REQUEST, _TILE_DATA = 0x1023, 18
"""``ARCH_REQ_XCOMP_PERM`` and the number of the state component with AMX' tiles (Linux, ``asm/prctl.h``)."""


@functools.cache
def may_use_matrix_tiles() -> bool:
    """Whether the system lets this process, all threads of it, use the registers of AMX.  It is asked once.

    Linux 5.16 and newer know the question.  They refuse where a thread has a stack for signals that is too small for
    what these registers hold.
    """
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    system = ctypes.CDLL(None, use_errno=True)
    return bool(system.syscall(_ARCH_PRCTL, _REQUEST, _TILE_DATA) == 0)
