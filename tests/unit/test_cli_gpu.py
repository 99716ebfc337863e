"""The command line without a GPU: what NVRTC makes of a def, and what the simulator says of it."""

from __future__ import annotations

import itertools
import json
import math
import re
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import islpy as isl
import numpy as np
import pytest
from rich.console import Console

from tcomp import cli, debug
from tcomp.backends.cuda.target import CudaBackend
from tcomp.backends.cuda.tools import nvrtc, sass
from tcomp.backends.simulator.compiler import why_not
from tcomp.backends.simulator.simulation import Simulation, load
from tcomp.backends.source import Source
from tcomp.commands.run import Comparison
from tcomp.commands.terminal import blocks
from tcomp.commands.terminal.roofline import Point, attainable, bound, least_seconds, picture, ridge
from tcomp.driver import lower
from tcomp.errors import TargetError
from tcomp.grammar import define
from tcomp.mapping.machines.gpu import GPUS, gpu_of
from tcomp.mapping.options.options import NAMED, MappingOptions
from tcomp.mapping.tiles.flops import flops_of, instances
from tcomp.model.terms.sizes import Sizes
from tcomp.model.tolerance import Tolerance

pytestmark = pytest.mark.sweep(3)

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }\n"
SIZES = ("--sizes", "M=64,N=32,K=48")
SM = ("--target", "cuda:sm_80")


def there(find: Any) -> bool:
    try:
        find()
    except TargetError:
        return False
    return True


