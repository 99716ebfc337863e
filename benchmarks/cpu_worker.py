"""A process with one peer: requests as lines of JSON on stdin, replies as lines on stdout.

The first request is ``{"peer": ..., "threads": ...}``.  Then, any number of times: ``build`` with the case and the file
of the expected result, ``time`` with seconds, ``expect``, ``drop``.  Every reply has ``error``, empty if all is well.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from dataclasses import asdict
from typing import Any

import numpy as np

from benchmarks.cpu_case import Array, Case
from benchmarks.cpu_formulas import reference
from benchmarks.cpu_peer import MODULES, Implementation, Peer, limit_threads
from benchmarks.cpu_stopwatch import Load, run_chunk
from benchmarks.cpu_suites import find

TOLERANCE = 1e-4
"""Most that a result may be away from float64's, as a share of its norm."""

Reply = dict[str, Any]


class WrongResultError(Exception):
    """A peer computes something else."""


def distance(found: Array, expected: Array) -> float:
    """The norm of the difference over that of what is expected.  Raises WrongResultError if the shapes differ."""
    if found.shape != expected.shape:
        raise WrongResultError(f"the result has shape {found.shape}, not {expected.shape}")
    norm = float(np.linalg.norm(expected))
    return float(np.linalg.norm(found.astype(np.float64) - expected)) / (norm or 1.0)


class Session:
    """The peer of this process and the case that it has ready."""

    def __init__(self, peer: Peer, find: Callable[[str, str], Case]) -> None:
        self._peer, self._find = peer, find
        self._ready: Implementation | None = None

    def build(self, suite: str, key: str, expected: str = "") -> Reply:
        """Compile and call for the first time, verify against the file of what is expected, and call once more.

        ``supported`` is false if the peer has no such case.  Without a file nothing is verified.
        """
        self._ready = None
        case = self._find(suite, key)
        inputs = case.make_inputs()
        load = Load()
        start = time.perf_counter()
        ready = self._peer.build(case, inputs)
        if ready is None:
            return {"supported": False}
        ready.call()
        first = time.perf_counter() - start - ready.tuning_seconds
        foreign = load.share()
        error = distance(ready.result(), np.load(expected)) if expected else 0.0
        if not error <= (0 if case.output_dtype == "int32" else TOLERANCE):
            raise WrongResultError(f"the result is {error:.2g} of its norm away from float64's")
        start = time.perf_counter()
        ready.call()
        self._ready = ready
        return {
            "supported": True,
            "first_ms": 1e3 * first,
            "first_foreign": foreign,
            "tuning_seconds": ready.tuning_seconds,
            "distance": error,
            "call_seconds": time.perf_counter() - start,
        }

    def time(self, seconds: float) -> Reply:
        """A chunk of calls of what was built last."""
        if self._ready is None:
            raise RuntimeError("nothing was built")
        return asdict(run_chunk(self._ready.call, seconds))

    def expect(self, suite: str, key: str, path: str) -> Reply:
        """Write the float64 result of a case to a file."""
        np.save(path, reference(self._find(suite, key)))
        return {}

    def drop(self) -> Reply:
        """Let go of the case and its arrays."""
        self._ready = None
        return {}


def main() -> None:
    """Answer until stdin ends."""
    protocol = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # What libraries print must not get between the lines.

    def say(reply: Reply) -> None:
        protocol.write(json.dumps({"error": ""} | reply) + "\n")
        protocol.flush()

    requests = map(json.loads, sys.stdin)
    hello = next(requests)
    limit_threads(hello["threads"])
    try:
        with redirect_stdout(sys.stderr):
            peer: Peer = importlib.import_module(MODULES[hello["peer"]]).peer()
    except ImportError as problem:
        say({"error": f"not installed: {problem}", "missing": True})
        return
    say({"version": peer.version})
    session = Session(peer, find)
    methods: dict[str, Callable[..., Reply]] = {
        "build": session.build,
        "time": session.time,
        "expect": session.expect,
        "drop": session.drop,
    }
    for request in requests:
        try:
            say(methods[request.pop("do")](**request))
        except Exception as problem:  # noqa: BLE001  (recorded with the case; the others go on)
            say({"error": f"{type(problem).__name__}: {problem}"[:2000]})


if __name__ == "__main__":
    main()
