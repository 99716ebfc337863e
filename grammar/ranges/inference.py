"""Range inference over a whole program, statement by statement and never backwards.

Rules, on top of the solver's (``intervals.py``):

- The bounds of a tensor that the program writes are the hull of the writes so far; later reads are confined to it.
- An unannotated dimension that every statement writes with a plain index of its own starts at that index's lower bound
  (storage is rebased); any other left-hand subscript makes the dimension start at 0, or below if it writes there.
- An annotated output has the annotated extents.  It starts at 0 where everything written lies inside them, else at the
  lower bound written, and then the extents must be equal.
- An output whose previous content is read (``needs_content``) and that is annotated holds all its elements from the
  start.
- A reduction index may have an empty range, and so may any index that has a range in a block of steps; others may have
  extent 0, but not less.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from tcomp.errors import Diagnostic
from tcomp.grammar.ranges.accesses import Access, accesses
from tcomp.grammar.ranges.affine import extremes, form_to_pw_aff
from tcomp.grammar.ranges.domains import Box, statement_domain
from tcomp.grammar.ranges.intervals import NOWHERE, Bounds, Solution, dependence_order, solve
from tcomp.grammar.ranges.rebasing import rebased_dimensions
from tcomp.grammar.ranges.sizes import LARGEST
from tcomp.grammar.ranges.steps import steps_of
from tcomp.grammar.ranges.wording import mentioned_sizes, quoted_reads
from tcomp.grammar.tree.forms import Form, Interval, interval, is_exact, to_form, variables
from tcomp.grammar.tree.function import Expr, Function, Index, Passed, Statement, Tensor, is_indirect, walk


@dataclass(frozen=True, slots=True)
class Solved:
    """A statement's index intervals, those of its ranges that mention other indices, and its reads."""

    hull: dict[str, Interval]
    dependent: dict[str, Bounds]
    reads: tuple[Access, ...]


