"""What a tuned result belongs to, independent of how a program names things."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from tcomp.arrays.devices import Memory, Place, cuda_device
from tcomp.backends.opencl.devices import opencl_model
from tcomp.errors import TargetError
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.function import Function
from tcomp.grammar.tree.syntax import Expr, Loop, Name, Statement
from tcomp.mapping.machines.cpu import processor_name
from tcomp.mapping.machines.gpu import gpu_of
from tcomp.mapping.options.options import OPTIONS
from tcomp.runtime.registry import memory_of, runs_emulated
from tcomp.runtime.specialisation import Specialisation
from tcomp.tuner.database.trials import digest
from tcomp.version import __version__


@dataclass(frozen=True, slots=True)
class Identity:
    """What results are kept under: a program, what it is fixed to, and what runs it.

    ``program`` is text whose names were replaced by ones that follow from their order; ``sizes`` (of size symbols and
    ``const`` parameters) and ``strides`` (of arrays not in C order, in elements) go by these names.  ``device`` is the
    model of processor or GPU, with the options that grant less than all of it.
    """

    program: str
    sizes: tuple[tuple[str, int], ...]
    strides: tuple[tuple[str, tuple[int, ...]], ...]
    target: str
    device: str
    version: str = __version__

    @property
    def key(self) -> str:
        """A digest of all of it."""
        return digest(json.dumps([self.program, self.sizes, self.strides, self.target, self.device, self.version]))


def identity_of(specialisation: Specialisation, device: str) -> Identity:
    """What results for a specialisation on a device are kept under, whatever its options but those that are granted."""
    program = canonical(specialisation.function)
    names, sizes, options = program.names, specialisation.sizes, specialisation.options
    granted = {name: getattr(options, name) for name, o in OPTIONS.items() if o.is_granted(specialisation.target)}
    bounds = [f"{name}={value}" for name, value in granted.items() if value is not None]
    return Identity(
        program.text,
        tuple(sorted((names[name], value) for name, value in sizes.values.items())),
        tuple(sorted((names[name], strides) for name, strides in sizes.strides.items())),
        specialisation.target,
        ", ".join([device, *bounds]),
    )


def device_model(target: str, place: Place) -> str:
    """The model of what runs the kernels of a target at a place, in words that are the same on machines of one kind.

    How many threads a processor runs is part of it: it decides how loops are best dealt.
    """
    architecture = target.partition(":")[2]
    if memory_of(target) is Memory.CUDA:
        try:
            return cuda_device(place.device).name
        except TargetError:
            return f"no device, {architecture}"
    if target.partition(":")[0] == "opencl":
        return opencl_model()
    if runs_emulated(target):
        return f"emulated {architecture}"
    if architecture and target.startswith("simulator"):
        return f"simulated {gpu_of(architecture).name}"
    threads = len(os.sched_getaffinity(0))
    return f"{processor_name() or platform.machine()}, {threads} thread{'' if threads == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class Canonical:
    """A program in canonical names; ``names`` gives that of each tensor, size symbol and ``const`` parameter."""

    text: str
    names: Mapping[str, str]


def canonical(function: Function) -> Canonical:
    """A program in names that tell the order in which things appear: programs that differ in names alone are equal."""
    definition = function.definition
    tensors = [p.name.name for p in (*definition.inputs, *definition.outputs)]
    tensors += [s.target.name for s in syntax.statements(definition.body)]
    names = {name: f"t{number}" for number, name in enumerate(dict.fromkeys(tensors))}
    names |= {name: f"s{number}" for number, name in enumerate(function.sizes)}
    renamed = replace(
        definition,
        name=Name("f"),
        inputs=tuple(_parameter(p, names) for p in definition.inputs),
        outputs=tuple(_parameter(p, names) for p in definition.outputs),
        body=tuple(_item(item, names) for item in definition.body),
    )
    return Canonical(str(renamed), names)


def _parameter(parameter: syntax.Parameter, names: Mapping[str, str]) -> syntax.Parameter:
    dims = None if parameter.dims is None else tuple(_Renaming(names).expression(d) for d in parameter.dims)
    return replace(parameter, name=Name(names[parameter.name.name]), dims=dims)


def _item(item: Statement | Loop, names: Mapping[str, str]) -> Statement | Loop:
    renaming = _Renaming(names)
    if isinstance(item, Loop):
        return replace(
            item,
            index=renaming.name(item.index),
            lower=None if item.lower is None else renaming.expression(item.lower),
            upper=None if item.upper is None else renaming.expression(item.upper),
            body=tuple(_item(inner, renaming.names) for inner in item.body),
        )
    declared = item.declared
    if declared is not None and declared.dims is not None:
        declared = replace(declared, dims=renaming.all(declared.dims))
    return replace(
        item,
        declared=declared,
        target=renaming.name(item.target),
        subscripts=None if item.subscripts is None else tuple(renaming.expression(s) for s in item.subscripts),
        value=renaming.expression(item.value),
        equivalent=None,
        clauses=tuple(renaming.clause(clause) for clause in item.clauses),
    )


class _Renaming:
    """Names of one statement: those of the program, then indices and lets in the order in which they are met."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = dict(names)
        self._free: Iterator[str] = (f"i{number}" for number in range(len(names), 1 << 30))

    def name(self, name: Name) -> Name:
        if name.name not in self.names:
            self.names[name.name] = next(self._free)
        return Name(self.names[name.name])

    def function(self, name: Name) -> Name:
        """Only tensors are renamed: what is applied else is built in."""
        return Name(self.names.get(name.name, name.name))

    def clause(self, clause: syntax.Clause) -> syntax.Clause:
        match clause:
            case syntax.Range():
                lower, upper = self.expression(clause.lower), self.expression(clause.upper)
                return replace(clause, index=self.name(clause.index), lower=lower, upper=upper)
            case syntax.Let():
                return replace(clause, name=self.name(clause.name), value=self.expression(clause.value))
            case syntax.Exists():
                return replace(clause, read=self.expression(clause.read))
            case syntax.Order():
                return replace(clause, index=self.name(clause.index))

    def expression(self, expr: Expr) -> Expr:
        match expr:
            case Name():
                return self.name(expr)
            case syntax.Number():
                return expr
            case syntax.Apply():
                return replace(expr, function=self.function(expr.function), arguments=self.all(expr.arguments))
            case syntax.Boundary():
                return replace(expr, arguments=self.all(expr.arguments), subscripts=self.all(expr.subscripts))
            case syntax.Cast() | syntax.Unary():
                return replace(expr, operand=self.expression(expr.operand))
            case syntax.Named():
                return replace(expr, value=self.expression(expr.value))
            case syntax.Binary():
                return replace(expr, lhs=self.expression(expr.lhs), rhs=self.expression(expr.rhs))
            case syntax.Conditional():
                return replace(
                    expr,
                    condition=self.expression(expr.condition),
                    then=self.expression(expr.then),
                    otherwise=self.expression(expr.otherwise),
                )

    def all(self, expressions: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return tuple(self.expression(e) for e in expressions)
