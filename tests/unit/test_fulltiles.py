"""Full tiles get loops of constant trip count, chosen by a test in front."""

from __future__ import annotations

from tcomp.fulltiles import separate_full_tiles
from tcomp.loops import Execute, For, If, LoopNode, Number, Operation, Scope, Variable

TILE = Variable("t")


def _times(factor: int) -> Operation:
    return Operation("*", (Number(factor), TILE))


def _tile(upper_limit: int) -> LoopNode:
    full = Operation("+", (_times(8), Number(8)))
    upper = Operation("min", (Number(upper_limit), full))
    return Scope("cluster0", (), For("i", _times(8), upper, 1, Execute("S", (Variable("i"),))))


def test_a_partial_tile_keeps_the_general_loop() -> None:
    separated = separate_full_tiles(_tile(100))
    assert isinstance(separated, Scope) and isinstance(separated.body, If)
    full, general = separated.body.then, separated.body.otherwise
    assert isinstance(full, For) and full.upper == Operation("+", (_times(8), Number(8)))
    assert isinstance(_tile(100), Scope) and general == _tile(100).body
    assert separated.body.condition == Operation("<=", (full.upper, Number(100)))


def test_the_steps_of_an_operation_may_be_of_any_number() -> None:
    """Accumulators need constant rows and columns, not a constant number of steps."""

    def limited(name: str, body: LoopNode) -> For:
        upper = Operation("min", (Number(100), Operation("+", (_times(8), Number(8)))))
        return For(name, _times(8), upper, 1, body)

    tile = limited("m", limited("n", Execute("S", (Variable("k"), Variable("m"), Variable("n")))))
    separated = separate_full_tiles(Scope("cluster0", (), Scope("contract0", (), limited("k", tile))))
    assert isinstance(separated, Scope) and isinstance(separated.body, If)
    assert separated.body.condition == Operation("<=", (Operation("+", (_times(8), Number(8))), Number(100)))
    full = separated.body.then
    assert isinstance(full, Scope) and isinstance(full.body, For) and isinstance(full.body.body, For)
    assert full.body.upper == limited("k", tile).upper
    assert full.body.body.upper == Operation("+", (_times(8), Number(8)))


def test_loops_without_guards_stay() -> None:
    node = Scope("cluster0", (), For("i", Number(0), Number(8), 1, Execute("S", (Variable("i"),))))
    assert separate_full_tiles(node) == node


def test_a_bound_that_depends_on_an_inner_loop_is_no_test_in_front() -> None:
    inner = For(
        "j", Variable("i"), Operation("min", (Number(9), Operation("+", (Variable("i"), Number(4))))), 1,
        Execute("S", (Variable("i"), Variable("j"))),
    )  # fmt: skip
    node = Scope("cluster0", (), For("i", Number(0), Number(8), 1, inner))
    assert separate_full_tiles(node) == node
