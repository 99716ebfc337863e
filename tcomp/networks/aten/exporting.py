"""What ``torch.export`` makes of a module, as nodes for the rules.  Importing this imports torch."""

from __future__ import annotations

import logging
import operator
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from tcomp.autograd.operators import operation_behind
from tcomp.errors import Diagnostic, NetworkError
from tcomp.networks.aten import complexes
from tcomp.networks.aten.decomposing import checking, constant, simplified, without
from tcomp.networks.aten.single import import_single
from tcomp.networks.importing import RULES, Builder, Node
from tcomp.networks.network import Network, Value, foreign
from tcomp.networks.texts import general

_ROUNDS = 4
"""What operators become that a rule refused may be refused as well."""


def network_of(
    module: torch.nn.Module | ExportedProgram, example: tuple[Any, ...], name: str, fallback: Iterable[str] = ()
) -> Network:
    """The network of a module in evaluation mode, or of what torch has exported.  Raises NetworkError."""
    with _without_remarks():
        return _network_of(module, example, name, fallback)


def _network_of(
    module: torch.nn.Module | ExportedProgram, example: tuple[Any, ...], name: str, fallback: Iterable[str]
) -> Network:
    program = module if isinstance(module, ExportedProgram) else _exported(module, example)
    _check_products(program)
    outside = frozenset(fallback)
    for own in sorted(outside):
        _check_operator(own)
    program, first = simplified(program, outside), None
    for _ in range(_ROUNDS):
        try:
            return _network(program, name, outside)
        except _RefusedError as error:
            first = first or error.error
            try:
                simpler = without(program, error.target, outside)
                if simpler is None:
                    break
                program = simplified(simpler, outside)
            except NetworkError as lacking:
                raise first from lacking
        except NetworkError as error:
            raise (first or error) from error
        except (ValueError, IndexError, TypeError) as error:
            raise (first or NetworkError(f"the exported program cannot be read: {error}")) from error
    assert first is not None
    raise first


_PRODUCTS = frozenset(
    (
        "linear",
        "matmul",
        "mm",
        "bmm",
        "mv",
        "dot",
        "addmm",
        "addmv",
        "baddbmm",
        "conv1d",
        "conv2d",
        "conv3d",
        "convolution",
    )
)
"""Operators that take floats of one type, or integers of one; ``torch.export`` takes others, and PyTorch does not."""


def _check_products(program: ExportedProgram) -> None:
    """Raises NetworkError for a product of tensors of two types, as of integers with the weights of a layer."""
    for node in program.graph.nodes:
        space, _, rest = str(node.target).partition(".")
        if node.op != "call_function" or space != "aten" or rest.partition(".")[0] not in _PRODUCTS:
            continue
        found = [(a.name, a.meta.get("val")) for a in node.all_input_nodes]
        types = {name: str(value.dtype).removeprefix("torch.") for name, value in found if torch.is_tensor(value)}
        if len({*types.values()}) > 1:
            wrong = " and ".join(f"{name} of {dtype}" for name, dtype in types.items())
            hint = "is an input of the example of the wrong type?"
            raise NetworkError(Diagnostic(f"{node.target} takes {wrong} (node {node.name})", hint=hint))


class _RefusedError(Exception):
    """An operator that has no rule, or none for its arguments: torch may know others that are the same."""

    def __init__(self, target: Any, error: NetworkError) -> None:
        super().__init__(str(error))
        self.target, self.error = target, error


def read(path: Path, name: str, fallback: Iterable[str] = ()) -> Network:
    """The network of a file that ``torch.export.save`` wrote.  Raises NetworkError."""
    try:
        with _quietly(), _without_remarks():
            program = torch.export.load(path)
    except Exception as error:
        wrong = str(error).partition("\n")[0]
        raise NetworkError(f"{path} cannot be read as an exported program: {wrong}") from error
    return network_of(program, (), name, fallback)


@contextmanager
def _quietly() -> Iterator[None]:
    """Torch logs the traceback of an error in front of it, and again what older formats say."""
    log = logging.getLogger("torch.export")
    before = log.disabled
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = before


