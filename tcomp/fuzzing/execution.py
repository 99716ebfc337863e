"""Run one case and say what came of it."""

from __future__ import annotations

import random
import re
import traceback
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from tcomp.arrays.devices import Memory
from tcomp.backends.c.target import CpuBackend
from tcomp.backends.host import native
from tcomp.backends.host.runtime import HostRuntime, dirty_scratch
from tcomp.backends.simulator.report import SimulationError
from tcomp.backends.simulator.simulation import Settings, load
from tcomp.driver import Compilation, lower
from tcomp.errors import (
    CompileError,
    LegalityError,
    MissingOperationError,
    MissingPackageError,
    ProgramWarning,
    ShapeError,
    TcompError,
)
from tcomp.fuzzing.cases import Case
from tcomp.fuzzing.deviceruns import SpoiledError, device_works, run_on_device
from tcomp.fuzzing.machinery import machinery
from tcomp.fuzzing.programs.choices import Choices
from tcomp.fuzzing.programs.exactness import is_exact
from tcomp.fuzzing.programs.programs import Array, Data, Program
from tcomp.fuzzing.relations import RELATIONS, Variant
from tcomp.generic import GenericOperation
from tcomp.grammar import define_all, parse
from tcomp.grammar.ranges.ranges import infer
from tcomp.model.islbounds import TooComplexError
from tcomp.openoperation import OpenOperation
from tcomp.operation import Operation
from tcomp.runtime.binding import Binding
from tcomp.runtime.calls import check_call
from tcomp.runtime.given import sizes_of
from tcomp.stepwise import lower_stepwise
from tcomp.storage.forks import ISL

_SHOWN_DIFFERENCES = 5
_SHOWN_FRAMES = 4
_CUDA_ERROR = re.compile(r"\bcudaError[A-Z]\w*|\bCUDA_ERROR_\w+")


class Verdict(StrEnum):
    """What came of a case."""

    PASSED = "passed"
    REFUSED = "refused"
    INVALID = "invalid"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A verdict; ``kind`` says in a few words what failed or was refused, and is the same for failures of one cause.

    ``used`` is what of the compiler a case that passed made use of.  ``spent`` says that its process runs no other:
    CUDA works no more there.
    """

    verdict: Verdict
    kind: str = ""
    detail: str = ""
    used: frozenset[str] = field(default=frozenset(), compare=False)
    spent: bool = field(default=False, compare=False)


def execute(case: Case) -> Outcome:
    """Compile and run a case, and compare it with the interpreter.

    A case whose program the front end refuses, or whose results depend on the order of evaluation, is invalid.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore", ProgramWarning)
        try:
            return _execute(case)
        except Exception as error:  # noqa: BLE001 - whatever is raised is what is looked for
            outcome = _of_error(error)
            return replace(outcome, spent=case.on_device and not device_works())


def _execute(case: Case) -> Outcome:
    program = case.program
    try:
        if not _is_sound(program):
            return Outcome(Verdict.INVALID, "results depend on the order of evaluation")
    except MissingPackageError:
        raise
    except TcompError as error:
        return Outcome(Verdict.INVALID, normalised(error.message))
    expected = _expected(program.text, tuple(program.sizes.items()), program.seed, program.bits)
    draws = random.Random(case.variation)
    variant = RELATIONS[case.relation](Choices(draws.randint), program)
    if variant.bound and case.machine is None and not case.on_device:
        results, compilation = _with_bound(case, variant)
    else:
        try:
            results, compilation = _compiled(case, _operation(case, variant), variant.data)
        except (CompileError, ShapeError) as error:
            if not variant.opened:
                raise
            return Outcome(Verdict.REFUSED, f"open sizes: {normalised(error.message)}")
    difference = describe_difference(variant.restored(results), expected)
    if difference:
        return Outcome(Verdict.FAILED, "wrong value", difference)
    return Outcome(Verdict.PASSED, used=machinery(compilation, case.target))


def _is_sound(program: Program) -> bool:
    function = program.function
    return is_exact(function, infer(function, program.sizes), program.sizes, program.bits)


@lru_cache(1)
def _expected(text: str, sizes: tuple[tuple[str, int], ...], seed: int, bits: int) -> Mapping[str, Array]:
    """What the interpreter gives; it is asked once for all cases of a program, which come one after the other."""
    (definition,) = parse(text)
    program = Program(definition, dict(sizes), seed, bits)
    operation, data = Operation(program.function), program.data()
    return _named(operation, operation.reference(*data.arguments, out=_out(data)))


def _named(operation: Operation, results: Any) -> dict[str, Array]:
    results = results if isinstance(results, tuple) else (results,)
    return {t.name: np.asarray(r) for t, r in zip(operation.function.outputs, results, strict=True)}


def _out(data: Data) -> dict[str, Array] | None:
    """A fresh ``out=``; copies keep the layout, but for the gaps."""
    return dict(data.contents) or None


def _operation(case: Case, variant: Variant) -> Operation:
    """What is called for a variant: sizes are open only where a kernel is compiled for this processor."""
    program = variant.program
    if variant.opened and case.target == "cpu" and case.machine is None:
        return OpenOperation(program.function, variant.opened)
    if variant.generic:
        (generic,) = define_all(program.text)[1].values()
        return GenericOperation(generic).chosen(variant.data.arguments)
    return Operation(program.function)


