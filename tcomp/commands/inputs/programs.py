"""Programs as the command line names them: a file, ``-`` for standard input, or ``library:NAME``."""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Any

from tcomp import grammar
from tcomp.arrays.devices import MAIN
from tcomp.commands.terminal.display import show_error
from tcomp.driver import Compilation
from tcomp.errors import ShapeError, TcompError
from tcomp.generic import GenericOperation
from tcomp.grammar import Generic
from tcomp.grammar.ranges.sizes import check_sizes
from tcomp.grammar.tree.function import Function
from tcomp.mapping.options.options import NAMED, MappingOptions
from tcomp.model.terms.sizes import Sizes
from tcomp.operation import Operation
from tcomp.reading import Files
from tcomp.runtime.arguments import constant
from tcomp.runtime.registry import DEFAULT_TARGET, resolve
from tcomp.runtime.specialisation import Specialisation
from tcomp.shipped import PREFIX, text_of
from tcomp.storage.wholefiles import read_bounded, read_stream
from tcomp.tuner.database.identity import device_model
from tcomp.tuner.policy import stored_options


@dataclass(frozen=True, slots=True)
class Request:
    """Which program the command line names, and what to fix it to; nothing has been read yet."""

    file: str
    definition: str | None
    sizes: Mapping[str, int]
    target: str
    options: str | None
    plan: str | None = None
    types: Mapping[str, str] = field(default_factory=dict)

    def load(self) -> Program:
        """Read, check and pick the def.  Raises TcompError."""
        options = read_options(self.options)
        function = read_function(self.file, self.definition, self.types)
        for warning in function.warnings:
            show_error(str(warning), "yellow")
        _check_size_names(function, self.sizes)
        return Program(Operation(function), options, None if self.plan is None else _read_file(self.plan))


@dataclass(frozen=True, slots=True)
class Program:
    """A checked def, ready to call, and mapping options and the text of a plan if any were given."""

    operation: Operation
    options: MappingOptions | None
    plan: str | None = None

    def call(self, *arguments: Any, out: Any, target: str) -> Any:
        """What the operation makes of arguments, under the plan if there is one.  Raises TcompError."""
        if self.plan is None:
            return self.operation(*arguments, out=out, target=target, options=self.options)
        kernel = self.operation.compile(*arguments, out=out, target=target, options=self.options, plan=self.plan)
        return kernel(*arguments, out=out)

    def lower(self, sizes: Mapping[str, int], target: str) -> Compilation:
        """Every stage for a target; its compiler is not called, so it need not be here.  Raises TcompError."""
        return self.specialised(sizes, target).lower()

    def specialised(self, sizes: Mapping[str, int], target: str) -> Specialisation:
        """What to compile for a target: with the options given, or those that tuning found.  Raises TcompError."""
        function = self.operation.function
        check_sizes(function, sizes)
        sizes = {**function.defaults, **sizes}
        constants = [tensor for tensor in function.inputs if tensor.role == "const"]
        for tensor in constants:
            constant(sizes[tensor.name], tensor, function.source)
        values = {name: sizes[name] for name in (*function.sizes, *(tensor.name for tensor in constants))}
        name = resolve(target, MAIN)
        made = Specialisation(function, Sizes(values), self.options or MappingOptions(), name, False, self.plan)
        if self.options is None and self.plan is None:
            made = replace(made, options=stored_options(made, device_model(name, MAIN)))
        return made


def add_program_arguments(
    parser: argparse.ArgumentParser, target: str = DEFAULT_TARGET, purpose: str = "where to run", mapped: bool = True
) -> None:
    """FILE, --def, --sizes, --target and, if it is to be ``mapped`` in one way, --options and --plan."""
    parser.add_argument("file", metavar="FILE", help="program text; - reads stdin, library:NAME a shipped operator")
    parser.add_argument(
        "--def",
        dest="definition",
        metavar="NAME",
        help="the def to use; by default the only one, or the one named like the file",
    )
    parser.add_argument(
        "--sizes",
        type=parse_sizes,
        action="append",
        default=[],
        metavar="M=128,N=64",
        help="values of size symbols and const parameters",
    )
    add_types_argument(parser)
    parser.add_argument("--target", default=target, help=f"{purpose} (default: {target})")
    if not mapped:
        parser.set_defaults(options=None, plan=None)
        return
    parser.add_argument(
        "--options",
        type=str,
        default=None,
        metavar="OPTIONS",
        help="mapping options: tile=32x32,threads=16x16 or JSON, a file of JSON as @FILE, or the name of a set "
        f"({', '.join(NAMED)}); by default the best that tuning found, else what the model chooses",
    )
    parser.add_argument(
        "--plan",
        metavar="FILE",
        help="use the plan in FILE, as compile --emit prints it after a late pass, perhaps changed by hand",
    )


def add_types_argument(parser: argparse.ArgumentParser) -> None:
    """--types."""
    parser.add_argument(
        "--types",
        type=parse_types,
        default={},
        metavar="T=float16",
        help="what the element types are that the def has as parameters; by default float where it can be",
    )


def parse_types(text: str) -> dict[str, str]:
    """The meaning of ``T=float16,I=int64``; raises ArgumentTypeError, which argparse turns into a usage error."""
    types: dict[str, str] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = (part.strip() for part in item.partition("="))
        if not name or not value:
            raise argparse.ArgumentTypeError(f"{item!r} is not NAME=TYPE, as in T=float16")
        types[name] = value
    return types


