"""The pass that takes, for each layer, the cheapest of what it may be computed by, in the cheapest layouts of images.

A call that makes images of images may have them with channels innermost, or as they were.  What it costs either way,
and what it costs to turn an image where its maker and a reader differ, is a cut of a graph: the cheapest is exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from tcomp.errors import Diagnostic, NetworkError
from tcomp.mapping.machines.cpu import Machine, this_machine
from tcomp.networks.algorithms import costs, layouts, pruned, winograd
from tcomp.networks.algorithms.convolutions import (
    Convolution,
    Depthwise,
    convolution,
    depthwise,
    integer_convolution,
)
from tcomp.networks.algorithms.mincut import START, Labels
from tcomp.networks.lowering.rebuilding import Parts
from tcomp.networks.network import Call, Network, Number, Value
from tcomp.networks.texts import layers

DIRECT = "direct"

Writer = Callable[[Parts, Call], None]
"""Writes a call, whose image and result are named, as one or several."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way to compute a layer: its relative error, cycles of the whole machine, and what writes its calls.

    ``last``: of images with channels innermost.
    """

    name: str
    error: float
    cycles: float
    write: Writer
    last: bool = False

    @property
    def label(self) -> str:
        return f"{self.name}, channels innermost" if self.last else self.name


@dataclass(frozen=True, slots=True)
class Choice:
    """What was taken for the layer that makes ``value``, of which candidates; ``excluded`` are not exact enough."""

    value: str
    taken: str
    last: bool
    cycles: Mapping[str, float]
    excluded: tuple[str, ...]

    def __str__(self) -> str:
        others = "; ".join(f"{name} {1e-6 * cycles:.2f}" for name, cycles in self.cycles.items())
        without = f"; not exact enough: {', '.join(self.excluded)}" if self.excluded else ""
        layout = ", channels innermost" if self.last else ""
        return f"{self.value} by {self.taken}{layout}; million cycles: {others}{without}"


@dataclass(frozen=True, slots=True)
class Layer:
    """A call, what it may be computed by, exact enough or all, and whether that is worth telling."""

    call: Call
    exact: tuple[Candidate, ...]
    every: tuple[Candidate, ...]
    told: bool

    def best(self, last: bool) -> Candidate | None:
        """The cheapest candidate in a layout."""
        return min((one for one in self.exact if one.last == last), key=lambda one: one.cycles, default=None)


def choose(
    network: Network,
    accuracy: float,
    given: Mapping[str, str] | None = None,
    machine: Machine | None = None,
    *,
    algorithms: bool = True,
    innermost: bool = True,
    skip_zeros: bool = False,
) -> tuple[Network, tuple[Choice, ...]]:
    """The network with the cheapest algorithm for each layer and the cheapest layouts, and what was chosen.

    Args:
        accuracy: the largest relative error, in the norm of a layer's results, that an algorithm may add where sums of
            products as they are written would have less.
        given: the names of algorithms for single layers, by the value that each makes; they count whatever they cost.
        machine: for which the costs are; this one where it is None.
        algorithms: whether layers may be computed otherwise than they are written.
        innermost: whether images may have channels innermost.
        skip_zeros: whether weights that are zero may be left out where most are.

    Raises:
        NetworkError: ``given`` has a layer or an algorithm that there is not.
    """
    machine = machine or this_machine()
    wanted, values = dict(given or {}), network.by_name
    found: list[Layer] = []
    for call in network.calls:
        every = _candidates(network, call, values, machine)
        layer = convolution(network, call, values) is not None
        if skip_zeros:
            fewer = _pruned(network, call, values, machine)
            every, layer = [*every, *fewer], layer or bool(fewer)
        if (name := wanted.pop(call.results[0], None)) is not None:
            exact = _named(name, call.results[0], every if layer else [])
        else:
            free = [one for one in every if one.name == DIRECT or one.name.startswith(pruned.NAME)]
            exact = [one for one in every if one in free or (algorithms and one.error <= accuracy)]
        exact = [one for one in exact if innermost or not one.last]
        found.append(Layer(call, tuple(exact), tuple(every), layer))
    if wanted:
        raise NetworkError(f"{next(iter(wanted))} is made by no layer that has several algorithms")
    last = _cheapest_layouts(network, found, values) if innermost else [False] * len(found)
    return _written(network, found, last)


def _candidates(network: Network, call: Call, values: Mapping[str, Value], machine: Machine) -> list[Candidate]:
    """All ways to compute a call, the one that is written first."""
    layer = convolution(network, call, values)
    if layer is not None:
        return candidates(layer, machine, network)
    integers = integer_convolution(network, call, values)
    if integers is not None:
        first, last = (costs.integers(integers, machine, last) for last in (False, True))
        found = Candidate(DIRECT, 0.0, last, _direct_last(network, integers), True)
        return [Candidate(DIRECT, 0.0, first, _as_it_is), found]
    alone = depthwise(network, call, values)
    if alone is not None:
        return [
            Candidate(DIRECT, 0.0, costs.depthwise(alone, machine), _as_it_is),
            Candidate(DIRECT, 0.0, costs.depthwise(alone, machine, True), _depthwise_last(network, alone), True),
        ]
    product = pruned.product(network, call, values)
    if product is not None:
        return [Candidate(DIRECT, 0.0, costs.product(product.rows, product.weight.shape, machine), _as_it_is)]
    if not layouts.goes_either_way(network, call, values):
        return [Candidate(DIRECT, 0.0, 0.0, _as_it_is)]
    result = values[call.results[0]]
    if "pool2d" in call.function:
        first, last = (costs.pooling(call, result, machine, last) for last in (False, True))
    else:
        first = last = costs.moved(result.bytes)

    def write(parts: Parts, call: Call) -> None:
        made = layouts.channels_last(network.definitions[call.function])
        parts.call(made, replace(call, function=made.name))

    return [Candidate(DIRECT, 0.0, first, _as_it_is), Candidate(DIRECT, 0.0, last, write, True)]


def _pruned(network: Network, call: Call, values: Mapping[str, Value], machine: Machine) -> list[Candidate]:
    """A layer of whose weights most are zero by those that are not."""
    layer, product = convolution(network, call, values), pruned.product(network, call, values)
    if layer is not None and (count := pruned.entries(network, layer.kernel)) is not None:
        cycles, write = pruned.convolution(layer, count, machine)
        return [Candidate(pruned.NAME, costs.roundoff(layer.channels), cycles, write)]
    if product is not None and (count := pruned.entries(network, product.weight)) is not None:
        error = costs.roundoff(product.weight.shape[1])
        forms = pruned.products(network, product, count, machine)
        return [Candidate(name, error, cycles, write) for name, cycles, write in forms]
    return []


def _named(name: str, value: str, every: Sequence[Candidate]) -> list[Candidate]:
    """The candidates of that name.  Raises NetworkError."""
    found = [one for one in every if one.name == name]
    if not found:
        hint = f"it has {', '.join(dict.fromkeys(one.name for one in every))}" if every else "it is no such layer"
        raise NetworkError(Diagnostic(f"{value} cannot be computed by {name}", hint=hint))
    return found


def candidates(layer: Convolution, machine: Machine, network: Network) -> list[Candidate]:
    """All ways to compute a convolution, the one that is written first."""
    unit = costs.roundoff(layer.channels)
    found = [
        Candidate(DIRECT, unit, costs.direct(layer, machine), _as_it_is),
        Candidate(DIRECT, unit, costs.direct(layer, machine, True), _direct_last(network, layer), True),
    ]
    if layer.window == (3, 3) and layer.strides == (1, 1):
        for tile in winograd.TILES:
            if min(layer.pixels) >= tile:
                error = costs.ERRORS[tile] * unit
                for last in (False, True):
                    cycles = costs.winograd(layer, tile, machine, last)
                    found.append(Candidate(f"F({tile},3)", error, cycles, _transformed(layer, tile, last), last))
    return found


def _cheapest_layouts(network: Network, found: Sequence[Layer], values: Mapping[str, Value]) -> list[bool]:
    """For each call, whether its images have channels innermost."""
    labels = Labels()
    nodes: list[int] = []
    maker: dict[str, int] = {}
    count = Counter(name for layer in found for name in dict.fromkeys(layer.call.arguments))
    for layer in found:
        first, last = layer.best(False), layer.best(True)
        node = START
        if first is not None and last is not None:
            before = [maker.get(name, START) for name in layer.call.arguments if count[name] == 1]
            if network.definitions[layer.call.function].pointwise and max(before, default=START) != START:
                node = max(before)  # it joins that kernel, which it could not in another layout
            else:
                node = labels.node(round(first.cycles), round(last.cycles))
        nodes.append(node)
        maker |= dict.fromkeys(layer.call.results, node)
    readers: dict[str, set[int]] = {}
    for layer, node in zip(found, nodes, strict=True):
        for name in layer.call.arguments:
            readers.setdefault(name, set()).add(node)
    for value in network.outputs:
        readers.setdefault(value.name, set()).add(START)
    enough = 4 * sum(round(costs.turned(value, False)) for value in values.values() if value.role != "weight")
    for name, reading in readers.items():
        value = values[name]
        if name in network.weights or len(value.shape) != 4:
            continue
        made = maker.get(name, START)
        turned = [round(costs.turned(value, last)) for last in (False, True)]
        # One turned image serves all who read it so.
        reads_last, reads_first = labels.node(), labels.node()
        labels.edge(made, reads_last, turned[True])
        labels.edge(reads_first, made, turned[False])
        for node in reading:
            labels.edge(reads_last, node, enough)
            labels.edge(node, reads_first, enough)
    ones = labels.ones()
    return [node in ones for node in nodes]


def _written(network: Network, found: Sequence[Layer], last: Sequence[bool]) -> tuple[Network, tuple[Choice, ...]]:
    """The network by what was chosen."""
    parts = Parts(network)
    images = layouts.Images(parts)
    known = network.by_name
    choices: list[Choice] = []
    for layer, innermost in zip(found, last, strict=True):
        best, call = layer.best(innermost), layer.call
        assert best is not None
        arguments = tuple(images.read(n, innermost) if len(known[n].shape) == 4 else n for n in call.arguments)
        if layer.told or call.function.startswith("conv2d"):
            arguments = (arguments[0], *call.arguments[1:])
        whole = innermost and len(known[call.results[0]].shape) == 4
        results = (images.make(call.results[0], whole), *call.results[1:])
        best.write(parts, replace(call, arguments=arguments, results=results))
        images.made(call.results[0], whole)
        if layer.told:
            excluded = tuple(dict.fromkeys(one.name for one in layer.every if one not in layer.exact))
            excluded = tuple(name for name in excluded if name not in {one.name for one in layer.exact})
            cycles = {one.label: one.cycles for one in layer.exact}
            choices.append(Choice(call.results[0], best.name, innermost, cycles, excluded))
    return parts.network(), tuple(choices)


def _as_it_is(parts: Parts, call: Call) -> None:
    parts.calls.append(call)


def _direct_last(network: Network, layer: Convolution) -> Writer:
    """What writes a convolution of images with channels innermost."""

    def write(parts: Parts, call: Call) -> None:
        name = layer.kernel.name
        kernel = layouts.turned_weight(parts, layer.kernel, f"{name}_last")
        definition = network.definitions[call.function]
        single = layer.window == (1, 1) and layer.pads == (0, 0) and layer.image.dtype == "float32"
        if single and "dilated" not in call.function:
            definition = layers.point_conv2d(bias=layer.bias is not None, strided="strided" in call.function)
        made = layouts.channels_last(definition)
        parts.call(made, replace(call, function=made.name, arguments=(call.arguments[0], kernel, *call.arguments[2:])))

    return write


def _depthwise_last(network: Network, layer: Depthwise) -> Writer:
    """What writes a convolution of each channel by itself with channels innermost."""

    def write(parts: Parts, call: Call) -> None:
        name = layer.kernel.name
        kernel = layouts.turned_weight(parts, layer.kernel, f"{name}_innermost", swapped=True)
        made = layouts.depthwise_last(network.definitions[call.function])
        parts.call(made, replace(call, function=made.name, arguments=(call.arguments[0], kernel, *call.arguments[2:])))

    return write


def _transformed(layer: Convolution, tile: int, last: bool) -> Writer:
    """What writes the three calls of Winograd's algorithm in place of a convolution."""

    def write(parts: Parts, call: Call) -> None:
        name = layer.call.results[0]
        down, across = (-(-extent // tile) for extent in layer.pixels)
        side, images, dtype = tile + 2, layer.image.shape[0], layer.image.dtype
        kernel = parts.later(
            f"{layer.kernel.name}_transformed{tile}",
            layer.kernel.dtype,
            (side, side, layer.filters, layer.channels),
            lambda: winograd.kernel(tile, parts.weights[layer.kernel.name]),
        )

        def temporary(what: str, channels: int) -> str:
            place = (images, down, across)
            shape = (side, side, *place, channels) if last else (side, side, channels, *place)
            return parts.temporary(f"{name}_{what}", dtype, shape)

        tiles, products = temporary("tiles", layer.channels), temporary("products", layer.filters)
        numbers: tuple[tuple[str, Number], ...] = (("TH", down), ("TW", across))
        numbers += tuple(zip(("PH", "PW"), layer.pads, strict=True))
        extents: tuple[tuple[str, Number], ...] = tuple(zip("HW", layer.pixels, strict=True))
        bias = () if layer.bias is None else (layer.bias,)
        image, product = winograd.image(tile, last), winograd.product(last)
        result = winograd.result(tile, layer.bias is not None, last)
        parts.call(image, Call(image.name, (call.arguments[0],), numbers, (tiles,), call.place))
        parts.call(product, Call(product.name, (kernel, tiles), (), (products,), call.place))
        parts.call(result, replace(call, function=result.name, arguments=(products, *bias), constants=extents))

    return write
