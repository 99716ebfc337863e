"""Programs of ``torch.export`` made simpler: nothing is written in place, operators without a rule are others."""

from __future__ import annotations

from typing import Any

import torch
from torch._decomp import decomposition_table
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from tcomp.errors import NetworkError
from tcomp.networks.importing import RULES

_ROUNDS = 4
"""What operators become may have to be taken apart again."""


def simplified(program: ExportedProgram, kept: frozenset[str]) -> ExportedProgram:
    """The program without operators that have no rule but are others together, as PyTorch's table says.

    Where a tensor is changed in place that something else may read, it is written without such changes.  Parts that
    run without gradients or in another precision stand in their place.  ``kept`` has operators that are to stay as they
    are.  Raises NetworkError.
    """
    table = torch.export.default_decompositions()
    try:
        with torch.no_grad():
            for turn in range(_ROUNDS):
                targets = {node.target for node in program.graph.nodes if node.op == "call_function"}
                missing = {t for t in targets if str(t) not in RULES and str(t) not in kept and t in table}
                if not missing and (turn or not (_changes_in_place(program) or _has_regions(program))):
                    break
                program = program.run_decompositions({target: table[target] for target in missing})
    except Exception as error:
        raise NetworkError(f"PyTorch cannot take the exported program apart: {error}") from error
    return program


def without(program: ExportedProgram, refused: Any, kept: frozenset[str]) -> ExportedProgram | None:
    """The program without an operator whose arguments no rule knows, and without those that have no rule, or None.

    They become what PyTorch's tables make of them, those that its compilers use among them.  None where these say
    nothing of ``refused``.  Raises NetworkError.
    """
    nodes = {node.target for node in program.graph.nodes if node.op == "call_function"}
    lacking = {t for t in nodes if t == refused or (str(t) not in RULES and str(t) not in kept)}
    known = {**decomposition_table, **torch.export.default_decompositions()}
    table = {target: known[target] for target in lacking if target in known}
    if refused not in table and not _is_composite(refused):
        return None
    try:
        with torch.no_grad():
            made: ExportedProgram = program.run_decompositions(table)
            return made
    except Exception as error:
        raise NetworkError(f"PyTorch cannot take {refused} apart: {error}") from error


def _is_composite(target: Any) -> bool:
    """Whether torch itself has an operator as a function of others, and exports it so wherever it is taken apart."""
    if not isinstance(target, torch._ops.OpOverload):
        return False
    return target.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)


_REGIONS = ("wrap_with_autocast", "wrap_with_set_grad_enabled")
"""What runs a part of a program that has a graph of its own; taking operators apart puts it back in its place."""


def _has_regions(program: ExportedProgram) -> bool:
    return any(str(node.target) in _REGIONS for node in program.graph.nodes if node.op == "call_function")


def _changes_in_place(program: ExportedProgram) -> bool:
    """Whether a tensor is changed that is read elsewhere, or shares its memory with one that is."""
    for node in program.graph.nodes:
        schema = getattr(node.target, "_schema", None)
        if node.op != "call_function" or schema is None or not schema.is_mutable:
            continue
        changed = node.args[0]
        if not isinstance(changed, torch.fx.Node) or len(changed.users) != 1 or not _is_fresh(changed):
            return True
    return False


def _is_fresh(node: Any) -> bool:
    """Whether the result of a node has memory of its own."""
    if node.op != "call_function":
        return False
    schema = getattr(node.target, "_schema", None)
    if schema is None:
        return False
    if schema.is_mutable:
        return True  # its own argument was looked at before
    return not any(result.alias_info is not None for result in schema.returns)


_ALIKE = {"zeros_like": 0, "ones_like": 1, "new_zeros": 0, "new_ones": 1, "full_like": None, "new_full": None}
"""Operators that read the shape of a tensor alone, and the number that they fill another one with."""


def _filled(node: Any) -> Any:
    """What a node gives that reads a tensor's shape alone, or None; what has no elements reads none either."""
    made = node.meta.get("val")
    if isinstance(made, torch.Tensor) and all(isinstance(n, int) for n in made.shape) and 0 in made.shape:
        return torch.empty(tuple(made.shape), dtype=made.dtype)
    name, like = str(node.target).removeprefix("aten.").partition(".")[0], node.meta.get("val")
    if name not in _ALIKE or not isinstance(like, torch.Tensor) or not all(isinstance(n, int) for n in like.shape):
        return None
    number = node.args[-1] if _ALIKE[name] is None else _ALIKE[name]
    return (
        torch.full(tuple(like.shape), number, dtype=like.dtype) if isinstance(number, (int, float, complex)) else None
    )


def constant(node: Any, known: dict[str, Any]) -> Any:
    """What a node gives that reads no input's elements, or None: ``known`` has the tensors of those before it."""
    if str(node.target) == "<built-in function getitem>" or torch.Tag.nondeterministic_seeded in getattr(
        node.target, "tags", ()
    ):
        return None
    if getattr(getattr(node.target, "_schema", None), "is_mutable", True):
        return None
    if any(argument.name not in known for argument in node.all_input_nodes):
        return _filled(node)
    arguments, named = torch.fx.map_arg((node.args, node.kwargs), lambda n: known[n.name])
    try:
        with torch.no_grad():
            found = node.target(*arguments, **named)
    except (RuntimeError, IndexError, ValueError) as error:
        wrong = str(error).partition("\n")[0]
        raise NetworkError(f"{node.target} fails on what no input changes: {wrong} (node {node.name})") from error
    return found if isinstance(found, torch.Tensor) else None


def checking(program: ExportedProgram) -> frozenset[Any]:
    """The nodes that only keep checks of results in order, as of the matrices that have no inverse.

    Raises NetworkError for anything else that is kept in order.
    """
    signature = program.graph_signature
    names = {spec.arg.name for spec in signature.input_specs if spec.kind is InputKind.TOKEN}
    found: set[Any] = set()
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in names:
            found.add(node)
        elif node.op == "call_function" and any(read in found for read in node.all_input_nodes):
            if node.target is torch.ops.higher_order.with_effects and str(node.args[1]) not in _CHECKING:
                raise NetworkError(f"{node.args[1]} has no rule (node {node.name})")
            found.add(node)
    return frozenset(found)


_CHECKING = frozenset(("aten._linalg_check_errors.default",))
