"""Open this first: how a checked function becomes the source of a kernel."""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from tcomp import debug
from tcomp.backends.source import Source
from tcomp.errors import Diagnostic, LegalityError
from tcomp.grammar.tree.function import Function
from tcomp.loops.codegen import generate_loops
from tcomp.loops.ir import LoopNode, render
from tcomp.loops.nest import nest
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.schedule import schedule
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.proof.legality import prove, prove_complete
from tcomp.mapping.strategy import Pass, planting, resume
from tcomp.mapping.text.reader import read_plan
from tcomp.mapping.text.structure import check_structure
from tcomp.mapping.text.writer import plan_text
from tcomp.model.build import build
from tcomp.model.islbounds import Bounds, TooComplexError, bounded
from tcomp.model.scop import Scop
from tcomp.model.terms.sizes import Sizes

_NAME = re.compile(r"\bS\d+\w*")
_UNFUSED = "isl gave up on this program with fusion, so there is none"

Value = TypeVar("Value")
Announce = Callable[[Source], object]


class Backend(Protocol):
    """A target's manifest: its name, its pass list, and how it spells loops."""

    @property
    def name(self) -> str: ...

    @property
    def passes(self) -> tuple[Pass, ...]: ...

    def emit(self, function: Function, plan: Plan, loops: LoopNode, options: MappingOptions, checked: bool) -> Source:
        """The text of a kernel.  Of options it reads those alone that are not planted there."""
        ...


@dataclass(frozen=True, eq=False)
class Compilation:
    """Everything between the text and the kernel.  ``plans`` holds the plan after each pass, by name, in order."""

    function: Function
    scop: Scop
    plans: Mapping[str, Plan]
    loops: LoopNode
    source: Source
    seconds: Mapping[str, float]

    @property
    def plan(self) -> Plan:
        """The final plan."""
        return list(self.plans.values())[-1]

    @property
    def nest(self) -> str:
        """The shape of the loops in one line (``tcomp.loops.nest``)."""
        return nest_of(self.plan, self.loops)

    @property
    def parts(self) -> tuple[tuple[str, Plan, str], ...]:
        """What runs one after another: a title, the final plan and the shape of the loops."""
        return (("", self.plan, self.nest),)

    @property
    def stages(self) -> dict[str, str]:
        """The text of every stage, in pipeline order."""
        source, whole = self.function.source, f"{self.function}\n"
        # A text that uses others says nothing without them.
        texts = {"input": whole if source.parts else source.text, "function": whole, "scop": str(self.scop)}
        texts |= {name: plan_text(plan, name) for name, plan in self.plans.items()}
        return texts | {"loops": render(self.loops), "kernel": self.source.text}


def nest_of(plan: Plan, loops: LoopNode) -> str:
    """The shape of the loops of a plan in one line."""
    return nest(loops, {s.name: s.indices for s in plan.scop.statements}, plan.phases)


class Trace:
    """What the pipeline leaves behind: the seconds of each stage and the plan after each pass."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.plans: dict[str, Plan] = {}
        self._last = time.perf_counter()

    def add(self, other: Trace) -> None:
        """Take in what was traced meanwhile."""
        for stage, seconds in other.seconds.items():
            self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds
        self._last = time.perf_counter()

    def __call__(self, stage: str, value: Value) -> Value:
        """Note that ``value``, the result of a stage, has just been made; returns it."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now
        if isinstance(value, Plan):
            self.plans[stage] = value
        return value


@dataclass(frozen=True, eq=False)
class Scheduled:
    """A compilation as far as it is the same for all options: the scop, and the plan that the scheduler made."""

    scop: Scop
    plan: Plan


@dataclass(frozen=True, eq=False)
class Begun:
    """A compilation as far as the plan whose tree no later pass makes anew.

    Options of one program that have this plan in common, and the values of all options that are not planted on a
    target, have the same code there.
    """

    scop: Scop
    plan: Plan
    trace: Trace


def scheduled(function: Function, sizes: Sizes) -> Scheduled:
    """The first steps of ``begin``, for whatever options.  Raises what that raises."""
    with bounded(function) as bounds:
        return _scheduled(function, sizes, Trace(), bounds)


def begin(
    function: Function, sizes: Sizes, options: MappingOptions, backend: Backend, first: Scheduled | None = None
) -> Begun:
    """The first part of ``lower``; ``first`` is what ``scheduled`` gave for the same.

    Raises what ``lower`` raises, and TooComplexError where that goes on without fusion.
    """
    with bounded(function) as bounds:
        return _begin(function, sizes, options, backend, (), Trace(), bounds, first)


