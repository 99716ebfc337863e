"""Open this first: a schedule as its users write it, one step after another.

The words are those of Halide (Ragan-Kelley et al., PLDI 2013), TVM (Chen et al., OSDI 2018) and Exo (Ikarashi et al.,
PLDI 2022); the proof is that of every plan (``mapping/proof``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from tcomp.driver import Compilation
from tcomp.grammar.ranges.ranges import infer
from tcomp.grammar.tree.function import Function
from tcomp.mapping.options.options import MappingOptions
from tcomp.model.build import build
from tcomp.model.madeup import Arguments, random_arguments
from tcomp.model.terms.sizes import Sizes
from tcomp.runtime.kernel import Kernel
from tcomp.runtime.registry import machine_of
from tcomp.runtime.specialisation import Specialisation
from tcomp.schedules.choices import Choice, Measured, choice_of, combinations, seconds_of
from tcomp.schedules.decisions import Step, options_of
from tcomp.schedules.effects import check_loops, check_options, check_text, promises, warn_of_one_thread
from tcomp.schedules.errors import IllegalStepError, ScheduleError
from tcomp.schedules.printing import loops_text
from tcomp.schedules.proving import check, check_readers, check_side_by_side
from tcomp.schedules.registers import in_registers
from tcomp.schedules.stages import PARALLEL, stages_of
from tcomp.schedules.state import State
from tcomp.schedules.taking import Base, Compile, applied, resolved
from tcomp.schedules.trees import plan_of
from tcomp.storage.forks import ISL

if TYPE_CHECKING:
    from tcomp.pictures.canvas import Picture


class Schedule:
    """A schedule: ``s["C"]`` is the same with the stage that computes C in hand, to which the next steps belong.

    Each step gives a new schedule, which is proved.  A step that would compute something else raises IllegalStepError,
    a LegalityError with two instances of statements that show it; what the passes cannot do, ScheduleError, a
    PlanError.
    """

    def __init__(
        self, base: Base, state: State, taken: tuple[Step, ...] = (), chosen: Mapping[str, Any] | None = None,
        automatic: bool = False, stage: str | None = None,
    ) -> None:  # fmt: skip
        self._base = base
        self._state = state
        self._taken = taken
        self._chosen = dict(chosen or {})
        self._automatic = automatic
        self._stage = stage

    def __getitem__(self, stage: str) -> Schedule:
        """The schedule with a stage in hand: the tensor that it computes, ``C#2`` for a second one of that name."""
        self._state.stage(stage)
        return Schedule(self._base, self._state, self._taken, self._chosen, self._automatic, stage)

    def __str__(self) -> str:
        return loops_text(self._state) if not self._chosen_by_model else f"{self.options}\n"

    def __repr__(self) -> str:
        return f"<schedule of {self._base.function.name} for {self._base.target}, {len(self._taken)} steps>"

    @property
    def stages(self) -> tuple[str, ...]:
        """The names of the stages, in order."""
        return tuple(s.name for s in self._state.stages)

    @property
    def loops(self) -> tuple[str, ...]:
        """The names of the loops of the stage in hand, outermost first."""
        return tuple(loop.name for loop in self._state.stage(self._in_hand).loops)

    @property
    def state(self) -> State:
        """The stages and their loops as values."""
        return self._state

    @property
    def _in_hand(self) -> str:
        if self._stage is None:
            if len(self._state.stages) == 1:
                return self._state.stages[0].name
            raise ScheduleError(f"say of which stage this is a step: s[{self.stages[-1]!r}], for instance")
        return self._stage

    @property
    def _chosen_by_model(self) -> bool:
        return self._automatic or self._base.gpu

    # Loops.

    def split(self, loop: str, size: Any, names: tuple[str, str] | None = None) -> Schedule:
        """A loop in parts of ``size`` iterations: loops LOOP_o and LOOP_i, or with ``names``."""
        return self._step("split", loop, size, names=names)

    def tile(self, *loops_and_sizes: Any) -> Schedule:
        """Loops in tiles: names, then sizes.  The loops over tiles stand around those inside a tile."""
        return self._step("tile", *loops_and_sizes)

    def reorder(self, *loops: str) -> Schedule:
        """Loops in this order, outermost first, on the places that they have together."""
        return self._step("reorder", *loops)

    def interchange(self, first: str, second: str) -> Schedule:
        """Two loops with their places exchanged."""
        return self._step("interchange", first, second)

    def fuse(self, outer: str, inner: str, name: str | None = None) -> Schedule:
        """Two loops, one directly inside the other, as one."""
        return self._step("fuse", outer, inner, name=name)

    def skew(self, loop: str, by: str, factor: Any = 1) -> Schedule:
        """A loop that begins ``factor`` iterations later in each iteration of ``by``, which stands around it."""
        return self._step("skew", loop, by, factor)

    def reverse(self, loop: str) -> Schedule:
        """A loop from its end to its beginning."""
        return self._step("reverse", loop)

    def parallel(self, *loops: str) -> Schedule:
        """The outermost loops on several threads."""
        return self._step("parallel", *loops)

    def serial(self, *loops: str) -> Schedule:
        """Loops one iteration after another."""
        return self._step("serial", *loops)

    def vectorize(self, loop: str) -> Schedule:
        """The innermost loop in vectors; one over what is reduced keeps partial sums in their lanes."""
        return self._step("vectorize", loop)

    def unroll(self, *given: Any) -> Schedule:
        """A loop as a copy of its body for each iteration: its name, and a size to unroll parts of it.

        On a GPU how many copies of loop bodies there may be.
        """
        return self._step("unroll", *given)

    # Where a stage is computed, and where its values are.

    def compute_at(self, consumer: str, loop: str, store_at: str | None = None, shift: int | None = None) -> Schedule:
        """In each iteration of a loop of a stage that reads this one, what that needs, again if need be.

        ``store_at`` is a loop of the consumer further out, in an iteration of which each element is computed once, and
        kept; "root" has it computed once in all.  With ``shift`` the outermost loops run in step with the consumer's
        instead, each instance once, so many iterations later (earlier if negative).
        """
        return self._step("compute_at", consumer, loop, store_at=store_at, shift=shift)

    def store_at(self, loop: str) -> Schedule:
        """Compute each element once in an iteration of an outer loop of the consumer; "root": once in all."""
        return self._step("store_at", loop)

    def compute_root(self) -> Schedule:
        """In loops of its own."""
        return self._step("compute_root")

    def inline(self) -> Schedule:
        """As part of what reads it."""
        return self._step("inline")

    def cache_read(self, tensor: str, at: str) -> Schedule:
        """Copy what a tensorized product reads of a tensor in an iteration of a loop, in the order of use."""
        return self._step("cache_read", tensor, at=at)

    def cache_write(self, *given: Any) -> Schedule:
        """Nothing to say: sums have a place of their own always, as near as their loops let it be."""
        raise ScheduleError(
            "sums are collected in a place of their own without being asked, and go to the result when they are done: "
            "tile the loops, and the place is in the tile"
        )

    def tensorize(self) -> Schedule:
        """The loops from the first one over what is reduced on as one operation, whose sums are in registers."""
        return self._step("tensorize")

    # What only the passes of a GPU take, or those of a processor beside `auto`.

    def blocks(self, *extents: Any) -> Schedule:
        """Most blocks of a GPU's grid in x, y, z."""
        return self._step("blocks", *extents)

    def threads(self, *extents: Any) -> Schedule:
        """Threads of a block in x, y, z; on a processor, beside ``auto``, how many at most."""
        return self._step("threads", *extents)

    def shared(self, *tensors: str) -> Schedule:
        """Fetch into shared memory what threads of a block read repeatedly; ``tensors`` must be among it."""
        return self._step("shared", *tensors)

    def registers(self, *extents: Any) -> Schedule:
        """Keep what one thread needs in its registers; on a processor, beside ``auto``, the rows and columns of it."""
        return self._step("registers", *extents)

    def double_buffer(self) -> Schedule:
        """Fetch the next tile of operands while this one is worked on."""
        return self._step("double_buffer")

    def auto(self) -> Schedule:
        """Leave to the model of the target what the steps so far and from here on do not say."""
        made = Schedule(self._base, self._state, self._taken, self._chosen, True, self._stage)
        made.options  # noqa: B018  (raises where a step is none that the passes take)
        return made

    # What comes of it.

    @property
    def options(self) -> MappingOptions:
        """The mapping options: what the steps say where the model chooses the rest; else whether there are threads."""
        if self._chosen_by_model:
            return options_of(self._resolved(), stages_of(self._base.function, self._base.program), self._base.gpu)
        return MappingOptions(parallel=any(item.how == PARALLEL for s in self._state.stages for item in s.loops))

    @property
    def plan(self) -> str | None:
        """The text of the plan (``docs/plans.md``); None where the model of the target makes it."""
        if self._chosen_by_model or not self._state.stages:
            return None
        with ISL.value:
            return plan_of(self._mapped(), f"schedule: {self._one_line()}")

    def _mapped(self) -> State:
        """The state with operations cut to the registers of the target."""
        return in_registers(self._state, machine_of(self._base.target))

    def compile(self) -> Kernel:
        """The kernel.  Raises ScheduleError where the passes did not do what a step says."""
        sizes = dict(self._base.sizes.values)
        kernel = self._base.compile(sizes=sizes, target=self._base.target, options=self.options, plan=self.plan)
        if self._chosen_by_model or promises(self._state):
            self._check_effects(kernel.compilation)
        warn_of_one_thread(self._state, kernel.source)
        kernel.schedule = self
        return kernel

    @property
    def compilation(self) -> Compilation:
        """Everything between the program and the text of the kernel, for which no compiler of C or CUDA is needed.

        Raises ScheduleError as ``compile`` does.
        """
        base = self._base
        made = Specialisation(base.function, base.sizes, self.options, base.target, False, self.plan).lower()
        self._check_effects(made)
        return made

    def _check_effects(self, made: Compilation) -> None:
        if self._chosen_by_model:
            check_options(self._resolved(), self._base.gpu, made)
        else:
            check_text(self._mapped(), made)

    def draw(self, what: str = "domain") -> Picture:
        """A picture of what comes of it, as of a kernel (docs/pictures.md).  Raises MissingPackageError, TcompError."""
        from tcomp.pictures.drawing import draw  # noqa: PLC0415  (few processes draw)

        return draw(self.compilation, what, self._base.sizes)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"

    def source(self) -> str:
        """The Python that makes this schedule."""
        base = self._base
        sizes = dict(base.sizes.values)
        lines = [f's = ops.{base.function.name}.schedule(sizes={sizes!r}, target="{base.target}")']
        lines += [f's = s["{step.stage}"].{step}' for step in self._taken]
        return "\n".join([*lines, *(["s = s.auto()"] if self._automatic else ())]) + "\n"

    def _one_line(self) -> str:
        return " ".join(f"{step.stage}.{step}" for step in self._resolved()) or "as the program stands"

    # Choices.

    def choice(self, name: str, values: Sequence[Any]) -> Choice:
        """A value to give to a step, of which ``tune`` finds the best; the first until then."""
        return choice_of(name, values)

    @property
    def choices(self) -> dict[str, Choice]:
        """What is open, by name."""
        return {
            v.name: v
            for step in self._taken
            for v in (*step.given, *dict(step.named).values())
            if isinstance(v, Choice)
        }

    def variants(self) -> Iterator[tuple[dict[str, Any], Schedule]]:
        """Every combination of the choices that is legal, with its schedule."""
        for values in combinations(self.choices):
            try:
                yield values, self.chosen(**values)
            except (IllegalStepError, ScheduleError):
                continue

    def chosen(self, **values: Any) -> Schedule:
        """The schedule with other values of its choices.  Raises what steps raise."""
        unknown = next((name for name in values if name not in self.choices), None)
        if unknown is not None:
            raise ScheduleError(f"there is no choice {unknown!r}; there are {', '.join(self.choices) or 'none'}")
        for name, value in values.items():
            if value not in self.choices[name].values:
                raise ScheduleError(f"{value!r} is none of the values of {self.choices[name]!r}")
        made = replace_chosen(self, {**self._chosen, **values})
        made._check("the chosen values")
        return made

    def tune(self) -> Measured:
        """Every legal variant, compiled and measured on made-up arrays on this machine.  Raises ScheduleError."""
        function = self._base.function
        given = random_arguments(function, infer(function, self._base.sizes.values), 0)
        rows, schedules = [], []
        for values, schedule in self.variants():
            kernel = schedule.compile()
            rows.append((values, seconds_of(_call(kernel, given))))
            schedules.append(schedule)
        if not rows:
            raise ScheduleError("none of the choices is legal")
        order = sorted(range(len(rows)), key=lambda n: rows[n][1])
        return Measured(tuple(rows[n] for n in order), schedules[order[0]])

    # Steps.

    def _resolved(self) -> tuple[Step, ...]:
        return tuple(resolved(step, self._chosen) for step in self._taken)

    def _step(self, word: str, *given: Any, **named: Any) -> Schedule:
        step = Step(self._in_hand, word, given, tuple((k, v) for k, v in named.items() if v is not None))
        known = self.choices
        for value in (*given, *named.values()):
            if isinstance(value, Choice) and known.get(value.name, value) != value:
                raise ScheduleError(f"there is a choice {value.name!r} with other values already")
        taken = (*self._taken, step)
        if self._chosen_by_model:
            made = Schedule(self._base, self._state, taken, self._chosen, self._automatic, self._stage)
            made.options  # noqa: B018  (raises where the step is none that the passes take)
            return made
        with ISL.value:
            state = applied(self._state, resolved(step, self._chosen))
        stage = self._stage if any(s.name == self._stage for s in state.stages) else None
        made = Schedule(self._base, state, taken, self._chosen, self._automatic, stage)
        made._check(f"{step.stage}.{resolved(step, self._chosen)}")
        return made

    def _check(self, step: str) -> None:
        if not self._chosen_by_model:
            with ISL.value:
                check_side_by_side(self._state, step)
                check_readers(self._state, step)
                check_loops(self._state)
            text = self.plan
            assert text is not None
            with ISL.value:
                check(self._state, text, self._base.program, step)


def begin(function: Function, sizes: Sizes, target: str, compile_kernel: Compile) -> Schedule:
    """The schedule that is the program as it stands: each stage in loops of its own, in order.  Raises TcompError."""
    if function.recurs:
        raise ScheduleError(
            f"{function.name} runs step by step (`for`); schedules are for programs without such blocks"
        )
    with ISL.value:
        program = build(function, sizes)
        state = State(function, program, stages_of(function, program))
    return Schedule(Base(function, sizes, target, program, compile_kernel), state)


def _call(kernel: Kernel, given: Arguments) -> Callable[[], object]:
    """A call of a kernel; outputs whose content is read get the same again."""
    contents = given.fresh_contents()
    out = dict(contents.items()) or None
    return lambda: kernel(*given.values, out=out)


def replace_chosen(schedule: Schedule, values: Mapping[str, Any]) -> Schedule:
    """The same steps taken with other values of choices, unproved."""
    base = schedule._base
    with ISL.value:
        state = State(base.function, base.program, stages_of(base.function, base.program))
        if not schedule._chosen_by_model:
            for step in schedule._taken:
                state = applied(state, resolved(step, values))
    return Schedule(base, state, schedule._taken, values, schedule._automatic, schedule._stage)
