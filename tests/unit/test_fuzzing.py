"""What finds faults by random programs: that its programs are right, reach the language, and that it finds faults."""

from __future__ import annotations

import ctypes
import functools
import os
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

import tcomp
from tcomp import cli, grammar
from tcomp.backends.c.target import CpuBackend
from tcomp.backends.host.runtime import HostProgram, dirty_scratch
from tcomp.backends.simulator.report import Finding, FindingKind, Report, SimulationError
from tcomp.commands import fuzz
from tcomp.driver import lower
from tcomp.errors import CompileError, LegalityError, ShapeError, TcompError
from tcomp.fuzzing.campaign import Campaign, Settings
from tcomp.fuzzing.cases import ORDERS, Case, read_case
from tcomp.fuzzing.draws import Draw, Drawn, draw
from tcomp.fuzzing.execution import Outcome, Verdict, describe_difference, execute
from tcomp.fuzzing.machinery import MACHINERY, machinery
from tcomp.fuzzing.options import MOST_THREADS, NOT_EXACT, _dealt_evenly, random_machine, random_options
from tcomp.fuzzing.programs.choices import Choices
from tcomp.fuzzing.programs.exactness import is_exact
from tcomp.fuzzing.programs.features import FEATURES, features
from tcomp.fuzzing.programs.generation import generate
from tcomp.fuzzing.programs.programs import Array, Data, Program
from tcomp.fuzzing.reduction import reduce_case
from tcomp.fuzzing.relations import MADE_UP, RELATIONS
from tcomp.fuzzing.rewriting import body, declared_names, has_blocks
from tcomp.fuzzing.workers import Worker
from tcomp.grammar.ranges.ranges import infer
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.islbounds import TooComplexError
from tcomp.model.terms.sizes import Part, Sizes
from tcomp.operation import Operation
from tcomp.runtime.registry import backend_of
from tcomp.stepwise import lower_stepwise
from tcomp.storage.forks import ISL

pytestmark = pytest.mark.sweep(4)

PROGRAMS = 150
RACE = Finding(FindingKind.RACE, "f_0", "T", "T[0]", "write", None, "", "", None, 1)


@functools.cache
def program_of(number: int) -> Program:
    return generate(Choices(random.Random(number).randint))


def program_from(text: str, **sizes: int) -> Program:
    (definition,) = grammar.parse(text)
    return Program(definition, sizes)


def exact(text: str, **sizes: int) -> bool:
    program = program_from(text, **sizes)
    return is_exact(program.function, infer(program.function, sizes), sizes)


class TestPrograms:
    @pytest.mark.long
    def test_they_reach_all_of_the_language(self) -> None:
        found = Counter(feature for number in range(PROGRAMS) for feature in features(program_of(number)))
        assert set(found) <= set(FEATURES)
        assert [name for name in FEATURES if not found[name]] == []

    @pytest.mark.long
    def test_they_are_exact(self) -> None:
        for number in range(PROGRAMS):
            program = program_of(number)
            assert is_exact(program.function, infer(program.function, program.sizes), program.sizes), program

    def test_a_number_stands_for_the_same_cases_everywhere(self) -> None:
        number = next(
            n for n in range(9) if not has_blocks(draw(Draw(5, n, ("simulator", "cpu"))).cases[0].program.definition)
        )
        first, second = (draw(Draw(5, number, ("cpu", "simulator"))) for _ in range(2))
        assert first == second
        assert [c.target.partition(":")[0] for c in first.cases[:2]] == ["cpu", "simulator"]
        assert first.cases[0].program == draw(Draw(5, number, ("cpu",))).cases[0].program

    def test_data_depends_on_seed_and_position_only(self) -> None:
        one = program_from("def f(float(N) A, float(N) B) -> (C) { C(i) = A(i) + B(i) }", N=20)
        other = program_from("def f(float(N) X, float(N) Y) -> (C) { C(i) = X(i) }", N=20)
        for a, b in zip(one.data().arguments, other.data().arguments, strict=True):
            np.testing.assert_array_equal(a, b)
        assert not np.array_equal(*one.data().arguments)


