"""The checker, tested by mutation: legal plans are accepted, and each way of making one illegal is found."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace

import islpy as isl
import pytest

from tcomp.driver import lower
from tcomp.errors import LegalityError
from tcomp.grammar import define
from tcomp.mapping.fusion.groups import group_tree
from tcomp.mapping.memory.places import Place, places
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.schedule import schedule, sunk_form
from tcomp.mapping.plan.tree import Band, Mark, Sequence, Subtree, plant, rows
from tcomp.mapping.plan.values import Buffer, Cluster, Plan
from tcomp.mapping.proof.legality import prove, prove_complete
from tcomp.model.build import build
from tcomp.model.scop import ScopStatement
from tcomp.model.terms.sizes import Sizes
from tcomp.model.terms.unions import union_set
from tests.targets import CPU

pytestmark = pytest.mark.sweep(2)

MATMUL = "def f(float(M,K) A, float(K,N) B) -> (C) { C(m,n) +=! A(m,k) * B(k,n) }", {"M": 20, "N": 24, "K": 9}
SOFTMAX = (
    """def f(float(N,D) X) -> (Y) {
        m(n) max=! X(n,d)
        e(n,d) = exp(X(n,d) - m(n))
        s(n) +=! e(n,d)
        Y(n,d) = e(n,d) / s(n) }""",
    {"N": 20, "D": 12},
)
BLUR = (
    "def f(float(N) X) -> (Z) { Y(i) = X(i) + X(i+1) + X(i+2)  Z(i) = Y(i) + Y(i+1) + Y(i+2) }",
    {"N": 40},
)
CONV_POOL = (
    """def f(float(C,H,W) I, float(F,C,3,3) K) -> (O) {
        T(f,h,w) +=! I(c,h+kh,w+kw) * K(f,c,kh,kw)
        R(f,h,w) = relu(T(f,h,w))
        O(f,h,w) max=! R(f,2*h+ph,2*w+pw) where ph in 0:3, pw in 0:3 }""",
    {"C": 2, "H": 15, "W": 17, "F": 3},
)
ATTENTION = (
    """def f(float(L,D) Q, float(S,D) K, float(S,E) V) -> (O) {
        p(l,s) +=! Q(l,d) * K(s,d)
        m(l) max=! p(l,s)
        w(l,s) = exp(p(l,s) - m(l))
        t(l) +=! w(l,s)
        O(l,e) +=! w(l,s) * V(s,e)
        O(l,e) = O(l,e) / t(l) }""",
    {"L": 18, "S": 10, "D": 4, "E": 6},
)
PROGRAMS = {"matmul": MATMUL, "softmax": SOFTMAX, "blur": BLUR, "conv and pool": CONV_POOL, "attention": ATTENTION}
NAMES = sorted(PROGRAMS)
FUSED = ["attention", "blur", "conv and pool", "softmax"]
"""Programs of which several clusters share a tile."""
SUNK = ["attention", "conv and pool", "matmul", "softmax"]
"""Programs with several statements in a cluster."""


OPTIONS = MappingOptions(tile_sizes=(4, 2, 3), recompute_limit=10.0)


@functools.cache
def plans(name: str, options: MappingOptions = OPTIONS) -> dict[str, Plan]:
    """The plan after each pass."""
    text, sizes = PROGRAMS[name]
    return dict(lower(define(text)["f"], Sizes(sizes), options, CPU).plans)


def final(name: str, options: MappingOptions = OPTIONS) -> Plan:
    return list(plans(name, options).values())[-1]


def refused(plan: Plan, match: str = "pass 'mutation'") -> None:
    with pytest.raises(LegalityError, match=match):
        prove(plan, "mutation")


@pytest.mark.parametrize("strategy", ["max", "min", "preserve3coincident"])
@pytest.mark.parametrize("tiles", [None, (), (1,), (3, 5, 2), (1000,)])
@pytest.mark.parametrize("name", NAMES)
def test_what_the_passes_make_is_accepted(name: str, tiles: tuple[int, ...] | None, strategy: str) -> None:
    for step, plan in plans(name, MappingOptions(tile_sizes=tiles, fusion_strategy=strategy)).items():
        prove(plan, step)
    prove_complete(plan, step)


@pytest.mark.parametrize("name", SUNK)
def test_statements_of_a_cluster_in_reverse_are_refused(name: str) -> None:
    plan = first_plan(name)
    several = [c for c in plan.clusters if len(c.statements) > 1]
    assert several
    for cluster in several:
        backwards = replace(cluster, statements=cluster.statements[::-1])
        refused(with_sequence(plan, [backwards if c is cluster else c for c in plan.clusters]), "reverses a dependence")


@pytest.mark.parametrize("name", FUSED)
def test_clusters_in_any_other_order_are_refused(name: str) -> None:
    plan = first_plan(name)
    clusters = list(plan.clusters)
    for first, second in dependent_neighbours(plan):
        swapped = [second if c is first else first if c is second else c for c in clusters]
        refused(with_sequence(plan, swapped), "reverses a dependence")


@pytest.mark.parametrize("name", FUSED)
def test_clusters_of_a_tile_in_reverse_are_refused(name: str) -> None:
    plan = plans(name)["fuse"]
    number, group = next((n, g) for n, g in enumerate(plan.groups) if len(g.clusters) > 1)
    backwards = list(plan.groups)
    backwards[number] = replace(group, clusters=group.clusters[::-1])
    mutant = replace(plan, groups=tuple(backwards))
    refused(replace(mutant, tree=group_tree(mutant, lambda c, _: sunk_form(plan.scop, c))), "reverses a dependence")


@pytest.mark.parametrize("name", SUNK)
def test_a_statement_out_of_step_with_its_band_is_refused(name: str) -> None:
    """The first statement of a shared band one coordinate late, or the last one early, misses the others."""
    plan = first_plan(name)
    cluster = next(c for c in plan.clusters if len(c.statements) > 1 and c.rank)
    statements = [plan.scop.by_name[s] for s in cluster.statements]
    for moved, step in ((statements[0], "i{} + 1"), (statements[-1], "i{} - 1"), (statements[-1], "-i{}")):
        parts: list[tuple[ScopStatement, list[int | str]]] = []
        for s in statements:
            members = cluster.coordinates[s.name]
            parts.append((s, [step.format(p) if s is moved else p for p in members]))
        band = Band(rows(parts), 0, below_the_band(plan, cluster))
        refused(with_sequence(plan, list(plan.clusters), {cluster.number: band}), "reverses a dependence")


def test_tiles_over_a_reduction_are_refused() -> None:
    """Sums may be reassociated, but not by tiles that run at the same time."""
    plan = first_plan("matmul")
    update = plan.scop.by_name["S0"]
    tiles = Band(rows([(update, ["floor(i2/4)"])]), 1, Mark("group0", Band(rows([(update, [0, 1, 2])]), 0)))
    children = []
    for s in plan.scop.statements:
        own: Subtree = Mark("parallel0", tiles) if s is update else Band(rows([(s, [0, 1])]), 2)
        children.append((isl.UnionSet.from_set(s.domain), own))
    mutant = replace(plan, tree=plant(plan.scop.domain, Sequence(tuple(children))))
    refused(mutant, "run in parallel")


@pytest.mark.parametrize("shift", [0, 4])
def test_tiles_that_read_their_neighbours_are_refused(shift: int) -> None:
    """Producer and consumer tiled alike, or with the consumer behind: legal or not in order, never in parallel."""
    plan = first_plan("blur")
    produced, consumed = plan.scop.statements
    inner = Sequence(tuple((isl.UnionSet.from_set(s.domain), Band(rows([(s, [0])]), 1)) for s in (produced, consumed)))
    band = rows([(produced, ["floor(i0/4)"]), (consumed, [f"floor((i0 + {shift})/4)"])])
    tree = plant(plan.scop.domain, Mark("parallel0", Band(band, 1, Mark("group0", inner))))
    refused(replace(plan, tree=tree), "run in parallel" if shift else "reverses a dependence")


@pytest.mark.parametrize("name", NAMES)
def test_dropped_instances_are_refused(name: str) -> None:
    plan = final(name)
    for statement in plan.scop.statements:
        point = isl.UnionSet.from_set(isl.Set.from_point(statement.domain.sample_point()))
        refused(replace(plan, tree=without(plan.tree, point)))


@pytest.mark.parametrize("name", NAMES)
def test_instances_at_one_date_are_refused(name: str) -> None:
    """A schedule that leaves out an index says nothing about the order of its instances."""
    plan = first_plan(name)
    for statement in plan.scop.statements:
        cluster = next(c for c in plan.clusters if statement.name in c.statements)
        flat: dict[int, Subtree] = {cluster.number: Band(one_row_less(plan, cluster, statement), 0)}
        refused(with_sequence(plan, list(plan.clusters), flat))


@pytest.mark.parametrize("name", NAMES)
def test_a_buffer_at_too_inner_a_place_is_refused(name: str) -> None:
    """What a place could not be chosen for, it cannot hold."""
    plan = final(name)
    tried = 0
    for buffer in plan.buffers.values():
        for place in inner_places(plan, buffer):
            tried += 1
            moved = replace(buffer, mark=place.mark, lower=None, space="register", shape=())
            refused(with_buffer(plan, moved))
    assert tried


@pytest.mark.parametrize("name", FUSED)
def test_a_buffer_between_groups_cannot_live_in_one(name: str) -> None:
    plan = final(name, MappingOptions(tile_sizes=(4, 2, 3), fusion_strategy="min"))
    shared = [b for b in plan.buffers.values() if b.space == "global"]
    assert shared
    for buffer in shared:
        for place in places(plan.tree):
            if not place.mark.startswith("parallel"):
                refused(with_buffer(plan, replace(buffer, mark=place.mark, space="register", shape=(), origin=())))


@pytest.mark.parametrize("name", NAMES)
def test_a_box_too_small_is_refused(name: str) -> None:
    for buffer, plan in buffers_of(name, lambda b: b.space == "tile" and not is_empty(b)):
        for d in range(len(buffer.shape)):
            smaller = (*buffer.shape[:d], buffer.shape[d] - 1, *buffer.shape[d + 1 :])
            refused(with_buffer(plan, replace(buffer, shape=smaller)), "is outside")


@pytest.mark.parametrize("name", NAMES)
def test_a_box_beside_its_elements_is_refused(name: str) -> None:
    for buffer, plan in buffers_of(name, lambda b: b.space == "tile" and not is_empty(b)):
        assert buffer.lower is not None
        for d in range(len(buffer.shape)):
            beside = buffer.lower.get_at(d)
            beside = beside.set_constant_val(beside.get_constant_val().add(isl.Val(1)))
            refused(with_buffer(plan, replace(buffer, lower=buffer.lower.set_at(d, beside))), "is outside")


@pytest.mark.parametrize("name", FUSED)
def test_a_global_box_too_small_is_refused(name: str) -> None:
    plan = final(name, MappingOptions(tile_sizes=(4, 2, 3), fusion_strategy="min"))
    for buffer in [b for b in plan.buffers.values() if b.space == "global"]:
        for d in range(len(buffer.shape)):
            smaller = (*buffer.shape[:d], buffer.shape[d] - 1, *buffer.shape[d + 1 :])
            refused(with_buffer(plan, replace(buffer, shape=smaller)), "is outside")


@pytest.mark.parametrize("name", NAMES)
def test_an_array_in_a_register_is_refused(name: str) -> None:
    for buffer, plan in buffers_of(name, lambda b: b.space == "tile" and not is_empty(b)):
        refused(with_buffer(plan, replace(buffer, space="register", shape=(), lower=None)), "register")


@pytest.mark.parametrize("name", NAMES)
def test_a_temporary_without_a_buffer_is_refused(name: str) -> None:
    plan = final(name)
    for storage in plan.buffers:
        rest = {n: b for n, b in plan.buffers.items() if n != storage}
        with pytest.raises(LegalityError, match="no buffer"):
            prove_complete(replace(plan, buffers=rest), "mutation")


@pytest.mark.parametrize("name", ["blur", "conv and pool"])
def test_tiles_that_leave_out_what_they_need_are_refused(name: str) -> None:
    """The expanded program must still be the program: a producer instance less, and a tile reads something else."""
    plan = plans(name)["fuse"]
    producers = [s for s in plan.scop.statements if s.tile_rank]
    assert producers
    for statement in producers:
        domain = statement.domain.subtract(isl.Set.from_point(statement.domain.sample_point()))
        less = replace(
            statement,
            domain=domain,
            write=statement.write.intersect_domain(domain),
            reads=tuple(r.intersect_domain(domain) for r in statement.reads),
        )
        statements = tuple(less if s is statement else s for s in plan.scop.statements)
        mutant = replace(plan.scop, statements=statements)
        removed = isl.UnionSet.from_set(statement.domain.subtract(domain))
        refused(replace(plan, scop=mutant, tree=without(plan.tree, removed)), "read other values")


def is_empty(buffer: Buffer) -> bool:
    return 0 in buffer.shape


@functools.cache
def first_plan(name: str) -> Plan:
    """The plan that the passes start from."""
    text, sizes = PROGRAMS[name]
    scop = lower(define(text)["f"], Sizes(sizes), OPTIONS, CPU).scop
    return schedule(scop)


def with_sequence(plan: Plan, clusters: list[Cluster], instead: dict[int, Subtree] | None = None) -> Plan:
    """The plan that runs its clusters one after another, some by another subtree."""
    children = []
    for c in clusters:
        domain = union_set([plan.scop.by_name[s].domain for s in c.statements])
        children.append((domain, (instead or {}).get(c.number, sunk_form(plan.scop, c))))
    return replace(plan, tree=plant(plan.scop.domain, Sequence(tuple(children))))


def below_the_band(plan: Plan, cluster: Cluster) -> Subtree:
    form = sunk_form(plan.scop, cluster)
    assert isinstance(form, Band)
    return form.child


def dependent_neighbours(plan: Plan) -> Iterator[tuple[Cluster, Cluster]]:
    for first, second in zip(plan.clusters, plan.clusters[1:], strict=False):
        sources = union_set([plan.scop.by_name[s].domain for s in first.statements])
        sinks = union_set([plan.scop.by_name[s].domain for s in second.statements])
        if not plan.scop.dependences.intersect_domain(sources).intersect_range(sinks).is_empty():
            yield first, second


def without(tree: isl.Schedule, instances: isl.UnionSet) -> isl.Schedule:
    return tree.intersect_domain(tree.get_domain().subtract(instances))


def one_row_less(plan: Plan, cluster: Cluster, statement: ScopStatement) -> isl.UnionMap:
    """All indices of a cluster's statements as one band, but for the first index of ``statement``."""
    width = max(len(plan.scop.by_name[s].indices) for s in cluster.statements)
    parts: list[tuple[ScopStatement, list[int | str]]] = []
    for s in cluster.statements:
        found = plan.scop.by_name[s]
        kept = range(1 if found is statement else 0, len(found.indices))
        parts.append((found, [*kept, *["0"] * (width - len(kept))]))
    return rows(parts)


