"""Programs run in Python processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]

PRELUDE = """
import os, signal, sys, threading, time, warnings
signal.signal(signal.SIGINT, signal.default_int_handler)
import numpy as np
import tcomp as tc
MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
A = np.arange(12, dtype=np.float32).reshape(3, 4)
B = np.arange(20, dtype=np.float32).reshape(4, 5)
def check(operation=None):
    assert np.array_equal((operation or tc.define(MM).mm)(A, B), A @ B)
"""
"""What most of them begin with.  Shells let what they start in the background ignore interrupts."""


def environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    """This process' variables with some changed, or, where the value is None, without them."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("TCOMP_")}
    variables |= {"PYTHONPATH": str(ROOT), **{k: v for k, v in changes.items() if v is not None}}
    return {name: value for name, value in variables.items() if changes.get(name, "") is not None}


def start(program: str, changes: Mapping[str, str | None], arguments: Sequence[str] = ()) -> subprocess.Popen[bytes]:
    """A process that runs a program; its standard streams are pipes."""
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        env=environment(changes),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def run(program: str, changes: Mapping[str, str | None], arguments: Sequence[str] = (), seconds: float = 120) -> str:
    """What a program prints.  AssertionError, with what it says on stderr, if it fails; a hang ends it."""
    process = start(program, changes, arguments)
    try:
        output, errors = process.communicate(timeout=seconds)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 0, f"exit status {process.returncode}\n{errors.decode(errors='replace')}"
    return output.decode()
