"""The GPU benchmark where there is no GPU: its simulated cases, its peers' formulas, and what a crash costs it."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import gpu_run, gpu_simulated
from benchmarks.gpu_cases import BY_NAME, CASES, Case
from benchmarks.gpu_results import Results
from benchmarks.gpu_simulated import WrongResultError, inputs_for, operation_of, simulate
from benchmarks.gpu_workers import Outcome, Part, Settings
from tcomp.backends.simulator.compiler import why_not
from tcomp.grammar.ranges.ranges import infer
from tcomp.operation import Operation

pytestmark = pytest.mark.sweep(3)

TARGET = "simulator:sm_90"
SUITES = Path(__file__).parents[2] / ".." / "shared" / "corpus" / "suites.json"
needs_simulator = pytest.mark.skipif(why_not() is not None, reason=why_not() or "")


@needs_simulator
def test_the_command_runs_simulated_cases_and_says_that_no_gpu_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "gpu.json"
    assert gpu_run.main(["--simulator", "--only", "LUT", "--json", str(path)]) == 0
    assert capsys.readouterr().out.count("No GPU has run this") == 2
    written = json.loads(path.read_text())
    assert written["ran_on_gpu"] is False and "No GPU has run this" in written["note"]
    assert [entry["item"] for entry in written["parts"]["simulated"]] == ["1LUT", "2LUT"]
    assert all(entry["status"] == "done" and entry["result"]["kernels"] for entry in written["parts"]["simulated"])


def test_nothing_to_run_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--parts", "cases"], ["--only", "no such case"]):
        with pytest.raises(SystemExit, match="2"):
            gpu_run.main(["--simulator", *arguments, "--json", str(tmp_path / "gpu.json")])
        assert "there is nothing to run on simulator:sm_90" in capsys.readouterr().err


@needs_simulator
def test_counted_traffic_of_one_table() -> None:
    """Every row that is looked up is read once: 128 x 50 rows of 64 floats, and 128 x 50 indices."""
    case = BY_NAME["1LUT"]
    result = simulate(case, TARGET)
    (kernel,) = result["kernels"]
    rows = [a for a in kernel["accesses"] if a["buffer"] == "LUT1"]
    assert sum(a["bytes"] for a in rows) == 128 * 50 * 64 * 4
    assert kernel["bytes_written"] == 128 * 64 * 4
    assert result["least_bytes"] == 4 * (128 * 50 * 65 + 128 * 64) <= result["sector_bytes"]


@needs_simulator
def test_a_wrong_kernel_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    case = BY_NAME["1LUT"]
    reference = Operation.reference
    monkeypatch.setattr(Operation, "reference", lambda self, *a: reference(self, *a) * np.float32(1.001))
    with pytest.raises(WrongResultError, match="away from the interpreter's"):
        simulate(case, TARGET)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_least_bytes_are_those_of_the_tensors(case: Case) -> None:
    function = operation_of(case).function
    for sizes in (case.sizes, case.small):
        boxes = infer(function, dict(sizes)).boxes
        tables = {t.name for t in function.inputs if t.name.startswith("LUT")}
        names = {t.name for t in (*function.inputs, *function.outputs)} - tables
        least = sum(4 * math.prod(boxes[name].extent) for name in names)
        least += sum(4 * sizes["B"] * sizes[f"L{name[-1]}"] * sizes["D"] for name in tables)
        assert case.least_bytes(sizes) == least


@pytest.mark.parametrize("case", {case.formula: case for case in CASES}.values(), ids=lambda case: case.formula)
def test_peers_compute_the_same(case: Case) -> None:
    torch: Any = pytest.importorskip("torch")
    from benchmarks.gpu_peers import EAGER, FUSIBLE

    small = case.small
    if "convolution" not in case.name:
        small = {name: max(2, value // 4) for name, value in case.small.items()}
    operation = operation_of(case)
    inputs = inputs_for(case, operation, dict(small))
    expected = operation.reference(*inputs)
    wanted = expected if isinstance(expected, tuple) else (expected,)
    for peers in (EAGER, FUSIBLE):
        outputs = peers[case.formula](*map(torch.from_numpy, inputs))
        found = outputs if isinstance(outputs, tuple) else (outputs,)
        assert gpu_simulated.distance([f.numpy() for f in found], wanted) < 1e-5


def test_cases_are_those_of_tensor_comprehensions() -> None:
    if not SUITES.exists():
        pytest.skip("the suites are not here")
    listed = json.loads(SUITES.read_text())["tensor_comprehensions"]["cases"]
    names = {
        "batchmatmul": "tbmm",
        "group_convolution": "group convolution",
        "tmm": "tmm",
        "kronecker": "Kronecker",
        "MLP_model": "",
    }
    for entry in listed:
        start = names.get(entry["bench"])
        if start is None:
            continue
        found = [c for c in CASES if c.name.startswith(start or entry["case"])]
        assert any(c.sizes.items() <= entry["params"].items() for c in found), entry


POPEN = subprocess.Popen
WORKER = """
import json, os, sys, time
task = json.load(sys.stdin)
for item in task["items"]:
    print(json.dumps({"begin": item}), flush=True)
    if item == "crash":
        print("it crashed here", file=sys.stderr, flush=True)
        os._exit(3)
    if item == "hang":
        time.sleep(60)
    print(json.dumps({"status": "done", "seconds": 0, "error": "", "result": {"item": item}}), flush=True)
