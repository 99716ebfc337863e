"""Rules for PyTorch's results of all elements up to each: the largest or the smallest, and logarithms of sums."""

from __future__ import annotations

from dataclasses import replace

from tcomp.networks.importing import Builder, Node, rule
from tcomp.networks.network import Value
from tcomp.networks.texts.elements import at, indices
from tcomp.networks.texts.general import definition, tensor, typed


@rule("aten.cummax.default", "aten.cummin.default")
def extremes(b: Builder, n: Node, *, x: Value, dim: int) -> list[Value]:
    """The extremes up to each element, and where the last of them stands."""
    name, letters = n.operator.split(".")[1].removeprefix("cum"), indices(len(x.shape))
    k = letters[dim % len(letters)]
    y, place = at("Y", [*letters]), at("p", [*letters])
    ahead, behind = (at("X", [index if c == k else c for c in letters]) for index in ("r", f"{k}-r"))
    where = f"where {', '.join(f'{c} in 0:{c.upper()}' for c in letters)}, r in 0:{k}+1"
    own = where.removesuffix(f", r in 0:{k}+1")
    lines = {
        "values": [f"{y} {name}=! {ahead} {where}"],
        "places": [f"{place} arg{name}=! {behind} {where}", f"{y} = int64({k} - {place}) {own}"],
    }
    made = []
    for label, dtype in (("values", x.dtype), ("places", "int64")):
        told = typed(f"cum{name}_{label}_{len(letters)}d_along_{k}", x.dtype)
        text = definition(told, [f"{tensor(letters, x.dtype)} X"], "Y", lines[label])
        made.append(b.call(replace(n, name=f"{n.name}_{label}", shape=x.shape, dtype=dtype), text, [x]))
    return made


@rule("aten.logcumsumexp.default")
def log_of_sums(b: Builder, n: Node, *, x: Value, dim: int) -> Value:
    """Logarithms of sums of exponentials up to each element; each sum goes on with the one before it."""
    letters = indices(len(x.shape))
    k = letters[dim % len(letters)]
    first, before, y, own = (
        at(name, [index if c == k else c for c in letters])
        for name, index in (("Y", "0"), ("Y", f"{k}-1"), ("Y", k), ("X", k))
    )
    lines = [
        f"{first} = {own.replace(k, '0') if len(letters) == 1 else at('X', ['0' if c == k else c for c in letters])}",
        f"for {k} in 1:{k.upper()} {{",
        f"  {y} = abs(m) < 1.0 / 0.0 ? m + log1p(exp(min({before}, {own}) - m)) : m where m = max({before}, {own})",
        "}",
    ]
    name = f"logcumsumexp_{len(letters)}d_along_{k}"
    return b.call(n, definition(name, [f"{tensor(letters)} X"], "Y", lines), [x])
