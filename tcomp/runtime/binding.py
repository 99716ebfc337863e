"""The fast way to call a kernel again: with arrays of layouts that were checked before."""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tcomp.arrays.arrays import kind_of
from tcomp.arrays.devices import Place
from tcomp.arrays.kinds import NUMPY, ArrayKind, View
from tcomp.arrays.matching import TensorSigns
from tcomp.backends.runtime import ArrayFacts, CallLayout, DirectBinding, Program, QuickRun, Site
from tcomp.backends.source import IndexCheck, Source
from tcomp.errors import Diagnostic, ShapeError, Span, TcompError
from tcomp.grammar.tree.function import Function
from tcomp.model.dataranges import describe_range
from tcomp.runtime.arguments import byte_range, share_memory
from tcomp.runtime.calls import Call, Outputs
from tcomp.runtime.matched import GivenResults, MatchedRun
from tcomp.storage.memo import MOST_KEPT, Recent
from tcomp.values.operators import UINT8

MOST_RECENT = 4
"""Direct calls that are tried."""


class MisalignedArgumentError(ShapeError):
    """An array is laid out as the one that was checked, but its address is no multiple of the size of its elements."""


class Binding:
    """A kernel, and how to get addresses out of arrays that are laid out as those of ``call``."""

    __slots__ = (
        "_addresses",
        "_all_given",
        "_checks",
        "_function",
        "_inputs",
        "_launch",
        "_makers",
        "_masks",
        "_names",
        "_near",
        "_notes",
        "_run",
        "_views",
    )

    def __init__(self, source: Source, program: Program, call: Call) -> None:
        """Raises TargetError if the program does not run where the arrays are."""
        self._checks = source.checks
        self._function = call.function
        failure = functools.partial(failure_of, call.function, source.checks)
        self._run = program.at(site_of(call.kind, call.place, failure))
        self._launch = self._run.__call__
        self._names = tuple(f"{'input' if a.role == 'input' else 'output'} {a.name}" for a in source.called)
        self._masks = tuple(a.dtype.itemsize - 1 for a in source.called)
        taken = [
            (position, kind_of(array))
            for position, (tensor, array) in enumerate(zip(call.function.inputs, call.arrays, strict=True))
            if tensor.role != "const"
        ]
        given = [call.kind if array is None else kind_of(array) for array in call.outputs]
        self._addresses = _addresses(taken, given, len(call.arrays))
        self._notes = tuple(kind.note_change for kind in given)
        self._all_given = all(array is not None for array in call.outputs)
        self._inputs = len(taken)
        outputs = source.called[self._inputs :]
        self._makers = tuple(call.kind.maker(a.shape, a.dtype, call.place) for a in outputs)
        self._views = tuple(
            call.views.get(a.name, View(a.dtype, a.shape, a.strides, 0, True, call.place)) for a in source.called
        )
        self._near = _near([byte_range(replace(view, address=0)) for view in self._views], self._inputs)

    def run(self, arrays: Sequence[Any], outputs: Outputs | None) -> Outputs:
        """Call the kernel.  ``outputs`` has None for what is to be made, or is None if all is.  Returns the outputs.

        On a device, kernels run on the current stream of the library of the call's first array, and may still be
        running when this returns; what their checks find is raised by a later call, or by ``tcomp.synchronize``.

        Raises MisalignedArgumentError for an array that can only be read from a copy.  Raises ShapeError for an output
        that cannot be written or shares memory with another argument, for want of memory, and for a data-dependent
        subscript outside its tensor; in the last case outputs are written in part.  Raises TcompError for what the
        device complains of.
        """
        results = self._made(outputs)
        addresses = self._addresses(arrays, results)
        if outputs is not None:
            self._check_outputs(addresses, results)
        if any(map(operator.and_, addresses, self._masks)):
            raise MisalignedArgumentError("an array is not aligned to the size of its elements; pass a copy of it")
        report = self._launch(addresses)
        if outputs is not None:
            for note, array, given in zip(self._notes, results, outputs, strict=True):
                if note is not None and given is not None:
                    note(array)
        if report is not None:
            raise self._failure(report)
        return results

    def run_call(self, call: Call) -> Any:
        """Run a call as it was checked, and return what its caller gets.  Raises what ``run`` does.

        A CUDA graph that records the call reads copies of its arguments whenever it runs.  They stay, but copies of
        Python numbers come from where these lie meanwhile: TcompError is raised.
        """
        results = self.run(call.arrays, call.outputs)
        if not call.in_place and self._run.keep(call.arrays) and call.numbers:
            what = f"the number that was passed for {' and '.join(call.numbers)}"
            hint = "pass an array on the device, of no dimensions"
            raise TcompError(Diagnostic(f"a CUDA graph cannot record {what}", hint=hint))
        return call.finish(results)

    def _made(self, outputs: Outputs | None) -> Outputs:
        """The outputs, those that are missing made.  Raises ShapeError for want of memory."""
        try:
            if outputs is None:
                return tuple([make() for make in self._makers])
            if self._all_given:
                return outputs
            pairs = zip(self._makers, outputs, strict=True)
            return tuple([given if given is not None else make() for make, given in pairs])
        except (MemoryError, ValueError, RuntimeError) as error:
            raise self._run.failure(error) from None

    def direct(self, arguments: tuple[Any, ...], results: Outputs, *, given: bool) -> DirectBinding | None:
        """How to call the kernel again on arrays like these, none of which is a copy; None if there is no way.

        Arrays are all of one library.  The results were ``given`` to the call, or made by it.
        """
        if not given:
            found = self.quick(arguments, results, recorded=False)
            return None if found is None else found.binding()
        kind = _one_kind(arguments, results)
        if kind is None:
            return None
        run = self._run_of(arguments, results, kind, kind.signs(_arrays((*arguments, *results)), recorded=False), True)
        if run is not None:
            return run.binding()
        match = kind.matcher((*arguments, *results), self._masks, recorded=False)
        if match is None:
            return None
        single, note = len(results) == 1, kind.note_change
        return GivenResults(match, self._launch, self._failure, len(arguments), single, self._near, note).binding()

    def matched_run(self, arguments: tuple[Any, ...], results: Outputs, *, given: bool) -> DirectBinding | None:
        """The same where nobody records the call, and where only the library of the arrays can tell."""
        kind = _one_kind(arguments, results)
        if given or kind is None or kind is NUMPY:
            return None
        found = self.quick(arguments, results, recorded=None)
        return None if found is None else found.binding()

    def quick(
        self, arguments: tuple[Any, ...], results: Outputs, *, recorded: bool | None, copied: Sequence[int] = ()
    ) -> QuickRun | None:
        """How to run the kernel on arguments like these, with new results; see ``ArrayKind.matcher`` for ``recorded``.

        Arguments at the places that are ``copied`` are not in C order, as the kernel wants them.  None if there is no
        way.
        """
        kind = _one_kind(arguments, results)
        if kind is None:
            return None
        signs = kind.signs(_arrays(arguments), recorded=recorded)
        run = self._run_of(arguments, results, kind, signs, False, copied)
        if run is not None or copied:
            return run
        match = kind.matcher(arguments, self._masks[: self._inputs], recorded=recorded)
        if match is None:
            return None
        places = tuple(n for n, a in enumerate(arguments) if type(a) is not int)
        return MatchedRun(match, self._of_addresses(kind), places, kind.address)

    def _run_of(
        self,
        arguments: tuple[Any, ...],
        results: Outputs,
        kind: ArrayKind,
        signs: TensorSigns | None,
        given: bool,
        copied: Sequence[int] = (),
    ) -> QuickRun | None:
        """What looks at the arrays itself, where there is such a thing."""
        if signs is None and any(type(a) is not np.ndarray for a in _arrays((*arguments, *results))):
            return None
        inputs = [(n, a) for n, a in enumerate(arguments) if type(a) is not int]
        pairs = list(zip((*inputs, *enumerate(results)), self._views, self._masks, strict=True))
        facts = [_facts(*place, mask, view, signs) for place, view, mask in pairs]
        for number, ((position, array), view, mask) in enumerate(pairs[: len(inputs)]):
            if position in copied:
                strides = tuple(stride * (mask + 1) for stride in array.stride())
                count = math.prod(view.shape) * (mask + 1)
                facts[number] = replace(facts[number], shape=view.shape, strides=strides, copied=count)
        constants = tuple((n, a) for n, a in enumerate(arguments) if type(a) is int)
        layout = CallLayout(
            len(arguments), tuple(facts[: len(inputs)]), tuple(facts[len(inputs) :]), constants, self._makers,
            self._failure, signs, None if signs is None else given, kind.note_change,
        )  # fmt: skip
        return self._run.direct(layout)

    def _of_addresses(self, kind: ArrayKind) -> Callable[[tuple[int, ...]], Any]:
        """What runs the kernel on arrays at some addresses, and gives the results."""
        address, launch, make = kind.address_of_new, self._launch, self._makers[0]
        if len(self._makers) > 1:

            def run_several(addresses: tuple[int, ...]) -> Any:
                made = self._made(None)
                report = launch((*addresses, *map(address, made)))
                if report is not None:
                    raise self._failure(report)
                return made

            return run_several

        def run(addresses: tuple[int, ...]) -> Any:
            try:
                made = make()
            except (MemoryError, ValueError, RuntimeError) as error:
                raise self._run.failure(error) from None
            report = launch((*addresses, address(made)))
            if report is not None:
                raise self._failure(report)
            return made

        return run

    def _check_outputs(self, addresses: Sequence[int], results: Outputs) -> None:
        """Raises ShapeError if an output is read-only or has a byte in common with another argument."""
        for name, array in zip(self._names[self._inputs :], results, strict=True):
            if isinstance(array, np.ndarray) and not array.flags.writeable:
                raise ShapeError(f"{name}: the array is read-only")
        for later, earlier, least, most in self._near:
            if least < addresses[earlier] - addresses[later] < most and self._overlap(addresses, earlier, later):
                one, other = self._names[later], self._names[earlier]
                raise ShapeError(f"{one} shares memory with {other}; pass arrays of their own")

    def _overlap(self, addresses: Sequence[int], one: int, other: int) -> bool:
        return share_memory(
            replace(self._views[one], address=addresses[one]), replace(self._views[other], address=addresses[other])
        )

    def _failure(self, report: Sequence[int]) -> TcompError:
        return failure_of(self._function, self._checks, report)


