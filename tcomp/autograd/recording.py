"""Calls that autograd records, as one node of its graph: the quick way beside the operators of the dispatcher.

A ``Function`` serves ``torch.func`` and forward mode, too, which operators with a registered derivative do not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from tcomp.autograd.cotangents import spread

if TYPE_CHECKING:
    from tcomp.autograd.operators import Operator


class Recorded(torch.autograd.Function):
    """``Recorded.apply(operator, *arguments)``."""

    @staticmethod
    def forward(operator: Operator, *arguments: Any) -> Any:
        return operator.run_seen(arguments)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        operator, *arguments = inputs
        outputs = output if isinstance(output, tuple) else (output,)
        ctx.operator = operator
        ctx.set_materialize_grads(False)
        ctx.wrt = operator.backward.check(ctx.needs_input_grad[1:], arguments)
        ctx.results = [(o.shape, o.dtype, o.device) for o in outputs]
        operator.save(ctx, (*arguments, *outputs))
        ctx.save_for_forward(*(a for a in arguments if isinstance(a, torch.Tensor)))
        if len(operator.backward.floats) < len(outputs):
            ctx.mark_non_differentiable(*(o for o in outputs if not o.is_floating_point()))

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        operator: Operator = ctx.operator
        given = [
            torch.zeros(shape, dtype=dtype, device=device) if cotangent is None else spread(cotangent)
            for cotangent, (shape, dtype, device) in zip(cotangents, ctx.results, strict=True)
            if dtype.is_floating_point
        ]
        return None, *operator.backward.gradients(operator.given(ctx, given))

    @staticmethod
    def jvp(ctx: Any, _: None, *tangents: Any) -> Any:
        operator: Operator = ctx.operator
        names = [t.name for t in operator.function.inputs]
        moving = {name: t for name, t in zip(names, tangents, strict=True) if t is not None}
        tensors = iter(ctx.saved_tensors)
        is_tensor = [t.role != "const" for t in operator.function.inputs]
        values = [next(tensors) if is_one else other for is_one, other in zip(is_tensor, ctx.others, strict=False)]
        tangent = operator.tangent(tuple(moving), values)
        results = tangent(*values, *map(spread, moving.values()), **operator.choices.named())
        found = iter(results if isinstance(results, tuple) else (results,))
        moved = tuple(next(found) if t.dtype.is_float else None for t in operator.function.outputs)
        return moved if len(moved) > 1 else moved[0]

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], operator: Operator, *arguments: Any) -> tuple[Any, Any]:
        choices = operator.choices.named()
        return operator.vmap(in_dims[1:], arguments, lambda operation, given: operation(*given, **choices))
