"""The language: text to syntax tree (``parse``), to checked program (``check``), both at once (``define``)."""

from __future__ import annotations

from tcomp.errors import Diagnostic, Span
from tcomp.grammar.calls.programs import NoFiles, Program, Reader, Used
from tcomp.grammar.checking.check import check
from tcomp.grammar.parsing.parser import parse
from tcomp.grammar.tree.diagnostics import compile_error
from tcomp.grammar.tree.function import Function

_ALONE = NoFiles()

__all__ = ["Reader", "Used", "check", "define", "parse"]


def define(
    text: str, name: str = "<string>", wanted: str | None = None, reader: Reader = _ALONE
) -> dict[str, Function]:
    """The checked definitions of a text, by name.  Raises CompileError with the errors of all of them.

    Where one of them is ``wanted`` and right, it is returned though others are wrong.  ``reader`` finds the texts
    that the text uses.
    """
    program = Program(text, name, reader)
    functions = program.own_functions()
    if program.errors and wanted in functions:
        return {wanted: functions[wanted]}
    if not program.definitions and not program.errors:
        source = program.source
        program.errors.append(Diagnostic("the text defines nothing: expected 'def'", source, Span(0, 0)))
    if program.errors:
        raise compile_error(program.errors)
    return functions
