"""A compiled program for one set of sizes, strides and types: call it, or look into how it was made."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tcomp.arrays.kinds import View
from tcomp.backends.host import toolchain
from tcomp.backends.host.chains import Link
from tcomp.backends.host.native import describe, kernel_key
from tcomp.backends.host.runtime import HostProgram
from tcomp.backends.runtime import Program
from tcomp.backends.source import PACKED, SIZE, Argument, Launch, Source
from tcomp.driver import Begun, Compilation
from tcomp.errors import Diagnostic, ProgramWarning, ShapeError, TcompError
from tcomp.grammar.tree.function import Function
from tcomp.mapping.options.effects import without_effect
from tcomp.mapping.plan.values import Plan
from tcomp.runtime.arguments import numbers_as_arrays
from tcomp.runtime.binding import Binding, MisalignedArgumentError, QuickCalls, failure_of
from tcomp.runtime.calls import Call, check_call, layouts_of, ordered
from tcomp.runtime.capturing import Captured, capture
from tcomp.runtime.registry import runtime_of
from tcomp.runtime.specialisation import Specialisation
from tcomp.storage.cache import store
from tcomp.storage.memo import MOST_KEPT, Recent

if TYPE_CHECKING:
    from tcomp.pictures.canvas import Picture
    from tcomp.pictures.profiles import Profile


class Kernel:
    """A program compiled for fixed sizes, strides, options and target.

    ``kernel(A, B, out=C)`` runs it on arrays that fit, given as to the operation that compiled it.
    """

    def __init__(
        self,
        specialisation: Specialisation,
        begun: Begun | None = None,
        supply: Callable[[Source, Program], Program] | None = None,
    ) -> None:
        """Compile, or find the compiled kernel in the cache; ``begun`` is what was done before.

        ``supply`` hands to the program what is bound in every call.  Raises TcompError.
        """
        self.specialisation = specialisation
        self._function = specialisation.called
        self._source, self._compilation = specialisation.source(begun)
        for warning in self._source.warnings:
            warnings.warn(warning, ProgramWarning, stacklevel=2)
        runtime = runtime_of(specialisation.target)
        self._memory = runtime.memory
        program = runtime.load(self._source)
        self._program = program if supply is None else supply(self._source, program)
        self._bindings: Recent[tuple[Hashable, ...], Binding] = Recent(MOST_KEPT)
        self._quick = QuickCalls()
        self.schedule: object = None
        """The schedule by hand that it was compiled from, if it was."""

    def __reduce__(self) -> tuple[type[Kernel], tuple[Specialisation]]:
        if self.specialisation.sizes.part is not None:
            raise TypeError(f"{self!r} belongs to a bound operation; pickle that")
        return Kernel, (self.specialisation,)

    @property
    def source(self) -> str:
        """The text that was compiled."""
        return self._source.text

    @property
    def compilation(self) -> Compilation:
        """Everything between the program and the source; made again if the source came from the cache."""
        if self._compilation is None:
            self._compilation = self.specialisation.lower()
        return self._compilation

    @property
    def stages(self) -> dict[str, str]:
        """The text of every stage by name, in pipeline order."""
        return self.compilation.stages

    def explain(self) -> str:
        """What the kernel is, how it is laid out and where the time of compiling it went."""
        return explain(self.specialisation, self.compilation)

    def export(
        self, folder: str | Path, *, name: str | None = None, architectures: Sequence[str] | None = None
    ) -> tuple[Path, ...]:
        """Write what is needed to use the kernel where there is no tcomp and no Python; the files that were written.

        On a CPU these are C files, libraries, an example and a file for CMake; on a GPU CUDA text, machine code, a
        launcher in C, and loaders for CuPy and PyTorch.  A README tells shapes, strides and alignment.

        Args:
            folder: where the files go; it is made if it is not there.
            name: what the function is called instead of as the def.
            architectures: the GPUs to make machine code for, such as ``("sm_80", "sm_90")``; None for all.

        Raises:
            TcompError: the kernel has bound arguments, or is for the simulator, or a file cannot be written.
            TargetError: a compiler is missing, or fails.
        """
        from tcomp.export.folder import export  # noqa: PLC0415  (few processes export)
        from tcomp.export.interface import Variant  # noqa: PLC0415

        variant = Variant(dict(self.specialisation.sizes.values), self._source)
        target = self.specialisation.target
        return export(self.specialisation.function, (variant,), target, Path(folder), name, architectures)

    def link(self) -> Link | None:
        """The kernel as a step of a chain; None if it is no C function.

        Its arrays are the inputs, the outputs, and then what is ``bound``.
        """
        program = self._program
        found = program.machine_code if isinstance(program, HostProgram) else None
        return None if found is None else Link(*found)

    @property
    def bound(self) -> tuple[Argument, ...]:
        """What is the same in every call, in its order; where panels are packed ahead, their memory is the last."""
        return self._source.bound

    @property
    def packed(self) -> tuple[str, ...]:
        """Of what is ``bound``, by name, that which only ``pack`` reads: calls may be given null addresses for it."""
        return self._source.packed

    def pack(self, addresses: Sequence[int]) -> None:
        """Fill the memory of panels, whose address is the last, from what else is ``bound``."""
        self._program.pack(addresses)

    def kept(self) -> Iterator[tuple[str, str, str, bytes]]:
        """What the cache on disk has of the kernel: kind, key, label and content of its text and its machine code."""
        keys = [("source", self.specialisation.key())]
        if isinstance(self._program, HostProgram) and self._program.machine_code is not None:
            keys.append(("kernel", kernel_key(self._source, toolchain.find())))
        for kind, key in keys:
            content = store().get(kind, key)
            if content is not None:
                yield kind, key, self.specialisation.label(), content

    def failure(self, report: Sequence[int]) -> TcompError:
        """The error that the kernel reports."""
        return failure_of(self._function, self._source.checks, report)

    def draw(self, what: str = "tree") -> Picture:
        """A picture: ``tree``, ``domain``, ``dates``, ``order``, ``footprint``, ``memory``, ``loops``, ``profile``,
        ``threads`` or ``banks``.

        It shows itself in a notebook, and ``save(path)`` writes it as SVG, PNG or GIF.  Raises TcompError for a picture
        that there is not, MissingPackageError without matplotlib (``pip install 'tcomp[pictures]'``).
        """
        from tcomp.pictures.drawing import draw  # noqa: PLC0415  (few processes draw)

        return draw(self.compilation, what, self.specialisation.sizes)

    def profile(self, seconds: float = 2.0) -> Profile:
        """Where the time goes, loop by loop of the C text, measured on random arguments; ``print`` shows it.

        Args:
            seconds: how long the kernel runs at most, again and again; 5,000 samples, half a second, are enough.

        Raises:
            TcompError: the kernel is for a GPU, or too short to tell, or the system has no timers for it.
        """
        from tcomp.pictures.profiles import names_of, profile  # noqa: PLC0415  (few processes ask)

        names = names_of(self.compilation)
        return profile(self._source, self._function, self.specialisation.sizes, seconds, names)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(self.explain())}</pre>"

    def __repr__(self) -> str:
        return f"<kernel {self.specialisation.label()} for {self.specialisation.target}>"

    def __call__(self, *arguments: Any, out: Any = None, **named: Any) -> Any:
        """Run on arrays of the sizes, strides and types that the kernel was compiled for; else ShapeError."""
        if named:
            arguments = ordered(self._function, arguments, named)
        for _, direct in self._quick.recent:
            result = direct(arguments, out)
            if result is not None:
                return result
        if (arrays := numbers_as_arrays(self._function, arguments)) is not None:
            return self(*arrays, out=out)
        layouts = layouts_of(arguments, out)
        binding = self._bindings.get(layouts)
        if binding is not None:
            try:
                results = binding.run(arguments, None if out is None else out if type(out) is tuple else (out,))
                self._quick.remember((), layouts, binding.direct, arguments, results)
                return results[0] if len(results) == 1 else results
            except MisalignedArgumentError:
                pass  # what follows copies inputs, and says which output it is
        call = check_call(self._function, arguments, out, memory=self._memory)
        return self.bind(call, layouts).run_call(call)

    def capture(self, *arguments: Any, out: Any = None, **named: Any) -> Captured:
        """Record all kernels of a call on CuPy arrays as one CUDA graph: calling what this returns runs it again.

        It reads and writes the same arrays each time.  Raises TargetError for other arrays.
        """
        arguments = ordered(self._function, arguments, named) if named else arguments
        call = check_call(self._function, arguments, out, memory=self._memory)
        launches = sum(0 not in self._source.launches[number].grid for number, *_ in self._source.order)
        return capture(self, call.place, arguments, out, launches)

    def bind(self, call: Call, layouts: tuple[Hashable, ...]) -> Binding:
        """How to run calls like this one.

        Raises ShapeError if its arrays do not fit the kernel, and TargetError if they lie where it does not run.
        """
        self.check(call)
        binding = Binding(self._source, self._program, call)
        if call.in_place and None not in layouts:
            self._bindings[layouts] = binding
        return binding

    def check(self, call: Call) -> None:
        """Raises ShapeError if the arrays of a call do not fit the kernel."""
        problems = self._misfits(call)
        if problems:
            raise ShapeError(*problems)

    def _misfits(self, call: Call) -> list[Diagnostic]:
        function = self._function
        found: list[Diagnostic] = []
        for name, value in call.constants.items():
            compiled = self.specialisation.sizes.values[name]
            if value != compiled:
                message = f"{name} is {value}, but the kernel was compiled for {compiled}"
                found.append(Diagnostic(message, function.source, function.tensors[name].span))
        return [*found, *misfits(function, self._source.arguments, call)]


def misfits(function: Function, arguments: Iterable[Argument], call: Call) -> Iterator[Diagnostic]:
    """What about the arrays of a call does not fit the arguments of a kernel."""
    for argument in arguments:
        view = call.views.get(argument.name)
        problem = None if view is None else misfit(argument, view)
        if problem is not None:
            tensor = function.tensors[argument.name]
            yield Diagnostic(f"{tensor.role} {tensor.name}: {problem}", function.source, tensor.span)


def misfit(argument: Argument, view: View) -> str | None:
    """What about an array does not fit the kernel's argument, or None."""
    if view.shape != argument.shape:
        return f"expected shape {argument.shape} but found {view.shape}"
    if 0 in view.shape:
        return None
    steps = [
        (mine, theirs) for n, mine, theirs in zip(view.shape, argument.strides, view.strides, strict=True) if n > 1
    ]
    if any(mine != theirs for mine, theirs in steps):
        return f"expected strides {argument.strides} (in elements) but found {view.strides}"
    return None