@contextmanager
def _without_remarks() -> Iterator[None]:
    """Without a warning that torch gives of its own code, whatever it exports, loads or takes apart."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)` is deprecated", FutureWarning)
        yield


def _check_operator(operator: str) -> None:
    """Raises NetworkError for the name of an operator that PyTorch does not have."""
    space, _, rest = operator.partition(".")
    own, _, overload = rest.rpartition(".")
    found = getattr(getattr(torch.ops, space), own or rest, None) if rest else None
    if found is None:
        raise NetworkError(f"fallback names {operator}, which is no operator of PyTorch")
    if not own or overload not in found.overloads():
        which = ", ".join(f"{space}.{own or rest}.{one}" for one in found.overloads())
        raise NetworkError(
            Diagnostic(f"fallback names {operator}, which is no operator of PyTorch", hint=f"one of {which}")
        )


def _exported(module: torch.nn.Module, example: tuple[Any, ...]) -> ExportedProgram:
    if module.training:
        raise NetworkError(Diagnostic("the module is in training mode", hint="call module.eval() before"))
    try:
        with torch.no_grad():
            return torch.export.export(module, example)
    except Exception as error:
        hint = None
        if len(example) == 1 and isinstance(example[0], tuple | list):
            hint = "inputs are given one by one, not as one tuple, unless the module takes a tuple"
        raise NetworkError(Diagnostic(f"torch.export cannot read the module: {error}", hint=hint)) from error


def _network(program: ExportedProgram, name: str, fallback: frozenset[str]) -> Network:
    walk = _Walk(Builder(name), fallback)
    state: Mapping[str, Any] = {**program.state_dict, **program.constants}
    for spec in program.graph_signature.input_specs:
        if spec.kind in (InputKind.USER_INPUT, InputKind.TOKEN):
            continue
        if not isinstance(tensor := state.get(str(spec.target)), torch.Tensor):
            raise NetworkError(f"{spec.target} of the module is no tensor")
        walk.parameter(spec.arg.name, str(spec.target), tensor.detach().cpu())
    outputs: list[Value] = []
    checks = checking(program)
    for node in program.graph.nodes:
        if node in checks:
            continue
        if node.op == "placeholder" and node.name not in walk.known:
            if not node.users and not isinstance(node.meta.get("val"), torch.Tensor):
                continue  # a number, a text or None, as which torch has exported the module
            dtype, shape = _type(node)
            if dtype.startswith("complex"):
                raise NetworkError(Diagnostic(f"{node.name} is {dtype}", hint="let the module take two tensors"))
            walk.known[node.name] = walk.builder.add(node.name, dtype, shape, "input")
        elif node.op == "call_function":
            walk.call(node)
        elif node.op == "output":
            for result in _results(program, node):
                outputs.append(walk.as_result(walk.known[result.name], outputs))
    if not outputs:
        raise NetworkError("the module returns no tensor")
    return walk.builder.network(outputs)


def _results(program: ExportedProgram, node: Any) -> list[Any]:
    """The nodes of what a module returns, without ``None``, and without what it writes into its inputs.

    Raises NetworkError where it returns what is no tensor, or changes its buffers.
    """
    found: list[Any] = []
    for spec, result in zip(program.graph_signature.output_specs, node.args[0], strict=True):
        if spec.kind not in (OutputKind.USER_OUTPUT, OutputKind.USER_INPUT_MUTATION, OutputKind.TOKEN):
            raise NetworkError(
                Diagnostic(
                    f"the module changes its buffers: {spec.target}",
                    hint="let it take what changes as an input, and return it",
                )
            )
        if spec.kind is not OutputKind.USER_OUTPUT or result is None:
            continue
        if not isinstance(result, torch.fx.Node):
            raise NetworkError(f"output {len(found)} of the module is {result!r}, which is no tensor")
        found.append(result)
    return found


_NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)
"""What is computed from an input, and is no tensor."""


class _Walk:
    """The nodes that were read: values by name, lists of values, and tensors that depend on no input."""

    def __init__(self, builder: Builder, fallback: frozenset[str]) -> None:
        self.builder = builder
        self.fallback = fallback
        self.known: dict[str, Any] = {}
        self.several: dict[str, list[Value]] = {}
        self.constants: dict[str, Any] = {}

    def parameter(self, argument: str, name: str, tensor: torch.Tensor) -> None:
        """Enter a parameter or a buffer."""
        self.constants[argument] = tensor
        self.known[argument] = self._weight(name, tensor)

    def _weight(self, name: str, tensor: torch.Tensor) -> Any:
        """What is known before any input; of bfloat16, which NumPy does not have, as floats of 32 bits."""
        if tensor.is_complex():
            return complexes.weight(self.builder, name, tensor.resolve_conj().numpy())
        found = tensor.float() if tensor.dtype == torch.bfloat16 else tensor
        return self.builder.weight(name, found.contiguous().numpy())

    def as_result(self, value: Value, others: Sequence[Value]) -> Value:
        """A value that is an output; a copy of an input, of a weight, and of what is an output already."""
        if isinstance(value, complexes.Complex):
            raise NetworkError(
                Diagnostic("the module returns complex numbers", hint="return torch.view_as_real of them")
            )
        if value.role == "temporary" and value not in others:
            return value
        node = Node(f"{value.name}_result", "output", {}, value.shape, value.dtype)
        same = general.pointwise("copy", "{a}", [(value.shape, value.dtype)], value.shape, value.dtype)
        return self.builder.call(node, same, [value])

    def call(self, node: Any) -> None:
        """Enter the result of an operator."""
        found = node.meta.get("val")
        if (not node.users and found is None) or isinstance(found, _NUMBERS) or self._is_known(node):
            return  # an assertion, what an assertion reads, or a constant
        if node.target is operator.getitem and node.args[0].name in self.several:
            self.known[node.name] = self.several[node.args[0].name][node.args[1]]
            return
        made: Any
        if str(node.target) in self.fallback:
            made = _outside(self.builder, node, self.known)
            if not isinstance(node.meta.get("val"), (list, tuple)):
                (made,) = made
        elif (operation := operation_behind(node.target)) is not None:
            made = _own(self.builder, node, operation, self.known)
        else:
            try:
                own = _node(node, self.known)
                made = (complexes.import_complex if complexes.concerns(own) else import_single)(self.builder, own)
            except NetworkError as error:
                raise _RefusedError(node.target, error) from error
        if isinstance(made, list):
            self.several[node.name] = made
        else:
            self.known[node.name] = made

    def _is_known(self, node: Any) -> bool:
        """Whether a node depends on no input and is no call of the network; then its result has become a weight.

        Functions of weights that have a rule are calls, which a pass folds.
        """
        found = constant(node, self.constants)
        if found is None:
            return False
        self.constants[node.name] = found
        read = [self.constants[a.name] for a in node.all_input_nodes if a.name in self.constants]
        floats = all(one.dtype == torch.float32 and one.numel() for one in (found, *read))
        if str(node.target) in RULES and read and floats:
            return False
        self.known[node.name] = self._weight(node.name, found)
        return True


def _own(builder: Builder, node: Any, operation: Any, known: Mapping[str, Value]) -> Value | list[Value]:
    """A call of an operation of tcomp, as of a layer in three lines, as its text."""
    function = operation.function
    given = dict(zip((tensor.name for tensor in function.inputs), node.args, strict=False)) | dict(node.kwargs)
    kinds = _kinds(node)
    arguments, constants = [], {}
    for tensor in function.inputs:
        found = given.get(tensor.name)
        if tensor.role == "const" and isinstance(found, int | float):
            constants[tensor.name] = found
        elif isinstance(found, torch.fx.Node) and isinstance(value := known[found.name], Value):
            arguments.append(value)
        else:
            raise kinds[0].refuse(f"takes {found!r} for {tensor.name}", "tensors, and numbers for constants, are known")
    made = builder.several(kinds, foreign(function.name, str(function.definition)), arguments, **constants)
    return made if isinstance(node.meta.get("val"), (list, tuple)) else made[0]


def _outside(builder: Builder, node: Any, known: Mapping[str, Any]) -> list[Any]:
    """A call of torch's own operator."""
    tensors = list(dict.fromkeys(n.name for n in node.all_input_nodes))
    given = [complexes.separated(known[name]) for name in tensors]
    kinds = [complexes.nodes_of(kind) for kind in _kinds(node)]

    def run(*arrays: Any) -> list[Any]:
        left = iter(arrays)
        read = {name: _tensor([next(left) for _ in own]) for name, own in zip(tensors, given, strict=True)}
        arguments, named = torch.fx.map_arg((node.args, node.kwargs), lambda n: read[n.name])
        with torch.no_grad():
            made = node.target(*arguments, **named)
        results = [
            t.resolve_conj().resolve_neg().numpy() for t in (made if isinstance(made, (list, tuple)) else [made])
        ]
        return [part for one in results for part in ((one.real, one.imag) if one.dtype.kind == "c" else (one,))]

    left = iter(builder.outside(list(chain(*kinds)), list(chain(*given)), run))
    return [complexes.joined([next(left) for _ in own]) for own in kinds]


