"""Which pass pays: the time and the memory of a network with each pass left out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tcomp.networks.network import Network
from tcomp.networks.options import NetworkOptions
from tcomp.networks.program import CompiledNetwork

_ENERGY = Path("/sys/class/powercap/intel-rapl:0/energy_uj")


@dataclass(frozen=True, slots=True)
class Row:
    """What a network takes without a pass: seconds of a call, kernels that run, bytes, joules.

    Bytes are those of weights, of their panels and of results between kernels.

    ``same`` says that the pass changes nothing here, so that nothing was measured; joules are None where nothing tells.
    """

    without: str
    seconds: float
    steps: int
    bytes: int
    joules: float | None
    same: bool


@dataclass(frozen=True, slots=True)
class Ablation:
    """The whole network, then without each pass."""

    rows: tuple[Row, ...]

    def __str__(self) -> str:
        whole = self.rows[0]
        lines = [f"{'without':16} {'ms':>8} {'ratio':>6} {'kernels':>7} {'bytes':>13} {'mJ':>8}"]
        for row in self.rows:
            energy = f"{1e3 * row.joules:8.1f}" if row.joules is not None else f"{'-':>8}"
            told = f"{row.without or 'nothing':16} {1e3 * row.seconds:8.3f} {row.seconds / whole.seconds:6.3f}"
            lines.append(
                f"{row.without:16} changes nothing here"
                if row.same
                else f"{told} {row.steps:7} {row.bytes:13,} {energy}"
            )
        if whole.joules is None:
            lines.append(f"energy cannot be read here: {_ENERGY} is not there, or not readable")
        return "\n".join(lines)


def ablate(network: Network, inputs: Sequence[Any], rounds: int = 15) -> Ablation:
    """Measure a network with all passes and without each, in turn, ``rounds`` times; medians.

    Raises what compiling and calling raise.
    """
    nets = {"": CompiledNetwork(network)}
    for name in NetworkOptions.passes():
        nets[name] = CompiledNetwork(network, {name: False})
    whole = nets[""]
    same = {name for name, net in nets.items() if name and name != "one_call" and _alike(net, whole)}
    measured = {name: net for name, net in nets.items() if name not in same}
    for net in measured.values():
        net(*inputs)
    times: dict[str, list[float]] = {name: [] for name in measured}
    energies: dict[str, list[float]] = {name: [] for name in measured}
    for _ in range(max(1, rounds)):
        for name, net in measured.items():
            joules, start = _joules(), time.perf_counter()
            net(*inputs)
            times[name].append(time.perf_counter() - start)
            after = _joules()
            if joules is not None and after is not None and after >= joules:
                energies[name].append(after - joules)
    rows = []
    for name, net in nets.items():
        found = name if name in measured else ""
        seconds = float(np.median(times[found]))
        joules = float(np.median(energies[found])) if energies[found] else None
        memory = net.weight_bytes + net.panel_bytes + net.places.bytes
        rows.append(Row(name, seconds, len(net.steps), memory, joules, name in same))
    return Ablation(tuple(rows))


def _alike(net: CompiledNetwork, other: CompiledNetwork) -> bool:
    """Whether the same kernels run on the same places."""

    def facts(one: CompiledNetwork) -> tuple[Any, ...]:
        keys = [s.kernel.specialisation.key() if s.kernel is not None else "" for s in one.steps]
        return keys, [(s.group.arguments, s.group.results) for s in one.steps], one.places

    return facts(net) == facts(other)


def _joules() -> float | None:
    """What the processor has used since some time; None where that cannot be read."""
    try:
        return 1e-6 * int(_ENERGY.read_text())
    except (OSError, ValueError):
        return None