def explain(specialisation: Specialisation, compilation: Compilation) -> str:
    """A report of a few lines on a compiled program."""
    plan, source = compilation.plan, compilation.source
    lines = [f"{describe(source)} on {specialisation.target}"]
    sizes = ", ".join(f"{name} = {value}" for name, value in specialisation.sizes.values.items())
    lines.append(f"  sizes: {sizes or 'none'}")
    lines.append(f"  options: {specialisation.options.to_text() or 'all at their defaults'}")
    lines += [f"  note: {note}" for note in (*idle_options(specialisation, plan), *source.notes)]
    for number, (title, part, loops) in enumerate(compilation.parts):
        lines += [f"  {title}"] if title else []
        own = [n for n in source.launches if not title or re.search(rf"_piece{number}_\d+\Z", n.kernel)]
        lines += _of_plan(part, loops, own)
    lines += [] if source.turns is None else [f"  launches: {len(source.turns)}, one after another"]
    lines += _bound(source, compilation)
    lines.append(f"  scratch memory: {source.scratch_bytes} bytes")
    if source.checks:
        lines.append(
            f"  checked when run: {', '.join(f'dimension {c.dimension} of {c.tensor}' for c in source.checks)}"
        )
    times = ", ".join(f"{stage} {1e3 * seconds:.0f} ms" for stage, seconds in compilation.seconds.items())
    lines.append(f"  compile time: {times}")
    return "\n".join(lines) + "\n"


