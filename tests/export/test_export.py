"""Kernels that leave tcomp: compiled by gcc with all warnings, run without Python, compared with the interpreter."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.cli import main
from tcomp.export.naming import identifier, identifiers

GCC = shutil.which("gcc")
needs_gcc = pytest.mark.skipif(GCC is None, reason="there is no gcc")
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror", "-Wmissing-prototypes")

SOFTMAX = """
def softmax(float(N,D) X) -> (Y) {
    m(n) max=! X(n,d)   e(n,d) = exp(X(n,d) - m(n))   s(n) +=! e(n,d)   Y(n,d) = e(n,d) / s(n)
}"""
LOOKUP = "def lookup(float(V,D) T, int32(N) at) -> (Y) { Y(n,d) = T(at(n),d) where d in 0:D }"


def only(text: str) -> tc.Operation:
    module = tc.define(text)
    (name,) = module
    return module[name]


def run(*command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """A process that has nothing of Python's."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)


def built(folder: Path, *flags: str) -> None:
    files = [path.name for path in folder.glob("*.c")]
    flags = (*WARNINGS, "-O1", "-fopenmp", "-march=native", "-fwrapv", "-fno-tree-slp-vectorize", *flags)
    done = run("gcc", *flags, *files, "-lm", "-lpthread", "-o", "example", folder=folder)
    assert done.returncode == 0, done.stderr


def ran(folder: Path, arrays: list[np.ndarray[Any, Any]]) -> str:
    """What the example prints for some arrays that it reads."""
    for number, array in enumerate(arrays):
        (folder / f"{number}.in").write_bytes(array.tobytes())
    done = run("./example", *(f"{n}.in" for n in range(len(arrays))), folder=folder)
    assert done.returncode in (0, 1), done.stderr
    return done.stdout


