"""Where the time of a kernel goes, line by line."""

from __future__ import annotations

import shutil
import signal
import sys
import threading
from collections import Counter

import numpy as np
import pytest

import tcomp as tc
from tcomp.pictures.profiles import profiled

TEXT = """
int f(const float *v_A) {
  for (long c0 = 0; c0 < 9; c0++) {
    const float x = v_A[c0];
    for (long c1 = 0; c1 < 9; c1++) {
      part += x;
    }
    for (long c1 = 0; c1 < 9; c1++) part -= x;
  }
}
"""

samples = pytest.mark.skipif(
    not sys.platform.startswith("linux") or shutil.which("addr2line") is None, reason="needs addr2line"
)


def test_a_loop_has_what_is_in_it_and_lines_beside_loops_have_their_own() -> None:
    lines = profiled(TEXT, Counter({4: 10, 5: 5, 6: 45, 8: 40}))
    assert [(line.number, line.depth, line.share) for line in lines] == [
        (3, 0, 1.0),
        (4, 1, 0.1),
        (5, 1, 0.5),
        (8, 1, 0.4),
    ]


@samples
def test_the_loop_that_computes_most_takes_most() -> None:
    text = """def f(float(N,K) A, float(N,K) B, float(N) x) -> (C, y) {
        C(i,j) +=! A(i,k) * B(j,k)
        y(i) = x(i) * 2
    }"""
    kernel = tc.define(text).f.compile(sizes={"N": 300, "K": 500}, target="cpu")
    found = kernel.profile()
    deepest = max(line.depth for line in found.lines)
    assert max(line.share for line in found.lines if line.depth == deepest) > 0.5, str(found)
    assert all("v_x" not in line.text for line in found.lines) and "%  for (" in str(found)
    assert "k of C: for (" in str(found) and {line.name for line in found.lines} <= {
        "", "k of C", "i of C", "j of C", "tiles of i of C", "tiles of j of C", "i of y", "tiles of k of C",
    }  # fmt: skip
    assert found.samples >= 100


@samples
def test_what_others_do_with_the_signal_is_kept() -> None:
    before = signal.getsignal(signal.SIGPROF)
    heard: list[int] = []
    signal.signal(signal.SIGPROF, lambda number, _: heard.append(number))
    try:
        softmax = tc.library.softmax.compile(sizes={"N": 200, "D": 1000}, target="cpu")
        softmax.profile(0.3)
        assert not heard
        signal.raise_signal(signal.SIGPROF)
        assert heard == [signal.SIGPROF]
    finally:
        signal.signal(signal.SIGPROF, before)


def test_only_kernels_of_a_processor_are_timed() -> None:
    product = tc.define("def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }").mm
    kernel = product.compile(sizes={"M": 16, "N": 16, "K": 16}, target="cuda:sm_90")
    with pytest.raises(tc.TcompError, match="timed on a processor"):
        kernel.profile()


@samples
def test_programs_in_steps_and_with_contents_are_timed() -> None:
    heat = tc.define("def f(float(N) A) -> (X) { X(i) = A(i)  for t in 0:200 { X(i) = 0.5 * X(i) + 0.25 } }").f
    kernel = heat.compile(sizes={"N": 20000}, target="cpu")
    np.testing.assert_allclose(kernel(np.zeros(20000, "f4")), 0.5, rtol=1e-5)
    assert kernel.profile().lines[0].share > 0.5


@samples
def test_two_threads_are_asked_one_after_the_other() -> None:
    """The signal of one must not find the handler of the other gone."""
    softmax = tc.library.softmax.compile(sizes={"N": 200, "D": 1000}, target="cpu")
    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(softmax.profile(0.2).samples)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2 and all(found)
