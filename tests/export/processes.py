"""Programs that are exported, and processes that have nothing of Python's."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

GCC = shutil.which("gcc")
needs_gcc = pytest.mark.skipif(GCC is None, reason="there is no gcc")
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror", "-Wmissing-prototypes")

SOFTMAX = """
def softmax(float(N,D) X) -> (Y) {
    m(n) max=! X(n,d)   e(n,d) = exp(X(n,d) - m(n))   s(n) +=! e(n,d)   Y(n,d) = e(n,d) / s(n)
}"""
LOOKUP = "def lookup(float(V,D) T, int32(N) at) -> (Y) { Y(n,d) = T(at(n),d) where d in 0:D }"


def run(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A process that has nothing of Python's."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
