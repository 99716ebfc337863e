"""What ``torch.export`` makes of a module, as nodes for the rules.  Importing this imports torch."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from tcomp.errors import Diagnostic, NetworkError
from tcomp.networks.importing import Builder, Node, import_node
from tcomp.networks.network import Network, Value


def network_of(
    module: torch.nn.Module | ExportedProgram, example: tuple[Any, ...], name: str, fallback: Iterable[str] = ()
) -> Network:
    """The network of a module in evaluation mode, or of what torch has exported.  Raises NetworkError."""
    program = module if isinstance(module, ExportedProgram) else _exported(module, example)
    try:
        return _network(program, name, frozenset(fallback))
    except NetworkError:
        raise
    except (ValueError, IndexError, TypeError) as error:
        raise NetworkError(f"the exported program cannot be read: {error}") from error


def read(path: Path, name: str, fallback: Iterable[str] = ()) -> Network:
    """The network of a file that ``torch.export.save`` wrote.  Raises NetworkError."""
    try:
        program = torch.export.load(path)
    except Exception as error:
        raise NetworkError(f"{path} cannot be read as an exported program: {error}") from error
    return network_of(program, (), name, fallback)


def _exported(module: torch.nn.Module, example: tuple[Any, ...]) -> ExportedProgram:
    if module.training:
        raise NetworkError(Diagnostic("the module is in training mode", hint="call module.eval() before"))
    try:
        with torch.no_grad():
            return torch.export.export(module, example)
    except Exception as error:
        raise NetworkError(f"torch.export cannot read the module: {error}") from error


def _network(program: ExportedProgram, name: str, fallback: frozenset[str]) -> Network:
    builder = Builder(name)
    known: dict[str, Value] = {}
    several: dict[str, list[Value]] = {}
    state: Mapping[str, Any] = {**program.state_dict, **program.constants}
    for spec in program.graph_signature.input_specs:
        argument = spec.arg.name
        if spec.kind is InputKind.USER_INPUT:
            continue
        if not isinstance(tensor := state.get(str(spec.target)), torch.Tensor):
            raise NetworkError(f"{spec.target} of the module is no tensor")
        known[argument] = builder.weight(str(spec.target), tensor.detach().cpu().numpy())
    outputs: list[Value] = []
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name not in known:
            known[node.name] = builder.add(node.name, *_type(node), "input")
        elif node.op == "call_function" and node.target is operator.getitem and node.args[0].name in several:
            known[node.name] = several[node.args[0].name][node.args[1]]
        elif node.op == "call_function" and str(node.target) in fallback:
            found = _outside(builder, node, known)
            if isinstance(node.meta.get("val"), (list, tuple)):
                several[node.name] = found
            else:
                known[node.name] = found[0]
        elif node.op == "call_function":
            made = import_node(builder, _node(node, known))
            if isinstance(made, list):
                several[node.name] = made
            else:
                known[node.name] = made
        elif node.op == "output":
            kinds = [spec.kind for spec in program.graph_signature.output_specs]
            if any(kind is not OutputKind.USER_OUTPUT for kind in kinds):
                raise NetworkError("the module changes its buffers")
            outputs = [known[result.name] for result in node.args[0]]
    if len({value.name for value in outputs}) != len(outputs) or any(value.role != "temporary" for value in outputs):
        raise NetworkError("an output of the module is one of its inputs, or two are one")
    return builder.network(outputs)


def _outside(builder: Builder, node: Any, known: Mapping[str, Value]) -> list[Value]:
    """A call of torch's own operator."""
    tensors = list(dict.fromkeys(n.name for n in node.all_input_nodes))
    results = node.meta.get("val")
    each = results if isinstance(results, (list, tuple)) else [results]
    kinds = []
    for number, result in enumerate(each):
        if not isinstance(result, torch.Tensor) or not all(isinstance(extent, int) for extent in result.shape):
            raise NetworkError(f"{node.target} has a size that is not fixed (node {node.name})")
        label = node.name if len(each) == 1 else f"{node.name}_{number}"
        dtype = str(result.dtype).removeprefix("torch.")
        kinds.append(Node(label, str(node.target), {}, tuple(result.shape), dtype))

    def run(*arrays: Any) -> list[Any]:
        given = {name: torch.from_numpy(np.array(array)) for name, array in zip(tensors, arrays, strict=True)}
        arguments, named = torch.fx.map_arg((node.args, node.kwargs), lambda n: given[n.name])
        with torch.no_grad():
            made = node.target(*arguments, **named)
        return [t.numpy() for t in (made if isinstance(made, (list, tuple)) else [made])]

    return builder.outside(kinds, [known[name] for name in tensors], run)


def _type(node: Any) -> tuple[str, tuple[int, ...]]:
    """Element type and shape of what a node gives."""
    found = node.meta.get("val")
    if not isinstance(found, torch.Tensor):
        raise NetworkError(f"{node.name} is not one tensor")
    if not all(isinstance(extent, int) for extent in found.shape):
        raise NetworkError(f"{node.name} has a size that is not fixed")
    return str(found.dtype).removeprefix("torch."), tuple(found.shape)


def _node(node: Any, known: Mapping[str, Value]) -> Node:
    def value(argument: Any) -> Any:
        if isinstance(argument, (list, tuple)):
            return [value(item) for item in argument]
        return known[argument.name] if isinstance(argument, torch.fx.Node) else argument

    modules = list((node.meta.get("nn_module_stack") or {}).values())
    place = str(modules[-1][0]) if modules else ""
    name = str(node.target)
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        raise NetworkError(f"{name} is no operator of PyTorch (node {node.name})")
    arguments = {}
    for position, parameter in enumerate(schema.arguments):
        if position < len(node.args):
            arguments[parameter.name] = value(node.args[position])
        elif parameter.name in node.kwargs:
            arguments[parameter.name] = value(node.kwargs[parameter.name])
        elif not parameter.kwarg_only or parameter.has_default_value():
            arguments[parameter.name] = parameter.default_value
    results = node.meta.get("val")
    # What has several results has a rule that knows their shapes.
    dtype, shape = ("float32", ()) if isinstance(results, (list, tuple)) else _type(node)
    return Node(node.name, name, arguments, shape, dtype, place)
