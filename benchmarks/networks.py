"""Whole networks against PyTorch, torch.compile, ONNX Runtime and OpenVINO::

    python -m benchmarks.networks [--only mobilenet_v1,bert_4] [--batch 1,8] [--compiled] [--rounds 30] [--json FILE]

The modules (``networks_models.py``) have random weights.  Everything is checked against eager PyTorch first, then
measured in turn, so that whatever the machine does besides hits all; medians in milliseconds.  Peers take part where
they are installed and the module can be exported.  The first answer, cold and from the cache, and the memory that the
process grows by at its peak, are those of processes of their own.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import io
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import tcomp as tc
from benchmarks.gradients import machine
from benchmarks.networks_models import NETWORKS, made

_WARM_SECONDS = 0.06
"""How long a network runs before it is timed."""

Runs = dict[str, Callable[[], Any]]


def exported(module: nn.Module, x: torch.Tensor) -> bytes | None:
    """The network as a model of ONNX; None where that cannot be."""
    file = io.BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(module, (x,), file, dynamo=False)
    except Exception as error:  # noqa: BLE001  (then there are no such peers)
        print(f"cannot be exported: {str(error).splitlines()[0] if str(error) else type(error).__name__}")
        return None
    return file.getvalue()


def onnx_runtime(model: bytes, array: Any) -> Callable[[], Any]:
    """The network in ONNX Runtime.  Raises ImportError."""
    import onnxruntime  # noqa: PLC0415

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    # Its threads go on spinning after a run, on the processors that the next network needs.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    given = {session.get_inputs()[0].name: array}
    return lambda: session.run(None, given)[0]


def openvino(model: bytes, array: Any) -> Callable[[], Any]:
    """The network in OpenVINO, computed in float32 as by all others.  Raises ImportError."""
    import openvino as ov  # noqa: PLC0415

    core = ov.Core()
    settings = {
        "INFERENCE_NUM_THREADS": torch.get_num_threads(),
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_PRECISION_HINT": "f32",
    }
    request = core.compile_model(core.read_model(model, b""), "CPU", settings).create_infer_request()
    return lambda: next(iter(request.infer({0: array}).values()))


PEERS = {"ONNX Runtime": onnx_runtime, "OpenVINO": openvino}


def measure(name: str, batch: int, compiled: bool, rounds: int) -> dict[str, Any]:
    """Check and time one network; print its row, and return it."""
    module, x = made(name, batch)
    net = tc.compile_network(module, x)
    array = x.numpy()
    runs: Runs = {"tcomp": lambda: net(array), "eager": lambda: module(x).numpy()}
    if compiled:
        other = torch.compile(module)
        runs["compile"] = lambda: other(x).numpy()
    if (model := exported(module, x)) is not None:
        for label, make in PEERS.items():
            try:
                runs[label] = make(model, array)
            except ImportError:
                print(f"no {label}")
    with torch.inference_mode():
        expected = module(x).numpy()
        for label, run in runs.items():
            error = np.linalg.norm(run() - expected) / np.linalg.norm(expected)
            if error > 1e-4:
                raise SystemExit(f"{label} computes something else for {name}: {error:.1e}")
        times: dict[str, list[float]] = {label: [] for label in runs}
        for _ in range(rounds):
            for label, run in runs.items():
                # The threads of the one before may still be waiting for work, and take a processor meanwhile.
                ready = time.perf_counter() + _WARM_SECONDS
                while time.perf_counter() < ready:
                    run()
                start = time.perf_counter()
                run()
                times[label].append(time.perf_counter() - start)
    medians = {label: 1e3 * float(np.median(found)) for label, found in times.items()}
    lowest = {label: 1e3 * min(found) for label, found in times.items()}
    best = min(ms for label, ms in medians.items() if label != "tcomp")
    kept = net.weight_bytes + net.panel_bytes
    row = {"network": name, "batch": batch, "ms": medians, "lowest_ms": lowest, "ratio": best / medians["tcomp"]}
    row |= {"steps": len(net.steps), "kernels": net.kernels}
    row |= {"weights_and_panels_mb": kept / 1e6, "block_mb": net.places.bytes / 1e6} | firsts(name, batch)
    told = ", ".join(f"{label} {ms:.2f}" for label, ms in medians.items())
    print(
        f"{name} x {batch}: {told} ms (best peer / tcomp {row['ratio']:.2f}); {net.kernels} kernels; first answer after"
    )
    memory = f"weights and panels have {kept / 1e6:.0f} and results {net.places.bytes / 1e6:.0f}"
    first_answers = f"{row['cold_s']:.1f} s, {row['cached_s']:.2f} s from the cache"
    print(f"    {first_answers}; {row['grown_mb']:.0f} MB more at the peak, where {memory}", flush=True)
    return row


def firsts(name: str, batch: int) -> dict[str, float]:
    """Seconds to the first answer without and with a cache, and the growth of the second process at its peak."""
    with tempfile.TemporaryDirectory() as folder:
        found = []
        for _ in range(2):
            command = [sys.executable, "-m", "benchmarks.networks", "--first", name, "--batch", str(batch)]
            environment = os.environ | {"TCOMP_CACHE": folder}
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
            found.append(json.loads(done.stdout.splitlines()[-1]))
    cold, cached = found
    return {"cold_s": cold["seconds"], "cached_s": cached["seconds"], "grown_mb": cached["grown_mb"]}


def first(name: str, batch: int) -> None:
    """Compile a network that has been read, and run it once; print the seconds, and by how many MB this grew."""
    module, x = made(name, batch)
    network = tc.networks.from_torch(module, x)
    before = _peak_megabytes(reset=True)
    start = time.perf_counter()
    tc.compile_network(network)(x.numpy())
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "grown_mb": _peak_megabytes() - before}))


def _peak_megabytes(*, reset: bool = False) -> float:
    """The most memory that the process had, since it was reset; Linux tells."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e6


def _versions(*packages: str) -> dict[str, str]:
    found = {}
    for name in packages:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", help="names with commas between them", default=",".join(NETWORKS))
    parser.add_argument("--batch", help="numbers with commas between them", default="1,8")
    parser.add_argument("--compiled", action="store_true", help="torch.compile takes part")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--json", type=Path, help="write all rows into this file")
    parser.add_argument("--first", metavar="NAME", help="only the first answer of this network, in this process")
    values = parser.parse_args()
    batches = [int(batch) for batch in values.batch.split(",")]
    if values.first:
        first(values.first, batches[0])
        return
    rows = [measure(n, batch, values.compiled, values.rounds) for n in values.only.split(",") for batch in batches]
    ratios = [row["ratio"] for row in rows]
    print(f"best peer / tcomp: {np.exp(np.mean(np.log(ratios))):.2f} in the geometric mean, worst {min(ratios):.2f}")
    if values.json:
        facts = {
            "benchmark": "networks",
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "machine": machine() | _versions("onnxruntime", "openvino"),
            "rounds": values.rounds,
        }
        values.json.write_text(json.dumps(facts | {"rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
