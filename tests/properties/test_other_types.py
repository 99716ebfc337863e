"""The library's operators with every type of elements, at sizes that fill tiles, panels and vectors and that tear them.

``python -m tests.properties.test_other_types --seconds 600 --seed 1`` tries more, with ``--target simulator`` as CUDA.
"""

from __future__ import annotations

import argparse
import math
import random
import re
import sys
import time
import warnings
from importlib import resources
from typing import Any

import pytest

import tcomp
from tcomp.arrays.devices import Memory
from tcomp.backends.host.runtime import HostRuntime
from tcomp.backends.simulator.simulation import Settings, load
from tcomp.errors import CompileError, ShapeError, TcompError
from tcomp.fuzzing.cases import ORDERS
from tcomp.fuzzing.options import random_options
from tcomp.fuzzing.programs.choices import Choices
from tcomp.grammar.ranges.ranges import infer
from tcomp.grammar.tree.function import Function
from tcomp.model.madeup import Arguments, random_arguments
from tcomp.runtime.binding import Binding
from tcomp.runtime.calls import check_call
from tests.agreement import assert_agrees
from tests.cuda.simulated import NEEDS_COMPILER

pytestmark = pytest.mark.sweep(5)

LIBRARY = {path.name: path.read_text(encoding="utf-8") for path in (resources.files("tcomp") / "library").iterdir()
           if path.name.endswith(".tc")}  # fmt: skip
OPERATORS = sorted((file, name) for file, text in LIBRARY.items() for name in re.findall(r"^def (\w+)", text, re.M))
TYPES = ("half", "bfloat16", "float", "double", "int8", "uint8", "int16", "int32", "int64")
SIZES = (1, 2, 3, 7, 16, 33, 64, 130)
MOST_POINTS = {"cpu": 2_000_000, "simulator": 100_000}
"""Instances of a statement, and elements of an array, by target: the simulator watches every access."""


def program(kind: str, rng: random.Random) -> tcomp.Operation:
    """An operator with its floats replaced; drawn again where it has no meaning for the type."""
    while True:
        file, name = rng.choice(OPERATORS)
        try:
            return tcomp.define(re.sub(r"\bfloat\b", kind, LIBRARY[file]))[name]
        except CompileError:
            continue


def sizes_of(function: Function, rng: random.Random, most: int) -> dict[str, int] | None:
    """Sizes with which a program means something, and not too much work; None if a few tries found none."""
    for _ in range(30):
        names = [*function.sizes, *(t.name for t in function.inputs if t.role == "const")]
        least = rng.randrange(len(SIZES) - 2)
        sizes = {name: rng.choice(SIZES[least if rng.random() < 0.7 else 0 :]) for name in names}
        sizes |= {name: 1 for name in names if rng.random() < 0.1}
        try:
            ranges = infer(function, sizes)
        except (CompileError, ShapeError):
            continue
        points = [math.prod(high - low + 1 for low, high in d.hull.values()) for d in ranges.domains]
        if max((*points, *(math.prod(box.extent) for box in ranges.boxes.values())), default=0) <= most:
            return sizes
    return None


def run(
    operation: tcomp.Operation, arguments: Arguments, options: tcomp.MappingOptions, settings: Settings | None
) -> Any:
    """What a program gives on the CPU or, with settings, as CUDA on the simulator."""
    if settings is None:
        return operation(*arguments.values, options=options)
    call = check_call(operation.function, arguments.values, None, memory=Memory.MAIN)
    source = operation.compile(*arguments.values, target="simulator", options=options).compilation.source
    kernels = HostRuntime(lambda s: load(s).entry_with(settings)).load(source)
    return call.finish(Binding(source, kernels, call).run(call.arrays, call.outputs))


def attempt(kind: str, rng: random.Random, target: str = "cpu") -> str | None:
    """Run one program; its name, or None if it cannot run with the sizes that were drawn.  AssertionError."""
    operation = program(kind, rng)
    function = operation.function
    sizes = sizes_of(function, rng, MOST_POINTS[target])
    if sizes is None:
        return None
    if target == "cpu":
        options, settings = tcomp.MappingOptions(parallel=rng.random() < 0.5), None
    else:
        options = tcomp.MappingOptions() if rng.random() < 0.6 else random_options(Choices(rng.randint), target)
        settings = Settings(rng.choice(ORDERS), rng.randrange(1 << 30))
    try:
        arguments = random_arguments(function, infer(function, sizes), rng.randrange(1 << 30))
        results = run(operation, arguments, options, settings)
        names = [t.name for t in function.outputs]
        found = dict(zip(names, results if isinstance(results, tuple) else (results,), strict=True))
        inputs = {t.name: v for t, v in zip(function.inputs, arguments.values, strict=True)}
        assert_agrees(function, inputs, found, undecided=1.0)
    except ShapeError:
        return None
    except (AssertionError, TcompError) as error:
        how = f"{kind} with {sizes}, {options.to_source()}, {settings}"
        raise AssertionError(f"{function.name} on {how}: {error}") from error
    return function.name


@pytest.mark.parametrize("kind", TYPES)
def test_operators_on_a_type(kind: str) -> None:
    rng = random.Random(kind)
    assert sum(attempt(kind, rng) is not None for _ in range(8)) >= 3


@NEEDS_COMPILER
@pytest.mark.parametrize("kind", TYPES)
def test_an_operator_on_a_type_as_cuda(kind: str) -> None:
    rng = random.Random(kind)
    assert any(attempt(kind, rng, "simulator") for _ in range(5))


def main() -> None:
    """Try programs for so many seconds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--target", choices=tuple(MOST_POINTS), default="cpu")
    chosen = parser.parse_args()
    rng, end, tried = random.Random(chosen.seed), time.monotonic() + chosen.seconds, 0
    warnings.simplefilter("ignore")
    while time.monotonic() < end:
        tried += attempt(rng.choice(TYPES), rng, chosen.target) is not None
    sys.stdout.write(f"{tried} programs, all right\n")


if __name__ == "__main__":
    main()
