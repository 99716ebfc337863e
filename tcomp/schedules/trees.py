"""The text of the plan that a schedule is."""

from __future__ import annotations

import json
from collections.abc import Iterable

import islpy as isl

from tcomp.loops.unrolling import UNROLLED
from tcomp.mapping.plan.operations import recognise_contraction
from tcomp.mapping.plan.tree import Band, Mark, Sequence, Subtree, plant
from tcomp.mapping.text.writer import tree_text
from tcomp.model.scop import ScopStatement
from tcomp.model.terms.unions import union_map, union_set
from tcomp.schedules.errors import ScheduleError
from tcomp.schedules.expressions import Expression, Name, names_in
from tcomp.schedules.placing import Placed, Placing, in_step, values_of
from tcomp.schedules.stages import COPIES, VECTORS, Stage, loop_map
from tcomp.schedules.state import State

STAGE = "nest"
"""The pass behind which the plans of schedules stand: those that follow find buffers and copies."""

MOST_WAYS = 4
"""So many loops over what a stage computes inside a loop of another are better than one that looks for it."""


def plan_of(state: State, note: str) -> str:
    """The text of the plan.  Raises ScheduleError."""
    return _Planting(state).text(note)


class _Planting:
    def __init__(self, state: State) -> None:
        self.state = state
        self.placing = Placing(state)
        self.operations: list[tuple[str, str, str]] = []
        self.places = 0
        self.copies = 0

    def text(self, note: str) -> str:
        roots = [s for s in self.state.stages if s.place is None]
        nests = [(self._instances(self._below(root)), self._nest(number, root)) for number, root in enumerate(roots)]
        tree = plant(
            union_set([d for stage in self.state.stages for d in self._domains(stage)]), Sequence(tuple(nests))
        )
        lines = [f"stage = {json.dumps(STAGE)}", f"notes = [{json.dumps(note, ensure_ascii=False)}]"]
        lines += ["tree = '''", tree_text(tree).rstrip("\n"), "'''"]
        for name in self.state.inlined:
            lines += ["", "[[inlined]]", f"statement = {json.dumps(name)}"]
        for stage in self.state.stages:
            lines += ["", "[[cluster]]", f"statements = {{ {', '.join(self._coordinates(stage))} }}"]
        for root in roots:
            numbers = [self.state.position(s.name) for s in self._below(root)]
            band, most = self.placing.bands[root.name], max(1, len(root.coordinates))
            members = [min(d, most - 1) for d in range(band)]
            lines += ["", "[[group]]", f"clusters = {numbers}", f"members = {members}", f"sizes = {[1] * band}"]
        for mark, kind, statement in self.operations:
            lines += ["", "[[operation]]", f'mark = "{mark}"', f'kind = "{kind}"', f'statement = "{statement}"']
        return "\n".join(lines) + "\n"

    def _coordinates(self, stage: Stage) -> Iterable[str]:
        rank = self.placing.placed[stage.name].rank
        for name in stage.statements:
            indices = self.state.scop.by_name[name].indices
            positions = [rank + indices.index(c) for c in stage.coordinates]
            yield f"{name} = {positions}"

    def _below(self, stage: Stage) -> list[Stage]:
        """The stages inside one, and itself, in order of the program."""
        inner = [s for direct in self.state.inside(stage.name) for s in self._below(direct)]
        return sorted([*inner, stage], key=lambda s: self.state.position(s.name))

    def _domains(self, stage: Stage) -> list[isl.Set]:
        return list(self.placing.placed[stage.name].domains.values())

    def _instances(self, stages: Iterable[Stage]) -> isl.UnionSet:
        return union_set([d for stage in stages for d in self._domains(stage)])

    def _nest(self, number: int, root: Stage) -> Subtree:
        band = self.placing.bands[root.name]
        if band > root.shared:
            raise ScheduleError(
                f"something would be computed again in each iteration of {root.loops[band - 1].name} of {root.name}, "
                f"over which it is reduced: its start and its end have no such loop"
            )
        for inner in self.state.inside(root.name):
            assert inner.place is not None
            if root.depth(inner.place.loop) < band:
                raise ScheduleError(
                    f"{inner.name} is computed in {inner.place.loop} of {root.name}, but {root.loops[band - 1].name} "
                    f"inside it runs in parallel or computes something again: nothing stands between such loops"
                )
        inside = Mark(f"group{number}", self._from(root, band, list(root.statements)))
        if not band:
            return inside
        return Mark(f"parallel{number}", Band(self._rows(root, 0, band, list(root.statements)), band, inside))

    def _place(self, child: Subtree) -> Subtree:
        self.places += 1
        return Mark(f"place{self.places - 1}", child)

    def _from(self, stage: Stage, level: int, own: list[str]) -> Subtree:
        """What is inside the first ``level`` loops of a stage, of its statements ``own``."""
        inner = [s for s in self.state.inside(stage.name) if s.place and stage.depth(s.place.loop) == level]
        if not inner:
            return self._rest(stage, level, own)
        inner.sort(key=lambda s: self.state.position(s.name))
        parts = [part for s in inner for part in self._computed(s)]
        domain = self._here(stage, level + 1, own)
        return self._place(Sequence((*parts, (domain, self._rest(stage, level, own)))))

    def _computed(self, stage: Stage) -> list[tuple[isl.UnionSet, Subtree]]:
        """What a stage computes inside a loop of another, in turn.

        What comes first there, such as the first rows of a window, may be more than what comes later: it has loops of
        its own, so that the others need not look for it.
        """
        below = self._below(stage)
        apart = [self._instances(below)]
        if below == [stage] and len(stage.statements) == 1 and not in_step(self.state, stage):
            apart = [isl.UnionSet.from_set(s) for s in _disjoint(self.placing.placed[stage.name])]
        return [(s, self._from(stage, in_step(self.state, stage), [*stage.statements])) for s in apart]

    def _here(self, stage: Stage, level: int, own: list[str]) -> isl.UnionSet:
        """The instances of some statements of a stage, and of stages inside at least so many of its loops."""
        placed = self.placing.placed[stage.name]
        sets = [placed.domains[s] for s in own]
        sets += [d for s in self._deeper(stage, level) for b in self._below(s) for d in self._domains(b)]
        return union_set(sets)

    def _deeper(self, stage: Stage, level: int) -> list[Stage]:
        return [s for s in self.state.inside(stage.name) if s.place and stage.depth(s.place.loop) >= level]

    def _rest(self, stage: Stage, level: int, own: list[str]) -> Subtree:
        """The loops from ``level`` on, behind what else is computed at this place."""
        splits = level == stage.shared and len(own) > 1
        if splits:
            return self._stages(stage, level, own)
        if level == len(stage.loops):
            return None
        stops = [stage.depth(s.place.loop) for s in self.state.inside(stage.name) if s.place]
        stops += [stage.shared] if len(own) > 1 else []
        stops += [stage.depth(loop) for _, loop in stage.copied]
        unrolled = [depth for depth, loop in enumerate(stage.loops) if loop.how == COPIES]
        stops += [stop for depth in unrolled for stop in (depth, depth + 1)]
        end = min([stop for stop in stops if stop > level], default=len(stage.loops))
        inside = self._from(stage, end, own)
        if any(stage.depth(loop) == end for _, loop in stage.copied):
            inside = Mark(f"panel{self.state.position(stage.name)}", inside)
        loops = Band(self._rows(stage, level, end, own), 0, inside)
        if level not in unrolled:
            return loops
        self.copies += 1
        return Mark(f"{UNROLLED}{self.copies - 1}", loops)

    def _stages(self, stage: Stage, level: int, own: list[str]) -> Subtree:
        """The start, the updates and the end of a reduction, one after another."""
        parts: list[tuple[isl.UnionSet, Subtree]] = []
        for name in own:
            s = self.state.scop.by_name[name]
            if s.kind == "update":
                child = self._marked(stage, level, s, self._rest(stage, level, [name]))
                parts.append((self._here(stage, level + 1, [name]), child))
            else:
                parts.append((union_set([self.placing.placed[stage.name].domains[name]]), self._tail(stage, level, s)))
        return self._place(Sequence(tuple(parts)))

    def _marked(self, stage: Stage, level: int, update: ScopStatement, child: Subtree) -> Subtree:
        """The updates as one operation of the backend, where that is asked for."""
        number, inner = self.state.position(stage.name), stage.loops[level:]
        copied = next((loop.name for loop in inner if loop.how == COPIES), None)
        lanes = bool(inner) and inner[-1].how == VECTORS and not names_in(inner[-1].value) <= {*stage.coordinates}
        if copied is not None and (stage.tensorized or lanes):
            raise ScheduleError(f"{copied} of {stage.name} is inside an operation, which is unrolled as it needs")
        if stage.tensorized:
            if recognise_contraction(update) is None or self._deeper(stage, level + 1):
                raise ScheduleError(
                    f"{stage.name} is no sum of products alone in its loops, so it cannot be tensorized"
                )
            self.operations.append((f"contract{number}", "contract", update.name))
            return Mark(f"contract{number}", child)
        if lanes:
            if any(not names_in(loop.value) <= {*stage.reduced} for loop in inner) or self._deeper(stage, level + 1):
                raise ScheduleError(
                    f"{inner[-1].name} of {stage.name} runs in vectors where all loops over what is reduced are inside "
                    f"the others, and nothing else is: reorder them"
                )
            if update.scatters or not update.plain:
                raise ScheduleError(
                    f"{inner[-1].name} of {stage.name} goes from element to element as data or subscripts say, so its "
                    f"sums have no lanes"
                )
            self.operations.append((f"reduce{number}", "reduce", update.name))
            return Mark(f"reduce{number}", child)
        return child

    def _tail(self, stage: Stage, level: int, statement: ScopStatement) -> Subtree:
        """The loops over elements that are left for the start or the end of a reduction."""
        indices = {*statement.indices}
        around = [loop.value for loop in stage.loops[:level]]
        tail: list[Expression] = [v for v in values_of(stage)[level:] if names_in(v) <= indices]
        if not loop_map(statement, [*around, *tail], statement.domain, 0).is_injective():
            tail += [Name(i) for i in statement.indices]
        if not tail:
            return None
        placed = self.placing.placed[stage.name]
        rows = loop_map(statement, tail, placed.domains[statement.name], placed.rank)
        return Band(union_map([rows]), 0, None)

    def _rows(self, stage: Stage, low: int, high: int, own: list[str]) -> isl.UnionMap:
        """A partial schedule: the loops of a stage from ``low`` to ``high``, for all that runs in them."""
        placed = self.placing.placed[stage.name]
        values = values_of(stage)[low:high]
        maps = [loop_map(self.state.scop.by_name[s], values, placed.domains[s], placed.rank) for s in own]
        base = placed.depth - in_step(self.state, stage)
        for inner in self._deeper(stage, high):
            for below in self._below(inner):
                maps += [_part(m, base + low, base + high) for m in self._arounds(self.placing.placed[below.name])]
        return union_map(maps)

    @staticmethod
    def _arounds(placed: Placed) -> list[isl.Map]:
        return list(placed.around.values())


def _disjoint(placed: Placed) -> list[isl.Set]:
    """The instances of a stage's one statement, by how the iterations in which they run follow from them."""
    ((name, around),) = placed.around.items()
    left, found = placed.domains[name], []
    for way in around.coalesce().get_basic_maps():
        own = left.intersect(isl.Map.from_basic_map(way).domain())
        left = left.subtract(own)
        found += [] if own.is_empty() else [own]
    return found if left.is_empty() and len(found) <= MOST_WAYS else [placed.domains[name]]


def _part(around: isl.Map, low: int, high: int) -> isl.Map:
    rank = around.dim(isl.dim_type.out)
    return around.project_out(isl.dim_type.out, high, rank - high).project_out(isl.dim_type.out, 0, low)
