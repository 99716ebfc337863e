"""Functions that texts of kernels have in common: compiled once, kept in the cache, linked into each kernel.

Every text has them, so that it needs nothing else.  They call no others and do no arithmetic, so that their text and
types tell what they mean, whatever flags a kernel has.  The first kernel has them compiled beside the rest of its text.
"""

from __future__ import annotations

import functools
import hashlib
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from tcomp.storage.cache import store
from tcomp.storage.forks import Renewed
from tcomp.storage.memo import MOST_KEPT, Memo

_KIND = "object"
_HIDDEN = '__attribute__((visibility("hidden")))'
_BEGIN = re.compile(r"^static (void (tc_transpose_\w+)\([^\n]*\))\n(?={\n)", re.MULTILINE)
_END = "\n}\n"
_TYPE_NAME = re.compile(r"\btc_\w+_x\d+\b")
_TYPE = re.compile(r"^typedef [^\n]*\b(tc_\w+) __attribute__[^\n]*\n", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Function:
    """A function by its name: how a kernel defines it, how it declares it instead, and the text of its object."""

    name: str
    definition: str
    declaration: str
    text: str


@dataclass(frozen=True, slots=True)
class SharedFunctions:
    """A kernel's ``text`` that declares what it shares, and the ``objects`` to be linked with it.

    Those that are not there yet are ``made`` by the commands ``beside``, each under its key in the cache.
    """

    text: str
    objects: tuple[Path, ...]
    beside: tuple[tuple[str, ...], ...]
    made: tuple[tuple[str, Path], ...]

    def keep(self) -> None:
        """Put into the cache what was made, now that it is."""
        for key, path in self.made:
            with suppress(OSError):
                content = path.read_bytes()
                store().put(_KIND, key, f"{path.stem}, which kernels share", content)
                _KNOWN.get(key, functools.partial(bytes, content))


@contextmanager
def shared(text: str, directory: Path, compiler: Sequence[str], identity: str) -> Iterator[SharedFunctions]:
    """A kernel's text without functions that it shares with others, for files in a directory.

    ``compiler`` is the command that compiles them, with its flags, and ``identity`` who that is.  A function that is
    being compiled for another kernel during the block stays in the text.
    """
    made, beside, objects = list[tuple[str, Path]](), list[tuple[str, ...]](), list[Path]()
    try:
        for function in functions_of(text):
            key = hashlib.sha256("\n".join((*compiler, identity, function.text)).encode()).hexdigest()
            path = directory / f"{function.name}.o"
            content = _known(key)
            if content is None and not _BEGUN.value.begin(key):
                continue
            if content is None:
                made.append((key, path))
            source = path.with_suffix(".c")
            try:
                path.write_bytes(content) if content else source.write_text(function.text)
            except OSError:
                continue  # what the compiler is going to say of its own files tells more
            if content is None:
                beside.append((*compiler, "-c", "-o", str(path), str(source)))
            objects.append(path)
            text = text.replace(function.definition, function.declaration)
        yield SharedFunctions(text, tuple(objects), tuple(beside), tuple(made))
    finally:
        for key, _ in made:
            _BEGUN.value.end(key)


def functions_of(text: str) -> tuple[Function, ...]:
    """The functions of a kernel's text that may be shared."""
    found = list[Function]()
    for begin in _BEGIN.finditer(text):
        body = text[begin.end() : text.index(_END, begin.end()) + len(_END)]
        types = set(_TYPE_NAME.findall(begin[1] + body))
        needed = "".join(t[0] for t in _TYPE.finditer(text, 0, begin.start()) if t[1] in types)
        made = f"{needed}{_HIDDEN} {begin[1]}\n{body}"
        definition = begin[0] + body
        # As many lines as before, so that those behind it keep their numbers.
        declaration = f"{_HIDDEN} {begin[1]};" + "\n" * definition.count("\n")
        found.append(Function(begin[2], definition, declaration, made))
    return tuple(found)


def _known(key: str) -> bytes | None:
    """The object of that key, if this process or the cache has it."""
    content = _KNOWN.known(key) or store().get(_KIND, key)
    return None if content is None else _KNOWN.get(key, functools.partial(bytes, content))


class _Begun:
    """The keys of what is being compiled."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._keys = set[str]()

    def begin(self, key: str) -> bool:
        """Whether nobody else has begun it."""
        with self._lock:
            mine = key not in self._keys
            self._keys.add(key)
            return mine

    def end(self, key: str) -> None:
        with self._lock:
            self._keys.discard(key)


_BEGUN = Renewed(_Begun)
_KNOWN: Memo[str, bytes] = Memo(MOST_KEPT)