@needs_gcc
@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (SOFTMAX, {"N": 256, "D": 512}),
        ("def mm(double(M,K) A, double(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }", {"M": 9, "N": 17, "K": 5}),
        # Names that C, libm and a macro of complex.h have, and one that the example uses.
        ("def exp(float(I) register, float(I) count) -> (i) { i(m) = register(m) + count(m) }", {"I": 33}),
    ],
    ids=["threads", "product", "names"],
)
def test_examples_compute_what_the_interpreter_does(tmp_path: Path, text: str, sizes: dict[str, int]) -> None:
    operation = only(text)
    kernel = operation.compile(sizes=sizes)
    kernel.export(tmp_path)
    built(tmp_path)
    rng = np.random.default_rng(1)
    arguments = [a for a in kernel._source.called if a.role == "input"]
    inputs = [rng.integers(-4, 5, a.shape).astype(a.dtype.name) for a in arguments]
    ran(tmp_path, inputs)
    expected = operation.reference(*inputs)
    (raw,) = tmp_path.glob("*.raw")
    found = np.frombuffer(raw.read_bytes(), expected.dtype).reshape(expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@needs_gcc
def test_strides_of_arrays_are_those_of_the_kernel(tmp_path: Path) -> None:
    """One array is read from its end to its beginning, one is transposed, and one is read before it is written."""
    ops = tc.define("def add(float(N) A, float(N,M) B) -> (C) { C(n,m) += A(n) * B(n,m) }")
    a, b, c = np.arange(6, dtype="f4"), np.arange(24, dtype="f4").reshape(4, 6), np.ones((6, 4), "f4")
    ops.add.compile(a[::-1], b.T, out=c).export(tmp_path, name="added")
    built(tmp_path)
    ran(tmp_path, [a, b, c])
    found = np.frombuffer((tmp_path / "C.raw").read_bytes(), "f4").reshape(6, 4)
    assert (found == 1 + a[::-1, None] * b.T).all()
    assert "strides -1" in (tmp_path / "README.md").read_text()


@needs_gcc
def test_wrong_subscripts_are_told(tmp_path: Path) -> None:
    kernel = tc.define(LOOKUP).lookup.compile(sizes={"V": 5, "D": 3, "N": 4})
    kernel.export(tmp_path)
    built(tmp_path)
    table = np.arange(15, dtype="f4").reshape(5, 3)
    told = ran(tmp_path, [table, np.array([0, 4, 5, 1], "i4")])
    assert told == "status 1: at(n), dimension 0 of T, must be from 0 on and below 5, but is 5\n"
    assert ran(tmp_path, [table, np.array([0, 4, 3, 1], "i4")]) == "Y begins with 0\n"


@needs_gcc
def test_one_function_chooses_among_sizes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its libraries claim no name but those that begin with its own, and its threads are told how many they may be."""
    (tmp_path / "softmax.tc").write_text(SOFTMAX)
    words = ("export", str(tmp_path / "softmax.tc"), "--shapes", "N=8/300,D=512", "--output", str(tmp_path / "out"))
    assert main(words) == 0
    assert str(tmp_path / "out" / "libsoftmax.so") in capsys.readouterr().out
    library = ctypes.CDLL(str(tmp_path / "out" / "libsoftmax.so"))
    library.softmax.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    library.softmax_threads(1)
    for rows in (8, 300):
        x, y = np.random.default_rng(0).random((rows, 512), "f4"), np.zeros((rows, 512), "f4")
        assert library.softmax(rows, 512, x.ctypes.data, y.ctypes.data) == 0
        np.testing.assert_allclose(y, tc.define(SOFTMAX).softmax.reference(x), rtol=1e-5)
    assert library.softmax(9, 512, x.ctypes.data, y.ctypes.data) == 3
    listed = run("nm", "-g", "--defined-only", "libsoftmax.a", folder=tmp_path / "out").stdout
    names = [line.split()[-1] for line in listed.splitlines() if len(line.split()) == 3]
    assert "softmax" in names and all(name.startswith("softmax") for name in names)


@needs_gcc
@pytest.mark.long
@pytest.mark.skipif(shutil.which("cmake") is None, reason="there is no CMake")
def test_cmake_builds_the_libraries_and_the_example(tmp_path: Path) -> None:
    tc.define(SOFTMAX).softmax.compile(sizes={"N": 256, "D": 512}).export(tmp_path)
    for file in tmp_path.glob("lib*"):
        file.unlink()
    for command in (("cmake", "-B", "build"), ("cmake", "--build", "build")):
        done = run(*command, folder=tmp_path)
        assert done.returncode == 0, done.stderr
    assert {"libsoftmax.a", "libsoftmax.so"} <= {path.name for path in (tmp_path / "build").iterdir()}
    assert "begins with" in run("build/softmax_example", folder=tmp_path).stdout


CHECKED = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Wmissing-prototypes", "-Werror")
SANITIZED = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
BYTES = "def products(int8(M,K) A, uint8(K,N) B) -> (int32(M,N) C) { C(m,n) +=! int32(A(m,k)) * int32(B(k,n)) }"


def needs(compiler: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(compiler) is None, reason=f"there is no {compiler}")


def compiled(compiler: str, folder: Path, *flags: str) -> None:
    """With all of these warnings as errors; clang has no header of OpenMP's everywhere, so it makes no threads."""
    threads = "-fopenmp" if compiler == "gcc" else "-fopenmp-simd"
    files = [path.name for path in folder.glob("*.c")]
    flags = (*CHECKED, "-O1", "-march=native", "-fwrapv", threads, *flags)
    done = run(compiler, *flags, *files, "-lm", "-lpthread", "-o", "example", folder=folder)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "compiler",
    [pytest.param("gcc", marks=needs("gcc")), pytest.param("clang", marks=(needs("clang"), pytest.mark.long))],
)
def test_what_is_exported_for_several_sizes_has_no_warnings(tmp_path: Path, compiler: str) -> None:
    """The kernels, the function that chooses, the threads and the example; run under sanitizers."""
    (tmp_path / "softmax.tc").write_text(SOFTMAX)
    words = ("export", str(tmp_path / "softmax.tc"), "--shapes", "N=8/300,D=67", "--output", str(tmp_path / "out"))
    assert main(words) == 0
    compiled(compiler, tmp_path / "out", *SANITIZED)
    done = run("./example", folder=tmp_path / "out")
    assert done.returncode == 0 and "begins with" in done.stdout, done.stderr


@pytest.mark.long
@pytest.mark.parametrize("compiler", [pytest.param(c, marks=needs(c)) for c in ("gcc", "clang")])
@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (BYTES, {"M": 33, "N": 65, "K": 70}),
        (LOOKUP, {"V": 5, "D": 3, "N": 4}),
        (
            "def conv(float(N,C,H,W) I, float(M,C,R,S) K) -> (O) { O(n,m,h,w) +=! I(n,c,h+r,w+s) * K(m,c,r,s) }",
            {"N": 2, "C": 3, "H": 17, "W": 28, "M": 5, "R": 3, "S": 3},
        ),
    ],
    ids=["bytes", "lookup", "convolution"],
)
def test_kernels_have_no_warnings(tmp_path: Path, text: str, sizes: dict[str, int], compiler: str) -> None:
    only(text).compile(sizes=sizes).export(tmp_path)
    compiled(compiler, tmp_path, *SANITIZED)
    done = run("./example", folder=tmp_path)
    assert done.returncode == 0 and "begins with" in done.stdout, done.stderr


