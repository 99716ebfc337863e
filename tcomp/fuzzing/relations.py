"""Changes of a program or of its arrays that leave its results as they are (metamorphic relations).

Each gives a variant and how the results of the variant are those of the program.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from tcomp.fuzzing.calling import statement_builtins, with_a_call
from tcomp.fuzzing.programs.choices import Choices
from tcomp.fuzzing.programs.programs import GARBAGE, Array, Data, Program
from tcomp.fuzzing.rewriting import (
    body,
    declared_names,
    has_blocks,
    map_expressions,
    map_items,
    map_statement,
    rebuilt,
    renamed,
    statement_names,
    targets,
)
from tcomp.grammar.calls.generics import MOST_TYPES
from tcomp.grammar.ranges.ranges import infer
from tcomp.grammar.tree.syntax import (
    Apply,
    Binary,
    Boundary,
    Cast,
    Expr,
    Loop,
    Name,
    Parameter,
    Statement,
    statements,
)
from tcomp.model.evaluation import numpy_dtype
from tcomp.model.terms.sizes import SizeRange

Axes = tuple[int, ...]

LAYOUTS = 5
"""Ways in which ``laid_out`` can lay out an array."""

AWKWARD_NAMES = (
    "for", "main", "threadIdx", "float4", "scratch", "report", "c0", "c1", "v_A", "i_r0", "lane", "l", "omp", "long",
    "restrict", "tc_min", "inf", "nan", "T_acc0", "S0", "S1f", "group0", "v_x_at0", "e0", "e1", "t0", "x_new1", "char",
    "double_", "unsigned", "if", "return", "while", "struct", "static", "void", "signed", "short", "goto", "tile0",
    "blockIdx", "warpSize", "half2", "tc_dynamic", "asm", "class", "new", "template", "this", "operator",
)  # fmt: skip
"""Names that mean something in C, in CUDA, or in generated text."""

MADE_UP = (
    "_1", "_2", "_acc0", "_acc1", "_of_S0", "_of_S1", "_1_at0", "_1_at1", "_of_S0_at0", "_of_S0_low1", "_acc0_at0",
    "_acc0_parts", "_parts", "_sums",
)  # fmt: skip
"""What kernels append to the name of a tensor to name what belongs to it."""

_COMMUTATIVE = frozenset({"+", "*", "==", "!=", "&&", "||", "&", "|", "^"})
_COMMUTATIVE_FUNCTIONS = frozenset({"min", "max"})


@dataclass(frozen=True, slots=True)
class Variant:
    """A program whose output ``new`` is output ``names[new]`` of another, with dimensions permuted by ``axes[new]``.

    The inputs ``bound`` are bound before it is called, the sizes ``opened`` are left open, and element types are
    parameters where it is ``generic``.
    """

    program: Program
    data: Data
    names: Mapping[str, str] = field(default_factory=dict)
    axes: Mapping[str, Axes] = field(default_factory=dict)
    bound: tuple[str, ...] = ()
    opened: Mapping[str, SizeRange] = field(default_factory=dict)
    generic: bool = False

    def restored(self, results: Mapping[str, Array]) -> dict[str, Array]:
        """What the results of the variant say that those of the program are."""
        found = {}
        for name, array in results.items():
            axes = self.axes.get(name)
            found[self.names.get(name, name)] = array if axes is None else array.transpose(np.argsort(axes))
        return found


Relation = Callable[[Choices, Program], Variant]


def same(choices: Choices, program: Program) -> Variant:
    """The program itself."""
    return Variant(program, program.data())


def with_other_names(choices: Choices, program: Program) -> Variant:
    """Names carry no meaning."""
    old = sorted(declared_names(program.definition) - {program.definition.name.name})
    taken = frozenset(statement_builtins(program.definition)) | set(old)
    awkward = [name for name in AWKWARD_NAMES if name not in taken]
    start = choices.integer(0, len(awkward) - 1)
    new = [*awkward[start:], *awkward[:start], *(f"other_{number}" for number in range(len(old)))]
    names = dict(zip(old, new, strict=False))
    for own in old[1:]:
        if choices.chance(30):
            made_up = names[choices.pick(old)] + choices.pick(MADE_UP)
            names[own] = names[own] if made_up in {*names.values(), *taken} else made_up
    data = program.data()
    sizes = {names.get(n, n): v for n, v in program.sizes.items()}
    variant = replace(program, definition=renamed(program.definition, names), sizes=sizes)
    contents = {names[n]: array for n, array in data.contents.items()}
    return Variant(variant, Data(data.arguments, contents), {other: name for name, other in names.items()})


def with_statements_permuted(choices: Choices, program: Program) -> Variant:
    """Neighbouring statements, and blocks, that touch none of each other's results commute."""
    items = list(program.definition.body)
    for _ in range(2 * len(items)):
        pairs = [p for p, pair in enumerate(itertools.pairwise(items)) if _commute(*pair)]
        if not pairs:
            break
        position = choices.pick(pairs)
        items[position : position + 2] = reversed(items[position : position + 2])
    definition = replace(program.definition, body=tuple(items))
    return Variant(replace(program, definition=definition), program.data())


