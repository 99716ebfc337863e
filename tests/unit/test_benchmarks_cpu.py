"""The CPU benchmark's own arithmetic, its programs at small sizes, and what a peer that fails costs it."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from benchmarks import cpu_plot, cpu_rounds, cpu_run
from benchmarks.cpu_case import Case, Einsum, Input, contraction
from benchmarks.cpu_cases import WORKLOADS, workloads
from benchmarks.cpu_formulas import reference
from benchmarks.cpu_limits import Limits
from benchmarks.cpu_more import more
from benchmarks.cpu_peer import OURS
from benchmarks.cpu_peer_numpy import NumPy
from benchmarks.cpu_peer_tcomp import Tcomp
from benchmarks.cpu_results import Entry, Results, Row, summary
from benchmarks.cpu_rounds import Patience, Protocol, rounds_within
from benchmarks.cpu_stopwatch import (
    TICK,
    Chunk,
    Times,
    busy_seconds,
    foreign_share,
    run_chunk,
    times_of,
    until_quiet,
)
from benchmarks.cpu_suites import SUITES, find
from benchmarks.cpu_tccg import contractions
from benchmarks.cpu_worker import TOLERANCE, Session, WrongResultError, distance
from benchmarks.cpu_workers import MissingPeerError, Worker, WorkerError
from tcomp.errors import TargetError
from tcomp.grammar.ranges.ranges import infer
from tcomp.grammar.ranges.sizes import bind_sizes

pytestmark = pytest.mark.sweep(4)

SUITES_FILE = Path(__file__).parents[2] / ".." / "shared" / "corpus" / "suites.json"
SMALL = (*workloads(small=True), *more(small=True))
EVERY = [case for suite in SUITES for case in SUITES[suite]()] + list(SMALL)


@pytest.fixture(scope="module")
def ours() -> Tcomp:
    return Tcomp()


@pytest.mark.parametrize("case", SMALL, ids=lambda case: f"{case.key} {case.title}")
def test_programs_compute_their_formulas(case: Case, ours: Tcomp) -> None:
    """Against NumPy in float64, and the reference against the interpreter, which shares nothing with it."""
    inputs, expected = case.make_inputs(), reference(case)
    made = ours.build(case, inputs)
    assert made is not None
    made.call()
    assert made.result().dtype == case.output_dtype
    assert distance(made.result(), expected) <= (0 if case.output_dtype == "int32" else 1e-5)
    (operation,) = tc.define(case.text)._operations.values()
    assert distance(np.asarray(operation.reference(*inputs, *case.constants)), expected) < 1e-5


@pytest.mark.parametrize("case", SMALL, ids=lambda case: f"{case.key} {case.title}")
def test_numpy_peer_is_verified_like_the_others(case: Case) -> None:
    made = NumPy().build(case, case.make_inputs())
    assert made is not None
    for _ in range(2):
        made.call()
    assert distance(made.result(), reference(case)) <= (0 if case.output_dtype == "int32" else TOLERANCE)


@pytest.mark.parametrize("module", ["torch", "inductor", "jax", "numba", "halide", "opt_einsum"])
@pytest.mark.long
def test_other_peers_compute_the_same(module: str) -> None:
    """Those that are installed here; all of them at the small sizes would take minutes, so a few cases of each."""
    package = {"inductor": "torch"}.get(module, module)
    pytest.importorskip(package)
    if module == "inductor" and shutil.which("g++") is None:
        pytest.skip("inductor needs g++")
    peer = pytest.importorskip(f"benchmarks.cpu_peer_{module}").peer()
    chosen = SMALL if module == "torch" else [case for case in SMALL if case.key in ("W5", "W7", "W14", "W17")]
    for case in chosen:
        made = peer.build(case, case.make_inputs())
        if made is not None:
            made.call()
            assert distance(made.result(), reference(case)) <= TOLERANCE, case.title


@pytest.mark.parametrize("case", EVERY, ids=lambda case: f"{case.key} {case.title}")
def test_shapes_are_those_that_the_program_infers(case: Case) -> None:
    (operation,) = tc.define(case.text)._operations.values()
    function = operation.function
    tensors = [tensor for tensor in function.inputs if tensor.role != "const"]
    constants = [tensor.name for tensor in function.inputs if tensor.role == "const"]
    shapes = {tensor.name: given.shape for tensor, given in zip(tensors, case.inputs, strict=True)}
    sizes = bind_sizes(function, shapes, dict(zip(constants, case.constants, strict=True)))
    assert infer(function, sizes).boxes[function.outputs[0].name].extent == case.output


def test_operations_and_bytes_are_those_of_the_definitions() -> None:
    cases = {case.key: case for case in workloads()}
    assert cases["W1"].flops == 2 * 1024**3 and cases["W4"].flops == 2 * 64 * 26 * 72 * 26
    assert cases["W6"].flops == 2 * 64 * 56 * 56 * 64 * 9
    assert cases["W8"].least_bytes == 4 * (128 * 58 * 58 + 128 * 9 + 128 * 56 * 56)
    assert cases["W14"].least_bytes == 4 * (128 * 50 * 65 + 128 * 64)
    assert cases["W15"].least_bytes == 5 * 4 * (8 << 20)
    assert cases["W17"].least_bytes == 2 * 512**2 + 4 * 512**2
    assert cases["W18"].flops == 2 * 2 * 16 * 256 * 256 * 64


def test_inputs_are_the_same_everywhere_and_lie_as_they_should() -> None:
    view = Input((3, 5), order=(1, 0))
    made = view.make(np.random.default_rng(1))
    assert made.shape == (3, 5) and made.T.flags.c_contiguous
    table = find("w", "W14")
    again = find("w", "W14").make_inputs()
    for one, two in zip(table.make_inputs(), again, strict=True):
        np.testing.assert_array_equal(one, two)
    assert again[1].min() >= 0 and again[1].max() < again[0].shape[0]


def test_contractions_are_those_of_tccg() -> None:
    full, cut = contractions(None), contractions(45.0)
    assert len(full) == len(cut) == 48
    assert max(case.flops for case in cut) <= 45e9 < max(case.flops for case in full)
    for whole, part in zip(full, cut, strict=True):
        assert part.formula == whole.formula
        assert part.flops == whole.flops if whole.flops <= 45e9 else part.flops > 10e9
    first = full[0]
    assert first.formula == Einsum("adb,cd->cba") and first.inputs[0].shape == (384, 384, 384)
    if SUITES_FILE.exists():
        listed = json.loads(SUITES_FILE.read_text())["tccg"]
        entries = [entry for family in ("intensli", "ao2mo", "ccsd", "ccsd_t") for entry in listed[family]]
        assert [round(case.flops / 1e9, 3) for case in full] == [entry["gflop"] for entry in entries]
        for case, entry in zip(full, entries, strict=True):
            assert isinstance(case.formula, Einsum)
            assert case.formula.subscripts == "{1},{2}->{0}".format(*(p[::-1] for p in entry["normalized"].split("-")))


def test_busy_time_counts_all_but_idle_of_the_processors_asked_for() -> None:
    text = "cpu  9 9 9 9 9 9 9 9 9 9\ncpu0 1 2 4 1000 1000 8 16 32 5 5\ncpu1 64 0 0 7 7 0 0 0 0 0\nintr 5 0\n"
    assert busy_seconds(text, [0]) == pytest.approx(63 * TICK)
    assert busy_seconds(text, [0, 1]) == pytest.approx(127 * TICK)


def test_foreign_share_forgives_a_tick_per_processor() -> None:
    assert foreign_share(busy=1.0, own=1.0 - 2 * TICK, wall=1.0, processors=2) == pytest.approx(0, abs=1e-9)
    assert foreign_share(busy=2.0, own=1.0, wall=1.0, processors=2) == pytest.approx((1 - 2 * TICK) / 2)
    assert foreign_share(busy=0.5, own=0.9, wall=1.0, processors=1) == 0
    assert foreign_share(busy=0.5, own=0.0, wall=0.0, processors=1) == 0


class Clock:
    """A clock that calls move on."""

    def __init__(self, durations: Iterator[float]) -> None:
        self.now, self._durations = 0.0, durations

    def __call__(self) -> float:
        return self.now

    def call(self) -> None:
        self.now += next(self._durations)


def test_a_chunk_has_a_warm_up_and_calls_for_its_time() -> None:
    clock = Clock(iter([0.25, *[0.125, 0.0625, 0.125, 0.5] * 10]))
    shares = iter([0.0, 0.9, 0.01])
    chunk = run_chunk(clock.call, 1.0, clock, lambda: next(shares))
    assert chunk.median_ms == 125 and chunk.least_ms == 62.5 and chunk.calls == 6
    assert chunk.foreign == 0.01, "what came before the first counted call is not held against it"


def test_a_call_longer_than_a_chunk_is_the_chunk() -> None:
    clock = Clock(iter([3.0]))
    shares = iter([0.9, 0.2])
    assert run_chunk(clock.call, 1.0, clock, lambda: next(shares)) == Chunk(3000, 3000, 1, 0.2)


def test_noisy_chunks_are_measured_again_and_the_quietest_is_kept() -> None:
    chunks = iter([Chunk(9, 9, 1, 0.5), Chunk(8, 8, 1, 0.3), Chunk(1, 1, 1, 0.0), Chunk(7, 7, 1, 0.0)])
    assert until_quiet(next(chunks), chunks.__next__, 3, lambda: True).median_ms == 1
    assert next(chunks).median_ms == 7, "a quiet one ends it"
    loud = [Chunk(9, 9, 1, 0.5), Chunk(8, 8, 1, 0.3), Chunk(7, 7, 1, 0.4), Chunk(6, 6, 1, 0.1)]
    assert until_quiet(loud[0], iter(loud[1:]).__next__, 2, lambda: True).median_ms == 8
    assert until_quiet(loud[0], iter(loud[1:]).__next__, 2, lambda: False).median_ms == 9
    assert until_quiet(Chunk(2, 2, 1, 0.0), iter(()).__next__, 2, lambda: True).median_ms == 2


def test_quiet_chunks_alone_count_where_half_are() -> None:
    quiet, noisy = [Chunk(1, 0.9, 10, 0.0), Chunk(3, 0.8, 10, 0.0)], [Chunk(50, 0.5, 1, 0.5)]
    assert times_of([*quiet, *noisy]) == Times(2, 0.8, 20, 3, noisy=False)
    mostly = times_of([quiet[0], *noisy * 2])
    assert mostly.noisy and mostly.median_ms == 50 and mostly.least_ms == 0.5


def test_a_slow_peer_has_fewer_rounds() -> None:
    protocol = Protocol(rounds=5, seconds=0.25, limit=60)
    assert rounds_within(protocol, 0.001) == 5
    assert rounds_within(protocol, 20.0) == 3
    assert rounds_within(protocol, 100.0) == 1


def entry(median: float, noisy: bool = False) -> Entry:
    return Entry(Times(median, median, 10, 5, noisy), 100.0, 0.0, 1e-7)


ROWS = (
    Row(find("w", "W1"), {"numpy": entry(8), "torch.compile": entry(4), OURS: entry(2)}, 0.9),
    Row(find("w", "W11"), {"numpy": entry(1, noisy=True), "torch.compile": entry(8), OURS: entry(2)}, 0.5),
    Row(find("w", "W6"), {"numpy": Entry(problem="WrongResultError: far away"), OURS: entry(2)}),
    Row(find("w", "W5"), {"numpy": entry(1), OURS: Entry(problem="given up after 60 s")}),
)


def test_ratios_are_the_peers_time_over_ours() -> None:
    assert [row.best_peer for row in ROWS] == ["torch.compile", "numpy", None, "numpy"]
    assert [row.ratio(row.best_peer) for row in ROWS] == [2, 0.5, None, None]
    found = summary(ROWS)
    assert found.against_best == pytest.approx(1) and found.against_compiler == pytest.approx(math.sqrt(8))
    assert found.worst == ("W11", 0.5) and found.without_ratio == ("W6", "W5")


def test_table_and_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    results = Results({"threads": 2}, ("numpy", "torch.compile"), tmp_path / "sub" / "cpu.json")
    for number, row in enumerate(ROWS, 1):
        results.add(row)
        assert len(json.loads((tmp_path / "sub" / "cpu.json").read_text())["rows"]) == number
    results.show()
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line}
    assert lines["W1"].split()[3:] == ["8.00", "4.00", "<", "2.00", "2.00", "2.00", "90", "%", "100", "ms"]
    assert "1.00* <" in lines["W11"] and "GB/s" in lines["W11"]
    assert lines["W6"].split()[-4:] == ["-", "2.00", "100", "ms"] and "failed" in lines["W6"]
    assert lines["worst"] == "worst row: W11, 0.50"
    assert not results.passed()
    written = json.loads((tmp_path / "sub" / "cpu.json").read_text())
    assert written["rows"][1]["ratio"] == 0.5 and written["summary"]["worst"] == ["W11", 0.5]


def test_share_of_limits() -> None:
    limits = Limits(flops=200e9, int8_ops=0.0, bandwidth=40e9)
    case = contraction("", "", "mk,kn->mn", [("m", 100), ("k", 100), ("n", 100)])
    assert limits.share(case, 0.1) == pytest.approx(2e6 / 200e9 / 1e-4)
    assert limits.share(find("w", "W17"), 1.0) is None
    assert limits.share(find("w", "W15"), 10.0) == pytest.approx(5 * 4 * (8 << 20) / 40e9 / 1e-2)


class Halves:
    """A peer whose results are half of what they should be, from the second build on."""

    version = "1"

    def __init__(self) -> None:
        self.builds = 0

    def build(self, case: Case, inputs: list[Any]) -> Any:
        made = NumPy().build(case, inputs)
        assert made is not None
        self.builds += 1
        if self.builds == 1:
            return made
        return type(made)(made.call, lambda: made.result() / 2)


def test_wrong_results_are_refused_before_they_are_timed(tmp_path: Path) -> None:
    case = SMALL[4]
    session = Session(Halves(), lambda suite, key: case)
    expected = str(tmp_path / "expected.npy")
    session.expect("w", case.key, expected)
    reply = session.build("w", case.key, expected)
    assert reply["supported"] and reply["distance"] < TOLERANCE and reply["first_ms"] > 0
    assert session.time(0.01)["calls"] >= 1
    with pytest.raises(WrongResultError, match=r"0\.5 of its norm"):
        session.build("w", case.key, expected)
    with pytest.raises(RuntimeError, match="nothing was built"):
        session.time(0.01)
    with pytest.raises(WrongResultError, match="shape"):
        distance(np.zeros(3), np.zeros(4))


POPEN = subprocess.Popen
STAND_IN = """
import json, os, sys, time
for line in sys.stdin:
    request = json.loads(line)
    reply = {"error": "", "version": "1", "supported": True, "first_ms": 1.0, "tuning_seconds": 0.0}
    reply |= {"distance": 0.0, "call_seconds": 0.001, "median_ms": 2.0, "least_ms": 1.0, "calls": 3, "foreign": 0.0}
    if request.get("key") == "W2" or request.get("peer") == "jax":
        reply = {"error": "not installed: no", "missing": True} if "peer" in request else {"error": "it is wrong"}
    if request.get("key") == "W3":
        print("it crashed here", file=sys.stderr, flush=True)
        os._exit(3)
    if request.get("key") == "W4":
        time.sleep(60)
    if request.get("do") == "expect":
        reply = {"error": ""}
        open(request["path"], "w").close()
    print(json.dumps(reply), flush=True)
