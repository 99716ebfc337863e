"""Proofs about the elements that a program touches, for given sizes.

Every read lies inside its tensor, and reads an input or an element that an earlier statement has written; every element
of an output is written; ``=`` writes no element twice.  Interval arithmetic proves nearly all of it; isl decides the
rest exactly, under the conditions that guard an access.  Subscripts that are not affine are bounded by interval
arithmetic; indirect ones are left to run-time checks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import islpy as isl

from tcomp.errors import Diagnostic, Span
from tcomp.grammar.ranges.accesses import Access, Guard, covered, fills_box
from tcomp.grammar.ranges.affine import extremes, form_to_pw_aff, where_may_hold
from tcomp.grammar.ranges.domains import Box, StatementDomain, box_of
from tcomp.grammar.ranges.products import bounds_of
from tcomp.grammar.ranges.steps import blocks_of, common_steps, runs_before
from tcomp.grammar.ranges.wording import elements_of, mentioned_sizes, quoted_statements, sample_element, text_of
from tcomp.grammar.tree.forms import Form, Interval, index_form, interval, to_form
from tcomp.grammar.tree.function import Binary, Constant, Function, Index, Size, is_indirect, walk

_SET = isl.dim_type.set


@dataclass(frozen=True, slots=True)
class Program:
    """A function with its ranges solved; one domain and one tuple of reads per statement."""

    function: Function
    sizes: Mapping[str, int]
    boxes: Mapping[str, Box]
    domains: tuple[StatementDomain, ...]
    reads: tuple[tuple[Access, ...], ...]


def prove(program: Program) -> tuple[tuple[Diagnostic, ...], tuple[Diagnostic, ...]]:
    """Check every access of a program.

    Returns:
        Accesses outside their tensors (they depend on the sizes), then mistakes of the text: elements read before they
        are written, handed out unwritten, or written twice by ``=``.
    """
    proof = _Proof(program)
    for numbers in blocks_of(program.function):
        proof.block(numbers)
    proof.outputs()
    return tuple(proof.misfits), tuple(proof.mistakes)


@dataclass(frozen=True, slots=True)
class _Write:
    """Elements written by a statement: a product of intervals, or where that is None, the image of a set."""

    number: int
    intervals: tuple[Interval, ...] | None
    points: isl.Set
    forms: tuple[Form | None, ...]


class _Proof:
    """``given`` names the tensors all of whose elements exist before the program starts."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.given = {tensor.name for tensor in program.function.inputs} | set(program.function.needs_content)
        self.misfits: list[Diagnostic] = []
        self.mistakes: list[Diagnostic] = []
        self.writes: dict[str, list[_Write]] = {}
        self.inside: dict[str, list[_Write]] = {}
        self.proved: set[tuple[object, ...]] = set()
        """What was proved of reads of the statement at hand: derived ones have many that are alike."""
        self.where: dict[Guard, isl.Set | None] = {}
        self.instances: dict[tuple[Guard, ...], isl.Set] = {}

    def block(self, numbers: Sequence[int]) -> None:
        """Prove the statements of a block of steps, or one outside of all, and record what they write.

        ``inside`` has what the block writes while it is proved: what of that is there depends on the step.
        """
        if self.program.function.statements[numbers[0]].steps:
            for number in numbers:
                self._record(number, self._target(number), self.inside)
        for number in numbers:
            self._statement(number)
        self.inside = {}
        for number in numbers:
            self._record(number, self._target(number), self.writes)

    def _target(self, number: int) -> tuple[Form | None, ...]:
        statement = self.program.function.statements[number]
        return tuple(to_form(subscript, self.program.sizes) for subscript in statement.subscripts)

    def _statement(self, number: int) -> None:
        """Prove the reads of one statement, then its write."""
        statement, domain = self.program.function.statements[number], self.program.domains[number]
        self.proved, self.where, self.instances = set(), {}, {}
        if not domain.is_empty:
            for access in self.program.reads[number]:
                if access.emitted:
                    self._read(number, access)
        target = self._target(number)
        if statement.scatters and not domain.is_empty:
            self._has_places(number)
        if statement.reduction is not None and not statement.initialise and not domain.is_empty:
            self._accumulation(number, target)
        if statement.reduction is None:
            self._injective(number, target)

    def outputs(self) -> None:
        """Every element of an output is written, unless the caller passes its content."""
        for tensor in self.program.function.outputs:
            if tensor.name in self.program.function.needs_content:
                continue
            box = self.program.boxes[tensor.name]
            everything = tuple(box.interval(d) for d in range(tensor.rank))
            if 0 in box.extent or self._is_written(tensor.name, everything):
                continue
            missing = self._unwritten(tensor.name, box_of(everything))
            if missing.is_empty():
                continue
            writers = [write.number for write in self.writes.get(tensor.name, [])]
            span = self.program.function.statements[writers[-1]].span if writers else tensor.span
            self._mistake(
                f"{tensor.name} is handed out with elements that no statement writes, "
                f"such as {sample_element(tensor.name, missing)}; it is written by "
                f"{quoted_statements(self.program.function, writers) or 'no statement'}",
                span,
                f"write all of {tensor.name} first, with `=` and a `where` range",
            )

    def _read(self, number: int, access: Access) -> None:
        """One read: inside the tensor, and of elements that have been written."""
        read, domain = access.read, self.program.domains[number]
        box = self.program.boxes[read.tensor]
        whole = tuple(box.interval(d) for d in range(len(box.extent)))
        footprint = list(whole)
        if read.boundary is not None:
            if 0 in box.extent and read.boundary.kind != "constant_exterior" and self._happens(number, access):
                text = text_of(self.program.function, read.span)
                self._misfit(number, access, f"{text} reads {read.tensor}, which has no elements")
                return
        else:
            doubtful: list[int] = []
            for dimension, form in enumerate(access.forms):
                if form is None:
                    self._computed(number, access, dimension)
                    continue
                low, high = interval(form, domain.hull)
                if whole[dimension][0] <= low and high <= whole[dimension][1]:
                    footprint[dimension] = low, high
                else:
                    doubtful.append(dimension)
            if doubtful and not self._inside(number, access, doubtful):
                return
        self._read_is_written(number, access, tuple(footprint))

    def _happens(self, number: int, access: Access) -> bool:
        return not self._instances(number, access).is_empty()

    def _instances(self, number: int, access: Access) -> isl.Set:
        """The instances of a statement that perform an access."""
        telling = self._telling(number, access)
        points = self.instances.get(telling)
        if points is None:
            points = self.program.domains[number].domain
            for guard in telling:
                points = points.intersect(self._where(number, guard))
            self.instances[telling] = points
        return points

    def _telling(self, number: int, access: Access) -> tuple[Guard, ...]:
        """The guards of an access that say something of its instances."""
        return tuple(guard for guard in dict.fromkeys(access.guards) if self._where(number, guard) is not None)

    def _where(self, number: int, guard: Guard) -> isl.Set | None:
        """Where a condition of a statement may hold, or not hold; None where it says nothing, as one of data."""
        if guard not in self.where:
            space = self.program.domains[number].domain.get_space()
            held = where_may_hold(*guard, space, self.program.sizes)
            self.where[guard] = None if held.plain_is_universe() else held
        return self.where[guard]

    def _inside(self, number: int, access: Access, dimensions: list[int]) -> bool:
        """Exact check of the subscripts that interval arithmetic leaves in doubt; False where one is outside."""
        key = ("inside", access.read.tensor, access.forms, self._telling(number, access))
        if key in self.proved:
            return True
        points = self._instances(number, access)
        if points.is_empty():
            return True
        box = self.program.boxes[access.read.tensor]
        text = text_of(self.program.function, access.read.span)
        before = len(self.misfits)
        for dimension in dimensions:
            form = access.forms[dimension]
            assert form is not None
            low, high = extremes(self._pw_aff(form, points), points)
            first, last = box.interval(dimension)
            if low >= first and high <= last:
                continue
            has = f"dimension {dimension} of {access.read.tensor} has {elements_of(first, last)}"
            if high > last and low < first:
                self._misfit(number, access, f"{text} goes from {low} to {high} but {has}")
            elif high > last:
                self._misfit(number, access, f"{text} reaches {high} but {has}, {high - last} too far")
            else:
                self._misfit(number, access, f"{text} starts at {low} but {has}, {first - low} too early")
        if len(self.misfits) > before:
            return False
        self.proved.add(key)
        return True

    def _computed(self, number: int, access: Access, dimension: int) -> None:
        """A subscript that is not affine: bounded by interval arithmetic, or checked at run time if it is indirect."""
        subscript = access.read.subscripts[dimension]
        if is_indirect(subscript):
            return
        first, last = self.program.boxes[access.read.tensor].interval(dimension)
        bounds = bounds_of(subscript, self.program.sizes, self.program.domains[number].hull)
        if bounds is not None and first <= bounds[0] and bounds[1] <= last:
            return
        if not self._happens(number, access):
            return
        text = text_of(self.program.function, access.read.span)
        may = f"may lie anywhere from {bounds[0]} to {bounds[1]}" if bounds else "may have any value"
        divided = [e.rhs for e in walk(subscript) if isinstance(e, Binary) and e.op in ("/", "%")]
        if bounds is None and not all(isinstance(e, Constant) for e in divided):
            may = "may divide by zero"
        has = f"dimension {dimension} of {access.read.tensor} has {elements_of(first, last)}"
        self._misfit(number, access, f"the subscript of {text} is not affine: it {may} but {has}")

    def _read_is_written(self, number: int, access: Access, footprint: tuple[Interval, ...]) -> None:
        tensor = access.read.tensor
        if tensor in self.given or self._is_written(tensor, footprint):
            return
        key = ("written", tensor, access.read.boundary is not None, access.forms, footprint)
        telling = self._telling(number, access)
        if {(*key, ()), (*key, telling)} & self.proved:
            return
        points = self._instances(number, access)
        if points.is_empty():
            return
        forms = (None,) * len(access.forms) if access.read.boundary is not None else access.forms
        missing = self._missing(number, tensor, self._map(points, forms, footprint).intersect_domain(points))
        if missing.is_empty():
            self.proved.add((*key, telling))
            return
        text = text_of(self.program.function, access.read.span)
        self._unwritten_mistake(f"{text} reads", number, tensor, missing)

    def _missing(self, number: int, tensor: str, accesses: isl.Map) -> isl.Map:
        """The accesses of a statement to elements that nothing has written before."""
        missing = accesses.subtract_range(accesses.range().subtract(self._unwritten(tensor, accesses.range())))
        statements = self.program.function.statements
        for write in self.inside.get(tensor, []):
            common = common_steps(statements[number], statements[write.number])
            before = runs_before(accesses.domain(), write.points, common, write.number < number)
            footprint = tuple(map(self.program.boxes[tensor].interval, range(len(write.forms))))
            written = self._map(write.points, write.forms, footprint).intersect_domain(write.points)
            missing = missing.subtract(before.apply_range(written))
        return missing

    def _has_places(self, number: int) -> None:
        """Where data choose the elements that are written, there must be some."""
        function, statement = self.program.function, self.program.function.statements[number]
        extents = self.program.boxes[statement.target].extent
        for dimension, (subscript, extent) in enumerate(zip(statement.subscripts, extents, strict=True)):
            if is_indirect(subscript) and extent == 0 and not self.program.domains[number].domain.is_empty():
                message = f"data choose elements of {statement.target}, but its dimension {dimension} has none"
                message += mentioned_sizes(function, statement, self.program.sizes)
                self.misfits.append(Diagnostic(message, function.source, subscript.span))

    def _reach(self, number: int, target: tuple[Form | None, ...]) -> tuple[Interval, ...]:
        """The interval hull of what the target's subscripts reach; all of a dimension in which data choose."""
        box = self.program.boxes[self.program.function.statements[number].target]
        hull = self.program.domains[number].hull
        return tuple(box.interval(d) if form is None else interval(form, hull) for d, form in enumerate(target))

    def _accumulation(self, number: int, target: tuple[Form | None, ...]) -> None:
        """``op`` without ``!`` reads what it adds to."""
        statement, domain = self.program.function.statements[number], self.program.domains[number]
        footprint = self._reach(number, target)
        if statement.target in self.given or self._is_written(statement.target, footprint):
            return
        accesses = self._map(domain.domain, target, footprint).intersect_domain(domain.domain)
        missing = self._missing(number, statement.target, accesses)
        if not missing.is_empty():
            symbol = statement.reduction
            self._unwritten_mistake(
                f"`{symbol}=` accumulates into", number, statement.target, missing, f"did you mean `{symbol}=!`?"
            )

    def _unwritten_mistake(
        self, what: str, number: int, tensor: str, missing: isl.Map, hint: str | None = None
    ) -> None:
        function = self.program.function
        writers = [write.number for part in (self.writes, self.inside) for write in part.get(tensor, [])]
        before = f"only by {quoted_statements(function, writers)}" if writers else "by no statement"
        steps = [step.index for step in function.statements[number].steps]
        first = missing.wrap().lexmin().sample_point()
        place = sample_element(tensor, missing.range())
        if steps:
            values = [first.get_coordinate_val(_SET, d).to_python() for d in range(first.get_space().dim(_SET))]
            element = ", ".join(map(str, values[missing.dim(isl.dim_type.in_) :]))
            at = ", ".join(f"{step}={value}" for step, value in zip(steps, values, strict=False))
            place = f"{tensor}({element}) at {at}" if element else f"{tensor} at {at}"
        self._mistake(
            f"{what} elements of {tensor} that are not yet written, such as {place}; "
            f"{'it' if steps else 'up to here it'} is written {before}",
            function.statements[number].span,
            hint,
        )

    def _injective(self, number: int, target: tuple[Form | None, ...]) -> None:
        """``=`` reaches every element from one instance only: each index alone in a subscript, or as isl proves."""
        statement, domain = self.program.function.statements[number], self.program.domains[number]
        plain = {s.name for s in statement.subscripts if isinstance(s, Index)}
        if plain.issuperset(statement.indices) or domain.is_empty:
            return
        # Each step may write an element again.
        reached = (*(index_form(step.index) for step in statement.steps), *target)
        image = self._map(domain.domain, reached, ((0, 0),) * len(reached)).intersect_domain(domain.domain)
        if image.is_injective():
            return
        self._mistake(
            f"`=` writes elements of {statement.target} more than once",
            statement.span,
            "use a reduction such as `+=!`, or subscripts that reach every element once",
        )

    def _record(self, number: int, target: tuple[Form | None, ...], writes: dict[str, list[_Write]]) -> None:
        """Remember among ``writes`` what a statement writes, unless that is nothing or is known already."""
        statement, domain = self.program.function.statements[number], self.program.domains[number]
        names = statement.indices[: len(statement.indices) - len(statement.reduction_indices)]
        if any(domain.hull[name][1] < domain.hull[name][0] for name in names):
            return
        if not statement.initialise and domain.is_empty:
            return
        intervals = self._reach(number, target) if domain.rectangular and fills_box(target) else None
        if intervals is not None and self._is_written(statement.target, intervals):
            return
        points = domain.lhs if statement.initialise else domain.domain
        writes.setdefault(statement.target, []).append(_Write(number, intervals, points, target))

    def _is_written(self, tensor: str, intervals: tuple[Interval, ...]) -> bool:
        """Whether earlier writes of boxes cover a box; a later one is more likely to."""
        boxes = [write.intervals for write in self.writes.get(tensor, []) if write.intervals is not None]
        return covered(intervals, boxes[::-1])

    def _unwritten(self, tensor: str, elements: isl.Set) -> isl.Set:
        for write in self.writes.get(tensor, []):
            if write.intervals is not None:
                elements = elements.subtract(box_of(write.intervals))
            else:
                footprint = tuple(map(self.program.boxes[tensor].interval, range(len(write.forms))))
                elements = elements.subtract(self._image(write.points, write.forms, footprint))
        return elements

    def _image(self, points: isl.Set, forms: tuple[Form | None, ...], footprint: tuple[Interval, ...]) -> isl.Set:
        """The elements that subscripts reach from ``points``; a subscript without a form reaches all its footprint."""
        return self._map(points, forms, footprint).intersect_domain(points).range()

    def _map(self, points: isl.Set, forms: tuple[Form | None, ...], footprint: tuple[Interval, ...]) -> isl.Map:
        result = isl.Map.from_domain(isl.Set.universe(points.get_space()))
        for form, bounds in zip(forms, footprint, strict=True):
            if form is None:
                column = isl.Map.from_domain_and_range(isl.Set.universe(points.get_space()), box_of((bounds,)))
            else:
                column = isl.Map.from_pw_aff(self._pw_aff(form, points))
            result = result.flat_range_product(column)
        return result

    def _pw_aff(self, form: Form, points: isl.Set) -> isl.PwAff:
        value = form_to_pw_aff(form, points.get_space())
        assert value is not None, "every index variable of the statement is a dimension"
        return value

    def _misfit(self, number: int, access: Access, message: str) -> None:
        function = self.program.function
        sizes = mentioned_sizes(function, function.statements[number], self.program.sizes)
        hint = "narrow the ranges with `where`, or guard the read with `?:`"
        for subscript in access.read.subscripts:
            if isinstance(subscript, Size) and subscript.name != subscript.name.lower():
                hint = f"`{subscript.name}` is a size here, not an index; did you mean `{subscript.name.lower()}`?"
        self.misfits.append(Diagnostic(f"{message}{sizes}", function.source, access.read.span, hint))

    def _mistake(self, message: str, span: Span, hint: str | None = None) -> None:
        self.mistakes.append(Diagnostic(message, self.program.function.source, span, hint))
