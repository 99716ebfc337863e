"""Open this first: how a checked function becomes the source of a kernel."""

from __future__ import annotations

import functools
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from tcomp import debug
from tcomp.backends.source import Source
from tcomp.build import build
from tcomp.codegen import generate_loops
from tcomp.grammar.function import Function
from tcomp.islbounds import Bounds, TooComplexError, bounded
from tcomp.loops import LoopNode, render
from tcomp.mapping.legality import prove, prove_complete
from tcomp.mapping.options import MappingOptions
from tcomp.mapping.plan import Plan
from tcomp.mapping.planreader import read_plan
from tcomp.mapping.plantext import plan_text
from tcomp.mapping.strategy import Pass, resume
from tcomp.mapping.structure import check_structure
from tcomp.nest import nest
from tcomp.schedule import schedule
from tcomp.scop import Scop, Sizes

_UNFUSED = "isl gave up on this program with fusion, so there is none"

Value = TypeVar("Value")


class Backend(Protocol):
    """A target's manifest: its name, its pass list, and how it spells loops."""

    @property
    def name(self) -> str: ...

    @property
    def passes(self) -> tuple[Pass, ...]: ...

    def emit(
        self, function: Function, plan: Plan, loops: LoopNode, options: MappingOptions, checked: bool
    ) -> Source: ...


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
        """The shape of the loops in one line (``tcomp.nest``)."""
        return nest(self.loops, {s.name: s.indices for s in self.plan.scop.statements}, self.plan.phases)

    @property
    def stages(self) -> dict[str, str]:
        """The text of every stage, in pipeline order."""
        texts = {"input": self.function.source.text, "function": f"{self.function}\n", "scop": str(self.scop)}
        texts |= {name: plan_text(plan, name) for name, plan in self.plans.items()}
        return texts | {"loops": render(self.loops), "kernel": self.source.text}


class Trace:
    """What the pipeline leaves behind: the seconds of each stage and the plan after each pass."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.plans: dict[str, Plan] = {}
        self._last = time.perf_counter()

    def __call__(self, stage: str, value: Value) -> Value:
        """Note that ``value``, the result of a stage, has just been made; returns it."""
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self._last
        self._last = now
        if isinstance(value, Plan):
            self.plans[stage] = value
        return value


def lower(
    function: Function,
    sizes: Sizes,
    options: MappingOptions,
    backend: Backend,
    checked: bool = True,
    given: str | None = None,
) -> Compilation:
    """The kernel's source and every stage on the way.  ``checked`` guards data-dependent subscripts.

    ``given`` is the text of a plan, changed by hand perhaps, from which passes go on instead of a plan of their own.
    A program that is too complex with fusion is compiled without; a note of the plan says so.

    Raises ShapeError or CompileError as range inference does, CompileError for a program on which isl takes too long,
    PlanError if the plan that is given is none of this program, and LegalityError if it or a pass breaks a dependence.
    """
    trace = Trace()
    try:
        return _lower(function, sizes, options, backend, checked, given, (), trace)
    except TooComplexError:
        if given is not None or options.fusion_strategy == "min" or not trace.plans:
            raise
    debug.log(1, f"{function.name}: {_UNFUSED}")
    unfused = replace(options, fusion_strategy="min")
    return _lower(function, sizes, unfused, backend, checked, None, (_UNFUSED,), Trace())


def _lower(
    function: Function,
    sizes: Sizes,
    options: MappingOptions,
    backend: Backend,
    checked: bool,
    given: str | None,
    notes: tuple[str, ...],
    trace: Trace,
) -> Compilation:
    with bounded(function) as bounds:
        scop = trace("scop", bounds(lambda: build(function, sizes)))
        if given is None:
            first = trace("schedule", bounds(lambda: replace(schedule(scop, options), notes=notes)))
            plan = run_passes(first, options, backend.passes, trace, bounds)
        else:
            plan = _complete(given, scop, options, backend.passes, trace, bounds)
        loops = trace("loops", bounds(lambda: generate_loops(plan)))
        source = trace("emit", bounds(lambda: backend.emit(function, plan, loops, options, checked)))
    return Compilation(function, scop, trace.plans, loops, source, trace.seconds)


def _complete(
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
        return run_passes(plan, options, left.rest, trace, bounds)
    bounds(lambda: prove_complete(plan, f"{stage}, as given"))
    return plan


def run_passes(plan: Plan, options: MappingOptions, passes: tuple[Pass, ...], trace: Trace, bounds: Bounds) -> Plan:
    """Apply passes in order and prove the last plan; under TCOMP_CHECK=1 prove each."""
    for step in passes:
        plan = trace(step.name, bounds(functools.partial(step.run, plan, options)))
        if step is passes[-1] or debug.check_every_pass():
            bounds(functools.partial(prove, plan, step.name))
            trace("proof", None)
    bounds(lambda: prove_complete(plan, passes[-1].name))
    return plan
