"""Make a failing case small: smaller programs, sizes and options, as long as it fails in the same way."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace

from tcomp.errors import TcompError
from tcomp.fuzzing.cases import Case, changed_options
from tcomp.fuzzing.rewriting import (
    body,
    has_blocks,
    map_expressions,
    map_items,
    names_in,
    rebuilt,
    single_changes,
    single_statement_changes,
    statement_names,
    targets,
    with_statement,
)
from tcomp.grammar.ranges.ranges import Ranges, infer
from tcomp.grammar.tree.function import Function
from tcomp.grammar.tree.syntax import (
    Apply,
    Boundary,
    Definition,
    Expr,
    Loop,
    Name,
    Number,
    Parameter,
    Statement,
    children,
)
from tcomp.mapping.options.options import MappingOptions

Step = Callable[[Case], Iterator[Case]]


def reduce_case(case: Case, fails: Callable[[Case], bool], over: Callable[[], bool]) -> Case:
    """The smallest case found that still ``fails``.

    The search ends when nothing is left to try, or when it is ``over``.  Each candidate is one change away from the
    smallest so far (greedy, as Zeller and Hildebrandt's delta debugging, but on the syntax tree).  Candidates may be
    wrong programs: it is for ``fails`` to say no.
    """
    smaller = True
    while smaller:
        smaller = False
        for step in STEPS:
            position = 0
            while not over():
                candidate = next(itertools.islice(step(case), position, None), None)
                if candidate is None:
                    break
                if fails(candidate):
                    case, smaller = candidate, True
                else:
                    position += 1
    return case


def _with(case: Case, definition: Definition, **sizes: int) -> Case:
    """The case with another def, without the sizes that it no longer has."""
    used = {p.name.name for p in definition.inputs if p.const}
    for parameter in definition.inputs:
        used.update(name for dim in parameter.dims or () for name in names_in(dim))
    kept = {name: value for name, value in (dict(case.program.sizes) | sizes).items() if name in used}
    return replace(case, program=replace(case.program, definition=definition, sizes=kept))


def _with_statement(case: Case, position: int, other: Statement | None) -> Case:
    """The case with another statement, or without one; outputs that none writes are left out."""
    definition = with_statement(case.program.definition, position, other)
    written = {name for s in body(definition) for name in targets(s)}
    outputs = tuple(p for p in definition.outputs if p.name.name in written) or tuple(
        Parameter(s.target) for s in body(definition)[-1:]
    )
    return _with(case, replace(definition, outputs=outputs))


def simpler_settings(case: Case) -> Iterator[Case]:
    """Without relation, order, machine, options or an uncommon device."""
    if case.relation != "same":
        yield replace(case, relation="same", variation=0)
    if case.order != "forward":
        yield replace(case, order="forward")
    if case.machine is not None:
        yield replace(case, machine=None)
    if ":" in case.target:
        yield replace(case, target=case.target.partition(":")[0])
    options = case.options
    plain = MappingOptions()
    if options != plain:
        yield replace(case, options=plain)
        changed = changed_options(options)
        for dropped in changed:
            kept = {name: value for name, value in changed.items() if name != dropped}
            yield replace(case, options=MappingOptions.from_json(json.dumps(kept)))
    if case.program.seed:
        yield replace(case, program=replace(case.program, seed=0))


def fewer_statements(case: Case) -> Iterator[Case]:
    """Without one statement, later ones first."""
    statements = body(case.program.definition)
    for position in reversed(range(len(statements))):
        if len(statements) > 1:
            yield _with_statement(case, position, None)


def earlier_results_given(case: Case) -> Iterator[Case]:
    """Without the first statements: what they give becomes an input."""
    try:
        function = case.program.function
        ranges = infer(function, case.program.sizes)
    except TcompError:
        return
    definition = case.program.definition
    statements = () if has_blocks(definition) else body(definition)
    for count in reversed(range(1, len(statements))):
        rest = statements[count:]
        written = {name for s in rest for name in targets(s)}
        needed = set().union(*(statement_names(s) for s in rest))
        made = {name for s in statements[:count] for name in targets(s)} & needed - written
        inputs = (*definition.inputs, *(_as_input(function, ranges, name) for name in sorted(made)))
        outputs = tuple(p for p in definition.outputs if p.name.name in written)
        if outputs and all(not any(ranges.boxes[name].origin) for name in made):
            yield _with(case, replace(definition, inputs=inputs, outputs=outputs, body=rest))


def _as_input(function: Function, ranges: Ranges, name: str) -> Parameter:
    dims = tuple(Number(str(extent)) for extent in ranges.boxes[name].extent)
    return Parameter(Name(name), function.tensors[name].dtype.name, dims or None)


def fewer_parameters(case: Case) -> Iterator[Case]:
    """Without one output, or one input that is not used."""
    definition = case.program.definition
    for position in reversed(range(len(definition.outputs))):
        if len(definition.outputs) > 1:
            outputs = definition.outputs
            yield _with(case, replace(definition, outputs=(*outputs[:position], *outputs[position + 1 :])))
    used = set().union(*(statement_names(s) for s in body(definition)))
    for position, parameter in enumerate(definition.inputs):
        if parameter.name.name not in used:
            inputs = definition.inputs
            yield _with(case, replace(definition, inputs=(*inputs[:position], *inputs[position + 1 :])))


def fewer_clauses(case: Case) -> Iterator[Case]:
    """Without one clause, or with another operator."""
    statements = body(case.program.definition)
    for position, statement in enumerate(statements):
        clauses = statement.clauses
        shorter = [replace(statement, clauses=(*clauses[:k], *clauses[k + 1 :])) for k in range(len(clauses))]
        if statement.operator != "=":
            shorter.append(replace(statement, operator="=", others=()))
            if statement.operator.startswith("arg"):
                shorter.append(replace(statement, operator=statement.operator.removeprefix("arg"), others=()))
            if not statement.operator.endswith("!"):
                shorter.append(replace(statement, operator=f"{statement.operator}!"))
        for other in shorter:
            yield _with_statement(case, position, other)


def without_blocks(case: Case) -> Iterator[Case]:
    """With what a block holds in its place."""
    items = case.program.definition.body
    for position, item in enumerate(items):
        if isinstance(item, Loop):
            other = (*items[:position], *item.body, *items[position + 1 :])
            yield _with(case, replace(case.program.definition, body=other))


def smaller_sizes(case: Case) -> Iterator[Case]:
    """With a smaller value of one size, or of one literal wherever it stands."""
    definition = case.program.definition
    for name, value in case.program.sizes.items():
        for less in _less(value):
            yield _with(case, definition, **{name: less})
    for value in sorted(_literals(definition), reverse=True):
        for less in _less(value):
            yield _with(case, _with_literal(definition, value, less))


def _less(value: int) -> list[int]:
    return [v for v in dict.fromkeys((1, 2, 3, value // 2, value - 1)) if 0 < v < value]


def _literals(definition: Definition) -> set[int]:
    found: set[int] = set()

    def note(expr: Expr) -> Expr:
        if isinstance(expr, Number) and expr.text.isdigit():
            found.add(int(expr.text))
        return expr

    _map_all(definition, note)
    return found


def _with_literal(definition: Definition, value: int, other: int) -> Definition:
    def change(expr: Expr) -> Expr:
        return Number(str(other)) if isinstance(expr, Number) and expr.text == str(value) else expr

    return _map_all(definition, change)


def _map_all(definition: Definition, change: Callable[[Expr], Expr]) -> Definition:
    """The def with every expression changed, dimensions of parameters included."""

    def parameter(p: Parameter) -> Parameter:
        return p if p.dims is None else replace(p, dims=tuple(rebuilt(d, change) for d in p.dims))

    changed = map_expressions(definition, lambda e: rebuilt(e, change))
    return replace(
        changed, inputs=tuple(map(parameter, definition.inputs)), outputs=tuple(map(parameter, definition.outputs))
    )


def sizes_as_literals(case: Case) -> Iterator[Case]:
    """With the value of a size wherever its name stands; a ``const`` parameter goes with it."""
    definition = case.program.definition
    for name, value in case.program.sizes.items():

        def change(expr: Expr, name: str = name, value: int = value) -> Expr:
            return Number(str(value)) if isinstance(expr, Name) and expr.name == name else expr

        inputs = tuple(p for p in definition.inputs if p.name.name != name)
        yield _with(case, _map_all(replace(definition, inputs=inputs), change))


def fewer_dimensions(case: Case) -> Iterator[Case]:
    """With one dimension less of one tensor."""
    definition = case.program.definition
    try:
        tensors = case.program.function.tensors.values()
    except TcompError:
        return
    for tensor in tensors:
        for dimension in reversed(range(tensor.rank)):
            yield _with(case, _without_dimension(definition, tensor.name, dimension))


def _without_dimension(definition: Definition, tensor: str, dimension: int) -> Definition:
    def shorter(items: tuple[Expr, ...]) -> tuple[Expr, ...]:
        return (*items[:dimension], *items[dimension + 1 :])

    def change(expr: Expr) -> Expr:
        match expr:
            case Apply() if expr.function.name == tensor:
                left = shorter(expr.arguments)
                return replace(expr, arguments=left) if left else Name(tensor)
            case Boundary() if str(expr.arguments[0]) == tensor:
                left = shorter(expr.subscripts)
                return replace(expr, subscripts=left) if left else Name(tensor)
            case _:
                return expr

    def parameter(p: Parameter) -> Parameter:
        return replace(p, dims=shorter(p.dims) or None) if p.dims and p.name.name == tensor else p

    def statement(s: Statement) -> Statement:
        if not s.subscripts or s.target.name != tensor:
            return s
        declared = s.declared
        if declared is not None and declared.dims:
            declared = replace(declared, dims=shorter(declared.dims) or None)
        return replace(s, subscripts=shorter(s.subscripts) or None, declared=declared)

    changed = map_expressions(definition, lambda e: rebuilt(e, change))
    return replace(
        changed,
        inputs=tuple(map(parameter, definition.inputs)),
        outputs=tuple(map(parameter, definition.outputs)),
        body=map_items(changed.body, statement),
    )


def simpler_types(case: Case) -> Iterator[Case]:
    """With inputs of plain types, and outputs that need no declaration."""
    definition = case.program.definition
    for position, parameter in enumerate(definition.inputs):
        for plain in ("float32", "int32"):
            if not parameter.const and parameter.type not in ("float32", plain):
                inputs = list(definition.inputs)
                inputs[position] = replace(parameter, type=plain)
                yield _with(case, replace(definition, inputs=tuple(inputs)))
    for position, parameter in enumerate(definition.outputs):
        if parameter.type is not None:
            outputs = list(definition.outputs)
            outputs[position] = Parameter(parameter.name)
            yield _with(case, replace(definition, outputs=tuple(outputs)))


def simpler_expressions(case: Case) -> Iterator[Case]:
    """With a part of an expression in place of the whole, or a number in place of a part."""
    statements = body(case.program.definition)
    for position, statement in enumerate(statements):
        for other in single_statement_changes(statement, _simpler):
            yield _with_statement(case, position, other)
    inputs = case.program.definition.inputs
    for position, parameter in enumerate(inputs):
        for number, dim in enumerate(parameter.dims or ()):
            for part in single_changes(dim, _simpler):
                dims = (*(parameter.dims or ())[:number], part, *(parameter.dims or ())[number + 1 :])
                changed = (*inputs[:position], replace(parameter, dims=dims), *inputs[position + 1 :])
                yield _with(case, replace(case.program.definition, inputs=changed))


def _simpler(expr: Expr) -> Iterator[Expr]:
    if isinstance(expr, Number):
        if expr.text.isdigit():
            yield from (Number(str(v)) for v in _less(int(expr.text)))
        return
    if isinstance(expr, Boundary) and isinstance(expr.arguments[0], Name):
        yield Apply(expr.arguments[0], expr.subscripts)
    yield from children(expr)
    yield Number("1")
    yield Number("0")


STEPS: tuple[Step, ...] = (
    simpler_settings,
    fewer_statements,
    earlier_results_given,
    fewer_parameters,
    without_blocks,
    smaller_sizes,
    fewer_clauses,
    fewer_dimensions,
    simpler_expressions,
    simpler_types,
    sizes_as_literals,
)
"""Ways to make a case smaller, in the order in which they are tried."""
