"""Random programs under random options: the compiled kernel gives exactly what the interpreter gives.

For longer than the suite may take: ``python -m tests.properties.test_random_programs --seconds 300 --seed 1``.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import hypothesis
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tcomp as tc
from tcomp import registry
from tcomp.backends import arena, cpu
from tcomp.mapping import strategy
from tcomp.mapping.cputiles import cpu_tiling
from tcomp.mapping.machine import Machine
from tcomp.mapping.options import FUSION_STRATEGIES
from tests.properties.generator import STATISTICS, Array, Line, Program, programs

OPTIONS = st.builds(
    tc.MappingOptions,
    tile_sizes=st.none() | st.lists(st.sampled_from([2, 3, 1, 4, 5, 7, 8, 16, 0, 1000]), max_size=5).map(tuple),
    fusion_strategy=st.sampled_from(FUSION_STRATEGIES),
    register_tile=st.none() | st.tuples(st.integers(1, 9), st.integers(1, 20)),
    recompute_limit=st.sampled_from([1.5, 1.0, 2.0, 4.0, 10.0]),
    parallel=st.booleans(),
)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a machine so small that programs of test size meet them; False leaves a bound as it is."""

    many_threads: bool
    small_stack: bool
    small_cache: bool
    few_registers: bool

    @contextmanager
    def imitated(self) -> Iterator[None]:
        """The bounds put in place of the real ones."""
        with ExitStack() as stack:
            for wanted, module, name, value in (
                (self.many_threads, cpu, "PARALLEL_INSTANCES", 1),
                (self.small_stack, arena, "STACK_BYTES", 64),
                (
                    self.small_cache,
                    strategy,
                    "cpu_tiling",
                    lambda m: replace(cpu_tiling(m), tile_bytes=512),
                ),
                (self.few_registers, registry, "this_machine", lambda: Machine(8, 6, 8, 2)),
            ):
                if wanted:
                    stack.enter_context(mock.patch.object(module, name, value))
            yield


BOUNDS = st.builds(Bounds, st.booleans(), st.booleans(), st.booleans(), st.booleans())


@pytest.fixture(autouse=True)
def proved_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pass is proved, and nothing comes from, or goes to, the disk."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)


pytestmark = pytest.mark.filterwarnings("ignore::tcomp.ProgramWarning")
ENVIRONMENT = {"TCOMP_CHECK": "1", "TCOMP_CACHE": "0"}


def outputs_of(
    program: Program, run: Callable[..., Any], contents: Mapping[str, Array] | None = None
) -> dict[str, Array]:
    """All outputs by name.  ``run`` is called with the program's arguments and ``out=`` where it needs content."""
    function = program.function
    given_contents = {n: a.copy(order="K") for n, a in (program.contents if contents is None else contents).items()}
    with np.errstate(all="ignore"):
        results = run(*program.arguments, **({"out": given_contents} if given_contents else {}))
    results = results if isinstance(results, tuple) else (results,)
    return {t.name: np.asarray(r) for t, r in zip(function.outputs, results, strict=True)}


def compiled(
    program: Program, options: tc.MappingOptions, contents: Mapping[str, Array] | None = None
) -> dict[str, Array]:
    """What the kernel gives."""
    operation = tc.define(program.text)["f"]
    return outputs_of(program, lambda *a, **out: operation(*a, options=options, **out), contents)


def interpreted(program: Program) -> dict[str, Array]:
    """What the interpreter gives."""
    return outputs_of(program, tc.define(program.text)["f"].reference)


def assert_same(found: Mapping[str, Array], expected: Mapping[str, Array]) -> None:
    """Equal in names, types, shapes and values; NaN equals NaN."""
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert found[name].dtype == value.dtype
        np.testing.assert_array_equal(_comparable(found[name]), _comparable(value), err_msg=name)


def _comparable(array: Array) -> Array:
    """Floats in double precision, since NumPy does not know bfloat16."""
    return array.astype(np.float64) if array.dtype.kind in "fV" else array


def check_against_interpreter(program: Program, options: tc.MappingOptions, bounds: Bounds) -> None:
    """The property itself."""
    with bounds.imitated():
        assert_same(compiled(program, options), interpreted(program))


def check_renamed(program: Program, options: tc.MappingOptions) -> None:
    """Names carry no meaning."""
    renamed, names = with_other_names(program)
    expected = compiled(program, options)
    assert_same(compiled(renamed, options), {names[n]: a for n, a in expected.items()})


def check_reordered(program: Program, options: tc.MappingOptions, position: int) -> None:
    """Neighbouring statements that touch none of each other's results commute."""
    lines, pairs = list(program.lines), reorderable(program)
    chosen = pairs[position % len(pairs)]
    lines[chosen : chosen + 2] = reversed(lines[chosen : chosen + 2])
    assert_same(compiled(replace(program, lines=tuple(lines)), options), compiled(program, options))


def check_strided(program: Program, options: tc.MappingOptions, layout: int) -> None:
    """Where elements lie in memory does not change what they are."""
    arguments = tuple(a if isinstance(a, int) else laid_out(a, layout + k) for k, a in enumerate(program.arguments))
    contents = {n: laid_out(a, layout) for n, a in program.contents.items()}
    strided = replace(program, arguments=arguments)
    assert_same(compiled(strided, options, contents), compiled(program, options))