@needs_gcc
@pytest.mark.long
@pytest.mark.parametrize("text", [SOFTMAX, "def mm(float(N,D) A, float(D,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"])
def test_sanitizers_find_nothing(tmp_path: Path, text: str) -> None:
    operation = only(text)
    operation.compile(sizes={"N": 131, "D": 67}).export(tmp_path)
    built(tmp_path, "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    done = run("./example", folder=tmp_path)
    assert done.returncode == 0, done.stderr


@needs_gcc
def test_what_cannot_be_exported_says_so(tmp_path: Path) -> None:
    ops = tc.define("def f(float(N) A) -> (B) { B(n) = A(n) }")
    kernel = ops.f.compile(sizes={"N": 4})
    with pytest.raises(tc.TcompError, match="no name of a C function"):
        kernel.export(tmp_path, name="a b")
    with pytest.raises(tc.TcompError, match="architectures are for kernels of a GPU"):
        kernel.export(tmp_path, architectures=["sm_90"])
    with pytest.raises(tc.TcompError, match="target simulator"):
        ops.f.compile(sizes={"N": 4}, target="simulator").export(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(tc.TcompError, match="cannot make the folder"):
        kernel.export(tmp_path / "file")


def test_names_that_c_claims_are_changed() -> None:
    names = ["exp", "expf", "double", "I", "linux", "class", "_A", "tc_x", "good"]
    assert [identifier(n) for n in names] == [
        "exp_",
        "expf_",
        "double_",
        "I_",
        "linux_",
        "class_",
        "t_A",
        "ttc_x",
        "good",
    ]
    assert identifiers(["int", "int_", "size"], ["size"]) == {"int": "int_", "int_": "int__", "size": "size_"}


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
FAKE_TORCH = """
import ctypes, types, numpy
uint8, int64 = "u1", "i8"
class Tensor:
    def __init__(self, a): self.a, self.shape, self.dtype, self.device = a, a.shape, f"torch.{a.dtype}", 0
    def stride(self): return tuple(s // self.a.itemsize for s in self.a.strides)
    def data_ptr(self): return self.a.ctypes.data
def zeros(n, dtype, device): return Tensor(numpy.zeros(n, dtype))
stream = types.SimpleNamespace(cuda_stream=0, synchronize=lambda: None)
cuda = types.SimpleNamespace(get_device_capability=lambda: (8, 7), current_stream=lambda: stream)
"""


FAKE_CUPY = """
import types, numpy
uint64 = numpy.uint64
class Array:
    def __init__(self, a): self.a, self.shape, self.dtype, self.itemsize = a, a.shape, a.dtype, a.itemsize
    strides = property(lambda self: self.a.strides)
    data = property(lambda self: types.SimpleNamespace(ptr=self.a.ctypes.data))
def zeros(n, dtype): return Array(numpy.zeros(n, dtype))
cuda = types.SimpleNamespace(Device=lambda: types.SimpleNamespace(compute_capability="80"))
class Function:
    def __init__(self, name): self.name, self.max_dynamic_shared_size_bytes = name, 0
    def __call__(self, grid, block, passed, shared_mem): print(self.name, *grid, *block, shared_mem)
class RawModule:
    def __init__(self, path): print("load", path.rpartition("/")[2])
    def get_function(self, name): return Function(name)
"""


@needs_gcc
def test_gpu_kernels_are_launched_as_tcomp_launches_them(tmp_path: Path) -> None:
    """The launcher in C and the loaders, on a driver that notes what it is told."""
    pytest.importorskip("nvidia")
    kernel = tc.define(SOFTMAX).softmax.compile(sizes={"N": 8, "D": 4096}, target="cuda:sm_80")
    kernel.export(tmp_path, architectures=["sm_80", "sm_90"])
    assert (tmp_path / "softmax_sm_90.cubin").read_bytes()[:4] == b"\x7fELF"
    wanted = [
        " ".join(map(str, (launch.kernel, *launch.grid, *launch.block, launch.shared_bytes)))
        for launch in kernel._source.launches
    ]
    assert wanted
    (tmp_path / "cuda.h").write_text(FAKE_CUDA)
    (tmp_path / "driver.c").write_text(FAKE_DRIVER)
    program = 'softmax_load(&m, ".") || softmax(&m, 4096, 8192, (CUdeviceptr)room, 0) || softmax_unload(&m)'
    room = f"static char room[{16 + kernel._source.scratch_bytes}];"
    (tmp_path / "use.c").write_text(
        f'#include "softmax.h"\n{room}\nint main(void) {{ softmax_module m; return {program}; }}\n'
    )
    done = run("gcc", *WARNINGS, "-I.", "use.c", "softmax.c", "driver.c", "-o", "use", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    told = run("./use", folder=tmp_path)
    assert told.returncode == 0
    assert told.stdout.splitlines() == ["load softmax_sm_80.cubin", *wanted]

    run("gcc", "-I.", "-shared", "-fPIC", "driver.c", "-o", "libcuda.so.1", folder=tmp_path)
    (tmp_path / "torch.py").write_text(FAKE_TORCH)
    program = (
        "import numpy, torch, softmax_torch\nk = softmax_torch.Kernel()\n"
        "x = torch.Tensor(numpy.zeros((8, 4096), 'f4'))\nk(x, x)\n"
        "try: k(x, torch.Tensor(numpy.zeros((8, 4), 'f4')))\nexcept ValueError as e: print('refused')"
    )
    variables = os.environ | {"LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(tmp_path)}
    told = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=variables, capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr
    assert sorted(told.stdout.splitlines()) == sorted(["load softmax_sm_80.cubin", *wanted, "refused"])

    (tmp_path / "cupy.py").write_text(FAKE_CUPY)
    program = (
        "import numpy, cupy, softmax_cupy\nx = cupy.Array(numpy.zeros((8, 4096), 'f4'))\nsoftmax_cupy.Kernel()(x, x)"
    )
    told = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=variables, capture_output=True, text=True, check=False
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout.splitlines() == ["load softmax_sm_80.cubin", *wanted]
    assert json.loads((tmp_path / "softmax.json").read_text())["abi"] == 1


STEPS = """def f(float(T,N) X) -> (U) {
  S(0,i) = 0.0 where i in 0:N
  for t in 1:T { S(t,i) = S(t-1,i) + t * X(t,i) }
  U(i) = S(T-1,i)
}"""


@needs_gcc
def test_what_runs_step_by_step_is_launched_in_loops(tmp_path: Path) -> None:
    pytest.importorskip("nvidia")
    kernel = tc.define(STEPS).f.compile(sizes={"T": 9, "N": 5}, target="cuda:sm_80")
    kernel.export(tmp_path, architectures=["sm_80"])
    source = kernel._source
    assert source.turns is not None and len(source.turns) == 10
    assert (tmp_path / "f.c").read_text().count("cuLaunchKernel") < 7
    (tmp_path / "cuda.h").write_text(FAKE_CUDA)
    # The driver tells where the arguments are, and as many numbers behind them as there are steps.
    told = 'for (int n = 0; n < (*(char *)f - 48); n++) printf(" %lld", *(long long *)passed[n]); puts("");'
    driver = FAKE_DRIVER.replace("strcpy(names[known], n);", "names[known][0] = COUNT(n); strcpy(names[known] + 1, n);")
    driver = (
        driver.replace("(char *)f, gx", "(char *)f + 1, gx")
        .replace('%u\\n"', '%u"')
        .replace("fflush", f"{told} fflush")
    )
    counts = {launch.kernel: len(launch.arguments) + len(launch.steps) for launch in source.launches}
    known = " : ".join(f'!strcmp(n, "{name}") ? {48 + count}' for name, count in counts.items())
    (tmp_path / "driver.c").write_text(f"#define COUNT(n) ({known} : 48)\n{driver}")
    room = f"static char room[{16 + source.scratch_bytes}];"
    program = 'f_load(&m, ".") || f(&m, 4096, 8192, (CUdeviceptr)room, 0)'
    (tmp_path / "use.c").write_text(
        f'#include "f.h"\n#include <stdio.h>\n{room}\n'
        f'int main(void) {{ f_module m; printf("%lld\\n", (long long)room); return {program}; }}\n'
    )
    done = run("gcc", *WARNINGS, "-I.", "use.c", "f.c", "driver.c", "-o", "use", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    base, _, *lines = run("./use", folder=tmp_path).stdout.splitlines()
    places = {"X": 4096, "U": 8192} | {t.name: int(base) + t.offset for t in source.temporaries}
    wanted = []
    for number, *given in source.turns:
        launch = source.launches[number]
        own = [places[name] + behind for name, behind in zip(launch.arguments, given, strict=False)]
        extents = launch.kernel, *launch.grid, *launch.block, launch.shared_bytes
        wanted.append(" ".join(map(str, (*extents, *own, *given[len(own) :]))))
    assert lines == wanted


def test_loaders_are_programs(tmp_path: Path) -> None:
    pytest.importorskip("nvidia")
    kernel = tc.define(LOOKUP).lookup.compile(sizes={"V": 5, "D": 3, "N": 4}, target="cuda:sm_80")
    kernel.export(tmp_path, architectures=["sm_80"])
    for name, most in {"lookup_cupy.py": 30, "lookup_torch.py": 41}.items():
        text = (tmp_path / name).read_text()
        compile(text, name, "exec")
        assert len(list(filter(str.strip, text.splitlines()))) <= most
    assert "lookup_check" in (tmp_path / "lookup.h").read_text()