def _arrays(values: Sequence[Any]) -> list[Any]:
    return [a for a in values if type(a) is not int]


def _one_kind(arguments: Sequence[Any], results: Outputs) -> ArrayKind | None:
    """The library of the arrays, if that is one."""
    kinds = {kind_of(a) for a in _arrays((*arguments, *results))}
    return kinds.pop() if len(kinds) == 1 else None


def _facts(position: int, array: Any, mask: int, view: View, signs: TensorSigns | None) -> ArrayFacts:
    low, high = byte_range(replace(view, address=0))
    if signs is not None:
        return ArrayFacts(position, type(array), mask, low, high)
    return ArrayFacts(position, array.dtype, mask, low, high, array.shape, array.strides)


def failure_of(function: Function, checks: Sequence[IndexCheck], report: Sequence[int]) -> TcompError:
    """The error of a kernel that reports that a check failed."""
    if not 0 <= report[0] < len(checks):
        return TcompError(f"the kernel reports on check {report[0]} of {len(checks)}")
    check = checks[report[0]]
    place = dict(zip(check.indices, report[3:], strict=False))
    message = describe_failure(function, check, report[1], place)
    return ShapeError(Diagnostic(message, function.source, Span(check.start, check.end)))


def _addresses(
    taken: Sequence[tuple[int, ArrayKind]], given: Sequence[ArrayKind], count: int
) -> Callable[[Sequence[Any], Outputs], list[int]]:
    """What gets the addresses out of the arguments of a call, of which there are ``count``, and its results.

    ``taken`` are the positions of the arguments that are arrays, and their libraries, ``given`` those of the results.
    """
    kinds = {kind for _, kind in taken} | set(given)
    if len(kinds) == 1 and len(taken) == count:
        (kind,) = kinds
        address = kind.address
        return lambda arrays, results: [*map(address, arrays), *map(address, results)]

    def mixed(arrays: Sequence[Any], results: Outputs) -> list[int]:
        inputs = [kind.address(arrays[position]) for position, kind in taken]
        return inputs + [kind.address(array) for kind, array in zip(given, results, strict=True)]

    return mixed


