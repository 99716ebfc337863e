"""Rules for PyTorch's sums and products over what data choose: bags and groups of rows, counts, masks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tcomp.networks.aten.parts import expand
from tcomp.networks.importing import Builder, Node, rule
from tcomp.networks.network import Value
from tcomp.networks.texts import elements, general
from tcomp.networks.texts.elements import at, indices
from tcomp.networks.texts.general import definition, tensor


@rule("aten.histc.default")
def counts(b: Builder, n: Node, *, x: Value, bins: int, low: float, high: float) -> Value:
    """How many elements lie in each of some stretches of equal length; what is outside of all, or NaN, is left out."""
    if low >= high:
        raise n.refuse("counts between the least and the largest element", "give it limits")
    if not x.shape:
        x = b.call(replace(n, name=f"{n.name}_row", shape=(1,), dtype=x.dtype), elements.reshape((), (1,)), [x])
    letters = [*indices(len(x.shape))]
    inside, place = at("X", letters), at("P", letters)
    lines = [
        f"{place} = {inside} >= LOW && {inside} <= HIGH ? min(int32(bin), BINS - 1) : BINS",
        f"  where bin = ({inside} - LOW) / (HIGH - LOW) * BINS",
        "T(b) = 0.0 where b in 0:BINS+1",
        f"T({place}) += 1.0",
        "Y(b) = T(b) where b in 0:BINS",
    ]
    parameters = [f"{tensor(letters, x.dtype)} X", "const int BINS", "float LOW", "float HIGH"]
    made = definition(general.typed(f"histogram_{len(letters)}d", x.dtype), parameters, "Y", lines)
    return b.call(n, made, [x], BINS=bins, LOW=float(low), HIGH=float(high))


_BAGS = ("sum", "mean", "max")


@rule("aten._embedding_bag_forward_only.default", "aten._embedding_bag.default")
def bags(
    b: Builder,
    n: Node,
    *,
    weight: Value,
    indices: Value,
    offsets: Value,
    mode: int,
    per_sample_weights: Value | None,
    include_last_offset: bool,
    padding_idx: int,
    **_: Any,
) -> list[Value]:
    """Sums, means or maxima of rows of a table, one for each bag of places; of the four results the first."""
    if len(indices.shape) != 1 or (per_sample_weights is not None and mode):
        raise n.refuse(f"takes places of {len(indices.shape)} axes, or weights for {_BAGS[mode]}")
    count = offsets.shape[0] - include_last_offset
    share = "S(i) * " if per_sample_weights is not None else ""
    if not count:
        return [b.weight(f"{n.name}_bags", np.zeros((0, weight.shape[1]), np.float32))]
    # What is behind the last offset is in no bag.
    conditions = ["I(i) != PAD"] * (padding_idx >= 0) + ["i < F(BAGS)"] * include_last_offset
    kept = f"{' && '.join(conditions)} ? {{}} : {{}}" if conditions else "{}"
    row = "W(I(i),d)"
    start, symbol, value = ("-1.0 / 0.0", "max=", row) if mode == 2 else ("0.0", "+=", share + row)
    lines = [
        "G(i) +=! int64(F(b) <= i) where b in 1:BAGS, i in 0:L",
        f"T(b,d) = {start} where b in 0:BAGS, d in 0:D",
        f"T(G(i),d) {symbol} {kept.format(value, start)}",
    ]
    if mode:
        lines += ["C(b) = 0.0 where b in 0:BAGS", f"C(G(i)) += {kept.format('1.0', '0.0')} where i in 0:L"]
    after = ("T(b,d)", "T(b,d) / max(C(b), 1.0)", "C(b) > 0 ? T(b,d) : 0.0")[mode]
    lines.append(f"Y(b,d) = {after} where b in 0:BAGS, d in 0:D")
    parameters = ["float(V,D) W", f"{tensor(['l'], indices.dtype)} I", f"{tensor(['ends'], offsets.dtype)} F"]
    parameters += ["float(L) S"] * bool(share) + ["const int BAGS"] + ["const int PAD"] * (padding_idx >= 0)
    given = {"BAGS": count} | ({"PAD": padding_idx} if padding_idx >= 0 else {})
    told = [f"embedding_bag_{_BAGS[mode]}", *["shares"] * bool(share), *["padded"] * (padding_idx >= 0)]
    told += [*["ended"] * include_last_offset, indices.dtype]
    shape = (count, weight.shape[1])
    made = definition("_".join(told), parameters, "Y", lines)
    operands = [weight, indices, offsets, per_sample_weights]
    return [b.call(replace(n, name=f"{n.name}_bags", shape=shape, dtype=weight.dtype), made, operands, **given)]


@rule("aten._grouped_mm.default", "transformers.grouped_mm_fallback.default")
def grouped(b: Builder, n: Node, *, x: Value | None = None, offs: Value | None = None, **given: Any) -> Value:
    """Rows by the matrix of the group that they are in: ``offs`` has the ends of groups, one behind another."""
    rows, matrices = x if x is not None else given.get("input"), given.get("mat2", given.get("weight"))
    if not isinstance(rows, Value) or not isinstance(matrices, Value) or offs is None:
        raise n.refuse("takes other than rows, matrices and the ends of groups")
    if given.get("bias") is not None or (len(rows.shape), len(matrices.shape)) != (2, 3):
        raise n.refuse(f"takes {rows.shape} by {matrices.shape}", "rows by one matrix for each group are known")
    lines = [
        "E(m) +=! int64(F(g) <= m) where g in 0:G-1, m in 0:M",
        "O(m,n) +=! A(m,k) * B(E(m),k,n)",
    ]
    parameters = ["float(M,K) A", "float(G,K,N) B", f"{tensor(['g'], offs.dtype)} F"]
    made = definition(f"grouped_matmul_{offs.dtype}", parameters, "O", lines)
    return b.call(n, made, [rows, matrices, offs])


@rule("aten.masked_scatter.default")
def filled(b: Builder, n: Node, *, x: Value, mask: Value, source: Value) -> Value:
    """Where a mask is true, the next element of a row of others."""
    count, length = int(np.prod(x.shape)), int(np.prod(source.shape))
    if mask.shape != x.shape:
        mask = expand(b, replace(n, name=f"{n.name}_mask", shape=x.shape, dtype="bool"), x=mask)
    flat = []
    for label, one, extent in (("x", x, count), ("mask", mask, count), ("source", source, length)):
        inner = replace(n, name=f"{n.name}_{label}_flat", shape=(extent,), dtype=one.dtype)
        flat.append(b.call(inner, elements.reshape(one.shape, (extent,)), [one]))
    lines = [
        "C(i) +=! int64(M(r)) where i in 0:N, r in 0:i+1",
        "P(i) = M(i) ? C(i) - 1 : int64(0)",
        "Y(i) = M(i) ? S(P(i)) : X(i)",
    ]
    kind = general.spelled(x.dtype)
    made = definition(
        general.typed("masked_scatter", x.dtype), [f"{kind}(N) X", "bool(N) M", f"{kind}(L) S"], "Y", lines
    )
    filled = b.call(replace(n, name=f"{n.name}_filled", shape=(count,)), made, flat)
    return b.call(n, elements.reshape((count,), n.shape), [filled])


@rule("aten._trilinear.default")
def trilinear(
    b: Builder,
    n: Node,
    *,
    i1: Value,
    i2: Value,
    i3: Value,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    **_: Any,
) -> Value:
    """Products of three tensors, summed over some axes; each has the axes that are not its own to be added."""
    letters = indices(len(i1.shape) + len(expand1))
    each = ["".join(c for k, c in enumerate(letters) if k not in own) for own in (expand1, expand2, expand3)]
    left = "".join(c for k, c in enumerate(letters) if k not in sumdim)
    return b.call(n, general.einsum(each, left, bool(sumdim), n.dtype), [i1, i2, i3])
