"""Layers of signs, one bit each and 64 of them in a word, as program text; 1 stands for what is positive.

Two factors that are alike add 1 to a sum, others take 1 away.  Where factors may be 0, a second word has a bit for each
that is not.
"""

from __future__ import annotations

from tcomp.networks.network import Definition
from tcomp.networks.texts.elements import indices, tensor
from tcomp.networks.texts.general import definition

WORD = 64
_HALF = 32
"""Bits are put together in words as wide as floats, whose vectors they are made in."""


def _packed(name: str, test: str, left: str, ranges: str, extent: str, where: str) -> list[str]:
    """The statements that put a bit for each of ``extent`` elements into words ``name``, by ``test`` of one."""
    half, count = f"{name}_half", f"({extent}+{WORD - 1})/{WORD}"
    low, high = (f"uint64({half}({left.format(at)}))" for at in ("2*k", "2*k+1"))
    return [
        f"{half}({left.format('v')}) +=! {test} ? uint32(1) << u : uint32(0)",
        f"  where v in 0:{count}*2, u in 0:{_HALF}{ranges}",
        f"{name}({left.format('k')}) = {low} | {high} << {_HALF}",
        f"  where k in 0:{count}{where}",
    ]


def packed_images(*, padded: bool, zeros: bool) -> Definition:
    """The signs of the channels of each pixel, with a border of zero bits where ``padded``."""
    flags = {"padded": padded, "and_zeros": zeros}
    name = "_".join(["pack_signs_4d", *(flag for flag, on in flags.items() if on)])
    row, column = ("h-PH", "w-PW") if padded else ("h", "w")
    place = f"(n,{_HALF}*v+u,{row},{column})"
    ranges = f", n in 0:N, h in 0:{'H+2*PH' if padded else 'H'}, w in 0:{'W+2*PW' if padded else 'W'}"
    lines = _packed("signs", f"constant_exterior(X, 0){place} > 0.0", "n,{},h,w", ranges, "C", ranges)
    if zeros:
        lines += _packed("others", f"constant_exterior(X, 0){place} != 0.0", "n,{},h,w", ranges, "C", ranges)
    numbers = ["const int PH", "const int PW"] if padded else []
    return definition(name, ["float(N,C,H,W) X", *numbers], "signs, others" if zeros else "signs", lines)


def packed_rows(rank: int, zeros: bool) -> Definition:
    """The signs of rows."""
    i = indices(rank - 1)
    whole = "".join(f"{c}," for c in i)
    ranges = "".join(f", {c} in 0:{c.upper()}" for c in i)
    read = f"constant_exterior(X, 0)({whole}{_HALF}*v+u)"
    lines = _packed("signs", f"{read} > 0.0", f"{whole}{{}}", ranges, "L", ranges)
    if zeros:
        lines += _packed("others", f"{read} != 0.0", f"{whole}{{}}", ranges, "L", ranges)
    name = f"pack_signs_of_rows_{rank}d{'_and_zeros' if zeros else ''}"
    return definition(name, [f"{tensor(f'{i}l')} X"], "signs, others" if zeros else "signs", lines)


def conv2d(*, strided: bool, dilated: bool, padded: bool, zeros: bool) -> Definition:
    """A convolution of words of signs; with a border, ``least`` is what each sum is if no factors differ."""
    flags = {"strided": strided, "dilated": dilated, "padded": padded and not zeros, "with_zeros": zeros}
    name = "_".join(["conv2d_onebit", *(flag for flag, on in flags.items() if on)])
    row, column = (
        f"{f'S{axis}*' if strided else ''}{axis.lower()}+{f'D{axis}*' if dilated else ''}k{axis.lower()}"
        for axis in "HW"
    )
    extents = []
    for axis in "HW":
        length = f"{axis}-{f'D{axis}*(K{axis}-1)' if dilated else f'K{axis}+1'}"
        extents.append(f"({length}-1)/S{axis}+1" if strided else length)
    image = f"(n,g,{row},{column})"
    parameters = ["uint64(N,G,H,W) I", *(["uint64(N,G,H,W) Z"] if zeros else []), "uint64(F,G,KH,KW) K"]
    ranges = f"  where n in 0:N, h in 0:{extents[0]}, w in 0:{extents[1]}"
    lines = []
    if zeros:
        lines += [
            f"int32(N,{extents[0]},{extents[1]}) count(n,h,w) +=! int32(popcount(Z{image}))",
            f"{ranges}, kh in 0:KH, kw in 0:KW",
        ]
    differ = f"(I{image} ^ K(f,g,kh,kw)) & Z{image}" if zeros else f"I{image} ^ K(f,g,kh,kw)"
    lines += [f"int32(N,F,{extents[0]},{extents[1]}) differ(n,f,h,w) +=! int32(popcount({differ}))", ranges]
    most = "count(n,h,w)" if zeros else "most(f,h,w)" if padded else "KH*KW*C"
    lines += [f"O(n,f,h,w) = {most} - 2*differ(n,f,h,w)"]
    if padded and not zeros:
        parameters.append(f"int32(F,{extents[0]},{extents[1]}) most")
    numbers = [] if zeros or padded else ["const int C"]
    numbers += [f"const int {c}{axis}" for c, on in (("S", strided), ("D", dilated)) if on for axis in "HW"]
    return definition(name, [*parameters, *numbers], "O", lines)


def linear(rank: int, zeros: bool) -> Definition:
    """Rows of words of signs times the transposed weight."""
    i = indices(rank - 1)
    whole, extents = "".join(f"{c}," for c in i), "".join(f"{c.upper()}," for c in i)
    parameters = [f"uint64({extents}U) X", *([f"uint64({extents}U) Z"] if zeros else []), "uint64(M,U) W"]
    lines = []
    if zeros:
        lines.append(f"int32({extents[:-1]}) count({whole[:-1]}) +=! int32(popcount(Z({whole}u)))")
    differ = f"(X({whole}u) ^ W(m,u)) & Z({whole}u)" if zeros else f"X({whole}u) ^ W(m,u)"
    lines.append(f"int32({extents}M) differ({whole}m) +=! int32(popcount({differ}))")
    lines.append(f"Y({whole}m) = {f'count({whole[:-1]})' if zeros else 'L'} - 2*differ({whole}m)")
    name = f"linear_{rank}d_onebit{'_with_zeros' if zeros else ''}"
    return definition(name, [*parameters, *([] if zeros else ["const int L"])], "Y", lines)
