"""Every program of the catalogue as CUDA: simulated, compared with the reference, and compiled by NVRTC.

The suite tries every program at default options, where no kernel may spill, and one of each family under one set of
random options.  For longer:
``python -m tests.cuda.test_corpus --sets 20 --seed 1``.
"""

from __future__ import annotations

import argparse
import functools
import json
import random
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import fields

import pytest

from tcomp import grammar
from tcomp.backends.cuda.tools import nvrtc
from tcomp.backends.cuda.tools.images import compile_image
from tcomp.backends.simulator.simulation import Order, Settings
from tcomp.driver import Compilation
from tcomp.errors import TargetError, TcompError
from tcomp.fuzzing.options import random_options
from tcomp.fuzzing.programs.choices import Choices
from tcomp.mapping.options.options import MappingOptions
from tests import corpus
from tests.agreement import assert_agrees
from tests.corpus import EXPECTED_ERRORS, Case, Program
from tests.cuda.compiled import Data, compiled, run
from tests.cuda.simulated import NEEDS_COMPILER

pytestmark = pytest.mark.sweep(10)

PROGRAMS = [p for p in corpus.programs() if p.family not in EXPECTED_ERRORS]

if not PROGRAMS:
    pytest.skip("the catalogue is not here", allow_module_level=True)

FAMILIES = list({p.family: p for p in reversed(PROGRAMS)}.values())[::-1]
"""The first program of each family."""

ARCHITECTURES = ("sm_80", "sm_90")
ORDERS: tuple[Order, ...] = ("forward", "reverse", "random")

FEWER = {146: ("36864", "576")}
"""Extents that a program fixes, and others that are enough for the simulator, which takes 20 s for 38 M points.

The CPU runs the program as it is."""

SEED = 2018
"""Draws the options of the suite."""


def _why_no_nvrtc() -> str | None:
    try:
        nvrtc.find()
    except TargetError as error:
        return error.message
    return None


WHY_NO_NVRTC = _why_no_nvrtc()


@functools.cache
def case_of(number: int) -> Case:
    """The sizes, the data and the expected results of a program."""
    program = next(p for p in PROGRAMS if p.number == number)
    text = program.text.replace(*FEWER[number]) if number in FEWER else program.text
    return corpus.make_case(program, grammar.define(text)[program.name])


def simulate(program: Program, options: MappingOptions, settings: Settings) -> Compilation:
    """Run a program and raise AssertionError if it does not give what the reference gives, or anything is found."""
    case = case_of(program.number)
    compilation = compiled(case.function, case.sizes, options)
    report, found = run(compilation.source, Data(case.inputs, case.contents, case.expected), settings)
    assert not report.findings, str(report)
    assert not report.status, "a subscript failed its check"
    assert_agrees(case.function, case.inputs, found, case.contents)
    return compilation


@NEEDS_COMPILER
@pytest.mark.parametrize("program", PROGRAMS, ids=str)
def test_program(program: Program, record_property: Callable[[str, object], None]) -> None:
    """It gives what the reference gives; kernels of the first of a family keep all registers."""
    settings = Settings(ORDERS[program.number % len(ORDERS)], seed=program.number)
    try:
        simulate(program, MappingOptions(), settings)
    except BaseException:
        record_property("simulated", "failed")
        raise
    record_property("simulated", "equal" if case_of(program.number).exact else "equal within rounding")
    if program in FAMILIES:
        if WHY_NO_NVRTC is not None:
            pytest.skip(f"simulated, but not compiled: {WHY_NO_NVRTC}")
        for architecture in ARCHITECTURES:
            assert spills(compile_for(program, architecture), architecture) == []


@NEEDS_COMPILER
@pytest.mark.parametrize("program", FAMILIES, ids=str)
def test_random_options(program: Program) -> None:
    options, settings = draw(SEED, program.family, 0)
    try:
        simulate(program, options, settings)
    except (AssertionError, TcompError) as error:
        error.add_note(reproducer(program, options, settings))
        raise


def draw(seed: int, family: int, number: int) -> tuple[MappingOptions, Settings]:
    """The options and the order of execution of one run."""
    rng = random.Random(f"{seed}/{family}/{number}")
    options = random_options(Choices(rng.randint), "cuda")
    return options, Settings(rng.choice(ORDERS), rng.randrange(1 << 16))


def reproducer(program: Program, options: MappingOptions, settings: Settings) -> str:
    """The command that runs a program once more in the same way."""
    changed = {f.name: getattr(options, f.name) for f in fields(options) if getattr(options, f.name) != f.default}
    chosen = f"--options '{json.dumps(changed)}' --order {settings.order}"
    return f"python -m tests.cuda.test_corpus --program {program} {chosen}"


def compile_for(program: Program, architecture: str) -> Compilation:
    """A program at default options, with the extents that it has, for an architecture."""
    if program.number not in FEWER:
        case = case_of(program.number)
        return compiled(case.function, case.sizes, architecture=architecture)
    function = grammar.define(program.text)[program.name]
    return compiled(function, corpus.small_ranges(program, function).sizes, architecture=architecture)


def spills(compilation: Compilation, architecture: str) -> list[str]:
    """The kernels that keep registers in memory."""
    kernels = compile_image(compilation.source, architecture).kernels
    return [f"{k.name} for {architecture}: {k}" for k in kernels if k.spill_stores or k.spill_loads]


def main() -> int:
    """Run programs under random options; prints a summary and how to repeat each failure."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--sets", type=int, default=20, help="sets of options for each program")
    parser.add_argument("--seed", type=int, default=1, help="draws other options")
    parser.add_argument("--program", help="run only this one, such as 0-matmul")
    parser.add_argument("--options", help="run under these options only, a JSON object")
    parser.add_argument("--order", choices=ORDERS, default="forward", help="of threads, with --options")
    arguments = parser.parse_args()
    everything = FAMILIES if arguments.program is None else [p for p in PROGRAMS if str(p) == arguments.program]
    if not everything:
        parser.error(f"there is no program {arguments.program}; the first is {PROGRAMS[0]}")
    started, runs, failures = time.monotonic(), 0, 0
    for program in everything:
        for number in range(1 if arguments.options else arguments.sets):
            options, settings = draw(arguments.seed, program.family, number)
            if arguments.options:
                options, settings = MappingOptions.from_json(arguments.options), Settings(arguments.order)
            runs += 1
            try:
                simulate(program, options, settings)
            except Exception as error:  # noqa: BLE001
                failures += 1
                trace = "".join(traceback.format_exception(error, limit=-3))[-3000:]
                sys.stdout.write(f"\nFAILED {reproducer(program, options, settings)}\n{trace}\n")
                sys.stdout.flush()
    seconds = time.monotonic() - started
    sys.stdout.write(f"{len(everything)} programs, {runs} runs, {failures} failures, {seconds:.0f} seconds\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
