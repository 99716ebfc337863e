"""Bounds of machines so small that programs of test size meet them.

For longer than the suite may take: ``python -m tests.properties.machines --seconds 300 --seed 1``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

from hypothesis import strategies as st

from tcomp.backends import arena
from tcomp.backends.c import parallel as parallelloops
from tcomp.backends.c.rows import streaming
from tcomp.fuzzing.campaign import Campaign, Settings
from tcomp.fuzzing.cases import Case, read_case
from tcomp.fuzzing.draws import Draw, Drawn
from tcomp.fuzzing.execution import Outcome, Verdict
from tcomp.fuzzing.workers import Worker, answered
from tcomp.mapping import strategy
from tcomp.mapping.cpu.fusion import cpu_tiling
from tcomp.mapping.fusion.tiling import Tiling
from tcomp.mapping.machines import cpu as machine
from tcomp.mapping.machines.cpu import Machine, this_machine
from tcomp.mapping.machines.fitted.cputext import THREADS, VECTOR_ROWS
from tcomp.mapping.machines.fitted.cputiles import CACHES
from tcomp.runtime import registry


def _small_tiling(machine: Machine) -> Tiling:
    return replace(cpu_tiling(machine), tile_bytes=512)


@dataclass(frozen=True, slots=True)
class Bounds:
    """Which bounds are small; False leaves one as it is."""

    many_threads: bool
    small_stack: bool
    small_cache: bool
    few_registers: bool

    @contextmanager
    def imitated(self) -> Iterator[None]:
        """The bounds put in place of the real ones."""
        with ExitStack() as stack:
            for wanted, module, name, value in (
                (self.many_threads, parallelloops, "THREADS", replace(THREADS, parallel_instances=1)),
                (self.small_stack, arena, "STACK_BYTES", 64),
                (self.small_cache, strategy, "cpu_tiling", _small_tiling),
                (self.small_cache, machine, "CACHES", replace(CACHES, last_share=0.0)),
                (self.small_cache, streaming, "VECTOR_ROWS", replace(VECTOR_ROWS, least_lines=1)),
                (self.few_registers, registry, "this_machine", lambda: _SMALL),
            ):
                if wanted:
                    stack.enter_context(mock.patch.object(module, name, value))
            yield


_SMALL = replace(this_machine(), vector_bytes=8, registers=6, threads=2)

BOUNDS = st.builds(Bounds, st.booleans(), st.booleans(), st.booleans(), st.booleans())


def answered_on_a_small_machine(request: Draw | Case) -> Drawn | Outcome:
    """As ``answered``, but the bits of a case's variation say which bounds are small."""
    if isinstance(request, Draw):
        return answered(request)
    bits = request.variation
    with Bounds(bool(bits & 1), bool(bits & 2), bool(bits & 4), bool(bits & 8)).imitated():
        return answered(request)


def _show(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Try random programs on small machines, or run reproducers of this command again; 1 if anything fails."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--replay", type=Path, nargs="*", default=[])
    arguments = parser.parse_args()
    if arguments.replay:
        with Worker(300.0, answered_on_a_small_machine) as worker:
            outcomes = [worker.run(read_case(path.read_text(encoding="utf-8"))).outcome for path in arguments.replay]
        sys.stdout.write("".join(f"{path}: {o}\n" for path, o in zip(arguments.replay, outcomes, strict=True)))
        return 0 if all(o.verdict is Verdict.PASSED for o in outcomes) else 1
    settings = Settings(arguments.seconds, arguments.seed, ("cpu",), 1, arguments.keep, 300.0, 300.0)
    tally = Campaign(settings, _show, answered_on_a_small_machine).run(60.0)
    sys.stdout.write(f"{tally}\n")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