class TestExactness:
    @pytest.mark.parametrize(
        "text",
        [
            "def f(float(N) A) -> (S) { S +=! A(i) * A(i) }",
            "def f(int64(N) A) -> (S) { S *=! A(i) }",
            "def f(float(N) A) -> (S) { S *=! clamp(A(i), -1, 1) }",
            "def f(double(N) A) -> (S) { S +=! A(i) * 1000000 }",
            "def f(float(N) A) -> (B) { B(i) = A(i) % 3 }",
            "def f(int(N) A, float B) -> (C) { T min=! A(i)  C = B - T }",
            "def f(int(N) A) -> (S) { S +=! float(A(i) & 7 | ~A(i)) }",
            "def f(int(N) A) -> (S) { S +=! float(popcount(A(i)) - (A(i) >> 1)) }",
            "def f(float(N,N) A) -> (I, J) { I, J argmax=! A(i,j) }",
        ],
    )
    def test_whole_numbers_within_the_mantissa_are_exact(self, text: str) -> None:
        assert exact(text, N=1000)

    @pytest.mark.parametrize(
        "text",
        [
            "def f(float(N) A) -> (S) { S +=! A(i) * 0.5 }",
            "def f(float(N) A) -> (S) { S +=! A(i) * 10000 }",
            "def f(float(N) A) -> (S) { S *=! A(i) }",
            "def f(float(N) A) -> (B) { B(i) = A(i) / 3 }",
            "def f(float(N) A) -> (B) { B(i) = exp(A(i)) }",
            "def f(int(N) A) -> (B) { B(i) = float(A(i) << 28) }",
            "def f(int(N) A) -> (B) { B(i) = float(~(A(i) * 100000000)) }",
            "def f(int32(N) A) -> (B) { B(i) = A(i) % A(i) }",
            "def f(uint32(N) A) -> (S) { S +=! float(A(i)) }",
            "def f(float(N) A) -> (C) { B(i) = A(i) * 5000  C(i) = B(i) * B(i) }",
            "def f(int(N) A, float B) -> (C) { T min=! A(i) where i in 0:0  C = B - T }",
            "def f(int(N) A, float(N) B) -> (C) { T(i) max=! A(j) where i in 0:N, j in 0:i  C(i) = B(i) - T(i) }",
        ],
    )
    def test_what_may_round_is_not(self, text: str) -> None:
        assert not exact(text, N=1000)

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("def f(float(N) A) -> (S) { S +=! A(i) * A(i) }", True),
            ("def f(float(N) A) -> (S) { S +=! A(i) * 4000 }", False),
            ("def f(float(N) A) -> (S) { S +=! float(int32(A(i))) * 4000 }", True),
            ("def f(float(N) A) -> (S) { S +=! floor(A(i)) * 4000 }", True),
            ("def f(int32(N) A) -> (S) { S +=! float(A(i)) * 4000 }", True),
            ("def f(float(N) A) -> (S) { S *=! clamp(A(i), -1, 1) }", False),
            ("def f(float(N) A) -> (B) { B(i) = A(i) % 3 }", True),
        ],
    )
    def test_halves_are_counted_in_units(self, text: str, expected: bool) -> None:
        function = program_from(text, N=1000).function
        assert exact(text, N=1000) or not expected
        assert is_exact(function, infer(function, {"N": 1000}), {"N": 1000}, bits=1) == expected

    def test_many_programs_have_halves(self) -> None:
        programs = [program_of(number) for number in range(PROGRAMS // 3)]
        data = [[np.asarray(a, np.float64) % 1 for a in p.data().arguments] for p in programs if p.bits]
        halves = [arrays for arrays in data if any(map(np.any, arrays))]
        assert len(halves) > len(programs) / 4


class TestOptions:
    @pytest.mark.parametrize("target", ["cpu", "cuda", "simulator"])
    def test_every_option_of_a_target_is_drawn_with_several_values(self, target: str) -> None:
        drawn = [random_options(Choices(random.Random(number).randint), target) for number in range(200)]
        for option in fields(MappingOptions):
            targets = option.metadata["option"].targets
            # Parts have the names of tensors, which differ from program to program.
            expected = option.name not in {*NOT_EXACT, "parts"} and (not targets or target in targets)
            assert (len({getattr(o, option.name) for o in drawn}) > 1) == expected, option.name
        assert max(np.prod(o.threads or (1,)) for o in drawn) <= MOST_THREADS


def test_programs_may_be_about_products_of_a_type() -> None:
    drawn = [draw(Draw(1, number, ("simulator:sm_80",), operands="float32")) for number in range(20)]
    assert {t.dtype.name for one in drawn for t in one.cases[0].program.function.inputs} == {"float32"}
    assert {case.options.math for one in drawn for case in one.cases} == {"exact", "tf32", "tf32x3"}


@pytest.mark.parametrize(
    ("value", "largest"), [("A(m,k) * A(n,k)", 3.0), ("A(m,k) * (300 * A(n,k))", 900.0), ("A(m,k) + 300 * B(n,k)", 0.0)]
)
def test_factors_have_few_digits(value: str, largest: float) -> None:
    text = f"def f(float(M,K) A, int(M,K) B) -> (C) {{ C(m,n) +=! {value} where m in 0:M, n in 0:M }}"
    function, sizes = grammar.define(text)["f"], {"M": 4, "K": 4}
    assert is_exact(function, infer(function, sizes), sizes, factors=largest)
    assert largest == 0 or not is_exact(function, infer(function, sizes), sizes, factors=largest - 0.5)


@pytest.mark.parametrize(
    ("sizes", "threads", "even"),
    [([5, 7, 33], [16, 4], [5, 8, 48]), ([5], [2, 3, 4], [6]), ([0, 16], [8], [0, 16]), ([], [8], [])],
)
def test_tiles_that_threads_divide(sizes: list[int], threads: list[int], even: list[int]) -> None:
    assert _dealt_evenly(sizes, threads) == even


class TestMachinery:
    def test_devices_are_asked_for_what_simulated_ones_are(self) -> None:
        assert MACHINERY["cuda"] == MACHINERY["opencl"] == MACHINERY["simulator"]

    @pytest.mark.parametrize("target", [name for name in MACHINERY if name not in ("cuda", "opencl")])
    def test_programs_reach_all_of_it(self, target: str) -> None:
        """Everything that is looked for is there in some of these."""
        wanted = {
            "cpu": {
                "mm": ("float(M,K) A, float(N,K) B", "C(m,n) +=! A(m,k) * B(n,k)", {"M": 200, "N": 300, "K": 200}),
                "edges": ("float(M,K) A, float(K,N) B", "C(m,n) +=! A(m,k) * B(k,n)", {"M": 300, "N": 500, "K": 50}),
                "int16": (
                    "int16(M,K) A, int16(K,N) B",
                    "C(m,n) +=! int32(A(m,k)) * int32(B(k,n))",
                    {"M": 200, "N": 300, "K": 200},
                ),
                "bound": ("float(M,K) A, float(K,N) W", "C(m,n) +=! A(m,k) * W(k,n)", {"M": 8, "N": 64, "K": 64}),
                "sum": ("float(M,K) A", "C(m) +=! A(m,k)", {"M": 20, "K": 100}),
                "stream": ("float(M,K) A", "C(m,k) = A(m,k) + 1", {"M": 512, "K": 1024}),
                "blur": (
                    "float(M,K) A",
                    "B(m,k) +=! A(m+r,k) where r in 0:3 C(m,k) = B(m,k) + B(m+1,k)",
                    {"M": 500, "K": 300},
                ),
                "steps": (
                    "float(M,K) A",
                    "for k in 0:K { C(m,k) = (k == 0 ? 0.0 : 0.5 * C(m,k-1)) + A(m,k) }",
                    {"M": 8, "K": 40},
                ),
            },
            "simulator": {
                "mm": ("float(M,K) A, float(N,K) B", "C(m,n) +=! A(m,k) * B(n,k)", {"M": 64, "N": 64, "K": 64}),
                "torn": ("float(M,K) A, float(K,N) B", "C(m,n) +=! A(m,k) * B(k,n)", {"M": 300, "N": 300, "K": 64}),
                "softmax": (
                    "float(M,K) A",
                    "m(n) max=! A(n,d) e(n,d) = A(n,d) - m(n) C(n) +=! e(n,d)",
                    {"M": 64, "K": 100},
                ),
                "warps": ("float(M,K) A", "B(n,d) = A(n,d) + 1 C(n,d) = B(n,d) + B(n,31-d)", {"M": 64, "K": 32}),
                "sum": ("float(M) A", "C +=! A(m)", {"M": 1 << 23}),
                "chain": ("float(M) A", "B(i) = A(i) C +=! B(i)", {"M": 4096}),
                "rows": (
                    "int32(M) row, float(K) A",
                    "C(i) +=! A(e) where e in row(i):row(i+1)",
                    {"M": 9, "K": 64},
                ),
                "halves": ("half(M,K) A, half(N,K) B", "C(m,n) +=! A(m,k) * B(n,k)", {"M": 64, "N": 32, "K": 64}),
                "groups": ("half(M,K) A, half(N,K) B", "C(m,n) +=! A(m,k) * B(n,k)", {"M": 256, "N": 256, "K": 128}),
            },
        }
        found: set[str] = set()
        for name, (inputs, statements, sizes) in wanted[target].items():
            function = grammar.define(f"def f({inputs}) -> (C) {{ {statements} }}")["f"]
            machine = Machine(32, 16, 32, 4, last_cache=1 << 16, dots="avx2")
            bound = tuple(t.name for t in function.inputs if t.name == "W")
            backend = (
                CpuBackend(machine)
                if target == "cpu"
                else backend_of("simulator:sm_90" if name == "groups" else "simulator:sm_80")
            )
            with ISL.value:
                made = Sizes(sizes, part=Part(bound) if bound else None)
                lowered = lower_stepwise if function.recurs else lower
                options = MappingOptions(route="tensor", persistent=1) if name == "groups" else MappingOptions()
                found |= machinery(lowered(function, made, options, backend), target)
        assert found == set(MACHINERY[target])


class TestRelations:
    @pytest.mark.parametrize("name", RELATIONS)
    def test_the_interpreter_finds_no_difference(self, name: str) -> None:
        changed = 0
        for number in range(60):
            program = program_of(number)
            variant = RELATIONS[name](Choices(random.Random(number).randint), program)
            with np.errstate(all="ignore"):
                expected, found = results_of(number), interpreted(variant.program, variant.data)
            assert describe_difference(variant.restored(found), expected) == "", variant.program
            changed += variant.program.text != program.text or layouts(variant.data) != layouts(program.data())
            changed += bool(variant.bound or variant.opened)
        assert (changed > 2) == (name != "same")

    def test_new_names_are_those_that_kernels_make_up_for_others(self) -> None:
        found: set[str] = set()
        for number in range(40):
            variant = RELATIONS["renamed"](Choices(random.Random(number).randint), program_of(number))
            names = declared_names(variant.program.definition)
            found |= {suffix for suffix in MADE_UP for name in names if f"{name}{suffix}" in names}
        assert found == set(MADE_UP)


def interpreted(program: Program, data: Data | None = None) -> dict[str, Array]:
    given = data or program.data()
    operation = Operation(program.function)
    if program.definition.types:
        operation = tcomp.define(program.text)[program.definition.name.name].chosen(given.arguments)
    results = operation.reference(*given.arguments, out=dict(given.contents) or None)
    results = results if isinstance(results, tuple) else (results,)
    return {t.name: np.asarray(r) for t, r in zip(operation.function.outputs, results, strict=True)}


@functools.cache
def results_of(number: int) -> dict[str, Array]:
    """What the interpreter makes of a random program."""
    return interpreted(program_of(number))


def layouts(data: Data) -> list[tuple[int, ...]]:
    return [a.strides for a in data.arguments if not isinstance(a, int)]


class TestCases:
    def test_text_gives_the_case_again(self) -> None:
        for number in range(20):
            choices = Choices(random.Random(number).randint)
            options = random_options(choices, "simulator")
            machine = random_machine(choices) if number % 2 else None
            case = Case(program_of(number), "simulator:sm_80", options, "renamed", number, ORDERS[number % 3], machine)
            assert read_case(case.text("# target: cpu\nwhatever")) == case

    @pytest.mark.parametrize("text", ["", "def f() -> (A) { A = 1 }", "# target: cpu\ndef f() -> (A) { A = 1 }"])
    def test_other_text_is_refused(self, text: str) -> None:
        with pytest.raises(TcompError):
            read_case(text)

    def test_a_wrong_value_is_a_failure(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Operation, "__call__", lambda self, *a, **k: np.zeros(3, np.float32))
        program = program_from("def f(float(N) A) -> (B) { B(i) = A(i) + 7 }", N=3)
        outcome = execute(Case(program, "cpu", MappingOptions()))
        assert (outcome.verdict, outcome.kind) == (Verdict.FAILED, "wrong value")
        assert outcome.detail.startswith("3 of 3 elements of B differ: B(0,) is 0.0, should be ")

    def test_what_may_round_is_invalid(self) -> None:
        program = program_from("def f(float(N) A) -> (B) { B(i) = A(i) / 7 }", N=3)
        assert execute(Case(program, "cpu", MappingOptions())).verdict is Verdict.INVALID

    @pytest.mark.parametrize(
        ("error", "verdict", "kind"),
        [
            (IndexError("what"), Verdict.FAILED, "IndexError in test_fuzzing.py:fail"),
            (LegalityError("pass 'tile' breaks it"), Verdict.FAILED, "illegal plan"),
            (ShapeError("A reaches 7"), Verdict.FAILED, "ShapeError: _ reaches _"),
            (TooComplexError("f is too complex: isl gave up"), Verdict.REFUSED, "f is too complex: isl gave up"),
            (CompileError("f is too strange"), Verdict.FAILED, "CompileError: f is too strange"),
            (SimulationError(Report(0, (RACE, RACE), 2, ())), Verdict.FAILED, "simulator: data race in a block"),
        ],
    )
    def test_errors(self, error: Exception, verdict: Verdict, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(*_: object, **__: object) -> None:
            raise error

        monkeypatch.setattr(Operation, "__call__", fail)
        program = program_from("def f(float(N) A) -> (B) { B(i) = A(i) }", N=3)
        outcome = execute(Case(program, "cpu", MappingOptions()))
        assert (outcome.verdict, outcome.kind) == (verdict, kind)


class TestReduction:
    def test_what_does_not_matter_goes(self) -> None:
        text = """
        def f(float(N,M) A, float16(M) B, const int S) -> (T0, T1, T2) {
          T0(i,j) = A(i,j) + B(j) * S where i in 0:N
          T1(i) max=! T0(i,j) - (A(i,j) > 0 ? 3 : B(j))
          T2(i) +=! T1(i) * min(B(j), T0(i,j)) where held = B(j)
        }"""
        options = MappingOptions(tile_sizes=(3, 4), fusion_strategy="min")
        case = Case(program_from(text, N=13, M=7, S=2), "cpu", options, "swapped", 3)
        small = reduce_case(case, lambda c: self.valid(c) and "max=!" in c.program.text, lambda: False)
        assert small == Case(program_from("def f() -> (T1) { T1 max=! 1 }"), "cpu", MappingOptions())

    def test_sizes_and_options_that_matter_stay(self) -> None:
        program = program_from("def f(float(N) A) -> (B) { B(i) = A(i) + A(i) }", N=64)
        case = Case(program, "cpu", MappingOptions(tile_sizes=(3,), parallel=False))

        def fails(c: Case) -> bool:
            return self.valid(c) and c.program.sizes.get("N", 0) >= 5 and c.options.tile_sizes == (3,)

        small = reduce_case(case, fails, lambda: False)
        assert small.program.sizes == {"N": 5}
        assert small.options == MappingOptions(tile_sizes=(3,))

    def test_it_ends_when_it_is_over(self) -> None:
        case = Case(program_of(1), "cpu", MappingOptions())
        assert reduce_case(case, lambda c: True, lambda: True) == case

    def valid(self, case: Case) -> bool:
        try:
            infer(case.program.function, case.program.sizes)
        except TcompError:
            return False
        return True


def crashing(request: Draw | Case) -> Drawn | Outcome:
    if isinstance(request, Case) and len(body(request.program.definition)) > 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    return draw(request) if isinstance(request, Draw) else Outcome(Verdict.PASSED)


def hanging(request: Draw | Case) -> Drawn | Outcome:
    time.sleep(1000)
    raise AssertionError


def refusing_minima(request: Draw | Case) -> Drawn | Outcome:
    if isinstance(request, Draw):
        return draw(request)
    text = request.program.text
    return Outcome(Verdict.FAILED, "wrong value", "as asked") if "min=" in text else Outcome(Verdict.PASSED)


def unable(request: Draw | Case) -> Drawn | Outcome:
    raise RuntimeError("no program today")


@pytest.fixture
def case() -> Case:
    two = "def f(float(N) A) -> (C) { B(i) = A(i)  C(i) = B(i) }"
    return Case(program_from(two, N=3), "cpu", MappingOptions())


class TestWorkers:
    def test_a_crash_is_an_outcome_and_the_worker_goes_on(self, case: Case) -> None:
        with Worker(60.0, crashing) as worker:
            crashed = worker.run(case)
            assert crashed.outcome.verdict is Verdict.FAILED
            assert crashed.outcome.kind == "the process ended with SIGSEGV"
            assert "crashing" in crashed.outcome.detail
            one = Case(program_from("def f() -> (A) { A = 1 }"), "cpu", MappingOptions())
            assert worker.run(one).outcome == Outcome(Verdict.PASSED)

    @pytest.mark.long
    def test_a_hang_is_an_outcome(self, case: Case) -> None:
        with Worker(1.0, hanging) as worker:
            assert worker.run(case).outcome.kind == "time limit"

    def test_a_case_is_run(self, case: Case) -> None:
        with Worker(60.0) as worker:
            assert worker.run(case).outcome == Outcome(Verdict.PASSED)


def test_a_package_that_is_missing_is_no_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    drawn = [draw(Draw(4, number, ("cpu",))) for number in range(1, 60)]
    needing = [each for each in drawn if "bfloat16" in each.cases[0].program.text]
    assert len(needing) >= 3
    outcomes = [execute(case) for each in needing[:3] for case in each.cases]
    assert {outcome.verdict for outcome in outcomes} == {Verdict.REFUSED}


def test_no_scratch_memory_is_as_a_kernel_would_like_it() -> None:
    """A kernel that reads what it has not written would often find zeros there."""
    found: list[bytes] = []

    def kernel(scratch: int, report: int) -> int:
        found.append(ctypes.string_at(scratch, 64))
        return 0

    program = HostProgram(kernel, 64, native=False)
    dirty_scratch()
    assert program([]) is None
    assert found == [b"\xff" * 64]


class TestCampaign:
    def settings(self, keep: Path | None) -> Settings:
        return Settings(10_000.0, 1, ("cpu",), 2, keep, 1000.0, 1000.0, 8)

    @pytest.mark.long
    def test_failures_are_made_small_and_kept(self, tmp_path: Path) -> None:
        said: list[str] = []
        campaign = Campaign(self.settings(tmp_path / "kept"), said.append, refusing_minima)
        tally = campaign.run(1.0)
        assert tally.programs == 8
        assert tally.failed["wrong value"] == tally.failed.total() > 0
        kept = sorted((tmp_path / "kept").iterdir())
        assert 0 < len(kept) <= 3
        for path in kept:
            small = read_case(path.read_text(encoding="utf-8")).program
            assert len(body(small.definition)) == 1
            assert body(small.definition)[0].operator.startswith("min=")
        assert any(line.startswith("failure: wrong value") for line in said)

    @pytest.mark.long
    def test_a_program_that_cannot_be_drawn_is_a_failure(self) -> None:
        campaign = Campaign(Settings(10_000.0, 1, ("cpu",), 1, None, 1000.0, 20.0, 3), lambda line: None, unable)
        assert campaign.run(60.0).failed == {"the process ended with exit status 1": 3}
        assert "no program today" in campaign.failures[0].text

    def test_an_interrupt_ends_what_runs(self) -> None:
        campaign = Campaign(Settings(5000.0, 1, ("cpu",), 2, None, 5000.0, 20.0), interrupt, hanging)
        with pytest.raises(KeyboardInterrupt):
            campaign.run(3.0)
        assert campaign.tally.failed == {}


def interrupt(line: str) -> None:
    raise KeyboardInterrupt


class TestCommand:
    def test_right_programs_pass(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert (
            cli.main(
                ["fuzz", "--programs", "2", "--seconds", "10000", "--target", "cpu", "--seed", "11", "--statistics"]
            )
            == 0
        )
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].split() == ["feature", "programs", "share"]
        assert lines[-1].startswith("2 programs, 4 runs (4 cpu), ")
        assert lines[-1].endswith(", 0 failures")

    def test_targets_may_be_several(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked: list[tuple[str, ...]] = []
        monkeypatch.setattr(fuzz, "execute", lambda request: asked.append(request.settings.targets) or 0)
        assert cli.main(["fuzz", "--target", "cpu", "--target", "both"]) == 0
        assert cli.main(["fuzz"]) == 0
        assert cli.main(["fuzz", "--target", "simulator:sm_90", "--target", "cpu", "--matrices"]) == 0
        assert asked == [("cpu", "simulator"), (), ("simulator:sm_90", "cpu")]

    def test_programs_begin_with_matrices_where_that_is_asked(self) -> None:
        cases = [c for n in range(4) for c in draw(Draw(1, n, ("simulator:sm_90",), matrices=True)).cases]
        assert {c.target for c in cases} == {"simulator:sm_90"}
        texts = [c.program.text for c in cases if c.relation == "same"]
        assert all(text.count("float16") > 1 and "T0" in text for text in texts), texts

    def test_reproducers_are_replayed(self, case: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        path = tmp_path / "case.tc"
        path.write_text(case.text("whatever"), encoding="utf-8")
        assert cli.main(["fuzz", "--replay", str(path)]) == 0
        assert capsys.readouterr().out.strip() == f"{path}: passed"

    @pytest.mark.parametrize(
        "arguments",
        [
            ["--seconds", "-1"],
            ["--seconds", "nan"],
            ["--jobs", "0"],
            ["--target", "tpu"],
            ["--target", "simulator:sm_1"],
            ["--seed", "x"],
        ],
    )
    def test_wrong_usage(self, arguments: list[str]) -> None:
        with pytest.raises(SystemExit) as stop:
            cli.main(["fuzz", *arguments])
        assert stop.value.code == 2

    def test_a_file_that_is_no_reproducer_is_an_error(self, tmp_path: Path) -> None:
        path = tmp_path / "other.tc"
        path.write_text("def f() -> (A) { A = 1 }", encoding="utf-8")
        assert cli.main(["fuzz", "--replay", str(path)]) == 1

    def test_the_directory_must_be_there_or_be_made(self, tmp_path: Path) -> None:
        blocked = tmp_path / "file"
        blocked.write_text("")
        assert cli.main(["fuzz", "--seconds", "1", "--target", "cpu", "--keep", str(blocked / "x")]) == 1
