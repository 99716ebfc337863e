"""Takes a program with blocks of steps apart, into pieces that are scheduled one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.grammar.ranges.affine import form_to_pw_aff, step_parameter
from tcomp.grammar.ranges.domains import StatementDomain
from tcomp.grammar.ranges.ranges import Ranges, infer
from tcomp.grammar.tree.forms import Form, combine, index_form, interval, to_form
from tcomp.grammar.tree.function import Function, Read, Statement, Step, Tensor, walk
from tcomp.model.accesses import Frame, element_map
from tcomp.model.around import Around
from tcomp.model.build import Builder
from tcomp.model.stepwise.pieces import Item, Piece, Pieces, Repeat, fixed_everywhere
from tcomp.model.stepwise.views import Views, Whole
from tcomp.model.terms.sizes import Sizes
from tcomp.model.terms.storages import Storage, contiguous_strides

_SET, _PARAM = isl.dim_type.set, isl.dim_type.param


def in_pieces(function: Function, sizes: Sizes) -> Pieces:
    """Take a function apart at fixed sizes.  Raises ShapeError and CompileError as range inference does."""
    return Cutter(function, sizes, infer(function, sizes.values)).cut()


@dataclass(frozen=True, slots=True)
class Part:
    """Instances with coordinates between bounds, which are steps: ``low <= coordinate < high`` for each of some.

    A coordinate is an index of the statement or a number.
    """

    coordinates: tuple[str | int, ...]

    @property
    def bounds(self) -> tuple[str, ...]:
        """The names of the bounds, in pairs."""
        return tuple(f"tile_{end}{d}" for d in range(len(self.coordinates)) for end in ("low", "high"))

    @property
    def values(self) -> isl.Set:
        """What is known of the bounds."""
        names = list(map(step_parameter, self.bounds))
        ordered = " and ".join(f"{low} <= {high}" for low, high in zip(names[::2], names[1::2], strict=True))
        return isl.Set(f"[{', '.join(names)}] -> {{ : {ordered} }}").params()

    def of(self, domain: StatementDomain) -> StatementDomain:
        """The domain between the bounds."""
        return replace(domain, domain=self._within(domain.domain), lhs=self._within(domain.lhs))

    def _within(self, points: isl.Set) -> isl.Set:
        names = list(map(step_parameter, self.bounds))
        dims = [f"i{d}" for d in range(points.dim(_SET))]
        where = {points.get_dim_name(_SET, d): dim for d, dim in enumerate(dims)}
        ends = zip((where.get(c, c) for c in self.coordinates), names[::2], names[1::2], strict=True)
        inside = " and ".join(f"{low} <= {c} and {c} < {high}" for c, low, high in ends)
        return points.intersect(
            isl.Set(f"[{', '.join(names)}] -> {{ {points.get_tuple_name()}[{', '.join(dims)}] : {inside} }}")
        )


class Cutter:
    """Takes one function apart; where temporaries are ``kept``, pieces of blocks have none of their own."""

    def __init__(self, function: Function, sizes: Sizes, ranges: Ranges, kept: bool = False) -> None:
        self.function = function
        self.kept = kept
        self.sizes = sizes
        self.ranges = ranges
        self.values = ranges.sizes
        self.tensors = function.tensors
        self.homes = _homes(function)
        self.users = _users(function, self.homes)
        self.storages: dict[str, Storage] = {}
        self.outermost: dict[str, tuple[int, ...]] = {}
        for tensor in (*function.inputs, *function.outputs):
            if tensor.role != "const":
                role = "inout" if tensor.name in function.needs_content else tensor.role
                self._declare(tensor, role, sizes.strides.get(tensor.name))

    def cut(self) -> Pieces:
        """All pieces.  Where they see slices of a temporary only, these lie one behind another, each as one block."""
        pieces = self._pieces()
        temporaries = (s.name for s in pieces.storages.values() if s.role == "temporary")
        self.outermost = {name: fixed_everywhere(pieces, name) for name in temporaries}
        if all(fixed == tuple(range(len(fixed))) for fixed in self.outermost.values()):
            return pieces
        self.storages = {s.name: s for s in self.storages.values() if s.role != "temporary"}
        return self._pieces()

    def _pieces(self) -> Pieces:
        body = self._body(range(len(self.function.statements)), ())
        return Pieces(self.storages, body, self.values, tuple(map(str, self.ranges.warnings)))

    def _declare(self, tensor: Tensor, role: str, strides: tuple[int, ...] | None = None) -> Storage:
        box = self.ranges.boxes[tensor.name]
        if strides is None:
            strides = contiguous_strides(box.extent, self.outermost.get(tensor.name, ()))
        return self.storages.setdefault(tensor.name, Storage(tensor.name, tensor.dtype, box, role, strides))

    def _body(self, numbers: Sequence[int], steps: tuple[Step, ...]) -> tuple[Item, ...]:
        """What some statements inside ``steps`` become."""
        items: list[Item] = []
        depth = len(steps)
        for key, own in _runs(numbers, lambda n: _block_at(self.function.statements[n], depth)):
            if key is None:
                piece = self.piece(own, steps)
                items += () if piece is None else (piece,)
                continue
            step = self.function.statements[own[0]].steps[depth]
            body = self._body(own, (*steps, step))
            if body:
                lower, upper = self._bounds(step, own[0])
                items.append(Repeat(step.index, lower, upper, body))
        return tuple(items)

    def _bounds(self, step: Step, number: int) -> tuple[Form, Form]:
        if step.lower is None or step.upper is None:
            low, high = self.ranges.domains[number].hull[step.index]
            return Form((), low), Form((), high + 1)
        lower, upper = to_form(step.lower, self.values), to_form(step.upper, self.values)
        assert lower is not None and upper is not None, "inference needs bounds to be affine"
        return lower, upper

    def piece(
        self, numbers: Sequence[int], steps: tuple[Step, ...], part: Part | None = None,
        seen: Mapping[str, Storage] | None = None,
    ) -> Piece | None:  # fmt: skip
        """The piece of some statements, or of a part of their instances; None where they have none.

        Tensors that are ``seen`` otherwise lie as these say.
        """
        names = tuple(step.index for step in steps)
        statements = [self.function.statements[n] for n in numbers]
        domains = [_inside(self.ranges.domains[n], names) for n in numbers]
        if part is not None:
            domains = [part.of(domain) for domain in domains]
        own = self._own(numbers, statements, domains, bool(steps))
        storages = {**self.storages, **(seen or {})}
        whole = Whole(self.tensors, self.ranges.boxes, storages, self.values, self.outermost)
        views = Views(whole, statements, frozenset(names), self._hull(numbers, names), own)
        written = {views.of_write(s) for s in statements}
        read = {name for s in statements for name in views.of_reads(s)}
        rewritten = tuple(map(views.statement, statements))
        temporaries = tuple(t for name, t in views.tensors.items() if views.slices[name].tensor in own)
        outlive = [t for name, t in views.tensors.items() if views.slices[name].tensor not in own]
        constants = tuple(t for t in self.function.inputs if t.role == "const")
        outputs = tuple(replace(t, role="output") for t in outlive if t.name in written)
        function = replace(
            self.function,
            inputs=(*constants, *(replace(t, role="input") for t in outlive if t.name not in written)),
            outputs=outputs,
            temporaries=temporaries,
            statements=rewritten,
            needs_content=tuple(t.name for t in outputs if t.name in read or self._is_partly(t.name, views)),
        )
        sizes = Sizes(self.sizes.values, views.strides)
        ranges = Ranges(self.values, views.boxes, tuple(domains), ())
        around = self._around(names, self._values(steps, numbers[0]), views) if steps else None
        if around is not None and part is not None:
            names = (*names, *part.bounds)
            around = replace(around, steps=names, values=around.values.intersect(part.values), tiled=True)
        scop = Builder(function, sizes, ranges, around).build()
        if not scop.statements:
            return None
        for name in (*function.inputs, *function.outputs):
            if name.role != "const":
                tensor = self.tensors[views.slices[name.name].tensor]
                self._declare(tensor, "temporary")
        slices = {t.name: views.slices[t.name] for t in outlive}
        return Piece(function, scop, names, slices, tuple(numbers), bool(temporaries))

    def _values(self, steps: tuple[Step, ...], number: int) -> isl.Set:
        """The values that steps take together, as a set of parameters."""
        space = isl.Space.set_alloc(isl.DEFAULT_CONTEXT, len(steps), 0)
        for position, step in enumerate(steps):
            space = space.set_dim_name(_PARAM, position, step_parameter(step.index))
        values = isl.Set.universe(space)
        for step in steps:
            lower, upper = self._bounds(step, number)
            own = index_form(step.index)
            for form in (combine([(own, 1), (lower, -1)], 0), combine([(upper, 1), (own, -1)], -1)):
                at_least = form_to_pw_aff(form, space)
                assert at_least is not None, "bounds of steps are made of steps around them"
                values = values.intersect(at_least.nonneg_set())
        return values.params()

    def _around(self, steps: tuple[str, ...], values: isl.Set, views: Views) -> Around:
        """Steps, the values they take, and the views that lie outside of their tensors at some of these."""
        partly = set()
        for view, cut in views.slices.items():
            box = self.ranges.boxes[cut.tensor]
            for d, form in cut.at:
                low, high = box.origin[d], box.origin[d] + box.extent[d] - 1
                least, most = interval(form, views.hull)
                if least >= low and most <= high:
                    continue
                place = form_to_pw_aff(form, values.get_space())
                assert place is not None, "slices are cut at forms over steps"
                inside = place.add_constant_val(-low).nonneg_set()
                inside = inside.intersect(place.neg().add_constant_val(high).nonneg_set()).params()
                if not values.is_subset(inside):
                    partly.add(view)
        return Around(steps, values, partly=frozenset(partly))

    def _is_partly(self, name: str, views: Views) -> bool:
        """Whether a tensor goes on from its content, which the caller passes."""
        return views.slices[name].tensor in self.function.needs_content

    def _hull(self, numbers: Sequence[int], steps: tuple[str, ...]) -> dict[str, tuple[int, int]]:
        hull = self.ranges.domains[numbers[0]].hull
        return {name: hull[name] for name in steps}

    def _own(
        self, numbers: Sequence[int], statements: Sequence[Statement], domains: Sequence[StatementDomain], inside: bool
    ) -> frozenset[str]:
        """The temporaries that nothing but one instance of a piece knows of: it reads only what it wrote before."""
        home = self.homes[numbers[0]]
        found: set[str] = set()
        if inside and self.kept:
            return frozenset()
        for name in {s.target for s in statements}:
            if self.tensors[name].role != "temporary" or self.users[name] != {home}:
                continue
            if not inside or self._is_written_first(name, statements, domains):
                found.add(name)
        return frozenset(found)

    def _is_written_first(
        self, name: str, statements: Sequence[Statement], domains: Sequence[StatementDomain]
    ) -> bool:  # fmt: skip
        written: isl.Set | None = None
        for statement, domain in zip(statements, domains, strict=True):
            reads = [r for e in statement.expressions() for r in walk(e) if isinstance(r, Read) and r.tensor == name]
            frame = Frame(domain.domain, self.values, self.ranges.boxes)
            for read in reads:
                elements = element_map(frame, name, read.subscripts).range()
                if read.boundary is not None or written is None or not elements.is_subset(written):
                    return False
            if statement.target == name:
                starts = statement.reduction is None or statement.initialise
                if not starts and written is None:
                    return False
                own = element_map(replace_domain(frame, domain.lhs), name, statement.subscripts).range()
                if not starts and not own.is_subset(written):
                    return False
                if starts:
                    written = own if written is None else written.union(own)
        return True


def replace_domain(frame: Frame, domain: isl.Set) -> Frame:
    """The frame over other instances."""
    return Frame(domain, frame.sizes, frame.boxes)


def _runs(numbers: Sequence[int], key: Callable[[int], int | None]) -> list[tuple[int | None, list[int]]]:
    """Neighbours with the same key."""
    runs: list[tuple[int | None, list[int]]] = []
    for number in numbers:
        own = key(number)
        if runs and runs[-1][0] == own:
            runs[-1][1].append(number)
        else:
            runs.append((own, [number]))
    return runs


def _block_at(statement: Statement, depth: int) -> int | None:
    return statement.steps[depth].number if len(statement.steps) > depth else None


def _homes(function: Function) -> list[int]:
    """The number of the piece of each statement: neighbours in the same blocks share one."""
    homes: list[int] = []
    for number, statement in enumerate(function.statements):
        before = function.statements[number - 1] if number else None
        same = before is not None and [s.number for s in before.steps] == [s.number for s in statement.steps]
        homes.append(homes[-1] + (not same) if homes else 0)
    return homes


def _users(function: Function, homes: Sequence[int]) -> dict[str, set[int]]:
    """For each tensor the pieces that touch it."""
    users: dict[str, set[int]] = {}
    for home, statement in zip(homes, function.statements, strict=True):
        users.setdefault(statement.target, set()).add(home)
        for expression in statement.expressions():
            for read in walk(expression):
                if isinstance(read, Read):
                    users.setdefault(read.tensor, set()).add(home)
    return users


def _inside(domain: StatementDomain, steps: tuple[str, ...]) -> StatementDomain:
    """The domain of a statement for given steps, which are parameters."""
    if not steps:
        return domain
    whole, lhs = _with_parameters(domain.domain, steps), _with_parameters(domain.lhs, steps)
    hull = {name: bounds for name, bounds in domain.hull.items() if name not in steps}
    return StatementDomain(domain.indices[len(steps) :], whole, lhs, hull, domain.rectangular)


def _with_parameters(points: isl.Set, steps: tuple[str, ...]) -> isl.Set:
    """The leading dimensions of a set as parameters."""
    name = points.get_tuple_name()
    rest = [points.get_dim_name(_SET, d) for d in range(len(steps), points.dim(_SET))]
    moved = points.reset_tuple_id().move_dims(_PARAM, 0, _SET, 0, len(steps))
    for position, step in enumerate(steps):
        moved = moved.set_dim_name(_PARAM, position, step_parameter(step))
    for position, index in enumerate(rest):
        moved = moved.set_dim_name(_SET, position, index)
    return moved.set_tuple_name(name)
