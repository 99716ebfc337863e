"""The operators that come with tcomp, as program text: what ``library:softmax`` names."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from importlib import resources
from types import MappingProxyType

from tcomp.errors import Diagnostic, TcompError
from tcomp.grammar.tree.diagnostics import did_you_mean

PREFIX = "library:"
"""What stands before the name of a file of the library, or of one of its defs."""

_DEF = re.compile(r"^def (\w+)", re.MULTILINE)


@functools.cache
def texts() -> Mapping[str, str]:
    """The text of every file of the library, by its name without ``.tc``."""
    folder = resources.files("tcomp") / "library"
    paths = sorted((path for path in folder.iterdir() if path.name.endswith(".tc")), key=lambda path: path.name)
    return MappingProxyType({path.name.removesuffix(".tc"): path.read_text(encoding="utf-8") for path in paths})


@functools.cache
def home_of_defs() -> Mapping[str, str]:
    """The file of every def of the library, in the order of the files."""
    return MappingProxyType({name: file for file, text in texts().items() for name in _DEF.findall(text)})


def text_of(name: str) -> str:
    """The text of a file of the library, by its name or by that of one of its defs.  Raises TcompError."""
    return texts()[file_of(name)]


def file_of(name: str) -> str:
    """The file of the library that has this name, or a def of this name.  Raises TcompError."""
    file = name if name in texts() else home_of_defs().get(name)
    if file is None:
        known = [*texts(), *home_of_defs()]
        hint = did_you_mean(name, known) or f"its files are {', '.join(texts())}; `tcomp library` lists their defs"
        raise TcompError(Diagnostic(f"the library has no {name}", hint=hint))
    return file