def _compiled(case: Case, operation: Operation, data: Data) -> tuple[dict[str, Array], Compilation]:
    if case.on_device:
        return run_on_device(operation, data, case.target, case.options)
    arguments, out = data.arguments, _out(data)
    dirty_scratch()
    if case.machine is None and not case.simulated:
        kernel = operation.compile(*arguments, out=out, target=case.target, options=case.options)
        results = operation(*arguments, out=out, target=case.target, options=case.options)
        return _named(operation, results), kernel.compilation
    call = check_call(operation.function, arguments, out, memory=Memory.MAIN)
    if case.machine is None:
        compilation = operation.compile(*arguments, out=out, target=case.target, options=case.options).compilation
        settings = Settings(case.order, case.variation)
        runtime = HostRuntime(lambda source: load(source).entry_with(settings))
    else:
        with ISL.value:
            lowered = lower_stepwise if operation.function.recurs else lower
            compilation = lowered(operation.function, sizes_of(call), case.options, CpuBackend(case.machine))
        runtime = HostRuntime(native.load)
    found = Binding(compilation.source, runtime.load(compilation.source), call).run(call.arrays, call.outputs)
    return _named(operation, call.finish(tuple(found))), compilation


def _with_bound(case: Case, variant: Variant) -> tuple[dict[str, Array], Compilation]:
    """Bind arguments, and call with the others twice: the second call finds what the first one has made."""
    operation = Operation(variant.program.function)
    given = {t.name: a for t, a in zip(operation.function.inputs, variant.data.arguments, strict=True)}
    bound = operation.bind(**{name: given[name] for name in variant.bound})
    arguments = [a for name, a in given.items() if name not in variant.bound]
    dirty_scratch()
    for _ in range(2):
        out = {name: array.copy() for name, array in variant.data.contents.items()} or None
        results = bound(*arguments, out=out, target=case.target, options=case.options)
    kernel = bound.compile(*arguments, out=_out(variant.data), target=case.target, options=case.options)
    return _named(operation, results), kernel.compilation


def describe_difference(found: Mapping[str, Array], expected: Mapping[str, Array]) -> str:
    """What differs in names, types, shapes or values; empty if nothing does.

    NaN equals NaN, and 0 equals -0, which of sums and extrema either may come out.
    """
    if found.keys() != expected.keys():
        return f"outputs {sorted(found)} instead of {sorted(expected)}"
    for name, value in expected.items():
        other = found[name]
        if (other.dtype, other.shape) != (value.dtype, value.shape):
            return f"{name} is {other.dtype}{other.shape} instead of {value.dtype}{value.shape}"
        ours, theirs = _comparable(other), _comparable(value)
        wrong = (ours != theirs) & ~((ours != ours) & (theirs != theirs))
        if wrong.any():
            places = np.argwhere(wrong)
            shown = ", ".join(
                f"{name}{tuple(map(int, p))} is {ours[tuple(p)]}, should be {theirs[tuple(p)]}"
                for p in places[:_SHOWN_DIFFERENCES]
            )
            return f"{len(places)} of {wrong.size} elements of {name} differ: {shown}"
    return ""


def _comparable(array: Array) -> Array:
    """Floats in double precision, since NumPy does not know bfloat16."""
    return array.astype(np.float64) if array.dtype.kind in "fV" else array


def _of_error(error: Exception) -> Outcome:
    trace = _last_frames(error)
    code = _CUDA_ERROR.search(str(error))
    match error:
        case RuntimeError() | TcompError() if code is not None:
            return Outcome(Verdict.FAILED, f"CUDA: {code[0]}", trace)
        case SpoiledError():
            return Outcome(Verdict.FAILED, "written where it must not be", trace)
        case SimulationError():
            return Outcome(Verdict.FAILED, f"simulator: {error.report.findings[0].kind}", str(error))
        case TooComplexError() | MissingPackageError() | MissingOperationError():
            return Outcome(Verdict.REFUSED, normalised(error.message))
        case LegalityError():
            return Outcome(Verdict.FAILED, "illegal plan", trace)
        case TcompError():
            return Outcome(Verdict.FAILED, f"{type(error).__name__}: {normalised(error.message)}", trace)
        case _:
            last = traceback.extract_tb(error.__traceback__)[-1]
            return Outcome(Verdict.FAILED, f"{type(error).__name__} in {Path(last.filename).name}:{last.name}", trace)


def _last_frames(error: Exception) -> str:
    """The message and where it comes from, innermost call first; folders are left out, as they are one machine's."""
    frames = traceback.extract_tb(error.__traceback__)[-_SHOWN_FRAMES:]
    places = [f"  {Path(f.filename).name}:{f.lineno} in {f.name}: {f.line}" for f in reversed(frames)]
    return "\n".join([f"{type(error).__name__}: {error}", *places])


def normalised(message: str) -> str:
    """A message without names and numbers, so that those of one cause are equal."""
    return re.sub(r"[`'].*?[`']|-?\d+|\b[A-Z]\w*\(.*\)|\b[A-Z]\d*\b", "_", message.split("\n")[0])
