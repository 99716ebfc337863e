"""Plans changed at random: each is refused with a reason, or its kernel gives what the interpreter gives.

python -m tests.plans.test_edits --count 2000 --seed 1 --target simulator
"""

from __future__ import annotations

import argparse
import functools
import random
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest

import tcomp as tc
from tcomp.grammar.ranges.ranges import infer
from tcomp.model.madeup import random_arguments
from tests.plans.edits import edited
from tests.unit.test_legality import PROGRAMS

pytestmark = pytest.mark.sweep(4)

LONG = (
    "def f(float(N,K) A) -> (B) { B(n) +=! A(n,k) }",
    {"N": 6, "K": 300},
)
TALL = (
    "def f(float(K,M) A, float(K,N) B) -> (C) { C(m,n) +=! A(k,m) * B(k,n) }",
    {"K": 512, "M": 8, "N": 8},
)
MOMENTS = (
    """def f(float(N,D) I, float(D) G) -> (O) {
        mu(n) +=! I(n,d)
        mu(n) = mu(n) / D
        v(n) +=! (I(n,d) - mu(n)) * (I(n,d) - mu(n))
        O(n,d) = (I(n,d) - mu(n)) * v(n) * G(d) }""",
    {"N": 20, "D": 64},
)
ALL = {**PROGRAMS, "long sum": LONG, "tall product": TALL, "moments": MOMENTS}
READABLE = {"cpu": ("nest", "place", "pack"), "simulator": ("threads", "memories", "promotion", "barriers")}
OPTIONS: Mapping[str, tuple[tc.MappingOptions, ...]] = {
    "cpu": (tc.MappingOptions(), tc.MappingOptions(tile_sizes=(4, 8)), tc.MappingOptions(tile_sizes=(3, 2, 4))),
    "simulator": (
        tc.MappingOptions(),
        tc.MappingOptions(tile_sizes=(4, 8), threads=(8, 4)),
        tc.MappingOptions(split_reduction=3),
    ),
}


@dataclass(frozen=True, slots=True)
class Edit:
    """One changed plan and what became of it: the reason why it was refused, or None for one that computes."""

    program: str
    text: str
    refused: tc.TcompError | None
    same: bool
    equal: bool


@functools.cache
def stages_of(name: str, options: tc.MappingOptions, target: str) -> Mapping[str, str]:
    text, sizes = ALL[name]
    return tc.define(text)["f"].compile(sizes=sizes, options=options, target=target).stages


def edit(number: int, seed: int, target: str) -> Edit:
    """Change one plan and see what happens."""
    choose = random.Random(f"{seed} {number}")
    name = choose.choice(sorted(ALL))
    options = choose.choice(OPTIONS[target])
    text, sizes = ALL[name]
    operation = tc.define(text)["f"]
    stages = stages_of(name, options, target)
    before = stages[choose.choice((*READABLE[target], READABLE[target][-1]))]
    after = edited(before, choose)
    try:
        kernel = operation.compile(sizes=sizes, options=options, target=target, plan=after)
    except (tc.PlanError, tc.LegalityError) as error:
        return Edit(name, after, error, False, False)
    arguments = random_arguments(operation.function, infer(operation.function, sizes), number).values
    found, expected = kernel(*arguments), operation.reference(*arguments)
    return Edit(name, after, None, kernel.source == stages["kernel"], bool(np.allclose(found, expected, 1e-4, 1e-4)))


def survey(count: int, seed: int, target: str) -> Counter[str]:
    """Change so many plans.  Returns what became of them; wrong ones are printed."""
    outcome: Counter[str] = Counter()
    for number in range(count):
        one = edit(number, seed, target)
        if one.refused is not None:
            outcome[type(one.refused).__name__] += 1
        elif one.equal:
            outcome["right, and the same kernel" if one.same else "right, and another kernel"] += 1
        else:
            outcome["wrong"] += 1
            sys.stdout.write(f"WRONG: {one.program}, edit {number} of seed {seed}\n{one.text}\n")
    return outcome


@pytest.mark.parametrize(("target", "count"), [("cpu", 200), ("simulator", 60)])
@pytest.mark.parametrize("seed", [1])
@pytest.mark.long
def test_what_is_accepted_is_right(target: str, count: int, seed: int) -> None:
    if not tc.targets()[target]:
        pytest.skip(str(tc.targets()[target]))
    outcome = survey(count, seed, target)
    sys.stdout.write(f"{target}: {dict(outcome)}\n")
    assert outcome["wrong"] == 0
    assert outcome["LegalityError"] >= count // 8
    assert outcome["PlanError"] >= count // 8
    assert outcome["right, and another kernel"] > 0


def main() -> int:
    """Run as a command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", choices=sorted(READABLE), default="cpu")
    values = parser.parse_args()
    outcome = survey(values.count, values.seed, values.target)
    for what, count in outcome.most_common():
        sys.stdout.write(f"{count:6d} {what}\n")
    return 1 if outcome["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
