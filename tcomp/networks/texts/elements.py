"""The operators of networks that are functions of elements, or move them, as program text for tensors of any rank."""

from __future__ import annotations

from collections.abc import Sequence

from tcomp.networks.network import Definition

_INDICES = "abcdefgh"

UNARY = {
    "relu": "relu({x})",
    "relu6": "clamp({x}, 0, 6)",
    "sigmoid": "sigmoid({x})",
    "tanh": "tanh({x})",
    "exp": "exp({x})",
    "silu": "{x} * sigmoid({x})",
    "gelu": "0.5 * {x} * (1 + erf({x} * 0.70710678118654752))",
    "gelu_tanh": "0.5 * {x} * (1 + tanh(0.79788456080286536 * ({x} + 0.044715 * {x} * {x} * {x})))",
    "hardswish": "{x} * clamp({x} + 3, 0, 6) / 6",
    "hardsigmoid": "clamp({x} + 3, 0, 6) / 6",
    "square": "{x} * {x}",
    "reciprocal": "1.0 / {x}",
    "neg": "-{x}",
    "softplus": "fmax({x}, 0) + log1p(exp(-abs({x})))",
    "mish": "{x} * tanh(fmax({x}, 0) + log1p(exp(-abs({x}))))",
    **{name: f"{name}({{x}})" for name in ("rsqrt", "sqrt", "abs", "log", "erf", "sin", "cos")},
}
BINARY = {"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}
NUMBER = {
    **{name: f"{{x}} {symbol} y" for name, symbol in BINARY.items()},
    "from": "y - {x}",
    "power": "pow({x}, y)",
    "leaky_relu": "{x} > 0 ? {x} : y * {x}",
    "elu": "{x} > 0 ? {x} : y * expm1({x})",
    "at_least": "max({x}, y)",
    "at_most": "min({x}, y)",
}


def indices(rank: int) -> str:
    """As many names of indices, one letter each."""
    return _INDICES[:rank]


def tensor(letters: str) -> str:
    """A parameter's type; an extent is the capital letter of its index, or 1."""
    return f"float({','.join(c.upper() for c in letters)})" if letters else "float"


def at(name: str, subscripts: Sequence[str]) -> str:
    """An access."""
    return f"{name}({','.join(subscripts)})" if subscripts else name


def repeated(whole: str, shape: Sequence[int], other: Sequence[int]) -> str:
    """The indices of an operand of this shape; ``1`` stands for an axis that is repeated along the other's."""
    letters = whole[len(whole) - len(shape) :]
    lengths = (1,) * (len(shape) - len(other)) + tuple(other[max(0, len(other) - len(shape)) :])
    return "".join("1" if n == 1 and m != 1 else c for c, n, m in zip(letters, shape, lengths, strict=True))


def unary(name: str, rank: int) -> Definition:
    """A function of each element."""
    i = indices(rank)
    body = UNARY[name].format(x=at("X", i))
    return Definition(
        f"{name}_{rank}d", f"def {name}_{rank}d({tensor(i)} X) -> (Y) {{ {at('Y', i)} = {body} }}", pointwise=True
    )


def clip(rank: int) -> Definition:
    """Elements kept between two numbers."""
    i = indices(rank)
    head = f"def clip_{rank}d({tensor(i)} X, float lo, float hi) -> (Y)"
    return Definition(f"clip_{rank}d", f"{head} {{ {at('Y', i)} = clamp({at('X', i)}, lo, hi) }}", pointwise=True)


def binary(name: str, left: Sequence[int], right: Sequence[int]) -> Definition:
    """A function of two tensors of these shapes, the shorter repeated along the axes that it lacks or has 1 of."""
    rank = max(len(left), len(right))
    whole = indices(rank)
    x, y = repeated(whole, left, right), repeated(whole, right, left)
    suffix = f"{rank}d" if x == y else f"{x or 's'}_{y or 's'}".replace("1", "o")
    xs, ys = at("X", x.replace("1", "0")), at("Y", y.replace("1", "0"))
    head = f"def {name}_{suffix}({tensor(x)} X, {tensor(y)} Y) -> (Z)"
    return Definition(f"{name}_{suffix}", f"{head} {{ {at('Z', whole)} = {xs} {BINARY[name]} {ys} }}", pointwise=True)


def with_number(name: str, rank: int) -> Definition:
    """A function of each element and one number."""
    i, made = indices(rank), f"{name}_number_{rank}d"
    head = f"def {made}({tensor(i)} X, float y) -> (Z)"
    return Definition(made, f"{head} {{ {at('Z', i)} = {NUMBER[name].format(x=at('X', i))} }}", pointwise=True)


def permute(order: Sequence[int]) -> Definition:
    """Axes in another order."""
    i = indices(len(order))
    name = "permute_" + "".join(map(str, order))
    made = "".join(i[k] for k in order)
    text = f"def {name}({tensor(i)} X) -> (Y) {{ {at('Y', made)} = {at('X', i)} }}"
    return Definition(name, text, view=("permute", *order))


def reshape(before: Sequence[int], after: Sequence[int]) -> Definition:
    """The same elements in the same order under other extents."""
    name = f"reshape_{'x'.join(map(str, before)) or 's'}_to_{'x'.join(map(str, after)) or 's'}"
    i = indices(len(after))
    subscripts = ["0"] * len(before)
    for old, new in factors(before, after):
        terms: list[str] = []
        scale = 1
        for k in reversed(new):
            if after[k] > 1:
                terms.insert(0, i[k] if scale == 1 else f"{scale}*{i[k]}")
            scale *= after[k]
        below = 1
        for k in reversed(old):
            if before[k] > 1:
                subscripts[k] = _digit("+".join(terms), below, before[k], scale)
            below *= before[k]
    ranges = ", ".join(f"{c} in 0:{n}" for c, n in zip(i, after, strict=True))
    extents = f"float({','.join(map(str, before))})" if before else "float"
    body = f"{at('Y', i)} = {at('X', subscripts)}{' where ' if ranges else ''}{ranges}"
    return Definition(name, f"def {name}({extents} X) -> (Y) {{\n  {body}\n}}", view=("reshape",))


def factors(before: Sequence[int], after: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Axes of both, in groups as small as can be that hold as many elements on either side."""
    groups: list[tuple[list[int], list[int]]] = []
    old, new = list(range(len(before))), list(range(len(after)))
    while old or new:
        left, right = old[:1], new[:1]
        del old[:1], new[:1]
        m, n = (before[left[0]] if left else 1), (after[right[0]] if right else 1)
        while m != n:
            if m < n:
                left.append(old.pop(0))
                m *= before[left[-1]]
            else:
                right.append(new.pop(0))
                n *= after[right[-1]]
        groups.append((left, right))
    return groups


def _digit(total: str, below: int, extent: int, whole: int) -> str:
    """One subscript of the element that ``total`` counts, of ``whole``."""
    text = f"({total})" if not total.isalpha() and extent != whole else total
    text = f"{text}/{below}" if below > 1 else text
    return f"{text}%{extent}" if below * extent < whole else text


def concat(rank: int, axis: int, count: int) -> Definition:
    """Tensors one behind the other along an axis."""
    i = indices(rank)
    name = f"concat_{count}_{rank}d_axis{axis}"
    extents = [f"{i[axis].upper()}{k}" for k in range(count)]
    shapes = [[extent if n == axis else c.upper() for n, c in enumerate(i)] for extent in extents]
    parameters = ", ".join(f"float({','.join(shape)}) X{k}" for k, shape in enumerate(shapes))
    lines = []
    for k in range(count):
        made = ["+".join([*extents[:k], c]) if n == axis else c for n, c in enumerate(i)]
        lines.append(f"  {at('Y', made)} = {at(f'X{k}', i)}")
    return Definition(name, "\n".join([f"def {name}({parameters}) -> (Y) {{", *lines, "}"]))


def mean(rank: int, axes: Sequence[int], keep: bool, what: str = "mean") -> Definition:
    """The mean, or the sum, over some axes."""
    i = indices(rank)
    name = f"{what}_{rank}d_over_{''.join(i[k] for k in axes)}{'_kept' if keep else ''}"
    left = [("0" if k in axes else c) if keep else c for k, c in enumerate(i) if keep or k not in axes]
    lines = [f"  {at('Y', left)} +=! {at('X', i)}"]
    if what == "mean":
        lines.append(f"  {at('Y', left)}  =  {at('Y', left)} / ({'*'.join(i[k].upper() for k in axes)})")
    return Definition(name, "\n".join([f"def {name}({tensor(i)} X) -> (Y) {{", *lines, "}"]))


def upsample_nearest2d() -> Definition:
    """Every pixel becomes a block of SH x SW."""
    head = "def upsample_nearest2d(float(N,C,H,W) X, const int SH, const int SW) -> (Y)"
    body = "Y(n,c,h,w) = X(n,c,h/SH,w/SW) where h in 0:SH*H, w in 0:SW*W"
    return Definition("upsample_nearest2d", f"{head} {{\n  {body}\n}}")