class Inference:
    """One forward pass over the statements; ``unsolved`` is a subset of ``problems``, ``warnings`` are none."""

    def __init__(self, function: Function, sizes: dict[str, int], declared: Mapping[str, tuple[int, ...]]) -> None:
        self.function = function
        self.sizes = sizes
        self.declared = declared
        self.problems: list[Diagnostic] = []
        self.unsolved: list[Diagnostic] = []
        self.warnings: list[Diagnostic] = []
        self.proposed: set[str] = set()
        self.solved: list[Solved | None] = []
        self.known: dict[str, list[Interval]] = {}
        self.stored: dict[str, list[Interval]] = {}
        self.rebased: dict[str, list[bool]] = {}
        self.steps: dict[int, Interval | None] = {}
        self.told: set[tuple[int, str]] = set()
        self.broken: set[str] = set()
        for tensor in function.tensors.values():
            if tensor.role == "input" or self._is_given(tensor.name):
                self.known[tensor.name] = [(0, extent - 1) for extent in declared[tensor.name]]

    def _is_given(self, name: str) -> bool:
        """Whether the caller passes an output whose extents are declared: all its elements exist from the start."""
        return name in self.function.needs_content and name in self.declared

    def run(self) -> None:
        """Solve every statement; what depends on an unsolved one is left out."""
        passed = deque(self.function.passed)
        for number, statement in enumerate(self.function.statements):
            while passed and passed[0].position <= number:
                self._confirm(passed.popleft())
            solved = self._solve(statement)
            self.solved.append(solved)
            if solved is None:
                self.broken.add(statement.target)

    def _confirm(self, passed: Passed) -> None:
        """Report a tensor that does not have the extents that a call takes it to have."""
        known = self.known.get(passed.tensor)
        origin, extent = ([to_form(expr, self.sizes) for expr in exprs] for exprs in (passed.origin, passed.extents))
        wanted = [(o.constant, o.constant + e.constant - 1) for o, e in zip(origin, extent, strict=True) if o and e]
        if known is None or known == wanted:
            return
        have, taken = (" x ".join(f"{low}:{high + 1}" for low, high in box) for box in (known, wanted))
        message = f"the call takes {passed.tensor} to be written at {taken}, but for these sizes it is at {have}"
        self.problems.append(Diagnostic(message, self.function.source, passed.span))

    def _solve(self, statement: Statement) -> Solved | None:
        reads = accesses(statement, self.sizes)
        if any(access.read.tensor in self.broken for access in reads):
            return None
        ranges = self._ranges(statement)
        if ranges is None or not self._add_open_steps(statement, ranges):
            return None
        constraints = tuple(self._constraints(statement, reads))
        solution = solve(statement.indices, ranges, constraints)
        if solution.unsolved:
            mentioned = {name for form, _ in constraints for name in variables(form)}
            self._report_unsolved(statement, solution, mentioned, reads)
            return None
        hull = self._checked_hull(statement, solution, ranges, reads)
        solved = Solved(hull, {name: b for name, b in ranges.items() if b.variables()}, reads)
        return solved if self._write(statement, solved) else None

    def _ranges(self, statement: Statement) -> dict[str, Bounds] | None:
        """The ``where`` ranges by index, the last one of an index counting; None after a problem."""
        ranges: dict[str, Bounds] = {}
        for given in statement.ranges:
            if given.index not in statement.indices:
                continue
            low, high = to_form(given.lower, self.sizes), to_form(given.upper, self.sizes)
            if low is None or high is None:
                message = f"the range of {given.index} must be affine in sizes and indices"
                self._unsolvable(Diagnostic(message, self.function.source, given.span))
                return None
            ranges[given.index] = Bounds(low, high.plus(-1))
        if dependence_order({name: bounds.variables() for name, bounds in ranges.items()}) is None:
            names = ", ".join(name for name, bounds in ranges.items() if bounds.variables() & ranges.keys())
            message = f"the ranges of {names} depend on each other"
            self._unsolvable(Diagnostic(message, self.function.source, statement.ranges[0].span))
            return None
        return ranges

    def _add_open_steps(self, statement: Statement, ranges: dict[str, Bounds]) -> bool:
        """Add the ranges of steps without bounds; False where one cannot be found."""
        for step in statement.steps:
            if step.lower is not None:
                continue
            if step.number not in self.steps:
                self.steps[step.number] = steps_of(self.function, step, self.known, self.sizes)
            found = self.steps[step.number]
            if found is None:
                message = f"nothing outside this block says which values {step.index} takes"
                hint = f"give its range: `for {step.index} in 0:{next(iter(self.function.sizes[-1:]), 'N')}`"
                if (step.number, message) not in self.told:
                    self.told.add((step.number, message))
                    self._unsolvable(Diagnostic(message, self.function.source, step.span, hint))
                return False
            low, high = found
            ranges[step.index] = Bounds(Form((), low), Form((), high))
        return True

    def _constraints(self, statement: Statement, reads: tuple[Access, ...]) -> Iterator[tuple[Form, Interval]]:
        """Subscripts that must lie in known bounds: all reads but boundary reads, and a reduction's own target.

        ``op!`` may also write a new part of its target, so only plain indices count there.
        """
        for access in reads:
            known = self.known.get(access.read.tensor)
            if known is not None and access.read.boundary is None:
                yield from ((form, bounds) for form, bounds in zip(access.forms, known, strict=True) if form)
        known = self.known.get(statement.target)
        if statement.reduction is None or known is None:
            return
        for subscript, bounds in zip(statement.subscripts, known, strict=True):
            form = to_form(subscript, self.sizes)
            if form and (isinstance(subscript, Index) or not statement.initialise):
                yield form, bounds

    def _checked_hull(
        self, statement: Statement, solution: Solution, ranges: Mapping[str, Bounds], reads: tuple[Access, ...]
    ) -> dict[str, Interval]:
        hull: dict[str, Interval] = {}
        for name in statement.indices:
            low, high = solution.intervals[name]
            hull[name] = low, max(high, low - 1)
            if high == low - 1 and name not in ranges and name in statement.reduction_indices:
                self._warn_of_nothing(statement, name, reads)
            if high >= low - 1 or (name in ranges and (statement.steps or name in statement.reduction_indices)):
                continue
            if name in ranges:
                given = next(r for r in reversed(statement.ranges) if r.index == name)
                message = f"the range of {name}, {low}:{high + 1}, ends before it starts: extent {high - low + 1}"
                message += mentioned_sizes(self.function, statement, self.sizes)
                self.problems.append(Diagnostic(message, self.function.source, given.span))
            else:
                culprits = quoted_reads(self.function, reads, {name})
                condition = "" if (low, high) == NOWHERE else f"{low} <= {name} <= {high}, from "
                message = f"Inferred an empty range for variable {name}. Derived condition: {condition}"
                message += f"{culprits} in bounds"
                message += mentioned_sizes(self.function, statement, self.sizes)
                self.problems.append(self._at_index(message, statement, name))
        return hull

    def _warn_of_nothing(self, statement: Statement, name: str, reads: tuple[Access, ...]) -> None:
        """Warn of a reduction over nothing, unless what it reads has no elements."""
        own = [a for a in reads if any(form is not None and name in variables(form) for form in a.forms)]
        if any(high < low for access in own for low, high in self.known.get(access.read.tensor, [])):
            return
        culprits = quoted_reads(self.function, reads, {name})
        message = f"no value of {name} has {culprits} in bounds, so {statement.target} stays what it starts from"
        message += mentioned_sizes(self.function, statement, self.sizes)
        self.warnings.append(replace(self._at_index(message, statement, name), severity="warning"))

    def _write(self, statement: Statement, solved: Solved) -> bool:
        """Extend the hull of what is written so far; False where the target's subscripts are not affine."""
        plain = [s.name if isinstance(s, Index) else None for s in statement.subscripts]
        own, whole = rebased_dimensions(self.function, statement), self._places(statement)
        if whole is None:
            return False
        known: list[Interval] = []
        stored: list[Interval] = []
        for dimension, (subscript, name) in enumerate(zip(statement.subscripts, plain, strict=True)):
            if dimension in whole:
                known.append(whole[dimension])
                stored.append(whole[dimension])
                continue
            if name is not None and plain.count(name) == 1:
                known.append(solved.hull[name])
                stored.append(solved.hull[name])
                continue
            form = to_form(subscript, self.sizes)
            if form is None:
                self._unsolvable(self._not_affine(statement.target, subscript))
                return False
            low, high = self._image(statement, solved, form)
            known.append((low, high))
            stored.append((low if own[dimension] else min(low, 0), high))
        target = statement.target
        rebased = [d in whole or begins_there for d, begins_there in enumerate(own)]
        self.stored[target] = _hull(self.stored.get(target), stored)
        self.rebased[target] = [a and b for a, b in zip(self.rebased.get(target, rebased), rebased, strict=True)]
        if not self._is_given(target):
            self.known[target] = _hull(self.known.get(target), known)
        return True

    def _places(self, statement: Statement) -> dict[int, Interval] | None:
        """The bounds of each dimension in which data choose the element written; None if they are not known before."""
        chosen = [d for d, subscript in enumerate(statement.subscripts) if is_indirect(subscript)]
        target = statement.target
        if not chosen:
            return {}
        if target in self.declared:
            return {d: (0, self.declared[target][d] - 1) for d in chosen}
        if target in self.known:
            return {d: self.known[target][d] for d in chosen}
        tensor = self.function.tensors[target]
        message = f"data choose the elements of {target} that are written here, so its extents must be known before"
        if tensor.role == "temporary":
            hint = f"write all of it first: `{target}(...) = 0` with `where` ranges, then `{statement.reduction}=`"
        else:
            sizes = ", ".join("N" * (d == 0) or "..." for d in range(tensor.rank))
            hint = f"declare them, as in `-> ({tensor.dtype}({sizes}) {target})`"
        span = statement.subscripts[chosen[0]].span
        self._unsolvable(Diagnostic(message, self.function.source, span, hint))
        return None

    def _image(self, statement: Statement, solved: Solved, form: Form) -> Interval:
        """The interval hull of a left-hand subscript's values, exact unless the domain is empty."""
        if not is_exact(form) or solved.dependent:
            points = statement_domain(0, statement, solved.hull, solved.dependent).lhs
            value = form_to_pw_aff(form, points.get_space())
            if value is not None and not points.is_empty():
                return extremes(value, points)
        return interval(form, solved.hull)

    def boxes(self) -> dict[str, Box]:
        """The box of every tensor; problems where an annotation does not fit what is written."""
        result: dict[str, Box] = {}
        for tensor in self.function.tensors.values():
            if tensor.role in ("input", "const"):
                shape = self.declared.get(tensor.name, ())
                result[tensor.name] = Box((0,) * len(shape), shape)
            elif tensor.name not in self.broken:
                result[tensor.name] = self._output_box(tensor)
        for name, box in result.items():
            if prod(box.extent) >= LARGEST:
                tensor = self.function.tensors[name]
                message = f"{name} is too large: {' x '.join(map(str, box.extent))} elements"
                self.problems.append(Diagnostic(message, self.function.source, tensor.span))
        return result

    def _output_box(self, tensor: Tensor) -> Box:
        written = self.stored.get(tensor.name)
        shape = self.declared.get(tensor.name)
        if shape is None:
            written = written or []
            return Box(tuple(low for low, _ in written), tuple(max(0, high - low + 1) for low, high in written))
        origin = [0] * len(shape)
        for dimension, ((low, high), extent) in enumerate(zip(written or (), shape, strict=False)):
            if high < low or (low >= 0 and high < extent):
                continue
            if high - low + 1 == extent and self.rebased[tensor.name][dimension]:
                origin[dimension] = low
                continue
            message = (
                f"dimension {dimension} of {tensor.name} is declared with {extent} elements "
                f"but the program writes {high - low + 1} ({low} to {high})"
            )
            self.problems.append(Diagnostic(message, self.function.source, tensor.span))
        return Box(tuple(origin), shape)

    def _report_unsolved(
        self, statement: Statement, solution: Solution, mentioned: set[str], reads: tuple[Access, ...]
    ) -> None:
        free = [name for name in solution.unsolved if name not in mentioned]
        for name in free:
            message = f"Free variable {name} is unconstrained. Use a 'where' clause to set its range."
            self._unsolvable(
                self._at_index(message, statement, name, self._range_hint(name, *self.function.sizes[-1:]))
            )
        entangled = [name for name in solution.unsolved if name in mentioned]
        if not entangled:
            return
        culprits = quoted_reads(self.function, reads, set(entangled))
        message = f"Unsolved variable: {', '.join(entangled)}. Inferred constraint: {culprits} in bounds. "
        if solution.ambiguous:
            message += f"Several ranges of {', '.join(solution.ambiguous)} are equally large. "
        message += "Could not infer ranges for free variables. Use a where clause"
        inner = [name for name in entangled if name in statement.reduction_indices] or entangled
        self._unsolvable(self._at_index(message, statement, entangled[0], self._range_hint(inner[-1])))

    def _range_hint(self, name: str, *likely: str) -> str | None:
        """What to write, unless that was proposed: a range of an index, up to the size that is named like it if any."""
        if name in self.proposed:
            return None
        self.proposed.add(name)
        tensor = self.function.tensors.get(name)
        if tensor is not None and tensor.rank == 0:
            return f"`{name}` alone is an index on the left; write `{name}()` for the number that it holds"
        for size in self.function.sizes:
            if size.lower() == name.lower():
                return f"add `where {name} in 0:{size}`"
        return f"add a range, such as `where {name} in 0:{next(iter(likely), 3)}`"

    def _not_affine(self, target: str, subscript: Expr) -> Diagnostic:
        """What is said of a subscript on the left of which proofs know nothing."""
        source, span = self.function.source, subscript.span
        names = dict.fromkeys(e.name for e in walk(subscript) if isinstance(e, Index))
        element = f"T({', '.join(names)})"
        hint = f"let a tensor of extents that are declared be indexed by another one: `{element} = "
        hint += f"{source.text[span.start : span.end]} where ...`, and `{target}({element})` in place of this"
        return Diagnostic("a subscript on the left must be affine in the indices", source, span, hint)

    def _unsolvable(self, diagnostic: Diagnostic) -> None:
        self.unsolved.append(diagnostic)
        self.problems.append(diagnostic)

    def _at_index(self, message: str, statement: Statement, name: str, hint: str | None = None) -> Diagnostic:
        """A diagnostic at the first mention of an index."""
        spans = [n.span for e in statement.expressions() for n in walk(e) if isinstance(n, Index) and n.name == name]
        span = min(spans, key=lambda span: span.start, default=statement.span)
        return Diagnostic(message, self.function.source, span, hint)


def _hull(previous: list[Interval] | None, new: list[Interval]) -> list[Interval]:
    """The interval hull, dimension by dimension; empty intervals add nothing."""
    if previous is None:
        return new
    return [
        b if a[1] < a[0] else a if b[1] < b[0] else (min(a[0], b[0]), max(a[1], b[1]))
        for a, b in zip(previous, new, strict=True)
    ]
