"""Compiled networks in files: the network after its passes, its weights, and the kernels that this machine made.

Such a file holds machine code, which runs when the network does: open only files that you trust.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from tcomp.errors import NetworkError, TcompError
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.evaluation import Array, is_of_ml_dtypes, numpy_dtype
from tcomp.networks.network import Call, Definition, Network, Value
from tcomp.networks.options import NetworkOptions
from tcomp.networks.precision.agreement import Agreement
from tcomp.networks.program import CompiledNetwork
from tcomp.networks.weights import Later, Weights
from tcomp.storage.wholefiles import whole_file
from tcomp.values.operators import DTYPES

_FORMAT = 2


def save(net: CompiledNetwork, path: Path) -> None:
    """Write a compiled network.  Raises NetworkError if the file cannot be written."""
    network, options = net.network, net.options
    outside = [d.name for d in network.used_definitions() if d.outside is not None]
    if outside:
        raise NetworkError(f"{outside[0]} runs outside of tcomp, so the network cannot be kept in a file")
    plain: dict[str, Any] = {
        "format": _FORMAT,
        "name": network.name,
        "values": [asdict(value) for value in network.values],
        "calls": [[c.function, c.arguments, c.constants, c.results, c.place] for c in network.calls],
        "definitions": [[d.name, d.text, d.view, d.pointwise] for d in network.used_definitions()],
        "options": {name: getattr(options, name) for name in NetworkOptions.passes()},
        "kernels": {name: one.to_json() for name, one in options.kernels.items()},
        "weights": list(network.weights),
        "agreement": None if net.agreement is None else asdict(net.agreement),
        "kept": [],
    }
    arrays: dict[str, Any] = {f"weight{k}": _plain(array) for k, array in enumerate(network.weights.values())}
    for kind, key, label, content in net.kept():
        plain["kept"].append([kind, key, label])
        arrays[f"kept{len(plain['kept']) - 1}"] = np.frombuffer(content, np.uint8)
    arrays["network"] = np.frombuffer(json.dumps(plain).encode(), np.uint8)
    try:
        with whole_file(path) as file:  # what is there may be the file from which these weights are read
            np.savez(file, **arrays)
    except OSError as error:
        raise NetworkError(f"{path} cannot be written: {error}") from error


def load(path: Path) -> CompiledNetwork:
    """The network of a file that ``save`` wrote, ready to run.  Raises NetworkError."""
    try:
        arrays = np.load(path, allow_pickle=False)
        plain = json.loads(bytes(arrays["network"]))
        if plain["format"] != _FORMAT:
            raise NetworkError(f"{path} has the format {plain['format']}, known is {_FORMAT}")
        network = _network(plain, arrays, path)
        kernels = {name: MappingOptions.from_json(text) for name, text in plain["kernels"].items()}
        options = NetworkOptions.of(plain["options"] | {"kernels": kernels})
        agreed = None if plain["agreement"] is None else Agreement(**plain["agreement"])
        kept = [(*entry, bytes(arrays[f"kept{k}"])) for k, entry in enumerate(plain["kept"])]
    except TcompError:
        raise
    except Exception as error:
        raise NetworkError(f"{path} cannot be read as a compiled network: {error}") from error
    net = CompiledNetwork(network, options, kept, passed=True)
    net.agreement = agreed
    return net


def _plain(array: Array) -> Array:
    """An array as NumPy's files know it: bfloat16 and floats of 8 bits as their bits."""
    dtype = DTYPES.get(array.dtype.name)
    return array.view(f"uint{dtype.bits}") if dtype is not None and is_of_ml_dtypes(dtype) else array


def _network(plain: Mapping[str, Any], arrays: Any, path: Path) -> Network:
    """The network, checked.  Its weights are read from the file when somebody asks for them."""
    values = tuple(Value(v["name"], v["dtype"], tuple(v["shape"]), v["role"]) for v in plain["values"])
    calls = tuple(
        Call(function, tuple(arguments), tuple((n, v) for n, v in constants), tuple(results), place)
        for function, arguments, constants, results, place in plain["calls"]
    )
    definitions = {
        name: Definition(name, text, tuple(view), bool(pointwise))
        for name, text, view, pointwise in plain["definitions"]
    }
    types = {value.name: value.dtype for value in values}
    weights, facts = Weights(), {}
    for k, name in enumerate(plain["weights"]):
        weights[name] = Later(functools.partial(_weight, arrays, f"weight{k}", types.get(name), path))
        facts[name] = _facts(arrays, f"weight{k}", types.get(name))
    network = Network(str(plain["name"]), values, calls, definitions, weights).checked()
    for value in network.of_role("weight"):
        if facts.get(value.name) != (value.shape, value.dtype):
            raise NetworkError(f"the weight {value.name} is not what the network says")
    return network


def _facts(arrays: Any, name: str, wanted: str | None) -> tuple[tuple[int, ...], str]:
    """The shape and the type of an array of the file, whose elements are not read."""
    with arrays.zip.open(f"{name}.npy") as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
    known = DTYPES.get(wanted or "")
    bits = known is not None and is_of_ml_dtypes(known) and dtype == np.dtype(f"uint{known.bits}")
    return tuple(shape), wanted if bits and wanted else dtype.name


def _weight(arrays: Any, name: str, wanted: str | None, path: Path) -> Array:
    """An array of the file.  Raises NetworkError if it is damaged."""
    try:
        array = np.array(arrays[name])
        known = DTYPES.get(wanted or "")
        return array.view(numpy_dtype(known)) if known is not None and is_of_ml_dtypes(known) else array
    except Exception as error:
        raise NetworkError(f"{path} cannot be read as a compiled network: {error}") from error
