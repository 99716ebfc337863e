"""GPU kernels that leave tcomp, launched on stand-ins of a driver that note what they are told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tcomp as tc
from tcomp.backends.source import REPORT, Source
from tcomp.export.facts import room_of
from tests.export.processes import LOOKUP, SOFTMAX, WARNINGS, needs_gcc, run

FAKE_CUDA = """
#include <stddef.h>
typedef int CUresult; typedef int CUdevice; typedef unsigned long long CUdeviceptr;
typedef struct CUmod_st *CUmodule; typedef struct CUfunc_st *CUfunction; typedef struct CUstream_st *CUstream;
enum { CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75 };
enum { CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8 };
CUresult cuCtxGetDevice(CUdevice *); CUresult cuDeviceGetAttribute(int *, int, CUdevice);
CUresult cuModuleLoad(CUmodule *, const char *); CUresult cuModuleUnload(CUmodule);
CUresult cuModuleGetFunction(CUfunction *, CUmodule, const char *); CUresult cuFuncSetAttribute(CUfunction, int, int);
CUresult cuMemsetD8Async(CUdeviceptr, unsigned char, size_t, CUstream); CUresult cuStreamSynchronize(CUstream);
CUresult cuMemcpyDtoH(void *, CUdeviceptr, size_t);
CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
                        void **, void **);
"""
FAKE_DRIVER = """
#include "cuda.h"
#include <stdio.h>
#include <string.h>
static char names[9][64]; static int known;
CUresult cuCtxGetDevice(CUdevice *d) { *d = 0; return 0; }
CUresult cuDeviceGetAttribute(int *v, int a, CUdevice d) { *v = a == 75 ? 8 : 7; return d; }
CUresult cuModuleLoad(CUmodule *m, const char *f) { printf("load %s\\n", strrchr(f, '/') + 1); *m = 0; return 0; }
CUresult cuModuleUnload(CUmodule m) { return m != 0; }
CUresult cuModuleGetFunction(CUfunction *f, CUmodule m, const char *n) {
  strcpy(names[known], n); *f = (CUfunction)names[known++]; return m != 0;
}
CUresult cuFuncSetAttribute(CUfunction f, int a, int v) { (void)v; return !f || a != 8; }
CUresult cuMemsetD8Async(CUdeviceptr p, unsigned char v, size_t n, CUstream s) {
  (void)s; memset((void *)p, v, n); return 0;
}
CUresult cuStreamSynchronize(CUstream s) { return s != 0; }
CUresult cuMemcpyDtoH(void *to, CUdeviceptr p, size_t n) { memcpy(to, (void *)p, n); return 0; }
CUresult cuLaunchKernel(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, CUstream s, void **passed, void **extra) {
  (void)passed; (void)extra; (void)s;
  printf("%s %u %u %u %u %u %u %u\\n", (char *)f, gx, gy, gz, bx, by, bz, shared); fflush(stdout); return 0;
}
"""
FAKE_ARRAYS = """
import math, types
found = [0, 7, 0]
def zeros(count, dtype=None, device=None): return Array(1 << 20, [count])
class Array:
    def __init__(self, place, shape, dtype="float32"):
        self.place, self.shape, self.dtype, self.device = place, shape, PREFIX + dtype, "gpu"
        self.steps = [math.prod(shape[n + 1:]) for n in range(len(shape))]
    def squeeze(self): return Array(self.place, [n for n in self.shape if n != 1])
    def __getitem__(self, part): assert part.start % 256 == 0; return self
    def view(self, dtype): assert dtype == "i8"; return self
"""
FAKE_TORCH = f"""
import ctypes
PREFIX, uint8, int64 = "torch.", "u1", "i8"
{FAKE_ARRAYS}
    def stride(self): return tuple(self.steps)
    def data_ptr(self): return self.place
    def tolist(self): return found
class stream: _as_parameter_ = ctypes.c_void_p(0)
cuda = types.SimpleNamespace(get_device_capability=lambda device: (8, 7), current_stream=lambda: stream)
"""
FAKE_CUPY = f"""
import numpy
PREFIX, int64 = "", numpy.int64
{FAKE_ARRAYS}
    itemsize = 4
    strides = property(lambda self: [4 * s for s in self.steps])
    data = property(lambda self: types.SimpleNamespace(ptr=self.place))
    def get(self): return found