def _of_plan(plan: Plan, loops: str, launches: Sequence[Launch]) -> list[str]:
    """How a program, or a piece of one, is laid out."""
    lines = []
    for number, group in enumerate(plan.groups):
        statements = [s for cluster in group.clusters for s in plan.clusters[cluster].statements]
        tiles = " x ".join(map(str, group.sizes))
        lines.append(f"  nest {number}: {' '.join(statements)}{f', tiles of {tiles}' if tiles else ''}")
    lines.append(f"  loops: {loops}")
    lines += [f"  launch {_describe_launch(launch)}" for launch in launches]
    lines += [f"  operation {operation}" for operation in plan.operations.values()]
    buffers = plan.buffers.values()
    lines += [f"  buffer {b.storage}: {b.dtype}{list(b.shape)}, {b.bytes} bytes, {b.space}" for b in buffers]
    lines += [f"  fetched {c.storage}: {c.dtype}{list(c.shape)}, {c.bytes} bytes" for c in plan.copies if not c.ahead]
    lines += [f"  barrier before {mark}, for the {level}" for mark, level in plan.barriers.items()]
    return lines + [f"  note: {note}" for note in plan.notes]


def idle_options(specialisation: Specialisation, plan: Plan) -> tuple[str, ...]:
    """What of the options that were given has no effect on this program and target, a sentence each."""
    loops = max((cluster.rank for cluster in plan.clusters), default=0)
    return tuple(without_effect(specialisation.options, specialisation.target, loops))


def _describe_launch(launch: Launch) -> str:
    """A launch in a few words: ``mm_0: 8 x 8 blocks of 16 x 16 threads``, innermost extents first."""
    grid, block = (" x ".join(map(str, _without_ones(extents))) for extents in (launch.grid, launch.block))
    shared = f", {launch.shared_bytes} bytes of dynamic shared memory" if launch.shared_bytes else ""
    return f"{launch.kernel}: {grid} blocks of {block} threads{shared}"


def _without_ones(extents: tuple[int, ...]) -> tuple[int, ...]:
    while len(extents) > 1 and extents[-1] == 1:
        extents = extents[:-1]
    return extents


def _bound(source: Source, compilation: Compilation) -> list[str]:
    """What is the same in every call."""
    program, scop, plan = compilation.function, compilation.scop, compilation.plan
    lines: list[str] = []
    for argument in source.bound:
        copies = [c for c in plan.copies if c.ahead]
        if argument.name == PACKED:
            boxes = ", ".join(f"{c.storage} by {c.dtype}{list(c.shape)}" for c in copies)
            lines.append(f"  packed once: {boxes}, {argument.shape[0]} bytes in all")
            continue
        if argument.role == SIZE:
            continue
        size = scop.storages[argument.name].bytes
        computed = "" if argument.name in program.tensors and argument.role == "input" else "computed once, "
        lines.append(f"  bound {argument.name}: {argument.dtype}{list(argument.shape)}, {computed}{size} bytes")
    return lines
