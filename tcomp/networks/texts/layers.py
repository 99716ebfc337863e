"""The layers of networks as program text: convolutions, products, normalisations, pooling, attention."""

from __future__ import annotations

from collections.abc import Sequence

from tcomp.networks.network import Definition
from tcomp.networks.texts.elements import at, indices, repeated, tensor


def conv2d(*, bias: bool, strided: bool, padded: bool, dilated: bool, groups: str = "one") -> Definition:
    """A convolution whose parts that do nothing are left out; ``groups`` is one, depthwise or grouped."""
    flags = {"strided": strided, "padded": padded, "dilated": dilated, groups: groups != "one", "bias": bias}
    name = "_".join(["conv2d", *(flag for flag, on in flags.items() if on)])
    constants = [("S", strided), ("P", padded), ("D", dilated)]
    numbers = ["const int G"] if groups == "grouped" else []
    numbers += [f"const int {c}{axis}" for c, on in constants if on for axis in "HW"]
    images, kernel, read = {
        "one": ("N,C,H,W", "F,C,KH,KW", ("c", "f,c")),
        "depthwise": ("N,C,H,W", "C,1,KH,KW", ("f", "f,0")),
        "grouped": ("N,G*C,H,W", "F,C,KH,KW", ("f/(F/G)*C+c", "f,c")),
    }[groups]
    parameters = [f"float({images}) I", f"float({kernel}) K", *(["float(F) b"] if bias else []), *numbers]
    if groups == "depthwise" and bias:
        parameters[2] = "float(C) b"
    rows = [_window(axis, strided, padded, dilated) for axis in "HW"]
    image = "constant_exterior(I, 0)" if padded else "I"
    extents = [_extent(axis, strided, padded, dilated) for axis in "HW"]
    output = "O"
    where = f"\n    where n in 0:N, h in 0:{extents[0]}, w in 0:{extents[1]}" if padded or groups == "grouped" else ""
    if groups == "grouped":
        output = f"float(N,F/G*G,{extents[0]},{extents[1]}) O"
    lines = [f"  O(n,f,h,w) +=! {image}(n,{read[0]},{rows[0]},{rows[1]}) * K({read[1]},kh,kw){where}"]
    lines += ["  O(n,f,h,w)  =  O(n,f,h,w) + b(f)"] if bias else []
    biased = None if bias else conv2d(bias=True, strided=strided, padded=padded, dilated=dilated, groups=groups)
    return Definition(name, _def(name, parameters, output, lines), biased=biased)


def point_conv2d(*, bias: bool, strided: bool) -> Definition:
    """A convolution whose kernel is one pixel: a product, which long rows of pixels may share."""
    name = "_".join(["conv2d_point", *(["strided"] if strided else []), *(["bias"] if bias else [])])
    numbers = ["const int SH", "const int SW"] if strided else []
    parameters = ["float(N,C,H,W) I", "float(F,C,1,1) K", *(["float(F) b"] if bias else []), *numbers]
    row, column = ("SH*h", "SW*w") if strided else ("h", "w")
    where = "\n    where h in 0:(H-1)/SH+1, w in 0:(W-1)/SW+1" if strided else ""
    lines = [f"  O(n,f,h,w) +=! I(n,c,{row},{column}) * K(f,c,0,0){where}"]
    lines += ["  O(n,f,h,w)  =  O(n,f,h,w) + b(f)"] if bias else []
    return Definition(name, _def(name, parameters, "O", lines))


def _window(axis: str, strided: bool, padded: bool, dilated: bool) -> str:
    low = axis.lower()
    first = f"S{axis}*{low}" if strided else low
    second = f"D{axis}*k{low}" if dilated else f"k{low}"
    return f"{first}+{second}" + (f"-P{axis}" if padded else "")


def _extent(axis: str, strided: bool, padded: bool, dilated: bool) -> str:
    """The extent of a convolution's result along an axis."""
    length = axis + (f"+2*P{axis}" if padded else "")
    length += f"-D{axis}*(K{axis}-1)" if dilated else f"-K{axis}+1"
    return f"({length}-1)/S{axis}+1" if strided else length


def conv_transpose2d(bias: bool) -> Definition:
    """Every input spread over the output, without groups."""
    name = "conv_transpose2d_bias" if bias else "conv_transpose2d"
    numbers = [f"const int {c}{axis}" for c in "SP" for axis in "HW"]
    parameters = ["float(N,C,H,W) I", "float(C,F,KH,KW) K", *(["float(F) b"] if bias else []), *numbers]
    lines = [
        "  T(n,f,h,w) = 0.0 where n in 0:N, f in 0:F, h in 0:SH*(H-1)+KH, w in 0:SW*(W-1)+KW",
        "  T(n,f,SH*h+kh,SW*w+kw) += I(n,c,h,w) * K(c,f,kh,kw)",
        f"  O(n,f,h,w) = T(n,f,h+PH,w+PW){' + b(f)' if bias else ''}",
        "    where n in 0:N, f in 0:F, h in 0:SH*(H-1)+KH-2*PH, w in 0:SW*(W-1)+KW-2*PW",
    ]
    return Definition(name, _def(name, parameters, "O", lines))


