"""The language: text to syntax tree (``parse``), to checked program (``check``), both at once (``define``)."""

from __future__ import annotations

from tcomp.errors import CompileError, Diagnostic, SourceText, Span
from tcomp.grammar.checking.check import check
from tcomp.grammar.parsing.parser import parse, parse_recovering
from tcomp.grammar.ranges.ranges import solvable
from tcomp.grammar.tree.diagnostics import compile_error
from tcomp.grammar.tree.function import Function

__all__ = ["check", "define", "parse"]


def define(text: str, name: str = "<string>") -> dict[str, Function]:
    """The checked definitions of a text, by name.  Raises CompileError with the errors of all of them."""
    source = SourceText(text, name)
    functions: dict[str, Function] = {}
    errors: list[Diagnostic] = []
    definitions, syntax_errors = parse_recovering(source)
    errors.extend(syntax_errors)
    for definition in definitions:
        if definition.name.name in functions:
            errors.append(Diagnostic(f"{definition.name} already defined", source, definition.name.span))
        try:
            functions[definition.name.name] = check(definition, source)
        except CompileError as error:
            errors.extend(error.diagnostics)
        else:
            errors.extend(solvable(functions[definition.name.name]))
    if not definitions and not errors:
        errors.append(Diagnostic("the text defines nothing: expected 'def'", source, Span(0, 0)))
    if errors:
        raise compile_error(errors)
    return functions
