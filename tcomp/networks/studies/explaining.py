"""A compiled network in words: what was decided, then a line for each kernel."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tcomp.networks.options import NetworkOptions
from tcomp.networks.rewriting.applying import told

if TYPE_CHECKING:
    from tcomp.networks.program import CompiledNetwork


def explained(net: CompiledNetwork) -> str:
    """What runs, one line a kernel, and where its results lie."""
    apart = sum(life.bytes for life in net.lives)
    off = [name for name in NetworkOptions.passes() if not getattr(net.options, name)]
    calls = f"in {net.entries} calls" if net.entries > 1 else "in one call"
    counts = f"{len(net.source.calls)} calls, {len(net.steps)} steps, {net.kernels} kernels, {calls}"
    lines = [
        f"{net.network.name}: {counts}",
        f"weights {net.weight_bytes:,} bytes as they are, and {net.panel_bytes:,} in panels",
        f"results between kernels {net.places.bytes:,} bytes ({apart:,} if apart)",
    ]
    lines += [f"left out: {', '.join(off)}"] if off else []
    lines += [] if net.agreement is None else [f"agreement: {net.agreement}"]
    lines += told(net.rewrites)
    return "\n".join([*lines, *_kernels(net)])


def _kernels(net: CompiledNetwork) -> Iterator[str]:
    values = net.network.by_name
    chosen = {choice.value: choice for choice in net.choices}
    for run in net.runs:
        if run.turns > 1:
            batch = net.network.inputs[0].shape[0]
            steps = f"{len(run.steps)} steps" if len(run.steps) > 1 else "1 step"
            yield f"in {run.turns} turns, {batch // run.turns} of {batch} at a time: {steps}"
        elif run.steps.start:
            yield "all at once:"
        for number in run.steps:
            step = net.steps[number]
            name = step.group.results[0]
            offset = net.places.offsets.get(net.layout_of(name).root)
            where = f"at {offset:,}" if offset is not None else "a result"
            shape = "x".join(map(str, values[name].shape))
            which = f"kernel {step.number:<4}" if step.kernel is not None else "outside    "
            yield f"{number:4} {which} {name} ({shape}, {where}): {step.told}"
            made = [result for call in step.group.calls for result in call.results]
            yield from (f"     {chosen[result]}" for result in made if result in chosen)
