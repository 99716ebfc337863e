"""Every operator of the library against torch or NumPy and its error bounds: compiled, and by the interpreter."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import resources
from typing import Any

import numpy as np
import pytest

import tcomp
from tcomp import debug
from tcomp.model.evaluation import numpy_dtype
from tcomp.model.tolerance import Model, error_bounds
from tests.library import convolution, elements, linear, normalization, onebit, sparse
from tests.library.case import Array, Case, Cases, Draw

pytestmark = pytest.mark.sweep(6)

LIBRARY = resources.files("tcomp") / "library"

FAMILIES: dict[str, type[Any]] = {
    "attention": linear.Attention,
    "batch_norm": normalization.BatchNorm,
    "batched_matmul": linear.BatchedMatmul,
    "conv1d": convolution.Conv1d,
    "conv2d": convolution.Conv2d,
    "conv3d": convolution.Conv3d,
    "distance": elements.Distance,
    "embedding": elements.Embedding,
    "group_norm": normalization.GroupNorm,
    "image": elements.Image,
    "layer_norm": normalization.LayerNorm,
    "layout": elements.Layout,
    "log_softmax": normalization.LogSoftmax,
    "loss": normalization.Loss,
    "matmul": linear.Matmul,
    "mlp": linear.Mlp,
    "onebit": onebit.Onebit,
    "pointwise": elements.Pointwise,
    "pooling": convolution.Pooling,
    "reduction": elements.Reduction,
    "scatter": elements.Scatter,
    "softmax": normalization.Softmax,
    "sparse": sparse.Sparse,
    "vector": linear.Vector,
}
"""For each file of the library a class with one method per def, which yields cases."""

TOLERANCES = {"float16": 1e-3, "float32": 2e-5}
"""Rounding that is allowed, relative to the largest element of the result; other types must be equal."""


def _define(family: str) -> tcomp.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return tcomp.define((LIBRARY / f"{family}.tc").read_text(encoding="utf-8"), f"{family}.tc")


FILES = sorted(path.name.removesuffix(".tc") for path in LIBRARY.iterdir() if path.name.endswith(".tc"))
MODULES = {family: _define(family) for family in FILES}
OPERATORS = {f"{family}.{name}": module[name] for family, module in MODULES.items() for name in module}


@pytest.fixture(autouse=True)
def no_stale_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in debug.VARIABLES:
        monkeypatch.delenv(variable.name, raising=False)
    monkeypatch.setenv("TCOMP_CACHE", "0")


def test_every_operator_has_a_check_and_every_check_an_operator() -> None:
    checks = {f"{family}.{name}" for family, checks in FAMILIES.items() for name in vars(checks) if _is_check(name)}
    assert checks == set(OPERATORS)


def _is_check(name: str) -> bool:
    return name[0] != "_" and name.islower()


@pytest.mark.parametrize("name", OPERATORS)
def test_operator(name: str) -> None:
    family, definition = name.split(".")
    checks: Callable[[Draw], Cases] = getattr(FAMILIES[family](), definition)
    operator = OPERATORS[name]
    for case in checks(Draw(sum(name.encode()))):
        results = operator(*case.arguments)
        compare(results, case)
        compare(operator.reference(*case.arguments), case)
        assert_bounded(operator, case, results)


REFUSED: dict[str, tuple[list[tuple[int, ...]], tuple[int, ...]]] = {
    "conv2d.conv2d_grouped": ([(1, 6, 5, 5), (7, 2, 3, 3)], (3, 1, 0, 1)),
    "group_norm.group_norm": ([(1, 7, 2, 2), (7,), (7,), ()], (3,)),
    "layout.depth_to_space": ([(1, 6, 2, 2)], (2,)),
    "layout.space_to_depth": ([(1, 1, 3, 4)], (2,)),
    "loss.cross_entropy": ([(4, 3), (5,)], ()),
    "matmul.matmul": ([(2, 3), (2, 3)], ()),
}
"""Shapes that do not fit, or of which a group or block is no whole part, and the ``const`` arguments."""


@pytest.mark.parametrize("name", REFUSED)
def test_operator_refuses(name: str) -> None:
    shapes, constants = REFUSED[name]
    types = [numpy_dtype(tensor.dtype) for tensor in OPERATORS[name].function.inputs]
    arrays = [np.zeros(shape, dtype) for shape, dtype in zip(shapes, types, strict=False)]
    with pytest.raises((tcomp.ShapeError, tcomp.CompileError)):
        OPERATORS[name](*arrays, *constants)


def compare(results: Any, case: Case) -> None:
    found = results if isinstance(results, tuple) else (results,)
    assert len(found) == len(case.expected)
    for number, (array, expected) in enumerate(zip(map(np.asarray, found), case.expected, strict=True)):
        assert array.shape == expected.shape, f"output {number}"
        _compare_arrays(array, expected, f"output {number}")


def assert_bounded(operator: tcomp.Operation, case: Case, results: Any) -> None:
    """Results are within their error bounds, which say something."""
    inputs = {
        t.name: a if t.role == "const" else np.asarray(a, np.dtype(t.dtype.name))
        for t, a in zip(operator.function.inputs, case.arguments, strict=True)
    }
    found = results if isinstance(results, tuple) else (results,)
    bounds = error_bounds(operator.function, inputs, None, Model.RANDOM_ORDER)
    for array, tolerance in zip(found, bounds.values(), strict=True):
        assert (tolerance.shares(np.asarray(array)) <= 1).all()
        size = np.abs(tolerance.reference.astype(np.float64))
        scale = size.max(initial=1.0, where=np.isfinite(size))
        decided = tolerance.bound < np.inf
        assert (tolerance.bound[decided] <= 1e-2 * scale).all()
        assert decided.mean() > 0.9 or operator is OPERATORS["distance.nearest"]


def _compare_arrays(array: Array, expected: Array, name: str) -> None:
    tolerance = TOLERANCES.get(array.dtype.name)
    if tolerance is None:
        assert array.dtype == expected.dtype, name
        np.testing.assert_array_equal(array, expected, err_msg=name)
    else:
        largest = float(np.max(np.abs(expected), initial=0, where=np.isfinite(expected)))
        np.testing.assert_allclose(array, expected, rtol=tolerance, atol=tolerance * largest, err_msg=name)
