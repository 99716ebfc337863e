"""Folders with OpenCL kernels: they run in processes without tcomp, from Python and from C."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import tcomp as tc
from tcomp.backends.opencl.devices import opencl_module
from tcomp.cli import main
from tests.opencl.here import NEEDS_DEVICE

PROGRAM = """def f(float(V,D) T, int32(N) queue) -> (Y, C) {
  Y(n,d) = T(queue(n),d) where d in 0:D
  C(d) +=! Y(n,d)
}"""
SIZES = {"V": 5, "D": 3, "N": 4}
"""Two kernels, a subscript that is checked, and a name that the launcher has, too."""

CALLER = """
import sys
import numpy as np, pyopencl as cl, pyopencl.array as cla
from f_pyopencl import Kernel
assert "tcomp" not in sys.modules
context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
table = np.arange(15, dtype="f4").reshape(5, 3)
places = np.array([4, 0, 2, 4], "i4")
new = lambda *shape: cla.zeros(queue, shape, np.float32)
kernel, rows, sums = Kernel(context), new(4, 3), new(3)
for _ in range(2):
    kernel(queue, cla.to_device(queue, table), cla.to_device(queue, places), rows, sums)
    assert (rows.get() == table[places]).all() and (sums.get() == table[places].sum(0)).all()
places[1] = 5
try:
    kernel(queue, cla.to_device(queue, table), cla.to_device(queue, places), rows, sums)
except IndexError as error:
    assert "5" in str(error), error
else:
    raise AssertionError
try:
    kernel(queue, new(5, 4), cla.to_device(queue, places), rows, sums)
except ValueError:
    print("done")
"""

CALLER_IN_C = r"""
#include <stdio.h>
#include "f.h"
int main(void) {
  cl_platform_id platform; cl_device_id device; cl_int s;
  if (clGetPlatformIDs(1, &platform, NULL) || clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL)) return 77;
  cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &s);
  cl_command_queue queue = clCreateCommandQueue(context, device, 0, &s);
  float table[15], sums[3];
  int places[4] = {4, 0, 2, 4};
  for (int i = 0; i < 15; i++) table[i] = i;
  cl_mem t = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof table, table, &s);
  cl_mem p = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof places, places, &s);
  cl_mem y = clCreateBuffer(context, 0, 48, NULL, &s), c = clCreateBuffer(context, 0, 12, NULL, &s);
  char message[200];
  f_module module;
  if (f_load(&module, context, device) || f(&module, queue, t, p, y, c)) return 1;
  if (f_check(&module, queue, message, sizeof message)) return 2;
  clEnqueueReadBuffer(queue, c, CL_TRUE, 0, 12, sums, 0, NULL, NULL);
  printf("%g %g %g\n", sums[0], sums[1], sums[2]);
  places[3] = -1;
  clEnqueueWriteBuffer(queue, p, CL_TRUE, 0, sizeof places, places, 0, NULL, NULL);
  if (f(&module, queue, t, p, y, c) || f_check(&module, queue, message, sizeof message) != 1) return 3;
  puts(message);
  f_unload(&module);
  return 0;
}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    tc.define(PROGRAM).f.compile(sizes=SIZES, target="opencl:gpu").export(tmp_path)
    return tmp_path


