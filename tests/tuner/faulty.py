"""A backend whose kernels have faults: the option ``unroll``, which means nothing on a CPU, says which one.

Sandboxes import ``tests.tuner.faultytarget``, which adds the target; tests add it while they run, since other tests
list the targets.
"""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from tcomp.arrays.devices import Memory
from tcomp.backends.c.target import CpuBackend
from tcomp.backends.host import native
from tcomp.backends.host.runtime import HostRuntime
from tcomp.backends.source import Source
from tcomp.grammar.tree.function import Function
from tcomp.loops.ir import LoopNode
from tcomp.mapping.machines.cpu import this_machine
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.strategy import Pass
from tcomp.runtime.registry import Availability, Target
from tcomp.tuner.database.trials import Outcome

TARGET = "faulty"


def _first(code: str) -> Callable[[Source], Source]:
    """A kernel that does something before all else."""
    return lambda source: replace(source, text=source.text.replace("report)\n{", f"report)\n{{\n  {code}", 1))


def _last(code: str) -> Callable[[Source], Source]:
    """A kernel that does something before it returns."""

    def changed(source: Source) -> Source:
        body, _, end = source.text.rpartition("  return 0;")
        return replace(source, text=f"{body}  {code}\n  return 0;{end}")

    return changed


def _killed(_: Source) -> Source:
    os.kill(os.getpid(), signal.SIGSEGV)
    raise AssertionError


def _endless(_: Source) -> Source:
    while True:
        pass


def _waiting(source: Source) -> Source:
    """A text that the compiler reads for ever: it includes a pipe into which nobody writes."""
    pipe = Path(tempfile.mkdtemp(), "pipe")
    os.mkfifo(pipe)
    return replace(source, text=f'#include "{pipe}"\n{source.text}')


def _greedy(source: Source) -> Source:
    return replace(source, text="x" * (1 << 50))


@dataclass(frozen=True, slots=True)
class Fault:
    """What is done to a kernel, what becomes of the candidate, and a word of what is said about it.

    ``compiles`` says whether it fails only when measured.
    """

    change: Callable[[Source], Source]
    outcome: Outcome
    word: str
    compiles: bool = True


FAULTS: Mapping[str, Fault] = {
    "writes to address 8": Fault(_first("*(volatile int *)8 = 0;"), Outcome.CRASHED, "SIGSEGV while its first call"),
    "traps": Fault(_first("__builtin_trap();"), Outcome.CRASHED, "SIGILL"),
    "overflows the stack": Fault(
        _first(
            "int deeper(int n) { volatile char much[1 << 16]; much[n] = 1; return deeper(n) + much[n]; } deeper(0);"
        ),
        Outcome.CRASHED,
        "SIGSEGV",
    ),
    "never returns": Fault(_first("for (volatile int i = 1; i;) ;"), Outcome.HUNG, "its first call took more than"),
    "never returns later": Fault(
        _first("static int calls; for (volatile int i = calls++ > 4; i;) ;"), Outcome.HUNG, "took more than"
    ),
    "adds to one element": Fault(_last("v_C[5] += 1;"), Outcome.WRONG, "C(0, 5) is"),
    "gives NaN": Fault(_last("v_C[5] = 0.0f / 0.0f;"), Outcome.WRONG, "is nan"),
    "gives infinity": Fault(_last("v_C[5] = 1.0f / 0.0f;"), Outcome.WRONG, "is inf"),
    "writes nothing": Fault(_first("return 0;"), Outcome.WRONG, "is nan"),
    "is right at first": Fault(
        _last("static int calls; if (calls++ > 4) v_C[5] += 1;"), Outcome.WRONG, "at first right, later wrong"
    ),
    "has a strange status": Fault(_last("return 5;"), Outcome.REJECTED, "status 5"),
    "wants too much memory": Fault(
        lambda source: replace(source, scratch_bytes=1 << 45), Outcome.OUT_OF_MEMORY, "there is no room"
    ),
    "is no C": Fault(_first("#error no C"), Outcome.REJECTED, "no C", compiles=False),
    "has an endless text": Fault(_waiting, Outcome.HUNG, "took more than", compiles=False),
    "crashes the compiler": Fault(_killed, Outcome.CRASHED, "SIGSEGV", compiles=False),
    "never compiles": Fault(_endless, Outcome.HUNG, "took more than", compiles=False),
    "has no room for its text": Fault(_greedy, Outcome.OUT_OF_MEMORY, "", compiles=False),
}

_FIRST = 1001


def options_with(fault: str) -> MappingOptions:
    """Options under which the target has a fault."""
    return MappingOptions(unroll=_FIRST + list(FAULTS).index(fault))


@dataclass(frozen=True, slots=True)
class FaultyBackend:
    """The CPU's, but for faults."""

    sound: CpuBackend
    name: str = TARGET

    @property
    def passes(self) -> tuple[Pass, ...]:
        return self.sound.passes

    def emit(self, function: Function, plan: Plan, loops: LoopNode, options: MappingOptions, checked: bool) -> Source:
        source = self.sound.emit(function, plan, loops, options, checked)
        number = -1 if options.unroll is None else options.unroll - _FIRST
        return list(FAULTS.values())[number].change(source) if number >= 0 else source


FAULTY = Target(
    lambda _: FaultyBackend(CpuBackend(this_machine())),
    lambda _: HostRuntime(native.load),
    Memory.MAIN,
    lambda _: Availability(True, "for tests"),
)
"""A row of the registry, as for any target of one's own."""
