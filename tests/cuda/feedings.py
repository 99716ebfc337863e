"""Ways to make pipelines and deals of products by warpgroups wrong: one fact of a plan changed at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tcomp.mapping.gpu.barriers import COPIED
from tcomp.mapping.gpu.pipelines import AHEAD
from tcomp.mapping.plan.deals import Deal, Dealt
from tcomp.mapping.plan.values import BARRIERS, TENSOR, Copy, Pipeline, Plan
from tests.cuda.mutations import Mutant


def wrong_feedings(plan: Plan) -> Iterator[Mutant]:
    """All changes of the pipelines, copies, barriers and deals of a plan with one product by warpgroups."""
    for mark, pipeline in plan.pipelines.items():
        for change, other in _pipelines(pipeline):
            yield Mutant("pipeline", change, replace(plan, pipelines={**plan.pipelines, mark: other}))
        for place in (*plan.phases, f"{mark}{COPIED}", f"{mark}{AHEAD}"):
            if pipeline.kind == BARRIERS:
                met = {**plan.barriers, place: "block"}
                yield Mutant("barrier", f"threads meet at {place}", replace(plan, barriers=met))
    for number, copy in enumerate(plan.copies):
        for change, changed in _copies(copy):
            copies = (*plan.copies[:number], changed, *plan.copies[number + 1 :])
            yield Mutant("copy", f"{copy.storage}: {change}", replace(plan, copies=copies))
    for cluster, dealt in plan.dealt.items():
        for change, moved in _dealt(dealt):
            yield Mutant("deal", f"cluster {cluster}: {change}", replace(plan, dealt={**plan.dealt, cluster: moved}))
    for buffer in plan.buffers.values():
        for d, deal in enumerate(buffer.deals):
            for change, other_deal in _deals(deal):
                deals = tuple(other_deal if k == d else own for k, own in enumerate(buffer.deals))
                buffers = {**plan.buffers, buffer.storage: replace(buffer, deals=deals)}
                yield Mutant("deal", f"{buffer.storage}, dimension {d}: {change}", replace(plan, buffers=buffers))
        swapped = replace(buffer, deals=tuple(reversed(buffer.deals)))
        if swapped.deals != buffer.deals:
            yield Mutant(
                "deal", "the other way round", replace(plan, buffers={**plan.buffers, buffer.storage: swapped})
            )


def _pipelines(pipeline: Pipeline) -> Iterator[tuple[str, Pipeline]]:
    for further in (1, 2, pipeline.stages):
        yield f"{further} tiles further ahead", replace(pipeline, distance=pipeline.distance + further)
    yield "no tile ahead", replace(pipeline, distance=0)
    for flight in (pipeline.flight + 1, pipeline.flight + 2, pipeline.stages):
        yield f"{flight} tiles under way", replace(pipeline, flight=flight)
    yield "a stage less", replace(pipeline, stages=pipeline.stages - 1)
    yield "one stage", replace(pipeline, stages=1)
    if pipeline.kind == BARRIERS:
        yield "a stage more", replace(pipeline, stages=pipeline.stages + 1)
        yield "a tile less ahead", replace(pipeline, distance=pipeline.distance - 1)
        if pipeline.flight:
            yield "no product under way", replace(pipeline, flight=0)
    yield "the other kind", replace(pipeline, kind="" if pipeline.kind else BARRIERS)


def _copies(copy: Copy) -> Iterator[tuple[str, Copy]]:
    swizzle = copy.swizzle
    assert swizzle is not None
    yield "the other route", replace(copy, route="" if copy.route else TENSOR)
    yield "no swizzle", replace(copy, swizzle=None)
    yield "rows and steps exchanged", replace(copy, swizzle=replace(swizzle, side=swizzle.step, step=swizzle.side))
    for warps in {0, 4, 8, 16} - {swizzle.warps}:
        yield f"rows of {warps} warps", replace(copy, swizzle=replace(swizzle, warps=warps))
    yield "padding", replace(copy, padding=8)
    yield "turned", replace(copy, order=tuple(reversed(copy.order)))
    for d in (swizzle.side, swizzle.step):
        for other in (copy.shape[d] // 2, copy.shape[d] + 8):
            shape = tuple(other if k == d else e for k, e in enumerate(copy.shape))
            yield f"{other} in dimension {d}", replace(copy, shape=shape)


def _dealt(dealt: Dealt) -> Iterator[tuple[str, Dealt]]:
    for n, deal in enumerate(dealt.deals):
        for change, other in _deals(deal):
            yield (
                f"{n}: {change}",
                replace(dealt, deals=tuple(other if k == n else d for k, d in enumerate(dealt.deals))),
            )
    yield "half of the rows of threads", replace(dealt, shape=(dealt.shape[0] // 2, *dealt.shape[1:]))
    yield "threads the other way round", replace(dealt, shape=tuple(reversed(dealt.shape)))


def _deals(deal: Deal) -> Iterator[tuple[str, Deal]]:
    if deal.dimension is None:
        return
    yield "half of the threads", replace(deal, threads=deal.threads // 2)
    yield "twice the threads", replace(deal, threads=2 * deal.threads)
    yield "other neighbours", replace(deal, vector=1 if deal.vector > 1 else 2)
    yield "along the other dimension", replace(deal, dimension=1 - deal.dimension)
