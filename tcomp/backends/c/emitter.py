"""Spelling the loops of a plan as C: what each node becomes, and which rows and contractions take several of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace

from tcomp.backends.arena import lay_out
from tcomp.backends.c.contractions.aheadpanels import Boxes, ahead_panels
from tcomp.backends.c.contractions.groupedpanels import panel_of
from tcomp.backends.c.contractions.keptpanels import kept_boxes, kept_panels, nested, panel_by_panel
from tcomp.backends.c.contractions.matrixtiles import declared_shape
from tcomp.backends.c.contractions.operations import Operations
from tcomp.backends.c.contractions.panels import Panel
from tcomp.backends.c.contractions.resultlines import lines_behind
from tcomp.backends.c.frame import KernelFrame
from tcomp.backends.c.loops.blockscans import running_value
from tcomp.backends.c.loops.instances import executed
from tcomp.backends.c.loops.joined import joined
from tcomp.backends.c.loops.scans import RunningValue, Scan, scan_below
from tcomp.backends.c.loops.windows import slides
from tcomp.backends.c.memory import TileMemory
from tcomp.backends.c.parallel import runs_parallel, shared_out, streams, tile_loops
from tcomp.backends.c.pieces import PieceText
from tcomp.backends.c.rows.loops import RowLoops
from tcomp.backends.c.rows.shared import shared_rows
from tcomp.backends.c.rows.streaming import FENCE
from tcomp.backends.c.rowwork import row_work
from tcomp.backends.source import Source
from tcomp.backends.spelling import Gather, Needs, Speller, loop_text
from tcomp.errors import PlanError
from tcomp.grammar.ranges.affine import step_parameter
from tcomp.grammar.tree.function import Function, Read
from tcomp.loops.codegen import affine_expressions
from tcomp.loops.ir import (
    Block,
    Execute,
    For,
    If,
    Let,
    LoopExpr,
    LoopNode,
    Scope,
    Variable,
    depth,
    walk,
)
from tcomp.loops.narrowing import Narrowed, end_of, narrowed_bounds
from tcomp.loops.unrolling import UNROLLED, unrolled
from tcomp.mapping.machines.cpu import Machine
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.plan.values import Buffer
from tcomp.mapping.tiles.footprint import volume
from tcomp.model.scop import ScopStatement


class Emitter:
    """Spells the loops of one plan, for so many ``threads`` of a machine."""

    def __init__(
        self, function: Function, narrowed: Narrowed, options: MappingOptions, threads: int, checked: bool,
        machine: Machine,
    ) -> None:  # fmt: skip
        self.function = function
        self.machine = machine
        self.narrowed = narrowed
        self.plan = plan = narrowed.plan
        self.scop = plan.scop
        self.checked = checked
        self.needs = Needs()
        self.threads = threads
        ahead = ahead_panels(plan)
        self.frame = KernelFrame(function, plan, lay_out(plan), machine, threads, options.fast_math, ahead)
        self.memory = TileMemory(self.frame)
        self.panels: dict[str, dict[Read, Panel]] = {}
        grouped: dict[str, dict[Read, Panel]] = {}
        for c in plan.copies:
            (self.panels if c.groups is None else grouped).setdefault(c.statement, {}).update(
                dict.fromkeys(c.reads, Panel(c, self.scop.storages[c.storage]))
            )
        self.corners: dict[str, tuple[LoopExpr, ...]] = {}
        self.by_mark: dict[str, list[Buffer]] = {}
        for buffer in plan.buffers.values():
            self.by_mark.setdefault(buffer.mark, []).append(buffer)
        self.lines: list[str] = []
        self.scans: dict[str, RunningValue] = {}
        self.boxes = Boxes(ahead, self.panels, machine)
        facts = (plan, machine, self._speller, self._captured, grouped, self.corners)
        self.operations = Operations(*facts, self.boxes.coming, self.boxes.loops)
        self.rows = RowLoops(plan, machine, self._speller, self._plain, self._captured)
        self.uses_threads = False
        self.begun: set[str] = set()

    def emit(self) -> Source:
        """The kernel of a whole program."""
        loops = self.narrowed.loops
        self._node(loops, 1)
        return self.frame.source(self.lines, self.needs, self.memory.bytes, self._asks(), depth(loops))

    def piece(self) -> PieceText:
        """The loops as a piece of a program."""
        self._node(self.narrowed.loops, 1)
        declared = [f"  {line}" for line in self.frame.global_declarations()]
        return PieceText([*declared, *self.lines], self.memory.bytes, self._asks())

    def _asks(self) -> bool:
        """Whether what was spelled asks for threads, or for which of them it is."""
        return self.uses_threads or self.memory.asks

    def _put(self, depth: int, text: str) -> None:
        self.lines.append("  " * depth + text)

    def _node(self, node: LoopNode, depth: int) -> None:
        match node:
            case Block():
                self._block(node.children, depth)
            case For() if self._begins(node):
                self._put(depth, "{")
                self._ends(node, depth + 1)
                self._for(node, depth + 1)
                self._put(depth, "}")
            case For():
                self._for(node, depth)
            case Let():
                self._put(depth, "{")
                self._put(depth + 1, f"const long {node.iterator} = {loop_text(node.value)};")
                self._node(node.body, depth + 1)
                self._put(depth, "}")
            case If():
                self._put(depth, f"if ({loop_text(node.condition)}) {{")
                self._node(node.then, depth + 1)
                if node.otherwise is not None:
                    self._put(depth, "} else {")
                    self._node(node.otherwise, depth + 1)
                self._put(depth, "}")
            case Scope():
                self._scope(node, depth)
            case Execute():
                self._execute(node, depth)

    def _for(self, node: For, depth: int) -> None:
        """A loop, whose bounds have been computed where they are names."""
        if slides(node, self.plan) or self._is_scanned(node):
            self._loop(node, depth, self._node)
            return
        scan = scan_below(node, self.plan)
        if scan is not None and scan.mark not in self.scans:
            self._scan(scan, node, depth)
            return
        lines = self.rows.register_tile(node) or self._shared_rows(node)
        if lines is None:
            node = joined(node, self.plan, self.rows.side_by_side)
            lines = self.rows.lines(node)
        if lines is None:
            self._loop(node, depth, self._node)
        for line in lines or ():
            self._put(depth, line)

    def _shared_rows(self, node: For) -> list[str] | None:
        """Several rows at a time, in tiles over time: elsewhere rows wait for memory, which they share as it is."""
        around = self.scop.around
        found = None
        if around is not None and around.tiled:
            found = shared_rows(node, self.plan, self.machine, self._speller)
        return None if found is None else found[0].lines(found[1], self._plain)

    def _is_scanned(self, node: LoopNode) -> bool:
        """Whether a loop goes over the elements of a row that a scan around it sums up."""
        return any(running.scan.row is node for running in self.scans.values())

    def _begins(self, loop: For) -> bool:
        """Whether the bounds of a loop are the ends of a range that data give, which were not yet computed."""
        return isinstance(loop.lower, Variable) and loop.lower.name in self.narrowed.ranges.keys() - self.begun

    def _ends(self, loop: For, depth: int) -> None:
        """Compute the bounds of a loop that data give, and check them."""
        assert isinstance(loop.lower, Variable)
        first, way = loop.lower.name, self.narrowed.ranges[loop.lower.name]
        self.begun.add(first)
        statement = self.scop.by_name[way.call.statement]
        indices = {n: loop_text(a) for n, a in zip(statement.indices, way.call.arguments, strict=True)}
        lower, upper, order = self._speller(statement.name, indices).range_ends(way.within)
        names = f"{first}_data", f"{end_of(first)}_data"
        self._put(depth, f"const long {names[0]} = {lower}, {names[1]} = {upper};")
        if order:
            self._put(depth, f"{order};")
        bounds = map(loop_text, narrowed_bounds(way, *names))
        for name, text in zip((first, end_of(first)), bounds, strict=True):
            self._put(depth, f"const long {name} = {text};")

    def _block(self, children: tuple[LoopNode, ...], depth: int) -> None:
        """Nodes in order; a contraction takes with it what starts and finishes its accumulators, where it can."""
        position = 0
        while position < len(children):
            position += self._fused(children[position:], depth)

    def _fused(self, nodes: tuple[LoopNode, ...], depth: int) -> int:
        """Spell the first of some nodes, or the first few as one contraction; how many they are."""
        for number, node in enumerate(nodes[:2]):
            operation = self.plan.operations.get(node.name) if isinstance(node, Scope) else None
            if operation is not None and operation.kind == "contract":
                assert isinstance(node, Scope)
                statement = self.scop.by_name[operation.statement]
                for length in (number + 2, number + 1):
                    around = (*nodes[:number], None)[0], (*nodes[number + 1 : length], None)[0]
                    if length <= len(nodes) and self._contract(node, statement, depth, *around, nodes[length:]):
                        return length
            if isinstance(node, For) and (length := self._accumulated(nodes, number, depth)):
                return length
        self._node(nodes[0], depth)
        return 1

    def _accumulated(self, nodes: tuple[LoopNode, ...], number: int, depth: int) -> int:
        """Spell a register tile of an update with what sets its elements before, or copies them; how many nodes."""
        update, start = nodes[number], nodes[0] if number else None
        assert isinstance(update, For)
        if any(slides(node, self.plan) or self._is_scanned(node) for node in nodes[: number + 2]):
            return 0
        if self._begins(update):
            return self._accumulated_in_range(nodes, number, depth)
        for after in (*nodes[number + 1 : number + 2], None):
            if start is not None or after is not None:
                lines = self.rows.register_tile(update, start, after)
                for line in lines or ():
                    self._put(depth, line)
                if lines is not None:
                    return number + (1 if after is None else 2)
        return 0

    def _accumulated_in_range(self, nodes: tuple[LoopNode, ...], number: int, depth: int) -> int:
        """The same with an update whose outermost loop runs over a range that data give."""
        update, before = nodes[number], self.lines
        assert isinstance(update, For)
        begun, checks = set(self.begun), len(self.needs.checks)
        self.lines = []
        self._ends(update, depth + 1)
        length = self._accumulated(nodes, number, depth + 1)
        lines, self.lines = self.lines, before
        if not length:
            self.begun = begun
            del self.needs.checks[checks:]
            return 0
        self._put(depth, "{")
        self.lines += lines
        self._put(depth, "}")
        return length

    def _scope(self, node: Scope, depth: int) -> None:
        if node.name.startswith("parallel"):
            self._parallel(node, depth)
            return
        if node.name.startswith(UNROLLED):
            if any(isinstance(n, For) and self._begins(n) for n in walk(node.body)):
                raise PlanError(f"the loop below {node.name} has a range inside that data give, so it is not unrolled")
            node = replace(node, body=unrolled(node.body, node.name))
        operation = self.plan.operations.get(node.name)
        if node.name in self.scans and node.body is self.scans[node.name].scan.steps:
            for line in self.scans[node.name].steps():
                self._put(depth, line)
            return
        if node.name in self.rows.reduced_by:
            for line in self.rows.reduced_by[node.name]:
                self._put(depth, line)
            return
        if operation is not None and operation.kind in ("reduce", "scan"):
            self._reduce(node.body, depth)
            return
        if operation is not None and self._contract(node, self.scop.by_name[operation.statement], depth):
            return
        buffers = self.by_mark.get(node.name, [])
        panels = [panel_of(c, self.scop.storages[c.storage]) for c in self.plan.copies if c.mark == node.name]
        if not buffers and not panels:
            self._node(node.body, depth)
            return
        self._put(depth, f"{{ /* {node.name} */")
        for line in (line for buffer in buffers for line in self.memory.declared(buffer, node.around)):
            self._put(depth + 1, line)
        for panel in panels:
            self.corners[panel.name] = affine_expressions(panel.copy.lower, node.around)
            self.boxes.enter(panel, self.corners[panel.name])
            corner = [loop_text(e) for e in self.corners[panel.name]]
            for line in self.memory.panel(panel, corner):
                self._put(depth + 1, line)
        self._node(node.body, depth + 1)
        self._put(depth, "}")

    def _parallel(self, node: Scope, depth: int) -> None:
        instances = sum(volume(self.scop.by_name[n.statement].lengths) for n in walk(node) if isinstance(n, Execute))
        loops, tile = tile_loops(node.body, self.threads)
        kept = kept_panels(self.plan, loops, tile)
        own = self.memory.keep(kept, kept_boxes(self.plan, self.machine, loops, tile))
        loops = panel_by_panel(self.plan, self.machine, loops, kept)
        if runs_parallel(loops, instances, self.threads):
            self.uses_threads = True
            largest = self._largest()
            work = None if largest or kept else row_work(loops, tile, self.narrowed, self._unchecked)
            with self.boxes.inside(*loops):
                tiles = self._captured(tile)
            own += declared_shape(tiles)
            lines = shared_out(loops, tiles, own, instances, self.threads, largest, work)
        else:
            tiles = self._captured(nested(loops, tile))
            own += declared_shape(tiles)
            lines = [*own, *tiles]
            if streams(lines):
                lines.append(FENCE)
            if own:
                lines = ["{", *("  " + line for line in lines), "}"]
        for line in lines:
            self._put(depth, line)

    def _largest(self) -> dict[str, int]:
        """The largest values of sizes that calls say."""
        around = self.scop.around
        open_sizes = around.steps if around is not None and around.open else ()
        return {step_parameter(name): self.scop.sizes[name] for name in open_sizes}

    def _scan(self, scan: Scan, loop: For, depth: int) -> None:
        """A loop over elements that hand on what they have reduced."""
        speller = functools.partial(self._speller, scan.call.statement)
        self.scans[scan.mark] = running = running_value(scan, loop, self.plan, speller, self.machine.vector_bytes)
        body = ["  " + line for line in self._captured(loop.body)]
        for line in ("{", *("  " + line for line in running.around(loop, body)), "}"):
            self._put(depth, line)
        del self.scans[scan.mark]

    def _loop(self, node: For, depth: int, body: Callable[[LoopNode, int], None]) -> None:
        name, lower, upper = node.iterator, loop_text(node.lower), loop_text(node.upper)
        increment = f"{name}++" if node.step == 1 else f"{name} += {node.step}"
        self._put(depth, f"for (long {name} = {lower}; {name} < {upper}; {increment}) {{")
        with self.boxes.inside(node):
            body(node.body, depth + 1)
        self._put(depth, "}")

    def _reduce(self, node: LoopNode, depth: int) -> None:
        """The loops of a ``reduce`` operation: the innermost one runs in vector lanes if its reads may."""
        if isinstance(node, For) and self._begins(node):
            self._put(depth, "{")
            self._ends(node, depth + 1)
            self._reduce(node, depth + 1)
            self._put(depth, "}")
            return
        match joined(node, self.plan, self.rows.side_by_side) if isinstance(node, For) else node:
            case For(body=Execute() as call) as loop:
                for line in self.rows.reduced(loop, call):
                    self._put(depth, line)
            case For() as loop:
                self._loop(loop, depth, self._reduce)
            case _:
                self._node(node, depth)

    def _contract(
        self,
        operation: Scope,
        statement: ScopStatement,
        depth: int,
        start: LoopNode | None = None,
        after: LoopNode | None = None,
        behind: tuple[LoopNode, ...] = (),
    ) -> bool:
        """Spell the register tile of a ``contract`` operation in vectors; False if it has to be plain loops."""
        lines = self.operations.contracted(operation, statement, start, after)
        if lines is None:
            return False
        self._put(depth, "{")
        for line in (*lines_behind(behind, self.plan, self.machine, self._unchecked), *lines):
            self._put(depth + 1, line)
        self._put(depth, "}")
        return True

    def _plain(self, loop: For) -> list[str]:
        """The lines of a loop as it stands, instead of putting them."""
        before, self.lines = self.lines, []
        self._loop(loop, 0, self._node)
        lines, self.lines = self.lines, before
        return lines

    def _captured(self, node: LoopNode) -> list[str]:
        """The lines of a node, instead of putting them."""
        before, self.lines = self.lines, []
        self._node(node, 0)
        lines, self.lines = self.lines, before
        return lines

    def _speller(
        self, statement: str, indices: Mapping[str, str], known: Mapping[Gather, str] | None = None
    ) -> Speller:
        known = self.rows.known if known is None else known
        source, panels, held = self.function.source, self.panels.get(statement, {}), self.rows.held.get(statement, {})
        facts = (self.scop, self.plan.buffers, indices, self.needs, self.checked, source)
        reported = self.scop.by_name[statement].reported
        return Speller(*facts, known=known, panels=panels, held=held, reported=reported)

    def _unchecked(self, statement: str, indices: Mapping[str, str]) -> Speller:
        return replace(self._speller(statement, indices), checked=False)

    def _execute(self, node: Execute, depth: int) -> None:
        self._put(depth, executed(node, self.scop, self._speller))
