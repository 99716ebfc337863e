from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tcomp import cli, debug, shipped
from tcomp.commands import doctor
from tcomp.commands.inputs.programs import parse_sizes
from tcomp.grammar import define
from tcomp.grammar.ranges.ranges import infer
from tcomp.model.madeup import random_arguments, subscript_ranges
from tcomp.model.tolerance import Tolerance
from tcomp.runtime import registry

pytestmark = pytest.mark.sweep(3)

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }\n"
TWO = MM + "def twice(float(N) X) -> (Y) { Y(i) = X(i) + X(i) }\n"
SIZES = ("--sizes", "M=6,N=5,K=4")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for variable in debug.VARIABLES:
        monkeypatch.delenv(variable.name, raising=False)
    monkeypatch.setenv("TCOMP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def mm(tmp_path: Path) -> str:
    return _write(tmp_path / "mm.tc", MM)


def _write(path: Path, text: str) -> str:
    path.write_text(text)
    return str(path)


def run(*arguments: str) -> int:
    """The exit status, whether the command returns it or argparse raises it."""
    try:
        return cli.main(arguments)
    except SystemExit as stop:
        return int(str(stop.code))


def start(*arguments: str, **streams: int) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "tcomp", *arguments], text=True, **streams)


class TestRun:
    def test_describes_outputs_and_agrees_with_the_reference(self, mm: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("run", mm, *SIZES, "--check") == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].split() == ["output", "type", "shape", "min", "max", "mean"]
        assert lines[1].split()[:3] == ["C", "float32", "6x5"]
        assert lines[2].startswith("first call ")
        assert lines[3] == "C: equal to the reference"

    def test_arrays_come_from_and_go_to_npy_files(self, mm: str, tmp_path: Path) -> None:
        A = np.arange(24, dtype=np.float32).reshape(6, 4)
        B = np.arange(20, dtype=np.float32).reshape(4, 5)
        np.save(tmp_path / "a.npy", A)
        np.save(tmp_path / "b.npy", B)
        out = tmp_path / "out" / "deep"
        inputs = ("--inputs", str(tmp_path / "a.npy"), str(tmp_path / "b.npy"))
        assert run("run", mm, *inputs, "--output", str(out)) == 0
        assert np.array_equal(np.load(out / "C.npy"), A @ B)

    def test_the_seed_decides_the_inputs(self, mm: str, tmp_path: Path) -> None:
        results = []
        for number, seed in enumerate(("7", "7", "8")):
            assert run("run", mm, *SIZES, "--seed", seed, "--output", str(tmp_path / str(number))) == 0
            results.append(np.load(tmp_path / str(number) / "C.npy"))
        assert np.array_equal(results[0], results[1])
        assert not np.array_equal(results[0], results[2])

    def test_const_parameters_and_needed_contents(self, tmp_path: Path) -> None:
        program = _write(
            tmp_path / "f.tc", "def f(float(N) X, const int S) -> (float(2) Y) { Y(i) += X(S*i) where i in 0:2 }"
        )
        assert run("run", program, "--sizes", "N=9", "--sizes", "S=3", "--check") == 0
        np.save(tmp_path / "x.npy", np.arange(9, dtype=np.float32))
        np.save(tmp_path / "y.npy", np.array([10, 20], np.float32))
        inputs = ("--inputs", str(tmp_path / "x.npy"), str(tmp_path / "y.npy"))
        assert run("run", program, *inputs, "--sizes", "S=3", "--output", str(tmp_path)) == 0
        assert np.load(tmp_path / "Y.npy").tolist() == [10, 23]

    def test_bfloat16_survives_a_file(self, tmp_path: Path) -> None:
        pytest.importorskip("ml_dtypes")
        program = _write(tmp_path / "f.tc", "def f(bfloat16(N) A) -> (B) { B(i) = A(i) + A(i) }")
        assert run("run", program, "--sizes", "N=5", "--check", "--output", str(tmp_path)) == 0
        assert run("run", program, "--inputs", str(tmp_path / "B.npy"), "--check") == 0

    def test_a_def_is_picked_by_name(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        program = _write(tmp_path / "two.tc", TWO)
        assert run("run", program, "--def", "twice", "--sizes", "N=3") == 0
        assert run("run", program, "--sizes", "N=3") == 1
        assert "pick one with --def: mm, twice" in capsys.readouterr().err
        assert run("run", program, "--def", "twiec", "--sizes", "N=3") == 1
        assert "did you mean twice?" in capsys.readouterr().err

    def test_a_def_that_is_wrong_does_not_hide_another(self, tmp_path: Path) -> None:
        wrong = "def wrong(float(N) X) -> (Y) { Y(n) = Z(n) }  def cut(float(N) X) -> (Y) { Y(n) = = X(n) }"
        program = _write(tmp_path / "three.tc", f"{wrong} {TWO}")
        assert run("run", program, "--def", "twice", "--sizes", "N=3") == 0
        for other in ("wrong", "cut", "none"):
            assert run("run", program, "--def", other, "--sizes", "N=3") == 1
        assert run("run", _write(tmp_path / "again.tc", f"{TWO} {TWO}"), "--def", "twice", "--sizes", "N=3") == 1

    def test_a_def_named_like_the_file_goes_first(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("run", _write(tmp_path / "twice.tc", TWO), "--sizes", "N=3") == 0
        assert capsys.readouterr().out.splitlines()[1].startswith("Y ")

    def test_a_difference_from_the_reference_is_an_error(
        self, mm: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        zeros = Tolerance(np.zeros((6, 5), np.float32), np.zeros((6, 5)))
        monkeypatch.setattr("tcomp.commands.run.error_bounds", lambda *_, **__: {"C": zeros})
        assert run("run", mm, *SIZES, "--check") == 1
        assert "C: differs from the reference; largest difference" in capsys.readouterr().out

    def test_the_interpreter_can_stand_in(self, mm: str, monkeypatch: pytest.MonkeyPatch, own_cache: Path) -> None:
        monkeypatch.setenv("TCOMP_INTERPRET", "1")
        assert run("run", mm, *SIZES) == 0
        assert not own_cache.exists()

    def test_options_as_text_and_as_a_file(self, mm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("run", mm, *SIZES, "--check", "--options", '{"tile_sizes": [2, 3]}') == 0
        assert run("run", mm, *SIZES, "--check", "--options", _write(tmp_path / "o.json", '{"parallel": false}')) == 0
        assert run("run", mm, *SIZES, "--options", '{"tile": 3}') == 1
        assert "tile_sizes" in capsys.readouterr().err

    def test_standard_input(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(MM.encode())))
        assert run("run", "-", *SIZES, "--check") == 0

    @pytest.mark.parametrize("name", list(shipped.texts()))
    def test_library_operators_are_found(self, name: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("compile", f"library:{name}", "--def", "no_such_def") == 1
        assert f"library:{name} has no def no_such_def" in capsys.readouterr().err

    def test_an_unknown_library_operator(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("run", "library:sofmax") == 1
        assert "the library has no sofmax" in capsys.readouterr().err


class TestWrongInput:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (("--sizes", "M=6,N=5"), "the size K is not given"),
            (("--sizes", "M=6,N=5,K=4,Q=1"), "mm has no size Q; its sizes are M, K, N"),
            (("--sizes", "M=6,N=5,K=-4"), "K is negative: -4"),
            (("--inputs", "a.npy"), "mm takes 2 arrays (A, B), but --inputs names 1"),
            (("--inputs", "a.npy", "none.npy"), "cannot read none.npy: No such file or directory"),
            (("--inputs", "a.npy", "text.npy"), "cannot read text.npy"),
            (("--inputs", "a.npy", "a.npy"), "Mismatched sizes"),
            (("--inputs", "a.npy", "b.npy", "--sizes", "M=7"), "M is 6 in the arrays, but 7 in --sizes"),
            (("--inputs", "a.npy", "d.npy"), "expected type float32 but found float64"),
        ],
    )
    def test_status_one_and_a_message(
        self,
        mm: str,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        capsys: pytest.CaptureFixture[str],
        arguments: tuple[str, ...],
        message: str,
    ) -> None:
        monkeypatch.chdir(tmp_path)
        np.save("a.npy", np.ones((6, 4), np.float32))
        np.save("b.npy", np.ones((4, 5), np.float32))
        np.save("d.npy", np.ones((4, 5)))
        Path("text.npy").write_text("not an array")
        assert run("run", mm, *arguments) == 1
        captured = capsys.readouterr()
        assert message.lower() in captured.err.lower()
        assert captured.out == ""

    def test_program_errors_show_the_place(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        program = _write(tmp_path / "bad.tc", "def f(float(N) A) -> (B) { B(n) = A(n) + D(n) }")
        assert run("run", program, "--sizes", "N=3") == 1
        lines = capsys.readouterr().err.splitlines()
        assert lines[0].startswith(f"{program}:1:42: error: ")
        assert lines[2].index("^") == lines[1].index("D(n)")

    @pytest.mark.parametrize("content", [b"", b"\xff\x00", b"def"])
    def test_files_of_any_content(self, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes) -> None:
        (tmp_path / "x.tc").write_bytes(content)
        assert run("run", str(tmp_path / "x.tc")) == 1
        assert "error: " in capsys.readouterr().err

    def test_files_that_cannot_be_read(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("run", str(tmp_path / "none.tc")) == 1
        assert run("run", str(tmp_path)) == 1
        assert run("run", "a\0b") == 1
        assert capsys.readouterr().err.count("error: cannot read") == 3

    def test_an_output_directory_that_cannot_be_made(self, mm: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("run", mm, *SIZES, "--output", f"{mm}/x") == 1
        assert f"cannot write to {mm}/x" in capsys.readouterr().err

    @pytest.mark.parametrize(
        "arguments",
        [
            ("walk",),
            ("run",),
            ("run", "f.tc", "--sizes", "M"),
            ("run", "f.tc", "--sizes", "M=x"),
            ("run", "f.tc", "--seed=-1"),
            ("cache",),
        ],
    )
    def test_wrong_usage_is_status_two(self, arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
        assert run(*arguments) == 2
        error, help_line = capsys.readouterr().err.splitlines()
        assert error.startswith("error: ") and help_line.startswith("  help: tcomp") and help_line.endswith(" --help")

    @pytest.mark.parametrize(
        ("arguments", "meant"),
        [
            (("rum", "f.tc"), "there is no command rum; did you mean run?"),
            (("run", "f.tc", "--size", "M=3"), "there is no argument --size M=3; did you mean --sizes?"),
            (("run", "f.tc", "--sizes", "M=4", "N=4"), "sizes are separated by commas: --sizes M=4,N=4"),
            (("cache", "lst"), "there is no ACTION lst; did you mean ls?"),
        ],
    )
    def test_what_was_meant(self, arguments: tuple[str, ...], meant: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(*arguments) == 2
        assert meant in capsys.readouterr().err

    def test_no_command_prints_the_help(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run() == 0
        assert "exit status: 0 done" in capsys.readouterr().out

    def test_the_library_and_the_options_are_listed(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("library") == run("options") == run("library", "conv2d") == run("library", "cross_entropy") == 0
        out = capsys.readouterr().out
        assert "softmax" in out and "tile_sizes" in out and "def conv2d(" in out and "def cross_entropy<T, I>(" in out
        assert run("library", "sofmax") == 1
        assert "did you mean `softmax`" in capsys.readouterr().err

    def test_each_operator_is_listed_on_a_line(self, capsys: pytest.CaptureFixture[str]) -> None:
        """Also those whose signatures go over several lines, or declare the extents of an output."""
        assert run("library") == 0
        rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
        assert [row[0] for row in rows] == re.findall(r"^def (\w+)", "\n".join(shipped.texts().values()), re.M)
        assert all(row[-1].endswith(")") and "->" in row for row in rows)

    @pytest.mark.parametrize("target", ["cuda", "cuda:sm_90", "abacus"])
    def test_a_target_that_is_not_here_is_status_three(
        self, mm: str, target: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert run("run", mm, *SIZES, "--target", target) == 3
        assert target.partition(":")[0] in capsys.readouterr().err

    def test_no_compiler_is_status_three(
        self, mm: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("CC", "/no/such/cc")
        assert run("run", mm, *SIZES) == 3
        assert "/no/such/cc" in capsys.readouterr().err

    def test_too_little_memory(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        program = _write(tmp_path / "f.tc", "def outer(float(N) A) -> (O) { O(i,j,k) = A(i) * A(j) * A(k) }")
        assert run("run", program, "--sizes", "N=200000") == 1
        assert "memory" in capsys.readouterr().err

    def test_warnings_are_one_line(
        self, mm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("TCOMP_DUMP", f"{mm}/x")
        assert run("run", mm, "--sizes", "M=2,N=5,K=3") == 0
        assert capsys.readouterr().err.startswith("warning: no dump of mm")


class TestCompile:
    def test_source_is_what_is_printed_by_default(self, mm: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("compile", mm, *SIZES) == 0
        source = capsys.readouterr().out
        assert "tcomp_mm(" in source
        assert run("compile", mm, *SIZES, "--emit", "kernel") == 0
        assert capsys.readouterr().out == source

    def test_every_listed_stage_can_be_printed(self, mm: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("compile", mm, *SIZES, "--emit", "list") == 0
        stages = capsys.readouterr().out.split()
        assert stages[:4] == ["input", "function", "scop", "schedule"]
        assert stages[-3:] == ["loops", "kernel", "explain"]
        for stage in stages:
            assert run("compile", mm, *SIZES, "--emit", stage) == 0
            assert capsys.readouterr().out.strip()

    def test_until_prints_the_stages_on_the_way(self, mm: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("compile", mm, *SIZES, "--until", "scop") == 0
        out = capsys.readouterr().out
        assert [line for line in out.splitlines() if line.startswith("==== ")] == [
            "==== input",
            "==== function",
            "==== scop",
        ]
        assert MM in out

    def test_an_unknown_stage(self, mm: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("compile", mm, *SIZES, "--emit", "lops") == 1
        assert "there is no stage lops; did you mean loops?" in capsys.readouterr().err
        assert run("compile", mm, *SIZES, "--until", "zzz") == 1
        assert "the stages are input, function, scop" in capsys.readouterr().err


class TestDoctor:
    def test_a_working_machine(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("doctor") == 0
        out = capsys.readouterr().out
        assert "self-test on cpu: a 48x48 matrix product is right" in out
        for fact in ("tcomp ", "Python ", "C compiler ", "cache ", "processor "):
            assert f"\n{fact}" in out

    def test_a_machine_without_compiler(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setenv("CC", "/no/such/cc")
        monkeypatch.setenv("CXX", "/no/such/cxx")
        monkeypatch.delitem(registry.TARGETS, "opencl")  # which brings a compiler of its own
        assert run("doctor") == 3
        assert re.search(r"cpu +no", capsys.readouterr().out)

    def test_a_wrong_result(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.setattr("tcomp.operation.Operation.__call__", lambda *_, **__: np.zeros((48, 48), np.float32))
        assert doctor.examine() == 1
        assert "a 48x48 matrix product is wrong" in capsys.readouterr().out


class TestCache:
    def test_entries_are_listed_moved_and_cleared(
        self, mm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        # Sizes that no other test uses: a kernel that this process has loaded is not looked up on disk.
        assert run("run", mm, "--sizes", "M=3,N=5,K=7") == 0
        capsys.readouterr()
        assert run("cache", "ls") == 0
        listed = capsys.readouterr().out
        assert "mm(A float32[3,7], B float32[7,5]) -> (C float32[3,5])" in listed
        archive = str(tmp_path / "kept.tar.gz")
        assert run("cache", "export", archive) == 0
        monkeypatch.setenv("TCOMP_CACHE", str(tmp_path / "elsewhere"))
        assert run("cache", "import", archive) == 0
        assert "elsewhere" in capsys.readouterr().out
        assert run("cache", "ls") == 0
        assert capsys.readouterr().out.splitlines()[-1].split(",")[0] == listed.splitlines()[-1].split(",")[0]
        assert run("cache", "clear") == 0
        assert run("cache", "ls") == 0
        assert capsys.readouterr().out.splitlines()[-1].startswith("0 entries, 0 B of at most 1.0 GiB, in ")

    def test_no_cache(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        monkeypatch.setenv("TCOMP_CACHE", "0")
        assert run("cache", "ls") == 0
        assert "the cache is off" in capsys.readouterr().out
        assert run("cache", "import", "x.tar.gz") == 1

    def test_an_archive_that_is_none(self, mm: str, capsys: pytest.CaptureFixture[str]) -> None:
        assert run("cache", "import", mm) == 1
        assert f"cannot import {mm}" in capsys.readouterr().err


def test_debug_lists_every_variable_with_its_value(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TCOMP_DEBUG", "1")
    assert run("debug") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [variable.name for variable in debug.VARIABLES]
    assert lines[1].split()[:3] == ["TCOMP_DEBUG", "1..4", "1"]


def test_a_bad_variable_is_an_error(
    mm: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TCOMP_DEBUG", "loud")
    assert run("run", mm, *SIZES) == 1
    assert "TCOMP_DEBUG is 'loud'" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out.startswith("tcomp ")


class TestProcess:
    def test_output_in_a_pipe_is_plain(self, mm: str) -> None:
        process = start("run", mm, *SIZES, "--check", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0
        assert err == ""
        assert out.isascii()
        assert "\x1b" not in out

    def test_output_on_a_terminal_has_colours_and_the_whole_text(
        self, mm: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TERM", "xterm-256color")
        for variable in ("NO_COLOR", "FORCE_COLOR", "COLUMNS"):
            monkeypatch.delenv(variable, raising=False)
        plain = start("compile", mm, *SIZES, stdout=subprocess.PIPE).communicate(timeout=60)[0]
        reader, terminal = os.openpty()
        process = start("compile", mm, *SIZES, stdout=terminal)
        os.close(terminal)
        shown = b""
        while chunk := _read_terminal(reader):
            shown += chunk
        assert process.wait(60) == 0
        text = shown.decode().replace("\r\n", "\n")
        assert "\x1b[" in text
        assert re.sub(r"\x1b\[[0-9;]*m", "", text) == plain

    def test_a_reader_that_leaves_is_no_error(self, tmp_path: Path) -> None:
        program = _write(tmp_path / "long.tc", MM + "# filler\n" * 100_000)
        process = start("compile", program, *SIZES, "--emit", "input", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == MM
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(60) in (0, 1)

    def test_an_interrupt_is_quiet(self, tmp_path: Path) -> None:
        pipe = tmp_path / "pipe.tc"
        os.mkfifo(pipe)
        process = start("run", str(pipe), *SIZES, stderr=subprocess.PIPE)
        with pipe.open("w"):  # returns when the process has opened the other end
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=60)
        assert process.returncode == 130
        assert err == ""


def _read_terminal(descriptor: int) -> bytes:
    """What a terminal shows next; nothing once the other side has closed it."""
    try:
        return os.read(descriptor, 1 << 16)
    except OSError:
        return b""


class TestArguments:
    def test_sizes(self) -> None:
        assert parse_sizes(" M = 128, N=-4,") == {"M": 128, "N": -4}

    def test_subscripts_are_valid_where_they_are_used(self) -> None:
        function = define(
            "def f(float(E,D) T, int32(B) I, int32(B) J) -> (O) { O(b,d) = T(I(b), d) + T(J(b) + 1, d) + T(2, d) }"
        )["f"]
        ranges = infer(function, {"E": 7, "D": 3, "B": 50})
        assert subscript_ranges(function, ranges) == {"I": (0, 7), "J": (0, 1)}
        values = random_arguments(function, ranges, 0).values
        assert set(np.unique(values[1])) == set(range(7))
        assert not np.any(values[2])

    def test_values_are_small_integers_of_the_declared_type(self) -> None:
        function = define(
            "def f(double(N) A, uint8(N) B, bool(N) C, int16 D) -> (O) { O(n) = C(n) ? A(n) + B(n) + D : 0.0 }"
        )["f"]
        A, B, C, D = random_arguments(function, infer(function, {"N": 200}), 0).values
        assert isinstance(A, np.ndarray)
        assert A.dtype == np.float64
        assert set(A) == set(range(-4, 5))
        assert set(np.asarray(B)) == set(range(5))
        assert set(np.asarray(C)) == {False, True}
        assert np.asarray(D).shape == ()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("command", ["debug", "doctor", "compile library:softmax --sizes N=4,D=4"])
def test_a_full_disk_ends_in_a_message(command: str) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "tcomp", *command.split()], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert done.returncode == 1
    assert "cannot be written" in done.stderr and "Traceback" not in done.stderr
