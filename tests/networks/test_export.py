"""A network as C, compiled and run without tcomp."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import tcomp as tc

TEXT = """
def dense(float(N,K) X, float(M,K) W) -> (Y) { Y(n,m) +=! X(n,k) * W(m,k) }
def plus(float(N,M) X, float(M) b) -> (Y) { Y(n,m) = X(n,m) + b(m) }
def rows(float(N,M) T, int32(L) at) -> (Y) { Y(l,m) = T(at(l),m) }
def network(float(40,50) x, int32(4) at, float(60,50) w, float(60) b, float(30,60) v) -> (y, z) {
  h = plus(dense(x, w), b)
  z = dense(h, v)
  y = rows(z, at)
}
"""


WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wmissing-prototypes", "-Werror")


@pytest.mark.parametrize(
    ("compiler", "threads"), [("gcc", "-fopenmp"), pytest.param("clang", "-fopenmp-simd", marks=pytest.mark.long)]
)
def test_what_is_exported_has_no_warnings(tmp_path: Path, compiler: str, threads: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"needs {compiler}")
    draw = np.random.default_rng(2)
    weights = {n: draw.standard_normal(s).astype("f4") for n, s in (("w", (60, 50)), ("b", (60,)), ("v", (30, 60)))}
    tc.compile_network(TEXT, weights=weights).export(tmp_path, name="small")
    head = (tmp_path / "small.h").read_text()
    assert "#define SMALL_ABI 1" in head and "Apache License 2.0" in head
    files = [path.name for path in tmp_path.glob("*.c")]
    flags = (*WARNINGS, "-O1", "-march=native", "-fwrapv", threads, "-g", "-fsanitize=address,undefined")
    command = [compiler, *flags, *files, "-lm", "-lpthread", "-o", "example"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    done = subprocess.run(["./example", "weights.bin"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and not done.stderr, done.stderr
    assert "Apache License 2.0" in (tmp_path / "README.md").read_text()
    if compiler == "clang" and shutil.which("cmake"):
        subprocess.run(["cmake", "-B", "build", f"-DCMAKE_C_COMPILER={compiler}"], cwd=tmp_path, check=True)
        subprocess.run(["cmake", "--build", "build"], cwd=tmp_path, check=True)
        subprocess.run(["build/small_example", "weights.bin"], cwd=tmp_path, check=True)


@pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")
def test_what_is_exported_computes_the_same(tmp_path: Path) -> None:
    draw = np.random.default_rng(2)
    weights = {n: draw.standard_normal(s).astype("f4") for n, s in (("w", (60, 50)), ("b", (60,)), ("v", (30, 60)))}
    net = tc.compile_network(TEXT, weights=weights)
    x, at = draw.standard_normal((40, 50)).astype("f4"), np.array([3, 0, 39, 7], "i4")
    expected = net(x, at)
    files = net.export(tmp_path / "out", name="small")
    assert {"small.h", "small.c", "main.c", "weights.bin", "libsmall.so", "CMakeLists.txt"} <= {
        file.name for file in files
    }
    x.tofile(tmp_path / "x.raw")
    at.tofile(tmp_path / "at.raw")
    program = tmp_path / "example"
    folder = str(tmp_path / "out")
    command = ["gcc", "-Wall", "-Werror", "main.c", "-L.", "-lsmall", f"-Wl,-rpath,{folder}", "-o", str(program)]
    subprocess.run(command, cwd=folder, check=True)
    run = [str(program), "out/weights.bin", "x.raw", "at.raw"]
    subprocess.run(run, cwd=tmp_path, check=True)
    for number, right in enumerate(expected):
        found = np.fromfile(tmp_path / f"out{number}.raw", "f4").reshape(right.shape)
        assert np.array_equal(found, right)
    library = ctypes.CDLL(str(tmp_path / "out" / "libsmall.so"))
    assert library.small_load(str(tmp_path / "out" / "weights.bin").encode()) == 0
    header = (tmp_path / "out" / "small.h").read_text()
    assert "_in(" in (tmp_path / "out" / "small.c").read_text()  # kernels get their memory, and ask for none
    count = int(re.search(r"SMALL_BYTES (\d+)", header)[1])  # type: ignore[index]
    memory, found = np.zeros(count + 128, "u1"), [np.zeros_like(right) for right in expected]
    start = memory.ctypes.data + -memory.ctypes.data % 64
    ends = [ctypes.c_void_p(array.ctypes.data) for array in (x, at, *found)]
    for _ in range(2):
        assert library.small_with(*ends, ctypes.c_void_p(start)) == 0
        assert all(np.array_equal(mine, right) for mine, right in zip(found, expected, strict=True))
    assert not memory[start - memory.ctypes.data + count :].any()
    assert library.small_with(*ends, None) == 2 == library.small_with(*ends, ctypes.c_void_p(start + 4))
    (tmp_path / "long.bin").write_bytes((tmp_path / "out" / "weights.bin").read_bytes() + b"\0")
    for name in ("x.raw", "long.bin"):  # too short, and too long
        assert library.small_load(str(tmp_path / name).encode()) == 4
    assert library.small_with(*ends, ctypes.c_void_p(start)) == 0  # the weights before are still there
    np.array([3, 0, 40, 7], "i4").tofile(tmp_path / "at.raw")
    assert subprocess.run(run, cwd=tmp_path, check=False).returncode == 1


def test_export_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tcomp.cli import main

    (tmp_path / "net.tc").write_text("def f(float(4) X) -> (Y) { Y(i) = X(i) + 1.0 }")
    assert main(["network", "export", str(tmp_path / "net.tc"), "--output", str(tmp_path / "out")]) == 0
    assert "network.h" in capsys.readouterr().out and (tmp_path / "out" / "weights.bin").exists()


def test_names_that_are_none(tmp_path: Path) -> None:
    net = tc.compile_network("def f(float(4) X) -> (Y) { Y(i) = X(i) + 1.0 }")
    with pytest.raises(tc.NetworkError, match="no name of a function"):
        net.export(tmp_path, name="a b")


def test_names_that_c_has_itself(tmp_path: Path) -> None:
    net = tc.compile_network("def f(float(4) X) -> (Y) { Y(i) = X(i) + 1.0 }")
    assert (tmp_path / "int_.h") in net.export(tmp_path, name="int")
