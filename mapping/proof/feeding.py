"""Proof of pipelines that a warp of its own feeds by tensor copies: who waits for whom, and that nobody waits for ever.

A block runs tiles 0, 1, and so on; tile t has stage t mod S.  These are tiles of steps, counted over all tiles of
results that a block takes in turn: the warp that fetches and those that multiply go through the same loops, and neither
begins to count anew.  Of B blocks that take tiles in turn, number b has the tiles b, b + B and so on: each is that of
one block.  Of a stage two barriers count phases.

- *full*: a phase has one arrival, of the thread that fetches, and all bytes of the boxes, zeros included.  Phase q of
  stage s is over when tile S q + s is there.  Who multiplies it waits for parity q mod 2: phase q + 1 cannot end
  before, for its boxes are asked for behind phase q of *empty*, which needs all who wait.
- *empty*: a phase has an arrival of each warp that multiplies, behind the wait for the products of a tile.  Tile t is
  asked for behind phase t / S - 1 of its stage: all products of tile t - S are made.  A tile is given back when the
  products of ``flight`` later ones are under way; so tile t comes at last when tile t - S + flight is multiplied, which
  must be one before t: flight < S.  Behind the last tile of steps of a tile of results none is under way, and all
  are given back: so what a block stores keeps no stage, and the copies of its next tile come meanwhile.
- Nobody else of the block waits for all of its threads: the one that fetches does not come there.
"""

from __future__ import annotations

from tcomp.errors import LegalityError
from tcomp.mapping.gpu.barriers import COPIED
from tcomp.mapping.gpu.matrices.feeding import can_be_fed, meets_nobody
from tcomp.mapping.gpu.pipelines import AHEAD, runs_on
from tcomp.mapping.plan.values import BARRIERS, TENSOR, Plan

MOST_IN_FLIGHT = 1
"""Tiles whose products are under way behind a tile: the stage before is given back."""


def prove_feeding(plan: Plan, step: str) -> None:
    """Raise LegalityError, naming the pass and the fact, if what feeds a phase, or the phase, waits in vain or not."""
    fed = {mark for mark, pipeline in plan.pipelines.items() if pipeline.kind == BARRIERS}
    for number in plan.persistent:
        marks = {p.mark for p in plan.phases.values() if p.cluster in plan.groups[number].clusters}
        if not marks & fed:
            raise LegalityError(
                f"pass '{step}' lets blocks take the tiles of group {number} in turn, but threads that fetch together "
                "do not wait for each other between tiles"
            )
    for copy in plan.copies:
        if (copy.route == TENSOR) != (copy.mark in fed):
            raise LegalityError(
                f"pass '{step}' fetches {copy.storage} at {copy.mark} by tensor copies, or without, where all "
                "others of the pipeline come the other way"
            )
    for mark in sorted(fed):
        pipeline = plan.pipelines[mark]
        if not can_be_fed(plan, mark):
            raise LegalityError(f"pass '{step}' lets a warp of its own fetch at {mark}, which it cannot")
        if not meets_nobody(plan, mark) or {mark + COPIED, mark + AHEAD} & set(plan.barriers):
            raise LegalityError(f"pass '{step}' lets threads meet around {mark}, but the warp that fetches stays away")
        if pipeline.flight and not runs_on(plan, mark):
            raise LegalityError(
                f"pass '{step}' lets products be under way at {mark}, whose sums are added up behind each tile"
            )
        if not 0 <= pipeline.flight <= min(MOST_IN_FLIGHT, pipeline.stages - 1):
            raise LegalityError(
                f"pass '{step}' lets the products of {pipeline.flight} tiles be under way at {mark}: of "
                f"{pipeline.stages} stages none is ever given back, or another one"
            )
        if pipeline.distance != pipeline.stages - 1 - pipeline.flight:
            raise LegalityError(
                f"pass '{step}' asks for tiles {pipeline.distance} ahead at {mark}, but a warp that fetches fills "
                f"every stage that is empty: {pipeline.stages - 1 - pipeline.flight}"
            )