def inner_places(plan: Plan, buffer: Buffer) -> list[Place]:
    """The places further in than the one that holds a buffer."""
    every = places(plan.tree)
    marks = [p.mark for p in every]
    start = marks.index(buffer.mark) + 1 if buffer.mark else 0
    users = {
        s.name
        for s in plan.scop.statements
        if buffer.storage in (s.target, *(r.get_tuple_name(isl.dim_type.out) for r in s.reads))
    }
    return [p for p in every[start:] if not p.mark.startswith("parallel") and users & set(p.prefixes)]


def with_buffer(plan: Plan, buffer: Buffer) -> Plan:
    return replace(plan, buffers={**plan.buffers, buffer.storage: buffer})


def buffers_of(name: str, chosen: Callable[[Buffer], bool]) -> Iterator[tuple[Buffer, Plan]]:
    """The buffers of a program's final plan that are ``chosen``; at least one."""
    plan = final(name)
    found = [b for b in plan.buffers.values() if chosen(b)]
    assert found
    for buffer in found:
        yield buffer, plan


SCATTER = "def f(float(N,D) V, int32(N) I) -> (float(7,D) O, P) { O(I(i),d) +=! V(i,d)  P(d) +=! O(e,d) }"


@functools.cache
def scattered() -> Plan:
    return list(lower(define(SCATTER)["f"], Sizes({"N": 9, "D": 5}), OPTIONS, CPU).plans.values())[-1]


