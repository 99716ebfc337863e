"""Calls with ``out=`` as operators of torch, so that compiled graphs hold them: ``f.out(.., Tensor(a!) out) -> ()``.

With several outputs there is one parameter for each, ``out0``, ``out1`` and so on.  Autograd does not follow what is
written to a tensor that was given: nothing in such a call may require a gradient.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tcomp.arrays.kinds import ArrayError
from tcomp.autograd.fake import Fake, check_tensor
from tcomp.autograd.registration import Choices
from tcomp.errors import Diagnostic, ShapeError
from tcomp.grammar.tree.function import Function
from tcomp.runtime.arguments import shape_error


class OutOperator:
    """The overload ``out`` of an operator, whose qualified name it shares."""

    def __init__(self, operation: Any, choices: Choices, qualified: str) -> None:
        self.operation = operation
        self.choices = choices
        self.function: Function = operation.function
        self.qualified = qualified

    def register(self, library: Any, parameters: str) -> None:
        """``parameters`` are those of the inputs, as a schema has them."""
        name = f"{self.qualified.partition('::')[2]}.out"
        names = ["out"] if len(self.function.outputs) == 1 else [f"out{n}" for n in range(len(self.function.outputs))]
        outs = [f"Tensor({chr(ord('a') + n)}!) {out}" for n, out in enumerate(names)]
        library.define(f"{name}({', '.join([*filter(None, [parameters]), *outs])}) -> ()")
        library.impl(name, self._run, "CompositeExplicitAutograd")
        library.impl(name, self._checked, "Autograd")
        torch.library.register_fake(f"{self.qualified}.out", self._fake, lib=library)

    @functools.cached_property
    def overload(self) -> Any:
        namespace, name = self.qualified.split("::")
        return getattr(getattr(torch.ops, namespace), name).out

    def _parted(self, arguments: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        count = len(self.function.inputs)
        return tuple(arguments[:count]), tuple(arguments[count:])

    def _run(self, *arguments: Any) -> None:
        inputs, outs = self._parted(arguments)
        with torch.no_grad():
            self.operation.run(inputs, outs, self.choices)

    def _checked(self, *arguments: Any) -> None:
        inputs, outs = self._parted(arguments)
        check_out(self.function, inputs, outs)
        with torch._C._AutoDispatchBelowAutograd():
            self.overload(*arguments)
        torch.autograd.graph.increment_version(outs)

    def _fake(self, *arguments: Any) -> None:
        """Raises ShapeError where the real call would."""
        inputs, outs = self._parted(arguments)
        made = Fake(self.function)(*inputs)
        for tensor, like, out in zip(
            self.function.outputs, made if isinstance(made, tuple) else (made,), outs, strict=True
        ):
            try:
                check_tensor(out, tensor)
            except ArrayError as error:
                raise shape_error(f"output {tensor.name}", tensor, self.function.source, error) from None
            if out.device != like.device:
                raise ShapeError(f"output {tensor.name} lies on {out.device}, inputs on {like.device}")
            if any(own != expected for own, expected in zip(out.shape, like.shape, strict=True)):
                expected, found = (tuple(map(int, t.shape)) for t in (like, out))
                message = f"output {tensor.name}: expected shape {expected} but found {found}"
                raise ShapeError(Diagnostic(message, self.function.source, tensor.span))


def outs_of(function: Function, out: Any) -> tuple[Any, ...]:
    """What was given as ``out=``, one tensor for each output.

    Raises ShapeError where there are fewer: in a graph all of them must be there, or none.
    """
    names = [tensor.name for tensor in function.outputs]
    if isinstance(out, Mapping):
        given = tuple(out.get(name) for name in names)
    else:
        given = tuple(out) if isinstance(out, (tuple, list)) else (out,)
    if len(given) != len(names) or not all(isinstance(o, torch.Tensor) for o in given):
        takes = f"a tensor for each of {', '.join(names)}" if len(names) > 1 else f"a tensor for {names[0]}"
        raise ShapeError(f"{function.name}: inside torch.compile or torch.export, out= takes {takes}")
    return given


def check_out(function: Function, arguments: Sequence[Any], out: Any) -> None:
    """Raises ShapeError where an input or what is written to requires a gradient."""
    if not torch.is_grad_enabled():
        return
    given = out.values() if isinstance(out, Mapping) else out if isinstance(out, (tuple, list)) else (out,)
    named = [(f"input {t.name}", a) for t, a in zip(function.inputs, arguments, strict=False)]
    for what, value in (*named, *((f"output {n}", o) for n, o in enumerate(given))):
        if isinstance(value, torch.Tensor) and value.requires_grad:
            message = f"{what} requires a gradient, which does not go with out="
            raise ShapeError(Diagnostic(message, hint="call without out=, or under torch.no_grad()"))
