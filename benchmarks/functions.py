"""How fast the built-in functions are that tcomp brings itself, against the C library's and torch's, on one thread.

``python -m benchmarks.functions`` writes the table in docs/numerics.md; function names print their rows only.  Each
number is the least time of a call over an array that lies in the cache, the three taking turns; the second argument
of ``pow`` and ``hypot`` is 1.7.
"""

from __future__ import annotations

import argparse
import ctypes
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tcomp
from benchmarks.tables import write_table
from tcomp.backends.host import toolchain
from tcomp.values.intrinsics import INTRINSICS
from tcomp.values.vectormath import VECTORISED

COUNT = 1 << 14
"""Elements: 64 KiB of float32, 128 KiB of float64."""

ROUNDS = 60
CALLS = 20
"""Calls of one measurement, for a single one takes microseconds."""

MARK = "function times"

HEAD = (
    "| function | type | ns per element | C library / tcomp | torch / tcomp |",
    "|---|---|---|---|---|",
)

RANGES = {"log": (0.1, 100), "log2": (0.1, 100), "log10": (0.1, 100), "log1p": (-0.9, 100), "pow": (0.1, 10)}
"""Elsewhere arguments lie between -10 and 10."""

DTYPES: dict[str, np.dtype[Any]] = {"float": np.dtype(np.float32), "double": np.dtype(np.float64)}

Call = Callable[[], Any]


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds per element; ``torch`` is None where torch has no such function."""

    tcomp: float
    library: float
    torch: float | None


def own_call(name: str, c_type: str, x: np.ndarray[Any, Any]) -> Call:
    """The function in a kernel."""
    value = f"{name}(X(i){', 1.7' * (INTRINSICS[name].arity - 1)})"
    operation = tcomp.define(f"def f({c_type}(N) X) -> ({c_type}(N) Y) {{ Y(i) = {value} }}", tune="off").f
    kernel = operation.compile(x, target="cpu", options=tcomp.MappingOptions(parallel=False))
    out = np.empty_like(x)
    return lambda: kernel(x, out=out)


def library_call(name: str, c_type: str, x: np.ndarray[Any, Any], folder: Path) -> Call:
    """The same loop around the C library's function."""
    suffix = "f" if c_type == "float" else ""
    if name == "sigmoid":
        head, value = f"{c_type} exp{suffix}({c_type});", f"1 / (1 + exp{suffix}(-x[i]))"
    else:
        second = INTRINSICS[name].arity == 2
        head = f"{c_type} {name}{suffix}({c_type}{f', {c_type}' if second else ''});"
        value = f"{name}{suffix}(x[i]{f', ({c_type})1.7' if second else ''})"
    loop = f"{{ for (long i = 0; i < n; ++i) y[i] = {value}; }}"
    text = f"{head}\nvoid run(long n, {c_type} *restrict y, const {c_type} *restrict x) {loop}\n"
    path = folder / f"{name}_{c_type}.so"
    path.write_bytes(toolchain.compile_shared(toolchain.find(), text, (), name))
    run, out = ctypes.CDLL(str(path)).run, np.empty_like(x)
    return lambda: run(ctypes.c_long(x.size), ctypes.c_void_p(out.ctypes.data), ctypes.c_void_p(x.ctypes.data))


def torch_call(name: str, x: np.ndarray[Any, Any]) -> Call | None:
    """torch's function into an array that is there already."""
    function = getattr(torch, name, None)
    if function is None:
        return None
    arguments = [torch.from_numpy(x), torch.tensor(1.7, dtype=torch.from_numpy(x).dtype)][: INTRINSICS[name].arity]
    out = torch.empty_like(arguments[0])
    return lambda: function(*arguments, out=out)


def measure(name: str, c_type: str, folder: Path) -> Times:
    """The least times of the three, in turns."""
    low, high = RANGES.get(name, (-10, 10))
    x = np.random.default_rng(0).uniform(low, high, COUNT).astype(DTYPES[c_type])
    calls = [own_call(name, c_type, x), library_call(name, c_type, x, folder), torch_call(name, x)]
    best = [np.inf] * len(calls)
    for _ in range(ROUNDS):
        for position, call in enumerate(calls):
            if call is not None:
                best[position] = min(best[position], _seconds(call))
    return Times(best[0] / COUNT, best[1] / COUNT, best[2] / COUNT if calls[2] else None)


def _seconds(call: Call) -> float:
    begin = time.perf_counter()
    for _ in range(CALLS):
        call()
    return (time.perf_counter() - begin) / CALLS


def row_text(name: str, c_type: str, times: Times) -> str:
    """A row of the table."""
    torch_ratio = "-" if times.torch is None else f"{times.torch / times.tcomp:.1f}"
    ratios = f"{times.library / times.tcomp:.1f} | {torch_ratio}"
    return f"| `{name}` | {DTYPES[c_type].name} | {times.tcomp * 1e9:.2f} | {ratios} |"


def main() -> None:
    """Measure the functions that the command line names; all of them rewrite the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("functions", nargs="*", metavar="FUNCTION")
    names = parser.parse_args().functions
    torch.set_num_threads(1)
    lines = list(HEAD)
    with tempfile.TemporaryDirectory() as folder:
        for name, c_type in VECTORISED:
            if not names or name in names:
                lines.append(row_text(name, c_type, measure(name, c_type, Path(folder))))
                print(lines[-1], flush=True)
    if not names:
        write_table(MARK, lines)


if __name__ == "__main__":
    main()
