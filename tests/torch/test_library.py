"""Every operator of the library as an operator of torch, in float64: checked, differentiated twice, compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.testing._internal.optests.generate_tests import DEFAULT_TEST_UTILS

import tcomp as tc
from tcomp.autograd.operators import operator_of
from tests.derivatives.test_gradients import LIBRARY, SIZES, made_up

pytestmark = pytest.mark.sweep(40)

SMALL = {**SIZES, "N": 3, "C": 2, "F": 2, "H": 6, "W": 5, "D": 3}
"""Sizes of which all elements can be moved, each by itself."""

SPARSE = ("csr_transposed_mm", "csr_to_dense", "sddmm", "segment_softmax", "conv2d_pruned")

DIVIDED = {
    **{name: {"R1": 4, "F1": 4, "H": 4, "W": 4} for name in SPARSE},
    "space_to_depth": {"H": 6, "W": 4},
    "depth_to_space": {"C": 4},
}
"""Sizes that must be multiples of another, or one more."""


def arguments_of(name: str) -> tuple[tc.Operation, tuple[Any, ...]]:
    """An operator with doubles, and tensors for it, of which those of floats require a gradient."""
    operation: tc.Operation = getattr(tc.define(LIBRARY[name]), name)
    function = operation.function
    names = (*function.sizes, *(t.name for t in function.inputs if t.role == "const"))
    sizes = {size: {**SMALL, **DIVIDED.get(name, {})}.get(size, 3) for size in names}
    made = zip(function.inputs, made_up(function, sizes, 0, 0.2), strict=True)
    return operation, tuple(
        value if tensor.role == "const" else torch.from_numpy(np.asarray(value)).requires_grad_(tensor.dtype.is_float)
        for tensor, value in made
    )


def floats(results: Any) -> tuple[torch.Tensor, ...]:
    """The results that have gradients."""
    return tuple(r for r in (results if isinstance(results, tuple) else (results,)) if r.is_floating_point())


def inputs_of(arguments: tuple[Any, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(a for a in arguments if isinstance(a, torch.Tensor) and a.requires_grad)


def function_of(operation: Callable[..., Any], arguments: tuple[Any, ...]) -> Callable[..., tuple[torch.Tensor, ...]]:
    """The results that have gradients, as a function of the inputs that require them."""

    def function(*inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        given = iter(inputs)
        return floats(
            operation(*(next(given) if isinstance(a, torch.Tensor) and a.requires_grad else a for a in arguments))
        )

    return function


@pytest.mark.parametrize("name", sorted(LIBRARY))
def test_opcheck(name: str) -> None:
    operation, arguments = arguments_of(name)
    checks = list(DEFAULT_TEST_UTILS)
    kinds = [tensor.dtype.is_float for tensor in operation.function.outputs]
    if kinds != sorted(kinds, reverse=True):
        checks.remove("test_aot_dispatch_dynamic")  # it adds floats to the sum of integers before them, in place
    torch.library.opcheck(operator_of(operation).overload, arguments, test_utils=checks)


@pytest.mark.parametrize("name", sorted(LIBRARY))
def test_derivatives(name: str) -> None:
    operation, arguments = arguments_of(name)
    inputs, function = inputs_of(arguments), function_of(operation, arguments)
    if not any(result.requires_grad for result in function(*inputs)):
        pytest.skip("nothing in it has a derivative")
    if any(tensor.dtype is not torch.float64 for tensor in (*inputs, *function(*inputs))):
        pytest.skip("its floats are of 16 bits, too few for differences")
    assert torch.autograd.gradcheck(function, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(function, inputs, fast_mode=True)


@pytest.mark.parametrize("name", sorted(LIBRARY))
def test_compiled_is_eager(name: str) -> None:
    operation, arguments = arguments_of(name)
    torch.compiler.reset()  # the line below is one function for torch, of which it compiles eight at most
    compiled = torch.compile(lambda *a: operation(*a), fullgraph=True, backend="aot_eager")
    expected, found = operation(*arguments), compiled(*arguments)
    torch.testing.assert_close(found, expected)
    inputs = inputs_of(arguments)
    recorded = [(f, e) for f, e in zip(floats(found), floats(expected), strict=True) if e.requires_grad]
    assert all(f.requires_grad for f, _ in recorded)
    if recorded:
        torch.manual_seed(0)
        cotangents = [torch.rand_like(e) for _, e in recorded]
        ours, theirs = (
            torch.autograd.grad(results, inputs, cotangents, allow_unused=True)
            for results in zip(*recorded, strict=True)
        )
        torch.testing.assert_close(ours, theirs)