def in_tiles(shared: str, order: tuple[str, ...] = ("S0i", "S0")) -> Plan:
    """The scatter with tiles that run in parallel: one for each value of an index of its update, d or i."""
    plan = replace(scattered(), buffers={}, operations={})
    scop = plan.scop
    update, start = scop.by_name["S0"], scop.by_name["S0i"]
    tile, rest = (0, [1]) if shared == "d" else (1, [0])
    points = Mark("group0", Band(rows([(update, rest)]), 0))
    parts: dict[str, Subtree] = {
        "S0": Mark("parallel0", Band(rows([(update, [tile])]), 1, points)),
        "S0i": Band(rows([(start, [0, 1])]), 0),
    }
    others = [s for s in scop.statements if s.name not in parts]
    children = [(union_set([scop.by_name[name].domain]), parts[name]) for name in order]
    children += [(union_set([s.domain]), Band(rows([(s, [*range(len(s.indices))])]), 0)) for s in others]
    return replace(plan, tree=plant(scop.domain, Sequence(tuple(children))))


def test_instances_whose_elements_data_choose_do_not_run_in_parallel() -> None:
    prove(in_tiles("d"), "mutation")
    refused(in_tiles("i"), "lets tiles of group0 run in parallel")


def test_elements_are_started_before_data_choose_them() -> None:
    refused(in_tiles("d", ("S0", "S0i")), "reverses a dependence on O")


def test_what_is_written_next_waits_for_all_that_data_may_have_chosen() -> None:
    """The last instance need not have written what an earlier one has."""
    text = "def f(float(N,D) V, int32(N) I) -> (float(7,D) O) { O(I(i),d) +=! V(i,d)  O(3,d) = V(0,d) }"
    scop = build(define(text)["f"], Sizes({"N": 9, "D": 5}))
    before = scop.output.intersect_range(union_set([scop.by_name["S1"].domain])).domain()
    assert union_set([scop.by_name["S0"].domain]).is_subset(before)