def linear(rank: int, bias: bool) -> Definition:
    """Rows times the transposed weight."""
    i = indices(rank - 1)
    name = f"linear_{rank}d{'_bias' if bias else ''}"
    rows = "".join(f"{c}," for c in i)
    parameters = [tensor(f"{i}k") + " X", "float(N,K) W", *(["float(N) v"] if bias else [])]
    lines = [f"  Y({rows}n) +=! X({rows}k) * W(n,k)"]
    lines += [f"  Y({rows}n)  =  Y({rows}n) + v(n)"] if bias else []
    return Definition(name, _def(name, parameters, "Y", lines))


def matmul(left: Sequence[int], right: Sequence[int]) -> Definition:
    """Matrices of two tensors of these shapes multiplied, the axes before them repeated as those of ``add``."""
    rank = max(len(left), len(right))
    whole = indices(rank - 2)
    x, y = (repeated(whole, shape[:-2], other[:-2]) for shape, other in ((left, right), (right, left)))
    name = f"matmul_{rank}d" if x == y else f"matmul_{x}mk_{y}kn".replace("1", "o")
    xs, ys = at("X", [*x.replace("1", "0"), "m", "k"]), at("Y", [*y.replace("1", "0"), "k", "n"])
    parameters = [tensor(f"{x}mk") + " X", tensor(f"{y}kn") + " Y"]
    return Definition(name, _def(name, parameters, "Z", [f"  {at('Z', [*whole, 'm', 'n'])} +=! {xs} * {ys}"]))


def batch_norm(rank: int, scale: bool, shift: bool) -> Definition:
    """Channels, the second axis, normalised with statistics that are given."""
    i = "n" + "c" + "hwd"[: rank - 2]
    name = f"batch_norm_{rank}d{'' if scale else '_unscaled'}{'' if shift else '_unshifted'}"
    parameters = [tensor(i) + " X", "float(C) mean", "float(C) variance"]
    parameters += ["float(C) gamma"] if scale else []
    parameters += ["float(C) beta"] if shift else []
    body = f"({at('X', i)} - mean(c)) * rsqrt(variance(c) + eps){' * gamma(c)' if scale else ''}"
    body += " + beta(c)" if shift else ""
    return Definition(name, _def(name, [*parameters, "float eps"], "Y", [f"  {at('Y', i)} = {body}"]), pointwise=True)


def layer_norm(rank: int, over: int, scale: bool, shift: bool) -> Definition:
    """The last ``over`` axes normalised by their own statistics."""
    i = indices(rank)
    rows, inner = i[: rank - over], i[rank - over :]
    name = f"layer_norm_{rank}d" + (f"_over_{inner}" if over > 1 else "")
    name += f"{'' if scale else '_unscaled'}{'' if shift else '_unshifted'}"
    parameters = [tensor(i) + " X", *([tensor(inner) + " gamma"] if scale else [])]
    parameters += [tensor(inner) + " beta"] if shift else []
    count = "*".join(c.upper() for c in inner)
    mean, variance, x = at("mean", rows), at("variance", rows), at("X", i)
    body = f"({x} - {mean}) * rsqrt({variance} + eps){' * ' + at('gamma', inner) if scale else ''}"
    lines = [
        f"  {mean} +=! {x}",
        f"  {mean} = {mean} / ({count})",
        f"  {variance} +=! ({x} - {mean}) * ({x} - {mean})",
        f"  {variance} = {variance} / ({count})",
        f"  {at('Y', i)} = {body}{' + ' + at('beta', inner) if shift else ''}",
    ]
    return Definition(name, _def(name, [*parameters, "float eps"], "Y", lines))


def softmax(rank: int, axis: int) -> Definition:
    """Along one axis, shifted by the largest element so that nothing overflows."""
    i = indices(rank)
    rest = i.replace(i[axis], "")
    name = f"softmax_{rank}d_axis{axis}"
    largest, total = at("largest", rest), at("total", rest)
    lines = [
        f"  {largest} max=! {at('X', i)}",
        f"  {at('E', i)} = exp({at('X', i)} - {largest})",
        f"  {total} +=! {at('E', i)}",
        f"  {at('Y', i)} = {at('E', i)} / {total}",
    ]
    return Definition(name, _def(name, [tensor(i) + " X"], "Y", lines))


