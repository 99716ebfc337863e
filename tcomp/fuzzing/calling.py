"""A program with some of its statements in a def of their own, which it calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tcomp.errors import TcompError
from tcomp.fuzzing.programs.choices import Choices
from tcomp.fuzzing.programs.programs import Program
from tcomp.fuzzing.rewriting import body, declared_names, renamed, statement_names, targets
from tcomp.grammar import define
from tcomp.grammar.ranges.ranges import infer
from tcomp.grammar.tree.function import Function
from tcomp.grammar.tree.syntax import Apply, Definition, Expr, Name, Number, Parameter, Statement, Unary, statements

NOT_SAID = ("are not known as formulas of sizes", "are no formulas of its sizes", "the call takes")
"""What errors say of extents that calls cannot be told."""


def with_a_call(choices: Choices, program: Program) -> Program:
    """The program with a run of its statements called; itself where no run can be."""
    runs = _runs(program)
    if not runs:
        return program
    first, last = choices.pick(runs)
    part, call = _outlined(choices, program, first, last)
    part = _shuffled(choices, part)
    items = list(program.definition.body)
    items[first:last] = [call]
    own = replace(program.definition, body=tuple(items))
    defs = [part, own] if choices.chance(50) else [own, part]
    try:
        function = define("\n".join(map(str, defs)))[own.name.name]
        infer(function, program.sizes)
    except TcompError as error:
        if any(text in error.message for text in NOT_SAID):
            return program
        raise
    return replace(program, definition=function.definition)


def _shuffled(choices: Choices, part: Definition) -> Definition:
    """The def with its names dealt out anew, so that they mean other things than in its caller."""
    old = sorted(declared_names(part) - {part.name.name} - statement_builtins(part))
    left = list(old)
    new = [left.pop(choices.integer(0, len(left) - 1)) for _ in old]
    return renamed(part, dict(zip(old, new, strict=True)))


def statement_builtins(definition: Definition) -> frozenset[str]:
    """The names that statements use and do not declare."""
    used = frozenset().union(*(statement_names(s) for s in body(definition)))
    return used - declared_names(definition)


def _runs(program: Program) -> list[tuple[int, int]]:
    """Statements, and blocks of steps, that can be a def: their results are written nowhere else, and nothing starts
    above or below 0."""
    function, items = program.function, list(program.definition.body)
    boxes = infer(function, program.sizes).boxes
    shifted = {name for name, box in boxes.items() if any(box.origin)}
    barred = shifted | {*function.needs_content}
    found = []
    for first in range(len(items)):
        for last in range(first + 1, len(items) + 1):
            run = list(statements(tuple(items[first:last])))
            others = list(statements(tuple(items[:first] + items[last:])))
            written = {name for s in run for name in targets(s)}
            touched = written.union(*map(statement_names, run))
            bare = {str(s) for statement in run for s in statement.subscripts or () if isinstance(s, Name)}
            if not (touched & barred or bare & {*function.sizes} or written & {n for s in others for n in targets(s)}):
                found.append((first, last))
    return found


def _outlined(choices: Choices, program: Program, first: int, last: int) -> tuple[Definition, Statement]:
    """The def of a run of statements, and the call that replaces them, which may leave defaults out."""
    function, items = program.function, program.definition.body
    run = items[first:last]
    used = frozenset().union(*map(statement_names, statements(run)))
    written = list(dict.fromkeys(name for s in statements(run) for name in targets(s)))
    after = frozenset().union(*map(statement_names, statements(items[last:])))
    outputs = {p.name.name: p for p in program.definition.outputs}
    results = [t for t in written if t in after or t in outputs] or written[-1:]
    scalars = [*function.sizes, *(t.name for t in function.inputs if t.role == "const")]
    taken = declared_names(program.definition)
    parameters = _parameters(function, [n for n in function.tensors if n in used and n not in written], scalars)
    parameters += [Parameter(Name(n), "int", const=True, default=_default(choices, program.sizes[n])) for n in scalars]
    declared = tuple(outputs.get(name, Parameter(Name(name))) for name in results)
    own = "part"
    while own in taken:
        own += "_"
    part = Definition(Name(own), tuple(parameters), declared, run)
    given = list(parameters)
    while given and given[-1].default is not None and choices.chance(70):
        given.pop()
    value = Apply(Name(own), tuple(p.name for p in given))
    return part, Statement(Name(results[0]), None, "=", value, others=tuple(map(Name, results[1:])))


def _default(choices: Choices, value: int) -> Expr | None:
    """What a call need not say."""
    if not choices.chance(30):
        return None
    number = Number(str(abs(value)))
    return number if value >= 0 else Unary("-", number)


def _parameters(function: Function, tensors: Sequence[str], taken: Sequence[str]) -> list[Parameter]:
    """Tensors with a size of its own for each dimension."""
    found, number = [], 0
    for name in tensors:
        tensor = function.tensors[name]
        if tensor.role == "const":
            continue
        dims = []
        for _ in range(tensor.rank):
            while f"SIZE{number}" in taken:
                number += 1
            dims.append(Name(f"SIZE{number}"))
            number += 1
        found.append(Parameter(Name(name), tensor.dtype.name, tuple(dims) if dims else None))
    return found
