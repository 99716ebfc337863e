"""Hypothesis strategies over the random programs and options of ``tcomp fuzz``; they shrink towards the simplest."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tcomp.fuzzing.options import random_options
from tcomp.fuzzing.programs.choices import Choices
from tcomp.fuzzing.programs.generation import generate
from tcomp.fuzzing.programs.programs import Program
from tcomp.mapping.options.options import MappingOptions


def _choices(draw: st.DrawFn) -> Choices:
    return Choices(lambda low, high: draw(st.integers(low, high)))


@st.composite
def programs(draw: st.DrawFn) -> Program:
    """Programs of one to six statements."""
    return generate(_choices(draw))


@st.composite
def options(draw: st.DrawFn, target: str) -> MappingOptions:
    """Options that a target takes."""
    return random_options(_choices(draw), target)


def suite(examples: int) -> Callable[[Any], Any]:
    """Settings for the test suite: always the same examples, within the budget."""
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
