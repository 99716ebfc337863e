"""Which layer of a network in small numbers is farthest from what it gives in floats."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tcomp.networks.network import Network
from tcomp.networks.precision.agreement import as_inputs
from tcomp.networks.program import CompiledNetwork

_ORDER = ("input", "weight", "temporary", "output")
LAYERS = ("conv", "linear", "matmul")
"""What the defs of layers begin with."""


def shown(network: Network, names: Iterable[str]) -> CompiledNetwork:
    """The network with these values as results, too, and with no pass that looks for speed only.

    Raises what compiling raises.
    """
    wanted = set(names)
    values = [replace(v, role="output") if v.name in wanted and v.role == "temporary" else v for v in network.values]
    values.sort(key=lambda v: _ORDER.index(v.role))
    plain = {"choose_algorithms": False, "pack_weights": False}
    return CompiledNetwork(replace(network, values=tuple(values)), plain)


def results_of(net: CompiledNetwork, inputs: Sequence[Any]) -> dict[str, np.ndarray[Any, Any]]:
    """All results by their names.  Raises ShapeError."""
    found = net(*inputs)
    found = found if isinstance(found, tuple) else (found,)
    return {value.name: np.asarray(one) for value, one in zip(net.network.outputs, found, strict=True)}


def worst_layer(exact: Network, other: Network, data: Iterable[Any]) -> tuple[str, float] | None:
    """The layer whose results are farthest from those of the layer of the same name in ``exact``, and how far.

    That is relative, in the norm of the layer's results for all inputs; errors of the layers before it are in it.
    None where the networks have no layer of the same name, shape and type.  Raises what compiling and calling raise.
    """
    known = {v.name: v for v in exact.values if v.role in ("temporary", "output")}
    layers = [name for c in other.calls if c.function.startswith(LAYERS) for name in c.results]
    values = other.by_name
    names = [n for n in layers if n in known and replace(values[n], role="output") == replace(known[n], role="output")]
    if not names:
        return None
    nets = shown(exact, names), shown(other, names)
    wrong, size = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    for sample in data:
        first, second = (results_of(net, as_inputs(sample)) for net in nets)
        for name in names:
            right = first[name].astype(np.float64)
            wrong[name] += float(((right - second[name]) ** 2).sum())
            size[name] += float((right**2).sum())
    errors = {name: (wrong[name] / size[name]) ** 0.5 if size[name] else 0.0 for name in names}
    worst = max(names, key=errors.__getitem__)
    return worst, errors[worst]
