"""Rules for normalisations and softmax."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tcomp.networks.importing import rule
from tcomp.networks.network import Value
from tcomp.networks.onnx.operands import OnnxBuilder, OnnxNode, Operand
from tcomp.networks.texts import general as texts
from tcomp.networks.texts import layers
from tcomp.networks.texts.elements import at, indices
from tcomp.networks.texts.general import definition, tensor


@rule("onnx.BatchNormalization")
def batch_norm(
    b: OnnxBuilder,
    n: OnnxNode,
    *,
    X: Operand,
    scale: Operand,
    B: Operand,
    input_mean: Operand,
    input_var: Operand,
    epsilon: float,
    training_mode: int = 0,
    **_: Any,
) -> Value:
    if training_mode or n.several:
        raise n.refuse("uses the statistics of the batch", "export the model in evaluation mode")
    if not 2 <= len(X.shape) <= 5:
        raise n.refuse(f"takes a tensor of {len(X.shape)} axes")
    made = layers.batch_norm(len(X.shape), True, True)
    return b.floats(n, made, [X, input_mean, input_var, scale, B], eps=float(epsilon))


@rule("onnx.LayerNormalization")
def layer_norm(
    b: OnnxBuilder,
    n: OnnxNode,
    *,
    X: Operand,
    Scale: Operand,
    B: Operand | None,
    axis: int,
    epsilon: float,
    stash_type: int,
) -> Any:
    rank = len(X.shape)
    first = n.axis(axis, rank)
    inner = X.shape[first:]
    if n.several or any(operand is not None and operand.shape != inner for operand in (Scale, B)):
        return NotImplemented
    made = layers.layer_norm(rank, rank - first, True, B is not None)
    return b.floats(n, made, [X, Scale, B], eps=float(epsilon))


@rule("onnx.RMSNormalization")
def rms_norm(
    b: OnnxBuilder, n: OnnxNode, *, X: Operand, scale: Operand, axis: int, epsilon: float, stash_type: int
) -> Any:
    rank = len(X.shape)
    first = n.axis(axis, rank)
    if scale.shape != X.shape[first:]:
        return NotImplemented
    i = indices(rank)
    rows, inner = i[:first], i[first:]
    count = "*".join(c.upper() for c in inner)
    square, x = at("square", [*rows]), at("X", [*i])
    lines = [
        f"{square} +=! {x} * {x}",
        f"{at('Y', [*i])} = {x} * rsqrt({square} / ({count}) + eps) * {at('gamma', [*inner])}",
    ]
    parameters = [f"{tensor(i)} X", f"{tensor(inner)} gamma", "float eps"]
    return b.floats(
        n, definition(f"rms_norm_{rank}d_over_{inner}", parameters, "Y", lines), [X, scale], eps=float(epsilon)
    )


@rule("onnx.InstanceNormalization")
def instance_norm(b: OnnxBuilder, n: OnnxNode, *, x: Operand, scale: Operand, B: Operand, epsilon: float) -> Value:
    return _grouped(b, n, x, x.shape[1], scale, B, epsilon)


@rule("onnx.GroupNormalization")
def group_norm(
    b: OnnxBuilder,
    n: OnnxNode,
    *,
    X: Operand,
    scale: Operand,
    bias: Operand,
    epsilon: float,
    num_groups: int,
    stash_type: int = 1,
) -> Any:
    if scale.shape != (X.shape[1],):
        return NotImplemented
    return _grouped(b, n, X, num_groups, scale, bias, epsilon)


def _grouped(b: OnnxBuilder, n: OnnxNode, x: Operand, groups: int, scale: Operand, bias: Operand, eps: float) -> Value:
    rank = len(x.shape)
    if not 3 <= rank <= 5 or groups < 1 or x.shape[1] % groups:
        raise n.refuse(f"takes {x.shape} in {groups} groups")
    others = "hwd"[: rank - 2]
    size = "*".join(("(C/G)", *(c.upper() for c in others)))
    grouped = at("X", ["n", "g*(C/G)+k", *others])
    whole = ["n", "c", *others]
    lines = [
        f"M(n,g) +=! {grouped} where g in 0:G, k in 0:C/G",
        f"M(n,g)  =  M(n,g) / ({size})",
        f"S(n,g) +=! ({grouped} - M(n,g)) * ({grouped} - M(n,g)) where g in 0:G, k in 0:C/G",
        f"S(n,g)  =  S(n,g) / ({size})",
        f"{at('Y', whole)} = ({at('X', whole)} - M(n,c/(C/G))) * rsqrt(S(n,c/(C/G)) + eps) * gamma(c) + beta(c)",
    ]
    parameters = [f"{tensor(whole)} X", "float(C) gamma", "float(C) beta", "const int G", "float eps"]
    made = definition(f"group_norm_{rank}d_affine", parameters, "Y", lines)
    return b.floats(replace(n, shape=x.shape), made, [x, scale, bias], G=groups, eps=float(eps))


@rule("onnx.Softmax", "onnx.LogSoftmax", "onnx.Hardmax")
def softmax(b: OnnxBuilder, n: OnnxNode, *, x: Operand, axis: int) -> Value:
    rank = len(x.shape)
    make = {"onnx.Softmax": layers.softmax, "onnx.LogSoftmax": texts.log_softmax, "onnx.Hardmax": texts.hardmax}
    return b.floats(n, make[n.operator](rank, n.axis(axis, rank)), [x])


@rule("onnx.LpNormalization")
def lp_norm(b: OnnxBuilder, n: OnnxNode, *, x: Operand, axis: int, p: int) -> Value:
    rank = len(x.shape)
    i, k = indices(rank), n.axis(axis, rank)
    norm, element = at("norm", [c for c in i if c != i[k]]), at("X", [*i])
    length = f"sqrt({norm})" if p == 2 else norm
    lines = [
        f"{norm} +=! {f'{element} * {element}' if p == 2 else f'abs({element})'}",
        f"{at('Y', [*i])} = {norm} == 0 ? 0.0 : {element} / {length}",
    ]
    return b.floats(n, definition(f"l{p}_normalize_{rank}d_axis{k}", [f"{tensor(i)} X"], "Y", lines), [x])