"""


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text in the place of the worker."""
    monkeypatch.setattr(
        subprocess, "Popen", lambda command, **options: POPEN([sys.executable, "-c", STAND_IN], **options)
    )


@pytest.fixture
def folder_of(tmp_path: Path) -> Callable[[str], Path]:
    def made(name: str) -> Path:
        (tmp_path / name).mkdir()
        return tmp_path / name

    return made


@pytest.mark.usefixtures("stand_in")
def test_a_peer_that_fails_hangs_or_dies_costs_its_entry(folder_of: Callable[[str], Path]) -> None:
    worker = Worker("torch", 1, folder_of("torch"))
    try:
        assert worker.ask("time", 20, seconds=1)["calls"] == 3
        with pytest.raises(WorkerError, match="it is wrong"):
            worker.ask("build", 20, key="W2")
        with pytest.raises(WorkerError, match="status 3: it crashed here"):
            worker.ask("build", 20, key="W3")
        start = time.monotonic()
        with pytest.raises(WorkerError, match="given up after 1 s"):
            worker.ask("build", 1, key="W4")
        assert time.monotonic() - start < 20
        assert worker.ask("build", 20, key="W1")["supported"], "it is started again"
    finally:
        worker.stop()
    with pytest.raises(MissingPeerError):
        Worker("jax", 1, folder_of("jax")).start()


