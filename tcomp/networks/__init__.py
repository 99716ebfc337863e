"""Whole networks: read from PyTorch, printed as program text, run as a chain of kernels::

    net = tcomp.compile_network(module, x)
    y = net(x)

``from_torch`` gives the network itself, which prints as a program.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tcomp.errors import Diagnostic, NetworkError
from tcomp.networks import aten, onnx  # noqa: F401  (they fill the table of rules)
from tcomp.networks.importing import RULES
from tcomp.networks.network import Call, Definition, Network, Value
from tcomp.networks.onnx.reading import Sizes, is_model
from tcomp.networks.options import NetworkOptions
from tcomp.networks.precision.agreement import Agreement, agreement
from tcomp.networks.precision.layerwise import worst_layer
from tcomp.networks.precision.narrowing import narrow_weights
from tcomp.networks.precision.quantising import folded, quantize
from tcomp.networks.program import CompiledNetwork
from tcomp.networks.reading import network_of as read_text
from tcomp.networks.saving import load
from tcomp.networks.studies.ablation import Ablation, ablate
from tcomp.networks.studies.profile import Profile

__all__ = [
    "Ablation",
    "Agreement",
    "Call",
    "CompiledNetwork",
    "Definition",
    "Network",
    "NetworkOptions",
    "Profile",
    "Value",
    "ablate",
    "agreement",
    "compile_network",
    "from_onnx",
    "from_text",
    "from_torch",
    "load_network",
    "narrow_weights",
    "operators",
    "quantize",
    "read",
    "read_exported",
]


def from_torch(module: Any, example: Any, name: str = "network", *, fallback: Iterable[str] = ()) -> Network:
    """The network that a ``torch.nn.Module`` in evaluation mode computes for inputs like the example.

    Args:
        module: what to read, or what ``torch.export.export`` made of it; its parameters become weights.
        example: a tensor, or a tuple with one tensor for each input; only shapes and types matter.
        name: what the def is called.
        fallback: operators that PyTorch itself runs, ``{"aten.sort.default"}``; each cuts the network in two.

    Raises:
        NetworkError: torch.export cannot read the module, or an operator has no rule; the message names it.
    """
    from tcomp.networks.aten.exporting import network_of  # noqa: PLC0415  (it imports torch)

    _check_name(name)
    return network_of(module, tuple(example) if isinstance(example, (tuple, list)) else (example,), name, fallback)


def _check_name(name: object) -> None:
    if not isinstance(name, str):
        wrong = f"the name of the network is a {type(name).__name__}, and no text"
        raise NetworkError(Diagnostic(wrong, hint="several inputs are given as one tuple: from_torch(module, (x, y))"))


def read_exported(path: str | os.PathLike[str], name: str = "network", *, fallback: Iterable[str] = ()) -> Network:
    """The network of a file that ``torch.export.save`` wrote.  Raises NetworkError."""
    from tcomp.networks.aten.exporting import read  # noqa: PLC0415  (it imports torch)

    return read(Path(path), name, fallback)


def from_onnx(
    model: Any, *, sizes: Sizes | None = None, name: str = "network", fallback: Iterable[str] = ()
) -> Network:
    """The network of a model of ONNX, opset 13 or newer.

    Args:
        model: a path, or a ``ModelProto``; its initialisers become weights.
        sizes: what the model leaves open: extents of dimensions by their names, shapes of inputs by theirs.
        name: what the def is called.
        fallback: operators that ONNX's own evaluator runs, ``{"onnx.GridSample"}``: slowly, and each cuts the network.

    Raises:
        NetworkError: it cannot be read, or an operator has no rule; the message names it.
        MissingPackageError: the package ``onnx`` is not installed.
    """
    from tcomp.networks.onnx.graph import network_of  # noqa: PLC0415  (as for torch, only where it is used)

    return network_of(model, name, sizes or {}, fallback)


def from_text(
    source: str | os.PathLike[str],
    *example: Any,
    weights: Mapping[str, Any] | None = None,
    sizes: Mapping[str, int] | None = None,
    name: str | None = None,
) -> Network:
    """The network that program text says: a def whose statements are calls.  Any other def is one call of its own.

    Args:
        source: the text, or a file that ends in ``.tc``.
        example: an array for each input, of which only the shape matters; not needed where extents are numbers.
        weights: arrays for the parameters that are the same in every call, by their names.
        sizes: what size symbols stand for, where there is no example.
        name: the def; the last one of the text where it is None.

    Raises:
        CompileError: the text is wrong.
        ShapeError: shapes do not fit.
        NetworkError: an extent is not known, or weights do not fit the parameters.
    """
    return read_text(source, weights or {}, example, sizes, name)


def load_network(path: str | os.PathLike[str]) -> CompiledNetwork:
    """The network of a file that ``net.save`` wrote, ready to run; it holds machine code, so open only what you trust.

    Raises NetworkError.
    """
    return load(Path(path))


def operators() -> tuple[str, ...]:
    """The operators that have a rule, sorted."""
    return tuple(sorted(RULES))


def compile_network(
    model: Any,
    *example: Any,
    sizes: Sizes | None = None,
    weights: Mapping[str, Any] | None = None,
    fallback: Iterable[str] = (),
    options: NetworkOptions | Mapping[str, Any] | None = None,
    precision: str = "float32",
    calibrate: Iterable[Any] = (),
) -> CompiledNetwork:
    """Compile a network for the CPU: ``net = compile_network(module, x)``, then ``y = net(x)``.

    Args:
        model: a ``Network``, a ``torch.nn.Module`` in evaluation mode, a ``ModelProto`` of ONNX, program text, or the
            path of what ``torch.export.save`` wrote (``.pt2``), of program text (``.tc``) or of a model of ONNX.
        example: for a module or a text, one tensor for each input; only shapes and types matter.
        sizes: for a model of ONNX or a text, see ``from_onnx`` and ``from_text``.
        weights: for a text, see ``from_text``.
        fallback: operators that run outside of tcomp, see ``from_torch`` and ``from_onnx``.
        options: passes to leave out, ``{"views": False}``, and mapping options of single kernels by what they make,
            ``{"conv2d": MappingOptions(...)}``.
        precision: ``"int8"`` computes convolutions in integers, see ``quantize``; ``"float16"`` and ``"bfloat16"``
            keep the weights of products of matrices in 16 bits, see ``narrow_weights``.
        calibrate: inputs by which scales are chosen, and for which ``agreement`` of what comes back compares results.

    Raises:
        NetworkError: it cannot be read, or there are no inputs to choose scales by.
    """
    network = read(model, *example, sizes=sizes, weights=weights, fallback=fallback)
    if precision == "float32":
        return CompiledNetwork(network, options)
    data = list(calibrate)
    if precision not in ("int8", "float16", "bfloat16"):
        raise NetworkError(f"a network is computed in float32, float16, bfloat16 or int8, not in {precision}")
    made = quantize(network, data) if precision == "int8" else narrow_weights(network, precision)
    found = CompiledNetwork(made, options)
    if data:
        measured = agreement(CompiledNetwork(network, options), found, data)
        worst = worst_layer(folded(network) if precision == "int8" else network, made, data)
        found.agreement = measured if worst is None else replace(measured, worst=worst[0], worst_error=worst[1])
    return found


def read(
    model: Any,
    *example: Any,
    sizes: Sizes | None = None,
    weights: Mapping[str, Any] | None = None,
    fallback: Iterable[str] = (),
) -> Network:
    """The network of anything that ``compile_network`` takes.  Raises NetworkError."""
    is_path = isinstance(model, (str, os.PathLike))
    is_text = is_path and (Path(model).suffix == ".tc" or (isinstance(model, str) and "{" in model))
    if weights and not is_text:
        raise NetworkError("weights are for a network of program text; those of this model are in it")
    if sizes and not (is_text or is_model(model) or (is_path and Path(model).suffix != ".pt2")):
        raise NetworkError("sizes are for program text and models of ONNX; this model has its own")
    if isinstance(model, Network):
        return model.checked()
    if isinstance(model, (str, os.PathLike)):
        if is_text:
            extents = {name: extent for name, extent in (sizes or {}).items() if isinstance(extent, int)}
            return from_text(model, *example, weights=weights, sizes=extents)
        exported = Path(model).suffix == ".pt2"
        return read_exported(model, fallback=fallback) if exported else from_onnx(model, sizes=sizes, fallback=fallback)
    if is_model(model):
        return from_onnx(model, sizes=sizes, fallback=fallback)
    if not hasattr(model, "state_dict"):  # a module, or an exported program, without importing torch
        kinds = "a network is a Network, a module of PyTorch, a model of ONNX or program text"
        raise NetworkError(f"{kinds}, not {type(model).__name__}")
    return from_torch(model, example, fallback=fallback)