NEEDS_NVRTC = pytest.mark.skipif(not there(nvrtc.find), reason="there is no NVRTC")
NEEDS_DISASSEMBLER = pytest.mark.skipif(not there(sass.find), reason="there is no disassembler")
NEEDS_SIMULATOR = pytest.mark.skipif(why_not() is not None, reason=why_not() or "")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    for variable in debug.VARIABLES:
        monkeypatch.delenv(variable.name, raising=False)
    monkeypatch.setenv("TCOMP_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


@pytest.fixture
def mm(tmp_path: Path) -> str:
    path = tmp_path / "mm.tc"
    path.write_text(MM)
    return str(path)


def run(*arguments: str) -> int:
    """The exit status, whether the command returns it or argparse raises it."""
    try:
        return cli.main(arguments)
    except SystemExit as stop:
        return int(str(stop.code))


class TestCompile:
    def test_stages_need_no_tool(
        self, mm: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(nvrtc, "find", lambda *_: pytest.fail("NVRTC is not needed"))
        assert run("compile", mm, *SIZES, *SM, "--emit", "list") == 0
        stages = capsys.readouterr().out.split()
        assert stages[:4] == ["input", "function", "scop", "schedule"]
        assert stages[-7:] == ["loops", "kernel", "explain", "ptx", "cubin", "sass", "resources"]
        assert run("compile", mm, *SIZES, *SM) == 0
        source = capsys.readouterr().out
        assert 'extern "C" __global__' in source
        assert run("compile", mm, *SIZES, *SM, "--until", "kernel") == 0
        assert capsys.readouterr().out.endswith(source)

    def test_until_a_pass_of_the_gpu(self, mm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("compile", mm, *SIZES, *SM, "--until", "threads") == 0
        printed = capsys.readouterr().out
        heads = [line for line in printed.splitlines() if line.startswith("==== ")]
        assert heads[-1] == "==== threads"
        assert "==== promotion" not in printed
        assert run("compile", mm, *SIZES, *SM, "--until", "threads", "--output", str(tmp_path / "x")) == 0
        assert capsys.readouterr().out == ""
        assert (tmp_path / "x").read_text() == printed

    @NEEDS_NVRTC
    def test_ptx_is_for_the_architecture(self, mm: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("compile", mm, *SIZES, *SM, "--emit", "ptx") == 0
        assert ".target sm_80" in capsys.readouterr().out

    @NEEDS_NVRTC
    def test_a_cubin_goes_to_a_file_or_a_pipe(self, mm: str, tmp_path: Path) -> None:
        assert run("compile", mm, *SIZES, *SM, "--emit", "cubin", "--output", str(tmp_path / "mm.cubin")) == 0
        content = (tmp_path / "mm.cubin").read_bytes()
        assert content.startswith(b"\x7fELF")
        command = [sys.executable, "-m", "tcomp", "compile", mm, *SIZES, *SM, "--emit", "cubin"]
        assert subprocess.run(command, capture_output=True, check=True).stdout == content

    @NEEDS_NVRTC
    def test_a_cubin_does_not_go_to_a_terminal(
        self, mm: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        assert run("compile", mm, *SIZES, *SM, "--emit", "cubin") == 1
        assert "a cubin is not text: name a file with --output" in capsys.readouterr().err

    @NEEDS_NVRTC
    @NEEDS_DISASSEMBLER
    def test_sass(self, mm: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("compile", mm, *SIZES, *SM, "--emit", "sass") == 0
        assert "FFMA" in capsys.readouterr().out

    @NEEDS_NVRTC
    def test_resources(self, mm: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("compile", mm, *SIZES, *SM, "--emit", "resources", "--options", "threads=32x4") == 0
        device, columns, row = capsys.readouterr().out.splitlines()
        assert device == "sm_80 (A100, 108 multiprocessors)"
        found = dict(zip(columns.split(), row.split(), strict=False))
        assert found["kernel"] == "mm_0"
        assert found["spilled"] == "0+0"
        assert found["block"] in ("32x4", "16x4")

    def test_there_is_no_machine_code_of_the_cpu(self, mm: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("compile", mm, *SIZES, "--emit", "ptx") == 1
        assert "there is no ptx for the target cpu" in capsys.readouterr().err

    def test_an_unknown_architecture(self, mm: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("compile", mm, *SIZES, "--target", "cuda:sm_91") == 3
        assert "there is no GPU architecture 'sm_91'" in capsys.readouterr().err

    def test_an_output_that_cannot_be_written(self, mm: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("compile", mm, *SIZES, "--output", f"{mm}/x") == 1
        assert f"cannot write {mm}/x: Not a directory" in capsys.readouterr().err


class TestOptions:
    @pytest.mark.parametrize("spelling", ["tile=8x16,threads=16x8", '{"tile_sizes": [8, 16], "threads": [16, 8]}', "@"])
    def test_spellings(self, mm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], spelling: str) -> None:
        if spelling == "@":
            spelling = f"@{tmp_path / 'o'}"
            (tmp_path / "o").write_text(MappingOptions(tile_sizes=(8, 16), threads=(16, 8)).to_json())
        assert run("compile", mm, *SIZES, *SM, "--options", spelling) == 0
        assert "__launch_bounds__(128, 4)" in capsys.readouterr().out

    def test_sets_are_listed(self, mm: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("compile", "--help") == 0
        assert ", ".join(NAMED) in " ".join(capsys.readouterr().out.split())
        assert run("compile", mm, *SIZES, "--options", "mpl") == 1
        assert "there is no set of options 'mpl'\n  help: did you mean `mlp`?" in capsys.readouterr().err


@NEEDS_SIMULATOR
class TestSimulate:
    def test_a_matrix_product(self, mm: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("simulate", mm, "--sizes", "M=64,N=64,K=64", *SM, "--options", "tile=32x32,reduction_tile=16") == 0
        printed = capsys.readouterr().out
        lines = printed.splitlines()
        assert lines[0] == "C: equal to the reference"
        kernel = dict(zip(*(re.split("  +", line) for line in lines[2:4]), strict=True))
        assert (kernel["kernel"], kernel["grid"], kernel["flops"]) == ("mm_0", "2x2", str(2 * 64**3))
        moved = 2 * 64**3 * 4 // 32 + 64 * 64 * 4
        assert (kernel["bytes"], kernel["bound"]) == (str(moved), "bandwidth")
        rows = [line.split() for line in lines if "global read" in line]
        one_by_one, vectors = ["256", "4.00", "4.00", "32768"], ["64", "16.00", "16.00", "32768"]
        assert {row[0]: row[3:] for row in rows} == {"A": one_by_one, "B": vectors}, "A is turned on its way"
        assert f"a  mm_0: {2 * 64**3 / moved:.3g} flop/byte, bound by bandwidth" in printed

    def test_json(self, mm: str, capsys: pytest.CaptureFixture[str]) -> None:
        arguments = ("--order", "random", "--seed", "3", "--options", "naive,unroll=2", "--json")
        assert run("simulate", mm, *SIZES, *arguments) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["right"] is True
        assert (found["architecture"], found["order"], found["seed"]) == ("sm_90", "random", 3)
        assert MappingOptions.from_json(json.dumps(found["options"])) == NAMED["naive"].with_unroll(2)
        assert found["outputs"] == [{"name": "C", "difference": 0.0, "agrees": True}]
        (kernel,) = found["kernels"]
        assert kernel["flops"] == 2 * 64 * 32 * 48
        assert kernel["moved_bytes"] == 32 * sum(a["sectors"] for a in kernel["accesses"] if a["space"] == "global")

    def test_some_blocks_only(self, mm: str, capsys: pytest.CaptureFixture[str]) -> None:
        arguments = ("--sizes", "M=256,N=256,K=64", "--options", "tile=32x32,split_reduction=2")
        assert run("simulate", mm, *arguments, "--json") == 0
        every = json.loads(capsys.readouterr().out)
        assert run("simulate", mm, *arguments, "--blocks", "3", "--json") == 0
        some = json.loads(capsys.readouterr().out)
        assert (some["blocks"], some["outputs"], some["findings"]) == (3, [], [])
        assert [kernel["accesses"] for kernel in some["kernels"]] == [kernel["accesses"] for kernel in every["kernels"]]
        assert run("simulate", mm, *arguments, "--blocks", "3") == 0
        assert "results are not compared" in capsys.readouterr().out

    def test_as_many_blocks_as_there_are_is_all_of_them(self, mm: str, capsys: pytest.CaptureFixture[str]) -> None:
        arguments = ("--sizes", "M=64,N=64,K=64", "--options", "tile=32x32")
        assert run("simulate", mm, *arguments, "--blocks", "4", "--json") == 0
        assert [output["agrees"] for output in json.loads(capsys.readouterr().out)["outputs"]] == [True]
        assert run("simulate", mm, *arguments, "--blocks", "3", "--json") == 0
        assert json.loads(capsys.readouterr().out)["outputs"] == []

    @pytest.mark.parametrize("name", NAMED)
    @pytest.mark.parametrize("library", ["matmul", "softmax", "convolution"])
    def test_named_sets_give_right_results(self, name: str, library: str, tmp_path: Path) -> None:
        text, sizes = PROGRAMS[library]
        (tmp_path / "f.tc").write_text(text)
        assert run("simulate", str(tmp_path / "f.tc"), "--sizes", sizes, "--options", name, "--order", "reverse") == 0

    @pytest.mark.parametrize("seed", ["1", "2"])
    def test_a_missing_barrier_is_found(
        self, mm: str, seed: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def without_barriers(source: Source) -> Simulation:
            assert "__syncthreads();" in source.text
            return load(replace(source, text=source.text.replace("__syncthreads();", ";")))

        monkeypatch.setattr("tcomp.commands.simulate.load", without_barriers)
        arguments = ("--sizes", "M=64,N=64,K=64", "--seed", seed)
        assert run("simulate", mm, *arguments) == 1
        printed = capsys.readouterr().out
        assert "data race in a block" in printed
        assert "(S0)" in printed
        assert "equal to the reference" not in printed
        assert run("simulate", mm, *arguments, "--json") == 1
        found = json.loads(capsys.readouterr().out)
        assert found["right"] is False
        assert found["findings"]

    def test_a_wrong_result_is_status_one(
        self, mm: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        infinite = Tolerance(np.full((64, 32), np.inf, np.float32), np.zeros((64, 32)))
        monkeypatch.setattr("tcomp.commands.run.error_bounds", lambda *_, **__: {"C": infinite})
        assert run("simulate", mm, *SIZES) == 1
        assert "C: differs from the reference; largest difference inf" in capsys.readouterr().out
        assert run("simulate", mm, *SIZES, "--json") == 1
        assert json.loads(capsys.readouterr().out)["outputs"] == [{"name": "C", "difference": None, "agrees": False}]

    def test_contents_constants_and_subscripts_that_are_data(self, tmp_path: Path) -> None:
        text = "def f(float(N,M) X, int(K) I, const int S) -> (float(K) Y) { Y(k) += X(I(k), S) }"
        (tmp_path / "f.tc").write_text(text)
        assert run("simulate", str(tmp_path / "f.tc"), "--sizes", "N=9,M=4,K=300,S=2") == 0
        assert run("simulate", str(tmp_path / "f.tc"), "--sizes", "N=9,M=4,K=300") == 1

    @pytest.mark.parametrize("target", ["cpu", "abacus", "cuda:sm_1"])
    def test_targets_that_are_no_gpu(self, mm: str, target: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("simulate", mm, *SIZES, "--target", target) == 3
        assert target.removeprefix("cuda:") in capsys.readouterr().err

    @pytest.mark.parametrize("target", ["cuda", "simulator", "simulator:sm_75"])
    def test_names_of_the_target(self, mm: str, target: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("simulate", mm, *SIZES, "--target", target) == 0
        assert ("sm_75 (T4)" if target.endswith("75") else "sm_90 (H100)") in capsys.readouterr().out

    @pytest.mark.parametrize("arguments", [("--order", "sideways"), ("--seed", "-1"), ("--blocks", "0")])
    def test_wrong_usage_is_status_two(self, mm: str, arguments: tuple[str, ...]) -> None:
        assert run("simulate", mm, *SIZES, *arguments) == 2


@pytest.mark.parametrize("terminal", [False, True])
def test_long_simulations_show_a_sign_of_life(
    terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(blocks, "_SECONDS_OF_SILENCE", 0.01)
    monkeypatch.setattr(blocks, "_SECONDS_BETWEEN_LOOKS", 0.01)
    monkeypatch.setattr(blocks, "_SECONDS_BETWEEN_LINES", 0.01)
    monkeypatch.setattr(blocks, "Console", lambda stderr: Console(stderr=stderr, force_terminal=terminal, width=80))
    asked = threading.Event()
    looks = itertools.count()

    def done() -> tuple[int, int]:
        if next(looks) > 3:
            asked.set()
        return 7, 40

    with blocks.BlocksDisplay(done):
        assert asked.wait(10)
    shown = capsys.readouterr().err
    assert ("simulating blocks" if terminal else "simulated 7 of 40 blocks") in shown


def test_short_simulations_are_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with blocks.BlocksDisplay(lambda: (0, 1)):
        pass
    assert capsys.readouterr().err == ""


PROGRAMS = {
    "matmul": (MM, "M=40,N=50,K=33"),
    "softmax": (
        """def softmax(float(N,D) X) -> (Y) {
  m(n) max=! X(n,d)
  e(n,d) = exp(X(n,d) - m(n))
  s(n) +=! e(n,d)
  Y(n,d) = e(n,d) / s(n)
}""",
        "N=20,D=70",
    ),
    "convolution": (
        "def f(float(N,C,H,W) I, float(F,C,KH,KW) K) -> (O) { O(n,f,h,w) +=! I(n,c,h+kh,w+kw) * K(f,c,kh,kw) }",
        "N=2,C=3,H=9,W=11,F=5,KH=3,KW=3",
    ),
}


class TestFlops:
    @pytest.mark.parametrize(
        ("points", "expected"),
        [
            ("{ S[] }", 1),
            ("{ S[i] : 1 = 0 }", 0),
            ("{ S[i, j, k] : 0 <= i, j, k < 4096 }", 4096**3),
            ("{ S[i, j] : 0 <= i <= j < 100 }", 5050),
            (
                "{ S[i, j, k] : 3 <= i < 10 and 0 <= j < 20 - i and -5 <= k < 5 }",
                10 * sum(20 - i for i in range(3, 10)),
            ),
            ("{ S[i] : 0 <= i < 100 and i mod 3 = 1 }", 33),
            ("{ S[i] : 0 <= i < 10 or 20 <= i < 25 }", 15),
            ("{ S[t, i] : 0 <= t < 4 and 8t - 1 <= i <= 8t + 8 and 0 <= i < 32 }", 9 + 10 + 10 + 9),
        ],
    )
    def test_instances_are_counted(self, points: str, expected: int) -> None:
        assert instances(isl.Set(points)) == expected

    def test_a_domain_too_large_to_count_is_taken_for_its_box(self) -> None:
        assert instances(isl.Set("{ S[i, j, k, l] : 0 <= i <= j <= k <= l < 400 }")) == 400**4

    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            ("A(i)", 0),
            ("A(i) + 1", 1),
            ("-A(i) * A(i) - A(i)", 2),
            ("exp(A(i) / 2)", 2),
            ("min(A(i), max(A(i), 0))", 2),
            ("(A(i) > 0) ? A(i) * 2 + 1 : A(i)", 2),
            ("A(i) * float(i * 3 + 1)", 1),
        ],
    )
    def test_operations_of_a_statement(self, value: str, expected: int) -> None:
        found = self._flops(f"def f(float(N) A) -> (B) {{ B(i) = {value} }}", {"N": 10})
        assert sum(found.values()) == 10 * expected

    def test_combining_counts_where_it_is_on_floats(self) -> None:
        assert sum(self._flops(MM.replace("mm", "f"), {"M": 5, "N": 6, "K": 7}).values()) == 2 * 5 * 6 * 7
        counted = self._flops("def f(int(N) A) -> (s) { s +=! A(i) * A(i) }", {"N": 10})
        assert sum(counted.values()) == 0

    def test_what_tiles_repeat_is_counted(self) -> None:
        text = "def f(float(N) X) -> (Z) { Y(i) = X(i) + X(i+1)  Z(i) = Y(i) * Y(i+1) }"
        options = MappingOptions(tile_sizes=(32,), recompute_limit=2.0)
        apart = self._flops(text, {"N": 130}, options.fuse("min"))
        assert sum(apart.values()) == 129 + 128
        assert sum(self._flops(text, {"N": 130}, options).values()) == 129 + 128 + 3

    def _flops(self, text: str, sizes: dict[str, int], options: MappingOptions | None = None) -> dict[str, int]:
        backend = CudaBackend(gpu_of("sm_90"))
        return flops_of(lower(define(text)["f"], Sizes(sizes), options or MappingOptions(), backend).plan)


class TestRoofline:
    GPU = gpu_of("sm_80")

    def test_below_the_ridge_memory_limits(self) -> None:
        assert ridge(self.GPU) == pytest.approx(19.5 / 1.55)
        slow, fast = Point("copy", 1000, 8000), Point("product", 10**9, 10**6)
        assert (bound(self.GPU, slow), bound(self.GPU, fast)) == ("bandwidth", "arithmetic")
        assert attainable(self.GPU, slow) == pytest.approx(1.55e12 / 8)
        assert attainable(self.GPU, fast) == 19.5e12
        assert least_seconds(self.GPU, slow) == pytest.approx(8000 / 1.55e12)
        assert least_seconds(self.GPU, fast) == pytest.approx(1e9 / 19.5e12)

    def test_the_picture(self) -> None:
        points = [Point("low", 10, 10), Point("high", 10**6, 10**3), Point("none", 0, 100), Point("twin", 20, 20)]
        assert picture(self.GPU, points) == PICTURE

    @pytest.mark.parametrize("gpu", GPUS.values(), ids=str)
    @pytest.mark.parametrize("flops", [0, 1, 10**9, 10**18])
    @pytest.mark.parametrize("count", [0, 1, 10**9, 10**18])
    def test_any_point_has_its_place(self, gpu: Any, flops: int, count: int) -> None:
        lines = picture(gpu, [Point("k", flops, count)]).splitlines()
        drawn = [line for line in lines if line.startswith("  |")]
        assert sum(line.count("a") for line in drawn) == (flops > 0)
        assert len({line.index("+") for line in lines if line.startswith("  +")}) == 1

    def test_comparisons_say_how_far_apart(self) -> None:
        assert str(Comparison("C", 0.0, 0.1)) == "C: equal to the reference"
        assert "up to rounding; largest difference 0.05, 0.1 of its bound" in str(Comparison("C", 0.05, 0.1))
        assert not Comparison("C", 0.5, 1.1).agrees
        assert "0.5, 20 times what rounding comes to" in str(Comparison("C", 0.5, 20.0))
        assert str(Comparison("C", 3.0, math.inf)) == "C: differs from the reference; largest difference 3"
        improbable = Comparison("C", 0.5, 0.9, improbable=True)
        assert improbable.agrees and "more than is probable" in str(improbable)


PICTURE = """\
sm_80 (A100): 19.5 Tflop/s in single precision, 1.55 TB/s, ridge at 12.6 flop/byte
  |                        .-----------------------b------------
  |                     .-'
  |                  .-'
  |               .-'
  |            a-'
  |         .-'c
  |      .-'
  |   .-'
  |.-'
  +-----------+-----------+-----------+-----------+-----------+
  0.1         1           10          100         1000        10000  flop/byte
  a  low: 1 flop/byte, bound by bandwidth: at most 1.55 Tflop/s, at least 6.45e-06 us
  b  high: 1000 flop/byte, bound by arithmetic: at most 19.5 Tflop/s, at least 0.0513 us
  c  twin: 1 flop/byte, bound by bandwidth: at most 1.55 Tflop/s, at least 1.29e-05 us
"""


class TestDoctor:
    def test_tools_for_gpus_are_listed(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("doctor") == 0
        found = {line.split("  ")[0]: line for line in capsys.readouterr().out.splitlines()}
        assert {"NVRTC", "disassembler", "simulator's C++", "cuda", "simulator"} <= set(found)
        if there(nvrtc.find):
            assert str(nvrtc.find().path) in found["NVRTC"]


def test_a_dump_of_a_gpu_kernel_holds_cuda(mm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCOMP_DUMP", str(tmp_path))
    assert run("compile", mm, "--sizes", "M=8,N=8,K=8", *SM, "--emit", "source") == 0
    (kernel,) = tmp_path.glob("*/*-kernel.cu")
    assert "__global__" in kernel.read_text(encoding="utf-8")
