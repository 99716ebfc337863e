"""A long cumulative reduction in parts, which threads or blocks share: block sums, their prefix sums, and blocks again.

``Y(i) += X(j)`` for all steps ``j`` up to that of element ``i`` becomes

    parts(p)     += X(j)                     for the steps j of part p
    before(p)    += parts(q)                 for all parts q before p
    inside(p, r) += X(j)                     for the steps j of part p, up to that of its element r
    Y(i)          = before(p) + inside(p,r)  where i is element r of part p

so that all parts can be summed at the same time, twice (Hillis and Steele, CACM 1986; Blelloch, 1990).  It
reassociates the reduction, as splitting it does (``splitting.py``).  Where ``i`` needs the steps from its own on,
those behind ``p`` take the place of those before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.errors import LegalityError
from tcomp.grammar.ranges.ranges import Box
from tcomp.grammar.tree.function import Binary, Constant, Expr, Index, Read, Within, is_indirect, walk, with_indices
from tcomp.mapping.plan.schedule import scheduled_anew
from tcomp.mapping.plan.values import Parted, Plan
from tcomp.mapping.tiles.scans import is_backwards, scanned_position
from tcomp.model.accesses import Frame, element_map
from tcomp.model.scop import Scop, ScopStatement
from tcomp.model.terms.storages import Storage, contiguous_strides
from tcomp.values.operators import INT64, REDUCTIONS

_IN, _OUT = isl.dim_type.in_, isl.dim_type.out


@dataclass(frozen=True, slots=True)
class LongScan:
    """A cumulative reduction along its last coordinate, one new step for each element.

    Element ``elements[0] + n`` has the steps up to ``first + n``, or, ``backwards``, from there on.  ``elements`` is
    half-open; the reduction has so many ``rows``.
    """

    statement: str
    elements: tuple[int, int]
    first: int
    backwards: bool
    rows: int

    @property
    def length(self) -> int:
        """How many elements a row has."""
        return self.elements[1] - self.elements[0]

    def parts(self, steps: int) -> int:
        """Into how many parts of so many steps a row is cut."""
        return -(-self.length // steps)


def long_scan(scop: Scop, statement: ScopStatement) -> LongScan | None:
    """The cumulative reduction that an update is, if it can run in parts; else None."""
    position = statement.coordinates - 1
    if statement.kind != "update" or statement.tile_rank or statement.domain.dim(isl.dim_type.param):
        return None
    if scanned_position(scop, statement) != position or not _is_combined(scop, statement):
        return None
    start = _start_of(scop, statement)
    identity = Constant(
        REDUCTIONS[statement.reduction or "+"].identity(start.value.dtype), start.value.dtype, start.value.span
    )  # fmt: skip
    if start.value != identity:
        return None
    bounds = [
        (start.domain.dim_min_val(d).to_python(), start.domain.dim_max_val(d).to_python() + 1)
        for d in range(position + 1)
    ]
    steps = (
        statement.domain.dim_min_val(position + 1).to_python(),
        statement.domain.dim_max_val(position + 1).to_python(),
    )
    backwards = is_backwards(scop, statement, position)
    low, high = bounds[position]
    # The step that the first element has and no other one needs, or the last one that it needs.
    first = steps[0] if backwards else steps[1] - (high - 1 - low)
    names = [f"i{d}" for d in range(position + 2)]
    box = " and ".join(f"{a} <= {n} < {b}" for n, (a, b) in zip(names, bounds, strict=False))
    own = f"{names[position]} - {low} + {first}"
    reach = f"{own} <= {names[-1]} <= {steps[1]}" if backwards else f"{steps[0]} <= {names[-1]} <= {own}"
    rows = 1
    for a, b in bounds[:position]:
        rows *= b - a
    whole = isl.Set(f"{{ {statement.name}[{', '.join(names)}] : {box} and {reach} }}")
    elements = isl.Set(f"{{ {start.name}[{', '.join(names[:-1])}] : {box} }}")
    beside = (first + high - 1 - low) - steps[1] if backwards else steps[0] - first
    if beside not in (0, 1) or not whole.is_equal(statement.domain) or not elements.is_equal(start.domain):
        return None
    return LongScan(statement.name, (low, high), first, backwards, rows)


def _is_combined(scop: Scop, statement: ScopStatement) -> bool:
    """Whether two values are combined as they are stored, and nothing is checked on the way."""
    dtype = scop.storages[statement.target].dtype
    reads = [e for e in walk(statement.value) if isinstance(e, Read)]
    checked = any(is_indirect(s) for read in reads for s in read.subscripts)
    checked = checked or any(isinstance(e, Within) for e in walk(statement.value))
    return not checked and (dtype.is_integer or (dtype.is_float and dtype.bits > 16))


def _start_of(scop: Scop, statement: ScopStatement) -> ScopStatement:
    return next(s for s in scop.statements if s.kind == "init" and s.target == statement.target)


def in_parts_of(plan: Plan, steps_of: Callable[[LongScan], int]) -> Plan:
    """Run cumulative reductions in parts of as many steps as a model says; 0 leaves one whole."""
    scop = plan.scop
    done: list[Parted] = []
    for statement in plan.scop.statements:
        scan = long_scan(scop, statement)
        steps = 0 if scan is None else steps_of(scan)
        if scan is not None and steps and _have_steps(scop, scan, steps):
            scop, storages = in_parts(scop, scan, steps)
            done.append(Parted(statement.name, steps, storages))
    return replace(scheduled_anew(plan, scop), parted=tuple(done)) if done else plan


def _have_steps(scop: Scop, scan: LongScan, steps: int) -> bool:
    """Whether there are several parts of so many steps, and each reduction among them has something to reduce."""
    return scan.parts(steps) > 1 and not any(s.domain.is_empty() for s in _Writer(scop, scan, steps).statements)


def in_parts(scop: Scop, scan: LongScan, steps: int) -> tuple[Scop, frozenset[str]]:
    """The program with a cumulative reduction in parts of so many steps, and the storages that all parts leave.

    Raises LegalityError unless each element gets each of its steps once, and no reduction is one of nothing.
    """
    if not _have_steps(scop, scan, steps):
        raise LegalityError(f"parts of {steps} steps leave {scan.statement} a reduction of nothing")
    made = _Writer(scop, scan, steps)
    statements: list[ScopStatement] = []
    for s in scop.statements:
        if s in (made.start, made.finish):
            continue
        statements += made.statements if s is made.update else [s]
    prove_parts(scop, made.update, made.finish, made.statements, made.step)
    storages = {**scop.storages, **{s.name: s for s in (made.parts, made.before, made.inside)}}
    parted = Scop(storages, tuple(statements), scop.sizes, scop.warnings, scop.around)
    return parted, frozenset((made.parts.name, made.before.name))


class _Writer:
    """Writes the statements; their indices are those of the rows, the part, the element in it, the step in it."""

    def __init__(self, scop: Scop, scan: LongScan, steps: int) -> None:
        self.scan, self.steps = scan, steps
        self.update = scop.by_name[scan.statement]
        self.start = _start_of(scop, self.update)
        self.span = self.update.value.span
        self.position = position = self.update.coordinates - 1
        self.count = scan.parts(steps)
        self.rows = [f"i{d}" for d in range(position)]
        self.part = _free("part", self.update.indices)
        self.other = _free("other", self.update.indices)
        target = scop.storages[self.update.target]
        origin = tuple(self.start.domain.dim_min_val(d).to_python() for d in range(position))
        extent = tuple(self.start.domain.dim_max_val(d).to_python() + 1 - o for d, o in enumerate(origin))
        taken = {*scop.storages}

        def storage(suffix: str, *sides: int) -> Storage:
            name = _free(f"{target.name}_{suffix}", taken)
            taken.add(name)
            box = Box((*origin, *(0 for _ in sides)), (*extent, *sides))
            return Storage(name, target.dtype, box, "temporary", contiguous_strides(box.extent))

        self.target = target
        self.finish = _finish_of(scop, self.update)
        self.parts, self.before = storage("parts", self.count), storage("before", self.count)
        self.inside = storage("inside", self.count, steps)
        known = {*scop.by_name}
        self.names = [_free(f"{self.update.name}{c}", {n for k in known for n in (k, k[:-1])}) for c in "qbr"]
        self.step = self._step(self.update.indices[-1])
        self.statements = self._statements()

    def _statements(self) -> list[ScopStatement]:
        update, scan, steps = self.update, self.scan, self.steps
        of_parts, of_before, of_inside = self.names
        row, element, step = update.indices[: self.position], update.indices[self.position], update.indices[-1]
        rows, low = self.rows, scan.elements[0]
        all_rows = ", ".join([*rows, ""]) if rows else ""
        first, last = (1, self.count) if scan.backwards else (0, self.count - 1)
        full = low if scan.backwards else scan.elements[1] - 1
        moved = f"{scan.first} + {steps}*p + k"
        inside = isl.Map(
            f"{{ {of_inside}[{all_rows}p, r, k] -> {update.name}[{all_rows}{low} + {steps}*p + r, {moved}] : "
            f"0 <= r < {steps} and 0 <= k < {steps} }}"
        ).intersect_range(update.domain)
        parts = isl.Map(
            f"{{ {of_parts}[{all_rows}p, k] -> {update.name}[{all_rows}{full}, {moved}] : "
            f"0 <= k < {steps} and {first} <= p < {last} }}"
        ).intersect_range(update.domain)
        elements = isl.Map(
            f"{{ {update.name}[{all_rows}p, r] -> {self.start.name}[{all_rows}{low} + {steps}*p + r] : "
            f"0 <= r < {steps} }}"
        ).intersect_range(self.start.domain)  # fmt: skip
        own = elements.domain()
        last_dim = own.dim(isl.dim_type.set) - 1
        of_part = own.project_out(isl.dim_type.set, last_dim, 1).reset_tuple_id()
        order = "q > p" if scan.backwards else "q < p"
        others = isl.Map(
            f"{{ [{all_rows}p] -> {of_before}[{all_rows}p, q] : {first} <= q < {last} and {order} }}"
        ).intersect_domain(of_part)  # fmt: skip
        value = with_indices(update.value, {step: self.step})
        read_parts = Read(self.parts.name, self._indices(*row, self.other), self.parts.dtype, self.span)
        moves = isl.Map(f"{{ {of_before}[{all_rows}p, q] -> {self.parts.name}[{all_rows}q] }}")
        some = isl.Map(f"{{ [{all_rows}p] -> [{all_rows}p] : {first} <= p < {last} }}")
        return [
            self._init(of_parts, of_part.apply(some), (*row, self.part), self.parts),
            self._update(
                of_parts, parts.domain(), (*row, self.part, step), self.parts, value,
                [parts.apply_range(r) for r in update.reads],
            ),
            self._init(of_before, of_part, (*row, self.part), self.before),
            self._update(
                of_before, others.range(), (*row, self.part, self.other), self.before, read_parts,
                [moves.intersect_domain(others.range())],
            ),
            self._init(of_inside, own.reset_tuple_id(), (*row, self.part, element), self.inside),
            self._update(
                of_inside, inside.domain(), (*row, self.part, element, step), self.inside, value,
                [inside.apply_range(r) for r in update.reads],
            ),
            self._combine(own, elements, (*row, self.part, element)),
        ]  # fmt: skip

    def _step(self, step: str) -> Expr:
        """The step that a step of a part is."""
        return self._sum(self._in_part(step), self.scan.first)

    def _in_part(self, index: str) -> Expr:
        before = Binary(
            "*", Index(self.part, INT64, self.span), Constant(self.steps, INT64, self.span), INT64, self.span
        )
        return Binary("+", before, Index(index, INT64, self.span), INT64, self.span)

    def _sum(self, expr: Expr, number: int) -> Expr:
        return Binary("+", expr, Constant(number, INT64, self.span), INT64, self.span) if number else expr

    def _indices(self, *names: str) -> tuple[Expr, ...]:
        return tuple(Index(n, INT64, self.span) for n in names)

    def _init(self, name: str, domain: isl.Set, indices: tuple[str, ...], storage: Storage) -> ScopStatement:
        domain = domain.set_tuple_name(f"{name}i")
        return ScopStatement(
            f"{name}i", "init", domain, indices, storage.name, self._indices(*indices), self.start.value, None,
            _leading(domain, storage, len(indices)), (), self.update.origin,
        )  # fmt: skip

    def _update(
        self, name: str, domain: isl.Set, indices: tuple[str, ...], storage: Storage, value: Expr, reads: list[isl.Map]
    ) -> ScopStatement:  # fmt: skip
        rank = len(storage.box.extent)
        return ScopStatement(
            name, "update", domain, indices, storage.name, self._indices(*indices[:rank]), value,
            self.update.reduction, _leading(domain, storage, rank), tuple(reads), self.update.origin,
        )  # fmt: skip

    def _combine(self, own: isl.Set, elements: isl.Map, indices: tuple[str, ...]) -> ScopStatement:
        update, dtype = self.update, self.target.dtype
        before = Read(self.before.name, self._indices(*indices[:-1]), dtype, self.span)
        inside = Read(self.inside.name, self._indices(*indices), dtype, self.span)
        assert update.reduction is not None
        value = Binary(update.reduction, before, inside, dtype, self.span)
        place = self._sum(self._in_part(indices[-1]), self.scan.elements[0])
        stored = update if self.finish is None else self.finish
        write = elements.set_tuple_name(_OUT, stored.target)
        reads = _leading(own, self.before, len(indices) - 1), _leading(own, self.inside, len(indices))
        return ScopStatement(
            update.name, "assign", own, indices, stored.target, (*self._indices(*indices[: self.position]), place),
            value, None, write, reads, update.origin,
        )  # fmt: skip


def _finish_of(scop: Scop, update: ScopStatement) -> ScopStatement | None:
    """What stores the elements of a reduction as they are, if nothing else reads them."""
    readers = [s for s in scop.statements if any(r.get_tuple_name(_OUT) == update.target for r in s.reads)]
    if len(readers) != 1 or readers[0].kind != "finish" or not readers[0].plain or len(readers[0].reads) != 1:
        return None
    (finish,) = readers
    own = finish.value
    same = isinstance(own, Read) and own.tensor == update.target and own.subscripts == finish.subscripts
    return finish if same and scop.storages[finish.target].dtype == scop.storages[update.target].dtype else None


def _free(name: str, taken: set[str] | Sequence[str]) -> str:
    while name in taken:
        name += "_"
    return name


def _leading(domain: isl.Set, storage: Storage, rank: int) -> isl.Map:
    """Instance to the element that its leading indices name."""
    names = [f"i{d}" for d in range(domain.dim(isl.dim_type.set))]
    text = f"{{ {domain.get_tuple_name()}[{', '.join(names)}] -> {storage.name}[{', '.join(names[:rank])}] }}"
    return isl.Map(text).intersect_domain(domain)


def prove_parts(
    scop: Scop, update: ScopStatement, finish: ScopStatement | None, made: Sequence[ScopStatement], step: Expr
) -> None:  # fmt: skip
    """Raise LegalityError unless every element gets each of its steps once, from its own part or from another one.

    ``step`` is the step of the update that a step of a part is.  Where parts are combined into what a ``finish`` would
    store, that is what gets them.
    """
    every, stored = _start_of(scop, update).write.range(), update.write
    if finish is not None:
        (read,) = finish.reads
        handed_on = read.reverse().apply_range(finish.write)
        every, stored = every.apply(handed_on), stored.apply_range(handed_on)
    first, of_parts, second, of_before, third, of_inside, combine = made
    starts = first, second, third
    begun = {s.target: s.write.range() for s in starts}
    used = [s.write for s in (of_parts, of_before, of_inside)] + [*of_before.reads, *combine.reads]
    started = all(s.write.is_injective() for s in starts) and all(
        u.range().is_subset(begun[u.get_tuple_name(_OUT)]) for u in used
    )
    rank = len(update.indices)
    # Steps are told apart by their rows and what they are of the update, whatever element they are for.
    known = isl.Map.identity(update.domain.get_space().map_from_set()).project_out(_OUT, rank - 2, 1)
    known = known.reset_tuple_id(_OUT).intersect_domain(update.domain)
    in_parts, in_inside = (_steps(scop, s, update.indices[: rank - 2], step) for s in (of_parts, of_inside))
    near = in_inside.reverse().apply_range(of_inside.write).apply_range(_back(combine, of_inside.target))
    far = in_parts.reverse().apply_range(of_parts.write).apply_range(_back(of_before, of_parts.target))
    far = far.apply_range(of_before.write).apply_range(_back(combine, of_before.target))
    near, far = near.apply_range(combine.write), far.apply_range(combine.write)
    once = (
        in_parts.is_bijective()
        and in_inside.range_product(of_inside.write).is_injective()
        and of_before.reads[0].range_product(of_before.write).is_injective()
        and combine.write.is_bijective()
        and combine.write.range().is_equal(every)
        and all(r.is_single_valued() for r in combine.reads)
        and near.is_disjoint(far)
        and near.union(far).is_equal(known.reverse().apply_range(stored))
    )
    alike = all(
        label.reverse().apply_range(own).is_subset(known.reverse().apply_range(read))
        for statement, label in ((of_parts, in_parts), (of_inside, in_inside))
        for own, read in zip(statement.reads, update.reads, strict=True)
    )
    if not (started and once and alike):
        raise LegalityError(f"parts of {update.name} do not reduce every step of an element once")


def _steps(scop: Scop, statement: ScopStatement, rows: tuple[str, ...], step: Expr) -> isl.Map:
    """Instance to its row and the step of the update that it is."""
    domain = statement.domain
    for position, index in enumerate(statement.indices):
        domain = domain.set_dim_name(isl.dim_type.set, position, index)
    span = statement.value.span
    label = (*(Index(name, INT64, span) for name in rows), step)
    return element_map(Frame(domain, scop.sizes, {"": Box((), ())}), "", label).reset_tuple_id(_OUT)


def _back(statement: ScopStatement, storage: str) -> isl.Map:
    """From the elements of a storage to the instances that read them."""
    return next(r for r in statement.reads if r.get_tuple_name(_OUT) == storage).reverse()
