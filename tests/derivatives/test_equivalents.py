"""Derivatives of programs against those that PyTorch finds for functions that compute the same, in float64."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import tcomp as tc

torch = pytest.importorskip("torch")

from tests.derivatives.equivalents import algebra, attention, convolutions, indexing, norms, redefinitions  # noqa: E402
from tests.derivatives.equivalents.case import Case  # noqa: E402

SUBJECTS = (algebra, attention, convolutions, indexing, norms, redefinitions)
CASES: dict[str, Case] = {name: case for subject in SUBJECTS for name, case in subject.CASES.items()}

CLOSE = 1e-9


def _tuple(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


class _Both:
    """A case as a def and as a function of tensors, with one draw of its arguments."""

    def __init__(self, case: Case, seed: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.operation = tc.define(case.text).f
        self.arguments = case.arguments(seed)
        rng = np.random.default_rng(seed + 1)
        self.tensors = [
            torch.tensor(a, requires_grad=_is_float(a)) if isinstance(a, np.ndarray) else a for a in self.arguments
        ]
        self.leaves = [t for t, a in zip(self.tensors, self.arguments, strict=True) if _is_float(a)]
        self.results = [r for r in _tuple(case.torch(*self.tensors)) if r.is_floating_point()]
        self.cotangents = [np.asarray(rng.uniform(-1, 1, r.shape)) for r in self.results]
        self.moves = [np.asarray(rng.uniform(-1, 1, t.shape)).astype(t.detach().numpy().dtype) for t in self.leaves]
        self.gradients = torch.autograd.grad(
            self.results, self.leaves, list(map(torch.tensor, self.cotangents)), create_graph=True,
            materialize_grads=True,
        )  # fmt: skip


def assert_close(found: Any, expected: Any, what: str) -> None:
    expected = expected.detach().numpy()
    assert found.shape == expected.shape, what
    scale = 1e-5 if found.dtype != np.float64 else CLOSE
    np.testing.assert_allclose(found, expected, rtol=scale, atol=scale, err_msg=what)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives(name: str) -> None:
    """The outputs; the gradients, whatever is saved; and how far the outputs move, against the gradients."""
    both = _Both(CASES[name], 0)
    outputs = [o for o in _tuple(both.operation.reference(*both.arguments)) if o.dtype.kind == "f"]
    for found, expected in zip(outputs, both.results, strict=True):
        assert_close(found, expected, "the value")
    for save in ("statistics", (), "all"):
        gradient = both.operation.gradient(save=save)
        found = _gradients(gradient, both.arguments, both.cotangents)
        for given, got, expected in zip(gradient.wrt, found, both.gradients, strict=True):
            assert_close(got, expected, f"{given}, save={save!r}\n{gradient.text}")
    tangent = both.operation.tangent()
    moved = [m for m in _tuple(tangent.reference(*both.arguments, *both.moves)) if m.dtype.kind == "f"]
    forward = sum(float((w * m).sum()) for w, m in zip(both.cotangents, moved, strict=True))
    reverse = sum(float((v * g.detach().numpy()).sum()) for v, g in zip(both.moves, both.gradients, strict=True))
    scale = 1 + sum(
        float(np.abs(v * g.detach().numpy()).sum()) for v, g in zip(both.moves, both.gradients, strict=True)
    )
    loose = 1e-6 if any(m.dtype != np.float64 for m in both.moves) else CLOSE
    assert abs(forward - reverse) < loose * scale, f"<w, J v> is {forward}, not {reverse}\n{tangent}"


def _gradients(gradient: Any, arguments: list[Any], cotangents: list[Any]) -> tuple[Any, ...]:
    """By the interpreter, which compiles nothing."""
    function = gradient.function
    given = dict(zip([t.name for t in function.inputs], arguments, strict=True))
    sizes = {
        dim.name: extent
        for tensor, value in zip(function.inputs, arguments, strict=True)
        for dim, extent in zip(tensor.dims or (), np.shape(value), strict=True)
        if hasattr(dim, "name")
    }
    if gradient.saved:
        results = _tuple(gradient.forward.reference(*arguments))
        given |= dict(zip([t.name for t in gradient.forward.function.outputs], results, strict=True))
    return _tuple(gradient.backward.reference(*gradient.arguments(given, sizes, cotangents)))