def _near(ranges: Sequence[tuple[int, int]], inputs: int) -> tuple[tuple[int, int, int, int], ...]:
    """For each output and each argument before it: both numbers, and between which bounds, both excluded, the distance
    from the one's address to the other's lies if they have a byte in common.

    ``ranges`` are the bytes of each argument, relative to its address.
    """
    return tuple(
        (later, earlier, ranges[later][0] - ranges[earlier][1], ranges[later][1] - ranges[earlier][0])
        for later in range(inputs, len(ranges))
        for earlier in range(later)
    )


class QuickCalls:
    """The direct calls of a program, of which the last few are tried before anything else.

    ``recent`` has what was chosen beside the arguments, and the call.
    """

    __slots__ = ("_known", "recent")

    def __init__(self) -> None:
        self._known: Recent[tuple[Hashable, ...], DirectBinding | None] = Recent(MOST_KEPT)
        self.recent: tuple[tuple[tuple[Hashable, ...], DirectBinding], ...] = ()

    def remember(
        self, chosen: tuple[Hashable, ...], layouts: tuple[Hashable, ...],
        make: Callable[..., DirectBinding | None], arguments: tuple[Any, ...], results: Outputs,
    ) -> None:  # fmt: skip
        """Next time try first what runs a call that has just run, on arrays read and written in place.

        ``make`` makes it of arguments and results, and whether these were given; so ``layouts`` begin, too.
        """
        key = (*chosen, *layouts)
        found = self._known.get(key)
        if key not in self._known:
            found = self._known[key] = make(arguments, results, given=bool(layouts[0]))
        if found is not None:
            self.add(chosen, found)

    def again(self, target: object, options: object, unchecked: object, arguments: tuple[Any, ...]) -> Any:
        """What one of the last few calls gives where the same was chosen and these arguments fit; else None."""
        for chosen, direct in self.recent:
            if chosen[0] is target and chosen[1] is options and chosen[2] is unchecked:
                result = direct(arguments, None)
                if result is not None:
                    return result
        return None

    def add(self, chosen: tuple[Hashable, ...], direct: DirectBinding) -> None:
        """Try a call first from now on."""
        others = [entry for entry in self.recent if entry[1] is not direct]
        self.recent = ((chosen, direct), *others[: MOST_RECENT - 1])


