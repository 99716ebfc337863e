"""Blocks of steps on GPUs: what is launched when, on which slices, with which steps."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from random import Random

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.gpu import stepwise
from tcomp.backends.simulator.simulation import Settings, load
from tcomp.backends.source import ANYWHERE, Launch, Temporary
from tcomp.values.operators import FLOAT32
from tests.cuda.fake_cupy import floats
from tests.cuda.fake_devices import ADD, FakeDevices
from tests.cuda.simulated import NEEDS_COMPILER
from tests.language.test_random_blocks import assert_same, program, stencil

SCALED = "def f(float(T,N) X) -> (H) { for t in 1:T { H(t-1,i) = t * X(t,i) } }"
HEAT = """def heat(float(N) A, const int T) -> (X) {
  X(i) = A(i)
  for t in 0:T {
    Y(i) = 0.5 * (X(i-1) + X(i+1)) where i in 1:N-1
    X(i) = Y(i) where i in 1:N-1
  }
}"""
FACTOR = """def cholesky(float(N,N) A) -> (float(N,N) L) {
  L(i,j) = 0.0 where i in 0:N, j in 0:N
  for j in 0:N {
    s(i) +=! L(i,p) * L(j,p) where i in j:N, p in 0:j
    L(j,j) = sqrt(A(j,j) - s(j))
    L(i,j) = (A(i,j) - s(i)) / L(j,j) where i in j+1:N
  }
}"""


def heat(A: np.ndarray, steps: int) -> np.ndarray:
    X = A.copy()
    for _ in range(steps):
        X[1:-1] = (0.5 * (X[:-2] + X[2:])).astype(np.float32)
    return X


def test_a_device_gets_one_launch_after_another_each_with_its_own_values(one: FakeDevices) -> None:
    seen: list[tuple[int, int]] = []

    def first(grid: object, block: object, a: int, t: int, step: int) -> None:
        seen.append((step, t))
        floats(t, 2)[:] = floats(a, 2)

    def second(grid: object, block: object, t: int, c: int) -> None:
        floats(c, 2)[:] = 10 * floats(t, 2)

    one.cupy.bodies |= {"first": first, "second": second, "never": second}
    one.emit(
        scratch_bytes=64,
        temporaries=(Temporary("t", FLOAT32, (2, 2), 0),),
        launches=(
            Launch("never", (0, 1, 1), (2, 1, 1), 0, ("t", "C")),
            Launch("first", (1, 1, 1), (2, 1, 1), 0, ("A", "t"), (), ("t",)),
            Launch("second", (1, 1, 1), (2, 1, 1), 0, ("t", "C")),
        ),
        turns=((1, 8, 0, -3), (0, 0, 0), (2, 0, 16), (1, 16, 8, 4), (2, 8, 0), (2, 8, 8)),
    )
    A = np.arange(6, dtype=np.float32)
    found = tc.define(ADD).add(one.cupy.on(A), one.cupy.on(A))
    assert found.host.tolist() == [40, 50, 40, 50, 20, 30]
    assert one.cupy.names() == ["first", "second", "first", "second", "second"]
    kernel = tc.define(ADD).add.compile(one.cupy.on(A), one.cupy.on(A))
    assert kernel.capture(one.cupy.on(A), one.cupy.on(A)).launches == 5
    seen = seen[:2]
    (low, place), (high, other) = seen
    assert (low, high, other - place) == (2**64 - 3, 4, 8)


def test_turns_name_offsets_in_bytes_and_steps() -> None:
    source = tc.define(SCALED).f.compile(sizes={"T": 4, "N": 6}, target="cuda:sm_90").compilation.source
    (launch,) = source.launches
    assert (launch.arguments, launch.steps) == (("X", "H"), ("t",))
    assert source.turns == ((0, 24, 0, 1), (0, 48, 24, 2), (0, 72, 48, 3))
    assert "const long long step_t" in source.text


PRODUCTS = "def f(float(T,M,K) A, float(K,N) B) -> (C) { for t in 0:T { C(t,m,n) +=! A(t,m,k) * B(k,n) } }"


@pytest.mark.parametrize(("m", "k", "vectors"), [(64, 64, True), (32, 64, True), (7, 9, False), (63, 65, False)])
def test_slices_are_read_in_vectors_where_all_of_them_begin_at_one(m: int, k: int, vectors: bool) -> None:
    sizes = {"T": 3, "M": m, "K": k, "N": 64}
    source = tc.define(PRODUCTS).f.compile(sizes=sizes, target="cuda:sm_90").compilation.source
    assert source.turns is not None
    assert ("A" in source.aligned) == vectors, source.text
    assert ANYWHERE in source.flags or all(turn[1] % 16 == 0 for turn in source.turns if "A" in source.aligned)


@NEEDS_COMPILER
@pytest.mark.parametrize("order", ["forward", "reverse", "random"])
def test_steps_wait_for_steps(order: str) -> None:
    A = np.random.default_rng(1).random(70, np.float32)
    source = tc.define(HEAT).heat.compile(A, 5, target="simulator").compilation.source
    X = np.full(70, 77, np.float32)
    report = load(source).run([A.ctypes.data, X.ctypes.data], None, Settings(order, 3, counting=True))  # type: ignore[arg-type]
    assert not report.findings and report.complete
    np.testing.assert_allclose(X, heat(A, 5), rtol=1e-6)
    assert [kernel.kernel for kernel in report.kernels] == [launch.kernel for launch in source.launches]


@NEEDS_COMPILER
def test_a_step_left_out_or_on_another_slice_is_seen() -> None:
    """The comparison is one: turns that are wrong give wrong results, or are found by the simulator."""
    X = np.random.default_rng(1).random((5, 6), np.float32)
    source = tc.define(SCALED).f.compile(X, target="simulator").compilation.source
    assert source.turns is not None
    H = np.zeros((4, 6), np.float32)
    for turns in (source.turns[:-1], ((0, 24, 96, 1), *source.turns[1:])):
        report = load(replace(source, turns=turns)).run([X.ctypes.data, H.ctypes.data])
        assert report.findings


@NEEDS_COMPILER
@pytest.mark.parametrize("n", [1, 5, 33])
def test_what_steps_narrow(n: int) -> None:
    A = np.random.default_rng(n).random((n, n))
    A = (A @ A.T + n * np.eye(n)).astype(np.float32)
    found = tc.define(FACTOR).cholesky(A, target="simulator")
    np.testing.assert_allclose(found, np.linalg.cholesky(A), rtol=1e-4, atol=1e-4)


@NEEDS_COMPILER
@pytest.mark.long
@pytest.mark.parametrize("seed", range(24))
def test_random_blocks_on_the_simulator(seed: int) -> None:
    rng, values = Random(seed), np.random.default_rng(seed)
    if seed % 2:
        text, steps = program(rng), rng.choice((1, 2, 3, 5))
        A = values.random((rng.choice((1, 2, 5, 33)), rng.choice((1, 4, 40))), np.float32)
    else:
        rank = rng.choice((1, 2, 3))
        text, steps, A = stencil(rng, rank), 3, values.random(((90, 26, 10)[rank - 1],) * rank, np.float32)
    options = rng.choice([tc.MappingOptions(), tc.MappingOptions(tile_sizes=(4, 8)), tc.MappingOptions(threads=(8, 4))])
    operation = tc.define(text).f
    found = operation.compile(A, steps, target="simulator", options=options)(A, steps)
    assert_same(found, operation.reference(A, steps), text)


def test_nobody_launches_a_million_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stepwise, "MOST_TURNS", 10)
    with pytest.raises(tc.CompileError, match="more than 10 launches") as caught:
        tc.define(HEAT).heat.compile(sizes={"N": 50, "T": 20}, target="cuda:sm_90")
    assert "for t" in str(caught.value)


def test_a_kernel_of_steps_comes_back_from_the_cache() -> None:
    made = tc.define(SCALED).f.compile(sizes={"T": 4, "N": 6}, target="cuda:sm_90")
    again = tc.define(SCALED).f.compile(sizes={"T": 4, "N": 6}, target="cuda:sm_90")
    assert again._source == made._source
    command = [sys.executable, "-m", "tcomp", "compile", "-", "--sizes", "T=4,N=6", "--target", "cuda:sm_90"]
    shown = subprocess.run(command, input=SCALED, capture_output=True, text=True, check=True)
    assert "step_t" in shown.stdout


NEXT = """def f(float(T,B,D) X, float(D,D) U) -> (H) {
  for t in 0:T {
    r(b,d) +=! (t == 0 ? 0.0 : H(t-1,b,k)) * U(k,d) where b in 0:B, k in 0:D
    n(b,d) +=! (t < T-1 ? X(t+1,b,k) : 1.0) * U(k,d) where b in 0:B, k in 0:D
    H(t,b,d) = 0.5 * r(b,d) + X(t,b,d) + n(b,d)
  }
}"""


@NEEDS_COMPILER
def test_slices_that_a_step_lacks_are_not_fetched() -> None:
    """The first step fetched what lies in front of ``H``, the last one what lies behind ``X``."""
    rng = np.random.default_rng(0)
    X, U = rng.integers(0, 3, (4, 3, 8)).astype(np.float32), rng.integers(0, 2, (8, 8)).astype(np.float32)
    before, H = np.zeros((3, 8), np.float32), []
    for t in range(4):
        before = 0.5 * (before @ U) + X[t] + (X[t + 1] if t < 3 else np.ones((3, 8), np.float32)) @ U
        H.append(before)
    np.testing.assert_array_equal(tc.define(NEXT).f(X, U, target="simulator"), np.stack(H))
