"""Range inference on the catalogue of tensor comprehensions: expected extents, origins and errors.

The formulas are the expectations of the original's own inference tests, with concrete sizes put in.  The catalogue lies
beside the project; these tests skip where it is absent.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tcomp.errors import CompileError, ShapeError, TcompError
from tcomp.grammar import define
from tcomp.grammar.ranges.ranges import infer
from tcomp.grammar.tree.function import Function

CATALOGUE = Path(__file__).parents[3] / "shared" / "corpus" / "tc_catalogue.json"
ENTRIES: list[dict[str, Any]] = json.loads(CATALOGUE.read_text()) if CATALOGUE.exists() else []

pytestmark = pytest.mark.skipif(not ENTRIES, reason="the catalogue of tensor comprehensions is not here")

Sizes = Mapping[str, int]
Expected = Callable[[Sizes], dict[str, tuple[tuple[int, ...], tuple[int, ...]]]]

SIZES = {
    "I_0": 30, "I_1": 70, "I_2": 50, "I_3": 35, "I_4": 90, "N": 14, "M": 17, "C": 3, "H": 19, "W": 23, "KH": 4, "KW": 5,
    "OH": 21, "OW": 26, "B": 2, "IP": 3, "OP": 4, "NM": 29,
}  # fmt: skip
OTHERS = SIZES | {"N": 33, "M": 40, "H": 12, "W": 30, "KH": 2, "KW": 3, "OH": 11, "OW": 29, "NM": 80, "I_0": 31}

INFERRED: dict[int, Expected] = {
    73: lambda s: {"O": ((0,), (s["I_0"],))},
    89: lambda s: {"O": ((0, 0), (s["I_0"], s["I_1"]))},
    161: lambda s: {"O": ((1,), (s["I_0"],))},
    177: lambda s: {"O": ((-5,), (s["I_0"],))},
    193: lambda s: dict.fromkeys(
        ("tmp", "O"), ((0, 0, 0, 0), (s["N"], s["M"], s["H"] - s["KH"] + 1, s["W"] - s["KW"] + 1))
    ),
    218: lambda s: {
        "d_I": (
            (0, 0, s["KH"] - 1, s["KW"] - 1),
            (s["N"], s["C"], s["OH"] - s["KH"] + 1, s["OW"] - s["KW"] + 1),
        ),
        "d_W1": (
            (0, 0, s["H"] - s["OH"], s["W"] - s["OW"]),
            (s["M"], s["C"], s["OH"] - s["H"] + 1, s["OW"] - s["W"] + 1),
        ),
        "d_B": ((0,), (s["M"],)),
    },
    252: lambda s: {
        "pad": ((0, 0, 5, 7), (s["N"], s["C"], s["H"], s["W"])),
        "tmp": ((0, 0, 3, 3), (s["N"], s["M"], (s["H"] - s["KH"] + 1) // 2, (s["W"] - s["KW"] + 1) // 3)),
    },
    277: lambda s: {
        "output": (
            (0, 0, 0, 0),
            (
                s["B"],
                s["OP"],
                (s["H"] - s["KH"] - (s["W"] - s["KW"]) // 2 * 3) // 2 + 1,
                (s["W"] - s["KW"]) // 2 + 1,
            ),
        )
    },
    408: lambda s: {"O": ((3, 0), (s["N"] - 4, s["M"]))},
    432: lambda s: {
        "O": ((0, 20 - min(s["N"], 20)), (10, min(s["M"] - 10, 10) + min(s["N"], 20) - 19)),
    },
    462: lambda _: {"O": ((0, 0), (10, 10))},
    487: lambda _: {"O": ((4, 3), (4, 17))},
}
"""Boxes (origin, extents) of the programs of test_inference.cc, by line."""

UNSOLVABLE = [136, 312, 423, 477]
"""Lines of the programs that are wrong whatever the sizes."""

UNFIT = [322, 334, 346, 450, 500]
"""Lines of the programs that need relations between sizes which these sizes lack, or have a negative extent."""


def inference_program(line: int) -> str:
    (text,) = {e["tc"] for e in ENTRIES if e["source_file"] == "test/test_inference.cc" and e.get("line") == line}
    return text


def only(text: str) -> Function:
    (function,) = define(text).values()
    return function


@pytest.mark.parametrize("sizes", [SIZES, OTHERS], ids=["sizes", "others"])
@pytest.mark.parametrize("line", INFERRED)
def test_inferred_boxes(line: int, sizes: Sizes) -> None:
    if line == 277:
        sizes = {**sizes, "H": 2 * sizes["W"] + 3}
    if line == 218:
        sizes = {**sizes, "OH": sizes["H"] + 2, "OW": sizes["W"] + 1}
    if line == 432:
        sizes = {**sizes, "N": sizes["N"] + 4, "M": sizes["M"] - 1}
    function = only(inference_program(line))
    found = infer(function, {name: sizes[name] for name in function.sizes}).boxes
    assert {t.name: (found[t.name].origin, found[t.name].extent) for t in function.outputs} == INFERRED[line](sizes)


@pytest.mark.parametrize("line", UNSOLVABLE)
def test_programs_that_no_sizes_solve(line: int) -> None:
    with pytest.raises(CompileError, match=r"Use a (where|'where') clause"):
        define(inference_program(line))


@pytest.mark.parametrize("line", UNFIT)
def test_programs_that_do_not_fit_their_sizes(line: int) -> None:
    function = only(inference_program(line))
    with pytest.raises(ShapeError):
        infer(function, {name: SIZES[name] for name in function.sizes})


def test_relations_between_sizes_that_hold_are_proved() -> None:
    function = only(inference_program(450))
    assert infer(function, {"N": 10, "NM": 19, "M": 10}).boxes["O"].extent == (10, 10)
    with pytest.raises(ShapeError, match=r"reaches 18 but dimension 1 of I has 18 elements, 1 too far"):
        infer(function, {"N": 10, "NM": 18, "M": 10})


def test_every_program_with_sizes_has_ranges() -> None:
    """The catalogue's own sizes fit every program that it gives them for."""
    solved = 0
    for entry in ENTRIES:
        if not entry["parses"] or not entry["shapes"]:
            continue
        try:
            functions = define(entry["tc"])
        except TcompError:
            assert "error" in entry.get("expect", ""), entry["name"]
            continue
        for sizes in entry["shapes"]:
            for function in functions.values():
                if set(function.sizes) <= set(sizes):
                    infer(function, {name: sizes[name] for name in function.sizes})
                    solved += 1
    assert solved > 250
