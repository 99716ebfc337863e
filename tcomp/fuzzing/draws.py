"""What a number stands for: a random program, and the cases that are made of it."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tcomp.errors import MissingPackageError
from tcomp.fuzzing.cases import ORDERS, Case
from tcomp.fuzzing.options import MOST_ON_DEVICE, MOST_THREADS, random_machine, random_options
from tcomp.fuzzing.programs.choices import Choices
from tcomp.fuzzing.programs.exactness import is_exact
from tcomp.fuzzing.programs.features import features
from tcomp.fuzzing.programs.generation import Attempts, Scale, generate
from tcomp.fuzzing.programs.programs import Program
from tcomp.fuzzing.relations import RELATIONS
from tcomp.fuzzing.rewriting import has_blocks
from tcomp.grammar.ranges.ranges import infer
from tcomp.mapping.machines.gpu import GPUS
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.values import TENSOR
from tcomp.values.operators import DTYPES

STEPWISE = ("cpu", "simulator", "cuda")
"""The targets that run blocks of steps."""

OPEN = "cpu"
"""The target that runs kernels with open sizes."""

NVIDIA = ("simulator", "cuda")
"""The targets that have tensor copies and choose how floats are multiplied."""

MATHS = ("exact", "tf32", "tf32x3")
"""How products of floats may be computed."""

SHORT = 2.0**11
"""Up to here whole numbers have 11 bits."""

_VARIATIONS = 1 << 16


@dataclass(frozen=True, slots=True)
class Draw:
    """Program ``number`` of a seed, for some of the targets ``cpu``, ``simulator``, ``cuda`` and ``opencl``.

    Targets may name an architecture, as ``simulator:sm_90`` does.  With ``matrices`` programs are others: each begins
    with a product of matrices of 16-bit floats with long sides.  With ``operands``, the name of a type, each begins
    with a product of such elements, half of them have default options, and ``math`` is drawn for devices where factors
    are exact with 11 bits.
    """

    seed: int
    number: int
    targets: tuple[str, ...]
    matrices: bool = False
    operands: str = ""


@dataclass(frozen=True, slots=True)
class Drawn:
    """The cases of a program, what it makes use of, and what became of the statements tried for it."""

    cases: tuple[Case, ...]
    features: frozenset[str]
    attempts: Mapping[str, int]


def draw(asked: Draw) -> Drawn:
    """The program as it is on every target, and a variant of it on one; each under other options.

    The program does not depend on the targets.
    """
    choices = Choices(random.Random(f"{asked.seed}/{asked.number}").randint)
    attempts = Attempts()
    program = generate(choices, attempts, _scale(asked))
    stepwise = has_blocks(program.definition)
    targets = [t for t in asked.targets if t.partition(":")[0] in STEPWISE or not stepwise]
    cases = [_case(choices, program, target, "same", asked) for target in targets]
    if targets:
        cases.append(_variant(choices, program, choices.pick(targets), asked))
    return Drawn(tuple(cases), features(program), attempts.counts)


def _scale(asked: Draw) -> Scale:
    return Scale(matrices=asked.matrices, operands=DTYPES[asked.operands] if asked.operands else None)


def _case(choices: Choices, program: Program, target: str, relation: str, asked: Draw) -> Case:
    options = _options(choices, target, asked)
    if asked.operands and target.partition(":")[0] in NVIDIA and _has_short_factors(program):
        options = replace(options, math=choices.pick(MATHS))
    full = f"{target}:{choices.pick(_ARCHITECTURES[target])}" if target in _ARCHITECTURES else target
    variation, order = choices.integer(0, _VARIATIONS - 1), choices.pick(ORDERS)
    machine = random_machine(choices) if target == "cpu" and choices.chance(50) else None
    return Case(program, full, options, relation, variation, order, machine)


def _options(choices: Choices, target: str, asked: Draw) -> MappingOptions:
    """Random options, or the defaults; half of these with tensor copies, which are for longer sums, where there are
    matrices."""
    usual = 75 if asked.operands and asked.matrices else 50 if asked.operands else 20
    if not choices.chance(usual):
        return random_options(choices, target, MOST_ON_DEVICE if target == "cuda" else MOST_THREADS)
    if asked.matrices and target.partition(":")[0] in NVIDIA and choices.chance(50):
        stages, blocks = choices.pick((None, 2, 3, 4)), choices.pick((None, 1, 2, 5))
        return MappingOptions(route=TENSOR, stages=stages, persistent=blocks, split_reduction=1)
    return MappingOptions()


def _has_short_factors(program: Program) -> bool:
    """Whether products of floats are exact if their operands are rounded to 11 bits."""
    function = program.function
    return is_exact(function, infer(function, program.sizes), program.sizes, program.bits, SHORT)


def _variant(choices: Choices, program: Program, target: str, asked: Draw) -> Case:
    """A case under a relation that changes the program; other layouts, if the one that is picked does not.

    Also where a package is missing without which the program has no data; the case is left out when it is executed.
    """
    case = _case(choices, program, target, choices.pick([name for name in RELATIONS if name != "same"]), asked)
    strided = replace(case, relation="strided")
    try:
        changed = RELATIONS[case.relation](Choices(random.Random(case.variation).randint), program)
    except MissingPackageError:
        return strided
    if changed.opened and target != OPEN:
        return strided
    if changed.bound or changed.opened:
        # Kernels for made-up processors are not called through operations.
        return replace(case, machine=None)
    return case if changed.program != program else strided


_ARCHITECTURES: Mapping[str, Sequence[str]] = {"simulator": tuple(GPUS), "opencl": ("cpu", "gpu")}
"""What targets compile for, where all of it runs on any machine that has the target."""
