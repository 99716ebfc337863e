"""Which contractions of narrow integers take several steps at a time, how their operands are packed, and the proof."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import tcomp as tc
from tcomp.backends.c.target import CpuBackend
from tcomp.driver import lower
from tcomp.errors import LegalityError
from tcomp.grammar import define
from tcomp.mapping.machines.cpu import DOTS
from tcomp.mapping.plan.layouts import StepGroups
from tcomp.mapping.plan.values import Copy, Plan
from tcomp.mapping.proof.legality import prove
from tcomp.mapping.text.reader import read_plan
from tcomp.mapping.text.writer import plan_text
from tcomp.model.terms.sizes import Sizes
from tcomp.values.operators import UINT8
from tests.targets import CPU

SIZES = {"M": 40, "K": 37, "N": 50}


def backend(dots: str) -> CpuBackend:
    return CpuBackend(replace(CPU.machine, dots=dots))


def plan_of(text: str, sizes: dict[str, int], dots: str = "avx512_vnni") -> Plan:
    return lower(define(text)["f"], Sizes(sizes), tc.MappingOptions(), backend(dots)).plan


def product(first: str, second: str, result: str = "int32") -> str:
    value = f"{result}(A(m,k)) * {result}(B(k,n))"
    return f"def f({first}(M,K) A, {second}(K,N) B) -> ({result}(M,N) C) {{ C(m,n) +=! {value} }}"


def grouped(plan: Plan) -> dict[str, Copy]:
    return {c.storage: c for c in plan.copies if c.groups is not None}


def groups_of(plan: Plan, storage: str) -> StepGroups:
    groups = grouped(plan)[storage].groups
    assert groups is not None
    return groups


@pytest.mark.parametrize("pair", [("uint8", "int8"), ("int8", "uint8")])
def test_bytes_of_both_kinds_are_packed_as_they_are(pair: tuple[str, str]) -> None:
    plan = plan_of(product(*pair), SIZES)
    for name in ("A", "B"):
        groups = groups_of(plan, name)
        assert (groups.size, groups.flipped, groups.summed) == (4, False, None)
    assert [str(grouped(plan)[name].dtype) for name in ("A", "B")] == list(pair)


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_bytes_of_one_kind_need_a_flip_and_sums(kind: str) -> None:
    plan = plan_of(product(kind, kind), SIZES)
    assert groups_of(plan, "A").flipped and not groups_of(plan, "B").flipped
    assert groups_of(plan, "B").summed == (1,)


@pytest.mark.parametrize("pair", [("int16", "int16"), ("int8", "int16"), ("int16", "uint8")])
def test_pairs_of_16_bits(pair: tuple[str, str]) -> None:
    plan = plan_of(product(*pair), SIZES)
    assert {c.dtype.name for c in grouped(plan).values()} == {"int16"}
    assert groups_of(plan, "A").size == groups_of(plan, "B").size == 2


def test_without_instructions_for_bytes_there_are_pairs() -> None:
    plan = plan_of(product("int8", "int8"), SIZES, "avx2")
    assert {c.dtype.name for c in grouped(plan).values()} == {"int16"}
    assert not grouped(plan_of(product("int8", "int8"), SIZES, ""))
    assert DOTS[""] == {}


@pytest.mark.parametrize(
    "text",
    [
        product("uint16", "int16"),
        product("int8", "int8", "int64"),
        product("int8", "int8", "float"),
        product("int32", "int8"),
        product("int8", "int8").replace("int32(A(m,k))", "int32(uint16(A(m,k)))"),
        product("int8", "int8").replace(") }", ") where k in 0:m-3 }"),
        product("int8", "int8").replace("A(m,k)", "A(m,36-k)"),
    ],
)
def test_what_the_instructions_do_not_compute(text: str) -> None:
    assert not grouped(plan_of(text, SIZES))


CONVOLUTION = """def f(int8(N,C,H,W) I, int8(O,C,KH,KW) K) -> (Y) {
    Y(n,o,h,w) +=! I(n,c,h+kh,w+kw) * K(o,c,kh,kw) }"""
IMAGE = {"N": 2, "C": 6, "H": 12, "W": 33, "O": 9, "KH": 3, "KW": 3}


def test_a_convolution_takes_channels_together() -> None:
    plan = plan_of(CONVOLUTION, IMAGE)
    image, weights = groups_of(plan, "I"), groups_of(plan, "K")
    assert (image.dimension, weights.dimension) == (1, 1)
    assert image.flipped and weights.summed == (0,)


def broken(copy: Copy, name: str) -> Copy:
    groups = copy.groups
    assert groups is not None
    match name:
        case "another dimension":
            return replace(copy, groups=replace(groups, dimension=1 - groups.dimension))
        case "no dimension":
            return replace(copy, groups=replace(groups, dimension=2))
        case "no reduction":
            return replace(copy, groups=replace(groups, step=0))
        case "other sums":
            return replace(copy, groups=replace(groups, summed=(0,)))
        case "no sums":
            return replace(copy, groups=replace(groups, summed=None))
        case "a flip":
            return replace(copy, groups=replace(groups, flipped=True))
        case "other groups":
            return replace(copy, groups=replace(groups, size=2))
        case "a narrower type":
            return replace(copy, dtype=UINT8)
        case _:
            return replace(copy, groups=None)


@pytest.mark.parametrize(
    "name",
    ["another dimension", "no dimension", "no reduction", "other sums", "no sums", "a flip", "other groups",
     "a narrower type", "no groups"],
)  # fmt: skip
def test_a_wrong_copy_is_refused(name: str) -> None:
    plan = plan_of(product("int8", "int8"), SIZES)
    prove(plan, "pack")
    copies = tuple(broken(c, name) if c.storage == "B" else c for c in plan.copies)
    with pytest.raises(LegalityError, match="pass 'mutation'"):
        prove(replace(plan, copies=copies), "mutation")


def test_sums_over_part_of_what_is_read_are_refused() -> None:
    """The weights of a convolution are summed over channels and both sides of the window; one of them is not enough."""
    plan = plan_of(CONVOLUTION, IMAGE)
    weights = grouped(plan)["K"]
    assert weights.groups is not None
    fewer = replace(weights, groups=replace(weights.groups, summed=(0, 2)))
    with pytest.raises(LegalityError, match="sums other elements of K"):
        prove(replace(plan, copies=tuple(fewer if c is weights else c for c in plan.copies)), "mutation")


MATRICES = CpuBackend(replace(CPU.machine, dots="avx512_vnni", bfloat16=True, matrix_tiles=True))


def plan_of_matrices(text: str, sizes: dict[str, int]) -> Plan:
    return lower(define(text)["f"], Sizes(sizes), tc.MappingOptions(), MATRICES).plan


@pytest.mark.parametrize(("pair", "size"), [(("int8", "int8"), 4), (("uint8", "int8"), 4), (("bfloat16",) * 2, 2)])
def test_matrices_take_whole_numbers_of_groups(pair: tuple[str, str], size: int) -> None:
    """37 steps are ten groups of four, or nineteen pairs in two tens."""
    plan = plan_of_matrices(product(*pair, "float" if size == 2 else "int32"), SIZES)
    for name in ("A", "B"):
        groups = groups_of(plan, name)
        assert (groups.size, groups.depth, groups.flipped, groups.summed) == (size, 10, False, None)
    assert grouped(plan)["A"].order[-1] == groups_of(plan, "A").dimension


def test_other_types_and_single_rows_are_no_matrices() -> None:
    assert groups_of(plan_of_matrices(product("int8", "int16"), SIZES), "A").depth == 0
    row = "def f(int8(K) A, int8(K,N) B) -> (C) { C(n) +=! int32(A(k)) * int32(B(k,n)) }"
    assert all(c.groups is not None and not c.groups.depth for c in grouped(plan_of_matrices(row, SIZES)).values())


@pytest.mark.parametrize(
    "change", [{"depth": 0}, {"depth": 5}, {"depth": 17}, {"flipped": True}, {"size": 2}, {"summed": (1,)}]
)
def test_a_wrong_copy_for_matrices_is_refused(change: dict[str, Any]) -> None:
    plan = plan_of_matrices(product("int8", "int8"), SIZES)
    prove(plan, "pack")
    copies = tuple(replace(c, groups=replace(c.groups, **change)) if c.storage == "B" else c for c in plan.copies)
    with pytest.raises(LegalityError, match="pass 'mutation'"):
        prove(replace(plan, copies=copies), "mutation")


@pytest.mark.parametrize("depth", [17, -1])
def test_copies_deeper_than_a_register_are_refused(depth: int) -> None:
    plan = plan_of_matrices(product("bfloat16", "bfloat16", "float"), SIZES)
    copies = tuple(replace(c, groups=replace(c.groups, depth=depth)) for c in plan.copies if c.groups is not None)
    with pytest.raises(LegalityError, match="do not fit each other"):
        prove(replace(plan, copies=copies), "mutation")


def test_the_text_of_a_plan_holds_its_matrices() -> None:
    plan = plan_of_matrices(product("int8", "int8"), SIZES)
    _, again = read_plan(plan_text(plan, "pack"), plan.program)
    assert [c.groups for c in again.copies] == [c.groups for c in plan.copies]


@pytest.mark.parametrize("text", [product("int8", "int8"), product("int8", "int16"), CONVOLUTION])
def test_the_text_of_a_plan_holds_it_all(text: str) -> None:
    sizes = IMAGE if text is CONVOLUTION else SIZES
    plan = plan_of(text, sizes)
    stage, again = read_plan(plan_text(plan, "pack"), plan.program)
    assert stage == "pack"
    kept = [(c.storage, c.dtype, c.shape, c.order, c.padding, c.groups) for c in plan.copies]
    assert [(c.storage, c.dtype, c.shape, c.order, c.padding, c.groups) for c in again.copies] == kept
    prove(again, "pack")
