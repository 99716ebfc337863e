"""Functions of integer points by their text, without isl's reader, where the text is as plain as nearly all are."""

from __future__ import annotations

import re
from functools import lru_cache

import islpy as isl

_TEXT = re.compile(r"\{ (\w*)\[([^\[\]]*)\] -> (\w*)\[([^\[\]]*)\] \}")
_OUTPUT = re.compile(
    r"(?:i(0|[1-9]\d*)|floor\(i(0|[1-9]\d*)/([1-9]\d{0,8})\)|([1-9]\d{0,8}) \* i(0|[1-9]\d*) \+ i(0|[1-9]\d*))", re.A
)


@lru_cache(maxsize=1000)
def plain_function(text: str) -> isl.MultiAff | None:
    """The function ``{ S[i0, i1] -> T[i1, floor(i0/4), 3 * i0 + i1] }``; None for a text of another form.

    isl's reader takes 0.1 to 0.4 ms for such a text, this a quarter of that.  The inputs must be ``i0, i1, ...`` in
    order; an output is an index, its quotient, or a sum of one by steps and another.
    """
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    name, inputs, result, outputs = found.groups()
    rank = inputs.count(",") + 1 if inputs else 0
    if inputs != ", ".join(f"i{d}" for d in range(rank)):
        return None
    own = _indices(name, rank)
    affs = isl.AffList.alloc(isl.DEFAULT_CONTEXT, 0)
    texts = outputs.split(", ") if outputs else []
    for output in texts:
        aff = _output(own, output)
        if aff is None:
            return None
        affs = affs.add(aff)
    space = _space(name, rank).from_domain().add_dims(isl.dim_type.out, len(texts))
    if result:
        space = space.set_tuple_name(isl.dim_type.out, result)
    return isl.MultiAff.from_aff_list(space, affs)


def _output(own: tuple[isl.Aff, ...], text: str) -> isl.Aff | None:
    parts = _OUTPUT.fullmatch(text)
    if parts is None:
        return None
    index, divided, size, step, far, near = (None if p is None else int(p) for p in parts.groups())
    if any(d is not None and d >= len(own) for d in (index, divided, far, near)):
        return None
    if index is not None:
        return own[index]
    if divided is not None:
        return own[divided].scale_down_val(isl.Val(size)).floor()
    assert far is not None and near is not None
    return own[far].scale_val(isl.Val(step)).add(own[near])


@lru_cache(maxsize=1000)
def _space(name: str, rank: int) -> isl.Space:
    space = isl.Space.set_alloc(isl.DEFAULT_CONTEXT, 0, rank)
    for d in range(rank):
        space = space.set_dim_name(isl.dim_type.set, d, f"i{d}")
    return space.set_tuple_name(isl.dim_type.set, name) if name else space


@lru_cache(maxsize=1000)
def _indices(name: str, rank: int) -> tuple[isl.Aff, ...]:
    local = isl.LocalSpace.from_space(_space(name, rank))
    return tuple(isl.Aff.var_on_domain(local, isl.dim_type.set, d) for d in range(rank))
