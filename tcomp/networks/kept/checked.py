"""The defs of kernels, checked once for each text and kept on disk: a network that starts again reads none of them.

Such an entry is believed as the cache's machine code is: its file must be the user's own, and its digest fit.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
import json
import pickle
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

from tcomp.errors import ProgramWarning, Span
from tcomp.grammar import Program, define_after
from tcomp.grammar.tree.function import Function
from tcomp.operation import Operation
from tcomp.runtime.specialisation import build_identity
from tcomp.storage.cache import store
from tcomp.storage.forks import ISL
from tcomp.storage.memo import Recent
from tcomp.version import __version__

_KIND = "def"


_READ: Recent[str, Program] = Recent(64)
"""What was made of the defs with which texts of kernels begin: those of a network share most of them."""


def checked(text: str, name: str, source: str, first: Sequence[str] = ()) -> Operation:
    """The def ``name`` of a text that follows on some ``first`` ones, which errors call ``source``.

    Raises CompileError.
    """
    key = _key("".join((*first, text)))
    function = _kept(key)
    if function is None or function.name != name:
        with ISL.value:
            functions = define_after(first, text, source, _READ)
        for warning in (w for found in functions.values() for w in found.warnings):
            warnings.warn(str(warning), ProgramWarning, stacklevel=2)
        function = functions[name]
        store().put(_KIND, key, name, _encode(function))
    return Operation(function)


def kept(text: str, name: str) -> Iterator[tuple[str, str, str, bytes]]:
    """What the cache has of a text: kind, key, label and content of the entry."""
    key = _key(text)
    content = store().get(_KIND, key)
    if content is not None:
        yield _KIND, key, name, content


def _key(text: str) -> str:
    """A digest of a text, and of all that decides what is made of it."""
    facts = (text, __version__, build_identity(), sys.version_info[:2])
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


class _Pickler(pickle.Pickler):
    """Writes dataclasses as calls of their classes: read back, that takes a tenth of the time of their own states.

    Of equal spans, which are a third of all objects, one is written.
    """

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._spans: dict[Span, Span] = {}

    def reducer_override(self, obj: Any) -> Any:
        kind: Any = type(obj)
        names = _fields(kind)
        return NotImplemented if names is None else (kind, tuple(self._one(getattr(obj, name)) for name in names))

    def _one(self, value: Any) -> Any:
        return self._spans.setdefault(value, value) if type(value) is Span else value


@functools.cache
def _fields(kind: type[Any]) -> tuple[str, ...] | None:
    """The arguments that make a dataclass, in order; None for what is none, or is made otherwise."""
    if not dataclasses.is_dataclass(kind) or kind.__reduce__ is not object.__reduce__:
        return None
    fields = dataclasses.fields(kind)
    return tuple(one.name for one in fields) if all(one.init and not one.kw_only for one in fields) else None


def _encode(function: Function) -> bytes:
    content = io.BytesIO()
    _Pickler(content).dump(function)
    return content.getvalue()


def _kept(key: str) -> Function | None:
    content = store().get(_KIND, key)
    if content is None:
        return None
    try:
        found = pickle.loads(content)  # the cache is the user's own, and has machine code besides
    except (pickle.UnpicklingError, AttributeError, ImportError, LookupError, TypeError, ValueError, EOFError):
        return None
    return found if isinstance(found, Function) else None