def site_of(kind: ArrayKind, place: Place, failure: Callable[[Sequence[int]], TcompError]) -> Site:
    """Where a kernel runs whose arrays are of a library, and lie at a place; ``failure`` is what its reports mean."""

    def allocate(count: int) -> tuple[int, object]:
        memory = kind.empty((count,), UINT8, place)
        return kind.address(memory), memory

    return Site(place, kind.stream_at(place), allocate, failure)


def _accessed(function: Function, check: IndexCheck) -> tuple[str, int]:
    """The tensor of the program whose subscript is checked, and which: a kernel may keep it in another form."""
    place = Span(check.start, check.end)
    found = ((tensor, dimension) for tensor, dimension, s in function.accesses() if s.span == place)
    return next(found, (check.tensor, check.dimension))


def describe_failure(function: Function, check: IndexCheck, value: int, place: Mapping[str, int]) -> str:
    """What a kernel found wrong with a data-dependent subscript, and where: ``place`` holds the indices."""
    at = ", ".join(f"{name} = {index}" for name, index in place.items())
    if check.part:
        return describe_range(
            check.part, check.subscript, value, (check.origin, check.origin + check.extent - 1), place
        )
    tensor, dimension = _accessed(function, check)
    value = value % (1 << 64) if check.unsigned else value
    if value == -1 and check.subscript.isidentifier() and check.subscript not in function.tensors:
        return f"no range that data give holds {at or 'it'}: there is no {check.subscript} to subscript {tensor} with"
    subscript = f"indirect subscript {check.subscript} of {tensor} in dimension {dimension} is {value}"
    subscript += f" at {at}" if at else ""
    if check.extent <= 0:
        return f"{subscript}, but that dimension has no elements"
    return f"{subscript}, but must lie in {check.origin}..{check.origin + check.extent - 1}"
