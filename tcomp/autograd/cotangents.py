"""Cotangents as kernels read them."""

from __future__ import annotations

from typing import Any

import torch

from tcomp.errors import Diagnostic, ShapeError


def spread(cotangent: Any) -> Any:
    """A cotangent whose elements are all in memory as they are.

    That of a sum is one element, which would need a kernel of its own; that of an imaginary part may be one that torch
    negates when it reads it.  Raises ShapeError for one that is sparse.
    """
    if cotangent.layout is not torch.strided:
        hint = "give one that is dense, such as cotangent.to_dense()"
        raise ShapeError(
            Diagnostic(f"a cotangent is a {cotangent.layout} tensor, which has no rows in memory", hint=hint)
        )
    if torch.compiler.is_compiling():
        return cotangent.resolve_neg().contiguous()  # asking whether there is a need is nothing that a graph can do
    if cotangent.is_neg():
        return cotangent.resolve_neg()
    if cotangent.is_contiguous():
        return cotangent
    if any(s == 0 and n > 1 for s, n in zip(cotangent.stride(), cotangent.shape, strict=True)):
        return cotangent.contiguous()
    return cotangent
