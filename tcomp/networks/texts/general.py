"""Defs that the rules for ONNX write: functions of elements of any type, and what no operator of PyTorch needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from tcomp.networks.network import SPELLED, Definition
from tcomp.networks.texts.elements import at, indices

Shape = Sequence[int]
_OPERANDS = ("X", "Y", "Z", "V", "W", "S", "T", "U", "P", "Q", "R", "M", "L", "J", "K", "N")
"""Names of operands: no letters of extents."""


ROUNDED = "low + (rest > 0.5 || (rest == 0.5 && low != 2.0 * floor(0.5 * low)) ? 1.0 : 0.0)"
"""The nearest integer, of two the even one; with ``ROUNDING`` behind it."""
ROUNDING = "low = floor({x}), rest = {x} - low"


def spelled(dtype: str) -> str:
    """An element type as program text has it."""
    return SPELLED.get(dtype, dtype)


def number(name: str, given: float, dtype: str) -> tuple[str, str, int | float]:
    """A parameter that is a number beside elements of a type: its own type, how a body reads it, and its value.

    Truth values are passed as integers, for calls have no others.
    """
    if dtype == "bool":
        return "int32", f"({name} != 0)", int(bool(given))
    return dtype, name, float(given) if dtype.startswith("float") else int(given)


def lowest(dtype: str) -> str:
    """What no element of a type is below."""
    if dtype.startswith("float"):
        return "-1.0 / 0.0"
    # The text of a number has no sign: that of the least one of 64 bits would be too large.
    return f"-{np.iinfo(dtype).max} - 1" if dtype == "int64" else str(np.iinfo(dtype).min)


def highest(dtype: str) -> str:
    """What no element of a type is above."""
    return "1.0 / 0.0" if dtype.startswith("float") else str(np.iinfo(dtype).max)


def tensor(letters: Sequence[str], dtype: str = "float32") -> str:
    """A parameter's type; an extent is the capital letter of its index, or what else stands there."""
    return f"{spelled(dtype)}({','.join(c.upper() for c in letters)})" if letters else spelled(dtype)


def definition(name: str, parameters: Sequence[str], result: str, lines: Sequence[str]) -> Definition:
    """A def of some statements, its head broken where it is long."""
    head = f"def {name}({', '.join(parameters)}) -> ({result}) {{"
    if len(head) > 120:
        half = (len(parameters) + 1) // 2
        first, second = ", ".join(parameters[:half]), ", ".join(parameters[half:])
        head = f"def {name}({first},\n    {second})\n    -> ({result}) {{"
    return Definition(name, "\n".join([head, *(f"  {line}" for line in lines), "}"]))


def typed(name: str, dtype: str) -> str:
    """A def's name for elements of a type."""
    return name if dtype == "float32" else f"{name}_{dtype}"


def spread(shape: Shape, result: Shape) -> str:
    """The indices of an operand; ``1`` stands for an axis along which it is repeated."""
    letters = indices(len(result))[len(result) - len(shape) :]
    lengths = result[len(result) - len(shape) :]
    return "".join("1" if n == 1 and m != 1 else c for c, n, m in zip(letters, shape, lengths, strict=True))


def read(name: str, letters: str) -> str:
    """An access by the letters that ``spread`` gave."""
    return at(name, [*letters.replace("1", "0")])


def pointwise(
    name: str,
    body: str,
    operands: Sequence[tuple[Shape, str]],
    shape: Shape,
    dtype: str,
    numbers: Mapping[str, str] | None = None,
    lets: str = "",
    convert: bool = False,
) -> Definition:
    """A function of elements at one place: ``{a}``, ``{b}`` ... of the body are those of the operands.

    Args:
        name: of what is computed; types, and axes that are repeated, are added to it.
        body: an expression.
        operands: shape and element type of each.
        shape: of the result.
        dtype: of the result.
        numbers: names and element types of parameters that are numbers.
        lets: what stands behind ``where``.
        convert: whether the body has another type.
    """
    whole = indices(len(shape))
    letters = [spread(each, shape) for each, _ in operands]
    types = [kind for _, kind in operands]
    parameters = [f"{tensor(c, kind)} {x}" for c, kind, x in zip(letters, types, _OPERANDS, strict=False)]
    parameters += [f"{spelled(kind)} {number}" for number, kind in (numbers or {}).items()]
    accesses = dict(
        zip("abcdefghijklmnop", (read(x, c) for x, c in zip(_OPERANDS, letters, strict=False)), strict=False)
    )
    expression = body.format(**accesses)
    if convert or dtype not in ("float32", "float64", "bool"):
        expression = f"{spelled(dtype)}({expression})"
    where = f"\n    where {lets.format(**accesses)}" if lets else ""
    kinds = [*dict.fromkeys(kind for kind in types if kind != "float32")]
    same = all(c == letters[0] for c in letters)
    told = [name, *kinds, f"{len(shape)}d" if same else "_".join(c.replace("1", "o") or "s" for c in letters)]
    made = "_".join(told)
    text = f"def {made}({', '.join(parameters)}) -> (O) {{ {at('O', [*whole])} = {expression} }}"
    if where or len(text) > 120:
        text = f"def {made}({', '.join(parameters)}) -> (O) {{\n  {at('O', [*whole])} = {expression}{where}\n}}"
    return Definition(made, text, pointwise=True)


