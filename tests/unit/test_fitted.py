"""Numbers fitted to a machine: each declared in its room, listed in the docs, and none elsewhere."""

from __future__ import annotations

import ast
import importlib
import math
import pkgutil
from collections.abc import Callable, Iterator
from dataclasses import is_dataclass
from pathlib import Path

import pytest

from tcomp.mapping.machines import fitted
from tcomp.mapping.machines.fitted.declaring import fittings

ROOT = Path(__file__).parents[2]
SEARCHED = ("mapping", "tcomp/backends/c", "tcomp/backends/gpu", "tcomp/networks/algorithms")

HEAD = "| number | value | unit | what it means | machine | how it was found |"

PRESCRIBED = {
    "hardware": "LINE_BYTES PAGE WARP REGISTER_BYTES USUAL_REGISTERS MOST_REGISTERS VECTOR_BYTES SECTOR_BYTES LINE "
    "STATIC_SHARED_BYTES RESERVED_SHARED_BYTES LANES_ALIKE LANE_BYTES FETCHED_BYTES COLUMNS_FETCHED "
    "MOST_WARPS MOST_WORDS _SHARED_BYTES MOST_DEPTH _BYTES _SIDE _REGISTERS _MATRIX_REGISTERS _MATRIX_SIDE "
    "GROUP_WARPS GROUP_ROW_BYTES PAIR_OF_BYTES SWIZZLE_ALIGNMENT _PIECE_BYTES",
    "documented bounds of errors": "MOST_SHORT_STEPS",
    "what Linux prescribes": "_ARCH_PRCTL",
    "limits of CUDA and of plans": "LARGEST MAX_CLUSTER _MOST_IN_32_BITS _DEEPEST SCRATCH_BYTES PRIVATE_BYTES "
    "_MOST_ROWS MOST_PIECES",
    "the fewest for which a form exists": "LEAST_COLUMNS LEAST_LANES _LEAST_LANES LEAST_STEPS LEAST_PASSES "
    "SHORTEST_RUN PART_MULTIPLE VALUE_BYTES FOLDED TOGETHER _ALIGNMENT LEAST_SUMS LEAST_RANK LEAST_PRODUCTS",
    "the only one for which a form exists": "PARTS MOST_IN_FLIGHT",
    "formats of numbers and of text": "_EXPONENTS LEAST_FACTOR LONGEST_COMMENT LONGEST_LINE",
    "workarounds for gcc": "_DEEP",
    "what CUDA promises": "BLOCKS_RESIDENT",
    "units": "_FLOAT DIRECT WORD_BITS",
    "pieces that stay in any cache": "_FILTERS",
    "how much text a program may become": "MOST_TURNS MOST_PIECES",
    "what people write for minus infinity": "LOW",
}
"""Numbers that no machine's measurements chose, by what prescribes them."""


def groups() -> Iterator[tuple[str, str, object]]:
    """Every group of fitted numbers: its module, its name, the group."""
    for module in pkgutil.iter_modules(fitted.__path__):
        found = importlib.import_module(f"{fitted.__name__}.{module.name}")
        for name, value in vars(found).items():
            if is_dataclass(value) and not isinstance(value, type):
                yield module.name, name, value


def numbers(value: object) -> list[float]:
    if isinstance(value, tuple):
        return [number for each in value for number in numbers(each)]
    return [float(value)] if isinstance(value, int | float) else []


@pytest.mark.parametrize(("module", "name", "group"), list(groups()), ids=[f"{m}.{n}" for m, n, _ in groups()])
def test_every_number_says_what_it_is(module: str, name: str, group: object) -> None:
    declared = list(fittings(group))
    assert declared, f"{module}.{name} is empty"
    for field, value, fitting in declared:
        assert numbers(value), field
        assert all(math.isfinite(number) and number >= 0 for number in numbers(value)), field
        assert fitting.unit and fitting.help.endswith(".") and fitting.machine and fitting.how, field


def test_the_docs_list_them(golden: Callable[[Path, str], None]) -> None:
    lines = [
        "# Numbers fitted to a machine",
        "",
        "Models and thresholds hold numbers that were found by measuring. On another machine others may be better.",
        "They stand in `mapping/machines/fitted/`. `pytest tests/unit/test_fitted.py --update-golden` makes this page.",
    ]
    last = ""
    for module, name, group in groups():
        if module != last:
            lines += ["", f"## `{module}.py`"]
        last = module
        summary = (type(group).__doc__ or "").splitlines()[0]
        lines += [
            "",
            f"`{name}`: {summary}",
            "",
            "| number | value | unit | what it means | machine | how it was found |",
        ]
        lines.append("|---|---|---|---|---|---|")
        for field, value, fitting in fittings(group):
            cells = (f"`{field}`", f"{value}", fitting.unit, fitting.help, fitting.machine, fitting.how)
            lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    golden(ROOT / "docs" / "fitted.md", "\n".join(lines) + "\n")


ARITHMETIC = (
    ast.Constant,
    ast.BinOp,
    ast.UnaryOp,
    ast.operator,
    ast.unaryop,
    ast.expr_context,
    ast.Name,
    ast.Attribute,
)


def constants(path: Path) -> Iterator[str]:
    """Names in capitals at the top of a module that are given numbers."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.Assign([ast.Name(name)], value) | ast.AnnAssign(ast.Name(name), _, value):
                parts = [] if value is None else list(ast.walk(value))
                has_number = any(isinstance(p, ast.Constant) and type(p.value) in (int, float) for p in parts)
                if name.isupper() and has_number and all(isinstance(p, ARITHMETIC) for p in parts):
                    yield name


def test_no_other_module_has_any() -> None:
    prescribed = {name for names in PRESCRIBED.values() for name in names.split()}
    found = {
        name: str(path.relative_to(ROOT))
        for room in SEARCHED
        for path in sorted((ROOT / room).rglob("*.py"))
        if "fitted" not in path.relative_to(ROOT).parts
        for name in constants(path)
    }
    assert {name: path for name, path in found.items() if name not in prescribed} == {}, "declare it in the room"
    assert prescribed - set(found) == set(), "no longer there"
