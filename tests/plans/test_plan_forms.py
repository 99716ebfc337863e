"""Trees, corners of boxes and tile sizes in the text of a plan, in forms that isl or the proofs take for granted."""

from __future__ import annotations

import re

import pytest

import tcomp as tc
from tcomp.driver import lower
from tcomp.grammar import define
from tcomp.model.terms.sizes import Sizes
from tests.plans.test_plan_text import MATMUL, SIZES, compiled
from tests.targets import CPU

TREES = {
    "a flag in braces": ("coincident: [ 1, 1 ]", "coincident: [ {}, 1 ]", "is no entry of a schedule tree"),
    "a flag without brackets": ("coincident: [ 1, 1 ]", "coincident: 1 1", "is no entry of a schedule tree"),
    "no quotes": ('mark: "group0"', "mark: group0", "is no entry of a schedule tree"),
    "no end of a string": ('mark: "group0"', 'mark: "group0', "is no entry of a schedule tree"),
    "an escape": ('mark: "group0"', r'mark: "group0\\"', "is no entry of a schedule tree"),
    "another kind": ("child:", 'extension: "{ }"\nchild:', "is no entry of a schedule tree"),
    "an entry twice": ("permutable: 1", "permutable: 1\n    permutable: 1", "there is permutable already"),
    "two kinds": ('mark: "parallel0"', 'mark: "parallel0"\n  filter: "{ }"', "a node has not mark, filter, child"),
    "no kind": ('mark: "parallel0"\n', "permutable: 1\n", "a node has not permutable, child"),
    "no filter": ("- filter:", "- mark:", "begins with its filter"),
    "no child of a child": ("child:", "child:\nchild:", "nothing stands below child"),
    "no children": ("sequence:", 'mark: "x"\n  ', "belongs to no node|is no entry|a node has not"),
    "depth": (
        'mark: "parallel0"',
        "".join(f'{" " * d}mark: "m{d}"\n{" " * (d + 2)}child:\n{" " * (d + 3)}' for d in range(320)),
        "is nested too deeply|belongs to no node",
    ),
    "no domain": ("domain:", "mark:", "tree must begin with its domain"),
}


@pytest.mark.parametrize("name", TREES)
def test_a_tree_that_isl_would_not_print_is_told_by_its_line(name: str) -> None:
    """isl's own reader crashes on some of these and never ends on others."""
    old, new, reason = TREES[name]
    text = compiled(MATMUL, SIZES, "cpu").stages["pack"]
    assert old in text
    with pytest.raises(tc.PlanError, match=reason):
        compiled(MATMUL, SIZES, "cpu", text.replace(old, new, 1))


def test_a_tree_may_have_other_spaces_and_empty_lines() -> None:
    made = compiled(MATMUL, SIZES, "cpu")
    text = made.stages["pack"].replace("permutable: 1\n", "permutable: 1\n\n").replace("[ 1, 1 ]", "[1,1]  ")
    assert compiled(MATMUL, SIZES, "cpu", re.sub("^", "   ", text, flags=re.M)).source == made.source


CORNERS = {
    "names": ("X[{bands}]", "[({0}), ({1})]", "no names but those of bands"),
    "other names": ("[{bands}]", "Y[({0}), ({1})]", "no names but those of bands"),
    "one number": ("[{bands}]", "[({0})]", "lower must have 2 numbers"),
    "a half": ("[{bands}]", "[({0}), ({1} + 1/2)]", "must be whole numbers"),
    "halves of a band": ("[{bands}]", "[({0}), ({1} + i0/2)]", "must be whole numbers"),
    "no number": ("[{bands}]", "[({0}), (NaN)]", "must be whole numbers"),
    "other bands": ("[{bands}, more]", "[({0}), ({1})]", r"must depend on the \d rows around its mark"),
}


@pytest.mark.parametrize("name", CORNERS)
@pytest.mark.parametrize("table", ["buffer", "copy"])
def test_a_corner_that_is_no_place_of_a_box_is_told(name: str, table: str) -> None:
    bands, numbers, reason = CORNERS[name]
    sizes = {"M": 32, "N": 32, "K": 48}
    text = compiled(MATMUL, sizes, "cuda:sm_90").stages["barriers"]
    pattern = rf"(\[\[{table}\]\]\n(?:.+\n)*?lower = )\"\{{ \[(.*)\] -> \[\((.*)\), \((.*)\)\] \}}\""
    found = re.search(pattern, text)
    assert found is not None
    lower = f'"{{ {bands.format(bands=found[2])} -> {numbers.format(found[3], found[4])} }}"'
    with pytest.raises(tc.PlanError, match=f"{table}.*{reason}"):
        compiled(MATMUL, sizes, "cuda:sm_90", text.replace(found[0], found[1] + lower))


