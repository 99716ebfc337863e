"""Which pass pays: the time and the memory of a network with each pass left out."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tcomp.errors import Diagnostic, NetworkError
from tcomp.networks.network import Network
from tcomp.networks.options import NetworkOptions
from tcomp.networks.program import CompiledNetwork
from tcomp.networks.studies.fresh import FirstAnswer, first_answer

EVERY = "all"
"""What stands for all passes at once."""

_ENERGY = Path("/sys/class/powercap/intel-rapl:0/energy_uj")


@dataclass(frozen=True, slots=True)
class Row:
    """What a network takes without a pass: seconds of a call, kernels that run, bytes, joules.

    Bytes are those of weights, of their panels and of results between kernels.

    ``same`` says that the pass changes nothing here, so that nothing was measured; joules are None where nothing tells.
    ``compiling`` is the seconds in which it is compiled where no kernel is known, and ``peak`` the bytes by which a
    process grows at most that compiles it and runs it once; None where that was not asked for, or nothing tells.
    """

    without: str
    seconds: float
    steps: int
    bytes: int
    joules: float | None
    same: bool
    compiling: float | None = None
    peak: int | None = None


@dataclass(frozen=True, slots=True)
class Ablation:
    """The whole network, then without each pass."""

    rows: tuple[Row, ...]

    def to_json(self) -> str:
        """The rows."""
        return json.dumps({"rows": [asdict(row) for row in self.rows]}, indent=1)

    def __str__(self) -> str:
        whole = self.rows[0]
        head = f"{'without':18} {'ms':>8} {'ratio':>6} {'kernels':>7} {'bytes':>13} {'mJ':>8} {'compile s':>9}"
        lines = [f"{head} {'peak bytes':>13}"]
        for row in self.rows:
            told = f"{row.without or 'nothing':18} {1e3 * row.seconds:8.3f} {row.seconds / whole.seconds:6.3f}"
            told += f" {row.steps:7} {row.bytes:13,} {_told(row.joules, '8.1f', 1e3)}"
            told += f" {_told(row.compiling, '9.2f')} {_told(row.peak, '13,')}"
            lines.append(f"{row.without:18} changes nothing here" if row.same else told)
        if whole.joules is None:
            lines.append(f"energy cannot be read here: {_ENERGY} is not there, or not readable")
        return "\n".join(lines)


def _told(number: float | None, form: str, unit: float = 1) -> str:
    """A number of a column, or a dash as wide."""
    return f"{unit * number:{form}}" if number is not None else f"{'-':>{form.rstrip(',f').partition('.')[0]}}"


def ablate(
    network: Network,
    inputs: Sequence[Any],
    rounds: int = 15,
    *,
    passes: Iterable[str] | None = None,
    processes: bool = True,
) -> Ablation:
    """Measure a network with all passes and without each, in turn, ``rounds`` times; medians.

    Args:
        network: what was read, before its passes.
        inputs: as for a call.
        rounds: calls of each variant.
        passes: names of those to leave out, one at a time, and ``"all"`` for all at once; where it is None, each of
            them and then all.
        processes: whether each variant is also compiled and run once in a new process with an empty cache, which says
            how long it takes to compile, and how much memory.

    Raises:
        NetworkError: a pass is none, or a new process fails; and what compiling and calling raise.
    """
    known = NetworkOptions.passes()
    names = (*known, EVERY) if passes is None else tuple(dict.fromkeys(passes))
    if unknown := [name for name in names if name not in known and name != EVERY]:
        raise NetworkError(Diagnostic(f"{unknown[0]} is no pass", hint=f"passes are {', '.join(known)}, {EVERY}"))
    nets = {name: CompiledNetwork(network, _without(name)) for name in ("", *names)}
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
    firsts = {name: _first(network, name, inputs) if processes else None for name in measured}
    rows = []
    for name, net in nets.items():
        found = name if name in measured else ""
        seconds = float(np.median(times[found]))
        joules = float(np.median(energies[found])) if energies[found] else None
        memory = net.weight_bytes + net.panel_bytes + net.places.bytes
        first = firsts[found]
        compiling, peak = (None, None) if first is None else (first.compiling, first.peak)
        rows.append(Row(name, seconds, len(net.steps), memory, joules, name in same, compiling, peak))
    return Ablation(tuple(rows))


def _first(network: Network, without: str, inputs: Sequence[Any]) -> FirstAnswer | None:
    return first_answer(network, _without(without), inputs)


def _without(name: str) -> dict[str, bool]:
    """Options without a pass, or without any."""
    return dict.fromkeys(NetworkOptions.passes() if name == EVERY else [name] if name else [], False)


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