"""


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a text in the place of the worker."""

    def put(text: str) -> None:
        monkeypatch.setattr(
            subprocess, "Popen", lambda command, **options: POPEN([sys.executable, "-c", text], **options)
        )

    return put


def run(items: tuple[str, ...], seconds: float = 60.0, jobs: int = 1) -> dict[str, Outcome]:
    found: dict[str, Outcome] = {}
    part = Part("cases", items, Settings(TARGET, item_seconds=1.0), jobs=jobs)
    part.run(time.monotonic() + seconds, lambda outcome: found.update({outcome.item: outcome}))
    return found


def test_a_crash_and_a_hang_cost_one_item_each(stand_in: Callable[[str], None]) -> None:
    stand_in(WORKER)
    found = run(("a", "crash", "b", "hang", "c"))
    assert {name: outcome.status for name, outcome in found.items()} == {
        "a": "done", "crash": "failed", "b": "done", "hang": "failed", "c": "done",
    }  # fmt: skip
    assert "status 3: it crashed here" in found["crash"].error
    assert "given up after 1 s" in found["hang"].error


def test_every_item_has_an_outcome_whatever_happens(stand_in: Callable[[str], None]) -> None:
    stand_in("raise SystemExit('no such module')")
    assert {outcome.status for outcome in run(("a", "b", "c"), jobs=2).values()} == {"failed"}
    assert "no such module" in run(("a",))["a"].error
    stand_in(WORKER)
    late = run(("a", "hang", "b"), seconds=0.5)
    assert late["hang"].status == late["b"].status == "left out"


SANITIZER = """#!/bin/sh
# compute-sanitizer --tool TOOL --log-file FILE COMMAND...
echo "========= ERROR SUMMARY: {errors} errors" >"${{4%-%p}}-$$"
shift 4
exec "$@"
"""


@needs_simulator
@pytest.mark.parametrize(("errors", "status"), [(0, "done"), (10, "failed")])
def test_what_the_sanitizer_says_counts(tmp_path: Path, errors: int, status: str) -> None:
    program = tmp_path / "compute-sanitizer"
    program.write_text(SANITIZER.format(errors=errors))
    program.chmod(0o755)
    results = Results(tmp_path / "gpu.json", {})
    part = Part("simulated", ("1LUT",), Settings(TARGET))
    gpu_run._sanitize_with(str(program), "memcheck", part, time.monotonic() + 60, results)
    (outcome,) = results.outcomes
    assert outcome.status == status and outcome.result["programs"] == ["1LUT"], outcome.error
    assert ("10 errors" in outcome.error) == bool(errors)


def test_results_are_written_after_every_item(tmp_path: Path) -> None:
    results = Results(tmp_path / "sub" / "gpu.json", {"target": TARGET})
    assert json.loads((tmp_path / "sub" / "gpu.json").read_text()) == {"target": TARGET, "parts": {}}
    results.add(Outcome("corpus", "a", "done", result={"verdict": "equal"}))
    assert results.passed() and not results.problems()
    peers = {"torch.compile": {"problem": "RuntimeError: no"}, "tcomp": {"problem": "AssertionError: off"}}
    results.add(Outcome("cases", "b", "done", result={"implementations": {"torch.compile": peers["torch.compile"]}}))
    assert results.passed() and results.problems() == ["cases: b: torch.compile: RuntimeError: no"]
    results.add(Outcome("cases", "c", "done", result={"implementations": peers}))
    assert not results.passed()
    results.show()
    written = json.loads((tmp_path / "sub" / "gpu.json").read_text())["parts"]
    assert [entry["item"] for entry in written["cases"]] == ["b", "c"]
    assert not replace(results.outcomes[0]).error
