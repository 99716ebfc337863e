"""A def over many inputs at once: a leading index on some inputs, and on all that follows from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tcomp.derivatives.text import Expr, name, names_in
from tcomp.errors import Diagnostic, ShapeError
from tcomp.grammar.tree import syntax
from tcomp.grammar.tree.function import Function, Read, walk


def batched_text(function: Function, axes: Sequence[int | None]) -> tuple[str, str]:
    """The text of a def and its name; inputs whose entry of ``axes`` is 0 have a batch as their first dimension.

    Raises:
        ShapeError: not one entry per input, an entry is neither 0 nor None, all are None, or a ``const`` has a batch.
    """
    return _Batch(function, _checked(function, axes)).text()


def is_batched(function: Function, axes: Sequence[int | None]) -> tuple[bool, ...]:
    """Which outputs get the batch."""
    batched = _follow(function, _checked(function, axes))
    return tuple(tensor.name in batched for tensor in function.outputs)


def _checked(function: Function, axes: Sequence[int | None]) -> set[str]:
    behind = function.inputs[len(axes) :]
    axes = (*axes, *(None for tensor in behind if tensor.default is not None))
    if len(axes) != len(function.inputs):
        names = ", ".join(tensor.name for tensor in function.inputs)
        raise ShapeError(f"{function.name}: expected one entry for each input, {names}, but got {len(axes)}")
    given: set[str] = set()
    for tensor, axis in zip(function.inputs, axes, strict=True):
        if axis is None:
            continue
        if axis != 0 or isinstance(axis, bool):
            raise ShapeError(f"{function.name}: the batch of {tensor.name} must be its dimension 0, not {axis!r}")
        if tensor.role == "const":
            message = f"{tensor.name} is a compile-time constant, of which there is one for the whole batch"
            raise ShapeError(Diagnostic(message, function.source, tensor.span))
        given.add(tensor.name)
    if not given:
        raise ShapeError(f"{function.name}: no input has a batch")
    return given


def _follow(function: Function, given: set[str]) -> set[str]:
    """The tensors that depend on ``given``."""
    batched = set(given)
    while True:
        before = len(batched)
        for statement in function.statements:
            reads = {e.tensor for expr in statement.expressions() for e in walk(expr) if isinstance(e, Read)}
            if reads & batched:
                batched.add(statement.target)
        if len(batched) == before:
            return batched


class _Batch:
    def __init__(self, function: Function, given: set[str]) -> None:
        self.function = function
        self.batched = _follow(function, given)
        taken = {*function.tensors, *function.sizes}
        for statement in syntax.statements(function.definition.body):
            taken |= _names(statement)
        self.index, self.size = _fresh("batch", taken), _fresh("BATCH", taken)

    def text(self) -> tuple[str, str]:
        definition = self.function.definition
        own = f"{definition.name.name}_batched"
        changed = syntax.Definition(
            name(own),
            tuple(map(self._parameter, definition.inputs)),
            tuple(map(self._parameter, definition.outputs)),
            tuple(map(self._item, definition.body)),
        )
        return f"{changed}\n", own

    def _parameter(self, parameter: syntax.Parameter) -> syntax.Parameter:
        """Outputs that declare nothing follow from the statements."""
        if parameter.name.name not in self.batched or (parameter.dims is None and parameter.type is None):
            return parameter
        return replace(parameter, dims=(name(self.size), *(parameter.dims or ())))

    def _item(self, item: syntax.Statement | syntax.Loop, in_steps: bool = False) -> syntax.Statement | syntax.Loop:
        if isinstance(item, syntax.Loop):
            return replace(item, body=tuple(self._item(own, in_steps=True) for own in item.body))
        return self._statement(item, in_steps)

    def _statement(self, statement: syntax.Statement, in_steps: bool) -> syntax.Statement:
        """One with the batch as its first subscript; in blocks what bounds that may follow from later steps only."""
        if statement.target.name not in self.batched:
            return statement
        own = {s.name for s in statement.subscripts or () if isinstance(s, syntax.Name)}
        own |= {c.index.name for c in statement.clauses if isinstance(c, syntax.Range)}
        scalars = {n for n in self.batched if self.function.tensors[n].rank == 0} - own
        change: Callable[[Expr], Expr] = lambda expr: self._change(expr, scalars)  # noqa: E731
        clauses = tuple(_changed_clause(clause, change) for clause in statement.clauses)
        if in_steps or not any(
            self._bounds(expr, scalars) for expr in (statement.value, *(statement.subscripts or ()))
        ):
            clauses = (syntax.Range(name(self.index), syntax.Number("0"), name(self.size)), *clauses)
        declared = statement.declared
        if declared is not None and declared.dims is not None:
            declared = replace(declared, dims=(name(self.size), *declared.dims))
        return replace(
            statement,
            declared=declared,
            subscripts=(name(self.index), *map(change, statement.subscripts or ())),
            value=change(statement.value),
            clauses=clauses,
        )

    def _change(self, expr: Expr, scalars: set[str]) -> Expr:
        change: Callable[[Expr], Expr] = lambda child: self._change(child, scalars)  # noqa: E731
        match expr:
            case syntax.Name() if expr.name in scalars:
                return syntax.Apply(expr, (name(self.index),))
            case syntax.Apply():
                arguments = tuple(map(change, expr.arguments))
                if expr.function.name in self.batched:
                    arguments = (name(self.index), *arguments)
                return replace(expr, arguments=arguments)
            case syntax.Boundary():
                tensor, *values = expr.arguments
                subscripts = tuple(map(change, expr.subscripts))
                if isinstance(tensor, syntax.Name) and tensor.name in self.batched:
                    subscripts = (name(self.index), *subscripts)
                return replace(expr, arguments=(tensor, *map(change, values)), subscripts=subscripts)
            case syntax.Cast() | syntax.Unary():
                return replace(expr, operand=change(expr.operand))
            case syntax.Binary():
                return replace(expr, lhs=change(expr.lhs), rhs=change(expr.rhs))
            case syntax.Conditional():
                return replace(
                    expr,
                    condition=change(expr.condition),
                    then=change(expr.then),
                    otherwise=change(expr.otherwise),
                )
            case _:
                return expr

    def _bounds(self, expr: Expr, scalars: set[str]) -> bool:
        """Whether an expression reads a batched tensor so that the batch's range follows from it."""
        if isinstance(expr, syntax.Apply) and expr.function.name in self.batched:
            return True
        if isinstance(expr, syntax.Name):
            return expr.name in scalars
        return any(self._bounds(child, scalars) for child in syntax.children(expr))


def _changed_clause(clause: syntax.Clause, change: Callable[[Expr], Expr]) -> syntax.Clause:
    match clause:
        case syntax.Let():
            return replace(clause, value=change(clause.value))
        case syntax.Exists():
            return replace(clause, read=change(clause.read))
        case _:
            return clause


def _names(statement: syntax.Statement) -> set[str]:
    found = names_in(statement.value).union(*map(names_in, statement.subscripts or ()))
    for clause in statement.clauses:
        match clause:
            case syntax.Range():
                found |= {clause.index.name} | names_in(clause.lower) | names_in(clause.upper)
            case syntax.Let():
                found |= {clause.name.name} | names_in(clause.value)
            case syntax.Exists():
                found |= names_in(clause.read)
    return found


def _fresh(wanted: str, taken: set[str]) -> str:
    while wanted in taken:
        wanted += "_"
    return wanted
