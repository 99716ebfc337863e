"""The rule for attention as PyTorch's operator has it: masks, causes, heads that several queries share."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from tcomp.networks.importing import Builder, Node, rule
from tcomp.networks.network import Value
from tcomp.networks.texts import elements, layers
from tcomp.networks.texts.general import pointwise


@rule("aten.scaled_dot_product_attention.default")
def attention(
    b: Builder,
    n: Node,
    *,
    query: Value,
    key: Value,
    value: Value,
    attn_mask: Value | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Value:
    rows, shared = query.shape[:-2], key.shape[:-2]
    if dropout_p or shared != value.shape[:-2]:
        raise n.refuse("has dropout, or other heads for keys than for values")
    if enable_gqa and rows[-1:] != shared[-1:]:
        return _grouped_attention(b, n, query, key, value, attn_mask, is_causal=is_causal, scale=scale)
    if np.broadcast_shapes(rows, shared) != rows:
        raise n.refuse(f"has queries for {rows} and keys for {shared}")
    if attn_mask is not None and attn_mask.dtype == "bool":
        added = pointwise(
            "added_to_scores", "{a} ? 0.0 : -1.0 / 0.0", [(attn_mask.shape, "bool")], attn_mask.shape, "float32"
        )
        attn_mask = b.call(replace(n, name=f"{n.name}_mask", shape=attn_mask.shape), added, [attn_mask])
    mask = None if attn_mask is None else attn_mask.shape
    lengths = (*query.shape[:-1], key.shape[-2])
    definition = layers.attention(len(query.shape), is_causal, mask, lengths, shared, hidden=mask is not None)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    return b.call(n, definition, [query, key, value, attn_mask], scale=factor)


def _grouped_attention(
    b: Builder, n: Node, query: Value, key: Value, value: Value, mask: Value | None, **given: Any
) -> Value:
    """Attention in which several queries share a head of keys and values: these groups get an axis of their own."""
    groups = key.shape[-3]
    if query.shape[-3] % groups:
        raise n.refuse(f"has {query.shape[-3]} heads of queries for {groups} of keys")

    def apart(x: Value, heads: int) -> Value:
        shape = (*x.shape[:-3], heads, x.shape[-3] // heads, *x.shape[-2:])
        return b.call(replace(n, name=f"{n.name}_{x.name}", shape=shape), elements.reshape(x.shape, shape), [x])

    query, key, value = (apart(x, groups) for x in (query, key, value))
    if mask is not None and len(mask.shape) > 2:
        shape = (*mask.shape[:-3], *((1, 1) if mask.shape[-3] == 1 else query.shape[-4:-2]), *mask.shape[-2:])
        like = replace(n, name=f"{n.name}_heads", shape=shape, dtype=mask.dtype)
        mask = b.call(like, elements.reshape(mask.shape, shape), [mask])
    shape = (*query.shape[:-1], value.shape[-1])
    inner = replace(n, name=f"{n.name}_groups", shape=shape)
    found = attention(
        b, inner, query=query, key=key, value=value, attn_mask=mask, dropout_p=0.0, enable_gqa=False, **given
    )
    return b.call(n, elements.reshape(shape, n.shape), [found])
