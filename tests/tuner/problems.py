"""Small problems, and trials of them that nobody measured."""

from __future__ import annotations

from collections.abc import Mapping

from tcomp import grammar
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.terms.sizes import Sizes
from tcomp.runtime.specialisation import Specialisation
from tcomp.tuner.database.trials import Candidate, Compiled, Outcome, Problem, Trial

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"
SCALE = "def scale(float(N) A) -> (B) { B(n) = A(n) * 2 }"


def problem(
    text: str = MM,
    device: str = "a device",
    target: str = "cpu",
    strides: Mapping[str, tuple[int, ...]] | None = None,
    **sizes: int,
) -> Problem:
    (function,) = grammar.define(text).values()
    values = Sizes(sizes or dict.fromkeys(function.sizes, 16), strides or {})
    return Problem(Specialisation(function, values, MappingOptions(), target, False), device)


def trial(options: MappingOptions, seconds: float = 1.0, outcome: Outcome = Outcome.MEASURED) -> Trial:
    compiled = Compiled(Candidate(options, "random"), f"source of {options}", (("flops", 2.0),), 0.25)
    times = (seconds, seconds * 1.5, seconds * 0.5) if outcome is Outcome.MEASURED else ()
    return Trial(compiled, outcome, times, "", "a worker", 1000.0 + seconds, 3)


def tiled(*sizes: int) -> MappingOptions:
    return MappingOptions(tile_sizes=sizes)
