"""Faults planted in kernels that the compiler made are found by the simulator in every order; the kernels have none.

``python -m tests.cuda.test_planted_faults`` prints the table of faults and what became of them.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pytest

from tcomp.backends.simulator.simulation import Order, Settings
from tcomp.mapping.options.options import MappingOptions
from tests.agreement import assert_agrees
from tests.cuda.compiled import compiled_text, data_for, run
from tests.cuda.faults import Fault, FaultKind, faults
from tests.cuda.simulated import NEEDS_COMPILER
from tests.cuda.texts import EXAMPLES, Text

pytestmark = [NEEDS_COMPILER, pytest.mark.sweep(10)]

ORDERS: tuple[Order, ...] = ("forward", "reverse", "random")

OPTIONS: Mapping[str, MappingOptions] = {
    "matmul": MappingOptions(tile_sizes=(16, 16), threads=(8, 8)),
    "softmax": MappingOptions(threads=(128,)),
    "softmax in four kernels": MappingOptions(fusion_strategy="min"),
    "layer_norm": MappingOptions(threads=(128,)),
    "blur": MappingOptions(tile_sizes=(8, 32), threads=(16, 4), recompute_limit=4.0),
    "mlp": MappingOptions(tile_sizes=(8,), threads=(8, 8), match_reductions=False),
    "transpose": MappingOptions(tile_sizes=(16, 16), threads=(16, 4)),
    "gather": MappingOptions(tile_sizes=(4, 16), threads=(16, 4)),
}
"""What makes a kernel have something of everything; the others are mapped by default."""

NAMES = [*EXAMPLES, "softmax in four kernels"]

MAY_ONLY_CHANGE_VALUES = (FaultKind.OFF_BY_ONE, FaultKind.WRITE_REMOVED, FaultKind.GUARD_REMOVED)
"""What is read instead may hold a value, too: that of a neighbour, or of an earlier tile.

That is no misuse of memory: the comparison with the reference finds it.
"""

MAY_CHANGE_NOTHING = (FaultKind.GUARD_REMOVED,)
"""A test that tells full tiles from others only saves time."""


@dataclass(frozen=True)
class Outcome:
    """A planted fault: whether it was reported in every order, at its kernel and buffer, and whether values differ."""

    fault: Fault
    found: bool
    different: bool
    reports: tuple[str, ...]

    @property
    def accepted(self) -> bool:
        """Whether that is all that can be asked."""
        if self.found:
            return True
        return self.fault.kind in (MAY_ONLY_CHANGE_VALUES if self.different else MAY_CHANGE_NOTHING)

    def __str__(self) -> str:
        return "\n  ".join((str(self.fault), *self.reports))


def example(name: str) -> Text:
    """The program of a name."""
    return EXAMPLES[name.partition(" in ")[0]]


def outcomes(name: str) -> list[Outcome]:
    """Plant every fault in a program and simulate it in every order."""
    compilation = compiled_text(example(name), OPTIONS.get(name))
    data = data_for(example(name), compilation)
    found = []
    for fault in faults(compilation.source):
        source = replace(compilation.source, text=fault.text)
        reports = []
        different = False
        for order in ORDERS:
            report, results = run(source, data, Settings(order, seed=fault.line))
            reports.append(report)
            different |= any(
                not np.allclose(results[n], expected, rtol=1e-4, atol=1e-4, equal_nan=True)
                for n, expected in data.expected.items()
            )
        seen = all(
            any(f.kernel == fault.kernel and (not fault.buffers or f.buffer in fault.buffers) for f in r.findings)
            for r in reports
        )
        found.append(Outcome(fault, seen, different, tuple(str(r) for r in reports)))
    return found


def table(results: Mapping[str, list[Outcome]]) -> str:
    """One line per program: for every kind, how many were planted and how many the simulator found."""
    rows = [["", *FaultKind]]
    for name, found in results.items():
        rows.append([name, *(_score(found, kind) for kind in FaultKind)])
    everything = [o for found in results.values() for o in found]
    rows.append(["all", *(_score(everything, kind) for kind in FaultKind)])
    widths = [max(len(row[n]) for row in rows) for n in range(len(rows[0]))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def _score(found: list[Outcome], kind: FaultKind) -> str:
    own = Counter(
        "found" if o.found else "values" if o.different else "harmless" for o in found if o.fault.kind == kind
    )
    planted = own.total() - own["harmless"]
    notes = ", ".join(f"{own[what]} {what}" for what in ("values", "harmless") if own[what])
    return f"{own['found']}/{planted}{f' ({notes})' if notes else ''}" if own else "-"


@pytest.mark.parametrize("name", NAMES)
def test_every_planted_fault_is_found(name: str) -> None:
    found = outcomes(name)
    sys.stdout.write(f"\n{table({name: found})}\n")
    missed = [o for o in found if not o.accepted]
    assert not missed, "\n".join(map(str, missed))
    by_values = sum(not o.found and o.different for o in found)
    assert found and by_values <= len(found) / 4


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_found_in_what_the_compiler_makes(name: str, order: Order) -> None:
    compilation = compiled_text(example(name), OPTIONS.get(name))
    data = data_for(example(name), compilation)
    report, found = run(compilation.source, data, Settings(order, seed=1))
    assert not report.findings, str(report)
    assert_agrees(compilation.function, data.inputs, found)


@pytest.mark.parametrize("kind", FaultKind)
def test_every_kind_is_planted_in_several_programs(kind: FaultKind) -> None:
    having = [
        name
        for name in NAMES
        if any(f.kind is kind for f in faults(compiled_text(example(name), OPTIONS.get(name)).source))
    ]
    of_pipelines = (FaultKind.WAIT_REMOVED, FaultKind.WAIT_SHORT, FaultKind.STAGE_IN_USE)
    assert len(having) >= (2 if kind in of_pipelines else 5), having


def main() -> int:
    """Print the table of all programs and the faults that were missed."""
    results = {name: outcomes(name) for name in NAMES}
    sys.stdout.write(f"{table(results)}\n")
    missed = [o for found in results.values() for o in found if not o.accepted]
    for outcome in missed:
        sys.stdout.write(f"\nmissed: {outcome}\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