def _commute(first: Statement | Loop, second: Statement | Loop) -> bool:
    (reads, writes), (later_reads, later_writes) = map(_touched, (first, second))
    return (reads | writes).isdisjoint(later_writes) and later_reads.isdisjoint(writes)


def _touched(item: Statement | Loop) -> tuple[set[str], set[str]]:
    """The names that a statement or a block reads and writes."""
    found = [item] if isinstance(item, Statement) else list(statements(item.body))
    return {n for s in found for n in statement_names(s)}, {n for s in found for n in targets(s)}


def with_other_layouts(choices: Choices, program: Program) -> Variant:
    """Where elements lie in memory does not change what they are; outputs are given, too."""
    data = program.data()
    arguments = tuple(a if isinstance(a, int) else laid_out(a, choices.integer(0, LAYOUTS - 1)) for a in data.arguments)
    function = program.function
    boxes = infer(function, program.sizes).boxes
    contents: dict[str, Array] = {}
    for tensor in function.outputs:
        array = data.contents.get(tensor.name)
        if array is None and not choices.chance(50):
            continue
        if array is None:
            array = np.full(boxes[tensor.name].extent, GARBAGE).astype(numpy_dtype(tensor.dtype))
        contents[tensor.name] = laid_out(array, choices.integer(0, LAYOUTS - 1))
    return Variant(program, Data(arguments, contents))


def laid_out(array: Array, layout: int) -> Array:
    """Equal values in another layout.

    Fortran order, reversed, spread out, with the last dimension outermost, or a part of something larger.
    """
    if array.ndim == 0:
        return array
    match layout % LAYOUTS:
        case 0:
            return np.asfortranarray(array)
        case 1:
            reverse = (slice(None, None, -1),) * array.ndim
            return array[reverse].copy()[reverse]
        case 2:
            spread = np.zeros([2 * n for n in array.shape], array.dtype)
            inner = (slice(None, None, 2),) * array.ndim
            spread[inner] = array
            return spread[inner]
        case 3:
            return np.moveaxis(np.moveaxis(array, -1, 0).copy(), 0, -1)
        case _:
            larger = np.zeros([n + 3 for n in array.shape], array.dtype)
            part = tuple(slice(1, 1 + n) for n in array.shape)
            larger[part] = array
            return larger[part]


def with_dimensions_permuted(choices: Choices, program: Program) -> Variant:
    """The order of the dimensions of any tensor carries no meaning, if all accesses follow.

    What a place of several indices reads stays as it is: the order in which a value names them is that of the targets.
    """
    function = program.function
    places = [s for s in body(program.definition) if s.others]
    kept = {name for s in places for name in statement_names(s)}
    kept |= {name for s in places if not kept.isdisjoint(targets(s)) for name in targets(s)}
    free = [t for t in function.tensors.values() if t.rank > 1 and t.name not in kept]
    axes = {t.name: _permutation(choices, t.rank) for t in free}
    for s in places:
        axes |= {name: axes[s.target.name] for name in targets(s) if name in axes}
    data = program.data()

    def change(expr: Expr) -> Expr:
        match expr:
            case Apply() if expr.function.name in axes:
                return replace(expr, arguments=_permuted(expr.arguments, axes[expr.function.name]))
            case Boundary() if str(expr.arguments[0]) in axes:
                return replace(expr, subscripts=_permuted(expr.subscripts, axes[str(expr.arguments[0])]))
            case _:
                return expr

    def parameter(p: Parameter) -> Parameter:
        return replace(p, dims=_permuted(p.dims, axes[p.name.name])) if p.dims and p.name.name in axes else p

    def target(s: Statement) -> Statement:
        own = axes.get(s.target.name)
        if own is None:
            return s
        declared = s.declared
        if declared is not None and declared.dims:
            declared = replace(declared, dims=_permuted(declared.dims, own))
        return replace(s, subscripts=_permuted(s.subscripts or (), own), declared=declared)

    changed = map_expressions(program.definition, lambda e: rebuilt(e, change))
    definition = replace(
        changed,
        inputs=tuple(map(parameter, changed.inputs)),
        outputs=tuple(map(parameter, changed.outputs)),
        body=map_items(changed.body, target),
    )
    arguments = tuple(
        a if isinstance(a, int) or t.name not in axes else np.ascontiguousarray(a.transpose(axes[t.name]))
        for t, a in zip(function.inputs, data.arguments, strict=True)
    )
    contents = {
        name: np.ascontiguousarray(a.transpose(axes[name])) if name in axes else a for name, a in data.contents.items()
    }
    outputs = {t.name: axes[t.name] for t in function.outputs if t.name in axes}
    return Variant(replace(program, definition=definition), Data(arguments, contents), {}, outputs)