cuda = types.SimpleNamespace(Device=lambda: types.SimpleNamespace(compute_capability="87"))
class Function:
    def __init__(self, name): self.name, self.max_dynamic_shared_size_bytes = name, 0
    def __call__(self, grid, block, passed, shared_mem):
        assert shared_mem <= self.max_dynamic_shared_size_bytes
        assert all(isinstance(value, int64) for value in passed)
        print(self.name, *grid, *block, shared_mem, *passed)
class RawModule:
    def __init__(self, path): print("load", path.rpartition("/")[2])
    def get_function(self, name): return Function(name)
"""


def driver_of(source: Source) -> str:
    """A driver that tells of each launch also where its arguments are, and the numbers behind them."""
    told = 'for (int n = 0; n < (*(char *)f - 48); n++) printf(" %lld", *(long long *)passed[n]); puts("");'
    counts = {launch.kernel: len(launch.arguments) + len(launch.steps) for launch in source.launches}
    known = " : ".join(f'!strcmp(n, "{name}") ? {48 + count}' for name, count in counts.items())
    driver = FAKE_DRIVER.replace("strcpy(names[known], n);", "names[known][0] = COUNT(n); strcpy(names[known] + 1, n);")
    driver = driver.replace("(char *)f, gx", "(char *)f + 1, gx").replace('%u\\n"', '%u"')
    return f"#define COUNT(n) ({known} : 48)\n" + driver.replace("fflush", f"{told} fflush")


def launches_of(source: Source, places: dict[str, int], room: int) -> list[str]:
    """What such a driver is told where arrays and the scratch memory lie there."""
    places = places | {t.name: room + t.offset for t in source.temporaries} | {REPORT: room + room_of(source)[1]}
    lines = []
    for number, *given in source.order:
        launch = source.launches[number]
        own = [places[name] + behind for name, behind in zip(launch.arguments, given, strict=False)]
        extents = launch.kernel, *launch.grid, *launch.block, launch.shared_bytes
        lines.append(" ".join(map(str, (*extents, *own, *given[len(own) :]))))
    return lines


def loaded(folder: Path, library: str, program: str) -> list[str]:
    """What a driver is told by a program in which a library of Python's is another one that has no device."""
    (folder / f"{library}.py").write_text({"torch": FAKE_TORCH, "cupy": FAKE_CUPY}[library])
    variables = os.environ | {"LD_LIBRARY_PATH": str(folder), "PYTHONPATH": str(folder)}
    command = [sys.executable, "-c", f"import {library}\nfrom {library} import Array\n{program}"]
    told = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    return told.stdout.splitlines()


