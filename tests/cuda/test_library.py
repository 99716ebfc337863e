"""Every operator of the library on the simulator, against torch or NumPy as on the CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tcomp.backends.simulator.compiler import why_not
from tests.cpu.test_library import FAMILIES, OPERATORS, compare
from tests.library.case import Cases, Draw

pytestmark = [
    pytest.mark.skipif(why_not() is not None, reason="kernels cannot be simulated here"),
    pytest.mark.sweep(8),
]


@pytest.mark.parametrize("name", OPERATORS)
def test_operator(name: str) -> None:
    family, definition = name.split(".")
    checks: Callable[[Draw], Cases] = getattr(FAMILIES[family](), definition)
    for case in checks(Draw(sum(name.encode()))):
        compare(OPERATORS[name](*case.arguments, target="simulator"), case)
