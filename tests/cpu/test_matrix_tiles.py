"""Products by instructions for whole matrices: mixtures of signs, shapes of tiles, and where there are none."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.mapping.machines.cpu import this_machine
from tests.agreement import assert_agrees

ml_dtypes = pytest.importorskip("ml_dtypes")
Array = np.ndarray[Any, np.dtype[Any]]

pytestmark = pytest.mark.skipif(not this_machine().matrix_tiles, reason="this processor has no such instructions")

USED = "tc_matrix_product_"


def numbers(kind: str, *shape: int, seed: int = 0) -> Array:
    """Values from the whole range of a type of 8 bits, its ends among them, or normal ones of bfloat16."""
    random = np.random.default_rng([seed, *shape])
    if kind == "bfloat16":
        return np.asarray(random.standard_normal(shape).astype(ml_dtypes.bfloat16))
    limits = np.iinfo(np.dtype(kind))
    values = random.integers(limits.min, limits.max + 1, shape)
    ends = random.choice([limits.min, limits.max], shape)
    return np.where(random.random(shape) < 0.2, ends, values).astype(kind)


def product(first: str, second: str, result: str = "int32", update: str = "+=!") -> str:
    value = f"{result}(A(m,k)) * {result}(B(k,n))"
    return f"def f({first}(M,K) A, {second}(K,N) B) -> ({result}(M,N) C) {{ C(m,n) {update} {value} }}"


@pytest.mark.parametrize("first", ["int8", "uint8"])
@pytest.mark.parametrize("second", ["int8", "uint8"])
@pytest.mark.parametrize("size", [(2, 5, 4), (16, 64, 16), (33, 70, 35), (47, 203, 131), (70, 65, 20)])
def test_every_mixture_of_signs(first: str, second: str, size: tuple[int, int, int]) -> None:
    M, K, N = size
    A, B = numbers(first, M, K), numbers(second, K, N, seed=1)
    kernel = tc.define(product(first, second))["f"].compile(A, B)
    letters = "".join("u" if kind == "uint8" else "s" for kind in (first, second))
    assert f"{USED}b{letters}d(" in kernel.source
    assert (kernel(A, B) == A.astype(np.int32) @ B.astype(np.int32)).all()


@pytest.mark.parametrize("tile", [(1, 16), (7, 64), (16, 80), (48, 16), (32, 32), (20, 32), (100, 100)])
@pytest.mark.parametrize("kind", ["int8", "bfloat16"])
def test_any_tile(kind: str, tile: tuple[int, int]) -> None:
    A, B = numbers(kind, 75, 150), numbers(kind, 150, 130, seed=1)
    f = tc.define(product(kind, kind, "float" if kind == "bfloat16" else "int32"))["f"]
    height, width = min(tile[0], 32) if tile[0] > 48 else tile[0], min(tile[1], 32) if tile[1] > 80 else tile[1]
    options = tc.MappingOptions(tile_sizes=(2 * height, 2 * width), register_tile=tile)
    kernel = f.compile(A, B, options=options)
    assert USED in kernel.source
    assert_agrees(f.function, {"A": A, "B": B}, {"C": kernel(A, B)})


@pytest.mark.parametrize("kind", ["uint8", "bfloat16"])
def test_what_is_there_is_added_to(kind: str) -> None:
    result = "float" if kind == "bfloat16" else "int32"
    with pytest.warns(tc.ProgramWarning):
        f = tc.define(product(kind, kind, result, "+="))["f"]
    A, B = numbers(kind, 37, 41), numbers(kind, 41, 53, seed=1)
    C = np.random.default_rng(2).integers(-1000, 1000, (37, 53)).astype("f4" if result == "float" else "i4")
    expected = C.astype(np.float64) + A.astype(np.float64) @ B.astype(np.float64)
    np.testing.assert_allclose(f(A, B, out=C), expected, rtol=1e-5, atol=1e-4)


CONVOLUTIONS = {
    "channels inside": ("I(n,2*h+p,w+q,c)", "K(p,q,c,o)", "Y(n,h,w,o)", (2, 17, 20, 70), (3, 3, 70, 40)),
    "framed": ("constant_exterior(I,ZERO)(n,h+p-1,w+q-1,c)", "K(p,q,c,o)", "Y(n,h,w,o)", (2, 9, 19, 36),
               (3, 3, 36, 50)),
    "framed, and short steps": ("constant_exterior(I,ZERO)(n,h+p-1,w+q-1,c)", "K(p,q,c,o)", "Y(n,h,w,o)",
                                (2, 7, 8, 67), (3, 3, 67, 20)),
    "framed by another number": ("constant_exterior(I,SEVEN)(n,h+p-1,w+q-1,c)", "K(p,q,c,o)", "Y(n,h,w,o)",
                                 (2, 9, 19, 136), (3, 3, 136, 50)),
    "framed outside": ("constant_exterior(I,ZERO)(n,c,h+p-1,w+q-1)", "K(o,c,p,q)", "Y(n,o,h,w)", (2, 7, 9, 33),
                         (9, 7, 3, 3)),
    "strided": ("I(n,c,2*h+p,3*w+q)", "K(o,c,p,q)", "Y(n,o,h,w)", (2, 5, 12, 69), (9, 5, 3, 3)),
}  # fmt: skip


@pytest.mark.parametrize("name", CONVOLUTIONS)
@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_convolutions(name: str, kind: str) -> None:
    image, weights, result, *shapes = CONVOLUTIONS[name]
    shape, window = shapes
    value = f"int32({image.replace('ZERO', f'{kind}(0)').replace('SEVEN', f'{kind}(7)')}) * int32({weights})"
    inside = "n,c" not in image
    extents = ("D1", "D2") if inside else ("D2", "D3")
    ranges = f" where n in 0:D0, h in 0:{extents[0]}, w in 0:{extents[1]}" if "exterior" in image else ""
    declared = [
        f"{t_kind}({','.join(f'{d}{n}' for n in range(len(s)))}) {t}"
        for t_kind, t, d, s in ((kind, "I", "D", shape), ("int8", "K", "W", window))
    ]
    f = tc.define(f"def f({', '.join(declared)}) -> (Y) {{ {result} +=! {value}{ranges} }}")["f"]
    pixels, K = numbers(kind, *shape), numbers("int8", *window, seed=1)
    kernel = f.compile(pixels, K)
    assert USED in kernel.source
    assert (kernel(pixels, K) == f.reference(pixels, K)).all()


def test_threads_that_call_at_once_have_registers_of_their_own() -> None:
    f, found = tc.define(product("int8", "int8"))["f"], dict[int, bool]()
    operands = [(numbers("int8", n, 100, seed=n), numbers("int8", 100, 5 * n, seed=1)) for n in range(30, 50, 3)]

    def call(number: int) -> None:
        A, B = operands[number]
        expected = A.astype(np.int32) @ B.astype(np.int32)
        found[number] = all((f(A, B) == expected).all() for _ in range(50))

    threads = [threading.Thread(target=call, args=(n,)) for n in range(len(operands))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(operands) and all(found.values())


_REFUSED = """
import ctypes, numpy as np
class Stack(ctypes.Structure):
    _fields_ = [("memory", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]
memory = ctypes.create_string_buffer(2048)
assert ctypes.CDLL(None).sigaltstack(ctypes.byref(Stack(ctypes.addressof(memory), 0, 2048)), None) == 0
import tcomp as tc
from tcomp.mapping.machines.cpu import this_machine
assert not this_machine().matrix_tiles
f = tc.define(TEXT)["f"]
A, B = np.full((40, 70), -128, "i1"), np.full((70, 50), 127, "i1")
for target in TARGETS:
    assert (f(A, B, target=target) == -128 * 127 * 70).all()
"""


def test_a_process_that_is_refused_the_registers_computes_without(tmp_path: Path) -> None:
    """The system refuses them where a stack for signals is too small.  A kernel for a processor by name asks, too."""
    code = _REFUSED.replace("TEXT", repr(product("int8", "int8"))).replace("TARGETS", "['cpu', 'cpu:sapphire-rapids']")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("flags", [("-march=x86-64-v4",), ("-march=sapphirerapids",)])
def test_the_text_compiles_with_and_without_the_instructions(flags: tuple[str, ...], tmp_path: Path) -> None:
    A, B = numbers("uint8", 45, 70), numbers("int8", 70, 37, seed=1)
    kernel = tc.define(product("uint8", "int8"))["f"].compile(A, B, options=tc.MappingOptions(parallel=False))
    (tmp_path / "kernel.c").write_text(kernel.source)
    strict = (
        "-std=gnu11",
        "-O2",
        "-fwrapv",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-unused-parameter",
        "-Wno-psabi",
        "-fopenmp-simd",
    )
    command = [
        "gcc",
        *strict,
        *flags,
        "-fPIC",
        "-shared",
        "-o",
        str(tmp_path / "kernel.so"),
        str(tmp_path / "kernel.c"),
    ]
    subprocess.run([*command, "-Wno-unused-function", "-Wno-unused-variable"], check=True)
    C, scratch, report = np.empty((45, 37), "i4"), np.zeros(1 << 20, "u1"), np.zeros(16, "i8")
    aligned = scratch.ctypes.data + -scratch.ctypes.data % 64
    entry = ctypes.CDLL(str(tmp_path / "kernel.so")).tcomp_f
    entry(*(ctypes.c_void_p(p) for p in (A.ctypes.data, B.ctypes.data, C.ctypes.data, aligned, report.ctypes.data)))
    assert np.array_equal(C, A.astype(np.int32) @ B.astype(np.int32))


def test_a_machine_that_lacks_them_has_no_such_text(monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(this_machine(), matrix_tiles=False)
    monkeypatch.setattr("tcomp.runtime.registry.this_machine", lambda: other)
    A, B = numbers("int8", 45, 70), numbers("int8", 70, 37, seed=1)
    assert "tc_matrix_" not in tc.define(product("int8", "int8"))["f"].compile(A, B).source
