"""Kernels run on the stream and the device that the caller's library uses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tcomp as tc

ADD = "def add(float(N) A, float(N) B) -> (C) { C(i) = A(i) + B(i) }"
SUM = "def sums(float(N,M) A) -> (s, t) { s(i) +=! A(i,j) t +=! s(i) }"
N = 1 << 20


def test_kernels_run_on_cupys_current_stream(cupy: Any) -> None:
    add = tc.define(ADD).add
    a, late = cupy.zeros(N, np.float32), cupy.ones(N, np.float32)
    add(a, a)
    work = cupy.sin(cupy.ones((4096, 4096), np.float32))
    a[...] = late * 0 + work[0, 0] * 0
    stream = cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        for _ in range(200):
            work = cupy.sin(work)
        a[...] = late + work[0, 0] * 0
        result = add(a, a)
    stream.synchronize()
    assert (result == 2).all()


def test_kernels_run_on_torchs_current_stream(torch: Any) -> None:
    add = tc.define(ADD).add
    a, late = torch.zeros(N, device="cuda"), torch.ones(N, device="cuda")
    add(a, a)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        a.copy_(late)
        result = add(a, a)
    stream.synchronize()
    assert (result == 2).all()


def test_scratch_memory_is_not_shared_between_streams(cupy: Any) -> None:
    sums = tc.define(SUM).sums
    streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(4)]
    inputs = [cupy.full((512, 512), number, np.float32) for number in range(4)]
    sums(inputs[0])
    cupy.cuda.Device().synchronize()
    results: list[tuple[int, Any]] = []
    for _ in range(20):
        for number, stream in enumerate(streams):
            with stream:
                results.append((number, sums(inputs[number])[1]))
    cupy.cuda.Device().synchronize()
    assert all(float(total) == number * 512 * 512 for number, total in results)


def test_cuda_graphs_record_kernels(torch: Any) -> None:
    add = tc.define(ADD).add
    a, out = torch.ones(N, device="cuda"), torch.zeros(N, device="cuda")
    add(a, a, out=out)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        add(a, a, out=out)
    a.fill_(21)
    graph.replay()
    torch.cuda.synchronize()
    assert (out == 42).all()


def test_cuda_graphs_keep_their_scratch_memory(cupy: Any) -> None:
    scale = tc.define("def scale(float(N,M) A) -> (B) { s +=! A(i,j)  B(i,j) = A(i,j) + s }").scale
    a = cupy.ones((512, 512), np.float32)
    out = scale(a)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        scale(a, out=out)
        graph = stream.end_capture()
        others = [cupy.zeros(128, np.float32) for _ in range(64)]
        a.fill(2)
        graph.launch(stream)
    stream.synchronize()
    assert (out == 2 + 2 * 512 * 512).all()
    assert not any(other.any() for other in others)


def test_every_device_runs_its_own_arrays(cupy: Any, device_total: int) -> None:
    if device_total < 2:
        pytest.skip("there is one device only")
    add = tc.define(ADD).add
    arrays = []
    for number in range(device_total):
        with cupy.cuda.Device(number):
            arrays.append(cupy.full(N, number, np.float32))
    for number, array in enumerate(arrays):
        result = add(array, array)
        assert result.device.id == number
        with cupy.cuda.Device(number):
            assert (result == 2 * number).all()
    assert cupy.cuda.Device().id == 0
    with pytest.raises(tc.ShapeError, match="input B: expected an array on cuda:0 like the others"):
        add(arrays[0], arrays[1])
