"""An operation some of whose arguments are bound: open this first."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from tcomp import debug
from tcomp.arrays.arrays import kind_of
from tcomp.arrays.devices import MAIN, Place
from tcomp.bound.held import NOTHING, Held, hold
from tcomp.bound.kernels import Shared, bound_kernel
from tcomp.errors import ShapeError, TcompError
from tcomp.grammar.ranges.sizes import bind_sizes, check_sizes
from tcomp.grammar.tree.diagnostics import refuse_steps
from tcomp.grammar.tree.function import Function
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.terms.sizes import Part, Sizes
from tcomp.runtime.arguments import misplaced
from tcomp.runtime.binding import Binding, MisalignedArgumentError, QuickCalls
from tcomp.runtime.calls import Call, check_call, check_names, layouts_of, ordered
from tcomp.runtime.kernel import Kernel
from tcomp.runtime.registry import resolve
from tcomp.runtime.specialisation import Specialisation, checked_choices, strides_of
from tcomp.storage.memo import MOST_KEPT, Memo, Recent


class Whole(Protocol):
    """The operation without bound arguments."""

    function: Function

    def reference(self, *arguments: Any, out: Any = None) -> Any:
        """What a call gives, computed by the interpreter."""
        ...


class BoundOperation:
    """An operation with some arguments bound: ``ops.f.bind(W=weights)``, called with the others.

    What is bound is copied, so that nothing that is written later into the caller's arrays has any effect.  Statements
    that depend on bound arrays alone run once, at the first call for which they matter, and so does the packing of
    panels; calls with other sizes share what does not depend on these.  Several threads may call it.
    """

    def __init__(self, whole: Whole, given: Mapping[str, Any], before: Held = NOTHING) -> None:
        """Raises ShapeError for what does not fit a parameter, and TypeError as well where a name is wrong."""
        self.whole = whole
        function = whole.function
        refuse_steps(function, "no argument of that can be bound", "pass all arguments in every call", ShapeError)
        check_names(function, given, before.names)
        self.held = hold(function, given, before)
        names = self.held.names
        self.function = replace(function, inputs=tuple(t for t in function.inputs if t.name not in names))
        self._place = self.held.place
        self._shared = Shared(function, self.held)
        self._kernels: Memo[Hashable, Kernel] = Memo(MOST_KEPT)
        self._bindings: Recent[tuple[Hashable, ...], Binding] = Recent(MOST_KEPT)
        self._quick = QuickCalls()

    @property
    def name(self) -> str:
        """The name after ``def``."""
        return self.function.name

    def __reduce__(self) -> tuple[type[BoundOperation], tuple[Whole, Mapping[str, Any], Held]]:
        return BoundOperation, (self.whole, {}, self.held)

    def __repr__(self) -> str:
        return f"<operation {self.name} with {', '.join(self.held.names) or 'nothing'} bound>"

    def __str__(self) -> str:
        return str(self.function)

    def bind(self, **named: Any) -> BoundOperation:
        """The operation with further arguments bound.  Raises what ``Operation.bind`` does."""
        return BoundOperation(self.whole, named, self.held)

    def __call__(
        self,
        *arguments: Any,
        out: Any = None,
        target: str | None = None,
        options: MappingOptions | str | Mapping[str, object] | None = None,
        unchecked: bool = False,
        **named: Any,
    ) -> Any:
        """Run on the arguments that are left, as ``Operation.__call__`` does.

        Options that tuning found for the operation are not used: they are those of other kernels.

        Raises:
            ShapeError: as for the operation; also, that torch would record a gradient of the results.
            TargetError: the target is not available here.
        """
        if named:
            arguments = ordered(self.function, arguments, named)
        for chosen, direct in self._quick.recent:
            if chosen[0] is target and chosen[1] is options and chosen[2] is unchecked:
                result = direct(arguments, out)
                if result is not None:
                    return result
        if debug.interpret():
            return self.reference(*arguments, out=out)
        if "torch" in sys.modules and sys.modules["torch"].compiler.is_compiling():
            raise TcompError(f"torch cannot compile calls of {self!r}; call the operation itself there")
        text, options = options if isinstance(options, str) else None, checked_choices(target, options)
        layouts = (target, options, bool(unchecked), *layouts_of(arguments, out))
        binding = self._bindings.get(layouts)
        if binding is not None:
            try:
                results = binding.run(arguments, None if out is None else out if type(out) is tuple else (out,))
                chosen = target, text if text is not None else options, bool(unchecked)
                self._quick.remember(chosen, layouts[3:], binding.direct, arguments, results)
                return results[0] if len(results) == 1 else results
            except MisalignedArgumentError:
                pass  # what follows copies inputs, and says which output it is
        call = self._checked(arguments, out)
        binding = self._kernel(self._sizes(call), target, call.place, options, bool(unchecked)).bind(call, layouts[3:])
        if call.in_place and None not in layouts[3:]:
            self._bindings[layouts] = binding
        return binding.run_call(call)

    def compile(
        self,
        *arguments: Any,
        sizes: Mapping[str, int] | None = None,
        out: Any = None,
        target: str | None = None,
        options: MappingOptions | str | Mapping[str, object] | None = None,
        unchecked: bool = False,
        **named: Any,
    ) -> Kernel:
        """The kernel that a call with these arguments would run, or, given the other ``sizes``, one for C order.

        What has to be computed and packed once is.  Raises what a call does.
        """
        options = checked_choices(target, options)
        arguments = ordered(self.function, arguments, named) if named else arguments
        if sizes is None:
            call = self._checked(arguments, out, runs=False)
            return self._kernel(self._sizes(call), target, call.place, options, unchecked)
        if arguments or out is not None:
            raise ShapeError(f"{self.name}: give either arrays or sizes=, not both")
        values = {**self.whole.function.defaults, **self._known_sizes(), **sizes, **self.held.constants}
        check_sizes(self.whole.function, values)
        whole = self.whole.function
        known = [*whole.sizes, *(t.name for t in whole.inputs if t.role == "const")]
        made = Sizes({name: int(values[name]) for name in known}, self._strides(), Part(self.held.names))
        return self._kernel(made, target, self._place or MAIN, options, unchecked)

    def reference(self, *arguments: Any, out: Any = None, **named: Any) -> Any:
        """What a call gives, computed by the interpreter.  Takes and returns the same as a call; raises ShapeError."""
        if named:
            arguments = ordered(self.function, arguments, named)
        arguments = self.function.completed(arguments)
        if len(arguments) != len(self.function.inputs):
            check_call(self.function, arguments, out)
        given = {t.name: a for t, a in zip(self.function.inputs, arguments, strict=True)}
        given |= {**self.held.arrays, **self.held.constants}
        return self.whole.reference(*(given[t.name] for t in self.whole.function.inputs), out=out)

    def explain(self) -> str:
        """What is bound, what was computed and packed once so far, its bytes, and the kernels for each set of sizes."""
        held, results, panels = self.held, self._shared.results, self._shared.panels
        lines = [f"{self!r}", f"  copied: {', '.join(held.arrays) or 'nothing'}, {held.bytes} bytes"]
        lines += [f"  constants: {', '.join(f'{n} = {v}' for n, v in held.constants.items())}"] * bool(held.constants)
        for made in results:
            took = f"{made.bytes} bytes, in {1e3 * made.seconds:.1f} ms"
            lines.append(f"  computed once: {', '.join(made.arrays)}, {took}")
        lines += [f"  packed once: {p.bytes} bytes, in {1e3 * p.seconds:.1f} ms" for p in panels]
        total = held.bytes + sum(made.bytes for made in (*results, *panels))
        lines.append(f"  in all: {total} bytes")
        return "\n".join([*lines, "", *(kernel.explain() for kernel in self._kernels.values())])

    def _checked(self, arguments: tuple[Any, ...], out: Any, *, runs: bool = True) -> Call:
        """A call, whose arrays lie where those do that are bound; results are of their library if it has none."""
        place = self._place
        memory = None if place is None or not runs else place.memory
        call = check_call(self.function, arguments, out, runs=runs, memory=memory)
        if place is None:
            return call
        if not call.views:
            example = next(iter(self.held.arrays.values()))
            return replace(call, place=place, kind=kind_of(example), example=example)
        arrays = zip((*self.function.inputs, *self.function.outputs), (*call.arrays, *call.outputs), strict=True)
        source = self.function.source
        wrong = [
            misplaced(array, call.views[tensor.name], tensor, place, source)
            for tensor, array in arrays
            if tensor.name in call.views and call.views[tensor.name].place != place
        ]
        if wrong:
            raise ShapeError(*wrong)
        return call

    def _sizes(self, call: Call) -> Sizes:
        shapes = call.shapes | {name: view.shape for name, view in self.held.views.items()}
        values = bind_sizes(self.whole.function, shapes, {**call.constants, **self.held.constants})
        return Sizes(values, strides_of(call.views) | self._strides(), Part(self.held.names))

    def _strides(self) -> dict[str, tuple[int, ...]]:
        return strides_of(self.held.views)

    def _known_sizes(self) -> dict[str, int]:
        """The sizes that bound arrays give."""
        whole = self.whole.function
        bound = tuple(t for t in whole.inputs if t.name in self.held.views)
        shapes = {name: view.shape for name, view in self.held.views.items()}
        return bind_sizes(replace(whole, inputs=bound, agreements=()), shapes, {})

    def _kernel(
        self, sizes: Sizes, target: str | None, place: Place, options: MappingOptions | None, unchecked: bool
    ) -> Kernel:
        name = resolve(target, place)
        made = Specialisation(self.whole.function, sizes, options or MappingOptions(), name, bool(unchecked))
        key = (*sizes.values.items(), *sorted(sizes.strides.items()), name, made.unchecked, made.options)
        return self._kernels.get(key, lambda: bound_kernel(self._shared, made, place))
