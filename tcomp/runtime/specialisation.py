"""A program fixed to sizes, strides, options and a target: what a kernel is made from, and its text kept on disk.

Finding a schedule takes longer than all else but the C compiler, so the text that comes out is kept under a digest of
everything that went in; a second process then runs neither isl nor the code generator.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Any

import islpy as isl

from tcomp import debug
from tcomp.arrays.kinds import View
from tcomp.backends.host.toolchain import cpu_identity
from tcomp.backends.source import Argument, IndexCheck, Launch, Source, Temporary, TensorMap
from tcomp.driver import Announce, Begun, Compilation, Scheduled, begin, lower, scheduled
from tcomp.errors import CompileError, Diagnostic, TargetError, TcompError
from tcomp.grammar.tree.function import Function, depends_on_data
from tcomp.mapping.machines.cpu import Machine, this_machine
from tcomp.mapping.options.options import MappingOptions
from tcomp.mapping.options.texts import hint_for
from tcomp.model.terms.sizes import Sizes
from tcomp.model.terms.storages import contiguous_strides
from tcomp.runtime.calibrated import calibrated
from tcomp.runtime.registry import backend_of, runtime_of
from tcomp.stepwise import lower_stepwise
from tcomp.storage.cache import store
from tcomp.storage.forks import ISL
from tcomp.values.operators import DTYPES
from tcomp.version import __version__

_REPRO = """\
# Compiles {label} again and prints its text.
from pathlib import Path

from tcomp import MappingOptions, grammar
from tcomp.model.terms.sizes import Part, SizeRange, Sizes
from tcomp.runtime.specialisation import Specialisation

