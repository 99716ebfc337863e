"""Turns of attention that a condition hides: those behind the last key that a tile of queries sees, and in front of
the first one."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import islpy as isl
import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.simulator.simulation import Settings
from tcomp.driver import Compilation, lower
from tcomp.errors import LegalityError, PlanError
from tcomp.grammar import define
from tcomp.grammar.tree.function import Select
from tcomp.mapping.gpu.turns.hidden import prove_hidden
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.rescaling.inturn import begins
from tcomp.mapping.text.writer import plan_text
from tcomp.model.terms.sizes import Sizes
from tests.cuda.compiled import BACKEND, UNSET, Data, run
from tests.cuda.simulated import NEEDS_COMPILER
from tests.cuda.test_attention_by_warps import FLASH, data_of
from tests.cuda.test_turns import ATTENTION, CAUSAL, arrays, attention, made, scores, simulated

pytestmark = pytest.mark.sweep(3)

CONDITIONS = {
    "j <= i": lambda i, j: j <= i,
    "j <= i + 60": lambda i, j: j <= i + 60,
    "j + 70 <= i": lambda i, j: j + 70 <= i,
    "j <= i && j + 100 > i": lambda i, j: (j <= i) & (j + 100 > i),
    "j <= i && j + 20 > i": lambda i, j: (j <= i) & (j + 20 > i),
    "j >= i": lambda i, j: j >= i,
    "j >= i + 150": lambda i, j: j >= i + 150,
    "j >= 70 && j < 100": lambda i, j: (i >= 0) & (j >= 70) & (j < 100),
    "j <= 2 * i || j < 10": lambda i, j: (j <= 2 * i) | (j < 10),
}


def turns_of(plan: Plan, keys: int) -> list[tuple[int, int]]:
    """The first turn of each tile of queries, and that behind the last."""
    (group,) = plan.groups
    tiles = group.footprints[group.turns[0]].tiles.domain().project_out(isl.dim_type.set, 1, 1)
    found = []
    for tile in range(tiles.dim_max_val(0).to_python() + 1):
        at, ends = isl.Set(f"{{ [{tile}] }}"), [0, -(-keys // 64)]
        for place, bound in enumerate((group.first, group.seen)):
            if bound is not None:
                ends[place] = isl.Map.from_pw_aff(bound).intersect_domain(at).range().dim_max_val(0).to_python()
        found.append((ends[0], ends[1]))
    return found


def turns_that_see(seen: np.ndarray[tuple[int, int], np.dtype[np.bool_]]) -> list[tuple[int, int]]:
    """The same, by the keys that each query sees."""
    found = []
    for tile in range(0, len(seen), 64):
        keys = np.flatnonzero(seen[tile : tile + 64].any(0))
        found.append((int(keys.min(initial=0 if not len(keys) else 10**6)) // 64, 1 + int(keys.max(initial=0)) // 64))
    return found


def windowed(text: str, condition: str) -> str:
    """The text of causal attention with another condition."""
    return re.sub(r"j <= i \+ \d+", condition, text)


@NEEDS_COMPILER
@pytest.mark.parametrize("condition", CONDITIONS)
def test_turns_of_which_no_key_is_seen_are_left_out(condition: str) -> None:
    queries, keys = (200, 200) if len(condition) % 2 else (77, 260)
    text = windowed(CAUSAL, condition)
    seen = CONDITIONS[condition](np.arange(queries)[:, None], np.arange(keys))
    made_of = made(text, B=1, L=queries, S=keys, D=8, E=8)
    assert turns_of(made_of.plan, keys) == turns_that_see(seen)
    inputs = arrays(Q=(1, queries, 8), K=(1, keys, 8), V=(1, keys, 8))
    expected = attention(np.where(seen, scores(inputs), -np.inf), inputs["V"])
    found = simulated(text, inputs, B=1, L=queries, S=keys, D=8, E=8)
    np.testing.assert_allclose(found, expected, rtol=5e-5, atol=5e-6)


def drawn(number: int) -> tuple[bool, int, int, int, int, bool]:
    """Halves or floats, batches, queries, how many more keys there are, keys of a window, whether its query ends it."""
    rng = random.Random(number)
    queries, more, window = rng.randrange(60, 200), rng.randrange(70, 130), rng.randrange(1, 150)
    return number % 2 == 1, rng.randrange(1, 3), queries, more, window, rng.random() < 0.5


@NEEDS_COMPILER
@pytest.mark.parametrize(("halves", "batch", "queries", "more", "window", "causal"), [drawn(n) for n in range(8)])
def test_windows_of_any_size(halves: bool, batch: int, queries: int, more: int, window: int, causal: bool) -> None:
    """Each tile asks for the keys of its turns, once for each, and for no others."""
    keys, last = queries + more, f"i + {more}" + ("" if causal else f" + {window // 2}")
    condition = f"j <= {last} && j + {window} > {last}"
    base = FLASH.replace("max=! s(b,i,j)", "max=! j <= i + 0 ? s(b,i,j) : -3.4e38").replace(
        "exp((s(b,i,j) - m(b,i)) * rsqrt(float(D)))", "j <= i + 0 ? exp((s(b,i,j) - m(b,i)) * rsqrt(float(D))) : 0.0"
    )
    text = windowed(base if halves else CAUSAL, condition)
    sizes = {"B": batch, "L": queries, "S": keys, "D": 16, "E": 16}
    made_of = made(text, **sizes)
    data = data_of(made_of)
    unset = {name: np.full(a.shape, UNSET, a.dtype) for name, a in data.expected.items()}
    report, found = run(made_of.source, Data(data.inputs, {}, unset), Settings(counting=True))
    assert not report.findings, str(report)
    rtol, atol = (3e-3, 1e-3) if halves else (5e-5, 5e-6)
    np.testing.assert_allclose(*(a["O"].astype(np.float64) for a in (found, data.expected)), rtol=rtol, atol=atol)
    far = np.arange(queries)[:, None] + more + (0 if causal else window // 2)
    turns = turns_that_see((np.arange(keys) <= far) & (np.arange(keys) + window > far))
    asked = sum(min(keys, 64 * end) - 64 * first for first, end in turns)
    (kernel,) = report.kernels
    size = 2 if halves else 4
    assert sum(a.bytes for a in kernel.select("global", "read", "K")) == batch * asked * 16 * size


def leaves_out_what_counts(plan: Plan) -> bool:
    """Whether turns that a plan leaves out count."""
    try:
        prove_hidden(plan, plan.groups[0], "by hand")
    except LegalityError:
        return True
    return False


def test_a_turn_that_counts_is_not_left_out() -> None:
    text, sizes = windowed(CAUSAL, "j <= i && j + 70 > i"), {"B": 1, "L": 300, "S": 300, "D": 8, "E": 8}
    plan = made(text, **sizes).plan
    (group,) = plan.groups
    seen, first = group.seen, group.first
    assert seen is not None
    assert first is not None
    none = first.mul(isl.PwAff.zero_on_domain(isl.LocalSpace.from_space(first.get_domain_space())))
    one = isl.Val(1)
    for wrong in (
        {"seen": seen.add_constant_val(-one)},
        {"seen": seen.add_constant_val(isl.Val(-2))},
        {"first": first.add_constant_val(one)},
        {"first": first.add_constant_val(-one)},
        {"first": none.add_constant_val(-one)},
    ):
        assert leaves_out_what_counts(replace(plan, groups=(replace(group, **wrong),)))
    for right in ({"seen": seen.add_constant_val(one)}, {"first": none}, {"first": None}, {"seen": None}):
        assert not leaves_out_what_counts(replace(plan, groups=(replace(group, **right),)))
    unconditional = made(ATTENTION, **sizes).plan
    (every,) = unconditional.groups
    assert every.seen is every.first is None
    for wrong in ({"seen": seen}, {"first": first}):
        assert leaves_out_what_counts(replace(unconditional, groups=(replace(every, **wrong),)))


def test_a_first_turn_takes_nothing_from_those_that_are_left_out() -> None:
    plan = made(windowed(CAUSAL, "j <= i && j + 70 > i"), B=1, L=300, S=300, D=8, E=8).plan
    begun = [s for s in plan.scop.statements if begins(s) is not None]
    assert len(begun) == 3
    for statement in begun:
        value = statement.value
        assert isinstance(value, Select)
        for wrong in (
            replace(value, otherwise=value.then),
            replace(value, otherwise=replace(value.otherwise, value=1.0)),
            value.then,
        ):
            changed = tuple(replace(s, value=wrong) if s is statement else s for s in plan.scop.statements)
            with pytest.raises(LegalityError, match="begin with what no turn has left"):
                prove_hidden(replace(plan, scop=replace(plan.scop, statements=changed)), plan.groups[0], "by hand")


def test_a_plan_says_which_turns_are_left_out() -> None:
    text, sizes = windowed(CAUSAL, "j <= i && j + 70 > i"), {"B": 1, "L": 300, "S": 300, "D": 8, "E": 8}

    def again(written: str) -> Compilation:
        return lower(define(text)["f"], Sizes(sizes), tc.MappingOptions(), BACKEND, True, written)

    plan = made(text, **sizes).plan
    written = plan_text(plan, "barriers")
    assert again(written).source == made(text, **sizes).source
    for entry in ("seen", "first"):
        changed = re.sub(rf'^{entry} = "[^"]*"', f'{entry} = "{{ [i0, i1] -> [(1)] }}"', written, flags=re.M)
        assert changed != written
        with pytest.raises(PlanError, match=entry):
            again(changed)


def test_a_maximum_of_all_scores_needs_all_turns() -> None:
    text = CAUSAL.replace("max=! j <= i + 60 ? s(b,i,j) : -3.4e38", "max=! s(b,i,j)").replace("j <= i + 60", "j <= i")
    made_of = made(text, B=1, L=200, S=200, D=8, E=8)
    assert made_of.plan.rescaled
    assert turns_of(made_of.plan, 200) == 4 * [(0, 4)]


def test_blocks_with_most_turns_begin_first() -> None:
    sizes = {"B": 2, "L": 192, "S": 192, "D": 8, "E": 8}
    made_of = made(CAUSAL, **sizes)
    assert "const int b_i = 2 - blockIdx.x;" in made_of.source.text
    assert "const int b_i = blockIdx.x;" in made(ATTENTION, **sizes).source.text
    assert "const int b_i = blockIdx.x;" in made(CAUSAL.replace("j <= i", "j >= i"), **sizes).source.text
    text = plan_text(made_of.plan, "barriers")
    assert again(CAUSAL, sizes, text).source == made_of.source
    assert "const int b_i = blockIdx.x;" in again(CAUSAL, sizes, text.replace("backwards = 1\n", "")).source.text
    with pytest.raises(PlanError, match="backwards, and in another order"):
        again(CAUSAL, sizes, text + "\n[[order]]\ngroup = 0\nrows = 2\n")


def again(text: str, sizes: dict[str, int], plan: str) -> Compilation:
    return lower(define(text)["f"], Sizes(sizes), tc.MappingOptions(), BACKEND, True, plan)
