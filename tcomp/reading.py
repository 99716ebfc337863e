"""Program texts in files and in the library, and how they find the texts that they use."""

from __future__ import annotations

import os
from pathlib import Path

from tcomp.errors import CompileError, Diagnostic, TcompError
from tcomp.grammar import Used
from tcomp.grammar.tree.diagnostics import did_you_mean
from tcomp.grammar.tree.syntax import Use
from tcomp.shipped import PREFIX, file_of, text_of
from tcomp.storage.wholefiles import read_bounded


def read_text(path: Path) -> str:
    """The text of a file.  Raises TcompError if it cannot be read, CompileError if it is not UTF-8."""
    try:
        if path.exists() and not path.is_file():
            raise TcompError(f"cannot read {path}: it is not a file")
        content = read_bounded(path)
    except (OSError, ValueError) as error:
        raise TcompError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        found = f"byte {error.start} is {content[error.start]:#04x}"
        raise CompileError(f"{path} is not UTF-8 text: {found}") from None


class Files:
    """Reads what texts use: files beside the one that names them, and files of the library.

    A text that is no file names files in the working directory.
    """

    def __init__(self, first: str | os.PathLike[str] | None = None) -> None:
        self._names: dict[str, str] = {}
        self.key: str | None = None
        if isinstance(first, str) and first.startswith(PREFIX):
            self.key = PREFIX + file_of(first.removeprefix(PREFIX))
        elif first is not None:
            self.key = self._key(Path(first))

    def read(self, use: Use, key: str | None) -> Used:
        """The text that one known as ``key`` uses.  Raises TcompError."""
        if use.is_library:
            file = file_of(use.target)
            return Used(PREFIX + file, PREFIX + file, text_of(file))
        if key is not None and key.startswith(PREFIX):
            raise TcompError("an operator of the library uses no files")
        path = Path(self._names[key]).parent / use.target if key is not None else Path(use.target)
        try:
            missing = not path.exists()
        except OSError as error:
            raise TcompError(f"cannot read {path}: {error.strerror}") from None
        if missing:
            raise TcompError(Diagnostic(f"there is no file {path}", hint=_similar(path)))
        text = read_text(path)
        return Used(self._key(path), str(path), text)

    def _key(self, path: Path) -> str:
        """One name of a file, whatever the way to it; files that it uses are looked for beside this way."""
        key = os.path.realpath(path)
        self._names.setdefault(key, str(path))
        return key


def _similar(path: Path) -> str | None:
    try:
        return did_you_mean(path.name, (other.name for other in path.parent.iterdir() if other.suffix == ".tc"))
    except OSError:
        return None
