"""Every program of the catalogue that the original's grammar accepts, compiled for the CPU and compared.

``python -m pytest tests/cpu/test_corpus.py -q -s`` prints the count (``conftest.py`` does).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import tcomp
from tcomp import grammar
from tcomp.errors import ShapeError
from tcomp.grammar.ranges.ranges import infer
from tests import corpus
from tests.corpus import EXPECTED_ERRORS, Case, Program

PROGRAMS = corpus.programs()

if not PROGRAMS:
    pytest.skip("the catalogue is not here", allow_module_level=True)

pytestmark = [pytest.mark.filterwarnings("ignore::tcomp.ProgramWarning"), pytest.mark.sweep(5)]

ACCEPTED: dict[int, str] = {
    13: "a name that is not an output is a temporary",
    15: "tensors may be redefined in any order",
    92: "tensors may be redefined in any order",
    99: "any identifier works; the wrong rank is an error of the call",
    101: "a program may have no inputs",
    103: "the wrong number of inputs is an error of the call",
    104: "the wrong type is an error of the call",
    106: "data may give the ends of a range",
    146: "0-D tensors work without inputs",
    176: "what the original could not prove without sizes is proved with them",
    177: "what the original could not prove without sizes is proved with them",
    178: "what the original could not prove without sizes is proved with them",
    184: "what the original could not prove without sizes is proved with them",
    219: "a name that is not an output is a temporary",
}
"""Why programs are accepted of which the catalogue says that the original refuses, disables or cannot prove them."""

Sizes = Mapping[str, int]
Boxes = dict[str, tuple[tuple[int, ...], tuple[int, ...]]]


def _grad(s: Sizes) -> Boxes:
    return {
        "d_I": ((0, 0, s["KH"] - 1, s["KW"] - 1),
                (s["N"], s["C"], s["OH"] - s["KH"] + 1, s["OW"] - s["KW"] + 1)),
        "d_W1": ((0, 0, s["H"] - s["OH"], s["W"] - s["OW"]),
                 (s["M"], s["C"], s["OH"] - s["H"] + 1, s["OW"] - s["W"] + 1)),
    }  # fmt: skip


def _conv(s: Sizes) -> Boxes:
    box = (0, 0, 0, 0), (s["N"], s["M"], s["H"] - s["KH"] + 1, s["W"] - s["KW"] + 1)
    return {"tmp": box, "O": box}


def _strided(s: Sizes) -> Boxes:
    return {
        "pad": ((0, 0, 5, 7), (s["N"], s["C"], s["H"], s["W"])),
        "tmp": ((0, 0, 3, 3), (s["N"], s["M"], (s["H"] - s["KH"] + 1) // 2, (s["W"] - s["KW"] + 1) // 3)),
    }


def _skewed(s: Sizes) -> Boxes:
    width = (s["W"] - s["KW"]) // 2
    return {"output": ((0,) * 4, (s["B"], s["OP"], (s["H"] - s["KH"] - width * 3) // 2 + 1, width + 1))}


def _shifted(s: Sizes) -> Boxes:
    n, m = min(s["N"], 20), min(s["M"] - 10, 10)
    return {"O": ((0, 20 - n), (10, m + n - 19))}


EXTENTS: dict[str, Callable[[Sizes], Boxes]] = {
    "O [I_0]": lambda s: {"O": ((0,), (s["I_0"],))},
    "O [I_0,I_1]": lambda s: {"O": ((0, 0), (s["I_0"], s["I_1"]))},
    "O min 1, extent I_0": lambda s: {"O": ((1,), (s["I_0"],))},
    "O min -5, extent I_0": lambda s: {"O": ((-5,), (s["I_0"],))},
    "tmp/O [N,M,(H-KH)+1,(W-KW)+1]": _conv,
    "d_I mins KH-1,KW-1; d_W1 extent (OH-H)+1...": _grad,
    "pad mins 5,7; tmp mins 3,3 extents ((H-KH)+1)/2, ((W-KW)+1)/3": _strided,
    "H: ((H-KH)-((W-KW)/2)*3)/2+1, W: (W-KW)/2+1": _skewed,
    "O min 3, extent N-4; M": lambda s: {"O": ((3, 0), (s["N"] - 4, s["M"]))},
    "O [10, min(M-10,10)+min(N,20)-19], min 20-min(N,20)": _shifted,
    "O [10,10]": lambda s: {"O": ((0, 0), (10, 10))},
    "mins 4,3 extents 4,17": lambda s: {"O": ((4, 3), (4, 17))},
}
"""Origins and extents for given sizes, by what the catalogue expects."""


@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_program(program: Program, record_property: Callable[[str, object], None]) -> None:
    try:
        outcome = _expected_error(program) if program.family in EXPECTED_ERRORS else _compare(program)
    except BaseException:
        record_property("corpus", "failed")
        raise
    record_property("corpus", outcome)


def _expected_error(program: Program) -> str:
    kind, message = EXPECTED_ERRORS[program.family]
    with pytest.raises(kind) as caught:
        _compile_and_size(program)
    assert message in str(caught.value)
    return "expected errors"


def _compile_and_size(program: Program) -> None:
    tcomp.define(program.text)
    corpus.small_ranges(program, grammar.define(program.text)[program.name])


def _compare(program: Program) -> str:
    case = corpus.make_case(program, grammar.define(program.text)[program.name])
    _check_extents(program, case)
    _check_warnings(program, case)
    corpus.check_call(case, "cpu")
    return "equal" if case.exact else "equal within rounding"


def _check_extents(program: Program, case: Case) -> None:
    expectation = EXTENTS.get(program.expect)
    if expectation is None:
        return
    for name, (origin, extent) in expectation(case.sizes).items():
        box = case.ranges.boxes[name]
        assert (box.origin, box.extent) == (origin, extent), name


def _check_warnings(program: Program, case: Case) -> None:
    warnings = [w.message for w in case.function.warnings]
    if program.expect.startswith("warning: "):
        assert any(program.expect.removeprefix("warning: consider using ") in w for w in warnings)
    if program.expect == "no warning":
        assert warnings == []


def test_tables_cover_what_the_catalogue_expects() -> None:
    """Every entry that mentions an error, a refusal or an extent is in one of the tables above."""
    for program in PROGRAMS:
        words = program.expect.lower()
        if any(w in words for w in ("error", "invalid", "disabled", "silent")):
            assert program.family in EXPECTED_ERRORS or program.family in ACCEPTED, program
        elif words and not words.startswith(("ok", "no warning", "warning", "canonical", "documentation", "coding")):
            assert program.expect in EXTENTS, program


@pytest.mark.parametrize(
    ("family", "sizes"),
    [
        (176, {"I_0": 4, "I_1": 4, "I_2": 4}),
        (177, {"I_0": 3, "I_1": 3, "I_2": 3, "I_3": 3, "I_4": 3}),
        (178, {"I_0": 4, "I_1": 4, "I_2": 2, "I_3": 2, "I_4": 4}),
        (184, {"N": 4, "NM": 6, "M": 4}),
    ],
)
def test_sizes_that_do_not_fit_are_refused(family: int, sizes: dict[str, int]) -> None:
    """What the original refused for all sizes is refused for those that do not fit."""
    program = next(p for p in PROGRAMS if p.family == family)
    with pytest.raises(ShapeError):
        infer(grammar.define(program.text)[program.name], sizes)


@pytest.mark.parametrize(
    ("family", "inputs", "out"),
    [
        (99, [np.zeros(1, np.float32)], np.zeros((1, 1), np.float32)),
        (103, [np.float32(1)], None),
        (104, [np.float32(1)], None),
        (104, [np.zeros((2, 2), np.int32)], None),
    ],
)
def test_calls_that_the_catalogue_expects_to_fail(family: int, inputs: list[Any], out: Any) -> None:
    program = next(p for p in PROGRAMS if p.family == family)
    with pytest.raises(ShapeError):
        getattr(tcomp.define(program.text), program.name)(*inputs, out=out, target="cpu")