def test_numbers_that_loops_do_not_hold_are_told() -> None:
    """Every value of the row is small, but the text of a loop would divide by what is no integer of 64 bits."""
    text = compiled(MATMUL, SIZES, "cpu").stages["pack"]
    row = "S0[i0, i1, i2] -> [(i2)]"
    assert row in text
    with pytest.raises(tc.PlanError, match="the tree has a number that is larger than"):
        compiled(MATMUL, SIZES, "cpu", text.replace(row, row.replace("(i2)", f"(i2 + floor((i2)/{1 << 63}))")))


@pytest.mark.parametrize("size", [1 << 41, 1 << 70])
def test_tiles_larger_than_numbers_of_a_plan_read_back(size: int) -> None:
    options = tc.MappingOptions(tile_sizes=(size, 8))
    made = compiled(MATMUL, SIZES, "cpu", options=options)
    assert compiled(MATMUL, SIZES, "cpu", made.stages["pack"], options).source == made.source


TOO_MUCH = {
    "brackets": ("(" * 200_000 + "i2" + ")" * 200_000, "nested more than 100 deep"),
    "quotients": ("floor(" * 99 + "i2" + ")" * 99, "nested more than 100 deep"),
    "factors": ("2 * " * 1_000_000 + "i2", "more than 1000 factors"),
    "signs between factors": ("2 * -" * 5000 + "i2", "more than 1000 factors"),
    "members": ("i2), (" * 2000 + "i2", "more than 300 parts"),
}


@pytest.mark.parametrize("name", TOO_MUCH)
def test_what_isl_has_no_stack_for_is_told(name: str) -> None:
    """Its reader is recursive, and takes a minute for a tuple of 2,000."""
    expression, reason = TOO_MUCH[name]
    text = compiled(MATMUL, SIZES, "cpu").stages["pack"]
    row = "S0[i0, i1, i2] -> [(i2)]"
    assert row in text
    with pytest.raises(tc.PlanError, match=f"tree: .*{reason}"):
        compiled(MATMUL, SIZES, "cpu", text.replace(row, row.replace("i2)", f"{expression})")))


@pytest.mark.parametrize("expression", ["(" * 90 + "i2" + ")" * 90, "1 * " * 900 + "i2"])
def test_what_isl_reads_is_not_refused(expression: str) -> None:
    made = compiled(MATMUL, SIZES, "cpu")
    row = "S0[i0, i1, i2] -> [(i2)]"
    text = made.stages["pack"].replace(row, row.replace("(i2)", f"({expression})"))
    assert compiled(MATMUL, SIZES, "cpu", text).source == made.source


@pytest.mark.parametrize("entry", ["domain", "filter", "schedule"])
def test_a_parameter_is_told_wherever_it_is(entry: str) -> None:
    """isl makes no map of a tree whose domain alone has one."""
    text = compiled(MATMUL, SIZES, "cpu").stages["pack"]
    assert f'{entry}: "' in text
    with pytest.raises(tc.PlanError, match="a plan's tree has no parameters"):
        compiled(MATMUL, SIZES, "cpu", text.replace(f'{entry}: "', f'{entry}: "[p] -> ', 1))


@pytest.mark.parametrize("sizes", [(0, 0), (), (0,)])
def test_a_loop_without_tiles_has_one_wherever_it_begins(sizes: tuple[int, ...]) -> None:
    """Tiles are counted from 0, so one of 64 leaves the last of 1, ..., 64 to a second."""
    text = "def f(float(N,N) X) -> (O) { O(i,j) = X(i-1,j-1) + X(i+1,j+1) where i in 1:N-1, j in 1:N-1 }"
    options = tc.MappingOptions(tile_sizes=sizes)
    (group,) = lower(define(text)["f"], Sizes({"N": 66}), options, CPU).plan.groups
    assert group.sizes == (65, 65)
