"""The proof that threads may share a plan, tested by mutation: each way to spoil one is found."""

from __future__ import annotations

import functools
import random
import sys
from collections import Counter
from collections.abc import Mapping

import pytest

from tcomp.errors import LegalityError
from tcomp.fuzzing.options import random_options
from tcomp.fuzzing.programs.choices import Choices
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.proof.legality import prove, prove_complete
from tests.cuda.compiled import compiled_text
from tests.cuda.mutations import KINDS, Mutant, mutants
from tests.cuda.texts import EXAMPLES

pytestmark = pytest.mark.sweep(5)

PLANS: Mapping[str, tuple[str, MappingOptions]] = {
    "matmul": ("matmul", MappingOptions(tile_sizes=(16, 16), threads=(8, 8))),
    "matmul, dealt in blocks": (
        "matmul",
        MappingOptions(tile_sizes=(16, 16), threads=(8, 4), distribution="blocked"),
    ),
    "tmm": ("tmm", MappingOptions()),
    "batched matmul": ("batched_matmul", MappingOptions()),
    "batches with joined rows": ("batches of short rows", MappingOptions()),
    "convolution": ("convolution", MappingOptions()),
    "softmax": ("softmax", MappingOptions()),
    "softmax in four kernels": ("softmax", MappingOptions(fusion_strategy="min")),
    "layer norm": ("layer_norm", MappingOptions(threads=(128,))),
    "attention": ("attention", MappingOptions()),
    "blur": ("blur", MappingOptions(tile_sizes=(8, 32), threads=(16, 4), recompute_limit=4.0)),
    "two layers": ("mlp", MappingOptions(tile_sizes=(8,), threads=(8, 8), match_reductions=False)),
    "sum over two axes": ("sum over two axes", MappingOptions()),
    "lookup": ("lookup", MappingOptions()),
}


@functools.cache
def plan_of(name: str) -> Plan:
    """The final plan of an example."""
    text, options = PLANS[name]
    return compiled_text(EXAMPLES[text], options).plan


@functools.cache
def all_mutants() -> tuple[tuple[str, Mutant], ...]:
    """All mutants, with the name of the plan."""
    return tuple((name, m) for name in PLANS for m in mutants(plan_of(name)))


def refused(plan: Plan) -> bool:
    """Whether the proof finds a plan illegal."""
    try:
        prove(plan, "mutation")
        prove_complete(plan, "mutation")
    except LegalityError:
        return True
    return False


@pytest.mark.parametrize("kind", KINDS)
def test_mutants_are_refused(kind: str) -> None:
    found = [(name, m) for name, m in all_mutants() if m.kind == kind]
    accepted = [f"{name}: {m}" for name, m in found if not refused(m.plan)]
    plans = len({name for name, _ in found})
    sys.stdout.write(f"\n{kind}: {len(found)} mutants of {plans} plans, {len(accepted)} accepted\n")
    assert found
    assert accepted == []


def test_there_are_many_mutants_of_every_kind() -> None:
    count = Counter(m.kind for _, m in all_mutants())
    assert set(count) == set(KINDS)
    assert count.total() >= 400


@pytest.mark.parametrize("name", PLANS)
def test_what_the_passes_make_is_accepted(name: str) -> None:
    plan = plan_of(name)
    prove(plan, "barriers")
    prove_complete(plan, "barriers")
    assert plan.phases


@pytest.mark.parametrize("name", EXAMPLES)
def test_plans_under_random_options_are_accepted_after_every_pass(name: str) -> None:
    rng = random.Random(name)
    for _ in range(4):
        options = random_options(Choices(rng.randint), "cuda")
        plans = compiled_text(EXAMPLES[name], options).plans
        for step, plan in plans.items():
            prove(plan, step)
        prove_complete(plan, step)
