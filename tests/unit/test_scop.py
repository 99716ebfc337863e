"""What passes ask of isl again and again is computed once."""

from __future__ import annotations

import cProfile
from collections.abc import Callable

import islpy as isl
import pytest

from tcomp.driver import lower
from tcomp.grammar import define
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.proof import legality
from tcomp.model.build import build
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.sizes import Sizes
from tcomp.model.terms.unions import extents, extents_at_once, map_from_text
from tcomp.runtime.registry import backend_of


def test_a_text_is_read_once_and_what_it_says_stays() -> None:
    text = "{ S[i0, i1] -> [i1, floor(i0/4)] }"
    read = map_from_text(text)
    read.intersect_domain(isl.Set("{ S[i0, i1] : 0 <= i0 < 9 }")).apply_range(isl.Map("{ [a, b] -> [b] }")).coalesce()
    read.reverse().set_tuple_name(isl.dim_type.in_, "T").project_out(isl.dim_type.in_, 0, 1)
    assert map_from_text(text) is read
    assert read.is_equal(isl.Map(text))
    assert read.get_tuple_name(isl.dim_type.in_) == "S"


def test_extents_count_values_of_indices() -> None:
    function = define("def f(float(N,M) A) -> (S) { S(i) +=! A(i,j) where i in 2:N, j in 0:i }")["f"]
    scop = build(function, Sizes({"N": 7, "M": 9}))
    extents = {s.kind: s.extents for s in scop.statements}
    assert extents["init"] == (5,)
    assert extents["update"] == (5, 6)


def test_blocks_that_move_have_the_extents_of_one() -> None:
    points = isl.Set("[c] -> { S[i, p] : 0 <= c < 4 and 8c <= p < 8c + 8 and p < 30 and 8c + 8 <= i < 40 }")
    assert extents(points) == (32, 30)
    assert extents_at_once(points) == (32, 8)
    assert extents_at_once(isl.Set("{ S[i] : 3 <= i < 10 }")) == (7,)


def test_storages_know_who_uses_them_and_what_goes_through_them() -> None:
    text = "def f(float(N) A) -> (B, C) { t(i) = A(i)  B(i) = t(i) + A(i)  t(i) = t(i) * 2  C +=! t(i) }"
    scop = build(define(text)["f"], Sizes({"N": 7}))
    for name, users in scop.users.items():
        reading = {r.get_tuple_name(isl.dim_type.out): s.name for s in scop.statements for r in s.reads}
        assert [s.name for s in scop.statements if s in users] == [s.name for s in users]
        assert name not in reading or reading[name] in {s.name for s in users}
        assert {s.name for s in scop.statements if s.target == name} <= {s.name for s in users}
        for writer, reader in scop.values_through[name]:
            assert scop.by_name[writer].target == name
            assert scop.by_name[reader] in users
    pairs = [pair for values in scop.values_through.values() for pair in values]
    assert sorted(pairs) == sorted(scop.values_between)


def test_a_chain_is_proved_link_by_link(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not every statement with every other: of a thousand, that took as long as all the rest."""
    asked, reads_amiss = [], legality._reads_amiss

    def counted(program: Scop, expanded: Scop, source: str, sink: ScopStatement) -> str | None:
        asked.append((source, sink.name))
        return reads_amiss(program, expanded, source, sink)

    monkeypatch.setattr(legality, "_reads_amiss", counted)
    body = " ".join(f"T{k}(i) = T{k - 1}(i) + 1" for k in range(1, 40))
    text = f"def f(float(N) A) -> (O) {{ T0(i) = A(i) {body} O(i) = T39(i) }}"
    lower(define(text)["f"], Sizes({"N": 5}), MappingOptions(), backend_of("cpu"))
    assert len(asked) == len(set(asked)) == 40


def _chain(length: int) -> str:
    """Pointwise statements and reductions by turns, each of which reads what the last one has left."""
    lines = ["t0(i) = A(i) + 1"]
    for number in range(1, length):
        before = f"t{number - 1}"
        if number % 4 == 3:
            lines.append(f"s{number} +=! {before}(i)  t{number}(i) = A(i) - s{number}")
        else:
            lines.append(f"t{number}(i) = {before}(i) + 1")
    return f"def f(float(N) A) -> (t{length - 1}) {{ {' '.join(lines)} }}"


def _apart(length: int) -> str:
    """Statements that have nothing to do with each other."""
    outputs = [f"t{number}" for number in range(length)]
    return f"def f(float(N) A) -> ({', '.join(outputs)}) {{ {' '.join(f'{t}(i) = A(i) + 1' for t in outputs)} }}"


@pytest.mark.parametrize("program", [_chain, _apart])
def test_work_grows_with_the_number_of_statements(program: Callable[[int], str]) -> None:
    """Calls are counted, since times depend on the machine: where pairs of statements are looked at there are more."""

    def calls(length: int) -> int:
        function = define(program(length))["f"]
        profile = cProfile.Profile()
        profile.runcall(lower, function, Sizes({"N": 1000}), MappingOptions(), backend_of("cpu"))
        return sum(entry.callcount for entry in profile.getstats())

    calls(4)
    assert calls(160) < 4.6 * calls(40)


IN_PARTS = {
    "apart": ("T(i,j) = A(i,j) where j in 0:3  T(i,j+3) = 2*A(i,j) where j in 0:4  O(i) +=! T(i,j) * A(i,j)", False),
    "dealt": ("T(i,2*j) = A(i,j) where j in 0:3  T(i,2*j+1) = A(i,j+1) where j in 0:3  O(i) +=! T(i,j)", False),
    "again": ("T(i,j) = A(i,j) where j in 0:5  T(i,j+4) = 2*A(i,j) where j in 0:3  O(i) +=! T(i,j)", True),
    "read before": ("T(i,j) = A(i,j) where j in 0:3  O(i) +=! T(i,0) * A(i,j)  T(i,3) = O(i)  Q(i) = T(i,3)", True),
}


@pytest.mark.parametrize("name", IN_PARTS)
def test_parts_that_do_not_overlap_need_no_analysis(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    body, contended = IN_PARTS[name]
    results = "O, Q" if "Q(" in body else "O"
    function = define(f"def f(float(N,7) A) -> ({results}) {{ {body} }}")["f"]
    scop, analysed = (build(function, Sizes({"N": 5})) for _ in range(2))
    assert bool(scop._contended) == contended
    found = scop.flow, scop.dependences
    monkeypatch.setattr(Scop, "_is_written_in_parts", lambda self, storage: False)
    assert all(one.is_equal(other) for one, other in zip(found, (analysed.flow, analysed.dependences), strict=True))
