"""Kernels with open sizes: compiled once, run for arrays of any of these sizes."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tcomp.backends.source import Source
from tcomp.errors import CompileError, Diagnostic, ShapeError, TcompError
from tcomp.grammar.ranges.sizes import bind_sizes
from tcomp.grammar.ranges.symbolic import symbolic_ranges
from tcomp.grammar.tree.diagnostics import did_you_mean, refuse_steps
from tcomp.grammar.tree.function import Function, Size, Tensor, walk
from tcomp.model.opensizes import check_sizes_of
from tcomp.model.terms.sizes import SizeRange, Sizes
from tcomp.model.terms.storages import contiguous_strides
from tcomp.runtime.binding import Binding
from tcomp.runtime.calls import Call
from tcomp.runtime.fixedarguments import BoundProgram
from tcomp.runtime.kernel import Kernel, misfits
from tcomp.runtime.specialisation import Specialisation, strides_of
from tcomp.storage.forks import ISL
from tcomp.storage.memo import MOST_KEPT, Memo

TARGET = "cpu"
"""The one target whose kernels can have open sizes."""

SMALL = 8
"""Open sizes of which all are so many times smaller than the largest ones run a text with other tiles."""

LEAST = 16
"""There is no such text where no size would go as far."""


class OpenKernel(Kernel):
    """A program compiled for all values that some of its sizes may have, the others fixed.

    ``kernel(A, B)`` runs it.  The first call of each size runs inference for it, which takes a few milliseconds; no
    call compiles.  Where sizes go far apart, there is a second text with the tiles of ``small`` sizes: calls whose open
    sizes are all at most ``SMALL`` of the largest run that.
    """

    def __init__(self, specialisation: Specialisation, *, whole: bool = True) -> None:
        """Compile, or find the kernel in the cache; where it is not the ``whole``, it has no kernel for small sizes.

        Raises CompileError with the reason where sizes cannot be left open, and what compiling raises.
        """
        function, target = specialisation.function, specialisation.target
        refuse_steps(function, "its sizes cannot be left open", "give all sizes as numbers")
        if target != TARGET:
            message = f"{function.name}: sizes can be left open for the target {TARGET!r} only, not for {target!r}"
            raise CompileError(Diagnostic(message, hint="give all sizes as numbers"))
        super().__init__(specialisation)
        self._symbolic = symbolic_ranges(function)
        self._sized: Memo[Hashable, Source] = Memo(MOST_KEPT)
        smaller = _smaller(specialisation.sizes) if whole and specialisation.plan is None else None
        self.small: OpenKernel | None = None
        if smaller is not None:
            self.small = OpenKernel(replace(specialisation, sizes=smaller), whole=False)

    def __reduce__(self) -> tuple[type[OpenKernel], tuple[Specialisation]]:
        return OpenKernel, (self.specialisation,)

    @property
    def open_sizes(self) -> Mapping[str, SizeRange]:
        """The values of each open size for which the kernel is."""
        return self.specialisation.sizes.open

    def export(
        self, folder: str | Path, *, name: str | None = None, architectures: Sequence[str] | None = None
    ) -> tuple[Path, ...]:
        """Raises TcompError: what is written has fixed sizes."""
        raise TcompError(f"{self!r} has open sizes; export one with numbers for all of them")

    def bind(self, call: Call, layouts: tuple[Hashable, ...]) -> Binding:
        """How to run calls like this one.  Raises ShapeError if its arrays do not fit the kernel."""
        values = bind_sizes(call.function, call.shapes, call.constants)
        small = self._for_small(values)
        if small is not None:
            binding = small.bind(call, layouts)
        else:
            source = self._source_of(call, values)
            program = BoundProgram(self._program, tuple(values[name] for name in self.open_sizes), ())
            binding = Binding(source, program, call)
        if call.in_place and None not in layouts:
            self._bindings[layouts] = binding
        return binding

    def check(self, call: Call) -> None:
        """Raises ShapeError if the arrays of a call do not fit the kernel."""
        values = bind_sizes(call.function, call.shapes, call.constants)
        (self._for_small(values) or self)._source_of(call, values)

    def _for_small(self, values: Mapping[str, int]) -> OpenKernel | None:
        """The kernel for small sizes, if these are small."""
        small = self.small
        return small if small and all(values[name] in own for name, own in small.open_sizes.items()) else None

    def _source_of(self, call: Call, values: Mapping[str, int]) -> Source:
        """The kernel with the shapes of a call.  Raises ShapeError if its arrays do not fit."""
        shapes = {name: view.shape for name, view in call.views.items()}
        check_strides(self._function, self.open_sizes, shapes, strides_of(call.views))
        source = self._sized.get(tuple(values.items()), lambda: self._source_for(values))
        problems = list(misfits(self._function, source.called, call))
        if problems:
            raise ShapeError(*problems)
        return source

    def _source_for(self, values: Mapping[str, int]) -> Source:
        """The kernel with the shapes that its arguments have for given sizes.  Raises ShapeError."""
        check_open(self._function, self.open_sizes, values)
        for name, value in self.specialisation.sizes.values.items():
            if name not in self.open_sizes and values[name] != value:
                raise ShapeError(f"{self._function.name}: {name} is {values[name]}, but the kernel is for {value}")
        with ISL.value:
            boxes = check_sizes_of(self._function, self._symbolic, values).boxes
        arguments = []
        for argument in self._source.arguments:
            shape = boxes[argument.name].extent if argument.name in boxes else argument.shape
            strides = argument.strides
            if strides == contiguous_strides(argument.shape):
                strides = contiguous_strides(shape)
            arguments.append(replace(argument, shape=shape, strides=strides))
        checks = [
            replace(check, extent=boxes[check.tensor].extent[check.dimension]) if check.tensor in boxes else check
            for check in self._source.checks
        ]
        return replace(self._source, arguments=tuple(arguments), checks=tuple(checks))


def _smaller(sizes: Sizes) -> Sizes | None:
    """The same for small open sizes only; None where all are about as large."""
    ranges = {
        name: replace(own, last=own.last // SMALL // own.multiple * own.multiple) for name, own in sizes.open.items()
    }
    if not all(own.first <= own.last for own in ranges.values()) or max(own.last for own in ranges.values()) < LEAST:
        return None
    return replace(sizes, values={**sizes.values, **{name: own.last for name, own in ranges.items()}}, open=ranges)


def check_open(function: Function, ranges: Mapping[str, SizeRange], values: Mapping[str, int]) -> None:
    """Raises ShapeError for values that open sizes may not have."""
    wrong = [name for name, own in ranges.items() if values[name] not in own]
    if wrong:
        raise ShapeError(*(f"{function.name}: {name} is {values[name]}, but may be {ranges[name]}" for name in wrong))


def open_sizes(function: Function, given: Mapping[str, object]) -> dict[str, SizeRange]:
    """Ranges of sizes by name, checked.  Raises ShapeError."""
    for name, own in given.items():
        if name not in function.sizes:
            hint = did_you_mean(name, function.sizes) or f"its sizes are ({', '.join(function.sizes)})"
            raise ShapeError(Diagnostic(f"{function.name} has no size {name} that could be open", hint=hint))
        if not isinstance(own, SizeRange):
            raise ShapeError(f"{name} is left open by tcomp.range(first, last), not by {own!r}")
    return {name: own for name, own in given.items() if isinstance(own, SizeRange)}


def size_range(first: int, last: int, *, multiple: int = 1) -> SizeRange:
    """The values from ``first`` to ``last``, both included, that a size may have which is left open.

    Args:
        multiple: they are multiples of this number.

    Raises:
        ShapeError: there is no such value, or ``first`` is below 1.
    """
    numbers = (first, last, multiple)
    if not all(isinstance(n, int) and not isinstance(n, bool) and n >= 1 for n in numbers):
        raise ShapeError(f"the bounds of an open size are integers of at least 1, not {numbers}")
    own = SizeRange(-(-first // multiple) * multiple, last // multiple * multiple, multiple)
    if own.first > own.last:
        raise ShapeError(f"there is no multiple of {multiple} from {first} to {last}")
    return own


def check_strides(
    function: Function,
    ranges: Mapping[str, SizeRange],
    shapes: Mapping[str, tuple[int, ...]],
    strides: Mapping[str, tuple[int, ...]],
) -> None:
    """Raises ShapeError for arrays whose rows lie in one another where the number of rows is open.

    ``strides`` has, in elements, those of arrays that are not in C order.
    """
    for name, own in strides.items():
        tensor = function.tensors[name]
        if name not in shapes or not _is_open(tensor, ranges):
            continue
        row = sum((n - 1) * abs(s) for n, s in zip(shapes[name][1:], own[1:], strict=True)) + 1
        if own[0] < row:
            message = f"{tensor.role} {name}: its rows do not lie one behind the other"
            raise ShapeError(Diagnostic(message, function.source, tensor.span, "pass a copy in C order"))


def _is_open(tensor: Tensor, ranges: Mapping[str, SizeRange]) -> bool:
    return any(isinstance(e, Size) and e.name in ranges for e in walk(tensor.dims[0])) if tensor.dims else True
