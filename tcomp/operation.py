"""One ``def`` as something to call: specialised and compiled for the arguments of each call, at most once."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping
from concurrent.futures import Executor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy import ndarray

from tcomp import debug
from tcomp.arrays.arrays import kind_of
from tcomp.arrays.devices import MAIN, Place
from tcomp.arrays.kinds import NoMemoryOfItsOwnError
from tcomp.autograd.registration import UNNAMED, Choices, Registration
from tcomp.backends.runtime import DirectBinding, QuickRun
from tcomp.bound.operation import BoundOperation
from tcomp.differentiable import Differentiable
from tcomp.errors import Diagnostic, PlanError, ShapeError, TcompError
from tcomp.grammar.tree.function import Function
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.reference import interpret
from tcomp.model.terms.sizes import SizeRange, Sizes
from tcomp.runtime.arguments import numbers_as_arrays
from tcomp.runtime.binding import Binding, MisalignedArgumentError, QuickCalls
from tcomp.runtime.calls import ArgumentOrder, check_call, layouts_of, ordered
from tcomp.runtime.given import given_sizes, result_types, sizes_of, subscripts_of
from tcomp.runtime.kernel import Kernel
from tcomp.runtime.openkernel import OpenKernel, open_sizes
from tcomp.runtime.registry import memory_of, resolve
from tcomp.runtime.sparse import has_sparse, with_parts
from tcomp.runtime.specialisation import Specialisation, checked_choices
from tcomp.storage.forks import ISL
from tcomp.storage.memo import MOST_KEPT, Memo, Recent
from tcomp.tuner.database.identity import device_model
from tcomp.tuner.database.trials import Problem
from tcomp.tuner.policy import FROM_CACHE, Choice, Policy, chosen_kernel
from tcomp.tuner.progress import Watch, ignore
from tcomp.tuner.settings import Settings, default_strategy

if TYPE_CHECKING:
    from tcomp.schedules.schedule import Schedule
    from tcomp.tuner.report.result import TuningResult


class Operation(Differentiable):
    """One ``def``: ``operation(A, B)`` runs it, compiled for the sizes, strides and types of the arguments.

    Arguments are given in parameter order or by name: arrays (NumPy, torch, anything with DLPack), numbers for 0-D
    parameters, and integers for ``const`` parameters.  The last 1000 kernels are kept, so a second call with arrays of
    the same layout only runs.
    """

    def __init__(self, function: Function, policy: Policy = FROM_CACHE, registration: Registration = UNNAMED) -> None:
        self.function = function
        self.registration = registration
        self.operators: dict[Choices, Any] = {}
        self._policy = policy
        self._in_order = ArgumentOrder(function)
        self._kernels: Memo[Hashable, Kernel] = Memo(MOST_KEPT)
        self._chosen: Memo[Hashable, Kernel] = Memo(MOST_KEPT)
        self._found: dict[Hashable, MappingOptions] = {}
        self._bindings: Recent[tuple[Hashable, ...], Binding] = Recent(MOST_KEPT)
        self._quick = QuickCalls()
        self._inside = QuickCalls()

    def beside(self, function: Function) -> Operation:
        """An operation of another def, which chooses its options in the same way."""
        return Operation(function, self._policy)

    def __reduce__(self) -> tuple[type[Operation], tuple[Function, Policy, Registration]]:
        return Operation, (self.function, self._policy, self.registration)

    def __repr__(self) -> str:
        return f"<operation {self.name}>"

    def __str__(self) -> str:
        return str(self.function)

    def __call__(
        self,
        *arguments: Any,
        out: Any = None,
        target: str | None = None,
        options: MappingOptions | str | Mapping[str, object] | None = None,
        unchecked: bool = False,
        **named: Any,
    ) -> Any:
        """Run on arrays, which are read in place whatever their strides; only inputs that are misaligned are copied.

        Args:
            arguments, named: one per parameter, in order or by name.  A sparse matrix of SciPy, CuPy or torch stands
                for three parameters: ends of rows, columns and values, or rows, columns and values for COO;
                one in a format that the text does not read is refused.
            out: where results go: an array for a single output, a tuple with one per output or None, or a dict by
                name.  Required for outputs whose previous content the program reads.
            target: where to run; see ``targets``.  None means ``cuda`` where the arrays lie on a CUDA device, else
                ``cpu``; ``cuda`` means ``cuda:sm_90``, say, after the device that holds the arrays.
            options: how to lay the program on the machine, as MappingOptions, as text (``"tile=32x32"``) or as a dict;
                None takes the best that tuning found, and where there is nothing lets the model choose.
            unchecked: leave out the checks of data-dependent subscripts; one that is outside reads other memory.

        Returns:
            The output, or a tuple of several; those not given in ``out`` are new arrays of the kind of the first
            array argument.

        Raises:
            ShapeError: arguments do not fit in number, kind, type, rank, size or device; outputs share memory with
                other arguments; or a data-dependent subscript is outside its tensor.
            TargetError: the target is not available here.
        """
        if named:
            if has_sparse(arguments, named):
                arguments, named = with_parts(self.function, arguments, named)
            arguments = self._in_order(arguments, named)
        if arguments and type(arguments[0]) is not ndarray and "torch" in sys.modules and is_traced():
            return _traced_call(self, arguments, out, target, options, unchecked)
        for chosen, direct in self._quick.recent:
            if chosen[0] is target and chosen[1] is options and chosen[2] is unchecked:
                result = direct(arguments, out)
                if result is not None:
                    return result
        if has_sparse(arguments, {}):
            parts, _ = with_parts(self.function, arguments, {})
            return self(*parts, out=out, target=target, options=options, unchecked=unchecked)
        if (arrays := numbers_as_arrays(self.function, arguments)) is not None:
            return self(*arrays, out=out, target=target, options=options, unchecked=unchecked)
        given, options, unchecked = options, checked_choices(target, options), bool(unchecked)
        passed, arguments = arguments, self.function.completed(arguments)
        layouts = (target, options, unchecked, *layouts_of(arguments, out))
        binding = self._bindings.get(layouts)
        if binding is not None and not debug.interpret():
            try:
                results = binding.run(arguments, None if out is None else out if type(out) is tuple else (out,))
                text = given if isinstance(given, str) else options
                same = (*layouts[3:], len(passed))
                self._quick.remember((target, text, unchecked), same, binding.direct, passed, results)
                return results[0] if len(results) == 1 else results
            except (MisalignedArgumentError, NoMemoryOfItsOwnError):
                pass  # what follows copies inputs, says which output it is, or lets torch find the memory
        choices = Choices(target, options, unchecked)
        if "torch" in sys.modules:
            recorded = _recorded_call(self, arguments, out, choices)
            if recorded is not NotImplemented:
                return recorded
        return self.run(arguments, out, choices)

    def run(self, arguments: tuple[Any, ...], out: Any, choices: Choices) -> Any:
        """A call that nothing but this process sees: no compiler of torch traces it, and autograd records nothing."""
        if debug.interpret():
            return self.reference(*arguments, out=out)
        if out is None and (found := self.run_again(arguments, choices)) is not None:
            return found
        options = checked_choices(choices.target, choices.options)
        layouts = (choices.target, options, choices.unchecked, *layouts_of(arguments, out))
        binding = self._bindings.get(layouts)
        if binding is not None and out is None:
            try:
                results = binding.run(arguments, None)
                chosen = (choices.target, choices.options, choices.unchecked)
                self._inside.remember(chosen, layouts[3:], binding.matched_run, arguments, results)
                return results[0] if len(results) == 1 else results
            except MisalignedArgumentError:
                pass
        call = check_call(self.function, arguments, out, memory=memory_of(choices.target))
        kernel = self._kernel(sizes_of(call), choices.target, call.place, options, choices.unchecked)
        binding = kernel.bind(call, layouts[3:])
        if call.in_place and None not in layouts[3:]:
            self._bindings[layouts] = binding
        return binding.run_call(call)

    def call_again(self, arguments: tuple[Any, ...], choices: Choices) -> Any:
        """What a call gives, recorded or not, where one like it was made not long ago; else None."""
        return self._quick.again(choices.target, choices.options, choices.unchecked, arguments)

    def run_again(self, arguments: tuple[Any, ...], choices: Choices) -> Any:
        """What ``run`` gives where such a call was run not long ago; else None."""
        return self._inside.again(choices.target, choices.options, choices.unchecked, arguments)

    def quick_run(
        self, arguments: tuple[Any, ...], choices: Choices, *, recorded: bool, originals: tuple[Any, ...] | None = None
    ) -> QuickRun | None:
        """The quick way to run calls like one that has been run; ``recorded`` says whether autograd records them.

        It takes ``originals`` where the arguments are copies of these in C order.
        """
        options = checked_choices(choices.target, choices.options)
        binding = self._bindings.get((choices.target, options, choices.unchecked, *layouts_of(arguments, None)))
        if binding is None:
            return None
        given = arguments if originals is None else originals
        copied = [place for place, (a, b) in enumerate(zip(arguments, given, strict=True)) if a is not b]
        return binding.quick(given, binding.run(arguments, None), recorded=recorded, copied=copied)

    def remember(self, choices: Choices, direct: DirectBinding) -> None:
        """Try a way to call first from now on."""
        self._quick.add((choices.target, choices.options, choices.unchecked), direct)

    def compile(
        self,
        *arguments: Any,
        sizes: Mapping[str, int | SizeRange] | None = None,
        out: Any = None,
        target: str | None = None,
        options: MappingOptions | str | Mapping[str, object] | None = None,
        unchecked: bool = False,
        plan: str | None = None,
        **named: Any,
    ) -> Kernel:
        """The kernel that a call with these arguments would run, or, given ``sizes``, one for arrays in C order.

        Args:
            arguments, named, out, target, options, unchecked: as in a call; only shapes, strides and types matter,
                and, to find out the target, where the arrays lie.
            sizes: the value of every size symbol and ``const`` parameter, instead of arguments.  One that is
                ``tcomp.range(first, last)`` is left open: the kernel is for all of these values.
            plan: the text of a plan, such as ``kernel.stages["place"]`` changed by hand, to be used instead of one
                that the passes make.  It is proved as theirs are.

        Raises:
            ShapeError: arguments or sizes do not fit.
            CompileError: a size cannot be left open; the message says why.
            PlanError: the text of the plan cannot be read, or is no plan of this program.
            LegalityError: the plan would compute something else; the message says where.
            TargetError: the target, or its compiler, is not available here.
        """
        options = checked_choices(target, options)
        if plan is not None and not isinstance(plan, str):
            raise PlanError(f"plan must be the text of a plan, not {type(plan).__name__}")
        arguments = self._ordered(arguments, named)
        if sizes is None:
            call = check_call(self.function, arguments, out, runs=False)
            kernel = self._kernel(sizes_of(call), target, call.place, options, unchecked, plan)
            kernel.check(call)
            return kernel
        if arguments or out is not None:
            raise ShapeError(f"{self.name}: give either arrays or sizes=, not both")
        if not isinstance(sizes, Mapping):
            raise ShapeError(f"{self.name}: sizes= must be a mapping of names to numbers, not {type(sizes).__name__}")
        ranges = {name: own for name, own in sizes.items() if isinstance(own, SizeRange)}
        values = {name: own.last if isinstance(own, SizeRange) else own for name, own in sizes.items()}
        given = given_sizes(self.function, values)
        if ranges:
            given = replace(given, open=open_sizes(self.function, ranges))
            name = resolve(target, MAIN)
            made = Specialisation(self.function, given, options or MappingOptions(), name, bool(unchecked), plan)
            return OpenKernel(made)
        return self._kernel(given, target, MAIN, options, unchecked, plan)

    def schedule(self, *arrays: Any, sizes: Mapping[str, int] | None = None, target: str | None = None) -> Schedule:
        """A schedule to be written by hand (docs/schedules.md), for arrays in C order.  Raises TcompError."""
        if arrays or sizes is None:
            raise TcompError(f"a schedule is for sizes: {self.name}.schedule(sizes={{...}}), not for arrays")
        from tcomp.schedules.schedule import begin  # noqa: PLC0415  (few processes write schedules)

        return begin(self.function, given_sizes(self.function, sizes), resolve(target, MAIN), self.compile)

    def bind(self, **named: Any) -> BoundOperation:
        """The operation with some arguments bound, by name: called with the others, it does only what is left to do.

        Arrays are copied.  Statements that depend on them alone run once, and on a CPU the panels of bound operands
        of contractions are packed once.

        Raises:
            ShapeError: an argument does not fit its parameter, or torch would record a gradient of it.
        """
        return BoundOperation(self, named)

    def tune(
        self,
        *arguments: Any,
        sizes: Mapping[str, int] | None = None,
        out: Any = None,
        target: str | None = None,
        budget: float = 60.0,
        strategy: str | None = None,
        seed: int = 0,
        jobs: int | None = None,
        executor: Executor | str | None = None,
        watch: Watch = ignore,
        **named: Any,
    ) -> TuningResult:
        """Search for the mapping options that make calls with these arguments fastest here, and keep them.

        Later calls without options, in this process and others, use what was found.  Every candidate runs in a process
        of its own and must give the right results.  A run that was interrupted or killed goes on where it was when it
        is started again.

        Args:
            arguments, named, sizes, out, target: as for ``compile``.  Candidates run on made-up arrays of the same
                layout, on the given ones if they serve as subscripts.
            budget: seconds of wall time.
            strategy: how to search: ``model``, ``genetic`` or ``random``; None means ``model`` where scikit-learn is
                installed (``pip install 'tcomp[tune]'``), else ``genetic``, and the result says so.
            seed: draws other candidates.
            jobs: processes that compile; None means one for each processor.
            executor: what compiles and measures instead of this machine: a ``concurrent.futures.Executor`` or the
                address of a scheduler of Dask, ``dask://host:port``.
            watch: is called with the progress of the run.

        Raises:
            ShapeError: arguments or sizes do not fit.
            TargetError: the target is not available here.
            TcompError: the default options do not work, or a parameter of the search is wrong.
            KeyboardInterrupt: Ctrl-C; the best so far is kept.
        """
        checked_choices(target, None)
        arguments = self._ordered(arguments, named)
        if sizes is None:
            call = check_call(self.function, arguments, out, runs=False)
            values, place = sizes_of(call), call.place
            given = subscripts_of(call)
        elif arguments or out is not None:
            raise ShapeError(f"{self.name}: give either arrays or sizes=, not both")
        else:
            values, place, given = given_sizes(self.function, sizes), MAIN, None
        name = resolve(target, place)
        made = Specialisation(self.function, values, MappingOptions(), name, False)
        problem = Problem(made, device_model(name, place), seed, given)
        result = _tune(problem, Settings(budget, strategy or default_strategy(), seed), jobs, executor, watch)
        self._found[_layout(values, name)] = result.best
        # Let the next calls choose again.
        self._chosen = Memo(MOST_KEPT)
        self._bindings = Recent(MOST_KEPT)
        self._quick = QuickCalls()
        self._inside = QuickCalls()
        if result.interrupted:
            raise KeyboardInterrupt
        return result

    def reference(self, *arguments: Any, out: Any = None, **named: Any) -> Any:
        """What a call gives, computed by the interpreter: slowly, in float64, straight from the program.

        Takes and returns the same as a call; raises ShapeError.
        """
        call = check_call(self.function, self._ordered(arguments, named), out)
        tensors = zip(self.function.inputs, call.arrays, strict=True)
        inputs = {t.name: a if t.role == "const" else kind_of(a).to_numpy(a) for t, a in tensors}
        given = {t.name: a for t, a in zip(self.function.outputs, call.outputs, strict=True) if a is not None}
        contents = {name: kind_of(a).to_numpy(a) for name, a in given.items()}
        try:
            with ISL.value:
                results = interpret(self.function, inputs, contents)
        except MemoryError as error:
            raise ShapeError(f"there is no room to interpret {self.name}: {error}") from None
        for name, array in given.items():
            if results[name].shape != tuple(array.shape):
                tensor = self.function.tensors[name]
                message = f"output {name}: expected shape {results[name].shape} but found {tuple(array.shape)}"
                raise ShapeError(Diagnostic(message, self.function.source, tensor.span))
        for name, array in given.items():
            kind_of(array).assign(array, results[name])
        return call.finish(tuple(results[t.name] for t in self.function.outputs))

    def _ordered(self, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> tuple[Any, ...]:
        """Arguments in the order of the parameters, the parts of sparse matrices among them."""
        if has_sparse(arguments, named):
            arguments, named = with_parts(self.function, arguments, named)
        return ordered(self.function, arguments, named) if named else arguments

    def result_types(self, *arguments: Any) -> tuple[tuple[tuple[int, ...], np.dtype[Any]], ...]:
        """The shape and the type of each output of a call, without computing it or compiling a kernel.

        Args:
            arguments: arrays, or whatever has their ``shape``; integers for ``const`` parameters.

        Raises:
            ShapeError: shapes do not fit.
        """
        return result_types(self.function, arguments)

    def _kernel(
        self,
        sizes: Sizes,
        target: str | None,
        place: Place,
        options: MappingOptions | None,
        unchecked: bool,
        plan: str | None = None,
    ) -> Kernel:
        name = resolve(target, place)
        made = Specialisation(self.function, sizes, options or MappingOptions(), name, bool(unchecked), plan)

        layout = _layout(sizes, name)

        def kernel(specialisation: Specialisation) -> Kernel:
            key = (layout, made.unchecked, specialisation.options, plan)
            return self._kernels.get(key, lambda: Kernel(specialisation))

        if options is not None or plan is not None:
            return kernel(made)
        choice = Choice(self._policy, kernel, _tuned, self._found.get(layout))
        return self._chosen.get((layout, made.unchecked, place), lambda: chosen_kernel(made, place, choice))


def is_traced() -> bool:
    """Whether a compiler of torch, which has been imported, goes through a call."""
    compiler = getattr(sys.modules["torch"], "compiler", None)
    return compiler is not None and compiler.is_compiling()


def _traced_call(operation: Operation, arguments: tuple[Any, ...], out: Any, *chosen: Any) -> Any:
    from tcomp.autograd.dispatch import traced  # noqa: PLC0415  (it imports torch)

    return traced(operation, arguments, out, *chosen)


def _recorded_call(operation: Operation, arguments: tuple[Any, ...], out: Any, choices: Choices) -> Any:
    from tcomp.autograd.dispatch import call  # noqa: PLC0415  (it imports torch)

    return call(operation, arguments, out, choices)


def _layout(sizes: Sizes, target: str) -> Hashable:
    """What a kernel is made for, its options apart."""
    return (*sizes.values.items(), *sorted(sizes.strides.items()), target)


def _tune(
    problem: Problem, settings: Settings, jobs: int | None, executor: Executor | str | None, watch: Watch
) -> TuningResult:
    from tcomp.tuner.tuning import tune  # noqa: PLC0415  (a fifth of the time to import tcomp, and few processes tune)

    return tune(problem, settings, jobs=jobs, executor=executor, watch=watch)


def _tuned(problem: Problem, seconds: float) -> MappingOptions:
    """Look for better options before the first call, and keep them."""
    result = _tune(problem, Settings(seconds), None, None, ignore)
    if result.interrupted:
        raise KeyboardInterrupt
    return result.best
