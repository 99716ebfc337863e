"""The order of elements along an axis as program text: the largest ones, sorted ones, where they stand."""

from __future__ import annotations

from tcomp.networks.network import Definition
from tcomp.networks.texts.elements import at, indices
from tcomp.networks.texts.general import definition, tensor, typed


def in_order(
    rank: int, axis: int, largest: bool, places: bool, dtype: str, index: str = "int64", unordered: bool = False
) -> Definition:
    """``COUNT`` elements of each row from the ``FROM``-th on, from the largest or the smallest, or their ``places``.

    The rank of each element is counted.  Equal ones keep their order, and NaN is larger than all numbers.  With
    ``unordered`` a row that has NaN gives the first one instead.
    """
    i = indices(rank)
    c, extent = i[axis], i[axis].upper()
    x, other = at("X", [*i]), at("X", ["j" if k == c else k for k in i])
    first, second = (other, x) if largest else (x, other)
    if dtype.startswith(("float", "bfloat")):
        further = f"{first} > {second} || ({first} != {first} && {second} == {second})"
        alike = f"({other} == {x} || ({other} != {other} && {x} != {x}))"
    else:
        further, alike = f"{first} > {second}", f"{other} == {x}"
    ranked, place, result = at("rank", [*i]), at("place", [*i]), at("Y", [*i])
    numbers, first_of = at("numbers", [k for k in i if k != c]), "FROM"
    lines = []
    if unordered := unordered and dtype.startswith(("float", "bfloat")):
        lines, first_of = [f"{numbers} +=! {x} == {x} ? 1 : 0"], f"({numbers} < {extent} ? {numbers} : FROM)"
    lines += [
        f"{ranked} +=! {further} || ({alike} && j < {c}) ? 1 : 0 where j in 0:{extent}",
        f"{at('place', ['k' if k == c else k for k in i])} +=! {ranked} == k + {first_of} ? {c} : 0 where k in 0:COUNT",
        f"{result} = {index}({place})" if places else f"{result} = {at('X', [place if k == c else k for k in i])}",
    ]
    name = typed(
        f"{'largest' if largest else 'smallest'}{'_places' * places}_{rank}d_axis{axis}{'_or_nan' * unordered}", dtype
    )
    parameters = [f"{tensor(i, dtype)} X", "const int FROM", "const int COUNT"]
    return definition(name, parameters, "Y", lines)