def _tensor(parts: Sequence[Any]) -> torch.Tensor:
    each = [torch.from_numpy(np.array(part)) for part in parts]
    return each[0] if len(each) == 1 else torch.complex(*each)


def _kinds(node: Any) -> list[Node]:
    """A node for each result of an operator.  Raises NetworkError where one is no tensor, or has a size left open."""
    results = node.meta.get("val")
    each = results if isinstance(results, (list, tuple)) else [results]
    kinds = []
    for number, result in enumerate(each):
        if not isinstance(result, torch.Tensor) or not all(isinstance(extent, int) for extent in result.shape):
            raise NetworkError(f"{node.target} has a size that is not fixed (node {node.name})")
        label = node.name if len(each) == 1 else f"{node.name}_{number}"
        dtype = str(result.dtype).removeprefix("torch.")
        kinds.append(Node(label, str(node.target), {}, tuple(result.shape), dtype))
    return kinds


def _type(node: Any) -> tuple[str, tuple[int, ...]]:
    """Element type and shape of what a node gives."""
    found = node.meta.get("val")
    if not isinstance(found, torch.Tensor):
        raise NetworkError(f"{node.name} is not one tensor")
    if not all(isinstance(extent, int) for extent in found.shape):
        raise NetworkError(f"{node.target} has a size that is not fixed (node {node.name})")
    return str(found.dtype).removeprefix("torch."), tuple(found.shape)


def _node(node: Any, known: Mapping[str, Value]) -> Node:
    def value(argument: Any) -> Any:
        if isinstance(argument, (list, tuple)):
            return [value(item) for item in argument]
        if not isinstance(argument, torch.fx.Node):
            return argument
        if argument.name not in known:
            raise NetworkError(f"{node.target} takes {argument.name}, a number that is computed from an input")
        return known[argument.name]

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
