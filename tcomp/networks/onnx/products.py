"""Rules for products of matrices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tcomp.networks.importing import rule
from tcomp.networks.network import Value, retyped
from tcomp.networks.onnx.moving import shaped
from tcomp.networks.onnx.operands import FLOATS, OnnxBuilder, OnnxNode, Operand
from tcomp.networks.texts import general as texts
from tcomp.networks.texts import layers
from tcomp.networks.texts.general import definition, read, spread, tensor


@rule("onnx.MatMul")
def matmul(b: OnnxBuilder, n: OnnxNode, *, A: Operand, B: Operand) -> Any:
    left, right = A.shape, B.shape
    if min(len(left), len(right)) >= 2:
        made = layers.matmul(left, right)
        return b.floats(n, made, [A, B]) if n.dtype in FLOATS else b.call(n, retyped(made, n.dtype), [A, B])
    rows = left if len(left) > 1 else (1, *left)
    columns = right if len(right) > 1 else (*right, 1)
    one, two = (
        one_of(shaped(b, n, x, to, f"{side}_matrix")) for x, to, side in ((A, rows, "left"), (B, columns, "right"))
    )
    lead = rows[:-2] if len(right) == 1 else columns[:-2]
    inner = replace(n, name=f"{n.name}_matrix", shape=(*lead, rows[-2], columns[-1]))
    return shaped(b, n, matmul(b, inner, A=one, B=two), n.shape)


def one_of(made: Value | list[Operand]) -> Operand:
    """What ``shaped`` gave."""
    return made[0] if isinstance(made, list) else made


@rule("onnx.Gemm")
def gemm(
    b: OnnxBuilder,
    n: OnnxNode,
    *,
    A: Operand,
    B: Operand,
    C: Operand | None,
    alpha: float,
    beta: float,
    transA: int,
    transB: int,
) -> Value:
    plain = alpha == 1 and (beta == 1 or C is None) and not transA
    if plain and transB and (C is None or C.shape == (n.shape[1],)):
        return b.floats(n, layers.linear(2, C is not None), [A, B, C])
    name = f"gemm{'_at' if transA else ''}{'_bt' if transB else ''}"
    a, c = ("k,m" if transA else "m,k"), ("n,k" if transB else "k,n")
    parameters = [f"float({a.upper()}) A", f"float({c.upper()}) B"]
    lines = [f"Y(m,n) +=! A({a}) * B({c})"]
    if C is not None:
        letters = spread(C.shape, n.shape).replace("a", "m").replace("b", "n")
        name += f"_plus_{letters.replace('1', 'o') or 's'}"
        parameters += [f"{tensor(letters)} C"]
    added = "" if C is None else f" + {'' if beta == 1 else 'beta * '}{read('C', letters)}"
    if alpha != 1 or added:
        lines.append(f"Y(m,n)  =  {'' if alpha == 1 else 'alpha * '}Y(m,n){added}")
    numbers = {
        label: float(k) for label, k, on in (("alpha", alpha, True), ("beta", beta, C is not None)) if on and k != 1
    }
    made = definition("_".join([name, *numbers]), [*parameters, *(f"float {label}" for label in numbers)], "Y", lines)
    return b.floats(n, made, [A, B, C], **numbers)


@rule("onnx.Einsum")
def einsum(b: OnnxBuilder, n: OnnxNode, *, Inputs: Sequence[Operand], equation: str) -> Value:
    left, arrow, right = equation.replace(" ", "").partition("->")
    parts = left.split(",")
    if len(parts) != len(Inputs):
        raise n.refuse(f"has {len(Inputs)} operands for {equation}")
    extra = 0
    for k, (part, x) in enumerate(zip(parts, Inputs, strict=True)):
        if "..." in part:
            width = len(x.shape) - len(part.replace("...", ""))
            extra = max(extra, width)
            parts[k] = part.replace("...", "0123456789"[10 - width :] if width else "")
    if not arrow:
        every = "".join(parts)
        right = "..." * (extra > 0) + "".join(sorted(c for c in set(every) if every.count(c) == 1 and not c.isdigit()))
    right = right.replace("...", "0123456789"[10 - extra :] if extra else "")
    order = dict.fromkeys("".join(parts))
    if len(order) > 12 or any(len(p) != len(x.shape) for p, x in zip(parts, Inputs, strict=True)):
        raise n.refuse(f"has the equation {equation}, which does not fit")
    extents: dict[str, int] = {}
    for part, x in zip(parts, Inputs, strict=True):
        for c, extent in zip(part, x.shape, strict=True):
            if extents.setdefault(c, extent) != extent:
                raise n.refuse(f"repeats elements along {c} of {equation}")
    letter = dict(zip(order, "abcdefghijkl", strict=False))
    renamed = ["".join(letter[c] for c in part) for part in parts]
    result, summed = "".join(letter[c] for c in right), set(right) != set(order)
    if n.dtype in FLOATS:
        return b.floats(n, texts.einsum(renamed, result, summed, "float32"), Inputs)
    return b.call(n, texts.einsum(renamed, result, summed, n.dtype), Inputs)
