"""What is around a statement: the steps that its piece of a program stands in, and the order of the text."""

from __future__ import annotations

from dataclasses import dataclass

import islpy as isl


@dataclass(frozen=True, slots=True, eq=False)
class Around:
    """The steps around a piece of a program: their indices, outermost first, and the values that they take together.

    A piece that is ``tiled`` runs for a part of its instances at a time, whose bounds are among the steps.  Where it is
    ``open``, a whole program runs, and what stands here for steps are sizes that a call says.  Tensors that are
    ``partly`` there are slices that lie outside of what they are cut from at some steps, as ``H(t-1)`` at the first
    one: elements of them are read where instances read them, and never ahead.
    """

    steps: tuple[str, ...]
    values: isl.Set
    tiled: bool = False
    open: bool = False
    partly: frozenset[str] = frozenset()


def textual_date(domain: isl.Set, number: int, depth: int) -> isl.Map:
    """The dates of the instances of statement ``number``: the number, then the indices, filled up to ``depth``."""
    space = domain.get_space()
    date = isl.MultiAff.zero(isl.Space.from_domain(space).add_dims(isl.dim_type.out, depth + 1))
    local = isl.LocalSpace.from_space(space)
    date = date.set_aff(0, isl.Aff.zero_on_domain(local).set_constant_val(number))
    for position in range(domain.dim(isl.dim_type.set)):
        date = date.set_aff(position + 1, isl.Aff.var_on_domain(local, isl.dim_type.set, position))
    return isl.Map.from_multi_aff(date).intersect_domain(domain)
