"""Sums of products and reductions by pattern: ``einsum("b i k, k j -> b i j", A, B)``.  The text is written here."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from tcomp import engine
from tcomp.autograd.operators import operator_of
from tcomp.errors import ShapeError, TcompError
from tcomp.operation import Operation
from tcomp.storage.memo import MOST_KEPT, Recent
from tcomp.torch.equations import ELLIPSIS, Equation, parsed, pattern_of

Drops = tuple[tuple[int, ...], ...]
"""The dimensions of each tensor that are stretched; () if there is none."""

_TYPES = {"float32": "float", "float64": "double", "float16": "half", "int32": "int"}

_REDUCTIONS = {"sum": "+=!", "prod": "*=!", "max": "max=!", "min": "min=!", "+": "+=!", "*": "*=!", "mean": "+=!"}


def einsum(pattern: Any, *tensors: Any) -> Any:
    """``torch.einsum`` as one kernel: indices that the result lacks are summed over.

    Products of bools are added up as bools: whether any is true.

    Args:
        pattern: the indices of each tensor and, behind ``->``, of the result, by default those that occur once in the
            order of the alphabet, behind those of an ellipsis.  Names are separated by spaces (``"b i, i j -> b j"``);
            without any space between names every letter is an index (``"bi,ij->bj"``).  ``...`` are the dimensions
            that have no names; they are broadcast from the last one.
        tensors: one for each list, all of one type; an extent of 1 serves for any other of the same index.  As
            ``torch.einsum`` does, this takes them as one list, too, and without a pattern a list of integers behind
            each tensor and one for the result: ``einsum(A, [..., 0, 1], B, [1, 2], [..., 0, 2])``.

    Raises:
        TcompError: the pattern is none, or does not fit the number of tensors or their dimensions.
        ShapeError: the tensors do not fit the pattern.
    """
    if isinstance(pattern, torch.Tensor):
        pattern, tensors = _from_lists(pattern, *tensors)
    elif len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        (tensors,) = tensors
    if torch.compiler.is_compiling():
        shapes, dtype = tuple([t.shape for t in tensors]), _type_of(tensors)
        ranks = tuple([len(shape) for shape in shapes])
        drops = _stretched(_operands(pattern, ranks), shapes)
        return _run_in_graphs(_einsum_name(pattern, dtype, ranks, drops), _without(tensors, drops))
    try:
        operation, drops = _KNOWN[(pattern, *[(t.dtype, t.shape) for t in tensors])]
    except (KeyError, AttributeError):
        operation, drops = _known(pattern, tensors)
    return operation(*(_without(tensors, drops) if drops else tensors))


def reduce(pattern: str, tensor: torch.Tensor, by: str = "sum") -> Any:
    """``reduce("n d -> n", X, "max")``: a tensor reduced over the indices that the result lacks.

    ``by`` is ``sum``, ``prod``, ``max``, ``min`` or ``mean``, or a reduction as programs write it, such as ``max=!``.
    As those of torch, ``sum`` and ``prod`` of integers and bools are ``int64``; ``+=!`` and ``*=!`` keep the type.
    Patterns are those of ``einsum``.  Raises as that does.
    """
    dtype, by = _type_of((tensor,)), by.removesuffix("=!")
    if torch.compiler.is_compiling():
        return _run_in_graphs(_reduce_name(pattern, dtype, by, tensor.ndim), (tensor,))
    return reduce_operation(pattern, dtype, by, tensor.ndim)(tensor)


_KNOWN: Recent[tuple[Any, ...], tuple[Operation, Drops]] = Recent(MOST_KEPT)
"""Operations by pattern, types and shapes."""


def _known(pattern: str, tensors: Sequence[Any]) -> tuple[Operation, Drops]:
    dtype = _type_of(tensors)
    shapes = tuple([tuple(t.shape) for t in tensors])
    drops = _stretched(_equation(pattern, tuple(map(len, shapes))).operands, shapes)
    found = einsum_operation(pattern, dtype, tuple(map(len, shapes)), drops), drops
    _KNOWN[(pattern, *[(t.dtype, t.shape) for t in tensors])] = found
    return found


def _from_lists(*given: Any) -> tuple[str, tuple[Any, ...]]:
    """The pattern and the tensors of a call with lists of integers.  Raises TcompError."""
    tensors, lists = given[: len(given) // 2 * 2 : 2], given[1::2]
    if not all(isinstance(own, (list, tuple)) for own in (*lists, *given[len(given) // 2 * 2 :])):
        raise TcompError("einsum without a pattern takes a list of integers behind each tensor, and one for the result")
    return pattern_of(lists, given[-1] if len(given) % 2 else None), tensors


@functools.lru_cache(1000)
def _equation(pattern: str, ranks: tuple[int, ...]) -> Equation:
    if not isinstance(pattern, str):
        raise TcompError(f"the pattern must be a text such as 'ij,jk->ik', not {pattern!r}")
    equation = parsed(pattern)
    if len(equation.operands) != len(ranks):
        raise TcompError(f"the pattern {pattern!r} is for {len(equation.operands)} tensors, not {len(ranks)}")
    return equation.spread(ranks)


def _stretched(operands: Sequence[Sequence[str]], shapes: Sequence[Sequence[int]]) -> Drops:
    """The dimensions of each tensor that have extent 1 where others of the same index are longer; () if none has.

    Raises ShapeError where two extents of an index differ otherwise.
    """
    extents: dict[str, tuple[int, int]] = {}
    for number, (operand, shape) in enumerate(zip(operands, shapes, strict=True)):
        for place, (index, extent) in enumerate(zip(operand, shape, strict=True)):
            if operand.index(index) < place and extent != shape[operand.index(index)]:
                _refuse(_differ(index, number, number, shape[operand.index(index)], extent))
            if index not in extents or extents[index][1] == 1:
                extents[index] = number, extent
            elif extent not in (1, extents[index][1]):
                _refuse(_differ(index, extents[index][0], number, extents[index][1], extent))
    drops = tuple(
        tuple(place for place, index in enumerate(operand) if shape[place] == 1 and extents[index][1] != 1)
        for operand, shape in zip(operands, shapes, strict=True)
    )
    return drops if any(drops) else ()


def _differ(index: str, one: int, other: int, first: int, second: int) -> str:
    name = f"dimension -{index[len(ELLIPSIS) :]} of the ellipsis" if index.startswith(ELLIPSIS) else f"index {index}"
    return f"einsum: {name} has size {int(first)} in tensor {one}, but {int(second)} in tensor {other}"


@torch._dynamo.assume_constant_result  # type: ignore[untyped-decorator]
def _refuse(message: str) -> None:
    """Raises ShapeError, in compiled graphs with its words."""
    raise ShapeError(message)


def _without(tensors: Sequence[Any], drops: Drops) -> tuple[Any, ...]:
    """Tensors without the dimensions that are stretched."""
    return tuple([t.squeeze(own) if own else t for t, own in zip(tensors, drops or ((),) * len(tensors), strict=True)])


@functools.lru_cache(1000)
def einsum_operation(pattern: str, dtype: str, ranks: tuple[int, ...], drops: Drops = ()) -> Operation:
    """The operation that a pattern stands for, of tensors of some ranks that lack some dimensions."""
    equation = _equation(pattern, ranks)
    operands = [
        tuple(index for place, index in enumerate(operand) if place not in own)
        for operand, own in zip(equation.operands, drops or ((),) * len(ranks), strict=True)
    ]
    result = equation.result or ()
    names = _names(dict.fromkeys(i for operand in (*operands, result) for i in operand))
    inputs = [f"X{n}" for n in range(len(ranks))]
    lines: list[str] = []

    def summed(tensor: str, held: Sequence[str], others: set[str], name: str) -> tuple[str, Sequence[str]]:
        """A factor summed over what it alone has, where the product would go over that for each element of others."""
        kept = [i for i in dict.fromkeys(held) if i in others or i in result]
        if len(kept) == len(set(held)) or others <= set(held):
            return tensor, held
        lines.append(f"{_element(name, kept, names)} +=! {_element(tensor, held, names)}")
        return name, kept

    current: str = inputs[0]
    held: Sequence[str] = operands[0]
    for position in range(1, len(ranks)):
        # One after the other: what no later tensor and no result needs is summed over at once.
        later = {i for operand in operands[position + 1 :] for i in operand} | set(result)
        before = set(held)
        current, held = summed(current, held, {*operands[position], *later}, f"S{position - 1}")
        factor, own = summed(inputs[position], operands[position], {*before, *later}, f"R{position}")
        kept = [i for i in dict.fromkeys((*held, *own)) if i in later]
        is_last = position == len(ranks) - 1
        target, kept = ("Y", list(result)) if is_last else (f"T{position}", kept)
        adds = {*held, *own} - set(kept)
        product = f"{_element(current, held, names)} * {_element(factor, own, names)}"
        lines.append(f"{_element(target, kept, names)} {'+=!' if adds else '='} {product}")
        current, held = target, kept
    if len(ranks) == 1:
        adds = set(held) - set(result)
        only = _element(current, held, names)
        lines.append(f"{_element('Y', result, names)} {f'+=! {_counted(only, dtype)}' if adds else f'= {only}'}")
    return _operation("einsum", dict(zip(inputs, operands, strict=True)), lines, names, dtype)


@functools.lru_cache(1000)
def reduce_operation(pattern: str, dtype: str, by: str, rank: int) -> Operation:
    """The operation that a pattern stands for, of a tensor of some rank."""
    equation = _equation(pattern, (rank,))
    (operand,), result = equation.operands, equation.result or ()
    if by not in _REDUCTIONS:
        raise TcompError(f"no reduction {by!r}: choose one of {', '.join(n for n in _REDUCTIONS if n.isalpha())}")
    if by == "mean" and "float" not in dtype:
        raise TcompError(f"the mean of {dtype} is no {dtype}; convert the tensor to floats")
    names = _names(dict.fromkeys(operand))
    gone = [i for i in dict.fromkeys(operand) if i not in result]
    operator = _REDUCTIONS[by] if gone else "="
    element = _element("X", operand, names)
    value = _counted(element, dtype) if by in ("sum", "prod") else element
    lines = [f"{_element('Y', result, names)} {operator} {value}"]
    if by == "mean" and gone:
        sizes = " * ".join(f"{_TYPES.get(dtype, dtype)}({names[i].upper()})" for i in gone)
        lines.append(f"{_element('Y', result, names)} = {_element('Y', result, names)} / ({sizes})")
    return _operation("reduce", {"X": operand}, lines, names, dtype)


@torch._dynamo.assume_constant_result  # type: ignore[untyped-decorator]
def _operands(pattern: str, ranks: tuple[int, ...]) -> tuple[tuple[str, ...], ...]:
    return _equation(pattern, ranks).operands


@torch._dynamo.assume_constant_result  # type: ignore[untyped-decorator]
def _einsum_name(pattern: str, dtype: str, ranks: tuple[int, ...], drops: Drops) -> str:
    return operator_of(einsum_operation(pattern, dtype, ranks, drops)).qualified


@torch._dynamo.assume_constant_result  # type: ignore[untyped-decorator]
def _reduce_name(pattern: str, dtype: str, by: str, rank: int) -> str:
    return operator_of(reduce_operation(pattern, dtype, by, rank)).qualified


def _run_in_graphs(qualified: str, tensors: Sequence[Any]) -> Any:
    namespace, name = qualified.split("::")
    return getattr(getattr(torch.ops, namespace), name).default(*tensors)


def _counted(element: str, dtype: str) -> str:
    """What is summed of an element: torch counts integers and bools in 64 bits."""
    return element if "float" in dtype else f"int64({element})"


def _operation(
    name: str, inputs: dict[str, Sequence[str]], lines: list[str], names: dict[str, str], dtype: str
) -> Operation:
    spelling = _TYPES.get(dtype, dtype)
    parameters = [
        f"{spelling}({', '.join(names[i].upper() for i in operand)}) {x}" if operand else f"{spelling} {x}"
        for x, operand in inputs.items()
    ]
    text = f"def {name}({', '.join(parameters)}) -> (Y) {{\n" + "".join(f"    {line}\n" for line in lines) + "}\n"
    return engine.define(text, f"<{name}>")[name]


def _names(indices: dict[str, None]) -> dict[str, str]:
    """Names that neither clash with each other as sizes, in capitals, nor with anything of the language."""
    return {
        index: f"i{number}" if index.startswith(ELLIPSIS) else f"i{number}_{index.lower()}"
        for number, index in enumerate(indices)
    }


def _element(tensor: str, indices: Sequence[str], names: dict[str, str]) -> str:
    return f"{tensor}({', '.join(names[i] for i in indices)})" if indices else tensor


def _type_of(tensors: Sequence[Any]) -> str:
    if not tensors or not all(isinstance(t, torch.Tensor) for t in tensors):
        raise ShapeError("expected torch tensors")
    dtypes = {str(t.dtype).removeprefix("torch.") for t in tensors}
    if len(dtypes) > 1:
        raise ShapeError(f"the tensors have different types: {', '.join(sorted(dtypes))}")
    return dtypes.pop()
