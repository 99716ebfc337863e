"""A derived gradient as something to call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tcomp.derivatives.derivation import Derivative
from tcomp.errors import Diagnostic, ShapeError
from tcomp.grammar.tree.function import Function


@dataclass(frozen=True, slots=True)
class Gradient:
    """The gradients of a def with respect to some of its inputs, as program text and as an operation.

    ``text`` is the def ``NAME_grad``, ``backward`` the operation that it defines.  It takes the inputs in ``inputs``,
    those of the def that it reads or takes sizes from, then one cotangent for each output of floats.
    """

    function: Function
    derivative: Derivative
    backward: Callable[..., Any]

    @property
    def text(self) -> str:
        return self.derivative.text

    @property
    def wrt(self) -> tuple[str, ...]:
        return self.derivative.wrt

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.derivative.inputs

    def __str__(self) -> str:
        return self.text

    def __call__(self, *arguments: Any, **choices: Any) -> Any:
        """One gradient per name in ``wrt``, of all inputs of the def and one cotangent for each output of floats.

        Returns:
            An array shaped like the input, or a tuple of several.

        Raises:
            ShapeError: as a call of the def, and where the arguments are too many or too few.
        """
        names = [tensor.name for tensor in self.function.inputs]
        expected = len(names) + len(self.derivative.cotangents)
        if len(arguments) != expected:
            takes = ", ".join((*names, *self.derivative.cotangents))
            raise ShapeError(
                f"{self.derivative.name}: expected {expected} arguments, {takes}, but got {len(arguments)}"
            )
        given = dict(zip(names, arguments, strict=False))
        self.check_constants(given)
        return self.backward(*(given[name] for name in self.inputs), *arguments[len(names) :], **choices)

    def check_constants(self, given: Mapping[str, Any]) -> None:
        """Raises ShapeError for strides below 1, which the derivation takes for at least that."""
        for name in self.derivative.positive:
            if isinstance(given[name], int) and given[name] < 1:
                message = f"{self.derivative.name} takes {name}, which is {given[name]}, for at least 1"
                raise ShapeError(Diagnostic(message, hint=f"write the number into the text in place of {name}"))

    def gradient(self, wrt: str | Sequence[str] | None = None) -> Gradient:
        """The gradient of the gradient."""
        result: Gradient = self.backward.gradient(wrt)  # type: ignore[attr-defined]
        return result
