"""The CPU target: fused, tiled C with OpenMP threads, compiled on the spot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tcomp.backends.c.emitter import Emitter
from tcomp.backends.c.frame import flags_of
from tcomp.backends.c.pieces import PieceText, pieces_source
from tcomp.backends.c.strips import Strip, strip_of
from tcomp.backends.c.walks import Walk, walk_of
from tcomp.backends.c.weights import with_exponentials_of_weights
from tcomp.backends.equality import rounding_flags
from tcomp.backends.source import Source
from tcomp.backends.spelling import Needs
from tcomp.grammar.tree.function import Function
from tcomp.loops.ir import (
    LoopNode,
    depth,
)
from tcomp.loops.narrowing import narrow
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.machines.fitted.timetiles import TIME_TILING
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.strategy import Pass, cpu_passes
from tcomp.model.stepwise.pieces import Item, Piece, Pieces, Repeat, Sweeps, TimeTiles
from tcomp.model.stepwise.tiling import blocks_of


@dataclass(frozen=True, slots=True)
class CpuBackend:
    """The manifest of the target: its name, the machine it compiles for, its passes, how it spells loops.

    ``flags`` tell the compiler of a machine that is not the one it runs on.
    """

    machine: Machine
    name: str = "cpu"
    flags: tuple[str, ...] = ()

    @property
    def passes(self) -> tuple[Pass, ...]:
        """What it does to a plan."""
        return cpu_passes(self.machine)

    def emit(self, function: Function, plan: Plan, loops: LoopNode, options: MappingOptions, checked: bool) -> Source:
        """C for the loops of a plan.  ``checked`` guards data-dependent subscripts."""
        if not options.fast_math:
            plan = with_exponentials_of_weights(plan)
        narrowed = narrow(plan, loops)
        source = Emitter(function, narrowed, options, self._threads(options), checked, self.machine).emit()
        own = (*rounding_flags(function), *self.flags)
        return replace(source, flags=(*source.flags, *own)) if own else source

    def emit_pieces(
        self, function: Function, pieces: Pieces, made: Sequence[tuple[Plan, LoopNode]], options: MappingOptions,
        checked: bool,
    ) -> Source:  # fmt: skip
        """C for a program in pieces, each with its plan and its loops."""
        needs, texts = Needs(), []
        own = [block for block in blocks_of(pieces.body) if not isinstance(block, Sweeps)]
        blocks = {id(piece): block for block in own for piece in _only(block)}

        def walks(piece: Piece, plan: Plan, loops: LoopNode) -> Walk | Strip | None:
            block, width = blocks.get(id(piece)), self.machine.vector_bytes
            if block is None:
                return None
            strip = strip_of(pieces, block, plan, loops, self.machine) if isinstance(block, TimeTiles) else None
            walk = walk_of(pieces, block, plan, loops, width, options.fast_math)
            if walk is None or strip is None:
                return strip or walk
            # Many rows at a time wait for memory longer than one does.
            far = strip.rows.bytes_of(pieces) > TIME_TILING.near_strips * self.machine.last_cache
            return walk if walk.parts is not None and (far or strip.rows.meets) else strip

        for piece, (plan, loops) in zip(pieces.pieces, made, strict=True):
            tiled = piece.scop.around is not None and piece.scop.around.tiled
            threads = 1 if tiled else self._threads(options)
            emitter = Emitter(piece.function, narrow(plan, loops), options, threads, checked, self.machine)
            walk = walks(piece, plan, loops)
            if walk is not None:
                texts.append(PieceText(walk.lines(needs), 0, uses_threads=False, walk=walk))
                continue
            emitter.needs = needs
            texts.append(emitter.piece())
        flags = flags_of(options.fast_math, max((depth(loops) for _, loops in made), default=0) + pieces.depth)
        flags += (*rounding_flags(function), *self.flags)
        return pieces_source(function, pieces, texts, needs, self.machine, flags, self._threads(options))

    def _threads(self, options: MappingOptions) -> int:
        granted = self.machine.threads if options.threads is None else math.prod(options.threads)
        return min(self.machine.threads, granted) if options.parallel else 1


def _only(block: Repeat | TimeTiles) -> Sequence[Item]:
    """The piece that is all of a block."""
    body = block.pieces if isinstance(block, TimeTiles) else block.body
    return body if len(body) == 1 else ()
