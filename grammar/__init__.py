"""The language: text to syntax tree (``parse``), to checked program (``check``), both at once (``define``)."""

from __future__ import annotations

from tcomp.errors import CompileError, Diagnostic, SourceText, Span
from tcomp.grammar.checking.check import check
from tcomp.grammar.parsing.parser import parse, parse_recovering
from tcomp.grammar.ranges.ranges import solvable
from tcomp.grammar.tree.diagnostics import compile_error
from tcomp.grammar.tree.function import Function

__all__ = ["check", "define", "parse"]


def define(text: str, name: str = "<string>", wanted: str | None = None) -> dict[str, Function]:
    """The checked definitions of a text, by name.  Raises CompileError with the errors of all of them.

    Where one of them is ``wanted`` and right, it is returned though others are wrong.
    """
    source = SourceText(text, name)
    functions: dict[str, Function] = {}
    errors: list[Diagnostic] = []
    wrong: set[str] = set()
    definitions, syntax_errors = parse_recovering(source)
    errors.extend(syntax_errors)
    for definition in definitions:
        key, problems = definition.name.name, []
        if key in functions or key in wrong:
            problems.append(Diagnostic(f"{key} already defined", source, definition.name.span))
        try:
            functions[key] = check(definition, source)
        except CompileError as error:
            problems.extend(error.diagnostics)
        else:
            problems.extend(solvable(functions[key]))
        if problems:
            wrong.add(key)
        errors.extend(problems)
    if errors and wanted in functions and wanted not in wrong:
        return {wanted: functions[wanted]}
    if not definitions and not errors:
        errors.append(Diagnostic("the text defines nothing: expected 'def'", source, Span(0, 0)))
    if errors:
        raise compile_error(errors)
    return functions
