"""Patterns: those of torch.einsum, with ellipses and stretched extents, and names for indices."""

from __future__ import annotations

import pytest
import torch

import tcomp as tc
import tcomp.torch as tct
from tcomp.torch.patterns import einsum_operation

EQUATIONS = (
    ("b i k, k j -> b i j", [(2, 3, 4), (4, 5)]),
    ("bik,kj->bij", [(2, 3, 4), (4, 5)]),
    ("ii->i", [(4, 4)]),
    ("ii", [(4, 4)]),
    ("ij->ji", [(4, 3)]),
    ("i,j,k->ijk", [(2,), (3,), (4,)]),
    ("ij,jk,kl,lm->im", [(2, 3), (3, 4), (4, 5), (5, 2)]),
    ("ij,kj", [(2, 3), (4, 3)]),
    ("aB,Bc->ac", [(2, 3), (3, 4)]),
    (",->", [(), ()]),
    ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 2)]),
    ("...ij,...jk", [(2, 3, 4), (4, 2)]),
    ("i...,ij...->j...", [(3, 4), (3, 2, 4)]),
    ("...,...", [(2, 3), (3,)]),
    ("...i->i...", [(2, 3, 4)]),
    ("a...b->ba", [(2, 3, 4)]),
    ("ij->...ji", [(2, 3)]),
    ("...ii->...i", [(2, 3, 3)]),
    ("ij,jk->ik", [(3, 1), (4, 2)]),
    ("ij,ij->i", [(3, 4), (1, 4)]),
    ("i,i,i->", [(1,), (3,), (1,)]),
    ("ik,ik->k", [(1, 4), (1, 4)]),
    ("...k,...k,...->...", [(2, 1, 4), (3, 1), (1, 3)]),
    ("ij,jk->ik", [(0, 1), (4, 2)]),
    ("iij,jkl->k", [(3, 3, 2), (2, 4, 5)]),
)


@pytest.mark.parametrize(("pattern", "shapes"), EQUATIONS)
def test_einsum(pattern: str, shapes: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TCOMP_INTERPRET", "1")
    tensors = [torch.rand(s, dtype=torch.float64, requires_grad=True) for s in shapes]
    expected = torch.einsum(pattern.replace(" ", ""), *tensors)
    found = tct.einsum(pattern, *tensors)
    torch.testing.assert_close(found, expected)
    cotangent = torch.rand_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad(found, tensors, cotangent), torch.autograd.grad(expected, tensors, cotangent)
    )


def test_other_ways_to_call() -> None:
    a, b = torch.rand(2, 1, 3), torch.rand(3, 4)
    expected = torch.einsum("...i,ij->...j", a, b)
    for found in (
        tct.einsum("... row, row col -> ... col", a, b),
        tct.einsum("...i,ij->...j", [a, b]),
        tct.einsum(a, [..., 0], b, [0, 51], [..., 51]),
        tct.einsum(a, [..., 0], b, [0, 51]),
    ):
        torch.testing.assert_close(found, expected)
    torch.testing.assert_close(tct.reduce("... d -> ...", a, "max"), a.amax(-1))


def test_what_one_tensor_alone_has_is_summed_first() -> None:
    text = str(einsum_operation("ij,kl->k", "float32", (2, 2)))
    assert [line.split()[1] for line in text.splitlines()[1:-1]] == ["+=!", "+=!", "="]
    assert str(einsum_operation("ij,j->", "float32", (2, 1))).count("+=!") == 1


def test_a_batch_of_patterns() -> None:
    a = torch.rand(2, 3, 4)
    found = torch.func.vmap(lambda x: tct.einsum("ai,bi->ab", x[:1], x))(a)
    torch.testing.assert_close(found, torch.einsum("nai,nbi->nab", a[:, :1], a))
    found = torch.func.vmap(lambda x: tct.einsum("ai,ai->a", x[:1], x))(a)
    torch.testing.assert_close(found, (a[:, :1] * a).sum(2))


def test_patterns_in_compiled_graphs() -> None:
    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return tct.reduce("... k -> ...", tct.einsum("...ij,...jk->...ik", a, b).sin())

    compiled = torch.compile(product, fullgraph=True, backend="aot_eager", dynamic=True)
    for batch, rows in ((1, 4), (3, 5)):
        a = torch.rand(batch, rows, 2, dtype=torch.float64, requires_grad=True)
        b = torch.rand(3, 2, 3, dtype=torch.float64)
        expected = (a @ b).sin().sum(2)
        torch.testing.assert_close(compiled(a, b), expected)
        gradients = [torch.autograd.grad(y.sum(), a)[0] for y in (compiled(a, b), expected)]
        torch.testing.assert_close(*gradients)
    with pytest.raises(Exception, match="index j has size 2 in tensor 0, but 3 in tensor 1"):
        torch.compile(lambda a, b: tct.einsum("ij,jk->ik", a, b), fullgraph=True, backend="eager")(a[0], b[0].T)


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("ij->ik", "has k, which no tensor has"),
        ("ij,jk->ik", "is for 2 tensors, not 1"),
        ("i.j", "no name of an index"),
        ("i..", "no name of an index"),
        ("ij->ii", "has i twice"),
        ("...i...", "has two ellipses for tensor 0"),
        ("...->......", r"has \.\.\. twice"),
        ("i", "has 1 indices for tensor 0, which has 2 dimensions and no ellipsis"),
        ("...ijk", "has at least 3 indices for tensor 0, which has 2 dimensions"),
        (3, "must be a text"),
    ],
)
def test_patterns_that_are_none(pattern: str, message: str) -> None:
    with pytest.raises(tc.TcompError, match=message):
        tct.einsum(pattern, torch.rand(3, 3))


def test_tensors_that_do_not_fit() -> None:
    x = torch.rand(3, 3)
    with pytest.raises(tc.TcompError, match="no reduction 'median'"):
        tct.reduce("ij->i", x, "median")
    with pytest.raises(tc.ShapeError, match="different types"):
        tct.einsum("ij,jk->ik", x, x.double())
    with pytest.raises(tc.ShapeError, match="index i has size 3 in tensor 0, but 1 in tensor 0"):
        tct.einsum("ii", x[:, :1])
    with pytest.raises(tc.ShapeError, match="dimension -2 of the ellipsis has size 3 in tensor 0, but 2 in tensor 1"):
        tct.einsum("...,...", x, x[:2])
    with pytest.raises(tc.ShapeError, match="expected torch tensors"):
        tct.einsum("ij->i", x.numpy())
    with pytest.raises(tc.TcompError, match="not 52"):
        tct.einsum(x, [0, 52])
    with pytest.raises(tc.TcompError, match="a list of integers behind each tensor"):
        tct.einsum(x, x)
