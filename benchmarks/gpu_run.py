"""The GPU benchmark's command line: which parts run, in which order, and for how long."""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import tcomp as tc
from benchmarks import gpu_corpus
from benchmarks.gpu_cases import CASES, COPY, QUICK, TUNED, different
from benchmarks.gpu_overhead import LIBRARIES
from benchmarks.gpu_results import NO_GPU, Results
from benchmarks.gpu_workers import Outcome, Part, Settings
from tcomp.arrays.devices import cuda_device, current_place, describe_devices
from tcomp.backends.cuda.runtime import architecture_at
from tcomp.commands.terminal.display import show_line
from tcomp.errors import TargetError
from tcomp.mapping.machines.gpu import DEFAULT_ARCHITECTURE, gpu_of

ON_GPU = ("corpus", "overhead", "cases", "sanitizer")
ON_REQUEST = ("tuned",)
ON_SIMULATOR = ("simulated", "corpus")
_UNTIL = {"corpus": 0.3, "overhead": 0.4, "cases": 0.85, "sanitizer": 1.0, "simulated": 1.0, "tuned": 1.0}
"""The share of the time limit at which a part must end; what one part leaves, the next ones have."""

_TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
_CLEAN = re.compile(r"SUMMARY: 0 (errors|hazards)")
_SANITIZER_SECONDS = 120.0
_VERSIONS = ("tcomp", "numpy", "islpy", "lark", "torch", "triton", "cupy-cuda13x", "cupy-cuda12x", "nvidia-cuda-nvrtc")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts, write the JSON after each item and print the tables.  Returns 1 if anything of tcomp is wrong."""
    parser = _parser()
    values = parser.parse_args(arguments)
    started = time.monotonic()
    settings = _settings(values.quick, values.simulator)
    parts = _parts(values, settings)
    if not any(part.items for part in parts):
        parser.error(f"there is nothing to run on {settings.target}: no such items, or no GPU for these parts")
    results = Results(values.json, _head(settings, parts))
    show_line(_title(settings))
    with _fresh_caches(settings):
        for part in parts:
            stop_at = started + values.time_limit * _UNTIL[part.name]
            if part.name == "sanitizer":
                _sanitize(part, stop_at, results)
            else:
                part.run(stop_at, results.add)
            done = sum(outcome.status == "done" for outcome in results.of(part.name))
            show_line(f"{time.monotonic() - started:.0f} s: {part.name}: {done} of {len(part.items)} done")
    results.show()
    show_line(f"written to {values.json}" if settings.on_gpu else f"{NO_GPU}\nwritten to {values.json}")
    return 0 if results.passed() else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="a few items of each part")
    parser.add_argument("--time-limit", type=float, default=540.0, help="seconds in all; what is not done is left out")
    parser.add_argument("--json", type=Path, default=Path("out/benchmarks/gpu.json"))
    parser.add_argument("--simulator", action="store_true", help="as if there were no GPU")
    parser.add_argument("--jobs", type=int, default=min(8, os.cpu_count() or 1), help="processes for the corpus")
    every = tuple(dict.fromkeys((*ON_GPU, *ON_SIMULATOR, *ON_REQUEST)))
    parser.add_argument("--parts", nargs="+", choices=every, help="by default all but tuned on a GPU; else simulated")
    parser.add_argument("--tune", type=float, default=60.0, metavar="SECONDS", help="for each case of the part tuned")
    parser.add_argument("--only", default="", metavar="TEXT", help="items whose names contain this")
    return parser


def _settings(quick: bool, simulator: bool) -> Settings:
    """For the current device, or for the simulator where there is none that tcomp knows."""
    try:
        architecture = "" if simulator else architecture_at(current_place())
    except TargetError as error:
        show_line(error.message)
        architecture = ""
    if not architecture:
        return Settings(f"simulator:{DEFAULT_ARCHITECTURE}", quick)
    return Settings(f"cuda:{architecture}", quick, case_seconds=1.0 if quick else 4.0)


def _parts(values: argparse.Namespace, settings: Settings) -> list[Part]:
    possible = (*ON_GPU, *ON_REQUEST) if settings.on_gpu else ON_SIMULATOR
    wanted = values.parts or (ON_GPU if settings.on_gpu else ("simulated",))
    cases = QUICK if values.quick else tuple(case.name for case in CASES)
    items = {
        "simulated": different(cases),
        "cases": (COPY, *cases),
        "tuned": TUNED,
        "overhead": LIBRARIES,
        "corpus": gpu_corpus.names(values.quick),
        "sanitizer": gpu_corpus.sample(values.quick),
    }
    chosen = {name: tuple(item for item in items[name] if values.only in item) for name in possible if name in wanted}
    tuning = replace(settings, tune_seconds=values.tune, item_seconds=settings.item_seconds + values.tune)
    return [
        Part(name, some, tuning if name == "tuned" else settings, jobs=values.jobs if name == "corpus" else 1)
        for name, some in chosen.items()
    ]  # fmt: skip


@contextmanager
def _fresh_caches(settings: Settings) -> Iterator[None]:
    """On a device nothing compiled before is found, by tcomp or its peers, so that first calls are comparable."""
    if not settings.on_gpu:
        yield
        return
    with tempfile.TemporaryDirectory(prefix="tcomp-benchmark-", ignore_cleanup_errors=True) as folder:
        for variable in ("TCOMP_CACHE", "CUPY_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
            os.environ[variable] = f"{folder}/{variable}"
        yield


def _sanitize(part: Part, stop_at: float, results: Results) -> None:
    """Every tool of compute-sanitizer over the sample; each makes one item."""
    sanitizer = shutil.which("compute-sanitizer")
    if sanitizer is None:
        results.add(Outcome(part.name, "compute-sanitizer", "left out", 0.0, "it is not on PATH"))
        return
    for tool in _TOOLS[:1] if part.settings.quick else _TOOLS:
        _sanitize_with(sanitizer, tool, part, stop_at, results)


def _sanitize_with(sanitizer: str, tool: str, part: Part, stop_at: float, results: Results) -> None:
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        log = f"{folder}/log-%p"  # One for each process: another goes on behind the first where a fault ended that.
        prefix = (sanitizer, "--tool", tool, "--log-file", log)
        settings = replace(part.settings, plain_memory=True, item_seconds=_SANITIZER_SECONDS)
        found: list[Outcome] = []
        replace(part, settings=settings, prefix=prefix).run(stop_at, found.append)
        logs = sorted(Path(folder).iterdir(), key=lambda path: path.stat().st_mtime)
        text = "".join(path.read_text(encoding="utf-8", errors="replace") for path in logs)
    seconds = round(time.monotonic() - started, 3)
    wrong = [f"{outcome.item}: {outcome.error}" for outcome in found if outcome.status == "failed"]
    summary = [line.strip("= ") for line in text.splitlines() if "SUMMARY" in line]
    clean = bool(summary) and all(_CLEAN.search(line) for line in summary)
    result: dict[str, Any] = {
        "verdict": f"{tool} {'clean' if clean else 'not clean'}",
        "programs": [outcome.item for outcome in found if outcome.status == "done"],
        "summary": summary,
    }
    if not clean:
        wrong.append(f"compute-sanitizer says: {text[-2000:] or 'nothing'}")
    results.add(Outcome(part.name, tool, "failed" if wrong else "done", seconds, "; ".join(wrong), result))


def _head(settings: Settings, parts: Sequence[Part]) -> dict[str, Any]:
    """What stands in the JSON before the outcomes."""
    facts: dict[str, Any] = {
        "benchmark": "gpu",
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "ran_on_gpu": settings.on_gpu,
        "target": settings.target,
        "quick": settings.quick,
        "parts_run": [part.name for part in parts],
        "machine": {"processor": platform.processor() or platform.machine(), "threads": os.cpu_count()},
        "versions": {"python": platform.python_version(), "tcomp": tc.__version__, **_versions()},
    }
    if not settings.on_gpu:
        return facts | {"note": NO_GPU}
    gpu = gpu_of(settings.architecture)
    return facts | {
        "device": describe_devices(),
        "driver": _driver(),
        "peaks": {"of": gpu.name, "flops": gpu.flops, "bytes_per_s": gpu.bandwidth},
        "method": "float32, TF32 off; medians of interleaved rounds of CUDA events around replays of captured graphs,"
        " each behind a flush of the L2 cache",
    }


def _versions() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in _VERSIONS[1:]:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def _driver() -> str:
    """What nvidia-smi says of driver and clocks."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return ""
    fields = "name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,power.limit"
    command = (program, f"--query-gpu={fields}", "--format=csv,noheader")
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout.strip()


def _title(settings: Settings) -> str:
    return f"{settings.target} on {cuda_device(current_place().device)}" if settings.on_gpu else NO_GPU
