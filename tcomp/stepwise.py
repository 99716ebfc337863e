"""How a function with blocks of steps becomes a kernel: piece by piece, each as ``driver.py`` makes a whole program."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import islpy as isl

from tcomp.backends.source import Source
from tcomp.driver import Announce, Backend, Compilation, Trace, complete, nest_of, prove_last, run_passes
from tcomp.errors import CompileError, Diagnostic, PlanError, ShapeError
from tcomp.grammar.ranges.ranges import Ranges, infer
from tcomp.grammar.tree.diagnostics import refuse_steps
from tcomp.grammar.tree.function import Function
from tcomp.loops.codegen import generate_loops
from tcomp.loops.ir import Block, LoopNode, render
from tcomp.mapping.machines.cpu import LINE_BYTES, Machine
from tcomp.mapping.machines.fitted.cputext import THREADS
from tcomp.mapping.machines.fitted.timetiles import TIME_TILING
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.schedule import schedule
from tcomp.mapping.plan.values import Plan
from tcomp.mapping.strategy import Pass
from tcomp.mapping.text.writer import plan_text
from tcomp.model.islbounds import TooComplexError, bounded
from tcomp.model.scop import Scop
from tcomp.model.stepwise.cutting import Cutter
from tcomp.model.stepwise.folding import folded, prove_folds
from tcomp.model.stepwise.once import computed_once, prove_once, runs_as_before
from tcomp.model.stepwise.pieces import Item, Piece, Pieces, Sweeps, TimeTiles
from tcomp.model.stepwise.running import as_reductions, prove_running
from tcomp.model.stepwise.sweeps import SweepRoom, SweepShape, Swept, prove_sweeps, shape_of, sweeps_of, swept
from tcomp.model.stepwise.tiling import Room, Shape, blocks_of, prove_tiles, time_tiled, worth_tiles
from tcomp.model.stepwise.together import prove_together, run_together
from tcomp.model.stepwise.unfolding import with_tensors_between
from tcomp.model.stepwise.wavefronts import Wavefronts, in_wavefronts, prove_wavefronts
from tcomp.model.terms.sizes import Sizes

_HEAD = re.compile(r"^#### piece .*\n", re.MULTILINE)
_SIZE = r"(\d{1,9}) steps x (\d{1,9}) rows(?: x (\d{1,9}) columns)?(?: x (\d{1,9}) lanes)?( with those before)?"
_TILES = re.compile(rf"^#### piece .*, block (\d{{1,9}}) in tiles of {_SIZE}$", re.MULTILINE)
_SWEEPS = re.compile(
    r"^#### piece .*, block \d+ in sweeps of (\d{1,9}) steps x (\d{1,9}) rows x (\d{1,9}) lanes$", re.MULTILINE
)
_WAVES = re.compile(r"^#### piece .*, for each (.*, )?wave_*(,|$)", re.MULTILINE)
_LARGEST = 1 << 20


@runtime_checkable
class PieceBackend(Protocol):
    """A target that runs pieces of a program step by step."""

    @property
    def name(self) -> str: ...

    @property
    def machine(self) -> Machine | None:
        """Whose caches tiles over time stay in; None where blocks are not tiled over time."""

    @property
    def passes(self) -> tuple[Pass, ...]: ...

    def emit_pieces(
        self, function: Function, pieces: Pieces, made: Sequence[tuple[Plan, LoopNode]], options: MappingOptions,
        checked: bool,
    ) -> Source: ...  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class MadePiece:
    """The plan of a piece after each pass, by name, and its loops."""

    piece: Piece
    plans: Mapping[str, Plan]
    loops: LoopNode

    @property
    def plan(self) -> Plan:
        """The final plan."""
        return list(self.plans.values())[-1]


@dataclass(frozen=True, eq=False)
class StepwiseCompilation(Compilation):
    """The compilation of a program in pieces; ``plans`` and ``scop`` are those of the largest one.

    ``cutter`` has what was taken apart, after its blocks were written along ``waves``, if they were.
    """

    pieces: Pieces
    made: tuple[MadePiece, ...]
    cutter: Cutter
    waves: tuple[Wavefronts, ...]

    @property
    def parts(self) -> tuple[tuple[str, Plan, str], ...]:
        """The pieces."""
        return tuple(
            (head.removeprefix("#### ") + ":", m.plan, nest_of(m.plan, m.loops))
            for head, m in zip(heads_of(self.pieces), self.made, strict=True)
        )

    @property
    def stages(self) -> dict[str, str]:
        """The text of every stage; those of a plan have a part for each piece."""
        whole = f"{self.function}\n"
        source = self.function.source
        texts = {"input": whole if source.parts else source.text, "function": whole}
        texts["scop"] = self._each(lambda made: str(made.piece.scop))
        for name in self.made[0].plans if self.made else ():
            texts[name] = self._each(functools.partial(_plan_text, name))
        return texts | {"loops": "".join(self._loops(self.pieces.body, "")), "kernel": self.source.text}

    def _each(self, text: Callable[[MadePiece], str]) -> str:
        heads = heads_of(self.pieces)
        return "".join(f"{heads[number]}\n{text(m)}" for number, m in enumerate(self.made))

    def _loops(self, body: Sequence[Item], indent: str) -> Iterator[str]:
        loops = {id(m.piece): m.loops for m in self.made}
        for item in body:
            if isinstance(item, Piece):
                yield render(loops[id(item)], indent)
            elif isinstance(item, TimeTiles):
                yield f"{indent}for step {item.repeat.index} in {_size(item)}:\n"
                yield from self._loops(item.pieces, indent + "  ")
            elif isinstance(item, Sweeps):
                yield f"{indent}for step {item.repeat.index} in {_size(item)}:\n"
                yield from self._loops(item.repeat.body, indent + "  ")
            else:
                yield f"{indent}for step {item.index}:\n"
                yield from self._loops(item.body, indent + "  ")


def _plan_text(name: str, made: MadePiece) -> str:
    return plan_text(made.plans[name], name)


def heads_of(pieces: Pieces) -> list[str]:
    """The line before what is said of each piece, with the tiles of its block."""
    sizes: dict[int, str] = {}
    for number, block in enumerate(blocks_of(pieces.body)):
        if isinstance(block, TimeTiles | Sweeps):
            for piece in block.pieces if isinstance(block, TimeTiles) else [block.piece]:
                sizes[id(piece)] = f", block {number} in {_size(block)}"
    return [
        f"#### piece {number}" + (f", for each {', '.join(p.steps)}" if p.steps else "") + sizes.get(id(p), "")
        for number, p in enumerate(pieces.pieces)
    ]


def _size(tiles: TimeTiles | Sweeps) -> str:
    if isinstance(tiles, Sweeps):
        return f"sweeps of {tiles.steps} steps x {tiles.rows_of_tile} rows x {tiles.lanes} lanes"
    columns = "" if tiles.columns is None else f" x {tiles.columns.width} columns"
    lanes = "" if tiles.lanes is None else f" x {tiles.lanes.count} lanes"
    follows = " with those before" if tiles.follows else ""
    return f"tiles of {tiles.height} steps x {tiles.width} rows{columns}{lanes}{follows}"


def _shapes(given: str) -> dict[int, Shape]:
    """The tiles that heads of pieces in a text tell, by block.  Raises PlanError for sizes that are no sizes."""
    shapes = {}
    for found in _TILES.finditer(given):
        *digits, follows = found.groups(default="")
        block, *size = (int(n or "0") for n in digits)
        if not all(0 <= n <= _LARGEST for n in size) or not size[0] or not size[1]:
            raise PlanError(f"{found.group().strip()!r} has sizes that no tile has")
        height, width, columns, lanes = size
        shapes[block] = Shape(height, width, columns, lanes, bool(follows))
    return shapes


def _swept_shapes(given: str) -> list[SweepShape]:
    """The sweeps that heads of pieces in a text tell, in order.  Raises PlanError for sizes that are no sizes."""
    shapes = []
    for found in _SWEEPS.finditer(given):
        steps, rows, lanes = map(int, found.groups())
        if not (0 < rows <= _LARGEST and lanes in (2, 4, 8, 16) and steps in (lanes, 2 * lanes)):
            raise PlanError(f"{found.group().strip()!r} has sizes that no sweeps have")
        shapes.append(SweepShape(steps, rows, lanes))
    return shapes


def lower_stepwise(
    function: Function,
    sizes: Sizes,
    options: MappingOptions,
    backend: Backend,
    checked: bool = True,
    given: str | None = None,
    announce: Announce = lambda _: None,
) -> StepwiseCompilation:
    """The kernel of a function with blocks of steps; arguments and errors are those of ``driver.lower``."""
    if not isinstance(backend, PieceBackend):
        message = f"{function.name} runs step by step, and the target {backend.name} makes no kernel of that"
        span = next(s.steps[0].span for s in function.statements if s.steps)
        raise CompileError(Diagnostic(message, function.source, span, "compile it for the target 'cpu'"))
    if sizes.part is not None:
        refuse_steps(function, "no argument of that can be bound", "pass all arguments in every call")
    trace = Trace()
    shapes = None if given is None else _shapes(given)
    sweeps = None if given is None else _swept_shapes(given)
    with bounded(function) as bounds:
        wanted = shapes is not None or options.fusion_strategy != "min"
        machine = backend.machine
        room = _room(machine, options) if wanted and machine is not None else None
        many = _sweep_room(machine, options) if wanted and machine is not None else None
        count = None if given is None else len(_HEAD.findall(given))
        fronts = options.fusion_strategy != "min" if given is None else bool(_WAVES.search(given))
        launched = machine is None
        exact = not options.fast_math
        cutter, pieces, waves = bounds(
            lambda: _cut(function, sizes, room, shapes, count, fronts, launched, exact, many, sweeps)
        )
        trace("scop", pieces)
    texts = None if given is None else _parts(given, len(pieces.pieces))
    made = []
    for number, piece in enumerate(pieces.pieces):
        text = None if texts is None else texts[number]
        try:
            made.append(_lower(piece, options, backend, text, trace, ()))
        except TooComplexError:
            if text is not None or options.fusion_strategy == "min":
                raise
            made.append(_lower(piece, options.unfused(), backend, None, trace, (_UNFUSED,)))
    source = trace(
        "emit", backend.emit_pieces(function, pieces, [(m.plan, m.loops) for m in made], options, checked)
    )  # fmt: skip
    announce(source)
    with bounded(function) as bounds:
        bounds(lambda: prove_folds(pieces))
        bounds(lambda: prove_tiles(cutter, pieces))
        bounds(lambda: prove_sweeps(cutter, pieces))
        bounds(lambda: prove_together(cutter, pieces))
    if texts is None:
        for each in made:
            with bounded(function) as bounds:
                prove_last(each.plan, backend.passes[-1], trace, bounds)
    whole = Scop(pieces.storages, (), pieces.sizes)
    largest = max(made, key=lambda m: len(m.plan.scop.statements), default=None)
    plans = (
        {"scop": Plan(whole, whole, isl.Schedule.from_domain(whole.domain), ())} if largest is None else largest.plans
    )
    loops = Block(()) if largest is None else largest.loops
    return StepwiseCompilation(function, whole, plans, loops, source, trace.seconds, pieces, tuple(made), cutter, waves)


def _cut(
    function: Function,
    sizes: Sizes,
    room: Room | None,
    shapes: Mapping[int, Shape] | None,
    count: int | None,
    wavefronts: bool,
    launched: bool,
    exact: bool,
    many: SweepRoom | None,
    sweeps: Sequence[SweepShape] | None,
) -> tuple[Cutter, Pieces, tuple[Wavefronts, ...]]:
    """The function in pieces, in tiles over time where there is ``room`` for them.

    What is the same along a dimension is computed once, unless steps are launched, as the statements that read it then
    take a launch of their own.  Blocks that are running reductions are reductions first, sums of floats unless they are
    to be ``exact``.  Blocks of single elements run in ``wavefronts``, also short ones where each is ``launched``.
    Those that sweep in place run several steps at a time where there is room for ``many``; a given plan has ``sweeps``.
    Where the text has no tiles, it is tried with tensors between statements; a given plan has ``count`` pieces.
    """
    ranges = infer(function, sizes.values)
    while not launched and (once := computed_once(function, ranges)) is not None:
        try:
            after = infer(once.after, sizes.values)
        except (CompileError, ShapeError):
            break  # an index had its range from the dimension that is gone
        if not runs_as_before(once, after):
            break  # as above, and has a wider one now
        prove_once(once, after)
        function, ranges = once.after, after
    while (running := as_reductions(function, ranges, not exact)) is not None:
        function, ranges = running.after, infer(running.after, sizes.values)
        prove_running(running, ranges)
    together = _swept_blocks(function, ranges, many, sweeps)
    kept = frozenset(together)
    found: list[Wavefronts] = []
    while wavefronts and (waves := in_wavefronts(function, ranges, launched, kept)) is not None:
        try:
            after = infer(waves.after, sizes.values)
        except ShapeError:
            break  # many statements in waves may be too much for isl
        prove_wavefronts(waves, after)
        function, ranges = waves.after, after
        found.append(waves)
    fronts = tuple(found)
    cutter = Cutter(function, sizes, ranges)
    pieces = swept(cutter, folded(cutter.cut()), together)
    if room is None or (not worth_tiles(cutter, pieces, room) if shapes is None else not shapes):
        return cutter, pieces, fronts
    tiled = time_tiled(cutter, pieces, room, shapes)
    if _tiles_in(tiled) and count in (None, len(tiled.pieces)):
        return cutter, run_together(cutter, tiled, room, shapes), fronts
    if together:
        return cutter, tiled, fronts
    other = with_tensors_between(function)
    own = Cutter(other, sizes, infer(other, sizes.values), kept=True)
    apart = time_tiled(own, folded(own.cut()), room, shapes)
    if _tiles_in(apart) and count in (None, len(apart.pieces)):
        return own, run_together(own, apart, room, shapes), fronts
    return cutter, tiled, fronts


def _swept_blocks(
    function: Function, ranges: Ranges, room: SweepRoom | None, given: Sequence[SweepShape] | None
) -> dict[int, tuple[Swept, SweepShape]]:  # fmt: skip
    """The blocks that run several sweeps at a time, by the number of their statement: those of a given plan if any."""
    if room is None or (given is not None and not given):
        return {}
    found = [(each, shape_of(each, function, room)) for each in sweeps_of(function, ranges, room.slack)]
    if given is not None:
        if len(found) != len(given):
            found = [(each, shape) for each, shape in found if shape is not None]
        if len(found) != len(given):
            raise PlanError(f"the program has {len(found)} blocks of sweeps, but the text has {len(given)}")
        found = [(each, shape) for (each, _), shape in zip(found, given, strict=True)]
    return {each.number: (each, shape) for each, shape in found if shape is not None}


def _tiles_in(pieces: Pieces) -> bool:
    return any(isinstance(item, TimeTiles) for item in blocks_of(pieces.body))


def _room(machine: Machine, options: MappingOptions) -> Room:
    """Half of the second cache for a tile; a block that the second caches hold is not tiled."""
    threads = machine.threads if options.parallel else 1
    lines = machine.nearest_cache // 2 // LINE_BYTES
    columns = TIME_TILING.columns_in_line, TIME_TILING.columns_of_rows
    return Room(
        machine.middle_cache // 2, threads * machine.middle_cache, lines, threads, columns,
        TIME_TILING.rows_at_once, machine.vector_bytes,
        machine.nearest_cache // 2, TIME_TILING.rows_in_lanes, THREADS.parallel_instances,
        (TIME_TILING.rows_for_a_move, TIME_TILING.far_rows_for_a_move), TIME_TILING.vectors_of_rows,
        int(TIME_TILING.strip_of_columns * machine.nearest_cache),
    )  # fmt: skip


def _sweep_room(machine: Machine, options: MappingOptions) -> SweepRoom:
    """What sweeps in place may use."""
    threads = machine.threads if options.parallel else 1
    fitted = TIME_TILING
    return SweepRoom(
        machine.vector_bytes, fitted.vectors_of_sweeps, threads, THREADS.parallel_instances, fitted.tiles_of_sweeps,
        fitted.rows_of_sweeps, fitted.columns_of_slack, fitted.narrowest_sweep,
    )  # fmt: skip


_UNFUSED = "isl gave up on this piece with fusion, so there is none"


def _lower(
    piece: Piece, options: MappingOptions, backend: PieceBackend, given: str | None, trace: Trace,
    notes: tuple[str, ...],
) -> MadePiece:  # fmt: skip
    own = Trace()
    if piece.scop.around is not None and piece.scop.around.tiled:
        options = replace(options, parallel=False, tile_sizes=None, threads=None)
    with bounded(piece.function) as bounds:
        if given is not None:
            plan = complete(given, piece.scop, options, backend.passes, own, bounds)
        else:
            first = own("schedule", replace(bounds(lambda: schedule(piece.scop)), notes=notes))
            plan = run_passes(first, options, backend.passes, own, bounds)
        loops = own("loops", bounds(lambda: generate_loops(plan)))
    trace.add(own)
    return MadePiece(piece, own.plans, loops)


def _parts(given: str, count: int) -> list[str]:
    """The plans of all pieces in one text.  Raises PlanError."""
    parts = _HEAD.split(given)[1:]
    if len(parts) != count:
        raise PlanError(f"the program has {count} pieces, but the text has plans for {len(parts)}")
    return parts
