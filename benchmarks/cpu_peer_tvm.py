"""TVM with schedules that MetaSchedule searches; what it finds is kept in ``out/benchmarks/tvm``."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import te, tirx
from tvm.s_tir import meta_schedule, tensor_intrin

from benchmarks.cpu_case import Array, Case, Convolution, Einsum, letters_of
from benchmarks.cpu_peer import Implementation

TRIALS = 64
RECORDS = Path("out/benchmarks/tvm")
_CANDIDATE_SECONDS = 300.0
"""To compile or to run a candidate; the first one's process loads TVM, too."""

Algorithm = Callable[..., Any]
"""``(case, *placeholders) -> output``"""


def _sum(extents: dict[str, int]) -> dict[str, Any]:
    """Reduced axes by name."""
    return {name: te.reduce_axis((0, extent), name) for name, extent in extents.items()}


def _einsum(case: Case, *tensors: Any) -> Any:
    assert isinstance(case.formula, Einsum)
    factors, result = letters_of(case.formula.subscripts)
    extent = {
        letter: size for i, f in zip(case.inputs, factors, strict=True) for letter, size in zip(f, i.shape, strict=True)
    }
    axes = _sum({letter: size for letter, size in extent.items() if letter not in result})

    def value(*indices: Any) -> Any:
        at = dict(zip(result, indices, strict=True)) | axes
        term: Any = None
        for tensor, factor in zip(tensors, factors, strict=True):
            read = tensor(*(at[letter] for letter in factor)).astype(case.output_dtype)
            term = read if term is None else term * read
        return te.sum(term, axis=list(axes.values()))

    return te.compute(case.output, value, "contraction")


def _convolution(case: Case, image: Any, kernel: Any, *bias: Any) -> Any:
    assert isinstance(case.formula, Convolution)
    shape = case.inputs[1].shape
    if case.formula.depthwise:
        k = _sum({"kh": shape[1], "kw": shape[2]})
        reduced = list(k.values())
        return te.compute(
            case.output,
            lambda n, c, h, w: te.sum(image(n, c, h + k["kh"], w + k["kw"]) * kernel(c, *reduced), axis=reduced),
        )
    k = _sum({"c": shape[-3], "kh": shape[-2], "kw": shape[-1]})
    reduced = list(k.values())

    def value(*indices: Any) -> Any:
        *batch, f, h, w = indices
        read = image(*batch, k["c"], h + k["kh"], w + k["kw"])
        return te.sum(read * kernel(*batch[1:], f, *reduced), axis=reduced)

    sums = te.compute(case.output, value, "sums")
    return te.compute(case.output, lambda *i: sums(*i) + bias[0](*i[1:-2])) if bias else sums


def _dense(x: Any, weights: Any, bias: Any, transposed: bool) -> Any:
    rows, depth = x.shape
    columns = weights.shape[0 if transposed else 1]
    k = te.reduce_axis((0, depth), "k")
    sums = te.compute(
        (rows, columns), lambda m, n: te.sum(x(m, k) * weights(*((n, k) if transposed else (k, n))), axis=k)
    )
    return te.compute((rows, columns), lambda m, n: _relu(sums(m, n) + bias(n)))


def _relu(value: Any) -> Any:
    return tirx.max(value, tirx.const(0, "float32"))


def _mlp3(case: Case, x: Any, *layers: Any) -> Any:
    for weights, bias in zip(layers[::2], layers[1::2], strict=True):
        x = _dense(x, weights, bias, transposed=True)
    return x


def _softmax(case: Case, x: Any) -> Any:
    *outer, columns = x.shape
    d, r = te.reduce_axis((0, columns), "d"), te.reduce_axis((0, columns), "r")
    largest = te.compute(outer, lambda *n: te.max(x(*n, d), axis=d), "largest")
    weight = te.compute(x.shape, lambda *n: te.exp(x(*n) - largest(*n[:-1])), "weight")
    total = te.compute(outer, lambda *n: te.sum(weight(*n, r), axis=r), "total")
    return te.compute(x.shape, lambda *n: weight(*n) / total(*n[:-1]), "softmax")


def _layer_norm(case: Case, x: Any, gamma: Any, beta: Any) -> Any:
    rows, columns = case.output
    d, r = te.reduce_axis((0, columns), "d"), te.reduce_axis((0, columns), "r")
    mean = te.compute((rows,), lambda n: te.sum(x(n, d) / columns, axis=d), "mean")
    spread = te.compute((rows,), lambda n: te.sum((x(n, r) - mean(n)) * (x(n, r) - mean(n)) / columns, axis=r))
    return te.compute(
        case.output,
        lambda n, j: (x(n, j) - mean(n)) * te.rsqrt(spread(n) + tirx.const(1e-5, "float32")) * gamma(j) + beta(j),
    )