def variables() -> dict[str, str]:
    """Nothing of Python's; and PoCL, which comes in pyopencl's folder, for a loader that is not pyopencl's."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    libraries = str(Path(opencl_module().__file__).parent / ".libs")
    return kept | {"OCL_ICD_VENDORS": libraries, "LD_LIBRARY_PATH": libraries}


def in_python(folder: Path, program: str) -> str:
    command = [sys.executable, "-c", "import sys; sys.path.insert(0, '.')\n" + program]
    done = subprocess.run(command, cwd=folder, env=variables(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def in_c(folder: Path, program: str) -> str:
    if shutil.which("gcc") is None or not Path("/usr/include/CL/cl.h").exists():
        pytest.skip("there is no gcc, or no header of OpenCL")
    (folder / "main.c").write_text(program, encoding="utf-8")
    warnings = ("-Wall", "-Wextra", "-Wshadow", "-Werror", "-Wmissing-prototypes", "-Wno-deprecated-declarations")
    for command in (["gcc", "-O1", *warnings, "f.c", "main.c", "-lOpenCL", "-o", "example"], ["./example"]):
        done = subprocess.run(command, cwd=folder, env=variables(), capture_output=True, text=True, check=False)
        if done.returncode == 77 or "cannot find -lOpenCL" in done.stderr:
            pytest.skip("there is no loader of OpenCL, or no device for it")
        assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@NEEDS_DEVICE
def test_from_python(folder: Path) -> None:
    assert sorted(p.name for p in folder.iterdir()) == ["README.md", "f.c", "f.cl", "f.h", "f.json", "f_pyopencl.py"]
    assert in_python(folder, CALLER) == "done\n"


STEPS = """def f(float(T,N) X) -> (U) {
  S(0,i) = 0.0 where i in 0:N
  for t in 1:T { S(t,i) = S(t-1,i) + t * X(t,i) }
  U(i) = S(T-1,i)
}"""

STEPS_CALLER = """
import numpy as np, pyopencl as cl, pyopencl.array as cla
from f_pyopencl import Kernel
context = cl.create_some_context(interactive=False)
queue = cl.CommandQueue(context)
x = np.arange(45, dtype="f4").reshape(9, 5)
u = cla.zeros(queue, 5, np.float32)
Kernel(context)(queue, cla.to_device(queue, x), u)
assert (u.get() == (np.arange(9)[:, None] * x).sum(0)).all(), u
print("done")
"""

STEPS_CALLER_IN_C = r"""
#include <stdio.h>
#include "f.h"
int main(void) {
  cl_platform_id platform; cl_device_id device; cl_int s;
  if (clGetPlatformIDs(1, &platform, NULL) || clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL)) return 77;
  cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &s);
  cl_command_queue queue = clCreateCommandQueue(context, device, 0, &s);
  float x[45], sums[5];
  for (int i = 0; i < 45; i++) x[i] = i;
  cl_mem in = clCreateBuffer(context, CL_MEM_COPY_HOST_PTR, sizeof x, x, &s);
  cl_mem out = clCreateBuffer(context, 0, sizeof sums, NULL, &s);
  f_module module;
  if (f_load(&module, context, device) || f(&module, queue, in, out)) return 1;
  clEnqueueReadBuffer(queue, out, CL_TRUE, 0, sizeof sums, sums, 0, NULL, NULL);
  for (int i = 0; i < 5; i++) printf("%g ", sums[i]);
  f_unload(&module);
  return 0;
}
"""


@NEEDS_DEVICE
def test_what_runs_step_by_step(tmp_path: Path) -> None:
    tc.define(STEPS).f.compile(sizes={"T": 9, "N": 5}, target="opencl:gpu").export(tmp_path)
    assert in_python(tmp_path, STEPS_CALLER) == "done\n"
    # The sum of t * (5 t + i) for t from 1 to 8.
    assert in_c(tmp_path, STEPS_CALLER_IN_C) == "1020 1056 1092 1128 1164 "


@NEEDS_DEVICE
def test_from_c(folder: Path) -> None:
    told = "30 34 38\nqueue(n), dimension 0 of T, must be from 0 on and below 5, but is -1\n"
    assert in_c(folder, CALLER_IN_C) == told


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two sizes, without any device."""
    file = tmp_path / "mm.tc"
    file.write_text("def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }", encoding="utf-8")
    shapes = ["--shapes", "M=64/128,K=64,N=64", "--output", str(tmp_path / "out")]
    assert main(["export", str(file), *shapes, "--target", "opencl:cpu"]) == 0
    assert "mm_M128_K64_N64.cl" in capsys.readouterr().out
    text = (tmp_path / "out" / "mm.c").read_text(encoding="utf-8")
    assert "cl_int mm_M64_K64_N64(" in text
    assert main(["export", str(file), *shapes, "--target", "hip:gfx90a"]) != 0
    assert "hip:gfx90a" in capsys.readouterr().err
