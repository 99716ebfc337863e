"""The same programs in the languages of other GPUs: what differs from CUDA, reviewed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tcomp.driver import Backend, lower
from tcomp.grammar import define
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.terms.sizes import Sizes
from tests.golden.test_cuda import PROGRAMS
from tests.targets import HIP, OPENCL

LANGUAGES: dict[str, Backend] = {"cl": OPENCL, "hip": HIP}


@pytest.mark.parametrize("suffix", LANGUAGES)
@pytest.mark.parametrize("name", ["ragged_matmul", "softmax", "lookup"])
def test_golden_dialects(name: str, suffix: str, golden: Callable[[Path, str], None]) -> None:
    program, backend = PROGRAMS[name], LANGUAGES[suffix]
    source = lower(define(program.text)["f"], Sizes(program.sizes), MappingOptions(), backend).source
    launches = "".join(
        f"// {n.kernel}: {n.grid} blocks of {n.block}: {', '.join(n.arguments)}\n" for n in source.launches
    )
    golden(Path(__file__).parent / "dialects" / f"{name}.{suffix}", f"{source.text}\n{launches}")