here = Path(__file__).parent
function = grammar.define((here / "00-input.tc").read_text(encoding="utf-8"))[{name!r}]
options = MappingOptions.from_json((here / "options.json").read_text(encoding="utf-8"))
sizes = Sizes({values!r}, {strides!r}, {part!r}, {open!r})
plan = {plan!r}
print(Specialisation(function, sizes, options, {target!r}, {unchecked!r}, plan).lower().source.text)
"""


@dataclass(frozen=True, slots=True)
class Specialisation:
    """What a kernel is made from.

    ``unchecked`` leaves out the checks of data-dependent subscripts; ``plan`` is the text of a plan to use.
    """

    function: Function
    sizes: Sizes
    options: MappingOptions
    target: str
    unchecked: bool
    plan: str | None = None

    @property
    def called(self) -> Function:
        """The function as callers of the kernel see it: without the inputs that are bound."""
        part = self.sizes.part
        if part is None:
            return self.function
        return replace(self.function, inputs=tuple(t for t in self.function.inputs if t.name not in part.bound))

    def lower(self, begun: Begun | None = None, announce: Announce = lambda _: None) -> Compilation:
        """Run the whole pipeline, or go on; log and dump what the environment asks for.  Raises TcompError."""
        backend, checked = backend_of(self.target), not self.unchecked
        self._check_parts()
        with self._scheduling():
            if self.function.recurs:
                facts = (self.function, self.sizes, self.options, backend, checked, self.plan)
                made: Compilation = lower_stepwise(*facts, announce)
            else:
                made = lower(self.function, self.sizes, self.options, backend, checked, self.plan, begun, announce)
            self._report(made)
        return made

    def schedule(self) -> Scheduled:
        """Run the pipeline as far as it does not depend on the options.  Raises TcompError."""
        with self._scheduling():
            return scheduled(self.function, self.sizes)

    def begin(self, first: Scheduled | None = None) -> Begun:
        """Run the pipeline, or go on, up to the plan on which options that are ``planted`` have no effect any more.

        ``first`` is what ``schedule`` gave, perhaps with other options.  Raises TcompError, and may do so where
        ``lower``, without fusion, does not.
        """
        self._check_parts()
        with self._scheduling():
            return begin(self.function, self.sizes, self.options, backend_of(self.target), first)

    def _check_parts(self) -> None:
        """Raises TcompError for options of a part that the program does not have."""
        made = [s.target for s in self.function.statements]
        for name in self.options.of_parts:
            if name not in made:
                hint = hint_for(name, dict.fromkeys(made), "it makes")
                raise TcompError(Diagnostic(f"{self.function.name} makes no {name}, which options are for", hint=hint))

    @contextmanager
    def _scheduling(self) -> Iterator[None]:
        """Alone with isl, whose errors are TcompErrors."""
        try:
            with ISL.value:
                yield
        except RecursionError:
            raise CompileError(f"{self.function.name} is nested too deeply to compile") from None
        except isl.Error as error:
            raise TcompError(f"isl could not schedule {self.label()}: {error}") from None

    def _report(self, made: Compilation) -> None:
        debug.log(1, f"{self.label()}: scheduled in {1e3 * sum(made.seconds.values()):.0f} ms")
        for stage, seconds in made.seconds.items():
            debug.log(2, f"{self.label()}: {stage} {1e3 * seconds:.1f} ms")
        if debug.level() >= 3:
            for stage, text in made.stages.items():
                debug.log(3, f"{self.label()}: {stage}\n{text}")
        directory = debug.dump_directory()
        if directory is not None:
            suffix = "cu" if made.source.launches else "c"
            debug.write_dump(directory, self.label(), made.stages, self.options.to_json(), self._repro(), suffix)

    def _repro(self) -> str:
        """A program, for the folder of a dump, that makes the same kernel again."""
        return _REPRO.format(
            label=self.label(),
            name=self.function.name,
            values=dict(self.sizes.values),
            strides=dict(self.sizes.strides),
            part=self.sizes.part,
            open=dict(self.sizes.open),
            target=self.target,
            unchecked=self.unchecked,
            plan=self.plan,
        )

    def key(self) -> str:
        """A digest of all that the text depends on."""
        facts = (
            str(self.function),
            _checked_spans(self.function),
            sorted(self.sizes.values.items()),
            sorted(self.sizes.strides.items()),
            None if self.sizes.part is None else asdict(self.sizes.part),
            [(name, *astuple(values)) for name, values in self.sizes.open.items()],
            _options_text(self.options),
            self.target,
            self.unchecked,
            self.plan,
            (cpu_identity(), _machine_facts(this_machine()), dict(calibrated())),
            (__version__, build_identity(), str(isl.version.VERSION)),
        )
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()

    def source(self, begun: Begun | None = None) -> tuple[Source, Compilation | None]:
        """The kernel's text, from the cache on disk or from the pipeline, whose results come with it then.

        ``begun`` is the part of the pipeline that was run before.  What the pipeline makes is compiled as well, while
        it is proved.
        """
        if debug.dump_directory() is not None or debug.check_every_pass() or debug.level() >= 2:
            compilation = self.lower(begun)
            return compilation.source, compilation
        key = self.key()
        source = _kept(key)
        if source is not None:
            return source, None
        with store().turn("source", key):
            source = _kept(key)
            if source is not None:
                return source, None
            # What waits for the compiler should not wait for isl, too: the stacks are left without its lock.  Who finds
            # the text finds the kernel, unless the compiler failed.
            with ExitStack() as afterwards, ExitStack() as compilers:
                runtime = runtime_of(self.target)
                compilation = self.lower(begun, lambda text: compilers.enter_context(runtime.loading(text)))
                afterwards.callback(store().put, "source", key, self.label(), _encode(compilation.source))
        return compilation.source, compilation

    def label(self) -> str:
        """The def and its sizes: ``mm(M=64, N=16, K=32)``."""
        sizes = {**self.sizes.values, **self.sizes.open}
        return f"{self.function.name}({', '.join(f'{name}={value}' for name, value in sizes.items())})"


def checked_choices(
    target: str | None, options: MappingOptions | str | Mapping[str, object] | None
) -> MappingOptions | None:
    """The options of a call as such.  Raises TcompError, and TargetError for a target that is no name."""
    if target is not None and not isinstance(target, str):
        raise TargetError(f"target must be a name such as 'cpu', not {type(target).__name__}")
    return None if options is None else MappingOptions.of(options)


def strides_of(views: Mapping[str, View]) -> dict[str, tuple[int, ...]]:
    """The strides of those arrays that are not in C order; those that no element uses are as there."""
    found = {name: _strides(view) for name, view in views.items()}
    return {name: strides for name, strides in found.items() if strides != contiguous_strides(views[name].shape)}


def _strides(view: View) -> tuple[int, ...]:
    usual = contiguous_strides(view.shape)
    if 0 in view.shape:
        return usual
    return tuple(s if n > 1 else u for s, u, n in zip(view.strides, usual, view.shape, strict=True))


@functools.lru_cache(maxsize=64)
def _options_text(options: MappingOptions) -> str:
    return options.to_json()


@functools.lru_cache(maxsize=16)
def _machine_facts(machine: Machine) -> dict[str, Any]:
    return asdict(machine)


def _checked_spans(function: Function) -> list[tuple[int, int]]:
    """Where the subscripts stand that are checked when run: the kernel's text says so, though its program does not."""
    return [(s.span.start, s.span.end) for _, _, s in function.accesses() if depends_on_data(s)]