def reorderable(program: Program) -> list[int]:
    """Positions of the statements that may change places with the next one."""

    def commute(first: Line, second: Line) -> bool:
        return second.target not in {first.target} | first.reads and first.target not in second.reads

    return [p for p, pair in enumerate(itertools.pairwise(program.lines)) if commute(*pair)]


def laid_out(array: Array, layout: int) -> Array:
    """Equal values in another layout: transposed, reversed, spread out, or with the last dimension outermost."""
    if array.ndim == 0:
        return array
    match layout % 4:
        case 0:
            return np.asfortranarray(array)
        case 1:
            reverse = (slice(None, None, -1),) * array.ndim
            return array[reverse].copy()[reverse]
        case 2:
            spread = np.zeros([2 * n for n in array.shape], array.dtype)
            inner = (slice(None, None, 2),) * array.ndim
            spread[inner] = array
            return spread[inner]
        case _:
            return np.moveaxis(np.moveaxis(array, -1, 0).copy(), 0, -1)


NEW_NAMES = (
    "for", "main", "threadIdx", "float4", "scratch", "report", "c0", "c1", "v_A", "i_r0", "lane", "l", "omp", "long",
    "restrict", "tc_min", "inf", "nan", "T_acc0", "S0", "S1f", "group0", "v_x_at0", "e0", "e1", "t0", "x_new1", "char",
    "double_", "unsigned", "if", "return", "while", "struct", "static", "void", "signed", "short", "goto", "tile0",
)  # fmt: skip


def with_other_names(program: Program) -> tuple[Program, dict[str, str]]:
    """The program with awkward names for everything that it names, and the table of names."""
    own = re.compile(r"\b(?:[A-FNMKPS]|T\d+|i\dw?|r\d|z|held)\b")
    found = list(dict.fromkeys(own.findall(program.text)))
    names = dict(zip(found, NEW_NAMES, strict=False))
    names |= {n: f"other_{n}" for n in found[len(NEW_NAMES) :]}

    def change(text: str) -> str:
        return own.sub(lambda m: names[m[0]], text)

    lines = tuple(Line(change(line.text), line.target, line.reads) for line in program.lines)
    contents = {names[n]: a for n, a in program.contents.items()}
    sizes = {names.get(n, n): v for n, v in program.sizes.items()}
    results = tuple(map(change, program.results))
    return Program(change(program.head), results, lines, sizes, program.arguments, contents), names


def suite(examples: int) -> Callable[[Any], Any]:
    """Settings for the test suite: always the same examples, within the budget."""
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


@suite(60)
@given(programs(), OPTIONS, BOUNDS)
def test_the_kernel_equals_the_interpreter(program: Program, options: tc.MappingOptions, bounds: Bounds) -> None:
    check_against_interpreter(program, options, bounds)


@suite(10)
@given(programs(), OPTIONS)
def test_names_do_not_matter(program: Program, options: tc.MappingOptions) -> None:
    check_renamed(program, options)


@suite(6)
@given(programs(), OPTIONS, st.integers(0, 4))
def test_independent_statements_commute(program: Program, options: tc.MappingOptions, position: int) -> None:
    hypothesis.assume(reorderable(program))
    check_reordered(program, options, position)


@suite(10)
@given(programs(), OPTIONS, st.integers(0, 3))
def test_the_layout_of_arrays_does_not_matter(program: Program, options: tc.MappingOptions, layout: int) -> None:
    check_strided(program, options, layout)


def main() -> int:
    """Check new programs until the time is over; print each failure, made small, and count them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    os.environ.update(ENVIRONMENT)
    warnings.simplefilter("ignore", tc.ProgramWarning)
    end = time.monotonic() + arguments.seconds
    counts = Counter({"checked": 0, "failures": 0})
    for seed in itertools.count(arguments.seed * 1_000_000):
        if time.monotonic() > end:
            break
        try:
            hypothesis.seed(seed)(_round(counts))()
        except Exception as error:  # noqa: BLE001
            counts["failures"] += 1
            sys.stdout.write(f"--- seed {seed}: {''.join(traceback.format_exception(error, limit=-2))}\n")
            sys.stdout.flush()
    sys.stdout.write(f"{dict(counts)}, statements {dict(STATISTICS.statements)}\n")
    return 1 if counts["failures"] else 0


def _round(counts: Counter[str]) -> Callable[[], None]:
    """A test of twenty programs, with every property for some."""

    @settings(
        max_examples=20,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(programs(), OPTIONS, BOUNDS, st.integers(0, 5), st.integers(0, 3))
    def check(program: Program, options: tc.MappingOptions, bounds: Bounds, kind: int, number: int) -> None:
        counts["checked"] += 1
        check_against_interpreter(program, options, bounds)
        if kind == 1:
            check_renamed(program, options)
        elif kind == 2:
            check_strided(program, options, number)
        elif kind == 3 and reorderable(program):
            check_reordered(program, options, number)

    return check


if __name__ == "__main__":
    sys.exit(main())
