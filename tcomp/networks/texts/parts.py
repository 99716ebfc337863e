"""The operators of networks that take parts of a tensor, repeat it or put something around it, as program text."""

from __future__ import annotations

from collections.abc import Sequence

from tcomp.networks.network import Definition
from tcomp.networks.texts.elements import at, indices, tensor


def take(rank: int, axis: int) -> Definition:
    """``COUNT`` slices from ``FROM`` on, every ``STEP``-th one."""
    i = indices(rank)
    name = f"slice_{rank}d_axis{axis}"
    read = at("X", [f"FROM+STEP*{c}" if n == axis else c for n, c in enumerate(i)])
    head = f"def {name}({tensor(i)} X, const int FROM, const int COUNT, const int STEP) -> (Y)"
    text = f"{head} {{\n  {at('Y', i)} = {read} where {i[axis]} in 0:COUNT\n}}"
    return Definition(name, text, view=("take", axis))


def select(rank: int, axis: int) -> Definition:
    """The slice ``AT``, without its axis."""
    i = indices(rank)
    name = f"select_{rank}d_axis{axis}"
    read = at("X", ["AT" if n == axis else c for n, c in enumerate(i)])
    left = at("Y", [c for n, c in enumerate(i) if n != axis])
    text = f"def {name}({tensor(i)} X, const int AT) -> (Y) {{ {left} = {read} }}"
    return Definition(name, text, view=("select", axis))


def expand(before: Sequence[int], after: Sequence[int]) -> Definition:
    """Axes that are missing in front, or have one element, repeated; ``COUNT_A`` is how often along the first."""
    whole = indices(len(after))
    first = len(after) - len(before)
    new = [c for n, c in enumerate(whole) if n < first or before[n - first] != after[n]]
    read = list(whole[first:])
    letters = "".join("1" if c in new else c for c in read)
    name = f"expand_{letters or 's'}_along_{''.join(new)}"
    counts = "".join(f", const int COUNT_{c.upper()}" for c in new)
    ranges = ", ".join(f"{c} in 0:COUNT_{c.upper()}" for c in new)
    body = f"{at('Y', whole)} = {at('X', ['0' if c in new else c for c in read])} where {ranges}"
    return Definition(name, f"def {name}({tensor(letters)} X{counts}) -> (Y) {{\n  {body}\n}}")


def pad(amounts: Sequence[tuple[int, int]]) -> Definition:
    """A number around a tensor; the amounts before and behind each axis, which may be negative, are in the name."""
    i = indices(len(amounts))
    told = "_".join(f"{low}_{high}" for low, high in amounts).replace("-", "m")
    name = f"pad_{told}"
    read = ",".join(c if low == 0 else f"{c}{-low:+d}" for c, (low, _) in zip(i, amounts, strict=True))
    ranges = ", ".join(f"{c} in 0:{c.upper()}{low + high:+d}" for c, (low, high) in zip(i, amounts, strict=True))
    body = f"{at('Y', i)} = constant_exterior(X, v)({read}) where {ranges}"
    return Definition(name, f"def {name}({tensor(i)} X, float v) -> (Y) {{\n  {body}\n}}")


def group_norm(rank: int, affine: bool) -> Definition:
    """By the statistics of each of ``G`` groups of channels; the axes are batch, channels, and the others."""
    others = "hwde"[: rank - 2]
    name = f"group_norm_{rank}d{'_affine' if affine else ''}"
    dims = ",".join(("N", "C", *(c.upper() for c in others)))
    grouped = at("X", ["n", "g*(C/G)+k", *others])
    own = at("X", ["n", "c", *others])
    size = "*".join(("(C/G)", *(c.upper() for c in others)))
    ranges = "where g in 0:G, k in 0:C/G"
    scaled = " * gamma(c) + beta(c)" if affine else ""
    weights = ", float(C) gamma, float(C) beta" if affine else ""
    return Definition(
        name,
        "\n".join(
            (
                f"def {name}(float({dims}) X{weights}, const int G, float eps) -> (Y) {{",
                f"  M(n,g) +=! {grouped} {ranges}",
                f"  M(n,g)  =  M(n,g) / ({size})",
                f"  S(n,g) +=! ({grouped} - M(n,g)) * ({grouped} - M(n,g)) {ranges}",
                f"  S(n,g)  =  S(n,g) / ({size})",
                f"  {at('Y', ['n', 'c', *others])} = ({own} - M(n,c/(C/G))) * rsqrt(S(n,c/(C/G)) + eps){scaled}",
                "}",
            )
        ),
    )
