"""Results of a kernel against the reference, to within what rounding may do: equal where all operations are exact."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tcomp.grammar.tree.function import Function
from tcomp.model.tolerance import Model, error_bounds
from tcomp.values.intrinsics import INTRINSICS

Array = np.ndarray[Any, np.dtype[Any]]

OF_FLOATS = {name: function for name, function in INTRINSICS.items() if not function.only_integers}
"""Functions that floats may be arguments of."""


def assert_agrees(
    function: Function,
    inputs: Mapping[str, Any],
    found: Mapping[str, Any],
    contents: Mapping[str, Array] | None = None,
    model: Model = Model.RANDOM_ORDER,
    undecided: float = 0.0,
    matrix_units: bool = False,
) -> None:
    """Assert types, shapes and values of all outputs; at most a part ``undecided`` of them may hang on rounding."""
    for name, tolerance in error_bounds(function, inputs, contents, model, matrix_units=matrix_units).items():
        array = np.asarray(found[name])
        assert array.dtype == tolerance.reference.dtype, name
        assert array.shape == tolerance.reference.shape, name
        if array.size == 0:
            continue
        assert np.isinf(tolerance.bound).mean() <= undecided, f"{name} hangs on rounding"
        shares = tolerance.shares(array)
        worst = np.unravel_index(np.argmax(shares), shares.shape)
        assert shares[worst] <= 1, (
            f"{name}{[int(i) for i in worst]} is {array[worst]!r}, not {tolerance.reference[worst]!r}:"
            f" {shares[worst]:.3g} times its bound"
        )
