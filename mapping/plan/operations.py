"""Tile operations: subtrees that a backend spells with the best instructions of its machine.

isl decides where an operation runs and on which tile; inside, polyhedral code generation is not asked.  An operation is
everything below one mark of the tree, so the proofs see through it: its reads and writes are those of its statement.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import islpy as isl

from tcomp.grammar.tree.function import Binary, Cast, Expr, Index, Read, walk
from tcomp.model.scop import Scop, ScopStatement


@dataclass(frozen=True, slots=True)
class Contraction:
    """The index bundles of a sum of products, by where each index occurs.

    ``batch`` in the target and both operands, ``m`` in the target and the first, ``n`` in the target and the second,
    ``k`` in no target.  Operands are read at any affine function of the indices, so a convolution is a contraction.
    """

    batch: tuple[str, ...]
    m: tuple[str, ...]
    n: tuple[str, ...]
    k: tuple[str, ...]

    def __str__(self) -> str:
        bundles = (("batch", self.batch), ("M", self.m), ("N", self.n), ("K", self.k))
        return " ".join(f"{name}({' '.join(indices)})" for name, indices in bundles if indices)


@dataclass(frozen=True, slots=True)
class TileOperation:
    """``kind`` is "reduce" (one element, all of its updates), "scan" (the same, where elements along a coordinate are
    handed on what the one before has reduced) or "contract" (a register tile of a sum of products).

    ``mark`` names the subtree, ``statement`` the update that runs in it, ``atom`` the instruction of a GPU that
    multiplies matrices (``machines/atoms.py``).  With ``overhang`` register tiles are whole where a diagonal cuts them
    (``memory/overhang.py``).  Where they are ``shifted`` the last tile of a column is whole, and begins further back
    (``memory/runningagain.py``).
    """

    mark: str
    kind: str
    statement: str
    contraction: Contraction | None = None
    atom: str = ""
    overhang: bool = False
    shifted: bool = False

    def __str__(self) -> str:
        beyond = ", whole on diagonals" if self.overhang else ", the last tile whole" if self.shifted else ""
        by = f" by {self.atom}" if self.atom else ""
        return (
            f"{self.mark}: {self.kind} {self.statement}{f' {self.contraction}' if self.contraction else ''}{by}{beyond}"
        )


@lru_cache(maxsize=256)
def recognise_contraction(statement: ScopStatement) -> Contraction | None:
    """The bundles of an update that sums products of two reads; None for any other statement.

    Conversions of the operands are looked through.  The recogniser is one for every rank: matrix products, batched and
    transposed ones, tensor contractions, convolutions, grouped and depthwise ones differ only in their bundles.
    """
    value = statement.value
    if statement.reduction != "+" or statement.scatters or not isinstance(value, Binary) or value.op != "*":
        return None
    first, second = bare(value.lhs), bare(value.rhs)
    if not (isinstance(first, Read) and isinstance(second, Read)):
        return None
    target = {name for s in statement.subscripts for name in indices_in(s)}
    left, right = indices_in(first), indices_in(second)
    own = statement.indices[statement.tile_rank :]
    return Contraction(
        batch=tuple(i for i in own if i in target and i in left and i in right),
        m=tuple(i for i in own if i in target and i in left and i not in right),
        n=tuple(i for i in own if i in target and i not in left),
        k=tuple(i for i in own if i not in target),
    )


def bare(expr: Expr) -> Expr:
    """An expression without the conversions around it."""
    while isinstance(expr, Cast):
        expr = expr.operand
    return expr


def indices_in(expr: Expr) -> frozenset[str]:
    """The indices that occur in an expression."""
    if isinstance(expr, Index):
        return frozenset((expr.name,))
    return frozenset(e.name for e in walk(expr) if isinstance(e, Index))


def operation_reads(scop: Scop, operation: TileOperation, prefix: isl.Map) -> isl.UnionMap:
    """Elements that one run of an operation reads; ``prefix`` maps instances of its statement to the place it is at."""
    reads = isl.UnionMap("{ }")
    for read in scop.by_name[operation.statement].all_reads:
        reads = reads.union(isl.UnionMap.from_map(prefix.reverse().apply_range(read)))
    return reads


def operation_writes(scop: Scop, operation: TileOperation, prefix: isl.Map) -> isl.Map:
    """Elements that one run of an operation writes."""
    return prefix.reverse().apply_range(scop.by_name[operation.statement].write)