@pytest.mark.usefixtures("stand_in")
def test_a_row_is_measured_in_turn(folder_of: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_rounds, "_SETTLE_SECONDS", 0.0)
    asked: list[tuple[str, str]] = []
    ask = Worker.ask

    def noted(self: Worker, do: str, within: float, **values: Any) -> Any:
        asked.append((do, self.peer))
        return ask(self, do, within, **values)

    monkeypatch.setattr(Worker, "ask", noted)
    workers = [Worker(name, 1, folder_of(name)) for name in ("torch", "numba", OURS)]
    reference_worker = Worker("numpy", 1, folder_of("reference"))
    folder = folder_of("row")

    def measure(key: str) -> dict[str, Entry]:
        case, protocol = find("w", key), Protocol(rounds=3)
        return cpu_rounds.measure_row("w", case, workers, reference_worker, folder, protocol, Patience(1.0))

    try:
        entries = measure("W1")
        assert [e.times.median_ms for e in entries.values() if e.times] == [2, 2, 2]
        timed = [peer for do, peer in asked if do == "time"]
        assert timed == ["torch", "numba", OURS, "numba", OURS, "torch", OURS, "torch", "numba"]
        assert {e.problem for e in measure("W2").values()} == {"it is wrong"}
    finally:
        for worker in (*workers, reference_worker):
            worker.stop()