def conversion(rank: int, before: str, after: str) -> Definition:
    """Elements as those of another type."""
    shape = tuple(range(2, 2 + rank))
    body = "{a} != 0" if after == "bool" else "{a}"
    made = pointwise(f"to_{after}", body, [(shape, before)], shape, after, convert=after != "bool")
    return replace(made, converts=True)


LOG_SUM_EXP = ("+=!", "exp({x} - {m})", "abs({m}) < 1.0 / 0.0 ? log({y}) + {m} : {m}", "max=!")
"""The logarithm of a sum of exponentials, for `reduction`; of rows whose largest element is infinite, that element."""


def reduction(
    name: str,
    symbol: str,
    body: str,
    after: str,
    rank: int,
    axes: Sequence[int],
    keep: bool,
    dtype: str,
    first: str = "",
) -> Definition:
    """Elements, or functions of them, combined along some axes; ``after`` is what is done to the result ``{y}``.

    With ``first``, ``{m}`` of both is the result of that reduction of the elements themselves.
    """
    i = indices(rank)
    made = typed(f"{name}_{rank}d_over_{''.join(i[k] for k in axes)}{'_kept' if keep else ''}", dtype)
    left = at("Y", [("0" if k in axes else c) if keep else c for k, c in enumerate(i) if keep or k not in axes])
    extreme = at("M", [c for k, c in enumerate(i) if k not in axes])
    x = at("X", [*i])
    count = "*".join(i[k].upper() for k in axes)
    lines = [f"{extreme} {first} {x}"] if first else []
    lines.append(f"{left} {symbol} {body.format(x=x, m=extreme)}")
    if after:
        lines.append(f"{left}  =  {after.format(y=left, m=extreme, count=count)}")
    return definition(made, [f"{tensor(i, dtype)} X"], "Y", lines)


def places(what: str, rank: int, axis: int, keep: bool, last: bool, dtype: str) -> Definition:
    """Where the largest or the smallest element along an axis stands."""
    i = indices(rank)
    k, extent = i[axis], i[axis].upper()
    made = typed(f"{what}_{rank}d_axis{axis}{'_kept' if keep else ''}{'_last' if last else ''}", dtype)
    rest = [c for c in i if c != k]
    place = at("p", rest)
    x = at("X", [f"{extent}-1-{c}" if c == k and last else c for c in i])
    left = at("Y", [("0" if c == k else c) for c in i] if keep else rest)
    lines = [
        f"{place} {what}=! {x}",
        f"{left} = int64({f'{extent}-1-{place}' if last else place})",
    ]
    return definition(made, [f"{tensor(i, dtype)} X"], "Y", lines)


def running(rank: int, axis: int, symbol: str, exclusive: bool, reverse: bool, dtype: str) -> Definition:
    """Sums (or products) of all elements up to each, along an axis."""
    i = indices(rank)
    k = i[axis]
    flags = f"{'_exclusive' if exclusive else ''}{'_reverse' if reverse else ''}"
    made = typed(f"{'cumsum' if symbol == '+' else 'cumprod'}_{rank}d_axis{axis}{flags}", dtype)
    x = at("X", ["j" if c == k else c for c in i])
    own = "+1" if exclusive == reverse else ""
    steps = f"j in {k}{own}:{k.upper()}" if reverse else f"j in 0:{k}{own}"
    line = f"{at('Y', [*i])} {symbol}=! {x} where {', '.join(f'{c} in 0:{c.upper()}' for c in i)}, {steps}"
    return definition(made, [f"{tensor(i, dtype)} X"], "Y", [line])


def log_softmax(rank: int, axis: int) -> Definition:
    """The logarithm of softmax along an axis, without a division that may overflow."""
    i = indices(rank)
    rest = [c for c in i if c != i[axis]]
    largest, total, x = at("largest", rest), at("total", rest), at("X", [*i])
    lines = [
        f"{largest} max=! {x}",
        f"{total} +=! exp({x} - {largest})",
        f"{at('Y', [*i])} = {x} - {largest} - log({total})",
    ]
    return definition(f"log_softmax_{rank}d_axis{axis}", [f"{tensor(i)} X"], "Y", lines)


def hardmax(rank: int, axis: int) -> Definition:
    """1 where the first of the largest elements along an axis stands, else 0."""
    i = indices(rank)
    place = at("p", [c for c in i if c != i[axis]])
    lines = [f"{place} argmax=! {at('X', [*i])}", f"{at('Y', [*i])} = {i[axis]} == {place} ? 1.0 : 0.0"]
    lines[1] += f" where {', '.join(f'{c} in 0:{c.upper()}' for c in i)}"
    return definition(f"hardmax_{rank}d_axis{axis}", [f"{tensor(i)} X"], "Y", lines)


def einsum(operands: Sequence[str], result: str, summed: bool, dtype: str) -> Definition:
    """A sum of products, by the letters of each operand and of the result."""
    name = typed("einsum_" + "_".join([*operands, "to", result or "s"]), dtype)
    names = _OPERANDS[: len(operands)]
    parameters = [f"{tensor(c, dtype)} {x}" for c, x in zip(operands, names, strict=True)]
    product = " * ".join(at(x, [*c]) for c, x in zip(operands, names, strict=True))
    return definition(name, parameters, "O", [f"{at('O', [*result])} {'+=!' if summed else '='} {product}"])
