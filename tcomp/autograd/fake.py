"""Results of calls whose arguments have shapes and types, but no memory: for tracing, and on the meta device."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from tcomp.arrays.kinds import ArrayError
from tcomp.errors import Diagnostic, ShapeError
from tcomp.grammar.ranges.polynomials import Extreme, Polynomial, Quotient
from tcomp.grammar.ranges.ranges import infer
from tcomp.grammar.ranges.sizes import bind_sizes
from tcomp.grammar.ranges.symbolic import Symbolic, symbolic_ranges
from tcomp.grammar.tree.function import Function, Size, Tensor
from tcomp.runtime.arguments import check_declaration, constant, shape_error
from tcomp.storage.forks import ISL
from tcomp.values.operators import DTYPES, DType

_NAMES = {getattr(torch, name): dtype for name, dtype in DTYPES.items() if hasattr(torch, name)}


def torch_dtype(dtype: DType) -> torch.dtype:
    found: torch.dtype = getattr(torch, dtype.name)
    return found


def check_tensor(value: torch.Tensor, tensor: Tensor) -> None:
    """Raises ArrayError where a tensor has not the type or rank that an input declares."""
    dtype = _NAMES.get(value.dtype)
    if dtype is None:
        raise ArrayError(str(value.dtype).removeprefix("torch."))
    check_declaration(dtype, value.ndim, tensor, f"to(torch.{tensor.dtype})")


class Fake:
    """Makes results of a program that are empty, or have no memory either.

    Extents are formulas of sizes where those are symbols; where there is no formula, the symbols are fixed.
    """

    def __init__(self, function: Function) -> None:
        self.function = function

    @functools.cached_property
    def _symbolic(self) -> Symbolic:
        return symbolic_ranges(self.function)

    def __call__(self, *arguments: Any) -> Any:
        """Raises ShapeError where the real call would: types, ranks, sizes, and reads outside if sizes are known."""
        shapes, constants, device = self._read(arguments)
        extents = self._extents(shapes, constants)
        results = tuple(
            torch.empty(extents[t.name], dtype=torch_dtype(t.dtype), device=device) for t in self.function.outputs
        )
        return results[0] if len(results) == 1 else results

    def _read(self, arguments: Sequence[Any]) -> tuple[dict[str, tuple[Any, ...]], dict[str, int], torch.device]:
        shapes: dict[str, tuple[Any, ...]] = {}
        constants: dict[str, int] = {}
        problems: list[Diagnostic] = []
        devices: list[torch.device] = []
        for tensor, value in zip(self.function.inputs, arguments, strict=True):
            try:
                if tensor.role == "const":
                    symbol = isinstance(value, torch.SymInt)
                    constants[tensor.name] = value if symbol else constant(value, tensor, self.function.source)
                    continue
                check_tensor(value, tensor)
                shapes[tensor.name] = tuple(value.shape)
                devices.append(value.device)
            except ArrayError as error:
                problem = shape_error(f"input {tensor.name}", tensor, self.function.source, error)
                problems += problem.diagnostics
            except ShapeError as error:
                problems += error.diagnostics
        if problems:
            raise ShapeError(*problems)
        if len(set(devices)) > 1:
            raise ShapeError(f"{self.function.name}: the tensors lie on {', '.join(sorted(set(map(str, devices))))}")
        return shapes, constants, devices[0] if devices else torch.device("cpu")

    def _extents(self, shapes: Mapping[str, tuple[Any, ...]], constants: Mapping[str, int]) -> dict[str, Any]:
        extents = [extent for shape in shapes.values() for extent in shape]
        if all(isinstance(extent, int) for extent in (*extents, *constants.values())):
            return self._known(shapes, constants)
        if any(tensor.name not in self._symbolic.boxes for tensor in self.function.outputs):
            known = {n: tuple(map(int, shape)) for n, shape in shapes.items()}
            return self._known(known, {n: int(value) for n, value in constants.items()})
        sizes = self._bound(shapes, constants)
        return {
            tensor.name: tuple(_value(extent, sizes) for extent in self._symbolic.extents(tensor.name))
            for tensor in self.function.outputs
        }

    def _known(self, shapes: Mapping[str, tuple[int, ...]], constants: Mapping[str, int]) -> dict[str, Any]:
        with ISL.value:
            ranges = infer(self.function, bind_sizes(self.function, shapes, constants))
        return {tensor.name: ranges.boxes[tensor.name].extent for tensor in self.function.outputs}

    def _bound(self, shapes: Mapping[str, tuple[Any, ...]], constants: Mapping[str, int]) -> dict[str, Any]:
        """A symbol takes the first dimension that it is; all others must be what they say.  Raises ShapeError."""
        sizes: dict[str, Any] = dict(constants)
        declared = [
            (expr, extent)
            for tensor in self.function.inputs
            for expr, extent in zip(tensor.dims or (), shapes.get(tensor.name, ()), strict=False)
        ]
        for expr, extent in declared:
            if isinstance(expr, Size):
                sizes.setdefault(expr.name, extent)
        for tensor in self.function.inputs:
            box = self._symbolic.boxes.get(tensor.name, ())
            for (first, last), extent in zip(box, shapes.get(tensor.name, ()), strict=False):
                expected = _value(last - first + 1, sizes)
                # A guard, where one of them is a symbol; what does not fit gets the words of a real call.
                if expected is not extent and expected != extent:
                    known = {n: tuple(map(int, shape)) for n, shape in shapes.items()}
                    bind_sizes(self.function, known, {n: int(value) for n, value in constants.items()})
        return sizes


def _value(polynomial: Polynomial, sizes: Mapping[str, Any]) -> Any:
    """The value for sizes that may be symbols of torch."""
    total: Any = 0
    for monomial, coefficient in polynomial.terms:
        term: Any = coefficient
        for atom in monomial:
            match atom:
                case str():
                    term = term * sizes[atom]
                case Quotient():
                    term = term * (_value(atom.numerator, sizes) // _value(atom.divisor, sizes))
                case Extreme():
                    choose = torch.sym_min if atom.op == "min" else torch.sym_max
                    term = term * functools.reduce(choose, [_value(o, sizes) for o in atom.operands])
        total = total + term
    return total
