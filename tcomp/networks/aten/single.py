"""PyTorch's operators along an axis of a tensor that has none: it counts as a row of one element."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tcomp.networks.importing import Builder, Node, import_node
from tcomp.networks.network import Value
from tcomp.networks.texts import elements

_REDUCE = {
    *(f"aten.{name}.{end}" for name in ("any", "all") for end in ("dim", "dims")),
    *(f"aten.{name}.dim" for name in ("max", "min", "median", "mean")),
    *(f"aten.{name}.default" for name in ("amax", "amin", "argmax", "argmin", "kthvalue", "logsumexp")),
    *("aten.prod.dim_int", "aten.sum.dim_IntList"),
}
_KEEP = {
    *(f"aten.{name}.default" for name in ("sort", "argsort", "topk", "cumsum", "cumprod", "cummax", "cummin")),
    "aten.logcumsumexp.default",
    *("aten.sort.stable", "aten.argsort.stable", "aten.softmax.int", "aten.log_softmax.int"),
}


def import_single(b: Builder, n: Node) -> Any:
    """As ``import_node``, for one number along an axis, too.  Raises NetworkError."""
    x, dim = n.arguments.get("self"), n.arguments.get("dim")
    if not isinstance(x, Value) or x.shape or dim is None or dim == []:
        return import_node(b, n)
    if n.operator not in _REDUCE | _KEEP:
        try:
            return import_node(b, n)
        except (ZeroDivisionError, IndexError) as error:
            raise n.refuse("takes a tensor without axes") from error
    row = b.call(replace(n, name=f"{n.name}_row", shape=(1,), dtype=x.dtype), elements.reshape((), (1,)), [x])
    arguments = {**n.arguments, "self": row, "dim": [0] if isinstance(dim, list) else 0}
    if "keepdim" in arguments:
        arguments["keepdim"] = False
    kept = n.operator in _KEEP
    made = import_node(
        b, replace(n, name=f"{n.name}_of_row" if kept else n.name, arguments=arguments, shape=(1,) * kept)
    )

    def alone(found: Value) -> Value:
        like = replace(n, name=n.name, dtype=found.dtype)
        return b.call(like, elements.reshape((1,), ()), [found]) if found.shape else found

    return [alone(found) for found in made] if isinstance(made, list) else alone(made)