def _blur(case: Case, image: Any) -> Any:
    height, width = case.output
    third = tirx.const(1 / 3, "float32")
    rows = te.compute(
        (height + 2, width), lambda h, w: (image(h, w) + image(h, w + 1) + image(h, w + 2)) * third, "rows"
    )
    return te.compute(case.output, lambda h, w: (rows(h, w) + rows(h + 1, w) + rows(h + 2, w)) * third)


def _lut(case: Case, table: Any, index: Any) -> Any:
    row = te.reduce_axis((0, case.inputs[1].shape[1]), "row")
    return te.compute(case.output, lambda b, d: te.sum(table(index(b, row), d), axis=row))


def _relu_tanh(case: Case, a: Any, b: Any, c: Any, d: Any) -> Any:
    return te.compute(case.output, lambda n: _relu(a(n) * b(n) + c(n)) * te.tanh(d(n)))


def _attention(case: Case, q: Any, k: Any, v: Any) -> Any:
    batch, length, depth = case.output
    d, s = te.reduce_axis((0, depth), "d"), te.reduce_axis((0, length), "s")
    shape = (batch, length, length)
    score = te.compute(shape, lambda b, i, j: te.sum(q(b, i, d) * k(b, j, d), axis=d), "score")
    scaled = te.compute(shape, lambda *n: score(*n) * tirx.const(0.125, "float32"), "scaled")
    weight = _softmax(case, scaled)
    return te.compute(case.output, lambda b, i, e: te.sum(weight(b, i, s) * v(b, s, e), axis=s), "attention")


_NAMED: dict[str, Algorithm] = {
    "layer": lambda case, x, w, b: _dense(x, w, b, transposed=False),
    "mlp3": _mlp3,
    "softmax": _softmax,
    "layer_norm": _layer_norm,
    "blur": _blur,
    "lut": _lut,
    "relu_tanh": _relu_tanh,
    "attention": _attention,
}


def _algorithm(case: Case) -> Algorithm | None:
    match case.formula:
        case Einsum():
            return _einsum
        case Convolution(stride=1, dilation=1) if len(case.output) >= 4:
            return _convolution
        case str(name):
            return _NAMED.get(name)
    return None


class Tvm:
    """Functions from the best schedule of the search, or of an earlier one for the same case."""

    version = tvm.__version__

    intrinsics = tensor_intrin.__name__
    """Instructions that the first search would load: that takes a minute, which belongs to no row."""

    def __init__(self) -> None:
        self._threads = len(os.sched_getaffinity(0))
        processor = tvm.get_global_func("target.llvm_get_system_cpu")()
        self._target = tvm.target.Target({"kind": "llvm", "mcpu": str(processor), "num-cores": self._threads})
        self._model = "xgb" if importlib.util.find_spec("xgboost") is not None else "random"

    def build(self, case: Case, inputs: list[Array]) -> Implementation | None:
        """Searched for where there is no record, then compiled from the record."""
        algorithm = _algorithm(case)
        if algorithm is None:
            return None
        placeholders = [te.placeholder(i.shape, i.dtype, f"input{n}") for n, i in enumerate(case.inputs)]
        output = algorithm(case, *placeholders)
        module = tvm.IRModule({"main": te.create_prim_func([*placeholders, output])})
        start = time.perf_counter()
        database = self._records(case, module)
        searched = time.perf_counter() - start
        schedule = meta_schedule.tir_integration.compile_tir(database, module, self._target)
        if schedule is None:
            raise RuntimeError("the search found no schedule")
        function = tvm.compile(schedule.mod, self._target)["main"]
        arrays = [tvm.runtime.tensor(np.ascontiguousarray(a)) for a in inputs]
        result = tvm.runtime.tensor(np.empty(case.output, case.output_dtype))
        return Implementation(lambda: function(*arrays, result), lambda: result.numpy(), searched, arrays)

    def _records(self, case: Case, module: Any) -> Any:
        facts = (case.text, [i.shape for i in case.inputs], self._threads, TRIALS, tvm.__version__, str(self._target))
        folder = RECORDS / hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]
        workload, records = folder / "database_workload.json", folder / "database_tuning_record.json"
        if not (folder / "done").exists():
            folder.mkdir(parents=True, exist_ok=True)
            workload.unlink(missing_ok=True)
            records.unlink(missing_ok=True)
            meta_schedule.tune_tir(
                module, self._target, str(folder), TRIALS, num_trials_per_iter=16, cost_model=self._model,
                num_tuning_cores=self._threads, seed=0,
                builder=meta_schedule.builder.LocalBuilder(max_workers=self._threads, timeout_sec=_CANDIDATE_SECONDS),
                runner=meta_schedule.runner.LocalRunner(timeout_sec=_CANDIDATE_SECONDS),
            )  # fmt: skip
            if records.exists() and records.stat().st_size:
                (folder / "done").touch()
        return meta_schedule.database.JSONDatabase(str(workload), str(records))


def peer() -> Tvm:
    """TVM for this processor."""
    return Tvm()
