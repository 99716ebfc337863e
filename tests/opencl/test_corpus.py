"""Programs of the catalogue on an OpenCL device, compared with the reference."""

from __future__ import annotations

import pytest

from tcomp import grammar
from tests import corpus
from tests.corpus import EXPECTED_ERRORS, Program
from tests.opencl.here import NEEDS_DEVICE

pytestmark = [pytest.mark.sweep(8), NEEDS_DEVICE]

PROGRAMS = [p for p in corpus.programs() if p.family not in EXPECTED_ERRORS]

if not PROGRAMS:
    pytest.skip("the catalogue is not here", allow_module_level=True)

SOME = list({p.family: p for p in reversed(PROGRAMS)}.values())[::-2]
"""The first program of every other family: on a CPU that plays a GPU, they take a second each."""


@pytest.mark.parametrize("program", SOME, ids=str)
def test_program(program: Program) -> None:
    case = corpus.make_case(program, grammar.define(program.text)[program.name])
    corpus.check_call(case, f"opencl:{('cpu', 'gpu')[program.number % 2]}")
