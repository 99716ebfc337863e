"""What results are kept under: equal for programs that differ in names alone, different for all else."""

from __future__ import annotations

import pytest

from tcomp import grammar
from tcomp.commands.inputs.programs import read_source
from tcomp.grammar.tree.function import Function
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.terms.sizes import Sizes
from tcomp.runtime.specialisation import Specialisation
from tcomp.shipped import texts
from tcomp.tuner.database.identity import Identity, canonical, identity_of

MM = "def mm(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }"


def only(text: str) -> Function:
    (function,) = grammar.define(text).values()
    return function


def identity(text: str = MM, values: dict[str, int] | None = None, **facts: object) -> Identity:
    sizes = Sizes(values or {"M": 4, "K": 5, "N": 6}, facts.get("strides", {}))  # type: ignore[arg-type]
    options = facts.get("options", MappingOptions())
    assert isinstance(options, MappingOptions)
    made = Specialisation(only(text), sizes, options, str(facts.get("target", "cpu")), False)
    return identity_of(made, str(facts.get("device", "any")))


def test_names_comments_and_layout_do_not_count() -> None:
    renamed = """
    # another text
    def product(float(rows,inner) left, float(inner,columns) right) -> (result) {
        result(i, j) +=! left(i, q) * right(q, j)   # the same sum
    }"""
    other = identity(renamed, {"rows": 4, "inner": 5, "columns": 6})
    assert other == identity()
    assert other.key == identity().key


def test_lets_and_temporaries_are_renamed_in_order() -> None:
    one = "def f(float(N) A) -> (B) { T(i) = A(i) + 1\n B(i) = x * x where x = exp(T(i)) }"
    two = "def g(float(n) q) -> (r) { t9(k) = q(k) + 1\n r(j) = z * z where z = exp(t9(j)) }"
    assert canonical(only(one)).text == canonical(only(two)).text
    assert "exp" in canonical(only(one)).text


@pytest.mark.parametrize(
    "text",
    [
        MM.replace("A(m,k)", "A(m,k) + 1"),
        MM.replace("float(K,N)", "half(K,N)"),
        MM.replace("(M,K)", "(K,M)").replace("A(m,k)", "A(k,m)"),
        MM.replace("B(k,n)", "B(k,n) * B(k,n)"),
        MM.replace("+=!", "max=!"),
    ],
)
def test_another_program_is_another_identity(text: str) -> None:
    assert identity(text).key != identity().key


def test_everything_that_a_kernel_is_fixed_to_counts() -> None:
    variants = [
        identity(),
        identity(values={"M": 4, "K": 6, "N": 5}),
        identity(strides={"A": (1, 4)}),
        identity(strides={"B": (1, 4)}),
        identity(target="simulator:sm_90"),
        identity(device="another"),
        identity(options=MappingOptions(threads=(1,))),
    ]
    assert len({v.key for v in variants}) == len(variants)


def test_options_that_are_searched_do_not_count() -> None:
    chosen = MappingOptions(tile_sizes=(8, 8), parallel=False)
    assert identity(options=chosen) == identity()
    blocks = MappingOptions(threads=(32,))
    assert identity(target="simulator:sm_90", options=blocks) == identity(target="simulator:sm_90"), "of a GPU's block"


def test_indices_of_different_statements_may_share_a_name() -> None:
    apart = "def f(float(N) A) -> (B, C) { B(i) = A(i)\n C(j) = A(j) + 1 }"
    shared = "def f(float(N) A) -> (B, C) { B(i) = A(i)\n C(i) = A(i) + 1 }"
    assert canonical(only(apart)).text == canonical(only(shared)).text


@pytest.mark.parametrize("name", list(texts()))
def test_canonical_text_is_a_program_that_is_its_own_canonical_text(name: str) -> None:
    for function in grammar.define(*read_source(f"library:{name}")).values():
        text = canonical(function).text
        again = only(text)
        assert canonical(again).text == text
        assert len(again.statements) == len(function.statements)
        assert [t.dtype for t in again.inputs] == [t.dtype for t in function.inputs]