def attention(
    rank: int,
    causal: bool,
    mask: Sequence[int] | None,
    lengths: Sequence[int],
    keys: Sequence[int] | None = None,
    hidden: bool = False,
    chosen: bool | None = None,
) -> Definition:
    """softmax(scale Q K^T + mask) V; ``lengths`` is the shape of the scores, which a mask is repeated along.

    Where a mask is ``chosen``, its elements are truth values: where they are that, a score is the number ``instead``.

    ``keys`` are the leading extents of keys and values where some queries share them.  With ``hidden`` a query whose
    scores are all -inf, for the mask hides all keys, gets 0 instead of NaN.
    """
    rows = indices(rank - 2)
    shared = rows if keys is None else repeated(rows, keys, lengths[:-2])
    letters = repeated(f"{rows}ls", mask, lengths) if mask is not None else ""
    name = f"attention_{rank}d{'_causal' if causal else ''}"
    name += f"_keys_{shared}".replace("1", "o") if shared != rows else ""
    how = {None: "mask", True: "hide", False: "show"}[chosen]
    name += f"_{how}_{letters}".replace("1", "o") if mask is not None else ""
    name += "_or_zero" if hidden else ""
    parameters = [f"{tensor(f'{rows}ld')} Q", f"{tensor(f'{shared}sd')} K", f"{tensor(f'{shared}se')} V"]
    key, content = (at(x, [*shared.replace("1", "0"), *last]) for x, last in (("K", "sd"), ("V", "se")))
    kind = tensor(letters) if chosen is None else tensor(letters).replace("float", "bool")
    parameters += [f"{kind} mask"] if mask is not None else []
    score, weight = at("score", [*rows, "l", "s"]), at("weight", [*rows, "l", "s"])
    largest, total, o = at("largest", [*rows, "l"]), at("total", [*rows, "l"]), at("O", [*rows, "l", "e"])
    told = at("mask", letters.replace("1", "0"))
    scaled = f"{score} * scale" + (f" + {told}" if mask is not None and chosen is None else "")
    if chosen is not None:
        scaled = f"{told} ? instead : {scaled}" if chosen else f"{told} ? {scaled} : instead"
    seen = (f"select(s <= l, {score}, -3.4028234e38)", f"s <= l ? exp({score} - {largest}) : 0.0")
    plain = (score, f"exp({score} - {largest})")
    compared, raised = seen if causal else plain
    lines = [
        f"  {score} +=! {at('Q', [*rows, 'l', 'd'])} * {key}",
        f"  {score} = {scaled}",
        f"  {largest} max=! {compared}",
        f"  {weight} = {raised}",
        f"  {total} +=! {weight}",
        f"  {o} +=! {weight} * {content}",
        f"  {o} = {f'{largest} == -1.0 / 0.0 ? 0.0 : ' if hidden else ''}{o} / {total}",
    ]
    parameters += ["float scale", *(["float instead"] if chosen is not None else [])]
    return Definition(name, _def(name, parameters, "O", lines))


def pool2d(what: str) -> Definition:
    """``max``, ``avg`` (padding counted as zeros) or ``avg_inside`` (only elements of the image counted)."""
    name = f"{what}_pool2d"
    parameters = ["float(N,C,H,W) I", *(f"const int {c}{axis}" for c in "KSP" for axis in "HW")]
    image, operator = ("repeat_edge(I)", "max=!") if what == "max" else ("constant_exterior(I, 0)", "+=!")
    lines = [
        f"  O(n,c,h,w) {operator} {image}(n,c,SH*h+kh-PH,SW*w+kw-PW)",
        "    where n in 0:N, c in 0:C, h in 0:(H+2*PH-KH)/SH+1, w in 0:(W+2*PW-KW)/SW+1, kh in 0:KH, kw in 0:KW",
    ]
    inside = " * ".join(f"(min(S{a}*{a.lower()}-P{a}+K{a}, {a}) - max(S{a}*{a.lower()}-P{a}, 0))" for a in "HW")
    if what != "max":
        lines.append(f"  O(n,c,h,w) = O(n,c,h,w) / ({'KH*KW' if what == 'avg' else inside})")
    return Definition(name, _def(name, parameters, "O", lines))


def embedding(rank: int, dtype: str) -> Definition:
    """Rows of a table, by number."""
    i = indices(rank)
    name = f"embedding_{rank}d_{dtype}"
    index = f"{dtype}({','.join(i.upper())})" if rank else dtype
    parameters = ["float(V,D) T", f"{index} X"]
    row = f"X({','.join(i)})" if rank else "X"
    return Definition(name, _def(name, parameters, "Y", [f"  Y({''.join(f'{c},' for c in i)}z) = T({row},z)"]))


def _def(name: str, parameters: Sequence[str], output: str, lines: Sequence[str]) -> str:
    head = f"def {name}({', '.join(parameters)}) -> ({output}) {{"
    if len(head) > 120:
        half = (len(parameters) + 1) // 2
        first, second = ", ".join(parameters[:half]), ", ".join(parameters[half:])
        head = f"def {name}({first},\n    {second})\n    -> ({output}) {{"
    return "\n".join([head, *lines, "}"])
