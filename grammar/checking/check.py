"""From syntax tree to checked program: ``check``."""

from __future__ import annotations

from tcomp.errors import SourceText
from tcomp.grammar.checking.names import Environment, TensorEntry
from tcomp.grammar.checking.parameters import declare_parameters
from tcomp.grammar.checking.statements import check_statement
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.diagnostics import Report
from tcomp.grammar.tree.function import Function, Statement, Tensor


def check(definition: syntax.Definition, source: SourceText) -> Function:
    """The typed program of a definition.  Raises CompileError with every independent error in it."""
    report = Report(source)
    environment = Environment(
        written_later=frozenset(s.target.name for s in syntax.statements(definition.body)),
    )
    declare_parameters(definition, environment, report)
    statements = []
    for item in definition.body:
        if report.is_full:
            report.raise_errors()
        if isinstance(item, syntax.Loop):
            report.error("sequential loops (`for t in ...`) are not supported yet", item.span)
            continue
        checked = check_statement(item, environment, report)
        if checked is not None:
            statements.append(checked)
    _check_outputs(definition, environment, report)
    report.raise_errors()
    return _function(definition, environment, tuple(statements), report)


def _check_outputs(definition: syntax.Definition, environment: Environment, report: Report) -> None:
    excused = environment.misdirected or any(isinstance(item, syntax.Loop) for item in definition.body)
    temporaries = [e for e in environment.tensors.values() if e.role == "temporary"]
    for entry in environment.tensors.values():
        if entry.role == "output" and not entry.written and not excused:
            hint = report.did_you_mean(entry.name, (t.name for t in temporaries if not t.read))
            message = f"undefined variable {entry.name} used here: no statement writes this output"
            report.error(message, entry.span, hint)
    for entry in temporaries:
        if not entry.read:
            report.warn(f"temporary {entry.name} is written but never read", entry.span)


def _function(
    definition: syntax.Definition, environment: Environment, statements: tuple[Statement, ...], report: Report
) -> Function:
    inputs = []
    for parameter in definition.inputs:
        name = parameter.name.name
        if parameter.const:
            inputs.append(Tensor(name, environment.constants[name], 0, (), "const", parameter.name.span))
        else:
            inputs.append(_tensor(environment.tensors[name]))
    outputs = tuple(_tensor(environment.tensors[p.name.name]) for p in definition.outputs)
    temporaries = tuple(_tensor(e) for e in environment.tensors.values() if e.role == "temporary")
    return Function(
        definition.name.name,
        tuple(inputs),
        outputs,
        temporaries,
        tuple(environment.sizes),
        statements,
        tuple(t.name for t in outputs if t.name in environment.needs_content),
        tuple(report.warnings),
        definition,
        report.source,
    )


def _tensor(entry: TensorEntry) -> Tensor:
    assert entry.dtype is not None and entry.rank is not None
    return Tensor(entry.name, entry.dtype, entry.rank, entry.dims, entry.role, entry.span)