def _kept(key: str) -> Source | None:
    kept = store().get("source", key)
    return None if kept is None else _decode(kept)


def _encode(source: Source) -> bytes:
    return json.dumps(_plain(asdict(source))).encode()


def _plain(value: Any) -> Any:
    """What JSON holds: element types by their names, wherever they are."""
    if isinstance(value, dict):
        return {k: v["name"] if k == "dtype" else _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list | tuple) else value


def _decode(content: bytes) -> Source | None:
    """The inverse of ``_encode``; None for what another version wrote."""
    try:
        return _source(json.loads(content))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _source(plain: dict[str, Any]) -> Source:
    """Raises KeyError and the like for what another version wrote."""
    arguments = tuple(
        Argument(a["name"], DTYPES[a["dtype"]], tuple(a["shape"]), tuple(a["strides"]), a["role"], a["bound"])
        for a in plain.pop("arguments")
    )
    checks = tuple(IndexCheck(**c | {"indices": tuple(c["indices"])}) for c in plain.pop("checks"))
    launches = tuple(
        Launch(
            launch["kernel"],
            tuple(launch["grid"]),
            tuple(launch["block"]),
            launch["shared_bytes"],
            tuple(launch["arguments"]),
            tuple((number, statement) for number, statement in launch["lines"]),
            tuple(launch["steps"]),
            tuple(
                TensorMap(m["storage"], DTYPES[m["dtype"]], tuple(m["extents"]), tuple(m["strides"]), tuple(m["box"]))
                for m in launch["maps"]
            ),
        )
        for launch in plain.pop("launches")
    )
    temporaries = tuple(
        Temporary(t["name"], DTYPES[t["dtype"]], tuple(t["shape"]), t["offset"]) for t in plain.pop("temporaries")
    )
    turns, otherwise = plain.pop("turns"), plain.pop("otherwise")
    names = ("flags", "aligned", "warnings", "notes", "packed")
    plain |= {name: tuple(plain[name]) for name in names}
    turns = None if turns is None else tuple(map(tuple, turns))
    otherwise = None if otherwise is None else _source(otherwise)
    return Source(
        arguments=arguments, checks=checks, launches=launches, temporaries=temporaries, turns=turns,
        otherwise=otherwise, **plain,
    )  # fmt: skip


@functools.cache
def build_identity() -> str:
    """A digest of the names, sizes and dates of tcomp's own files, so that an edited tree does not find old texts."""
    found: list[tuple[str, int, int]] = []
    folders = [str(Path(__file__).parents[1])]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                name = entry.name
                if name.endswith((".py", ".lark")):
                    status = entry.stat()
                    found.append((name, status.st_size, status.st_mtime_ns))
                elif not name.startswith(("_", ".")) and entry.is_dir():
                    folders.append(entry.path)
    return hashlib.sha256("".join(map(repr, sorted(found))).encode()).hexdigest()
