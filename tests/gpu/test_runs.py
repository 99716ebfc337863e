"""Programs on a CUDA device against the interpreter, called with the arrays of every library."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.arrays.devices import current_place
from tcomp.backends.cuda.runtime import architecture_at
from tcomp.backends.cuda.tools.images import compile_image

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
SOFTMAX = """
def softmax(float(N,D) X) -> (M, S, Y) {
  M(n) max=! X(n,d)
  S(n) +=! exp(X(n,d) - M(n))
  Y(n,d) = exp(X(n,d) - M(n)) / S(n)
}
"""
CONVOLUTION = """
def convolution(float(N,C,H,W) I, float(O,C,KH,KW) K) -> (R) {
  R(n,o,h,w) +=! I(n,c,h+kh,w+kw) * K(o,c,kh,kw)
}
"""
PAIR = "def pair(float(N) A) -> (S, D) { S(i) = A(i) + A(i) D(i) = A(i) - 1 }"
TOTAL = "def total(float(N) A) -> (s) { s +=! A(i) }"
LOOKUP = "def lookup(float(V) T, int32(N) I) -> (B) { B(n) = T(I(n)) }"

PROGRAMS = {
    "mm": (MM, [(70, 33), (33, 65)]),
    "softmax": (SOFTMAX, [(37, 100)]),
    "convolution": (CONVOLUTION, [(2, 3, 20, 21), (5, 3, 3, 3)]),
    "pair": (PAIR, [(1000,)]),
    "total": (TOTAL, [(100_003,)]),
}


def integers(*shape: int, seed: int = 0) -> np.ndarray:
    """Small integers, so that sums are exact in any order."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_give_what_the_interpreter_gives(cupy: Any, name: str) -> None:
    text, shapes = PROGRAMS[name]
    operation = tc.define(text)[name]
    values = [integers(*shape, seed=seed) for seed, shape in enumerate(shapes)]
    results = operation(*map(cupy.asarray, values))
    expected = operation.reference(*values)
    pairs = zip(results, expected, strict=True) if isinstance(expected, tuple) else [(results, expected)]
    for result, wanted in pairs:
        assert type(result) is cupy.ndarray
        np.testing.assert_allclose(cupy.asnumpy(result), wanted, rtol=1e-5, atol=1e-5)


def test_views_are_read_and_written_in_place(cupy: Any) -> None:
    a, b = integers(40, 60), integers(80, 50, seed=1)
    on_a, on_b = cupy.asarray(a), cupy.asarray(b)
    mm = tc.define(MM).mm
    wide = cupy.full((80, 50), 7, np.float32)
    mm(on_a[::-1, ::2], on_b[:30], out=wide[::2])
    np.testing.assert_array_equal(cupy.asnumpy(wide[::2]), a[::-1, ::2] @ b[:30])
    assert (wide[1::2] == 7).all()
    np.testing.assert_array_equal(cupy.asnumpy(mm(on_b[:40].T, on_a)), b[:40].T @ a)
    with pytest.raises(tc.ShapeError, match="shares memory"):
        mm(on_a[:, :40], on_a[:, :40], out=on_a[:, 20:])


def test_misaligned_arrays_are_read_from_a_copy(cupy: Any) -> None:
    double, values = tc.define("def double_(float(N) A) -> (B) { B(i) = A(i) + A(i) }").double_, integers(9)
    for step in (4, 8, 5):
        octets = np.zeros(100, np.uint8)
        np.ndarray((9,), np.float32, octets, 1, (step,))[...] = values
        there = cupy.asarray(octets)
        odd = cupy.ndarray((9,), np.float32, there.data + 1, (step,))
        np.testing.assert_array_equal(cupy.asnumpy(double(odd)), values + values)


def test_torch_tensors_in_torch_tensors_out(torch: Any) -> None:
    a, b = integers(33, 20), integers(20, 50, seed=1)
    result = tc.define(MM).mm(torch.from_numpy(a).cuda(), torch.from_numpy(b).cuda())
    assert type(result) is torch.Tensor and result.device.type == "cuda"
    np.testing.assert_array_equal(result.cpu().numpy(), a @ b)
    half = tc.define(MM.replace("float(", "bfloat16(")).mm
    given = [torch.from_numpy(x).cuda().to(torch.bfloat16) for x in (a, b)]
    assert half(*given).dtype is torch.bfloat16


class WithDlpack:
    """As small as a DLPack exporter can be."""

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __dlpack__(self, **options: Any) -> Any:
        return self._tensor.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return tuple(map(int, self._tensor.__dlpack_device__()))


