"""The public interface: programs defined from text or files, their defs as attributes."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from tcomp import grammar
from tcomp.errors import Diagnostic, ProgramWarning, ShapeError, TcompError
from tcomp.generic import GenericOperation
from tcomp.grammar.tree.diagnostics import did_you_mean
from tcomp.model.terms.sizes import SizeRange
from tcomp.openoperation import OpenOperation
from tcomp.operation import Operation
from tcomp.reading import Files, read_text
from tcomp.runtime.openkernel import size_range
from tcomp.shipped import PREFIX, home_of_defs, text_of
from tcomp.storage.forks import ISL
from tcomp.tuner.policy import Policy, policy_of

_SHIPPED = re.compile(rf"{PREFIX}\w*")


class UnknownDefinitionError(TcompError, AttributeError):
    """There is no def of that name."""


class Module:
    """Defs by name, as attributes: ``ops.mm(A, B)``.

    Iterating gives the names; ``ops["mm"]`` works for names that are no attributes, too.
    """

    def __init__(self, operations: Mapping[str, Operation]) -> None:
        self._operations = dict(operations)
        self._add_attributes()

    def _add_attributes(self) -> None:
        """Plain attributes are found faster than through ``__getattr__``."""
        self.__dict__.update({n: o for n, o in self._operations.items() if n[0] != "_" and not hasattr(type(self), n)})

    def __getattr__(self, name: str) -> Operation:
        if name.startswith("__") or name == "_operations":
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Operation:
        try:
            return self._operations[name]
        except KeyError:
            names = f"the defs are: {', '.join(self._operations) or 'none'}"
            hint = did_you_mean(str(name), self._operations) or names
            raise UnknownDefinitionError(Diagnostic(f"there is no def {name}", hint=hint)) from None

    def __reduce__(self) -> tuple[type[Module], tuple[dict[str, Operation]]]:
        return Module, (self._operations,)

    def __iter__(self) -> Iterator[str]:
        return iter(self._operations)

    def __len__(self) -> int:
        return len(self._operations)

    def __contains__(self, name: object) -> bool:
        return name in self._operations

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._operations]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {', '.join(self._operations) or 'nothing'}>"


class Library:
    """The operators that come with tcomp, each an operation: ``tc.library.softmax(X)``.

    ``dir`` and iterating give the names; ``tcomp library`` prints their texts.
    """

    def __getattr__(self, name: str) -> Operation:
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> Operation:
        file = home_of_defs().get(name)
        if file is None:
            hint = did_you_mean(str(name), home_of_defs()) or "`tcomp library` lists its operators"
            raise UnknownDefinitionError(Diagnostic(f"the library has no operator {name}", hint=hint))
        # Found without this method from now on, and one object, which keeps its kernels.
        self.__dict__.update(_library_file(file))
        found: Operation = self.__dict__[name]
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(home_of_defs())

    def __len__(self) -> int:
        return len(home_of_defs())

    def __contains__(self, name: object) -> bool:
        return name in home_of_defs()

    def __dir__(self) -> list[str]:
        return list(home_of_defs())

    def __reduce__(self) -> str:
        return "library"

    def __repr__(self) -> str:
        return f"<library of {len(self)} operators>"


def _library_file(file: str) -> dict[str, Operation]:
    return _operations(PREFIX + file, None, policy_of("cache"))


library = Library()
"""The operators that come with tcomp."""


class ExecutionEngine(Module):
    """Programs defined bit by bit: ``engine.define(text)``, then ``engine.mm(A, B)``; ``tune`` is as for ``define``."""

    def __init__(self, *, tune: str | float = "cache") -> None:
        super().__init__({})
        self._policy = policy_of(tune)

    def define(self, source: str | os.PathLike[str], name: str | None = None) -> None:
        """Add the defs of a text or file; one replaces an earlier def of the same name.  Raises CompileError."""
        self._operations.update(_operations(source, name, self._policy))
        self._add_attributes()


def define(
    source: str | os.PathLike[str],
    name: str | None = None,
    *,
    tune: str | float = "cache",
    dynamic: Iterable[str] | Mapping[str, SizeRange] = (),
) -> Module:
    """The defs of a program, checked, ready to call.

    Args:
        source: program text; or the path of a file: any ``os.PathLike``, or a string that ends in ``.tc``; or
            ``library:NAME``, a file of the library or one of its defs.
        name: what errors call the text; by default the path, or ``<string>``.
        tune: what calls without options do: ``"cache"`` takes the best options that tuning found for such a call on
            such a machine, ``"off"`` leaves the choice to the model of the target, and a number tunes for so many
            seconds before the first call for which nothing is known.
        dynamic: names of sizes that are left open (docs/language.md): one kernel serves all their values, from 1 to
            4096, or those of ``tcomp.range``, as in ``dynamic={"N": tcomp.range(8, 1 << 20, multiple=8)}``.

    Raises:
        CompileError: the text is wrong whatever the sizes; it reports every independent error.
        TcompError: the file cannot be read, or ``tune`` is none of these.
    """
    ranges = dict(dynamic) if isinstance(dynamic, Mapping) else dict.fromkeys(_names(dynamic), size_range(1, 4096))
    return Module(_operations(source, name, policy_of(tune), ranges))


def _names(dynamic: Iterable[str]) -> Iterable[str]:
    return (dynamic,) if isinstance(dynamic, str) else dynamic


def _operations(
    source: str | os.PathLike[str],
    name: str | None,
    policy: Policy,
    ranges: Mapping[str, SizeRange] = MappingProxyType({}),
) -> dict[str, Operation]:
    text, default_name, reader = _read(source)
    with ISL.value:
        functions, generics = grammar.define_all(text, name or default_name, reader=reader)
    for function in functions.values():
        for warning in function.warnings:
            warnings.warn(str(warning), ProgramWarning, stacklevel=3)
    typed = {key: GenericOperation(generic, policy) for key, generic in generics.items()}
    for wanted in ranges:
        if not any(wanted in function.sizes for function in functions.values()):
            known = dict.fromkeys(size for function in functions.values() for size in function.sizes)
            hint = did_you_mean(wanted, known) or f"the sizes are {', '.join(known)}"
            raise ShapeError(Diagnostic(f"no def has a size {wanted} that could be open", hint=hint))
    operations: dict[str, Operation] = {}
    for key, function in functions.items():
        own = {size: values for size, values in ranges.items() if size in function.sizes}
        if own and key in typed:
            raise TcompError(f"{key} has element types as parameters, and its sizes cannot be left open as well")
        operations[key] = typed.get(key) or (
            OpenOperation(function, own, policy) if own else Operation(function, policy)
        )
    return operations


def _read(source: str | os.PathLike[str]) -> tuple[str, str, Files]:
    """Program text, the name of where it comes from, and what reads the files that it uses."""
    if isinstance(source, str) and _SHIPPED.fullmatch(source):
        return text_of(source.removeprefix(PREFIX)), source, Files(source)
    if isinstance(source, str) and not _is_path(source):
        return source, "<string>", Files()
    if not isinstance(source, (str, os.PathLike)):
        raise TcompError(f"a program is text or the path of a file, not {type(source).__name__}")
    path = Path(source)
    return read_text(path), str(path), Files(path)


def _is_path(text: str) -> bool:
    return text.endswith(".tc") and not any(c in text for c in "\n{}#")
