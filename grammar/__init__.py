"""The language: text to syntax tree (``parse``), to checked program (``check``), both at once (``define``)."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence

from tcomp.errors import Diagnostic, Span
from tcomp.grammar.calls.programs import Generic, NoFiles, Program, Reader, Used
from tcomp.grammar.checking.check import check
from tcomp.grammar.parsing.parser import parse
from tcomp.grammar.tree.diagnostics import compile_error
from tcomp.grammar.tree.function import Function

_ALONE = NoFiles()

__all__ = ["Generic", "Program", "Reader", "Used", "check", "define", "define_after", "define_all", "parse"]


def define(
    text: str, name: str = "<string>", wanted: str | None = None, reader: Reader = _ALONE
) -> dict[str, Function]:
    """The checked definitions of a text, by name.  Raises CompileError with the errors of all of them.

    Where one of them is ``wanted`` and right, it is returned though others are wrong.  ``reader`` finds the texts
    that the text uses.  Parameters that stand for element types are the first types that fit, ``float`` if it does.
    """
    return define_all(text, name, wanted, reader)[0]


def define_all(
    text: str, name: str = "<string>", wanted: str | None = None, reader: Reader = _ALONE
) -> tuple[dict[str, Function], Mapping[str, Generic]]:
    """What ``define`` gives, and by name the definitions that have element types as parameters."""
    program = Program(text, name, reader)
    functions = _functions(program, wanted)
    return functions, program.generics(functions)


def define_after(
    first: Sequence[str], text: str, name: str, known: MutableMapping[str, Program]
) -> dict[str, Function]:
    """What ``define`` gives for some texts one behind the other, the last of which is ``text``.

    ``known`` has, by their text, what was made of the ``first`` ones before, which is not read and checked again.
    """
    program, whole = None, ""
    for part in first:
        whole += part
        made = known.get(whole)
        if made is None:
            made = Program(whole, name, _ALONE, program)
            _functions(made)
            known[whole] = made
        program = made
    return _functions(Program(whole + text, name, _ALONE, program))


def _functions(program: Program, wanted: str | None = None) -> dict[str, Function]:
    """Raises CompileError with the errors of all definitions, unless one of them is ``wanted`` and right."""
    functions = program.own_functions()
    if program.errors and wanted in functions:
        return {wanted: functions[wanted]}
    if not program.definitions and not program.errors:
        source = program.source
        program.errors.append(Diagnostic("the text defines nothing: expected 'def'", source, Span(0, 0)))
    if program.errors:
        raise compile_error(program.errors)
    return functions