def lower(
    function: Function,
    sizes: Sizes,
    options: MappingOptions,
    backend: Backend,
    checked: bool = True,
    given: str | None = None,
    begun: Begun | None = None,
    announce: Announce = lambda _: None,
) -> Compilation:
    """The kernel's source and every stage on the way.  ``checked`` guards data-dependent subscripts.

    ``announce`` is told the source before the plan behind it is proved, so that it may be compiled meanwhile.

    ``given`` is the text of a plan, changed by hand perhaps, from which passes go on instead of a plan of their own;
    ``begun`` is what ``begin`` gave for the same, which goes on from there.
    A program that is too complex with fusion is compiled without; a note of the plan says so.

    Raises ShapeError or CompileError as range inference does, CompileError for a program on which isl takes too long,
    PlanError if the plan that is given is none of this program, and LegalityError if it or a pass breaks a dependence.
    """
    trace = Trace() if begun is None else begun.trace
    try:
        return _lower(
            function, sizes, options, backend, checked, begun if given is None else given, (), trace, announce
        )
    except TooComplexError:
        if given is not None or options.fusion_strategy == "min" or not trace.plans:
            raise
    debug.log(1, f"{function.name}: {_UNFUSED}")
    return _lower(function, sizes, options.unfused(), backend, checked, None, (_UNFUSED,), Trace(), announce)


def _lower(
    function: Function,
    sizes: Sizes,
    options: MappingOptions,
    backend: Backend,
    checked: bool,
    given: str | Begun | None,
    notes: tuple[str, ...],
    trace: Trace,
    announce: Announce,
) -> Compilation:
    with bounded(function) as bounds:
        if isinstance(given, str):
            scop = trace("scop", bounds(lambda: build(function, sizes)))
            try:
                plan = complete(given, scop, options, backend.passes, trace, bounds)
            except LegalityError as error:
                raise _with_statements(error, function, scop) from None
        else:
            begun = given or _begin(function, sizes, options, backend, notes, trace, bounds)
            scop, left = begun.scop, backend.passes[len(planting(backend.passes)) :]
            plan = run_passes(begun.plan, options, left, trace, bounds)
        loops = trace("loops", bounds(lambda: generate_loops(plan)))
        source = trace("emit", bounds(lambda: backend.emit(function, plan, loops, options, checked)))
        source = replace(source, warnings=scop.warnings)
        announce(source)
        if not isinstance(given, str):
            prove_last(plan, backend.passes[-1], trace, bounds)
    return Compilation(function, scop, trace.plans, loops, source, trace.seconds)


def _begin(
    function: Function,
    sizes: Sizes,
    options: MappingOptions,
    backend: Backend,
    notes: tuple[str, ...],
    trace: Trace,
    bounds: Bounds,
    first: Scheduled | None = None,
) -> Begun:
    made = first or _scheduled(function, sizes, trace, bounds)
    plan = trace("schedule", replace(made.plan, notes=notes))
    return Begun(made.scop, run_passes(plan, options, planting(backend.passes), trace, bounds), trace)


def _scheduled(function: Function, sizes: Sizes, trace: Trace, bounds: Bounds) -> Scheduled:
    scop = trace("scop", bounds(lambda: build(function, sizes)))
    return Scheduled(scop, trace("schedule", bounds(lambda: schedule(scop))))


def complete(
    given: str, scop: Scop, options: MappingOptions, passes: tuple[Pass, ...], trace: Trace, bounds: Bounds
) -> Plan:
    """The plan that is given, proved, and what the passes that are left make of it."""
    stage, plan = bounds(lambda: read_plan(given, scop))
    left = resume(stage, passes)
    bounds(lambda: check_structure(plan, left.buffered))
    trace(stage, plan)
    bounds(lambda: prove(plan, f"{stage}, as given"))
    trace("proof", None)
    if left.rest:
        plan = run_passes(plan, options, left.rest, trace, bounds)
        prove_last(plan, left.rest[-1], trace, bounds)
    else:
        bounds(lambda: prove_complete(plan, f"{stage}, as given"))
    return plan


def _with_statements(error: LegalityError, function: Function, scop: Scop) -> LegalityError:
    """A refusal with the lines of the program that it calls S0, S1 and so on."""
    names = [name for name in dict.fromkeys(_NAME.findall(error.message)) if name in scop.by_name]
    spans = {name: function.statements[scop.by_name[name].origin].span for name in names}
    return LegalityError(
        *error.diagnostics,
        *(Diagnostic(f"this is {name}", function.source, span, severity="note") for name, span in spans.items()),
    )


def run_passes(plan: Plan, options: MappingOptions, passes: tuple[Pass, ...], trace: Trace, bounds: Bounds) -> Plan:
    """Apply passes in order; under TCOMP_CHECK=1 prove the plan of each, as far as the one before was another."""
    proved: Plan | None = None
    for step in passes:
        plan = trace(step.name, bounds(functools.partial(step.run, plan, options)))
        if debug.check_every_pass():
            bounds(functools.partial(prove, plan, step.name, proved))
            trace("proof", None)
            proved = plan
    return plan


def prove_last(plan: Plan, step: Pass, trace: Trace, bounds: Bounds) -> None:
    """Prove the plan of the last pass, unless that is done."""
    if not debug.check_every_pass():
        bounds(lambda: prove(plan, step.name))
        trace("proof", None)
    bounds(lambda: prove_complete(plan, step.name))
