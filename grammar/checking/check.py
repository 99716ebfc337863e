"""From syntax tree to checked program: ``check``."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tcomp.errors import CompileError, Diagnostic, SourceText
from tcomp.grammar.checking.names import Environment, TensorEntry, is_function
from tcomp.grammar.checking.parameters import declare_parameters
from tcomp.grammar.checking.places import Places, is_place
from tcomp.grammar.checking.rows import Rows
from tcomp.grammar.checking.scatters import Scatters
from tcomp.grammar.checking.statements import check_statement
from tcomp.grammar.checking.steps import Blocks
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.diagnostics import Report
from tcomp.grammar.tree.function import Function, Statement, Step, Tensor


def check(definition: syntax.Definition, source: SourceText, defs: Collection[str] = ()) -> Function:
    """The typed program of a definition without calls.  Raises CompileError with every independent error in it.

    ``defs`` are names of other defs, for hints.
    """
    if definition.types:
        message = f"{definition.name} has element types as parameters, so there are as many programs as types"
        raise CompileError(Diagnostic(message, source, definition.types[0].span, "define the text, and choose types"))
    checker = Checker(definition, source, defs)
    added = tuple(each for item in definition.body for each in checker.add(item))
    checker.close()
    return checker.whole(definition if added == definition.body else replace(definition, body=added))


class Checker:
    """A definition that is being checked, statement by statement."""

    def __init__(self, definition: syntax.Definition, source: SourceText, defs: Collection[str] = ()) -> None:
        self.definition = definition
        self.report = Report(source)
        written = (name.name for s in syntax.statements(definition.body) for name in (s.target, *s.others))
        self.environment = Environment(written_later=frozenset(written), defs=defs)
        self.statements: list[Statement] = []
        self._steps: frozenset[str] = frozenset()
        self._places = Places(definition, self.environment, self.report)
        self._rows = Rows(self.environment, self.report, self._places.fresh)
        self._scatters = Scatters(definition, self.environment, self.report, self._places.fresh)
        self._blocks = Blocks(self.environment, self.report, self._inside)
        declare_parameters(definition, self.environment, self.report)

    def add(self, item: syntax.Statement | syntax.Loop) -> tuple[syntax.Statement | syntax.Loop, ...]:
        """Check the next statement, and give those that it stands for.

        Raises CompileError where there are more errors than are shown.
        """
        if self.report.is_full:
            self.report.raise_errors()
        if isinstance(item, syntax.Loop):
            loop = self._without_places(item)
            self._blocks.add(loop)
            return (loop,)
        items, report = self._expanded(item)
        for each in items:
            if not self._statement(each, (), self.environment, report):
                # What the item stands for further on repeats the mistake.
                report = Report(self.report.source)
        return items

    def _expanded(self, item: syntax.Statement) -> tuple[tuple[syntax.Statement, ...], Report]:
        """What a statement stands for, and where errors in that go: nowhere, if the statement is wrong already."""
        errors = len(self.report.errors)
        items = self._places.expanded(item, self._steps) if is_place(item) else (item,)
        items = tuple(each for one in items for each in self._scatters.expanded(one, self._steps))
        items = tuple(each for one in items for each in self._rows.expanded(one))
        return items, self.report if len(self.report.errors) == errors else Report(self.report.source)

    def _without_places(self, loop: syntax.Loop) -> syntax.Loop:
        """A block with what its statements stand for."""
        body: list[syntax.Statement | syntax.Loop] = []
        around, self._steps = self._steps, self._steps | {loop.index.name}
        for item in loop.body:
            body += (self._without_places(item),) if isinstance(item, syntax.Loop) else self._expanded(item)[0]
        self._steps = around
        return loop if tuple(body) == loop.body else replace(loop, body=tuple(body))

    def _inside(
        self, item: syntax.Statement, steps: tuple[Step, ...], environment: Environment, report: Report
    ) -> None:  # fmt: skip
        """Check a statement of a block; in a trial environment nothing is kept."""
        if item.others or (item.subscripts is None and self._is_call(item.value)):
            if report is self.report:
                message = "a call of a def cannot stand in a block yet"
                report.error(message, item.value.span, "write the statements of the def here")
            self.environment.misdirected = True
        elif environment is self.environment:
            self._statement(item, steps, environment, report)
        else:
            check_statement(item, environment, report, steps)

    def _is_call(self, value: syntax.Expr) -> bool:
        name = value.function.name if isinstance(value, syntax.Apply) else None
        return name in self.environment.defs and name not in self.environment.tensors and not is_function(name or "")

    def _statement(
        self, item: syntax.Statement, steps: tuple[Step, ...], environment: Environment, report: Report
    ) -> bool:  # fmt: skip
        checked = check_statement(item, environment, report, steps)
        if checked is not None:
            self.statements.append(checked)
        return checked is not None

    def so_far(self) -> Function:
        """The program up to here, which has no errors."""
        return _function(self.definition, self.environment, tuple(self.statements), self.report)

    @property
    def is_wrong(self) -> bool:
        """Whether something is wrong, reported here or in a def that is called."""
        return bool(self.report.errors) or self.environment.misdirected

    def close(self) -> None:
        """Check what can only be seen at the end.  Raises CompileError with all errors."""
        _check_outputs(self.definition, self.environment, self.report)
        self.report.raise_errors()

    def whole(self, definition: syntax.Definition) -> Function:
        """The program, whose statements are those of ``definition``."""
        return _function(definition, self.environment, tuple(self.statements), self.report)


def _check_outputs(definition: syntax.Definition, environment: Environment, report: Report) -> None:
    excused = environment.misdirected
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
            dtype, default = environment.constants[name], environment.defaults.get(name)
            inputs.append(Tensor(name, dtype, 0, (), "const", parameter.name.span, default))
        else:
            inputs.append(_tensor(environment.tensors[name]))
    # Outputs that nothing has written yet may have no type.
    written = [environment.tensors[p.name.name] for p in definition.outputs]
    outputs = tuple(_tensor(entry) for entry in written if entry.dtype is not None and entry.rank is not None)
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