@needs_gcc
def test_gpu_kernels_are_launched_as_tcomp_launches_them(tmp_path: Path) -> None:
    """The launcher in C and the loaders, on a driver that notes what it is told."""
    pytest.importorskip("nvidia")
    kernel = tc.define(SOFTMAX).softmax.compile(sizes={"N": 8, "D": 4096}, target="cuda:sm_80")
    kernel.export(tmp_path, architectures=["sm_80", "sm_90"])
    source = kernel._source
    assert (tmp_path / "softmax_sm_90.cubin").read_bytes()[:4] == b"\x7fELF"
    (tmp_path / "cuda.h").write_text(FAKE_CUDA)
    (tmp_path / "driver.c").write_text(driver_of(source))
    program = 'softmax_load(&m, ".") || softmax(&m, 4096, 8192, (CUdeviceptr)room, 0) || softmax_unload(&m)'
    room = f"static char room[{16 + source.scratch_bytes}];"
    (tmp_path / "use.c").write_text(
        f'#include "softmax.h"\n{room}\nint main(void) {{ softmax_module m; return {program}; }}\n'
    )
    done = run("gcc", *WARNINGS, "-I.", "use.c", "softmax.c", "driver.c", "-o", "use", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    told = run("./use", folder=tmp_path)
    assert told.returncode == 0
    wanted = ["load softmax_sm_80.cubin", *launches_of(source, {"X": 4096, "Y": 8192}, 1 << 20)]
    assert len(wanted) > 1 and told.stdout.splitlines() == wanted

    run("gcc", "-I.", "-shared", "-fPIC", "driver.c", "-o", "libcuda.so.1", folder=tmp_path)
    for library in ("torch", "cupy"):
        program = (
            f"from softmax_{library} import Kernel\nk = Kernel()\nk(Array(4096, [8, 4096]), Array(8192, [8, 4096]))\n"
            "for wrong in (Array(0, [8, 4]), Array(0, [8, 4096], 'int32'), Array(2, [8, 4096])):\n"
            "    try: k(wrong, wrong)\n    except ValueError: pass\n    else: print('not refused')"
        )
        assert loaded(tmp_path, library, program) == wanted
    assert json.loads((tmp_path / "softmax.json").read_text())["abi"] == 1


STEPS = """def f(float(T,N) X) -> (U) {
  S(0,i) = 0.0 where i in 0:N
  for t in 1:T { S(t,i) = S(t-1,i) + t * X(t,i) }
  U(i) = S(T-1,i)
}"""


@needs_gcc
def test_what_runs_step_by_step_is_launched_in_loops(tmp_path: Path) -> None:
    """By the launcher in C and by the loaders, each time with the slices and the number of the step."""
    pytest.importorskip("nvidia")
    kernel = tc.define(STEPS).f.compile(sizes={"T": 9, "N": 5}, target="cuda:sm_80")
    kernel.export(tmp_path, architectures=["sm_80"])
    source = kernel._source
    assert source.turns is not None and len(source.turns) == 10
    assert (tmp_path / "f.c").read_text().count("cuLaunchKernel") < 7
    (tmp_path / "cuda.h").write_text(FAKE_CUDA)
    (tmp_path / "driver.c").write_text(driver_of(source))
    room = f"static char room[{16 + source.scratch_bytes}];"
    program = 'f_load(&m, ".") || f(&m, 4096, 8192, (CUdeviceptr)room, 0)'
    (tmp_path / "use.c").write_text(
        f'#include "f.h"\n#include <stdio.h>\n{room}\n'
        f'int main(void) {{ f_module m; printf("%lld\\n", (long long)room); return {program}; }}\n'
    )
    done = run("gcc", *WARNINGS, "-I.", "use.c", "f.c", "driver.c", "-o", "use", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    base, _, *lines = run("./use", folder=tmp_path).stdout.splitlines()
    places = {"X": 4096, "U": 8192}
    assert lines == launches_of(source, places, int(base))
    run("gcc", "-I.", "-shared", "-fPIC", "driver.c", "-o", "libcuda.so.1", folder=tmp_path)
    for library in ("torch", "cupy"):
        program = f"from f_{library} import Kernel\nk = Kernel()\nk(Array(4096, [9, 5]), Array(8192, [5]))"
        lines = loaded(tmp_path, library, program)
        assert lines[1:] == launches_of(source, places, 1 << 20)


@needs_gcc
def test_loaders_are_short_and_tell_of_wrong_subscripts(tmp_path: Path) -> None:
    pytest.importorskip("nvidia")
    kernel = tc.define(LOOKUP).lookup.compile(sizes={"V": 5, "D": 3, "N": 4}, target="cuda:sm_80")
    kernel.export(tmp_path, architectures=["sm_80"])
    (tmp_path / "cuda.h").write_text(FAKE_CUDA)
    (tmp_path / "driver.c").write_text(FAKE_DRIVER)
    run("gcc", "-I.", "-shared", "-fPIC", "driver.c", "-o", "libcuda.so.1", folder=tmp_path)
    for library in ("torch", "cupy"):
        text = (tmp_path / f"lookup_{library}.py").read_text()
        assert len(list(filter(str.strip, text.splitlines()))) <= 30
        assert max(map(len, text.splitlines())) <= 120
        program = (
            f"from lookup_{library} import Kernel\nk = Kernel()\n"
            "arrays = Array(0, [5, 3]), Array(0, [4], 'int32'), Array(0, [4, 3])\nk(*arrays)\n"
            f"{library}.found[2] = 1\ntry: k(*arrays)\nexcept IndexError as error: print(error)"
        )
        told = "at(n), dimension 0 of T, must be from 0 on and below 5, but is 7"
        assert loaded(tmp_path, library, program).count(told) == 1
    assert "lookup_check" in (tmp_path / "lookup.h").read_text()
