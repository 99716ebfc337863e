"""Random programs with blocks of steps: kernels equal the interpreter, in tiles over time as well."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

import tcomp as tc
from tcomp.backends.c.target import CpuBackend
from tcomp.grammar import define
from tcomp.mapping.machines.cpu import this_machine
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.terms.sizes import Sizes
from tcomp.stepwise import lower_stepwise

pytestmark = pytest.mark.filterwarnings("ignore::tcomp.ProgramWarning")

OPTIONS = (None, None, "tile=3x4", "parallel=False", "fusion_strategy=min", "tile=1x1")


def value(rng: Random, depth: int = 0) -> str:
    """What a statement of ``program`` may compute."""
    way = rng.choice(("-1", "+1"))
    found = rng.choice(
        (
            "U(t-1,i,j)", "V(i,j)", "W(t-1)", "A(i,j)", "A((i+t) % N,j)", "s(j)", "float(t)", "U(max(t-2,0),i,j)",
            f"(i > 0 && i+1 < N ? U(t-1,i{way},j) : 0.5)",
            "(j > 0 && j < M-1 ? V(i,j+1) - V(i,j-1) : 0.25)",
            "(t % 2 == 0 ? 1.0 : V(N-1-i,j))",
            "",
        )
    )  # fmt: skip
    if found:
        return found
    return f"({value(rng, depth + 1)} * 0.5 - {value(rng, depth + 1)})" if depth < 2 else "V(i,M-1-j)"


def program(rng: Random) -> str:
    """A block with tensors in place and with a step subscript, a reduction, and perhaps blocks in it."""
    reductions = (
        "s(j) +=! A(i,j) * V(i,j)",
        "s(j) max=! V(i,j)",
        "s(j) +=! V(i,j) where j in 0:M, i in 0:min(N,t)",
        "s(j) +=! U(t-1,i,j) * A(i,k) where i in 0:N, j in 0:M, k in 0:M",
    )
    body = [rng.choice(reductions), f"U(t,i,j) = {value(rng)} where i in 0:N, j in 0:M"]
    for _ in range(rng.randrange(3)):
        rows = rng.choice(("0:N", "1:N", "0:N-1", "min(t,N):N", "0:min(t,N)"))
        target = rng.choice(("V(i,j) =", "V(i,j) +=", "U(t,i,j) ="))
        body.append(f"{target} {value(rng)} where i in {rows}, j in 0:M")
    if rng.random() < 0.4:
        body.append("for c in 1:M { V(i,c) = V(i,c-1) * 0.5 + V(i,c) where i in 0:N }")
    if rng.random() < 0.3:
        body.append("for c in 0:t { V(min(c,N-1),j) = V(min(c,N-1),j) + 0.125 * U(t,min(c,N-1),j) where j in 0:M }")
    body.append("W(t) = W(t-1) + V(0,0) * 0.001")
    last = rng.choice(("U(T,i,j)", "U(T,i,j) + U(max(T-1,0),i,j)"))
    return f"""def f(float(N,M) A, const int T) -> (P, Q, W) {{
  U(0,i,j) = A(i,j)
  V(i,j) = A(i,j) + 1.0
  W(0) = 1.0 + 0.0 * A(0,0)
  for t in 1:T+1 {{
    {(chr(10) + "    ").join(body)}
  }}
  P(i,j) = {last}
  Q(i,j) = V(i,j)
}}"""


def stencil(rng: Random, rank: int) -> str:
    """A block of pointwise statements with neighbours at random, with a step subscript or in place."""
    names, indices = ("U", "V", "W")[: rng.choice((1, 2, 2, 3))], "ijk"[:rank]
    sliced, far = rng.random() < 0.4, rng.choice((1, 1, 2))

    def at(name: str, step: str, moved: tuple[int, ...] = (0,) * rank) -> str:
        places = [f"{i}{d:+d}" if d else i for i, d in zip(indices, moved, strict=True)]
        return f"{name}({', '.join([step, *places] if sliced else places)})"

    body = []
    for number, name in enumerate(names):
        terms = []
        for _ in range(rng.randint(1, 4)):
            source = rng.choice(names)
            moved = tuple(rng.choice((0, 0, 1, -1, far, -far)) for _ in indices)
            step = "t" if names.index(source) < number and rng.random() < 0.5 else "t-1"
            moved = moved if sliced or source != name else (0,) * rank
            terms.append(f"{rng.choice(('0.25', '0.5', '-0.125'))} * {at(source, step, moved)}")
        everywhere = ", ".join(f"{i} in 0:N" for i in indices)
        inside = ", ".join(f"{i} in {far}:N-{far}" for i in indices)
        body += [f"{at(name, 't')} = {at(name, 't-1')} where {everywhere}"] * sliced
        body.append(f"{at(name, 't')} = {' + '.join(terms)} where {inside}")
    start = "0," if sliced else ""
    places = ",".join(indices)
    return "\n".join(
        [
            f"def f(float({','.join('N' * rank)}) A, const int T) -> ({', '.join(f'O{n}' for n in names)}) {{",
            *(f"  {name}({start}{places}) = A({places}) * {1 + k}.0" for k, name in enumerate(names)),
            "  for t in 1:T+1 {",
            *(f"    {line}" for line in body),
            "  }",
            *(f"  O{name}({places}) = {at(name, 'T')}" for name in names),
            "}",
        ]
    )


def assert_same(found: Any, wanted: Any, text: str) -> None:
    for a, b in zip(*(r if isinstance(r, tuple) else (r,) for r in (found, wanted)), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=1e-4, err_msg=text)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(20))
def test_random_blocks(seed: int) -> None:
    rng = Random(seed)
    text, steps = program(rng), rng.choice((1, 2, 3, 5))
    A = np.random.default_rng(seed).random((rng.choice((1, 2, 3, 5, 8)), rng.choice((1, 2, 4, 7))), np.float32)
    operation = tc.define(text).f
    assert_same(operation(A, steps, options=rng.choice(OPTIONS)), operation.reference(A, steps), text)


@pytest.mark.long
def test_random_stencils_in_tiles() -> None:
    tiled = 0
    for seed in range(20):
        rng = Random(seed)
        rank = rng.choice((1, 2, 2, 3))
        text, n, steps = stencil(rng, rank), (200, 26, 10)[rank - 1], rng.choice((2, 5, 9))
        (function,), operation = define(text).values(), tc.define(text).f
        A = np.random.default_rng(seed).random((n,) * rank, np.float32)
        machine = replace(this_machine(), middle_cache=A.nbytes * 3 // rng.choice((2, 4, 8)), threads=1)
        made = lower_stepwise(function, Sizes({"N": n, "T": steps}), MappingOptions(), CpuBackend(machine))
        tiled += any("tiles of" in title for title, _, _ in made.parts)
        kernel = operation.compile(A, steps, plan=made.stages["pack"])
        assert_same(kernel(A, steps), operation.reference(A, steps), text)
    assert tiled >= 8
