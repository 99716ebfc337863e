"""Images that are read between their elements, where a tensor of places says."""

from __future__ import annotations

from tcomp.networks.network import Definition
from tcomp.networks.texts.general import ROUNDED, ROUNDING, definition


def grid_sample(nearest: bool, border: bool, aligned: bool) -> Definition:
    """Elements of images at places from -1 to 1, the middles of the outermost ones if ``aligned``, else their edges.

    ``nearest`` takes the next element, else four are weighed.  Outside lie zeros, or the elements of the ``border``.
    """
    kind = "nearest" if nearest else "bilinear"
    name = f"grid_sample_{kind}_{'border' if border else 'zeros'}{'_aligned' if aligned else ''}"
    lines = []
    for place, first, low, weight, axis, extent in (("x", "left", "u", "a", 0, "W"), ("y", "top", "v", "b", 1, "H")):
        steps = f"float({extent} - 1)" if aligned else f"float({extent})"
        middle = f"(G(n,p,q,{axis}) + 1.0) * {steps} * 0.5{'' if aligned else ' - 0.5'}"
        if border:
            middle = f"fmin(fmax({middle}, 0.0), float({extent} - 1))"
        lines.append(f"{place}(n,p,q) = {middle}")
        at = f"{place}(n,p,q)"
        lines.append(f"{first}(n,p,q) = {f'{ROUNDED} where {ROUNDING.format(x=at)}' if nearest else f'floor({at})'}")
        corner = f"{first}(n,p,q)" if nearest else f"({first}(n,p,q) + float(k))"
        left, ranges = ("n,p,q", "") if nearest else ("n,p,q,k", " where k in 0:2")
        lines.append(f"{low}({left}) = int32(fmin(fmax({corner}, 0.0), float({extent} - 1))){ranges}")
        inside = f"{corner} >= 0.0 && {corner} < float({extent})"
        share = "1.0" if nearest else f"1.0 - abs({at} - {corner})"
        lines.append(f"{weight}({left}) = {inside} ? {share} : 0.0{ranges}")
    if nearest:
        lines.append("Y(n,c,p,q) = b(n,p,q) * a(n,p,q) * X(n,c,v(n,p,q),u(n,p,q))")
    else:
        lines.append("Y(n,c,p,q) +=! b(n,p,q,i) * a(n,p,q,j) * X(n,c,v(n,p,q,i),u(n,p,q,j))")
    return definition(name, ["float(N,C,H,W) X", "float(N,P,Q,2) G"], "Y", lines)


def affine_grid(axes: int, aligned: bool) -> Definition:
    """Where the elements of an image of ``Q...`` lie in another one, by a map of coordinates from -1 to 1, x first.

    The coordinates are those of the middles of elements; -1 and 1 are the outermost ones if ``aligned``, else edges.
    """
    letters = ["d", "h", "w"][3 - axes :]
    left, extents = ",".join(letters), [f"Q{c.upper()}" for c in letters]
    parameters = [f"float(N,{axes},{axes + 1}) T", *(f"const int {extent}" for extent in extents)]
    lines = []
    for c, extent in zip(letters, extents, strict=True):
        if aligned:
            middle = f"{extent} == 1 ? 0.0 : float({c}) * 2.0 / float(max({extent} - 1, 1)) - 1.0"
        else:
            middle = f"(2.0 * float({c}) + 1.0) / float({extent}) - 1.0"
        lines.append(f"at_{c}({c}) = {middle} where {c} in 0:{extent}")
    terms = [f"T(n,i,{k}) * at_{c}({c})" for k, c in enumerate(reversed(letters))]
    ranges = ", ".join(f"{c} in 0:{extent}" for c, extent in zip(letters, extents, strict=True))
    lines.append(f"Y(n,{left},i) = {' + '.join(terms)} + T(n,i,{axes}) where {ranges}")
    return definition(f"affine_grid_{axes}d{'_aligned' if aligned else ''}", parameters, "Y", lines)