def test_foreign_arrays_are_read_in_place(cupy: Any) -> None:
    a, b = integers(33, 20), integers(20, 50, seed=1)
    result = tc.define(MM).mm(WithDlpack(cupy.asarray(a)), WithDlpack(cupy.asarray(b)))
    np.testing.assert_array_equal(cupy.asnumpy(result), a @ b)
    jax = pytest.importorskip("jax")
    result = tc.define(MM).mm(*(jax.device_put(x, jax.devices("gpu")[0]) for x in (a, b)))
    assert isinstance(result, jax.Array)
    np.testing.assert_array_equal(np.asarray(result), a @ b)


def test_arrays_in_main_memory_are_refused(cupy: Any) -> None:
    a = integers(8, 8)
    with pytest.raises(tc.ShapeError, match=r"move it: cupy.asarray\(A\)"):
        tc.define(MM).mm(a, a, target="cuda")
    with pytest.raises(tc.ShapeError, match=r"input B: expected an array in the memory of a CUDA device"):
        tc.define(MM).mm(cupy.asarray(a), a)


def test_numbers_and_programs_without_arrays(cupy: Any) -> None:
    scale = tc.define("def scale(float(N) A, float s) -> (B) { B(i) = s * A(i) }").scale
    np.testing.assert_array_equal(cupy.asnumpy(scale(cupy.arange(9, dtype=np.float32), 2.5)), 2.5 * np.arange(9))
    iota = tc.define("def iota(const int N) -> (B) { B(i) = float(i) where i in 0:N }").iota
    result = iota(300, target="cuda")
    assert type(result) is cupy.ndarray and (result == cupy.arange(300)).all()


def test_a_failed_check_leaves_the_device_usable(cupy: Any) -> None:
    table, lookup = cupy.arange(10, dtype=np.float32), tc.define(LOOKUP).lookup
    with pytest.raises(tc.ShapeError, match=r"subscript I\(n\) of T in dimension 0 is 10 at n = 1"):
        lookup(table, cupy.asarray(np.array([3, 10, 4], np.int32)))
    assert lookup(table, cupy.asarray(np.array([3, 9], np.int32))).tolist() == [3, 9]


def test_want_of_memory_is_a_shape_error(cupy: Any) -> None:
    outer = tc.define("def outer(float(N) A, float(M) B) -> (C) { C(i,j) = A(i) * B(j) }").outer
    a = cupy.ones(1 << 21, np.float32)
    with pytest.raises(tc.ShapeError, match=r"no room on cuda:0 for the outputs .* of outer\(A float32\[2097152\]"):
        outer(a, a)
    assert (outer(a[:5], a[:6]) == 1).all()


def test_code_for_another_architecture_is_refused(cupy: Any) -> None:
    other = "sm_80" if cupy.cuda.Device().compute_capability[:-1] != "8" else "sm_90"
    kernel = tc.define(MM).mm.compile(sizes={"M": 8, "N": 8, "K": 8}, target=f"cuda:{other}")
    a = cupy.asarray(integers(8, 8))
    with pytest.raises(tc.TargetError, match=f"was compiled for {other}, which does not run on cuda:0"):
        kernel(a, a)


def test_threads_share_kernels(cupy: Any) -> None:
    mm = tc.define(MM).mm
    wrong: list[Any] = []

    def work(seed: int) -> None:
        try:
            a = integers(64, 64, seed=seed)
            for _ in range(20):
                if not np.array_equal(cupy.asnumpy(mm(cupy.asarray(a), cupy.asarray(a))), a @ a):
                    wrong.append(seed)
        except Exception as error:  # noqa: BLE001  (a thread must not hide it)
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_text_is_compiled_twice(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """NVRTC can take a kernel from the driver's cache, but then says nothing of its resources."""
    monkeypatch.setenv("TCOMP_CACHE", "0")
    for _ in range(2):
        text = tc.define(MM).mm.compile(sizes={"M": 24, "N": 40, "K": 56}, target="cuda").compilation.source
        assert compile_image(text, architecture_at(current_place())).kernels[0].registers > 0


def test_threads_see_what_others_wrote_behind_a_barrier(cupy: Any) -> None:
    text = "def f(float(N) A) -> (T, S) { T(0) = A(2)  T(1) = A(0)  S(i) = A(i) + T(1) }"
    a = cupy.asarray(integers(200))
    values, sums = tc.define(text).f(a)
    assert (values == a[[2, 0]]).all() and (sums == a + a[0]).all()
