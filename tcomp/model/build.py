"""``Function`` and sizes to ``Scop``: domains, accesses and single-assignment storages.

Every statement evaluates its right-hand side on the values from before it.  That is kept by renaming: a full
redefinition makes a new version of its tensor; a reduction accumulates into a storage of its own, which a ``finish``
statement then stores (converted, if sums accumulate wider) unless a later redefinition makes that store useless; a
statement that reads its own target elsewhere computes into a temporary first.  So only partial writes and the caller's
``out=`` arrays ever share memory between versions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import islpy as isl

from tcomp.grammar.ranges.ranges import Box, Ranges, StatementDomain, infer
from tcomp.grammar.tree.diagnostics import refuse_steps
from tcomp.grammar.tree.function import (
    Binary,
    Cast,
    Constant,
    Expr,
    Function,
    Index,
    Read,
    Statement,
    Tensor,
    boxed,
    depends_on_data,
    map_children,
    walk,
    with_indices,
)
from tcomp.model.accesses import Frame, box_set, element_map, prune_reads, reads_with_subscripts
from tcomp.model.around import Around
from tcomp.model.bindingtime import part_of
from tcomp.model.opensizes import open_program, prove_inside
from tcomp.model.scattering import Points, gathered, points_of
from tcomp.model.scop import Scop, ScopStatement, names_elements
from tcomp.model.shares import Shares, shares_of
from tcomp.model.terms.sizes import Sizes
from tcomp.model.terms.storages import OpenBox, Storage, contiguous_strides
from tcomp.model.terms.unions import storage_of
from tcomp.values.operators import INT64, REDUCTIONS, DType


def build(function: Function, sizes: Sizes) -> Scop:
    """The model of a function at fixed sizes, or of a part of it.

    Raises ShapeError and CompileError as range inference does.
    """
    refuse_steps(function, "that has a model piece by piece only", f"`{function.name}.reference(...)` runs it in NumPy")
    if sizes.open:
        program = open_program(function, sizes)
        scop = Builder(program.function, sizes, program.ranges, program.around, program.boxes).build()
        prove_inside(function, scop)
        return scop
    whole = Builder(function, sizes, infer(function, sizes.values)).build()
    return whole if sizes.part is None else part_of(whole, sizes.part)


@dataclass(frozen=True, slots=True)
class _Version:
    """What a statement does to its target: the version it writes, and whether it replaces all that was there."""

    number: int
    full: bool
    image: isl.Set


class Builder:
    """Makes the model of a function, or of a piece of one, of whose domains the steps ``around`` it are parameters.

    ``opened`` are the boxes of tensors where these steps are open sizes.
    """

    def __init__(
        self,
        function: Function,
        sizes: Sizes,
        ranges: Ranges,
        around: Around | None = None,
        opened: Mapping[str, OpenBox] | None = None,
    ) -> None:
        self.function = function
        self.sizes = sizes
        self.ranges = ranges
        self.around = around
        self.opened = {n: box for n, box in (opened or {}).items() if any(e is not None for e in box.extents)}
        self.tensors = function.tensors
        self.storages: dict[str, Storage] = {}
        self.boxes: dict[str, Box] = {}
        self.statements: list[ScopStatement] = []
        self.current: dict[str, str] = {}
        self.versions = self._number_versions()
        self.last_version = {s.target: v.number for s, v in zip(function.statements, self.versions, strict=True)}

    def build(self) -> Scop:
        for tensor in self.function.inputs:
            if tensor.role == "input":
                self._declare(tensor.name, tensor.dtype, self.ranges.boxes[tensor.name], "input")
                self.current[tensor.name] = tensor.name
        for tensor in self.function.outputs:
            role = "inout" if tensor.name in self.function.needs_content else "output"
            self._declare(tensor.name, tensor.dtype, self.ranges.boxes[tensor.name], role)
            if role == "inout":
                self.current[tensor.name] = tensor.name
        for number, statement in enumerate(self.function.statements):
            self._translate(number, statement)
        warnings = tuple(map(str, self.ranges.warnings))
        return Scop(self.storages, tuple(self.statements), self.sizes.values, warnings, self.around)

    def _number_versions(self) -> list[_Version]:
        written: dict[str, isl.Set] = {}
        number: dict[str, int] = {}
        versions = []
        for statement, domain in zip(self.function.statements, self.ranges.domains, strict=True):
            name = statement.target
            frame = Frame(domain.lhs, self.sizes.values, self.ranges.boxes)
            image = element_map(frame, name, statement.subscripts).range()
            there = self.opened[name].elements if name in self.opened else box_set(name, self.ranges.boxes[name])
            if any(map(depends_on_data, statement.subscripts)):
                image = image.intersect(there)
            if name not in written:
                content = name in self.function.needs_content
                written[name] = there if content else isl.Set.empty(image.get_space())
            full = bool(written[name].is_subset(image))
            number[name] = number.get(name, 0) + full
            written[name] = written[name].union(image).coalesce()
            versions.append(_Version(number[name], full, image))
        return versions

    def _declare(self, name: str, dtype: DType, box: Box, role: str, tensor: str = "") -> str:
        strides = self.sizes.strides.get(name) if role != "temporary" else None
        strides = contiguous_strides(box.extent) if strides is None else strides
        opened = self.opened.get(tensor or name)
        self.storages[name] = Storage(name, dtype, box, role, strides, opened=opened)
        self.boxes[name] = box
        return name

    def _temporary(self, name: str, dtype: DType, box: Box, tensor: str = "") -> str:
        while name in self.storages or name in self.tensors:
            name += "_"
        return self._declare(name, dtype, box, "temporary", tensor)

    def _target_storage(self, tensor: Tensor, version: _Version) -> str:
        """Where the version that a statement writes lives."""
        name = tensor.name
        if not version.full and name in self.current:
            return self.current[name]
        if tensor.role == "output" and version.number == self.last_version[name]:
            return name
        return self._temporary(f"{name}_{version.number}", tensor.dtype, self.ranges.boxes[name], name)

    def _translate(self, number: int, statement: Statement) -> None:
        domain = self.ranges.domains[number]
        version = self.versions[number]
        tensor = self.tensors[statement.target]
        value = boxed(_rename(statement.value, self.current), domain.hull)
        statement = replace(statement, subscripts=tuple(_rename(s, self.current) for s in statement.subscripts))
        if statement.reduction is not None:
            self._reduction(number, statement, domain, version, value)
            return
        target = self._target_storage(tensor, version)
        if _reads_elsewhere(value, target, statement.subscripts) and not (
            self.around and self._is_apart(domain, target, statement, value)
        ):
            scratch = self._temporary(f"{tensor.name}_new{number}", tensor.dtype, _hull(version.image))
            self._add(
                f"S{number}", "assign", domain.domain, statement.indices, scratch, statement.subscripts, value, number
            )
            self._finish(number, scratch, target, version, tensor.dtype)
        else:
            self._add(
                f"S{number}", "assign", domain.domain, statement.indices, target, statement.subscripts, value, number
            )
        self.current[tensor.name] = target

    def _is_apart(self, domain: StatementDomain, target: str, statement: Statement, value: Expr) -> bool:
        """Whether no instance of a step writes what another one of the same step reads."""
        frame = Frame(domain.domain, self.sizes.values, self.boxes)
        write = element_map(frame, target, statement.subscripts)
        reads = [r for r in reads_with_subscripts(frame, value, ()) if storage_of(r) == target]
        return all(
            r.apply_range(write.reverse()).is_subset(isl.Map.identity(r.get_space().domain().map_from_set()))
            for r in reads
        )

    def _reduction(
        self, number: int, statement: Statement, domain: StatementDomain, version: _Version, value: Expr
    ) -> None:
        points = None if self.around else points_of(statement, domain, self.sizes.values)
        if points is not None:
            self._scattered(number, statement, points, version, value)
            return
        elements = math.prod(_hull(version.image).extent)
        shares = None if self.around else shares_of(statement, domain, elements)
        if shares is not None:
            self._shared(number, shares, domain, version, value)
            return
        tensor = self.tensors[statement.target]
        assert statement.reduction is not None
        final = tensor.role == "output" and version.number == self.last_version[tensor.name]
        stays = version.full and statement.accumulator == tensor.dtype and (not final or self._in_place(statement))
        box = self.ranges.boxes[tensor.name] if stays else _hull(version.image)
        if stays and final:
            accumulator = tensor.name
        else:
            chosen = tensor.name if statement.scatters else ""
            accumulator = self._temporary(f"{tensor.name}_acc{number}", statement.accumulator, box, chosen)
        element_domain = domain.lhs
        plain = names_elements(statement.subscripts, statement.indices)
        if plain:
            indices, subscripts = statement.indices[: len(statement.subscripts)], statement.subscripts
            init_domain = element_domain
        else:
            indices, subscripts = _element_indices(statement)
            init_domain = version.image
        start: Expr = Constant(
            REDUCTIONS[statement.reduction].identity(statement.accumulator), statement.accumulator, statement.span
        )
        if not statement.initialise:
            read = Read(self.current[tensor.name], subscripts, tensor.dtype, statement.span)
            start = _convert(read, statement.accumulator)
            if statement.scatters and start is read:
                start = self._made_here(read, init_domain, [value, *statement.subscripts])
        self._add(f"S{number}i", "init", init_domain, indices, accumulator, subscripts, start, number)
        self._add(
            f"S{number}", "update", domain.domain, statement.indices, accumulator, statement.subscripts, value, number,
            statement.reduction,
        )  # fmt: skip
        if stays:
            self.current[tensor.name] = accumulator
            return
        target = self._target_storage(tensor, version)
        self._finish(
            number, accumulator, target, version, tensor.dtype, None if not plain else (element_domain, indices)
        )
        self.current[tensor.name] = target

    def _made_here(self, read: Read, elements: isl.Set, others: Sequence[Expr]) -> Expr:
        """What stands for the read of all elements of a storage; where one statement makes them for it, what that does.

        The accumulator of a scatter holds whole rows, which would be written twice.
        """
        storage = self.storages[read.tensor]
        makers = [s for s in self.statements if s.target == storage.name]
        used = [e for expr in others for e in walk(expr) if isinstance(e, Read) and e.tensor == storage.name]
        used += [r for s in self.statements for r in s.all_reads if storage_of(r) == storage.name]
        if storage.role != "temporary" or len(makers) != 1 or used:
            return read
        maker = makers[0]
        rank = len(read.subscripts)
        if maker.kind != "assign" or not maker.plain or len(maker.indices) != rank or maker.value.dtype != read.dtype:
            return read
        if not elements.reset_tuple_id().is_equal(maker.write.range().reset_tuple_id()):
            return read
        self.statements.remove(maker)
        del self.storages[storage.name]
        return with_indices(maker.value, dict(zip(maker.indices, read.subscripts, strict=True)))

    def _shared(
        self, number: int, shares: Shares, domain: StatementDomain, version: _Version, value: Expr
    ) -> None:  # fmt: skip
        """A reduction whose elements data choose: what each share of steps gives, then the shares of each element."""
        statement = shares.statement
        tensor, span, dtype = self.tensors[statement.target], statement.span, statement.accumulator
        assert statement.reduction is not None
        hull, first = _hull(version.image), f"S{number}s"
        box = Box((0, *hull.origin), (shares.count, *hull.extent))
        parts = self._temporary(f"{tensor.name}_shares{number}", dtype, box)
        identity = Constant(REDUCTIONS[statement.reduction].identity(dtype), dtype, span)
        elements, subscripts = _element_indices(statement)
        share, every = Index(shares.share, INT64, span), isl.Set(f"{{ [s] : 0 <= s < {shares.count} }}")
        image = version.image.reset_tuple_id()
        self._add(
            f"{first}i", "init", every.flat_product(image), (shares.share, *elements), parts, (share, *subscripts),
            identity, number,
        )  # fmt: skip
        places = (share, *map(shares.moved, statement.subscripts))
        self._add(
            first, "update", shares.domain(domain.domain), shares.indices, parts, places, shares.moved(value), number,
            statement.reduction, shares.reported,
        )  # fmt: skip
        accumulator = self._temporary(f"{tensor.name}_acc{number}", dtype, hull)
        start: Expr = identity
        if not statement.initialise:
            start = _convert(Read(self.current[tensor.name], subscripts, tensor.dtype, span), dtype)
        self._add(f"S{number}i", "init", image, elements, accumulator, subscripts, start, number)
        read = Read(parts, (share, *subscripts), dtype, span)
        self._add(
            f"S{number}", "update", image.flat_product(every), (*elements, shares.share), accumulator, subscripts, read,
            number, statement.reduction,
        )  # fmt: skip
        target = self._target_storage(tensor, version)
        self._finish(number, accumulator, target, version, tensor.dtype)
        self.current[tensor.name] = target

    def _in_place(self, statement: Statement) -> bool:
        """Whether an output can be reduced into where it lies: data choose its elements, and nothing lies there yet.

        Elsewhere an accumulator is a register or a part of a tile; of this one, all elements are needed at once.
        """
        return statement.scatters and statement.target not in self.current.values()

    def _scattered(
        self, number: int, statement: Statement, points: Points, version: _Version, value: Expr
    ) -> None:  # fmt: skip
        """A reduction whose points are spread over elements: what each contributes, then the points of each element."""
        tensor, span, dtype = self.tensors[statement.target], statement.span, statement.accumulator
        assert statement.reduction is not None
        identity = Constant(REDUCTIONS[statement.reduction].identity(dtype), dtype, span)
        first = f"S{number}t" if points.meet else f"S{number}"
        box = Box(*zip(*(points.bounds[i] for i in points.indices), strict=True))
        kept = self._temporary(f"{tensor.name}_points{number}", dtype, box)
        subscripts: tuple[Expr, ...] = tuple(Index(i, INT64, span) for i in points.indices)
        indices = (*points.indices, *points.steps)
        self._add(f"{first}i", "init", points.box(points.indices), points.indices, kept, subscripts, identity, number)
        self._add(
            first, "update", points.box(indices), indices, kept, subscripts, value, number, statement.reduction
        )  # fmt: skip
        indices, domain, elements = points.indices, points.box(points.indices), statement.subscripts
        if points.meet:
            found = gathered(points, span)
            indices, domain, elements = found.indices, found.domain, found.elements
            read = Read(kept, found.points, dtype, span)
            count = len(indices)
            kept = self._temporary(f"{tensor.name}_acc{number}", dtype, Box((0,) * count, found.extents[:count]))
            subscripts = tuple(Index(i, INT64, span) for i in indices)
            self._add(f"S{number}i", "init", found.every(count), indices, kept, subscripts, identity, number)
            self._add(
                f"S{number}", "update", found.instances, (*indices, *found.steps), kept, subscripts,
                read, number, statement.reduction,
            )  # fmt: skip
        result: Expr = Read(kept, subscripts, dtype, span)
        if not statement.initialise:
            before = Read(self.current[tensor.name], elements, tensor.dtype, span)
            result = Binary(statement.reduction, _convert(before, dtype), result, dtype, span)
        target = self._target_storage(tensor, version)
        self._add(f"S{number}f", "finish", domain, indices, target, elements, _convert(result, tensor.dtype), number)
        self.current[tensor.name] = target

    def _finish(
        self, number: int, source: str, target: str, version: _Version, dtype: DType,
        plain: tuple[isl.Set, tuple[str, ...]] | None = None,
    ) -> None:  # fmt: skip
        statement = self.function.statements[number]
        if plain is None:
            domain = version.image
            indices, subscripts = _element_indices(statement)
        else:
            domain, indices = plain
            subscripts = statement.subscripts
        value = _convert(Read(source, subscripts, self.storages[source].dtype, statement.span), dtype)
        self._add(f"S{number}f", "finish", domain, indices, target, subscripts, value, number)

    def _add(
        self, name: str, kind: str, domain: isl.Set, indices: tuple[str, ...], target: str,
        subscripts: tuple[Expr, ...], value: Expr, origin: int, reduction: str | None = None,
        renumbered: tuple[tuple[str, Expr], ...] = (),
    ) -> None:  # fmt: skip
        if domain.is_empty():
            return
        domain = domain.set_tuple_name(name)
        for position, index in enumerate(indices):
            domain = domain.set_dim_name(isl.dim_type.set, position, index)
        frame = Frame(domain, self.sizes.values, self.boxes)
        write = element_map(frame, target, subscripts)
        read = {e.tensor for e in walk(value) if isinstance(e, Read)}
        temporaries = {name for name in read if self.storages[name].role == "temporary"}
        value, reads = prune_reads(value, reads_with_subscripts(frame, value, subscripts), temporaries)
        self.statements.append(
            ScopStatement(
                name,
                kind,
                domain,
                indices,
                target,
                subscripts,
                value,
                reduction,
                write,
                reads,
                origin,
                renumbered=renumbered,
            )
        )


def _element_indices(statement: Statement) -> tuple[tuple[str, ...], tuple[Expr, ...]]:
    """Fresh indices that range over the elements of a statement's target."""
    names = tuple(f"e{d}" for d in range(len(statement.subscripts)))
    return names, tuple(Index(n, INT64, statement.span) for n in names)


def _hull(elements: isl.Set) -> Box:
    """The smallest box around a set of elements; extents are 0 where the set is empty."""
    rank = elements.dim(isl.dim_type.set)
    if elements.is_empty():
        return Box((0,) * rank, (0,) * rank)
    low = [elements.dim_min_val(d).to_python() for d in range(rank)]
    high = [elements.dim_max_val(d).to_python() for d in range(rank)]
    return Box(tuple(low), tuple(h - m + 1 for m, h in zip(low, high, strict=True)))


def _convert(expr: Expr, dtype: DType) -> Expr:
    return expr if expr.dtype == dtype else Cast(expr, dtype, expr.span)


def _reads_elsewhere(value: Expr, storage: str, subscripts: tuple[Expr, ...]) -> bool:
    return any(isinstance(e, Read) and e.tensor == storage and e.subscripts != subscripts for e in walk(value))


def _rename(expr: Expr, names: dict[str, str]) -> Expr:
    """The expression with every read redirected to the current version of its tensor."""
    renamed = map_children(expr, lambda child: _rename(child, names))
    return replace(renamed, tensor=names[renamed.tensor]) if isinstance(renamed, Read) else renamed
