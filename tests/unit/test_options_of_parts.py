"""Options that differ from part to part of one program."""

from __future__ import annotations

import numpy as np
import pytest

import tcomp as tc
from tcomp.errors import TcompError
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.values import Group

CHAIN = """
def chain(float(M,K) X, float(K,N) V, float(N,L) W) -> (A1, A2) {
  A1(m,n) +=! X(m,k) * V(k,n)
  A1(m,n) = fmax(A1(m,n), 0)
  A2(m,l) +=! A1(m,n) * W(n,l)
}
"""
SIZES = {"M": 96, "K": 20, "N": 48, "L": 32}


def groups(name: str, sizes: dict[str, int], options: object) -> dict[str, Group]:
    """The groups of a program, by what their roots make."""
    kernel = getattr(tc.define(CHAIN), name).compile(sizes=sizes, target="cpu", options=options)
    plan = kernel.specialisation.lower().plan
    roots = {group: plan.clusters[group.root].statements[-1] for group in plan.groups}
    return {plan.scop.by_name[statement].target: group for group, statement in roots.items()}


def test_each_part_has_its_own() -> None:
    found = groups("chain", SIZES, {"A1": {"tile_sizes": (16, 24)}, "A2": "tile=8"})
    assert (found["A1"].sizes, found["A2"].sizes) == ((16, 24), (8, 32))
    other = groups("chain", SIZES, {"tile_sizes": (4, 4), "A1": {"recompute_limit": 1}, "A2": {"tile_sizes": (32, 16)}})
    assert (other["A1"].sizes, other["A2"].sizes) == ((4, 4), (32, 16))


def test_a_part_with_options_is_in_no_other_part() -> None:
    assert set(groups("chain", SIZES, {"tile_sizes": (4, 4)})) == {"A2"}
    assert set(groups("chain", SIZES, {"tile_sizes": (4, 4), "A1": {"recompute_limit": 1}})) == {"A1", "A2"}
    assert set(groups("chain", SIZES, {"tile_sizes": (4, 4), "A2": {"fusion_strategy": "min"}})) == {"A1", "A2"}


@pytest.mark.parametrize(
    "options", ["A1.tile=5x7,A2.register_tile=3x8", {"A2": {"tile_sizes": (7,)}, "parallel": False}]
)
def test_results_stay(options: object) -> None:
    random = np.random.default_rng(0)
    X, V, W = (random.integers(-4, 5, shape).astype("f4") for shape in ((96, 20), (20, 48), (48, 32)))
    first, second = tc.define(CHAIN).chain(X, V, W, options=options, target="cpu")
    assert (first == np.maximum(X @ V, 0)).all() and (second == first @ W).all()


def test_spellings() -> None:
    options = MappingOptions.of({"B": {"tile_sizes": [8, 0]}, "A": "register_tile=2x16", "threads": 2})
    assert str(options) == (
        "MappingOptions(threads=(2,), parts={'A': MappingOptions(register_tile=(2, 16)), "
        "'B': MappingOptions(tile_sizes=(8, 0))})"
    )
    assert eval(str(options), {"MappingOptions": MappingOptions}) == options
    assert options.to_text() == "threads=2,A.register_tile=2x16,B.tile_sizes=8x0"
    assert MappingOptions.from_text("A.register_tile=2x16,threads=2,B.tile=8x0") == options
    apart = MappingOptions.of({"A": {}})
    assert apart.to_text() == "A.tile_sizes=model" and MappingOptions.from_text(apart.to_text()) == apart
    assert MappingOptions.from_json(options.to_json()) == options
    assert hash(options) == hash(MappingOptions.from_json(options.to_json())) and options != MappingOptions(
        threads=(2,)
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"A3": {"tile_sizes": (4,)}}, "chain makes no A3, which options are for"),
        ({"X": {"tile_sizes": (4,)}}, "chain makes no X, which options are for"),
        ({"A1": {"unroll": 4}}, "unroll is an option of the whole program, not of A1"),
        ({"A1": {"parts": {"A2": {}}}}, "parts is an option of the whole program, not of A1"),
        ({"A1": {"tile": 4}}, "there is no mapping option 'tile'"),
        ({"A1": {"tile_sizes": 4}}, "tile_sizes is 4; it must be a list of integers of at least 0"),
        ({"A1": (4, 4)}, "there is no mapping option 'A1'"),
        ({"parts": 3}, "parts is 3; it must have options by the names of tensors"),
        (".tile=4", "parts has options of ''; the names of parts are those of tensors"),
        ("A1.unrol=4", "there is no mapping option 'unrol'"),
    ],
)
def test_what_is_wrong(options: object, message: str) -> None:
    with pytest.raises(TcompError) as caught:
        tc.define(CHAIN).chain.compile(sizes=SIZES, target="cpu", options=options)
    assert caught.value.message == message


def test_one_loop_nest_has_one_set_of_options() -> None:
    first, other = MappingOptions().tile(4), MappingOptions().tile(8)
    options = MappingOptions(parallel=False, parts={"Y": first, "Z": other})
    assert options.of_part({"Z", "W"}) == MappingOptions(parallel=False, tile_sizes=(8,))
    assert options.of_part({"W"}) == MappingOptions(parallel=False)
    with pytest.raises(TcompError, match="one part makes Y and Z, so their options must be the same"):
        options.of_part({"Y", "Z"})
