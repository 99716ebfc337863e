"""A def as ``torch.nn.Module``: some of its tensors are parameters, the others arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from tcomp.arrays.kinds import ArrayError
from tcomp.autograd.fake import check_tensor, torch_dtype
from tcomp.errors import Diagnostic, ShapeError, TcompError
from tcomp.grammar.tree.diagnostics import did_you_mean
from tcomp.grammar.tree.function import Tensor
from tcomp.operation import Operation
from tcomp.runtime.arguments import constant, shape_error

Initialise = Callable[[torch.Tensor], Any]


class Layer(torch.nn.Module):
    """``Layer(ops.linear, W=(10, 64), b=(10,))(X)`` calls ``ops.linear`` with parameters ``W`` and ``b``.

    Args:
        operation: what to run.
        init: fills the parameters that are given as shapes and have two dimensions or more, or a dict of such
            functions by name; the others are zeros unless the dict names them.
        device: where they are made.
        given: for each input that is no argument of a call: the shape of a parameter, a tensor (a parameter if it is
            of floats, else a buffer; a ``Parameter`` stays the one that it is), or the integer of a ``const``.

    Raises:
        TcompError: a name is no input of the operation, or what is given for it does not fit.
    """

    def __init__(
        self,
        operation: Operation,
        *,
        init: Initialise | Mapping[str, Initialise] = torch.nn.init.kaiming_uniform_,
        device: torch.device | str | None = None,
        **given: Any,
    ) -> None:
        super().__init__()
        _check_init(operation, init)
        self.operation = operation
        tensors = {t.name: t for t in operation.function.inputs}
        self._constants: dict[str, int] = {}
        for name, value in given.items():
            if name not in tensors:
                hint = did_you_mean(name, tensors) or f"its inputs are {', '.join(tensors)}"
                raise TcompError(Diagnostic(f"{operation.name} has no input {name}", hint=hint))
            self._add(tensors[name], value, init, device)
        self._constants = {**operation.function.defaults, **self._constants}
        self._arguments = tuple(name for name in tensors if name not in given and name not in self._constants)
        places = {name: place for place, name in enumerate(self._arguments)}
        self._places = tuple((name, places.get(name)) for name in tensors)

    def _add(self, tensor: Tensor, value: Any, init: Any, device: Any) -> None:
        source = self.operation.function.source
        if tensor.role == "const":
            self._constants[tensor.name] = constant(value, tensor, source)
            return
        is_shape = isinstance(value, (tuple, list, torch.Size))
        if isinstance(value, int) and not isinstance(value, bool) and tensor.rank == 1:
            is_shape, value = True, (value,)
        if is_shape:
            made = torch.zeros(tuple(value), dtype=torch_dtype(tensor.dtype), device=device)
            fill = init.get(tensor.name) if isinstance(init, Mapping) else init if made.ndim >= 2 else None
            if fill is not None:
                fill(made)
            value = made
        elif not isinstance(value, torch.Tensor):
            value = torch.as_tensor(value, dtype=torch_dtype(tensor.dtype), device=device)
        try:
            check_tensor(value, tensor)
        except ArrayError as error:
            raise shape_error(f"input {tensor.name}", tensor, source, error) from None
        if isinstance(value, torch.nn.Parameter) or value.is_floating_point():
            is_parameter = isinstance(value, torch.nn.Parameter)
            self.register_parameter(tensor.name, value if is_parameter else torch.nn.Parameter(value))
        else:
            self.register_buffer(tensor.name, value)

    def forward(self, *arguments: Any, **named: Any) -> Any:
        """Arguments in the order of the inputs that the layer does not hold, or by name."""
        if named or len(arguments) != len(self._arguments):
            arguments = self._ordered(arguments, named)
        # Where they are looked for first: what parametrises or prunes a module leaves them elsewhere.
        held = self._parameters
        values = [
            arguments[place] if place is not None else held[name] if name in held else self._held(name)
            for name, place in self._places
        ]
        return self.operation(*values)

    def _ordered(self, arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        given = dict(zip(self._arguments, arguments, strict=False)) | named
        if len(arguments) + len(named) != len(self._arguments) or set(given) != set(self._arguments):
            takes = ", ".join(self._arguments) or "no arguments"
            raise ShapeError(f"{self.operation.name}: the layer takes {takes}, but got {len(arguments) + len(named)}")
        return tuple(given[name] for name in self._arguments)

    def _held(self, name: str) -> Any:
        return self._constants[name] if name in self._constants else getattr(self, name)

    def extra_repr(self) -> str:
        return self.operation.name


def _check_init(operation: Operation, init: Any) -> None:
    """Raises TcompError where ``init=`` is neither a function of tensors nor a dict of such by names of inputs."""
    names = [tensor.name for tensor in operation.function.inputs]
    for name, fill in init.items() if isinstance(init, Mapping) else [(None, init)]:
        if name is not None and name not in names:
            hint = did_you_mean(str(name), names) or f"its inputs are {', '.join(names)}"
            raise TcompError(Diagnostic(f"init= names {name}, which is no input of {operation.name}", hint=hint))
        if not callable(fill):
            what = "init=" if name is None else f"init= for {name}"
            hint = "such as torch.nn.init.zeros_"
            raise TcompError(Diagnostic(f"{what} must be a function that fills a tensor, not {fill!r}", hint=hint))