def parse_sizes(text: str) -> dict[str, int]:
    """The meaning of ``M=128,N=64``; raises ArgumentTypeError, which argparse turns into a usage error."""
    sizes: dict[str, int] = {}
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = (part.strip() for part in item.partition("="))
        if not name or not re.fullmatch(r"-?[0-9]{1,20}", value):
            raise argparse.ArgumentTypeError(f"{item!r} is not NAME=INTEGER, as in M=128,N=64")
        if name in sizes:
            raise argparse.ArgumentTypeError(f"{name} is given twice")
        sizes[name] = int(value)
    return sizes


def program_request(values: argparse.Namespace) -> Request:
    """What ``add_program_arguments`` asked for; of several --sizes for one name, the last counts."""
    sizes = {name: value for part in values.sizes for name, value in part.items()}
    return Request(values.file, values.definition, sizes, values.target, values.options, values.plan, values.types)


def read_options(text: str | None) -> MappingOptions | None:
    """Mapping options from JSON, ``@FILE`` or ``FILE.json`` with JSON in it, or a list; None stays None."""
    if text is None:
        return None
    text = text.strip()
    if text.startswith("@") or text.endswith(".json"):
        return MappingOptions.from_json(_read_file(text.removeprefix("@")))
    return MappingOptions.from_json(text) if text.startswith("{") else MappingOptions.from_text(text)


def read_source(file: str) -> tuple[str, str]:
    """Program text and its name in errors.  Raises TcompError."""
    if file == "-":
        return _decode(_content(lambda: read_stream(sys.stdin.buffer), "<stdin>"), "<stdin>"), "<stdin>"
    if file.startswith(PREFIX):
        return text_of(file.removeprefix(PREFIX)), file
    return _read_file(file), file


def read_functions(file: str, wanted: str | None = None) -> tuple[dict[str, Function], str]:
    """The checked defs of a program, ``wanted`` even if others are wrong, and its name.  Raises TcompError."""
    functions, _, name = _read_defs(file, wanted)
    return functions, name


def read_function(file: str, wanted: str | None, types: Mapping[str, str]) -> Function:
    """One checked def of a program, for element types by name.  Raises TcompError."""
    functions, generics, name = _read_defs(file, wanted)
    return _with_types(pick(functions, wanted, name), generics, types)


def read_chosen(file: str, wanted: Sequence[str], types: Mapping[str, str]) -> tuple[list[Function], frozenset[str]]:
    """Those of the defs of a program that are wanted, or the only one, each for those of the types that it has.

    Also gives the names of the element types that are parameters of them.  Raises TcompError.
    """
    functions, generics, name = _read_defs(file, None)
    chosen = [functions[d] for d in wanted if d in functions] if wanted else [pick(functions, None, name)]
    known = {f.name: frozenset(n.name for n in generics[f.name].definition.types) for f in chosen if f.name in generics}
    made = [_with_types(f, generics, {n: t for n, t in types.items() if n in known.get(f.name, ())}) for f in chosen]
    return made, frozenset().union(*known.values())


def _with_types(function: Function, generics: Mapping[str, Generic], types: Mapping[str, str]) -> Function:
    if function.name in generics:
        generic = GenericOperation(generics[function.name])
        given = {n: generic.generic.first_types[n] for n in generic.types} | dict(types)
        return generic.with_types(**given).function
    if types:
        raise TcompError(f"{function.name} has no element types as parameters")
    return function


def _read_defs(file: str, wanted: str | None) -> tuple[dict[str, Function], Mapping[str, Generic], str]:
    text, name = read_source(file)
    return *grammar.define_all(text, name, wanted, Files(None if file == "-" else file)), name


def suggestion(name: str, known: Iterable[str], otherwise: str) -> str:
    """The known name that was probably meant, or, after ``otherwise``, all of them."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1)
    return f"did you mean {near[0]}?" if near else f"{otherwise} {', '.join(names) or 'none'}"


def _read_file(file: str) -> str:
    return _decode(_content(lambda: read_bounded(Path(file)), file), file)


def _content(read: Callable[[], bytes], name: str) -> bytes:
    try:
        return read()
    except (OSError, ValueError) as error:
        raise TcompError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}") from None


def _decode(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise TcompError(f"{name} is not UTF-8 text: byte {error.start} is {content[error.start]:#04x}") from None


def _check_size_names(function: Function, sizes: Mapping[str, int]) -> None:
    known = [*function.sizes, *(tensor.name for tensor in function.inputs if tensor.role == "const")]
    unknown = [name for name in sizes if name not in known]
    if unknown:
        hint = suggestion(unknown[0], known, "its sizes are")
        raise ShapeError(f"{function.name} has no size {', '.join(unknown)}; {hint}")


def pick(functions: Mapping[str, Function], definition: str | None, name: str) -> Function:
    """The def of a name; without one the only def, or the one named like the file.  Raises TcompError."""
    if definition is None:
        if len(functions) == 1:
            return next(iter(functions.values()))
        stem = PurePath(name.removeprefix(PREFIX)).stem
        if stem in functions:
            return functions[stem]
        raise TcompError(
            f"{name} has {len(functions)} defs; pick one with --def: {', '.join(functions)}"
            if functions
            else f"{name} has no def"
        )
    if definition not in functions:
        raise TcompError(f"{name} has no def {definition}; {suggestion(definition, functions, 'it has')}")
    return functions[definition]
