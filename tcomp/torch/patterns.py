"""Sums of products and reductions by pattern: ``einsum("b i k, k j -> b i j", A, B)``.  The text is written here."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import torch

from tcomp import engine
from tcomp.errors import ShapeError, TcompError
from tcomp.operation import Operation

_TYPES = {"float32": "float", "float64": "double", "float16": "half", "int32": "int"}

_REDUCTIONS = {"sum": "+=!", "prod": "*=!", "max": "max=!", "min": "min=!", "+": "+=!", "*": "*=!", "mean": "+=!"}


def einsum(pattern: str, *tensors: torch.Tensor) -> Any:
    """``torch.einsum`` as one kernel: indices that the result lacks are summed over.

    Products of bools are added up as bools: whether any is true.

    Args:
        pattern: the indices of each tensor and, behind ``->``, of the result, by default those that occur once in the
            order of the alphabet.  Names are separated by spaces (``"b i, i j -> b j"``); without any space inside a
            list every letter is an index (``"bi,ij->bj"``).
        tensors: one for each list, all of one type.

    Raises:
        TcompError: the pattern is none, or does not fit the number of tensors.
        ShapeError: the tensors do not fit the pattern.
    """
    return einsum_operation(pattern, _type_of(tensors), len(tensors))(*tensors)


def reduce(pattern: str, tensor: torch.Tensor, by: str = "sum") -> Any:
    """``reduce("n d -> n", X, "max")``: a tensor reduced over the indices that the result lacks.

    ``by`` is ``sum``, ``prod``, ``max``, ``min`` or ``mean``, or a reduction as programs write it, such as ``max=!``.
    As those of torch, ``sum`` and ``prod`` of integers and bools are ``int64``; ``+=!`` and ``*=!`` keep the type.
    Raises as ``einsum`` does.
    """
    return reduce_operation(pattern, _type_of((tensor,)), by.removesuffix("=!"))(tensor)


@functools.lru_cache(1000)
def einsum_operation(pattern: str, dtype: str, count: int) -> Operation:
    """The operation that a pattern stands for."""
    operands, result = _parsed(pattern)
    if len(operands) != count:
        raise TcompError(f"the pattern {pattern!r} is for {len(operands)} tensors, not {count}")
    names = _names(dict.fromkeys(i for operand in (*operands, result) for i in operand))
    inputs = [f"X{n}" for n in range(count)]
    lines: list[str] = []
    current, held = inputs[0], list(operands[0])
    for position in range(1, count):
        # One after the other: what no later tensor and no result needs is summed over at once.
        later = {i for operand in operands[position + 1 :] for i in operand} | set(result)
        kept = [i for i in dict.fromkeys((*held, *operands[position])) if i in later]
        is_last = position == count - 1
        target, kept = ("Y", list(result)) if is_last else (f"T{position}", kept)
        product = f"{_element(current, held, names)} * {_element(inputs[position], operands[position], names)}"
        adds = {*held, *operands[position]} - set(kept)
        lines.append(f"{_element(target, kept, names)} {'+=!' if adds else '='} {product}")
        current, held = target, kept
    if count == 1:
        adds = set(held) - set(result)
        only = _element(current, held, names)
        lines.append(f"{_element('Y', result, names)} {f'+=! {_counted(only, dtype)}' if adds else f'= {only}'}")
    return _operation("einsum", dict(zip(inputs, operands, strict=True)), lines, names, dtype)


@functools.lru_cache(1000)
def reduce_operation(pattern: str, dtype: str, by: str) -> Operation:
    """The operation that a pattern stands for."""
    operands, result = _parsed(pattern)
    if len(operands) != 1:
        raise TcompError(f"the pattern {pattern!r} is for {len(operands)} tensors, not 1")
    if by not in _REDUCTIONS:
        raise TcompError(f"no reduction {by!r}: choose one of {', '.join(n for n in _REDUCTIONS if n.isalpha())}")
    if by == "mean" and "float" not in dtype:
        raise TcompError(f"the mean of {dtype} is no {dtype}; convert the tensor to floats")
    (operand,) = operands
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


def _parsed(pattern: str) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    left, arrow, right = pattern.partition("->")
    lists = [part.strip() for part in left.split(",")]
    spaced = any(" " in part for part in (*lists, right.strip()))
    split = (lambda part: tuple(part.split())) if spaced else tuple
    operands = [split(part) for part in lists]
    found = [i for operand in operands for i in operand]
    for index in (*found, *split(right.strip())):
        if not index.isidentifier():
            raise TcompError(f"{index!r} in the pattern {pattern!r} is no name of an index")
    result = split(right.strip()) if arrow else tuple(sorted(i for i in set(found) if found.count(i) == 1))
    for index in result:
        if index not in found:
            raise TcompError(f"the result of the pattern {pattern!r} has {index}, which no tensor has")
        if result.count(index) > 1:
            raise TcompError(f"the result of the pattern {pattern!r} has {index} twice")
    return operands, result


def _names(indices: dict[str, None]) -> dict[str, str]:
    """Names that neither clash with each other as sizes, in capitals, nor with anything of the language."""
    return {index: f"i{number}_{index.lower()}" for number, index in enumerate(indices)}


def _element(tensor: str, indices: Sequence[str], names: dict[str, str]) -> str:
    return f"{tensor}({', '.join(names[i] for i in indices)})" if indices else tensor


def _type_of(tensors: Sequence[Any]) -> str:
    if not tensors or not all(isinstance(t, torch.Tensor) for t in tensors):
        raise ShapeError("expected torch tensors")
    dtypes = {str(t.dtype).removeprefix("torch.") for t in tensors}
    if len(dtypes) > 1:
        raise ShapeError(f"the tensors have different types: {', '.join(sorted(dtypes))}")
    return dtypes.pop()