def _permutation(choices: Choices, rank: int) -> Axes:
    left, found = list(range(rank)), []
    while left:
        found.append(left.pop(choices.integer(0, len(left) - 1)))
    return tuple(found)


def _permuted(items: tuple[Expr, ...], axes: Axes) -> tuple[Expr, ...]:
    return tuple(items[a] for a in axes)


def with_operands_swapped(choices: Choices, program: Program) -> Variant:
    """Sums, products, extrema, comparisons for equality and `& | ^` do not care which operand comes first.

    A place of several indices stays as it is, since a value that names them in another order means other targets.
    """

    def change(expr: Expr) -> Expr:
        if not choices.chance(60):
            return expr
        match expr:
            case Binary() if expr.op in _COMMUTATIVE:
                return replace(expr, lhs=expr.rhs, rhs=expr.lhs)
            case Apply() if expr.function.name in _COMMUTATIVE_FUNCTIONS:
                return replace(expr, arguments=expr.arguments[::-1])
            case _:
                return expr

    def statement(s: Statement) -> Statement:
        return s if s.others else map_statement(s, lambda e: rebuilt(e, change))

    definition = replace(program.definition, body=map_items(program.definition.body, statement))
    return Variant(replace(program, definition=definition), program.data())


def with_statements_called(choices: Choices, program: Program) -> Variant:
    """Statements in a def of their own, called where they stood, mean the same."""
    return Variant(with_a_call(choices, program), program.data())


def with_arguments_bound(choices: Choices, program: Program) -> Variant:
    """What is known before a call, and computed then, is the same."""
    names = [] if has_blocks(program.definition) else [tensor.name for tensor in program.function.inputs]
    return Variant(program, program.data(), bound=tuple(name for name in names if choices.chance(60)))


def with_open_sizes(choices: Choices, program: Program) -> Variant:
    """A kernel for many sizes is right for each of them."""
    known, dims = program.sizes, dict.fromkeys(str(d) for p in program.definition.inputs for d in p.dims or ())
    sizes = [name for name in dims if known.get(name, 0) > 0]
    if not sizes or has_blocks(program.definition):
        return same(choices, program)
    opened = {}
    for name in dict.fromkeys(choices.pick(sizes) for _ in range(choices.integer(1, 2))):
        size, multiple = known[name], choices.pick((1, 1, 2, 4, 8))
        multiple = multiple if size % multiple == 0 else 1
        least = max(1, size - choices.pick((0, 1, 5, 1000)))
        most = size + choices.pick((0, 1, 7, 40)) * multiple
        opened[name] = SizeRange(least, most, multiple)
    return Variant(program, program.data(), opened=opened)


def with_types_as_parameters(choices: Choices, program: Program) -> Variant:
    """What arrays say of an element type is what was written."""
    definition = program.definition
    taken = declared_names(definition) | statement_builtins(definition)
    free = [name for name in ("T", "U", "ELEMENT", "X_", "TYPE", "t_", "TY_") if name not in taken]
    types = list(dict.fromkeys(p.type for p in definition.inputs if not p.const and p.type is not None))
    chosen = {t: n for t, n in zip(types, free[:MOST_TYPES], strict=False) if choices.chance(70)}
    if not chosen:
        return same(choices, program)

    def change(expr: Expr) -> Expr:
        return replace(expr, type=chosen.get(expr.type, expr.type)) if isinstance(expr, Cast) else expr

    def parameter(p: Parameter) -> Parameter:
        return p if p.const or p.type is None else replace(p, type=chosen.get(p.type, p.type))

    def statement(s: Statement) -> Statement:
        declared = s.declared
        return (
            s
            if declared is None
            else replace(s, declared=replace(declared, type=chosen.get(declared.type, declared.type)))
        )

    changed = map_expressions(definition, lambda e: rebuilt(e, change))
    generic = replace(
        changed,
        body=map_items(changed.body, statement),
        inputs=tuple(map(parameter, definition.inputs)),
        outputs=tuple(map(parameter, definition.outputs)),
        types=tuple(Name(name) for name in chosen.values()),
    )
    return Variant(replace(program, definition=generic), program.data(), generic=True)


RELATIONS: Mapping[str, Relation] = {
    "same": same,
    "renamed": with_other_names,
    "permuted": with_statements_permuted,
    "strided": with_other_layouts,
    "transposed": with_dimensions_permuted,
    "swapped": with_operands_swapped,
    "called": with_statements_called,
    "bound": with_arguments_bound,
    "open": with_open_sizes,
    "generic": with_types_as_parameters,
}
"""Every relation by name, that of a program to itself first."""
