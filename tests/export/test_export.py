"""Kernels that leave tcomp: compiled by gcc with all warnings, run without Python, compared with the interpreter."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.cli import main
from tcomp.export import ctext
from tcomp.export.interface import Variant, interface_of
from tcomp.export.naming import identifier, identifiers
from tcomp.grammar import define
from tcomp.model.terms.sizes import Sizes
from tcomp.runtime.specialisation import Specialisation
from tcomp.values.intrinsics import INTRINSICS
from tests.export.processes import LOOKUP, SOFTMAX, WARNINGS, needs_gcc, run


def only(text: str) -> tc.Operation:
    module = tc.define(text)
    (name,) = module
    return module[name]


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

TRIANGLE = """def trmm(double(M,M) A, double(M,N) B) -> (C) {
  S(i,j) +=! A(k,i) * B(k,j) where i in 0:M, k in i+1:M
  C(i,j) = 1.5 * (B(i,j) + S(i,j)) where i in 0:M
}"""


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
        (TRIANGLE, {"M": 11, "N": 13}),
    ],
    ids=["bytes", "lookup", "convolution", "triangle"],
)
def test_kernels_have_no_warnings(tmp_path: Path, text: str, sizes: dict[str, int], compiler: str) -> None:
    only(text).compile(sizes=sizes).export(tmp_path)
    compiled(compiler, tmp_path, *SANITIZED)
    done = run("./example", folder=tmp_path)
    assert done.returncode == 0 and "begins with" in done.stdout, done.stderr


@pytest.mark.parametrize("compiler", [pytest.param(c, marks=needs(c)) for c in ("gcc", "clang")])
@pytest.mark.parametrize("dtype", ["float", "double"])
def test_no_built_in_function_has_warnings(tmp_path: Path, dtype: str, compiler: str) -> None:
    rows = [row for row in INTRINSICS.values() if not row.only_integers]
    calls = [f"B{n}(i) = {row.name}({', '.join(['A(i)'] * row.arity)})" for n, row in enumerate(rows)]
    outputs = ", ".join(f"B{n}" for n in range(len(rows)))
    function = define(f"def f({dtype}(N) A) -> ({outputs}) {{ {' '.join(calls)} }}")["f"]
    sizes = {"N": 100}
    source = Specialisation(function, Sizes(sizes), tc.MappingOptions(), "cpu", False, None).lower().source
    interface = interface_of(function, [Variant(sizes, source)], None)
    for name, text in {**ctext.sources(interface), "f.h": ctext.header(interface)}.items():
        (tmp_path / name).write_text(text)
    done = run(compiler, *CHECKED, "-march=native", "-fopenmp-simd", "-fsyntax-only", "f.c", folder=tmp_path)
    assert done.returncode == 0, done.stderr


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


def test_sizes_of_one_kernel_and_of_several_are_not_given_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "softmax.tc").write_text(SOFTMAX)
    words = ("export", str(tmp_path / "softmax.tc"), "--shapes", "N=8/9,D=5", "--output", str(tmp_path / "out"))
    with pytest.raises(SystemExit) as ended:
        main([*words, "--sizes", "N=3,D=5"])
    assert ended.value.code == 2
    assert "--sizes is for one kernel" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


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
