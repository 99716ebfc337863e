"""Blocks that are transposed in registers: each element gets to its place, whatever vectors there are."""

from __future__ import annotations

import re

import pytest

from tcomp.backends.c.vectors.transposition import transposed_rows

LINE = re.compile(
    r"v (?P<name>\w+) = (?P<wide>\(v\))?__builtin_shufflevector"
    r"\((?:\(tc_uint64_x\d+\))?(?P<a>\w+), (?:\(tc_uint64_x\d+\))?(?P<b>\w+), (?P<order>[\d, ]+)\);"
)


@pytest.mark.parametrize(("lanes", "itemsize"), [(2, 8), (4, 8), (8, 8), (2, 4), (4, 4), (8, 4), (16, 4), (32, 4)])
def test_each_element_changes_its_row_for_its_column(lanes: int, itemsize: int) -> None:
    lines, names = transposed_rows("v", lanes, itemsize)
    vectors = {f"r0_{row}": [(row, column) for column in range(lanes)] for row in range(lanes)}
    for line in lines:
        found = LINE.fullmatch(line)
        assert found is not None, line
        both, size = [*vectors[found["a"]], *vectors[found["b"]]], 2 if found["wide"] else 1
        order = [size * int(n) + k for n in found["order"].split(", ") for k in range(size)]
        vectors[found["name"]] = [both[n] for n in order]
    assert [vectors[name] for name in names] == [[(row, column) for row in range(lanes)] for column in range(lanes)]
