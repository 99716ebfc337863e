"""The CPU benchmark's command line: which rows, which peers, how long."""

from __future__ import annotations

import argparse
import io
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks import cpu_limits, cpu_plot
from benchmarks.cpu_case import Case
from benchmarks.cpu_limits import Limits
from benchmarks.cpu_peer import MODULES, OURS
from benchmarks.cpu_results import Entry, Results, Row, share_of
from benchmarks.cpu_rounds import Patience, Protocol, first_calls, measure_row
from benchmarks.cpu_suites import PEERS, SUITES
from benchmarks.cpu_workers import MissingPeerError, Worker, WorkerError
from tcomp.backends.host import toolchain
from tcomp.commands.terminal.display import show_error, show_line
from tcomp.errors import TargetError


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure row after row and print the table.  Returns 1 if tcomp failed on a row."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)
    parser = _parser()
    values = parser.parse_args(arguments)
    cases = [case for case in SUITES[values.suite]() if not values.only or case.key in values.only]
    unknown = set(values.only) - {case.key for case in cases}
    if unknown or not cases:
        parser.error(f"suite {values.suite} has no {', '.join(sorted(unknown)) or 'rows'}")
    try:
        if values.plot is not None:
            cpu_plot.check()
        with tempfile.TemporaryDirectory(prefix="tcomp-benchmark-") as folder:
            return _run(values, cases, Path(folder))
    except (TargetError, WorkerError) as error:
        show_error(str(error))
        return 3


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    default = Protocol()
    parser.add_argument("--suite", choices=tuple(SUITES), default="w")
    parser.add_argument("--only", type=_names, default=(), metavar="W1,W6", help="these rows")
    parser.add_argument("--peers", type=_peers, metavar="numpy,torch", help="by default those that the suite is for")
    parser.add_argument("--threads", type=_positive, default=len(os.sched_getaffinity(0)), help="by default all cores")
    parser.add_argument("--rounds", type=_positive, default=default.rounds)
    parser.add_argument("--seconds", type=float, default=default.seconds, help="of a chunk: one peer in one round")
    parser.add_argument("--limit", type=float, default=default.limit, help="seconds that a peer may take for a row")
    parser.add_argument("--patience", type=float, default=300.0, help="seconds in all to repeat noisy chunks")
    parser.add_argument("--first-calls", type=int, default=default.first_calls, help="processes that try first calls")
    parser.add_argument("--json", type=Path, default=Path("out/benchmarks/cpu.json"))
    parser.add_argument("--plot", type=Path, metavar="FILE", help="bars of every row's ratio; needs matplotlib")
    return parser


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _peers(text: str) -> tuple[str, ...]:
    unknown = [name for name in _names(text) if name not in MODULES or name == OURS]
    if unknown:
        known = ", ".join(name for name in MODULES if name != OURS)
        raise argparse.ArgumentTypeError(f"no peer {', '.join(unknown)}; there are {known}")
    return _names(text)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def _run(values: argparse.Namespace, cases: Sequence[Case], folder: Path) -> int:
    protocol = Protocol(values.rounds, values.seconds, values.limit, values.first_calls)
    reference = Worker("numpy", values.threads, _made(folder / "reference"))
    wanted = (*(values.peers if values.peers is not None else PEERS[values.suite]), OURS)
    started = time.monotonic()
    workers: list[Worker] = []
    missing: dict[str, str] = {}
    try:
        for peer in wanted:
            worker = Worker(peer, values.threads, _made(folder / peer))
            try:
                worker.start()
                workers.append(worker)
            except MissingPeerError as error:
                missing[peer] = str(error)
                show_line(f"without {peer}: {error}")
        if OURS in missing:
            raise TargetError(f"tcomp cannot be imported: {missing[OURS]}")
        limits = _limits(values.threads)
        peers = [worker.peer for worker in workers if worker.peer != OURS]
        head = _head(values, limits, workers, missing)
        results = Results(head, peers, values.json)
        first = first_calls(values.suite, cases, values.threads, _made(folder / "first"), protocol)
        patience = Patience(values.patience)
        for case in cases:
            show_line(f"{time.monotonic() - started:.0f} s: {case.key} {case.title}")
            entries = measure_row(values.suite, case, workers, reference, folder, protocol, patience)
            ours = entries.get(OURS)
            if ours is not None and case.key in first:
                entries[OURS] = Entry(ours.times, first[case.key], 0.0, ours.distance, ours.problem)
            results.add(Row(case, entries, share_of(case, ours, limits)))
    finally:
        for worker in (*workers, reference):
            worker.stop()
    _show(results, limits, missing, values, time.monotonic() - started)
    return 0 if results.passed() else 1


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _limits(threads: int) -> Limits | None:
    """The machine's limits, or None where they cannot be measured."""
    try:
        return cpu_limits.measure(threads)
    except (OSError, subprocess.CalledProcessError) as error:
        show_line(f"without the machine's limits: {error}")
        return None


def _head(
    values: argparse.Namespace, limits: Limits | None, workers: Sequence[Worker], missing: dict[str, str]
) -> dict[str, Any]:
    return {
        "suite": values.suite,
        "threads": values.threads,
        "rounds": values.rounds,
        "seconds": values.seconds,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": _processor(),
        "python": platform.python_version(),
        "compiler": toolchain.find().version,
        "versions": {worker.peer: worker.version for worker in workers},
        "missing": missing,
        "limits": None if limits is None else asdict(limits),
    }


def _processor() -> str:
    """The processor's name by ``/proc/cpuinfo``, or what Python calls it."""
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def _show(
    results: Results, limits: Limits | None, missing: dict[str, str], values: argparse.Namespace, seconds: float
) -> None:
    print()
    results.show()
    if limits is not None:
        print(
            f"limits (threads: {values.threads}): {limits.flops / 1e9:.1f} GFLOP/s fp32, "
            f"{limits.int8_ops / 1e9:.0f} Gop/s int8, {limits.bandwidth / 1e9:.1f} GB/s copied"
        )
    for peer, why in missing.items():
        print(f"left out: {peer} ({why})")
    print(f"{seconds:.0f} s; written to {values.json}")
    if values.plot is not None:
        cpu_plot.draw(results.plain(), values.plot)
        print(f"drawn in {values.plot}")
