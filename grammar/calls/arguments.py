"""The arguments of a call: which parameter each is for, whether it fits, and what the sizes of the called def are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from tcomp.errors import Span
from tcomp.grammar.calls.generics import chosen, keyword
from tcomp.grammar.calls.renaming import Stands
from tcomp.grammar.checking.check import Checker
from tcomp.grammar.checking.expressions import ExpressionChecker, Place, narrowing
from tcomp.grammar.checking.names import Scope, TensorEntry
from tcomp.grammar.ranges.linear import linear
from tcomp.grammar.ranges.polynomials import Polynomial
from tcomp.grammar.ranges.symbolic import Span as Coordinates
from tcomp.grammar.ranges.symbolic import Symbolic, SymbolicPass, symbolic_ranges
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.diagnostics import Report
from tcomp.grammar.tree.function import Agreement, Function, Size, Tensor
from tcomp.grammar.tree.function import Expr as FunctionExpr
from tcomp.grammar.tree.syntax import Expr, Name
from tcomp.values.operators import DType, narrows


@dataclass(frozen=True, eq=False)
class Called:
    """A checked def that calls inline."""

    function: Function

    @cached_property
    def ranges(self) -> Symbolic:
        """Its ranges and extents as formulas of its sizes."""
        return symbolic_ranges(self.function)


class Extents:
    """What is known, at some statement of a definition, of the extents of its tensors."""

    def __init__(self, checker: Checker) -> None:
        self._checker = checker
        self._pass: SymbolicPass | None = None
        self._state = 0, 0

    def box(self, tensor: str) -> tuple[Coordinates, ...] | None:
        """First and last coordinates as formulas of sizes; None where they are not known."""
        state = len(self._checker.statements), len(self._checker.environment.needs_content)
        if self._pass is None or state != self._state:
            so_far = self._checker.so_far()
            self._pass, self._state = self._pass or SymbolicPass(so_far), state
            self._pass.extend(so_far)
        return self._pass.box(self._pass.function.tensors[tensor])

    def typed(self, expr: Expr, report: Report | None = None) -> FunctionExpr:
        """An integer expression over sizes and constants; errors go to the report."""
        unheard = Report(self._checker.report.source)
        checker = ExpressionChecker(self._checker.environment, Scope(), report or unheard)
        return checker.integer(expr, Place.DIMENSION)

    def formula(self, expr: Expr) -> Polynomial | None:
        """The same in a normal form."""
        found = linear(self.typed(expr))
        return None if found is None or found.terms else found.constant


@dataclass(frozen=True, slots=True)
class Argument:
    """A whole tensor, with its first coordinates and its extents, or the value of a number or constant."""

    span: Span
    tensor: str | None = None
    origin: tuple[Polynomial, ...] = ()
    extents: tuple[Polynomial, ...] = ()
    value: Expr | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """Arguments by parameter, sizes as expressions over those of the caller, and what is left to be checked.

    ``contents`` are the tensors whose content outputs of the def go on from.
    """

    arguments: Mapping[str, Argument]
    sizes: Mapping[str, Expr]
    agreements: tuple[Agreement, ...]
    contents: Mapping[str, Argument] = field(default_factory=dict)


def bind(
    called: Function,
    boxes: Mapping[str, tuple[Coordinates, ...] | None],
    call: syntax.Apply,
    given: tuple[Expr, ...],
    checker: Checker,
    extents: Extents,
) -> Bound | None:
    """Find out what the parameters and sizes of a def stand for in a call; None where errors were reported.

    ``given`` are the arguments of the call, with calls among them replaced by their results; ``boxes`` are the extents
    of the def's tensors.
    """
    return _Binding(called, boxes, call, checker, extents).bound(given)


def types_of_call(
    definition: syntax.Definition, call: syntax.Apply, given: tuple[Expr, ...], checker: Checker
) -> tuple[str, ...] | None:
    """The keywords of the types that the arguments of a call make of a def's parameters; None where errors were told.

    Tensors say what they are.  Where none does, a number that is passed does.
    """
    tensors: list[tuple[str, DType, tuple[str, Span]]] = []
    numbers: list[tuple[str, DType, tuple[str, Span]]] = []
    for position, argument in enumerate(given):
        own, value = "", argument
        if isinstance(argument, syntax.Named):
            own, value = argument.name.name, argument.value
        elif position < len(definition.inputs):
            own = definition.inputs[position].name.name
        entry = checker.environment.tensors.get(value.name) if isinstance(value, Name) else None
        if entry is not None and entry.dtype is not None:
            tensors.append((own, entry.dtype, (entry.name, value.span)))
        elif entry is None:
            typed = ExpressionChecker(checker.environment, Scope(), Report(checker.report.source)).check(
                value, Place.DIMENSION
            )
            if typed.nominal is not None:
                numbers.append((own, typed.nominal, (str(value), value.span)))
    found, contradictions = chosen(definition, tensors)
    for name, (first, (by, _)), (second, (other, span)) in contradictions:
        message = f"`{call.function}` takes {name} for one type, but `{by}` is of {first} and `{other}` of {second}"
        here = (f"`{call.function}` is defined here", definition.name.span)
        checker.report.error(message, span, f"convert one of them first, by `{keyword(first)}(...)`", here)
    by_numbers, _ = chosen(definition, numbers)
    found = {**by_numbers, **found}
    missing = [name for name in definition.types if name.name not in found]
    if contradictions or checker.is_wrong:
        return None
    if missing:
        here = (f"`{missing[0]}` is a type of `{call.function}`", missing[0].span)
        checker.report.error(f"no argument says which type {missing[0]} is", call.span, None, here)
        return None
    return tuple(keyword(found[name.name]) for name in definition.types)


def _literal(value: int, span: Span) -> Expr:
    number = syntax.Number(str(abs(value)), span)
    return number if value >= 0 else syntax.Unary("-", number, span)


@dataclass(slots=True)
class _Binding:
    called: Function
    boxes: Mapping[str, tuple[Coordinates, ...] | None]
    call: syntax.Apply
    checker: Checker
    extents: Extents
    sizes: dict[str, Expr] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)

    @property
    def report(self) -> Report:
        return self.checker.report

    def bound(self, given: tuple[Expr, ...]) -> Bound | None:
        errors = len(self.report.errors)
        matched = self._matched(given)
        found = [(tensor, self._argument(tensor, matched[tensor.name])) for tensor in self.called.inputs if matched]
        if self.checker.is_wrong:
            return None
        arguments = {tensor.name: argument for tensor, argument in found if argument is not None}
        held = [(t, self._tensor_or_none(t, matched[t.name])) for t in self._continued if matched]
        contents = {tensor.name: argument for tensor, argument in held if argument is not None}
        self._bind_sizes(arguments)
        agreements: tuple[Agreement, ...] = ()
        if len(self.report.errors) == errors:
            agreements = (*self._agreements(arguments), *self._agreements_of(contents))
        return None if len(self.report.errors) > errors else Bound(arguments, self.sizes, agreements, contents)

    @property
    def _continued(self) -> tuple[Tensor, ...]:
        """The outputs that go on from a content, which calls give by name."""
        return tuple(t for t in self.called.outputs if t.name in self.called.needs_content)

    def _tensor_or_none(self, output: Tensor, given: Expr) -> Argument | None:
        """What an output goes on from: a whole tensor."""
        entry = self.checker.environment.tensors.get(given.name) if isinstance(given, Name) else None
        if entry is not None:
            return self._tensor(output, given, entry)
        self._not_a_tensor(output, given)
        return None

    def _matched(self, given: tuple[Expr, ...]) -> dict[str, Expr]:
        """Arguments by parameter; empty where they do not fit in number or name."""
        name, parameters = self.call.function, [tensor.name for tensor in self.called.inputs]
        known = [*parameters, *(tensor.name for tensor in self._continued)]
        here = (f"`{name}` is defined here", self.called.definition.name.span)
        matched: dict[str, Expr] = {}
        problems = len(self.report.errors)
        for position, argument in enumerate(given):
            if isinstance(argument, syntax.Named):
                own, value = argument.name.name, argument.value
            elif position < len(parameters):
                own, value = parameters[position], argument
            else:
                continue
            if own not in known:
                hint = self.report.did_you_mean(own, known) or f"its parameters are {', '.join(parameters)}"
                self.report.error(f"`{name}` has no parameter {own}", argument.span, hint, here)
            elif own in matched:
                self.report.error(f"the argument {own} of `{name}` is given twice", argument.span, None, here)
            else:
                matched[own] = value
        for tensor in self.called.inputs:
            if tensor.default is not None and tensor.name not in matched:
                matched[tensor.name] = _literal(tensor.default, self.call.span)
        missing = [own for own in parameters if own not in matched]
        for content in (tensor for tensor in self._continued if tensor.name not in matched):
            note = (f"`{content.name}` is an output of `{name}`", content.span)
            message = f"`{name}` goes on from what its output {content.name} holds, which this call does not say"
            self.report.error(message, name.span, f"pass a tensor by that name: `{name}(..., {content.name}=T)`", note)
        if len(self.report.errors) == problems and (missing or len(given) > len(known)):
            count = f"`{name}` takes {len(parameters)} argument{'s' * (len(parameters) != 1)}"
            lacks = f": {', '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing" if missing else ""
            are = "is" if len(given) == 1 else "are"
            self.report.error(f"{count} but {len(given)} {are} given{lacks}", self.call.span, None, here)
        return matched if len(self.report.errors) == problems else {}

    def _argument(self, parameter: Tensor, given: Expr) -> Argument | None:
        if parameter.role == "const":
            trial = Report(self.report.source)
            self.extents.typed(given, trial)
            return None if self._reported(trial, parameter) else Argument(given.span, value=given)
        entry = self.checker.environment.tensors.get(given.name) if isinstance(given, Name) else None
        if entry is not None:
            return self._tensor(parameter, given, entry)
        if parameter.rank == 0:
            return self._number(parameter, given)
        self._not_a_tensor(parameter, given)
        return None

    def _not_a_tensor(self, parameter: Tensor, given: Expr) -> None:
        tensors = self.checker.environment.tensors
        hint: str | None = f"write it to a tensor first, as in `T(i) = {given}`, and pass `T`"
        match given:
            case Name() if given.name in self.checker.environment.written_later:
                self.report.error(f"`{given}` is read here, before any statement writes it", given.span)
                return
            case Name():
                hint = self.report.did_you_mean(given.name, tensors)
            case syntax.Apply() if given.function.name in tensors:
                hint = f"pass `{given.function}` alone, or write these elements to a tensor first"
            case syntax.Number():
                hint = None
        message = f"`{self.call.function}` takes a whole tensor as {parameter.name} but found `{given}`"
        self.report.error(message, given.span, hint, self._here(parameter))

    def _here(self, parameter: Tensor) -> tuple[str, Span]:
        definition = self.called.definition
        written = next(p for p in (*definition.inputs, *definition.outputs) if p.name.name == parameter.name)
        what = "output" if parameter.role == "output" else "parameter"
        return f"the {what} is `{written}`", written.span

    def _tensor(self, parameter: Tensor, given: Expr, entry: TensorEntry) -> Argument | None:
        entry.read = True
        if not entry.written and entry.role == "output":
            self.checker.environment.needs_content.add(entry.name)
        elif not entry.written:
            self.report.error(f"`{entry.name}` is read here, before any statement writes it", given.span)
            return None
        if entry.failed or entry.dtype is None or entry.rank is None:
            if not entry.failed:
                self.report.error(
                    f"the type of `{entry.name}` is not known here: it is read before any statement writes it",
                    given.span,
                    f"declare it among the outputs, as in `-> (float(N) {entry.name})`",
                )
            return None
        name = self.call.function
        if entry.rank != parameter.rank:
            message = f"`{name}` takes {parameter.name} with {parameter.rank} dimensions but `{entry.name}` has"
            self.report.error(f"{message} {entry.rank}", given.span, None, self._here(parameter))
            return None
        if entry.dtype != parameter.dtype:
            indices = ", ".join("ijklmnopqrstuvw"[: entry.rank])
            element = f"({indices})" if indices else ""
            message = f"`{name}` takes {parameter.name} of {parameter.dtype} but `{entry.name}` is of {entry.dtype}"
            hint = f"convert it first: `T{element} = {parameter.dtype}({entry.name}{element})`"
            self.report.error(message, given.span, hint, self._here(parameter))
            return None
        if self.checker.is_wrong:
            return None
        box = self.extents.box(entry.name)
        if box is None:
            message = f"the extents of `{entry.name}` are not known as formulas of sizes, which `{name}` needs"
            hint = f"declare them where it is first written, as in `{entry.dtype}(N) {entry.name}(...) = ...`"
            self.report.error(message, given.span, hint, self._here(parameter))
            return None
        origin = tuple(first for first, _ in box)
        return Argument(given.span, entry.name, origin, tuple(last - first + 1 for first, last in box))

    def _number(self, parameter: Tensor, given: Expr) -> Argument | None:
        """A number for a 0-D parameter, of its type."""
        trial = Report(self.report.source)
        typed = ExpressionChecker(self.checker.environment, Scope(), trial).check(given, Place.DIMENSION)
        if self._reported(trial, parameter) or typed.nominal is None:
            return None
        if narrows(typed.nominal, parameter.dtype):
            here = self._here(parameter)
            self.report.error(
                narrowing(typed.nominal, parameter.dtype), given.span, f"write `{parameter.dtype}({given})`", here
            )
            return None
        same = typed.nominal == parameter.dtype
        written = next(p for p in self.called.definition.inputs if p.name.name == parameter.name)
        cast = syntax.Cast(written.type or parameter.dtype.name, given, given.span)
        return Argument(given.span, value=given if same else cast)

    def _reported(self, trial: Report, parameter: Tensor) -> bool:
        """Pass on what is wrong with a number, with the parameter that it is for; False if nothing is."""
        for found in trial.errors:
            assert found.span is not None
            reads = found.message.startswith("tensor accesses")
            message = f"`{self.call.function}` takes a number as {parameter.name}, made of sizes and constants"
            hint = "write it to a 0-D tensor first" if parameter.role != "const" else found.hint
            text, hint = (message, hint) if reads else (found.message, found.hint)
            self.report.error(text, found.span, hint, self._here(parameter))
        return bool(trial.errors)

    def _bind_sizes(self, arguments: Mapping[str, Argument]) -> None:
        """Dimensions that are a size alone determine it, the first of each size."""
        for parameter, argument, dimension, dim in self._dimensions(arguments):
            if isinstance(dim, Size) and dim.name not in self.sizes and self._is_size(dim.name):
                self.sizes[dim.name] = argument.extents[dimension].syntax()
                self.origins[dim.name] = f"dimension {dimension} of {argument.tensor} for {parameter.name}"
        constants = {n: a.value for n, a in arguments.items() if a.value is not None}
        self.sizes |= {t.name: constants[t.name] for t in self.called.inputs if t.role == "const"}

    def _is_size(self, name: str) -> bool:
        return name in self.called.sizes

    def _dimensions(self, arguments: Mapping[str, Argument]) -> Iterator[tuple[Tensor, Argument, int, FunctionExpr]]:
        for parameter in self.called.inputs:
            argument = arguments[parameter.name]
            if argument.tensor is not None:
                for dimension, dim in enumerate(parameter.dims or ()):
                    yield parameter, argument, dimension, dim

    def _agreements(self, arguments: Mapping[str, Argument]) -> Iterator[Agreement]:
        """What is not plainly so: that every other dimension is what the sizes make of it."""
        for parameter, argument, dimension, dim in self._dimensions(arguments):
            written = next(p for p in self.called.definition.inputs if p.name.name == parameter.name)
            assert written.dims is not None
            wanted = Stands({}, {}, self.sizes, (), (), ()).expression(written.dims[dimension])
            first = self.origins.get(dim.name, "") if isinstance(dim, Size) else "the other arguments"
            place = parameter, argument, dimension
            yield from self._agreement(place, str(written.dims[dimension]), wanted, first or "the arguments")

    def _agreements_of(self, contents: Mapping[str, Argument]) -> Iterator[Agreement]:
        """That a tensor that an output goes on from has the extents of that."""
        for output in self._continued:
            for dimension, (low, high) in enumerate(self.boxes.get(output.name) or ()):
                extent = (high - low + 1).syntax()
                wanted = Stands({}, {}, self.sizes, (), (), ()).expression(extent)
                place = output, contents[output.name], dimension
                yield from self._agreement(place, str(extent), wanted, "the arguments")

    def _agreement(
        self, place: tuple[Tensor, Argument, int], dim: str, wanted: Expr, first: str
    ) -> Iterator[Agreement]:  # fmt: skip
        """That a dimension of an argument is what is wanted, unless that is plain; an error where it plainly is not."""
        parameter, argument, dimension = place
        formula, found = self.extents.formula(wanted), argument.extents[dimension]
        if formula == found:
            return
        what = f"`{dim}` of `{self.call.function}`"
        second = f"dimension {dimension} of {argument.tensor} for {parameter.name}"
        difference = None if formula is None else (formula - found).constant
        if difference is not None:
            values = f"{formula} by {first}, {found} by {second}"
            message = f"Mismatched sizes for dimension {what}: {values}"
            self.report.error(message, argument.span, None, self._here(parameter))
            return
        yield Agreement(
            what,
            self.extents.typed(wanted),
            self.extents.typed(found.syntax()),
            first,
            second,
            argument.span,
            self._here(parameter)[1],
        )