@pytest.mark.usefixtures("stand_in")
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_run, "_limits", lambda threads: None)
    path = tmp_path / "cpu.json"
    options = ["--rounds", "2", "--first-calls", "1", "--json", str(path)]
    assert cpu_run.main(["--only", "W1,W5", "--peers", "numpy,jax", *options]) == 0
    shown = capsys.readouterr().out
    assert "left out: jax (not installed: no)" in shown and "worst row: W1, 1.00" in shown
    written = json.loads(path.read_text())
    assert [row["key"] for row in written["rows"]] == ["W1", "W5"] and written["versions"] == {"numpy": "1", OURS: "1"}
    assert cpu_run.main(["--only", "W2", "--peers", "numpy", *options]) == 1, "tcomp failed"
    assert "W2: tcomp: it is wrong" in capsys.readouterr().out


def test_bad_command_lines(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments, message in (
        (["--only", "W1,W99"], "suite w has no W99"),
        (["--peers", "numpi"], "no peer numpi"),
        (["--threads", "0"], "at least 1"),
    ):
        with pytest.raises(SystemExit, match="2"):
            cpu_run.main(arguments)
        assert message in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(TargetError, match="matplotlib, which is not installed"):
        cpu_plot.check()
    assert cpu_run.main(["--only", "W1", "--plot", "x.png"]) == 3


def test_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    results = Results({"threads": 2}, ("numpy",))
    for row in ROWS:
        results.add(row)
    cpu_plot.draw(results.plain(), tmp_path / "sub" / "cpu.png")
    assert (tmp_path / "sub" / "cpu.png").read_bytes().startswith(b"\x89PNG")


def test_every_workload_has_small_sizes() -> None:
    for workload in WORKLOADS:
        assert workload.small.keys() == workload.full.keys()
        assert workload.make(workload.small).flops < 2e6
