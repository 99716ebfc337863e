"""Full tiles get loops of constant trip count, chosen by a test in front."""

from __future__ import annotations

from dataclasses import replace

from tcomp.loops.fulltiles import separate_full_tiles
from tcomp.loops.ir import Block, Execute, For, If, LoopNode, Number, Operation, Scope, Variable

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


def _around(tiles: int, limit: int) -> LoopNode:
    """A loop over so many tiles of eight, cut off at a limit."""
    separated = separate_full_tiles(For("t", Number(0), Number(tiles), 1, _tile(limit)))
    assert isinstance(separated, For) and isinstance(separated.body, Scope) and isinstance(separated.body.body, If)
    general = separated.body.body.otherwise
    assert general is not None
    return general


def test_the_last_tile_runs_over_what_is_left() -> None:
    general = _around(13, 100)
    assert isinstance(general, For) and general.upper == Operation("+", (_times(8), Number(4)))


def test_what_is_left_is_not_known_where_tiles_may_be_empty() -> None:
    inside = _tile(100)
    assert isinstance(inside, Scope) and _around(14, 100) == inside.body


def test_what_is_left_is_not_known_where_tiles_begin_anywhere() -> None:
    bounds = (Operation("*", (Number(6), TILE)), Operation("+", (Operation("*", (Number(6), TILE)), Number(8))))
    loop = For("i", bounds[0], Operation("min", (Number(100), bounds[1])), 1, Execute("S", (Variable("i"),)))
    separated = separate_full_tiles(For("t", Number(0), Number(16), 1, Scope("cluster0", (), loop)))
    assert isinstance(separated, For) and isinstance(separated.body, Scope) and isinstance(separated.body.body, If)
    assert separated.body.body.otherwise == loop


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


def _limited(name: str, limit: int, body: LoopNode) -> For:
    return For(name, _times(8), Operation("min", (Number(limit), Operation("+", (_times(8), Number(8))))), 1, body)


def _general(node: LoopNode) -> LoopNode | None:
    separated = separate_full_tiles(Scope("cluster0", (), node))
    assert isinstance(separated, Scope) and isinstance(separated.body, If)
    return separated.body.otherwise


CALL = Execute("S", (Variable("k"), Variable("m"), Variable("n")))


def test_an_operation_is_told_that_one_of_its_loops_is_torn() -> None:
    tile = _limited("m", 99, For("n", Number(0), Number(8), 1, CALL))
    both = _limited("m", 99, _limited("n", 77, CALL))
    for body, torn in ((tile, {"m"}), (both, {"m", "n"})):
        general = _general(Scope("contract0", (), For("k", Number(0), Number(5), 1, body)))
        assert isinstance(general, Scope) and general.torn == torn


def test_an_operation_is_not_told_of_the_loops_of_others() -> None:
    """Where they are torn, its own may be full."""
    tile = _limited("m", 99, For("n", Number(0), Number(8), 1, CALL))
    operation = Scope("contract0", (), For("k", Number(0), Number(5), 1, tile))
    general = _general(Block((_limited("m", 100, Execute("T", (Variable("m"),))), operation)))
    assert isinstance(general, Block) and general.children[1] == operation
    general = _general(Block((_limited("m", 99, Execute("T", (Variable("m"),))), operation)))
    assert isinstance(general, Block) and general.children[1] == replace(operation, torn=frozenset({"m"}))


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
