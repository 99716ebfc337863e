"""Random attention with conditions on indices: kernels that leave parts out equal the interpreter.

    python -m tests.properties.test_random_attention [--count 300] [--seed 1]

Conditions hide scores, or choose between scores, within one another; rows may see nothing.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest

import tcomp as tc
from tcomp.mapping.cpu import rescaling
from tcomp.mapping.machines.fitted.cpufusion import RESCALING

LOW = "-3.4e38"

TEXT = """def f(float(B,L,D) Q, float(B,S,D) K, float(B,S,E) V, float(L,S) M) -> (OUTPUTS) {
  s(b,i,j) +=! Q(b,i,d) * K(b,j,d)
  m(b,i) max=! HIGHEST
  p(b,i,j) = WEIGHT
  z(b,i) +=! p(b,i,j)
  O(b,i,e) +=! p(b,i,j) * V(b,j,e)
  O(b,i,e) = O(b,i,e) / z(b,i)
}"""


def condition(rng: Random, depth: int = 0) -> str:
    """What a score is asked."""
    c, n = rng.randrange(-40, 70), rng.choice((7, 20, 32, 40))
    plain = [f"j <= i + {c}", f"j + {n} > i", f"j < {abs(c)}", f"j >= {abs(c)}", f"j >= 2 * i + {c}", f"i < {abs(c)}"]
    if depth < 2 and rng.random() < 0.2:
        return f"({condition(rng, depth + 1)} && {condition(rng, depth + 1)})"
    if rng.random() < 0.05:
        return f"({rng.choice(plain)} || {rng.choice(plain)})"
    parts = [f"j / {n} == i / {n}", f"j / {n} <= i / {n}", "j % 3 == i % 3", "i % 2 == 0", "M(i,j) > 0.0"]
    return rng.choice(("j <= i", *plain, *plain, *parts))


def score(rng: Random, depth: int = 0) -> str:
    """A score, perhaps one that conditions choose."""
    if depth < 2 and rng.random() < 0.35:
        otherwise = rng.choice((LOW, "1.0", score(rng, depth + 1)))
        return f"({condition(rng)} ? {score(rng, depth + 1)} : {otherwise})"
    there = "constant_exterior(M, 0.5)(i,j-3)"
    return rng.choice(("s(b,i,j)", "s(b,i,j)", "(s(b,i,j) + M(i,j))", f"(s(b,i,j) + {there})", "0.5 * s(b,i,j)"))


def program(rng: Random) -> str:
    """Attention that hides weights, or scores, or neither."""
    way, hides = rng.choice(("weights", "scores", "weights", "scores", "neither")), condition(rng)
    value = f"({hides} ? {score(rng)} : {LOW})" if way == "scores" else score(rng)
    weight = f"exp(({value} - m(b,i)) * rsqrt(float(D)))"
    highest = value
    if way == "weights":
        highest, weight = f"{hides} ? {value} : {LOW}", f"{hides} ? {weight} : 0.0"
    text = TEXT.replace("HIGHEST", highest).replace("WEIGHT", weight)
    return text.replace("OUTPUTS", rng.choice(("O", "O", "O, m", "O, z")))


def assert_right(seed: int) -> bool:
    """Whether parts are left out of a random attention, which is computed as the interpreter does."""
    rng = Random(seed)
    text = program(rng)
    b, d, e = rng.choice((1, 2)), rng.choice((3, 8)), rng.choice((2, 5, 16))
    rows, steps = rng.choice((1, 30, 65, 100)), rng.choice((64, 65, 96, 130, 200))
    data = np.random.default_rng(seed)
    arrays = [data.standard_normal(s, np.float32) for s in ((b, rows, d), (b, steps, d), (b, steps, e), (rows, steps))]
    operation = tc.define(text).f
    with np.errstate(all="ignore"):
        wanted = operation.reference(*arrays)
    found = operation(*arrays)
    for one, other in zip(*(r if isinstance(r, tuple) else (r,) for r in (found, wanted)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5, err_msg=f"seed {seed}: {text}")
    parts = [s for s in operation.compile(*arrays).compilation.plan.scop.statements if s.name == "S1t"]
    return any(s.domain.count_val().to_python() < b * rows * -(-steps // 32) for s in parts)


@pytest.fixture(autouse=True)
def _short_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of 32, from rows of 64 on, so that small arrays have several."""
    monkeypatch.setattr(rescaling, "RESCALING", short())
    monkeypatch.setenv("TCOMP_CACHE", "0")


def short() -> object:
    return replace(RESCALING, least_steps=64, least_hidden_steps=64, part=32)


@pytest.mark.parametrize("seed", range(2))
def test_random_attention(seed: int) -> None:
    assert_right(seed)


@pytest.mark.long
def test_more_random_attention() -> None:
    assert sum(assert_right(seed) for seed in range(2, 14)) > 2


def main() -> None:
    """Try many; say how many left parts out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    rescaling.RESCALING = short()  # type: ignore[assignment]
    found = Counter(assert_right(1000 * chosen.seed + number) for number in range(chosen.count))
    sys.stdout.write(f"{chosen.count} attentions are right, {found[True]} with parts left out\n")


if __name__ == "__main__":
    main()
