"""Layers by weights of which few are not zero, as program text: those of each row lie one behind the other.

``row(f):row(f+1)`` are the entries of the row ``f`` of a weight, that is of a filter.  Each has its value, and which
plane of an image, or which element of a row, it multiplies.
"""

from __future__ import annotations

from tcomp.networks.network import Definition
from tcomp.networks.texts.elements import indices, tensor
from tcomp.networks.texts.general import definition


def unfolded(*, strided: bool, padded: bool) -> Definition:
    """What each weight of a window looks at: a plane of pixels for each channel and place in the window."""
    name = "_".join(["unfold", *(["strided"] if strided else []), *(["padded"] if padded else [])])
    numbers = [f"const int {c}{axis}" for c, on in (("K", True), ("S", strided), ("P", padded)) if on for axis in "HW"]
    row, column = (f"{f'S{a}*' if strided else ''}{a.lower()}+k{a.lower()}{f'-P{a}' if padded else ''}" for a in "HW")
    height, width = (
        f"({e}-1)/S{a}+1" if strided else e for a in "HW" for e in [f"{a}{f'+2*P{a}' if padded else ''}-K{a}+1"]
    )
    image = "constant_exterior(I, 0)" if padded else "I"
    lines = [
        f"U(n,c,kh,kw,h,w) = {image}(n,c,{row},{column})",
        f"  where n in 0:N, c in 0:C, kh in 0:KH, kw in 0:KW, h in 0:{height}, w in 0:{width}",
    ]
    return definition(name, ["float(N,C,H,W) I", *numbers], "U", lines)


def conv2d(bias: bool) -> Definition:
    """A convolution of planes: an entry multiplies the plane ``plane``."""
    parameters = ["float(N,C,H,W) I", "int32(R) row", "int32(E) plane", "float(E) K", *(["float(F) b"] if bias else [])]
    lines = [
        "O(n,f,h,w) +=! K(e) * I(n,plane(e),h,w) where e in row(f):row(f+1), n in 0:N, h in 0:H, w in 0:W",
        *(["O(n,f,h,w)  =  O(n,f,h,w) + b(f)"] if bias else []),
    ]
    return definition(f"conv2d{'_bias' if bias else ''}_pruned", parameters, "float(N,R-1,H,W) O", lines)


def linear(rank: int, bias: bool) -> Definition:
    """Rows times the transposed weight, each element gathered."""
    i = indices(rank - 1)
    whole, parameters = "".join(f"{c}," for c in i), [f"{tensor(f'{i}k')} X", "int32(R) row", "int32(E) column"]
    ranges = "".join(f", {c} in 0:{c.upper()}" for c in i)
    lines = [f"Y({whole}n) +=! W(e) * X({whole}column(e)) where e in row(n):row(n+1){ranges}"]
    lines += [f"Y({whole}n)  =  Y({whole}n) + v(n)"] if bias else []
    result = f"float({''.join(f'{c.upper()},' for c in i)}R-1) Y"
    name = f"linear_{rank}d{'_bias' if bias else ''}_pruned"
    return definition(name, [*parameters, "float(E) W", *(["float(N) v"] if bias else [])], result, lines)


def turned() -> Definition:
    """A matrix turned, and written so: no view of it, for vectors run along what were its columns."""
    return definition("turn_2d", ["float(A,B) X"], "Y", ["Y(b,a) = X(a,b)"])


def turned_linear(bias: bool) -> Definition:
    """The same of columns, which are neighbours: the result is turned, too."""
    lines = [
        "Y(n,m) +=! W(e) * X(column(e),m) where e in row(n):row(n+1), m in 0:M",
        *(["Y(n,m)  =  Y(n,m) + v(n)"] if bias else []),
    ]
    parameters = ["float(K,M) X", "int32(R) row", "int32(E) column", "float(E) W", *(["float(N) v"] if bias else [])]
    return definition(f"linear{'_bias' if bias else ''}_pruned_turned", parameters, "float(R-1,M) Y", lines)


def linear_of_blocks(bias: bool) -> Definition:
    """Rows times a transposed weight, of which an entry is as many neighbouring rows as a block has."""
    lines = [
        "Y(m,n,l) +=! W(e,l) * X(m,column(e)) where e in row(n):row(n+1), m in 0:M, l in 0:L",
        *(["Y(m,n,l)  =  Y(m,n,l) + v(n,l)"] if bias else []),
    ]
    parameters = [
        "float(M,K) X",
        "int32(R) row",
        "int32(E) column",
        "float(E,L) W",
        *(["float(B,L) v"] if bias else []),
    ]
    return definition(f"linear{'_bias' if bias else ''}_pruned_blocks", parameters, "float(M,R-1,L) Y", lines)
