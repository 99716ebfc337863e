"""The pass that takes, for each layer, the cheapest of what it may be computed by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tcomp.errors import Diagnostic, NetworkError
from tcomp.mapping.machines.cpu import Machine, this_machine
from tcomp.networks.algorithms import costs, winograd
from tcomp.networks.algorithms.convolutions import Convolution, convolution
from tcomp.networks.lowering.rebuilding import Parts
from tcomp.networks.network import Call, Network, Number

DIRECT = "direct"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to compute a layer: its relative error, cycles of the whole machine, and what writes its calls."""

    name: str
    error: float
    cycles: float
    write: Callable[[Parts], None]


@dataclass(frozen=True, slots=True)
class Choice:
    """What was taken for the layer that makes ``value``, of which candidates; ``excluded`` are not exact enough."""

    value: str
    taken: str
    cycles: Mapping[str, float]
    excluded: tuple[str, ...]

    def __str__(self) -> str:
        others = ", ".join(f"{name} {1e-6 * cycles:.2f}" for name, cycles in self.cycles.items())
        without = f"; not exact enough: {', '.join(self.excluded)}" if self.excluded else ""
        return f"{self.value} by {self.taken}; million cycles: {others}{without}"


def choose(
    network: Network, accuracy: float, given: Mapping[str, str] | None = None, machine: Machine | None = None
) -> tuple[Network, tuple[Choice, ...]]:
    """The network with the cheapest algorithm for each layer, and what was chosen.

    Args:
        accuracy: the largest relative error, in the norm of a layer's results, that an algorithm may add where sums of
            products as they are written would have less.
        given: the names of algorithms for single layers, by the value that each makes; they count whatever they cost.
        machine: for which the costs are; this one where it is None.

    Raises:
        NetworkError: ``given`` has a layer or an algorithm that there is not.
    """
    machine = machine or this_machine()
    parts = Parts(network)
    choices: list[Choice] = []
    values, wanted = network.by_name, dict(given or {})
    for call in network.calls:
        layer = convolution(network, call, values)
        every = candidates(layer, machine) if layer is not None else []
        exact = [one for one in every if one.name == DIRECT or one.error <= accuracy]
        if (name := wanted.pop(call.results[0], None)) is not None:
            exact = [_named(name, call.results[0], every)]
        if not exact or len(every) < 2:
            parts.calls.append(call)
            continue
        best = min(exact, key=lambda one: one.cycles)
        best.write(parts)
        excluded = tuple(one.name for one in every if one not in exact)
        choices.append(Choice(call.results[0], best.name, {one.name: one.cycles for one in exact}, excluded))
    if wanted:
        raise NetworkError(f"{next(iter(wanted))} is made by no layer that has several algorithms")
    return parts.network(), tuple(choices)


def _named(name: str, value: str, every: list[Candidate]) -> Candidate:
    """The candidate of that name.  Raises NetworkError."""
    found = next((one for one in every if one.name == name), None)
    if found is None:
        hint = f"it has {', '.join(one.name for one in every)}" if every else "it is no such layer"
        raise NetworkError(Diagnostic(f"{value} cannot be computed by {name}", hint=hint))
    return found


def candidates(layer: Convolution, machine: Machine) -> list[Candidate]:
    """All ways to compute a convolution, the one that is written first."""
    unit = costs.roundoff(layer.channels)
    plain = Candidate(DIRECT, unit, costs.direct(layer, machine), lambda parts: parts.calls.append(layer.call))
    found = [plain]
    if layer.window == (3, 3) and layer.strides == (1, 1):
        for tile in winograd.TILES:
            if min(layer.pixels) >= tile:
                cycles = costs.winograd(layer, tile, machine)
                found.append(Candidate(f"F({tile},3)", costs.ERRORS[tile] * unit, cycles, _transformed(layer, tile)))
    return found


def _transformed(layer: Convolution, tile: int) -> Callable[[Parts], None]:
    """What writes the three calls of Winograd's algorithm in place of a convolution."""

    def write(parts: Parts) -> None:
        call, name = layer.call, layer.call.results[0]
        down, across = (-(-extent // tile) for extent in layer.pixels)
        side, images, dtype = tile + 2, layer.image.shape[0], layer.image.dtype
        kernel = parts.weight(
            f"{layer.kernel.name}_transformed{tile}",
            lambda: winograd.kernel(tile, parts.weights[layer.kernel.name]),
        )
        tiles = parts.temporary(f"{name}_tiles", dtype, (side, side, layer.channels, images, down, across))
        products = parts.temporary(f"{name}_products", dtype, (side, side, layer.filters, images, down, across))
        numbers: tuple[tuple[str, Number], ...] = (("TH", down), ("TW", across))
        numbers += tuple(zip(("PH", "PW"), layer.pads, strict=True))
        extents: tuple[tuple[str, Number], ...] = tuple(zip("HW", layer.pixels, strict=True))
        bias = () if layer.bias is None else (layer.bias,)
        image, product = winograd.image(tile), winograd.product()
        result = winograd.result(tile, layer.bias is not None)
        parts.call(image, Call(image.name, (layer.image.name,), numbers, (tiles,), call.place))
        parts.call(product, Call(product.name, (kernel, tiles), (), (products,), call.place))
        parts.call(result, replace(call, function=result.name, arguments=(products, *bias), constants=extents))

    return write
